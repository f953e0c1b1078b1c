package mail

import (
	"context"
	"database/sql"
	"errors"
	"slices"
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
	after     int64  // only what was accepted after this one
	token     string // of the request; what it took before comes first
}

// Fetch gives what waits in a session's inbox, oldest first, and leases it: it is
// not given out again for LeaseTime, unless it is done with before.
func (m *Mail) Fetch(ctx context.Context, agent, label string, limit int) (p conch.InboxPage, err error) {
	if err := m.exists(ctx, agent, label); err != nil {
		return p, err
	}
	_, release := m.hold(agent, label)
	defer release()
	err = m.write(ctx, m.others(ctx, agent), func(s *step) error {
		p, err = s.take(target{agent, label}, filter{limit: limit})
		return err
	})
	if err != nil {
		return conch.InboxPage{}, err
	}
	if len(p.Messages) > 0 {
		fault.Point("mail.leased")
	}
	return p, nil
}

// Peek shows an inbox as it is, leased messages too, and leases nothing. It goes
// on after the number that the page before it gave as Next.
func (m *Mail) Peek(ctx context.Context, agent, label string, after int64, limit int) (p conch.InboxPage, err error) {
	if err := m.exists(ctx, agent, label); err != nil {
		return p, err
	}
	_, release := m.hold(agent, label)
	defer release()
	// A write, since being there may bring mail that was held.
	at, f := target{agent, label}, filter{leased: true, limit: limit, after: after}
	err = m.write(ctx, m.others(ctx, agent), func(s *step) error { return s.attend(at) })
	if err != nil {
		return p, err
	}
	// What a fetch would draw is drawn, shown, and undone: looking moves nothing.
	undo := errors.New("undo")
	err = m.write(ctx, nil, func(s *step) error {
		undrawn, err := s.draw(at, f)
		if err != nil {
			return err
		}
		rows, more, err := s.waiting(at, f)
		if err != nil {
			return err
		}
		p = page(rows, more || undrawn)
		for _, r := range rows {
			e := r.entry(at)
			if r.lease > s.now {
				until := time.Unix(0, s.wall+r.lease-s.now).UTC()
				e.LeasedUntil = &until
			}
			p.Messages = append(p.Messages, e)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		return conch.InboxPage{}, err
	}
	return p, nil
}

// page is one for these rows, without their messages.
func page(rows []row, more bool) conch.InboxPage {
	p := conch.InboxPage{Messages: make([]conch.InboxEntry, 0, len(rows)), More: more}
	if len(rows) > 0 {
		p.Next = rows[len(rows)-1].n
	}
	return p
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

// choosy reports whether a filter may leave mail that comes first.
func (f filter) choosy() bool { return f.from != target{} || f.inReplyTo != "" }

// draw brings a session that is about to take f the mail to its agent that
// nobody else is there for: as much as it will take and no more, since what is
// in its inbox is there for no other session. It reports whether some was left.
func (s *step) draw(at target, f filter) (more bool, err error) {
	if f.choosy() || !s.m.spread.Load() {
		return false, nil
	}
	list, err := s.opened(at.agent)
	if err != nil || len(list) == 0 {
		return false, err
	}
	have, err := s.sizes(at, f)
	if err != nil {
		return false, err
	}
	count, size := 0, 0
	for _, o := range list {
		if o.n <= f.after || o.from == at {
			continue
		}
		had, err := s.recipients(o.n, at.agent)
		if err != nil {
			return false, err
		}
		if slices.Contains(had, at.label) {
			continue
		}
		for len(have) > 0 && have[0].n < o.n {
			count, size, have = count+1, size+have[0].size, have[1:]
		}
		if count >= f.most() || count > 0 && size+o.size > maxFetchBytes {
			return true, nil
		}
		if err := s.reconsider(at.agent, o, []live{{label: at.label}}); err != nil {
			return false, err
		}
		count, size = count+1, size+o.size
	}
	return false, nil
}

// sizes are the numbers and sizes of what waits in an inbox, in its order.
func (s *step) sizes(at target, f filter) (list []open, err error) {
	rows, err := s.tx.Query(`SELECT d.msg, octet_length(m.text) FROM deliveries d JOIN messages m ON m.n = d.msg
		WHERE d.agent = ? AND d.label = ? AND d.state IN ('held', 'stored', 'offered', 'seen') AND d.lease <= ? AND d.msg > ? ORDER BY d.msg LIMIT ?`,
		at.agent, at.label, f.until(s.now), f.after, f.most())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o open
		if err := rows.Scan(&o.n, &o.size); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

// most is how many messages f takes.
func (f filter) most() int {
	if f.limit <= 0 || f.limit > maxFetch {
		return maxFetch
	}
	return f.limit
}

// until is when the lease of what f takes must have ended.
func (f filter) until(now int64) int64 {
	if f.leased {
		return 1<<63 - 1
	}
	return now
}

// take leases what a filter lets through.
func (s *step) take(at target, f filter) (p conch.InboxPage, err error) {
	if err := s.attend(at); err != nil {
		return p, err
	}
	rows, more, err := s.retaken(at, f)
	if err != nil {
		return p, err
	}
	if len(rows) == 0 {
		undrawn, err := s.draw(at, f)
		if err != nil {
			return p, err
		}
		if err := s.count(); err != nil {
			return p, err
		}
		if rows, more, err = s.waiting(at, f); err != nil {
			return p, err
		}
		more = more || undrawn
	}
	p = page(rows, more)
	for _, r := range rows {
		if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'seen', lease = ?, times = times + 1, token = ? WHERE agent = ? AND label = ? AND msg = ?`,
			s.now+int64(LeaseTime), f.token, at.agent, at.label, r.n); err != nil {
			return p, err
		}
		if r.state != conch.ReceiptSeen {
			if err := s.note(r.n, conch.ReceiptSeen, "", at); err != nil {
				return p, err
			}
		}
		p.Messages = append(p.Messages, r.entry(at))
	}
	return p, nil
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
	contact                                string
	verified                               bool
	authority                              conch.Authority
	files                                  []conch.Attachment
}

func (r row) entry(at target) conch.InboxEntry {
	e := conch.InboxEntry{
		ID: r.id, From: r.fromAgent, ToSession: at.label, Role: r.role, Text: r.text, Auto: r.auto, Thread: r.thread,
		Repeat: r.times > 0, SentAt: time.Unix(0, r.sentAt).UTC(), ReceivedAt: time.Unix(0, r.receivedAt).UTC(),
		Contact: r.contact, Verified: r.verified, Authority: r.authority, Attachments: r.files,
	}
	if r.fromSession != "" {
		e.FromSession = &r.fromSession
	}
	if r.inReplyTo != "" {
		e.InReplyTo = &r.inReplyTo
	}
	return e
}

// retaken is what the same request took before, its answer having been lost.
func (s *step) retaken(at target, f filter) ([]row, bool, error) {
	if f.token == "" {
		return nil, false, nil
	}
	f.leased = true
	return s.inbox(at, f, f.token)
}

// waiting reads an inbox in the order in which its messages were accepted, up
// to what one answer may hold, and says whether there is more.
func (s *step) waiting(at target, f filter) ([]row, bool, error) { return s.inbox(at, f, "") }

func (s *step) inbox(at target, f filter, token string) (list []row, more bool, err error) {
	rows, err := s.tx.Query(`
		SELECT m.n, m.id, m.from_agent, m.from_session, m.role, m.text, m.in_reply_to, m.thread, m.auto, d.state, d.lease, d.times, m.sent_at, d.received_at,
			coalesce(c.name, ''), coalesce(c.verified, m.via = 'local'), coalesce(c.authority, iif(m.via = 'local', 'own', 'inform'))
		FROM deliveries d JOIN messages m ON m.n = d.msg LEFT JOIN contacts c ON c.agent = d.agent AND c.address = m.from_agent
		WHERE d.agent = ?1 AND d.label = ?2 AND d.state IN ('held', 'stored', 'offered', 'seen') AND d.lease <= ?3
			AND (?4 = '' OR m.from_agent = ?4) AND (?5 = '' OR m.from_session = ?5) AND (?6 = '' OR m.in_reply_to = ?6)
			AND (?7 = 0 OR EXISTS (SELECT 1 FROM messages q JOIN deliveries a ON a.msg = q.n
				WHERE q.id = m.in_reply_to AND q.from_agent = ?1 AND a.agent = m.from_agent AND a.label = m.from_session)
				OR m.via = 'relay' AND EXISTS (SELECT 1 FROM messages q
				WHERE q.id = m.in_reply_to AND q.from_agent = ?1 AND q.to_agent = m.from_agent AND q.to_session IN ('', m.from_session)))
			AND (?9 = '' OR d.token = ?9) AND d.msg > ?10
		ORDER BY d.msg LIMIT ?8`,
		at.agent, at.label, f.until(s.now), f.from.agent, f.from.label, f.inReplyTo, f.asked, f.most()+1, token, f.after)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	size := 0
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.n, &r.id, &r.fromAgent, &r.fromSession, &r.role, &r.text, &r.inReplyTo, &r.thread, &r.auto,
			&r.state, &r.lease, &r.times, &r.sentAt, &r.receivedAt, &r.contact, &r.verified, &r.authority); err != nil {
			return nil, false, err
		}
		if size += len(r.text); len(list) == f.most() || size > maxFetchBytes && len(list) > 0 {
			more = true
			break
		}
		list = append(list, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, false, err
	}
	for i := range list {
		if list[i].files, _, err = s.attached(list[i].n); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
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
