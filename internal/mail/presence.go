package mail

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
)

// presence is who is there. It is in memory: a presence is a connection, and
// ends with it or with the daemon.
type presence struct {
	changed func()

	mu   sync.Mutex
	next int64
	by   map[target]map[int64]*holder
	kept map[target]keeping
}

// A keeping is a label that nobody holds and that one harness session alone may claim.
type keeping struct {
	harness string
	until   time.Time
}

// A holder is one reason for which a session is live.
type holder struct {
	n     int64
	at    target
	pid   proc.ID // PID 0: the connection alone counts
	boot  string
	busy  bool
	looks bool // draws no mail that names no session: see hold
	cwd   string
	// claimed and harness say who may take the label back: the same harness session.
	claimed bool
	harness string
	parent  int // the harness's process, for its hooks; 0: not known
	since   time.Time
	gone    chan struct{} // closed when the process is gone
	once    sync.Once
}

func (h *holder) end() { h.once.Do(func() { close(h.gone) }) }

// add makes h one of its session's holders, if it may be beside those there are.
func (p *presence) add(h *holder, beside func(*holder) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.kept[h.at]; ok && h.claimed {
		if k.harness != h.harness && time.Now().Before(k.until) {
			return false
		}
		delete(p.kept, h.at)
	}
	for _, other := range p.by[h.at] {
		if !beside(other) {
			return false
		}
	}
	if p.by == nil {
		p.by = map[target]map[int64]*holder{}
	}
	if p.by[h.at] == nil {
		p.by[h.at] = map[int64]*holder{}
	}
	p.next++
	h.n = p.next
	p.by[h.at][h.n] = h
	p.changed()
	return true
}

// keep has a label wait for a harness session.
func (p *presence) keep(at target, harness string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		p.kept = map[target]keeping{}
	}
	for t, k := range p.kept {
		if time.Now().After(k.until) {
			delete(p.kept, t)
		}
	}
	p.kept[at] = keeping{harness, time.Now().Add(d)}
}

func anybody(*holder) bool { return true }
func nobody(*holder) bool  { return false }

// own lets a harness session come back to its label: beside its own other processes,
// and those who only joined.
func (h *holder) own(other *holder) bool {
	return !other.claimed || other.harness != "" && other.harness == h.harness || h.sameProcess(other)
}

func (h *holder) sameProcess(other *holder) bool { return h.pid.PID != 0 && h.pid == other.pid }

// has reports whether the process of h claims a label already.
func (p *presence) has(h *holder, at target) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.by[at] {
		if other.claimed && h.sameProcess(other) {
			return true
		}
	}
	return false
}

// of gives the labels that a harness session claims now.
func (p *presence) of(agent, harness string) (labels []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, holders := range p.by {
		for _, h := range holders {
			if t.agent == agent && h.claimed && h.harness == harness && !slices.Contains(labels, t.label) {
				labels = append(labels, t.label)
			}
		}
	}
	return labels
}

func (p *presence) remove(h *holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by[h.at], h.n)
	if len(p.by[h.at]) == 0 {
		delete(p.by, h.at)
	}
	h.end()
	p.changed()
}

// claimedBeside reports whether another process claims the label of h too.
func (p *presence) claimedBeside(h *holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.by[h.at] {
		if other != h && other.claimed {
			return true
		}
	}
	return false
}

// labels are an agent's live labels, and whether they draw mail that names none.
func (p *presence) labels(agent string) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := map[string]bool{}
	for t, holders := range p.by {
		if t.agent != agent {
			continue
		}
		set[t.label] = false
		for _, h := range holders {
			set[t.label] = set[t.label] || !h.looks
		}
	}
	return set
}

// draws makes a holder one that gets mail like any other.
func (p *presence) draws(h *holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.looks = false
}

// held reports whether a session has a holder.
func (p *presence) held(t target) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.by[t]) > 0
}

// reap ends the presence of processes that are gone while their connection
// is not: a child may have inherited it. It reports whether there are any to
// look at again.
func (p *presence) reap() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := false
	for _, holders := range p.by {
		for _, h := range holders {
			if h.pid.PID == 0 {
				continue
			}
			if (h.boot != "" && h.boot != proc.BootID()) || !h.pid.Alive() {
				h.end()
				continue
			}
			again = true
		}
	}
	return again
}

// hold is a presence for as long as one call lasts. Mail to its label is stored,
// not held. Mail to the agent would be bound to a session that is gone in a
// moment: the call draws what it takes, in the step in which it takes it.
func (m *Mail) hold(agent, label string) (h *holder, release func()) {
	h = &holder{at: target{agent, label}, looks: true, since: m.o.Clock.Wall(), gone: make(chan struct{})}
	m.here.add(h, anybody)
	return h, func() { m.here.remove(h) }
}

// A Presence is a session that a client works as. Who has it calls End.
type Presence struct {
	conch.PresenceInfo
	m *Mail
	h *holder
}

// Gone is closed when the holder's process is gone, or the presence was ended.
func (p *Presence) Gone() <-chan struct{} { return p.h.gone }

// End gives the session up. That is recorded before the label is free: a claim that is
// not given back is that of a daemon that died, whose clients come back for it.
func (p *Presence) End() {
	defer p.m.here.remove(p.h)
	if !p.h.claimed || p.m.ctx.Err() != nil || p.m.here.claimedBeside(p.h) {
		return
	}
	ctx, cancel := context.WithTimeout(p.m.ctx, 5*time.Second)
	defer cancel()
	err := p.m.write(ctx, nil, func(s *step) error {
		_, err := s.tx.Exec(`UPDATE claims SET harness = '' WHERE agent = ? AND label = ?`, p.Agent, p.Label)
		return err
	})
	if err != nil && p.m.ctx.Err() == nil {
		p.m.o.Log.Warn("give a label back", "agent", p.Agent, "label", p.Label, "err", err)
	}
}

// Present makes a client the holder of a session, by joining one that exists or
// by claiming a label: the one wanted if no live session has it; the one that
// this harness session had before, which its processes share; the lowest free
// <harness>:<n>. Claims are atomic: taking a label and finding it free is one
// step under one lock. Where the database cannot be used a label is had all the same,
// one that no shell has, and MailError says why mail is not.
func (m *Mail) Present(ctx context.Context, r conch.PresenceRequest) (*Presence, error) {
	if err := m.checkPresence(&r); err != nil {
		return nil, err
	}
	if err := context.Cause(m.ctx); err != nil {
		return nil, err
	}
	h := &holder{busy: r.Busy, cwd: r.Cwd, since: m.o.Clock.Wall(), boot: r.Boot, claimed: r.Claim, harness: r.HarnessSession, parent: r.HarnessPID, gone: make(chan struct{})}
	if r.PID != 0 {
		h.pid = proc.ID{PID: r.PID, Start: r.Start}
		if r.Start == 0 {
			h.pid, _ = proc.Lookup(r.PID)
		}
		if !h.pid.Alive() || (r.Boot != "" && r.Boot != proc.BootID()) {
			return nil, conch.Errorf(conch.InvalidRequest, "process %d does not live here", r.PID).
				Hint("pid, start and boot are those of the process that holds the session")
		}
	}
	// Before anybody can see it: what its being here brings comes after this.
	var seq int64
	err := m.read(ctx, func(s *step) (err error) {
		seq, err = s.number(`SELECT coalesce(max(n), 0) FROM receipts`)
		return err
	})
	if err != nil && !(r.Claim && unusable(err)) {
		return nil, err
	}
	why := "joined"
	var running map[string]bool
	if r.Claim {
		running = m.runningOf(ctx, r.Agent, "")
		if r.HarnessSession != "" {
			// Two processes of one harness session that both find no label it had
			// before would take one each.
			m.claiming.Lock()
			defer m.claiming.Unlock()
		}
		if why, err = m.claim(ctx, r, h, running); err != nil {
			return nil, err
		}
	} else {
		if err := m.exists(ctx, r.Agent, r.Label); err != nil {
			return nil, err
		}
		h.at = target{r.Agent, r.Label}
		m.here.add(h, anybody)
		running = m.others(ctx, r.Agent)
	}
	err = m.write(ctx, running, func(s *step) error {
		if err := s.present(h.at, r); err != nil {
			return err
		}
		if err := s.expire(); err != nil {
			return err
		}
		return s.settle(r.Agent)
	})
	info := conch.PresenceInfo{Agent: h.at.agent, Label: h.at.label, Why: why, Holder: h.n, Seq: seq}
	if err != nil && r.Claim && unusable(err) {
		// A shell needs a label and no mail. The label is held, and not recorded.
		info.MailError = conch.AsError(err).Message
		m.o.Log.Warn("record a claim", "agent", info.Agent, "label", info.Label, "err", err)
		return &Presence{info, m, h}, nil
	}
	if err != nil {
		m.here.remove(h)
		return nil, err
	}
	m.nudge()
	return &Presence{info, m, h}, nil
}

// unusable reports whether an error is the database's and not the request's.
func unusable(err error) bool {
	switch conch.AsError(err).Kind {
	case conch.StorageFull, conch.StoreDamaged, conch.HomeUnusable, conch.VersionMismatch:
		return true
	}
	return false
}

func (m *Mail) checkPresence(r *conch.PresenceRequest) error {
	if r.Claim && r.Label == "" {
		if err := m.knownAgent(r.Agent); err != nil {
			return err
		}
	} else if err := m.checkSession(r.Agent, r.Label); err != nil {
		return err
	}
	if r.Only && (!r.Claim || r.Label == "") {
		return conch.Errorf(conch.InvalidRequest, "only is for a claim of a label").Hint("give claim and label")
	}
	if r.Harness == "" {
		r.Harness = "session"
	}
	if len(r.Harness) > 20 || conch.CheckLabel(r.Harness) != nil || strings.Contains(r.Harness, ":") {
		return conch.Errorf(conch.InvalidRequest, "%.40q is not a harness name", r.Harness).
			Hint("1 to 20 characters of A-Z a-z 0-9 _ -; labels are made of it")
	}
	if len(r.HarnessSession) > 200 {
		return conch.Errorf(conch.InvalidRequest, "the harness session's id has %d characters, more than 200", len(r.HarnessSession))
	}
	return nil
}

// claim finds h a label and takes it.
func (m *Mail) claim(ctx context.Context, r conch.PresenceRequest, h *holder, running map[string]bool) (why string, err error) {
	mine, kept, lost, err := m.claims(ctx, r)
	if err != nil && !unusable(err) {
		return "", err
	}
	take := func(label string) bool {
		h.at = target{r.Agent, label}
		return !running[h.at.String()] && m.here.add(h, nobody)
	}
	// What runs under one's own label is one's own.
	takeBack := func(label string) bool {
		h.at = target{r.Agent, label}
		return !m.o.Agents.Taken(label) && m.here.add(h, h.own)
	}
	ours := slices.Contains(mine, r.Label) || lost[r.Label] || m.here.has(h, target{r.Agent, r.Label})
	if r.Label != "" && (ours && takeBack(r.Label) || take(r.Label)) {
		return "wanted", nil
	}
	if r.Only {
		return "", conch.Errorf(conch.LabelTaken, "a live session has the label %s", r.Label).
			Hint("choose another label, or name it to work in its shell or send to it")
	}
	for _, label := range mine {
		if takeBack(label) {
			return "before", nil
		}
	}
	for n := 1; ; n++ {
		if label := r.Harness + ":" + strconv.Itoa(n); !kept[label] && take(label) {
			return "free", nil
		}
	}
}

// claims gives the labels that r's harness session had, the last first, and those that
// are not free although nobody holds them: a shell or mail is under them that is
// another's, or their holders lost their daemon and are on the way back. Whoever has
// no name for its session goes on with what another such left, and is known, when it
// is on the way back, by the label it asks for (lost).
func (m *Mail) claims(ctx context.Context, r conch.PresenceRequest) (mine []string, kept, lost map[string]bool, err error) {
	var used []string
	if m.o.Labels != nil {
		used = m.o.Labels(r.Agent)
	}
	kept, lost = map[string]bool{}, map[string]bool{}
	owner := map[string]string{} // the last to claim a label
	back := time.Since(m.began) < comeBack
	err = m.read(ctx, func(s *step) error {
		if r.HarnessSession != "" {
			if mine, err = s.strings(`SELECT label FROM claims WHERE agent = ? AND harness_session = ? ORDER BY at DESC`, r.Agent, r.HarnessSession); err != nil {
				return err
			}
		}
		mail, err := s.strings(`SELECT DISTINCT label FROM deliveries WHERE agent = ? AND state IN ('held', 'stored', 'offered', 'seen')`, r.Agent)
		if err != nil {
			return err
		}
		used = append(used, mail...)
		rows, err := s.tx.Query(`SELECT label, harness_session, harness <> '' FROM claims WHERE agent = ? ORDER BY at`, r.Agent)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var label, session string
			var held bool
			if err := rows.Scan(&label, &session, &held); err != nil {
				return err
			}
			owner[label] = session
			if held && back {
				kept[label] = true
				lost[label] = session == "" && r.HarnessSession == ""
			}
		}
		return rows.Err()
	})
	if r.HarnessSession != "" {
		// What it claims now is its own even where nothing could be recorded.
		for _, label := range m.here.of(r.Agent, r.HarnessSession) {
			if !slices.Contains(mine, label) {
				mine = append(mine, label)
			}
		}
	}
	for _, label := range used {
		if session, claimed := owner[label]; !claimed || session != r.HarnessSession {
			kept[label] = true
		}
	}
	return mine, kept, lost, err
}

// present records a presence: the label for ever, and whose it was.
func (s *step) present(t target, r conch.PresenceRequest) error {
	if err := s.m.untaken(t.label); err != nil {
		return err
	}
	if _, err := s.tx.Exec(`INSERT INTO labels(agent, label, first_seen, last_seen) VALUES (?1, ?2, ?3, ?3)
		ON CONFLICT DO UPDATE SET last_seen = excluded.last_seen`, t.agent, t.label, s.wall); err != nil {
		return err
	}
	if r.Priority != nil {
		if err := s.setPriority(t, *r.Priority); err != nil {
			return err
		}
	}
	if !r.Claim {
		return nil
	}
	_, err := s.tx.Exec(`INSERT INTO claims(agent, harness_session, label, harness, at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET at = excluded.at, harness = excluded.harness`, t.agent, r.HarnessSession, t.label, r.Harness, s.wall)
	return err
}

func (s *step) setPriority(t target, priority int) error {
	_, err := s.tx.Exec(`UPDATE labels SET priority = ? WHERE agent = ? AND label = ?`, priority, t.agent, t.label)
	return err
}

// SetPriority decides who is an agent's primary.
func (m *Mail) SetPriority(ctx context.Context, agent, label string, priority int) error {
	if err := m.exists(ctx, agent, label); err != nil {
		return err
	}
	return m.write(ctx, m.runningOf(ctx, agent, ""), func(s *step) error {
		if err := s.record(agent, label); err != nil {
			return err
		}
		if err := s.setPriority(target{agent, label}, priority); err != nil {
			return err
		}
		return s.settle(agent)
	})
}

// SetBusy says whether the client of a presence is at work.
func (m *Mail) SetBusy(agent, label string, n int64, busy bool) error {
	m.here.mu.Lock()
	defer m.here.mu.Unlock()
	h := m.here.by[target{agent, label}][n]
	if h == nil {
		return conch.Errorf(conch.SessionNotFound, "session %s/%s has no holder %d", agent, label, n).
			Hint("a presence ends with its connection")
	}
	h.busy = busy
	return nil
}

// A Mailbox is a session as mail knows it.
type Mailbox struct {
	Agent, Label string
	Live, Busy   bool
	Cwd          string
	Waiting      int // messages that nobody is done with
	FirstSeen    time.Time
	LastSeen     time.Time
}

// Mailboxes lists the sessions that are held or have mail waiting.
func (m *Mail) Mailboxes(ctx context.Context) ([]Mailbox, error) {
	if !m.Used() {
		return nil, nil
	}
	boxes := map[target]*Mailbox{}
	box := func(t target) *Mailbox {
		if boxes[t] == nil {
			boxes[t] = &Mailbox{Agent: t.agent, Label: t.label}
		}
		return boxes[t]
	}
	m.here.mu.Lock()
	for t, holders := range m.here.by {
		b := box(t)
		b.Live = true
		for _, h := range holders {
			b.Busy = b.Busy || h.busy
			b.FirstSeen, b.LastSeen = h.since, h.since
			if h.cwd != "" {
				b.Cwd = h.cwd
			}
		}
	}
	m.here.mu.Unlock()
	err := m.read(ctx, func(s *step) error {
		rows, err := s.tx.Query(`SELECT agent, label, count(*) FROM deliveries WHERE state IN ('held', 'stored', 'offered', 'seen') GROUP BY agent, label`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var t target
			var n int
			if err := rows.Scan(&t.agent, &t.label, &n); err != nil {
				return err
			}
			box(t).Waiting = n
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for t, b := range boxes {
			var first, last int64
			if s.tx.Row(`SELECT first_seen, last_seen FROM labels WHERE agent = ? AND label = ?`, t.agent, t.label).Scan(&first, &last) == nil {
				b.FirstSeen, b.LastSeen = time.Unix(0, first), time.Unix(0, last)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]Mailbox, 0, len(boxes))
	for _, b := range boxes {
		list = append(list, *b)
	}
	return list, nil
}
