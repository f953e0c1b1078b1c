package mail

import (
	"context"
	"time"

	"github.com/conchsh/conch"
)

// eventBatch is how many events are read at a time.
const eventBatch = 200

// everybody is the bell's key for those who want to know of all mail: no agent's.
const everybody = ""

// Events calls emit with every step of an agent's mail after the event number
// after, and then with each new one as it happens: new mail for a session, and
// receipts of what it sent. With a label only that session's count, and the
// mail it is told of is recorded as offered. Without an agent it is every agent's,
// each step once. after < 0 begins now. idle is
// called when nothing happened for a while. It ends with ctx, or with an error
// of emit or idle.
//
// Numbers only grow and are kept, so that a listener goes on where it was cut off. A
// listener to the whole agent is also told of contacts that wait for a person,
// without a number.
func (m *Mail) Events(ctx context.Context, agent, label string, after int64, emit func(conch.MailEvent) error, idle func() error) error {
	key := agent
	if label != "" {
		if err := m.exists(ctx, agent, label); err != nil {
			return err
		}
		key += "/" + label
	} else if agent != "" {
		if err := m.knownAgent(agent); err != nil {
			return err
		}
	}
	if after < 0 {
		if err := m.read(ctx, func(s *step) (err error) {
			after, err = s.number(`SELECT coalesce(max(n), 0) FROM receipts`)
			return err
		}); err != nil {
			return err
		}
	}
	if err := idle(); err != nil { // the listener knows that it listens
		return err
	}
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	var told map[string]string // contacts that wait for a person
	for {
		changed := m.bell.listen(key)
		var list []conch.MailEvent
		var err error
		if err := m.read(ctx, func(s *step) error {
			if list, after, err = s.events(agent, label, after); err != nil || label != "" {
				return err
			}
			var news []conch.MailEvent
			news, told, err = s.contactEvents(agent, told)
			list = append(news, list...)
			return err
		}); err != nil {
			return err
		}
		var offered []string
		for _, e := range list {
			if err := emit(e); err != nil {
				return err
			}
			if e.Type == "mail" && label != "" {
				offered = append(offered, e.ID)
			}
		}
		if len(offered) > 0 {
			if err := m.offer(ctx, target{agent, label}, offered); err != nil {
				return err
			}
		}
		if len(list) >= eventBatch {
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
	}
}

// contactEvents are the contacts that a person has to decide on and that the
// listener was not told of. They are states and not steps, so they have no
// number: who listens again is told again.
func (s *step) contactEvents(agent string, told map[string]string) (list []conch.MailEvent, now map[string]string, err error) {
	rows, err := s.tx.Query(`SELECT agent, address, state, iif(held <> '', held, text), since FROM contacts WHERE (?1 = '' OR agent = ?1) AND (state = 'asked' OR held <> '')`, agent)
	if err != nil {
		return nil, told, err
	}
	defer rows.Close()
	now = map[string]string{}
	for rows.Next() {
		e := conch.MailEvent{Type: "contact"}
		var state string
		var at int64
		if err := rows.Scan(&e.To, &e.From, &state, &e.Reason, &at); err != nil {
			return nil, told, err
		}
		e.At = time.Unix(0, at).UTC()
		key := e.To + " " + e.From
		now[key] = state + " " + e.Reason
		if told[key] != now[key] {
			list = append(list, e)
		}
	}
	return list, now, rows.Err()
}

func (s *step) events(agent, label string, after int64) ([]conch.MailEvent, int64, error) {
	rows, err := s.tx.Query(`
		SELECT r.n, r.status, r.at, r.reason, r.agent, r.label, m.id, m.from_agent, m.from_session, m.to_agent, m.to_session, m.in_reply_to, octet_length(m.text)
		FROM receipts r JOIN messages m ON m.n = r.msg
		WHERE r.n > ?1 AND (?2 = '' OR (r.agent = ?2 AND (?3 = '' OR r.label = ?3) AND r.status IN ('held', 'stored'))
			OR (m.from_agent = ?2 AND (?3 = '' OR m.from_session = ?3)))
		ORDER BY r.n LIMIT ?4`, after, agent, label, eventBatch)
	if err != nil {
		return nil, after, err
	}
	defer rows.Close()
	var list []conch.MailEvent
	for rows.Next() {
		var e conch.MailEvent
		var at int64
		var about target
		if err := rows.Scan(&e.Seq, &e.Status, &at, &e.Reason, &about.agent, &about.label, &e.ID, &e.From, &e.FromSession, &e.To, &e.ToSession, &e.InReplyTo, &e.Bytes); err != nil {
			return nil, after, err
		}
		e.At, e.Type = time.Unix(0, at).UTC(), "receipt"
		arrived := e.Status == conch.ReceiptHeld || e.Status == conch.ReceiptStored
		if arrived && (about.agent == agent || agent == "" && s.m.o.Agents.Known(about.agent)) && (label == "" || about.label == label) {
			e.Type = "mail"
		}
		if about.label != "" {
			e.ToSession = about.label
		}
		list = append(list, e)
		after = e.Seq
	}
	return list, after, rows.Err()
}

// offer records that a session was told of messages. Those it has fetched
// meanwhile are further already.
func (m *Mail) offer(ctx context.Context, at target, ids []string) error {
	return m.write(ctx, nil, func(s *step) error {
		for _, id := range ids {
			list, err := s.numbers(`SELECT d.msg FROM messages m JOIN deliveries d ON d.msg = m.n
				WHERE m.id = ? AND d.agent = ? AND d.label = ? AND d.state IN ('held', 'stored')`, id, at.agent, at.label)
			if err != nil {
				return err
			}
			for _, n := range list {
				if err := s.offerBy(n, at, ""); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// offerBy records one way of telling a session of a message.
func (s *step) offerBy(n int64, at target, way string) error {
	if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'offered' WHERE agent = ? AND label = ? AND msg = ? AND state IN ('held', 'stored')`,
		at.agent, at.label, n); err != nil {
		return err
	}
	return s.note(n, conch.ReceiptOffered, way, at)
}
