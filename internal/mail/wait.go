package mail

import (
	"context"
	"database/sql"
	"errors"
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
// Fetch; a reply that was asked for by its id is given even if it is leased.
func (m *Mail) Await(ctx context.Context, r conch.AwaitRequest) (*conch.InboxEntry, error) {
	if err := m.exists(ctx, r.Agent, r.Session); err != nil {
		return nil, err
	}
	f := filter{inReplyTo: r.InReplyTo, leased: r.InReplyTo != "", limit: 1}
	if r.From != "" {
		var err error
		if f.from, err = m.resolve(r.Agent, r.From); err != nil {
			return nil, err
		}
	}
	if r.InReplyTo != "" {
		if err := conch.CheckMessageID(r.InReplyTo); err != nil {
			return nil, err
		}
	}
	if r.TimeoutMS < 0 {
		return nil, conch.Errorf(conch.InvalidRequest, "a time limit of %d ms", r.TimeoutMS)
	}
	_, release := m.hold(r.Agent, r.Session)
	defer release()
	return m.await(ctx, target{r.Agent, r.Session}, f, limit(r.TimeoutMS))
}

// limit is a timeout in milliseconds as a channel; nil: none.
func limit(ms int64) <-chan time.Time {
	if ms <= 0 {
		return nil
	}
	return time.After(time.Duration(min(ms, maxExpiry.Milliseconds())) * time.Millisecond)
}

// await looks, and waits for what may have changed, until there is something.
func (m *Mail) await(ctx context.Context, at target, f filter, late <-chan time.Time) (*conch.InboxEntry, error) {
	for {
		changed := m.bell.listen(at.String())
		var found []conch.InboxEntry
		var lease, now int64
		err := m.write(ctx, m.others(ctx, at.agent), func(s *step) (err error) {
			if found, err = s.take(at, f); err != nil || len(found) > 0 {
				return err
			}
			// A lease that ends brings a message back, and rings no bell.
			now = s.now
			lease, err = s.number(`SELECT coalesce(min(lease), 0) FROM deliveries WHERE agent = ? AND label = ? AND state = 'seen' AND lease > ?`, at.agent, at.label, now)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
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
// the same id goes on waiting.
func (m *Mail) Ask(ctx context.Context, r conch.SendRequest, timeoutMS int64) (asked conch.Asked, err error) {
	if timeoutMS < 0 {
		return asked, conch.Errorf(conch.InvalidRequest, "a time limit of %d ms", timeoutMS)
	}
	late := limit(timeoutMS)
	sent, err := m.Send(ctx, r)
	if err != nil {
		return asked, err
	}
	asked.Sent.ID, asked.Sent.To, asked.Sent.ToSession = sent.ID, sent.To, sent.ToSession
	_, release := m.hold(r.Agent, r.Session)
	defer release()
	// The reply may have been fetched by another call of this session already.
	asked.Reply, err = m.await(ctx, target{r.Agent, r.Session}, filter{inReplyTo: sent.ID, asked: true, leased: true, limit: 1}, late)
	asked.TimedOut = err == nil && asked.Reply == nil
	if asked.Reply != nil && asked.Sent.ToSession == nil {
		asked.Sent.ToSession = asked.Reply.FromSession
	}
	return asked, err
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
	err := s.tx.Row(`SELECT n, status FROM messages WHERE id = ?1 AND (from_agent = ?2 OR to_agent = ?2) ORDER BY from_agent = ?2 DESC LIMIT 1`, id, agent).Scan(&n, &r.Status)
	if errors.Is(err, sql.ErrNoRows) {
		return r, conch.Errorf(conch.MessageNotFound, "agent %s has neither sent nor got a message %s", agent, id).
			Hint("conch send prints ids; --agent names another agent")
	}
	if err != nil {
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
