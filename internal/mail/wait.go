package mail

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/conchsh/conch"
)

// bell wakes those who wait for something of a session or an agent. Who listens
// first and looks then cannot miss a change.
type bell struct {
	mu   sync.Mutex
	room map[string]chan struct{}
}

// listen gives a channel that is closed by the next ring.
func (b *bell) listen(key string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room == nil {
		b.room = map[string]chan struct{}{}
	}
	if b.room[key] == nil {
		b.room[key] = make(chan struct{})
	}
	return b.room[key]
}

func (b *bell) ring(keys map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range keys {
		if c := b.room[k]; c != nil {
			close(c)
			delete(b.room, k)
		}
	}
}

// Await gives the next message of an inbox that r asks for, now if it is there
// and else when it comes. Nil: the time is up. What it gives is leased, as by
// Fetch, and what is leased is not given, but to the same request (r.Token).
func (m *Mail) Await(ctx context.Context, r conch.AwaitRequest) (*conch.InboxEntry, error) {
	if err := m.exists(ctx, r.Agent, r.Session); err != nil {
		return nil, err
	}
	f := filter{inReplyTo: r.InReplyTo, limit: 1, token: r.Token}
	if r.From != "" {
		var err error
		if f.from, err = m.resolve(ctx, r.Agent, r.From); err != nil {
			return nil, err
		}
		// Of a label that never was nothing will come.
		if err := m.Reaches(ctx, r.Agent, r.From); err != nil {
			return nil, err
		}
	}
	if r.InReplyTo != "" {
		if err := conch.CheckMessageID(r.InReplyTo); err != nil {
			return nil, err
		}
	}
	if err := checkToken(r.Token); err != nil {
		return nil, err
	}
	if r.TimeoutMS < 0 {
		return nil, conch.Errorf(conch.InvalidRequest, "a time limit of %d ms", r.TimeoutMS)
	}
	h, release := m.hold(r.Agent, r.Session)
	defer release()
	return m.await(ctx, h, f, limit(r.TimeoutMS), nil)
}

func checkToken(t string) error {
	if len(t) > 100 {
		return conch.Errorf(conch.InvalidRequest, "the token has %d bytes, more than 100", len(t))
	}
	return nil
}

// limit is a timeout in milliseconds as a channel; nil: none.
func limit(ms int64) <-chan time.Time {
	if ms <= 0 {
		return nil
	}
	return time.After(time.Duration(min(ms, maxExpiry.Milliseconds())) * time.Millisecond)
}

// await looks, and waits for what may have changed, until there is something or
// over, if there is one, says that nothing will come.
func (m *Mail) await(ctx context.Context, h *holder, f filter, late <-chan time.Time, over func(*step) (bool, error)) (*conch.InboxEntry, error) {
	at := h.at
	for {
		changed := m.bell.listen(at.String())
		var found conch.InboxPage
		var lease, now int64
		end := false
		err := m.write(ctx, m.others(ctx, at.agent), func(s *step) (err error) {
			if found, err = s.take(at, f); err != nil {
				return err
			}
			if over != nil {
				if end, err = over(s); err != nil {
					return err
				}
			}
			if len(found.Messages) > 0 {
				return nil
			}
			if !f.choosy() {
				m.here.draws(h) // what comes next is what it waits for
			}
			// A lease that ends brings a message back, and rings no bell.
			now = s.now
			lease, err = s.number(`SELECT coalesce(min(lease), 0) FROM deliveries WHERE agent = ? AND label = ? AND state = 'seen' AND lease > ?`, at.agent, at.label, now)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(found.Messages) > 0 {
			return &found.Messages[0], nil
		}
		if end {
			return nil, nil
		}
		var again <-chan time.Time
		if lease > 0 {
			again = time.After(time.Duration(lease - now + 1))
		}
		select {
		case <-changed:
		case <-again:
		case <-late:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.ctx.Done():
			return nil, context.Cause(m.ctx)
		}
	}
}

// Ask sends a message and waits for the reply to it from a session that got it.
// A reply that comes later is in the inbox like any other. Asking again under
// the same id goes on waiting. It ends without a reply when the time is up, and
// when nobody is left who could answer.
func (m *Mail) Ask(ctx context.Context, r conch.AskRequest) (asked conch.Asked, err error) {
	if r.TimeoutMS < 0 {
		return asked, conch.Errorf(conch.InvalidRequest, "a time limit of %d ms", r.TimeoutMS)
	}
	if err := checkToken(r.Token); err != nil {
		return asked, err
	}
	late := limit(r.TimeoutMS)
	sent, err := m.Send(ctx, r.SendRequest)
	if err != nil {
		return asked, err
	}
	h, release := m.hold(r.Agent, r.Session)
	defer release()
	ended := false
	asked.Reply, err = m.await(ctx, h, filter{inReplyTo: sent.ID, asked: true, limit: 1, token: r.Token}, late, func(s *step) (bool, error) {
		asked.Sent, ended, err = s.question(r.Agent, sent.ID)
		return ended, err
	})
	if err != nil {
		return asked, err
	}
	asked.TimedOut = asked.Reply == nil && !ended
	return asked, nil
}

// question is what became of a message that somebody waits for the answer to,
// and whether nobody is left who could give it.
func (s *step) question(agent, id string) (q conch.AskedMessage, ended bool, err error) {
	var n int64
	if err := s.tx.Row(`SELECT n FROM messages WHERE id = ? AND from_agent = ?`, id, agent).Scan(&n); err != nil {
		return q, false, err
	}
	sent, err := s.sent(n)
	if err != nil {
		return q, false, err
	}
	list, err := s.reached(n, sent.To)
	if err != nil {
		return q, false, err
	}
	q = conch.AskedMessage{ID: id, To: sent.To, ToSession: sent.ToSession, Status: sent.Status}
	q.Reason, err = s.why(n, sent.Status, list)
	switch sent.Status {
	case conch.ReceiptRefused, conch.ReceiptExpired, conch.ReceiptFailed:
		// One of several may have seen it in time.
		ended = !slices.ContainsFunc(list, func(r conch.Recipient) bool {
			return r.Status == conch.ReceiptSeen || r.Status == conch.ReceiptDone
		})
	}
	return q, ended, err
}

// Receipts is all that became of a message, for an agent that sent or got it.
func (m *Mail) Receipts(ctx context.Context, agent, id string) (r conch.Receipts, err error) {
	if err := m.knownAgent(agent); err != nil {
		return r, err
	}
	if err := conch.CheckMessageID(id); err != nil {
		return r, err
	}
	err = m.write(ctx, nil, func(s *step) error { // what is due expires first
		if err := s.expire(); err != nil {
			return err
		}
		r, err = s.receipts(agent, id)
		return err
	})
	return r, err
}

func (s *step) receipts(agent, id string) (conch.Receipts, error) {
	r := conch.Receipts{ID: id, History: []conch.ReceiptEntry{}}
	var n int64
	var to string
	err := s.tx.Row(`SELECT n, status, to_agent FROM messages WHERE id = ?1 AND (from_agent = ?2 OR to_agent = ?2) ORDER BY from_agent = ?2 DESC LIMIT 1`, id, agent).Scan(&n, &r.Status, &to)
	if errors.Is(err, sql.ErrNoRows) {
		return r, conch.Errorf(conch.MessageNotFound, "agent %s has neither sent nor got a message %s", agent, id).
			Hint("conch send prints ids; --agent names another agent")
	}
	if err != nil {
		return r, err
	}
	if r.Recipients, err = s.reached(n, to); err != nil {
		return r, err
	}
	if r.Reason, err = s.why(n, r.Status, r.Recipients); err != nil {
		return r, err
	}
	rows, err := s.tx.Query(`SELECT status, at, reason, agent, label FROM receipts WHERE msg = ? ORDER BY n`, n)
	if err != nil {
		return r, err
	}
	defer rows.Close()
	for rows.Next() {
		var e conch.ReceiptEntry
		var at int64
		var t target
		if err := rows.Scan(&e.Status, &at, &e.Reason, &t.agent, &t.label); err != nil {
			return r, err
		}
		e.At, e.Session = time.Unix(0, at).UTC(), t.String()
		r.History = append(r.History, e)
	}
	return r, rows.Err()
}
