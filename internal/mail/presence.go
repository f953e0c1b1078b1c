package mail

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
)

// presence is who is there. It is in memory: a presence is a connection, and
// ends with it or with the daemon.
type presence struct {
	mu   sync.Mutex
	next int64
	by   map[target]map[int64]*holder
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
	since time.Time
	gone  chan struct{} // closed when the process is gone
	once  sync.Once
}

func (h *holder) end() { h.once.Do(func() { close(h.gone) }) }

// add makes h one of its session's holders. With alone only if it has none.
func (p *presence) add(h *holder, alone bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if alone && len(p.by[h.at]) > 0 {
		return false
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
	return true
}

func (p *presence) remove(h *holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by[h.at], h.n)
	if len(p.by[h.at]) == 0 {
		delete(p.by, h.at)
	}
	h.end()
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
	m.here.add(h, false)
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

// End gives the session up.
func (p *Presence) End() { p.m.here.remove(p.h) }

var harnessRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)

// Present makes a client the holder of a session, by joining one that exists or
// by claiming a label: the one wanted if no live session has it; the one that
// this harness session had before; the lowest free <harness>:<n>. Claims are
// atomic: taking a label and finding it free is one step under one lock.
func (m *Mail) Present(ctx context.Context, r conch.PresenceRequest) (*Presence, error) {
	if err := m.checkPresence(&r); err != nil {
		return nil, err
	}
	if err := context.Cause(m.ctx); err != nil {
		return nil, err
	}
	h := &holder{busy: r.Busy, cwd: r.Cwd, since: m.o.Clock.Wall(), boot: r.Boot, gone: make(chan struct{})}
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
	why := "joined"
	var running map[string]bool
	if r.Claim {
		running = m.runningOf(ctx, r.Agent, "")
		var err error
		if why, err = m.claim(ctx, r, h, running); err != nil {
			return nil, err
		}
	} else {
		if err := m.exists(ctx, r.Agent, r.Label); err != nil {
			return nil, err
		}
		h.at = target{r.Agent, r.Label}
		m.here.add(h, false)
		running = m.others(ctx, r.Agent)
	}
	err := m.write(ctx, running, func(s *step) error {
		if err := s.present(h.at, r); err != nil {
			return err
		}
		if err := s.expire(); err != nil {
			return err
		}
		return s.settle(r.Agent)
	})
	if err != nil {
		m.here.remove(h)
		return nil, err
	}
	m.nudge()
	return &Presence{conch.PresenceInfo{Agent: h.at.agent, Label: h.at.label, Why: why, Holder: h.n}, m, h}, nil
}

func (m *Mail) checkPresence(r *conch.PresenceRequest) error {
	if r.Claim && r.Label == "" {
		if err := m.knownAgent(r.Agent); err != nil {
			return err
		}
	} else if err := m.checkSession(r.Agent, r.Label); err != nil {
		return err
	}
	if r.Harness == "" {
		r.Harness = "session"
	}
	if !harnessRE.MatchString(r.Harness) {
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
	take := func(label string) bool {
		h.at = target{r.Agent, label}
		return !running[h.at.String()] && m.here.add(h, true)
	}
	if r.Label != "" && take(r.Label) {
		return "wanted", nil
	}
	if r.HarnessSession != "" {
		var before []string
		err := m.read(ctx, func(s *step) (err error) {
			before, err = s.strings(`SELECT label FROM claims WHERE agent = ? AND harness_session = ? ORDER BY at DESC`, r.Agent, r.HarnessSession)
			return err
		})
		if err != nil {
			return "", err
		}
		for _, label := range before {
			if !m.o.Agents.Taken(label) && take(label) {
				return "before", nil
			}
		}
	}
	for n := 1; ; n++ {
		if take(r.Harness + ":" + strconv.Itoa(n)) {
			return "free", nil
		}
	}
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
	if !r.Claim || r.HarnessSession == "" {
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
