package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// A live session, as routing sees it.
type live struct {
	label    string
	priority int
	looks    bool // is there, and draws no mail that names no session
}

// takers are those of an agent's live sessions that a message to the agent may
// go to. Never its sender: who asks the agent asks somebody else.
func takers(here []live, agent string, from target) []live {
	return slices.DeleteFunc(slices.Clone(here), func(l live) bool { return l.looks || target{agent, l.label} == from })
}

// A decision is where a message goes now.
type decision struct {
	to     []string // labels that get it
	held   bool     // it waits for a session
	refuse bool
}

// route is the whole table of who gets what: to is the label asked for, known
// by its agent, or "" for the agent.
func route(to string, policy conch.Policy, here []live) decision {
	switch {
	case to != "":
		away := !slices.ContainsFunc(here, func(l live) bool { return l.label == to })
		return decision{to: []string{to}, held: away}
	case policy == conch.PolicyDrop:
		return decision{refuse: true}
	case len(here) == 0:
		return decision{held: true}
	case policy == conch.PolicyBroadcast:
		var all []string
		for _, l := range here {
			all = append(all, l.label)
		}
		slices.SortFunc(all, CompareLabels)
		return decision{to: all}
	}
	return decision{to: []string{primary(here).label}}
}

// primary is the session of the highest priority, then of the lowest label.
func primary(here []live) live {
	return slices.MinFunc(here, func(a, b live) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), CompareLabels(a.label, b.label))
	})
}

// live lists an agent's sessions that somebody holds, those that run a command
// included.
func (s *step) live(agent string) ([]live, error) {
	set := s.m.here.labels(agent)
	for name := range s.running {
		if l, ok := cut(agent, name); ok {
			set[l] = true
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	here := make([]live, 0, len(set))
	for l, draws := range set {
		p, err := s.number(`SELECT coalesce(max(priority), 0) FROM labels WHERE agent = ? AND label = ?`, agent, l)
		if err != nil {
			return nil, err
		}
		here = append(here, live{l, int(p), !draws})
	}
	return here, nil
}

// cut takes the label out of agent/label.
func cut(agent, name string) (string, bool) {
	if len(name) > len(agent) && name[:len(agent)] == agent && name[len(agent)] == '/' {
		return name[len(agent)+1:], true
	}
	return "", false
}

// policy is what counts for a message to an agent.
func (s *step) policy(agent string, asked conch.Policy) (conch.Policy, error) {
	if asked != "" {
		return asked, nil
	}
	p := conch.PolicyPrimary
	err := s.tx.Row(`SELECT policy FROM policies WHERE agent = ?`, agent).Scan(&p)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return p, err
}

// settle looks at an agent's held mail again. label, if given, counts as live.
func (m *Mail) settle(ctx context.Context, agent, label string) error {
	running := m.runningOf(ctx, agent, "")
	if label != "" {
		if running == nil {
			running = map[string]bool{}
		}
		running[agent+"/"+label] = true
	}
	return m.write(ctx, running, func(s *step) error {
		if err := s.expire(); err != nil {
			return err
		}
		return s.settle(agent)
	})
}

// Stir says that a session of this label comes to life: its shell is about to
// run a command. It costs nothing where no mail waits, and never blocks.
func (m *Mail) Stir(agent, label string) {
	if m.st.Load() == nil || !m.spread.Load() && !m.held.Load() {
		return
	}
	name := agent + "/" + label
	m.gomu.Lock()
	defer m.gomu.Unlock()
	if m.gone || m.stirring[name] {
		return
	}
	if m.stirring == nil {
		m.stirring = map[string]bool{}
	}
	m.stirring[name] = true
	m.wg.Go(func() { // ends with one write
		m.gomu.Lock()
		delete(m.stirring, name)
		m.gomu.Unlock()
		if err := m.settle(m.ctx, agent, label); err != nil && m.ctx.Err() == nil {
			m.o.Log.Warn("look at held mail", "agent", agent, "err", err)
		}
	})
}

// open is a message that may get recipients.
type open struct {
	n           int64
	policy      conch.Policy
	status      conch.Receipt
	spreadUntil int64
	from        target
	size        int // of the text
}

func (s *step) settle(agent string) error {
	here, err := s.live(agent)
	if err != nil {
		return err
	}
	for _, l := range here {
		if err := s.arrive(agent, l.label); err != nil {
			return err
		}
	}
	list, err := s.opened(agent)
	if err != nil {
		return err
	}
	for _, o := range list {
		if err := s.reconsider(agent, o, here); err != nil {
			return err
		}
	}
	return s.count()
}

// count notes whether there is anything left that may find a recipient.
func (s *step) count() error {
	var spread, held bool
	err := s.tx.Row(`SELECT EXISTS (SELECT 1 FROM messages WHERE open = 1), EXISTS (SELECT 1 FROM deliveries WHERE state = 'held')`).Scan(&spread, &held)
	if err == nil {
		s.m.spread.Store(spread)
		s.m.held.Store(held)
	}
	return err
}

// arrive turns what a label was held into stored: it is live again.
func (s *step) arrive(agent, label string) error {
	list, err := s.numbers(`SELECT msg FROM deliveries WHERE agent = ? AND label = ? AND state = 'held' ORDER BY msg`, agent, label)
	if err != nil {
		return err
	}
	for _, n := range list {
		if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'stored' WHERE agent = ? AND label = ? AND msg = ?`, agent, label, n); err != nil {
			return err
		}
		if err := s.note(n, conch.ReceiptStored, "", target{agent, label}); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) numbers(query string, args ...any) ([]int64, error) {
	rows, err := s.tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

func (s *step) opened(agent string) ([]open, error) {
	rows, err := s.tx.Query(`SELECT n, policy, status, spread_until, from_agent, from_session, octet_length(text) FROM messages WHERE open = 1 AND to_agent = ? ORDER BY n`, agent)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []open
	for rows.Next() {
		var o open
		if err := rows.Scan(&o.n, &o.policy, &o.status, &o.spreadUntil, &o.from.agent, &o.from.label, &o.size); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

// reconsider routes one message to an agent again.
func (s *step) reconsider(agent string, o open, here []live) error {
	had, err := s.recipients(o.n, agent)
	if err != nil {
		return err
	}
	policy, err := s.policy(agent, o.policy)
	if err != nil {
		return err
	}
	d := route("", policy, takers(here, agent, o.from))
	switch {
	case policy != conch.PolicyBroadcast && len(had) > 0, policy == conch.PolicyBroadcast && o.spreadUntil <= s.now && len(had) > 0:
		// It has its recipients, and gets no more.
		return s.closeMessage(o.n)
	case d.refuse:
		if err := s.note(o.n, conch.ReceiptRefused, fmt.Sprintf("agent %s takes no mail that names no session (policy drop)", agent), target{}); err != nil {
			return err
		}
		return s.closeMessage(o.n)
	case d.held:
		return nil
	}
	for _, l := range d.to {
		if slices.Contains(had, l) {
			continue
		}
		if err := s.place(o.n, target{agent, l}, conch.ReceiptStored); err != nil {
			return err
		}
		if err := s.advance(o.n, conch.ReceiptStored); err != nil {
			return err
		}
	}
	if policy != conch.PolicyBroadcast {
		return s.closeMessage(o.n)
	}
	return nil
}

// recipients are the labels of an agent that have a message in their inbox.
// Going through the labels spares deliveries an index.
func (s *step) recipients(n int64, agent string) ([]string, error) {
	return s.strings(`SELECT l.label FROM labels l CROSS JOIN deliveries d ON d.agent = l.agent AND d.label = l.label AND d.msg = ? WHERE l.agent = ?`, n, agent)
}

// reached is what became of a message in each inbox that has it.
func (s *step) reached(n int64, agent string) ([]conch.Recipient, error) {
	if IsAddress(agent) {
		return s.reachedAway(n, agent)
	}
	rows, err := s.tx.Query(`SELECT d.label, d.state, coalesce((SELECT max(r.at) FROM receipts r WHERE r.msg = d.msg AND r.agent = d.agent AND r.label = d.label), d.received_at)
		FROM labels l CROSS JOIN deliveries d ON d.agent = l.agent AND d.label = l.label AND d.msg = ? WHERE l.agent = ?`, n, agent)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []conch.Recipient{}
	for rows.Next() {
		var r conch.Recipient
		var label string
		var at int64
		if err := rows.Scan(&label, &r.Status, &at); err != nil {
			return nil, err
		}
		r.Session, r.At = target{agent, label}.String(), time.Unix(0, at).UTC()
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b conch.Recipient) int { return CompareLabels(a.Session, b.Session) })
	return list, rows.Err()
}

// why says in words what a status leaves out: how many recipients are how far,
// or, where a message failed, what the last receipt gives as its reason.
func (s *step) why(n int64, status conch.Receipt, list []conch.Recipient) (reason string, err error) {
	count := map[conch.Receipt]int{}
	for _, r := range list {
		count[r.Status]++
	}
	if len(count) > 1 {
		var parts []string
		for _, r := range slices.SortedFunc(maps.Keys(count), func(a, b conch.Receipt) int { return cmp.Compare(rank(b), rank(a)) }) {
			word := string(r)
			if r == conch.ReceiptExpired {
				word = "expired unread"
			}
			of := ""
			if len(parts) == 0 {
				of = fmt.Sprintf(" of %d", len(list))
			}
			parts = append(parts, fmt.Sprintf("%d%s %s", count[r], of, word))
		}
		return strings.Join(parts, ", "), nil
	}
	switch status {
	case conch.ReceiptQueued, conch.ReceiptHeld, conch.ReceiptRefused, conch.ReceiptExpired, conch.ReceiptFailed:
		err = s.tx.Row(`SELECT reason FROM receipts WHERE msg = ? AND status = ? ORDER BY n DESC LIMIT 1`, n, status).Scan(&reason)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
	}
	return reason, err
}

func (s *step) closeMessage(n int64) error {
	_, err := s.tx.Exec(`UPDATE messages SET open = 0 WHERE n = ?`, n)
	return err
}

// place puts a message into an inbox. There is one row for a message and a
// session, whatever happens: the key sees to it.
func (s *step) place(n int64, to target, state conch.Receipt) error {
	if err := s.record(to.agent, to.label); err != nil {
		return err
	}
	if _, err := s.tx.Exec(`INSERT INTO deliveries(agent, label, msg, state, received_at, lease, times) VALUES (?, ?, ?, ?, ?, 0, 0)`,
		to.agent, to.label, n, state, s.wall); err != nil {
		return err
	}
	s.concern(to.agent, to.label)
	return s.receipt(n, state, "", to)
}

// receipt adds a line to a message's history.
func (s *step) receipt(n int64, status conch.Receipt, reason string, about target) error {
	_, err := s.tx.Exec(`INSERT INTO receipts(msg, status, at, reason, agent, label) VALUES (?, ?, ?, ?, ?, ?)`,
		n, status, s.wall, reason, about.agent, about.label)
	return err
}

// rank orders what can happen to a message in an inbox.
func rank(r conch.Receipt) int {
	switch r {
	case conch.ReceiptSent:
		return 1
	case conch.ReceiptHeld:
		return 2
	case conch.ReceiptStored:
		return 3
	case conch.ReceiptOffered:
		return 4
	case conch.ReceiptRefused, conch.ReceiptExpired, conch.ReceiptFailed:
		return 5
	case conch.ReceiptSeen:
		return 6
	case conch.ReceiptDone:
		return 7
	}
	return 0 // queued
}

// note adds to a message's history, about one recipient or all of it, and
// moves its status on.
func (s *step) note(n int64, status conch.Receipt, reason string, about target) error {
	if err := s.receipt(n, status, reason, about); err != nil {
		return err
	}
	if about.agent != "" {
		s.concern(about.agent, about.label)
	}
	return s.advance(n, status)
}

// advance moves a message's status on and has its sender told. Of several
// recipients the one that is least far counts: done is when all are.
func (s *step) advance(n int64, status conch.Receipt) error {
	var was conch.Receipt
	var from, to target
	if err := s.tx.Row(`SELECT status, from_agent, from_session, to_agent, to_session FROM messages WHERE n = ?`, n).
		Scan(&was, &from.agent, &from.label, &to.agent, &to.label); err != nil {
		return err
	}
	s.away = s.away || IsAddress(from.agent)
	s.concern(from.agent, from.label)
	further := rank(status) > rank(was)
	if to.label == "" {
		list, err := s.reached(n, to.agent)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			status = slices.MinFunc(list, func(a, b conch.Recipient) int { return cmp.Compare(rank(a.Status), rank(b.Status)) }).Status
			further = status != was // or back: a broadcast reached one more
		}
	}
	if !further {
		return nil
	}
	_, err := s.tx.Exec(`UPDATE messages SET status = ? WHERE n = ?`, status, n)
	return err
}

// expire ends what nobody saw in time. A message that was seen stays until it
// is done with.
func (s *step) expire() error {
	due, err := s.numbers(`SELECT n FROM messages WHERE expires > 0 AND expires <= ? ORDER BY expires, n`, s.now)
	if err != nil {
		return err
	}
	for _, n := range due {
		if err := s.expireOne(n); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) expireOne(n int64) error {
	if away, err := s.expireAway(n); away || err != nil {
		return err
	}
	rows, err := s.tx.Query(`SELECT d.agent, d.label, d.state FROM messages m CROSS JOIN labels l ON l.agent = m.to_agent
		CROSS JOIN deliveries d ON d.agent = l.agent AND d.label = l.label AND d.msg = m.n WHERE m.n = ?`, n)
	if err != nil {
		return err
	}
	var unseen []target
	others := 0
	for rows.Next() {
		var t target
		var state conch.Receipt
		if err := rows.Scan(&t.agent, &t.label, &state); err != nil {
			rows.Close()
			return err
		}
		if rank(state) <= rank(conch.ReceiptOffered) {
			unseen = append(unseen, t)
		} else {
			others++
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	const why = "nobody fetched it in time"
	for _, t := range unseen {
		if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'expired' WHERE agent = ? AND label = ? AND msg = ?`, t.agent, t.label, n); err != nil {
			return err
		}
		if err := s.note(n, conch.ReceiptExpired, why, t); err != nil {
			return err
		}
	}
	if len(unseen) == 0 && others == 0 {
		if err := s.note(n, conch.ReceiptExpired, "no session was there to take it in time", target{}); err != nil {
			return err
		}
	}
	// Negative: through with it, and out of the index of what is due.
	_, err = s.tx.Exec(`UPDATE messages SET open = 0, expires = -expires WHERE n = ?`, n)
	return err
}
