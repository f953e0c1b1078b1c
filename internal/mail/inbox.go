package mail

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// filter says which messages of an inbox are meant.
type filter struct {
	from      target // zero: anybody
	inReplyTo string
	asked     bool // only from a session that got the message replied to
	leased    bool // also what is leased
	limit     int
}

// Fetch gives what waits in a session's inbox, oldest first, and leases it: it is
// not given out again for LeaseTime, unless it is done with before.
func (m *Mail) Fetch(ctx context.Context, agent, label string, limit int) (list []conch.InboxEntry, err error) {
	if err := m.exists(ctx, agent, label); err != nil {
		return nil, err
	}
	_, release := m.hold(agent, label)
	defer release()
	err = m.write(ctx, m.others(ctx, agent), func(s *step) error {
		list, err = s.take(target{agent, label}, filter{limit: limit})
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		fault.Point("mail.leased")
	}
	return list, nil
}

// Peek shows an inbox as it is, leased messages too, and leases nothing.
func (m *Mail) Peek(ctx context.Context, agent, label string, limit int) (list []conch.InboxEntry, err error) {
	if err := m.exists(ctx, agent, label); err != nil {
		return nil, err
	}
	_, release := m.hold(agent, label)
	defer release()
	// A write, since being there may bring mail that was held.
	err = m.write(ctx, m.others(ctx, agent), func(s *step) error {
		at := target{agent, label}
		if err := s.attend(at); err != nil {
			return err
		}
		rows, err := s.waiting(at, filter{leased: true, limit: limit})
		if err != nil {
			return err
		}
		list = make([]conch.InboxEntry, 0, len(rows))
		for _, r := range rows {
			e := r.entry(at)
			if r.lease > s.now {
				until := time.Unix(0, s.wall+r.lease-s.now).UTC()
				e.LeasedUntil = &until
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

// attend is what a session's being there does: its label counts, what is due
// expires, and held mail finds it.
func (s *step) attend(at target) error {
	if err := s.record(at.agent, at.label); err != nil {
		return err
	}
	if err := s.expire(); err != nil {
		return err
	}
	return s.settle(at.agent)
}

// take leases what a filter lets through.
func (s *step) take(at target, f filter) ([]conch.InboxEntry, error) {
	if err := s.attend(at); err != nil {
		return nil, err
	}
	rows, err := s.waiting(at, f)
	if err != nil {
		return nil, err
	}
	list := make([]conch.InboxEntry, 0, len(rows))
	for _, r := range rows {
		if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'seen', lease = ?, times = times + 1 WHERE agent = ? AND label = ? AND msg = ?`,
			s.now+int64(LeaseTime), at.agent, at.label, r.n); err != nil {
			return nil, err
		}
		if r.state != conch.ReceiptSeen {
			if err := s.note(r.n, conch.ReceiptSeen, "", at); err != nil {
				return nil, err
			}
		}
		list = append(list, r.entry(at))
	}
	return list, nil
}

// row is a message in an inbox.
type row struct {
	n                                      int64
	id, fromAgent, fromSession, role, text string
	inReplyTo, thread                      string
	auto                                   bool
	state                                  conch.Receipt
	lease                                  int64
	times                                  int
	sentAt, receivedAt                     int64
}

func (r row) entry(at target) conch.InboxEntry {
	e := conch.InboxEntry{
		ID: r.id, From: r.fromAgent, ToSession: at.label, Role: r.role, Text: r.text, Auto: r.auto, Thread: r.thread,
		Repeat: r.times > 0, SentAt: time.Unix(0, r.sentAt).UTC(), ReceivedAt: time.Unix(0, r.receivedAt).UTC(),
	}
	if r.fromSession != "" {
		e.FromSession = &r.fromSession
	}
	if r.inReplyTo != "" {
		e.InReplyTo = &r.inReplyTo
	}
	return e
}

// waiting reads an inbox in the order in which its messages were accepted, up
// to what one answer may hold.
func (s *step) waiting(at target, f filter) ([]row, error) {
	if f.limit <= 0 || f.limit > maxFetch {
		f.limit = maxFetch
	}
	until := s.now
	if f.leased {
		until = 1<<63 - 1
	}
	rows, err := s.tx.Query(`
		SELECT m.n, m.id, m.from_agent, m.from_session, m.role, m.text, m.in_reply_to, m.thread, m.auto, d.state, d.lease, d.times, m.sent_at, d.received_at
		FROM deliveries d JOIN messages m ON m.n = d.msg
		WHERE d.agent = ?1 AND d.label = ?2 AND d.state IN ('held', 'stored', 'offered', 'seen') AND d.lease <= ?3
			AND (?4 = '' OR m.from_agent = ?4) AND (?5 = '' OR m.from_session = ?5) AND (?6 = '' OR m.in_reply_to = ?6)
			AND (?7 = 0 OR EXISTS (SELECT 1 FROM messages q JOIN deliveries a ON a.msg = q.n
				WHERE q.id = m.in_reply_to AND q.from_agent = ?1 AND a.agent = m.from_agent AND a.label = m.from_session))
		ORDER BY d.msg LIMIT ?8`,
		at.agent, at.label, until, f.from.agent, f.from.label, f.inReplyTo, f.asked, f.limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []row
	size := 0
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.n, &r.id, &r.fromAgent, &r.fromSession, &r.role, &r.text, &r.inReplyTo, &r.thread, &r.auto,
			&r.state, &r.lease, &r.times, &r.sentAt, &r.receivedAt); err != nil {
			return nil, err
		}
		if size += len(r.text); size > maxFetchBytes && len(list) > 0 {
			break
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// Ack says that messages of an inbox are done with, all of them or, with an
// error, none. Doing so again changes nothing.
func (m *Mail) Ack(ctx context.Context, agent, label string, ids []string) error {
	if err := m.exists(ctx, agent, label); err != nil {
		return err
	}
	if len(ids) == 0 {
		return conch.Errorf(conch.InvalidRequest, "no message is named")
	}
	for _, id := range ids {
		if err := conch.CheckMessageID(id); err != nil {
			return err
		}
	}
	at := target{agent, label}
	err := m.write(ctx, nil, func(s *step) error {
		if err := s.expire(); err != nil {
			return err
		}
		for _, id := range ids {
			n, state, _, err := s.mine(at, id)
			if err != nil {
				return err
			}
			if err := s.done(n, state, at); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		fault.Point("mail.acked")
	}
	return err
}

// mine finds a message in an inbox, with its sender.
func (s *step) mine(at target, id string) (n int64, state conch.Receipt, from target, err error) {
	err = s.tx.Row(`SELECT d.msg, d.state, m.from_agent, m.from_session FROM messages m JOIN deliveries d ON d.msg = m.n
		WHERE m.id = ? AND d.agent = ? AND d.label = ? ORDER BY d.msg DESC LIMIT 1`, id, at.agent, at.label).Scan(&n, &state, &from.agent, &from.label)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", from, conch.Errorf(conch.MessageNotFound, "the inbox of %s has no message %s", at, id).
			Hint("conch inbox --peek -s %s lists it; -s names another session's", at.label)
	}
	if err == nil && state == conch.ReceiptExpired {
		return 0, "", from, conch.Errorf(conch.MessageNotFound, "message %s expired before it was fetched", id)
	}
	return n, state, from, err
}

// Reply answers a message of one's inbox, to the session it came from, and is
// done with it: both or neither. Of r, Agent, Session, Text, ID, Role, Auto and
// ExpiresMS count.
func (m *Mail) Reply(ctx context.Context, id string, r conch.SendRequest) (conch.SentMessage, error) {
	if err := m.exists(ctx, r.Agent, r.Session); err != nil {
		return conch.SentMessage{}, err
	}
	if err := conch.CheckMessageID(id); err != nil {
		return conch.SentMessage{}, err
	}
	err := m.read(ctx, func(s *step) error {
		_, _, from, err := s.mine(target{r.Agent, r.Session}, id)
		r.To = from.String()
		return err
	})
	if err != nil {
		return conch.SentMessage{}, err
	}
	r.InReplyTo = id
	return m.Send(ctx, r) // one transaction: the reply, and the end of what it answers
}
