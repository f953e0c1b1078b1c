package post

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/seal"
)

// sendBatch is how many letters are published before that is written down.
const sendBatch = 32

// A sender publishes what there is for one peer. It lives while there is
// something due. Its fields are the line's to guard.
type sender struct {
	running, again bool
	said           string // why what is queued has not left
	timer          *time.Timer
	wait           backoff
}

// send has what is due for a peer published, now or when it is due.
func (l *line) send(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[peer]
	if s == nil {
		s = &sender{}
		l.senders[peer] = s
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.running {
		s.again = true
		return
	}
	if l.ctx.Err() != nil {
		return
	}
	l.p.mu.Lock() // Close waits for what was begun before it
	defer l.p.mu.Unlock()
	if l.p.closed {
		return
	}
	s.running = true
	l.begin(func() { l.work(peer, s) }) // ends when nothing is due, or with the line
}

// sendAll wakes the senders of all peers that something is kept for.
func (l *line) sendAll(ctx context.Context) {
	var peers []string
	err := l.p.o.Mail.View(ctx, func(s *mail.Step) (err error) {
		peers, err = strings(s, `SELECT DISTINCT peer FROM outbox WHERE agent = ?`, l.agent)
		return err
	})
	if err != nil && ctx.Err() == nil {
		l.p.o.Log.Warn("look for mail to send", "agent", l.agent, "err", err)
	}
	for _, p := range peers {
		l.send(p)
	}
}

// work publishes until nothing is due, and says when to come again.
func (l *line) work(peer string, s *sender) {
	ctx := l.ctx
	for {
		next, err := l.publish(ctx, peer)
		l.mu.Lock()
		said := s.said
		if err == nil {
			s.wait, s.said = backoff{}, ""
		} else if ctx.Err() == nil {
			next = s.wait.next()
			if !errors.Is(err, conch.RelayUnreachable) && !errors.Is(err, conch.NotOwner) {
				l.p.o.Log.Warn("send", "agent", l.agent, "peer", peer, "err", err)
			}
		}
		if err != nil && ctx.Err() == nil {
			if s.said = conch.AsError(err).Message; s.said != said {
				l.mu.Unlock()
				l.stuck(ctx, peer, s.said)
				l.mu.Lock()
			}
		}
		if s.again && ctx.Err() == nil {
			s.again = false
			if err == nil {
				l.mu.Unlock()
				continue
			}
		}
		s.running = false
		// A line that is down or replaced wakes its senders when it is up.
		if ctx.Err() == nil && next < never && l.fenced == nil && l.enrolled {
			s.timer = time.AfterFunc(next, func() { l.send(peer) })
		}
		l.mu.Unlock()
		return
	}
}

// stuck says of what is queued for a peer why it has not left.
func (l *line) stuck(ctx context.Context, peer, why string) {
	err := l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		return noteQueued(s, `SELECT o.msg FROM outbox o JOIN messages m ON m.n = o.msg
			WHERE o.agent = ? AND o.peer = ? AND o.kind = 'mail' AND o.published = 0 AND o.next_at < ? AND m.status = 'queued' LIMIT 1000`, why, l.agent, peer, int64(never))
	})
	if err != nil && ctx.Err() == nil {
		l.p.o.Log.Warn("say why mail waits", "agent", l.agent, "peer", peer, "err", err)
	}
}

func noteQueued(s *mail.Step, query, reason string, args ...any) error {
	list, err := numbers(s, query, args...)
	if err != nil {
		return err
	}
	for _, n := range list {
		if err := s.Note(n, conch.ReceiptQueued, reason); err != nil {
			return err
		}
	}
	return nil
}

// publish sends what is due for a peer, oldest first, and gives the time until
// more is.
func (l *line) publish(ctx context.Context, peer string) (next time.Duration, err error) {
	for {
		l.mu.Lock()
		up := l.enrolled
		l.mu.Unlock()
		if !up || !l.wire.Link().Connected {
			return never, nil
		}
		var due []row
		err := l.p.o.Mail.View(ctx, func(s *mail.Step) (err error) {
			due, next, err = l.due(s, peer)
			return err
		})
		if err != nil || len(due) == 0 {
			return next, err
		}
		if err := l.sure(ctx); err != nil {
			return never, err
		}
		if err := l.upload(ctx, peer, due); err != nil {
			return 0, err
		}
		if due, err = l.sealed(ctx, peer, due); err != nil {
			return 0, err
		}
		var out []row
		for _, r := range due {
			if len(r.sealed) == 0 {
				continue // it waits for something else
			}
			fault.Point("post.before-publish")
			// The same id each time until it is written down that the relay has it; then
			// another, or the relay would take it for the same and keep nothing. Whether it
			// says that it had it before is no proof that it has: a report is.
			if _, err = l.wire.Publish(ctx, peer, fmt.Sprintf("%s-%d", seal.Digest(r.sealed), r.published), r.sealed, 0); err != nil {
				break
			}
			fault.Point("post.published")
			out = append(out, r)
		}
		if e := l.published(ctx, peer, out); e != nil {
			return 0, e
		}
		if err != nil {
			return 0, err
		}
		if len(out) == 0 {
			return never, nil
		}
	}
}

// due reads what is to be published now, and when the next will be.
func (l *line) due(s *mail.Step, peer string) (list []row, next time.Duration, err error) {
	rows, err := s.Tx().Query(`SELECT n, kind, id, msg, body, seq, attempt, sealed, published, at FROM outbox
		WHERE agent = ? AND peer = ? AND next_at <= ? ORDER BY n LIMIT ?`, l.agent, peer, s.Now(), sendBatch)
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for rows.Next() && size < 8<<20 {
		var r row
		if err := rows.Scan(&r.n, &r.kind, &r.id, &r.msg, &r.body, &r.seq, &r.attempt, &r.sealed, &r.published, &r.at); err != nil {
			rows.Close()
			return nil, 0, err
		}
		size += len(r.sealed)
		list = append(list, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, 0, err
	}
	var at int64
	if err := s.Tx().Row(`SELECT coalesce(min(next_at), ?) FROM outbox WHERE agent = ? AND peer = ?`, int64(never), l.agent, peer).Scan(&at); err != nil {
		return nil, 0, err
	}
	next = never
	if at < never {
		next = max(time.Millisecond, time.Duration(at-s.Now()))
	}
	return list, next, nil
}

// sealed makes letters of those rows that are none yet.
func (l *line) sealed(ctx context.Context, peer string, due []row) ([]row, error) {
	ratchet, statement := false, false
	for _, r := range due {
		if len(r.sealed) > 0 {
			continue
		}
		switch r.kind {
		case kindMail, kindTombstone, kindReceipt:
			ratchet = true
		default:
			statement = true
		}
	}
	if !ratchet && !statement {
		return due, nil
	}
	if err := l.meet(ctx, peer, ratchet); err != nil {
		return nil, err
	}
	var out []row
	err := l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		out = append(out[:0], due...)
		d := l.desk(s)
		for i := range out {
			if len(out[i].sealed) > 0 {
				continue
			}
			if err := d.sealRow(peer, &out[i]); err != nil {
				return err
			}
		}
		return d.save()
	})
	if err == nil {
		fault.Point("post.resealed")
	}
	return out, err
}

func (d *desk) sealRow(peer string, r *row) error {
	t, err := d.talk(peer)
	if err != nil {
		return err
	}
	switch r.kind {
	case kindRequest, kindAnswer, kindRetry, kindMissing:
		a, err := d.account()
		if err != nil {
			return err
		}
		h := seal.Header{Kind: seal.Contact, ID: fmt.Sprintf("%s.%d", r.id, r.published), Created: time.Unix(0, d.s.Wall())}
		switch r.kind {
		case kindRetry:
			h.Kind = seal.RetryKind
		case kindMissing:
			h.Kind = seal.Control
		}
		r.sealed, err = a.Statement(t.c.Bundle(), h, r.body)
		return err
	}
	var there bool // it may have been reported on, or be waiting for a person, by now
	if err := d.s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM outbox WHERE n = ? AND next_at <= ? AND attempt = ?)`, r.n, d.s.Now(), r.attempt).Scan(&there); err != nil || !there {
		return err
	}
	if r.kind != kindMail {
		return d.seal(t, r, nil)
	}
	// Its keys may have turned out to be others.
	if parked, _, err := d.l.admit(d.s, peer); err != nil || parked {
		if err == nil || errors.Is(err, conch.NotAContact) {
			_, err = d.s.Tx().Exec(`UPDATE outbox SET next_at = ? WHERE n = ?`, int64(never), r.n)
		}
		return err
	}
	parcel, err := d.s.Parcel(r.msg)
	if err != nil {
		return err
	}
	err = d.seal(t, r, &parcel)
	if errors.Is(err, conch.TooLarge) || errors.Is(err, seal.ErrTooLarge) {
		r.sealed = nil
		return d.fail(peer, r, err.Error())
	}
	return err
}

// fail gives a message up. If it has a number, its place is taken by a
// tombstone, so that nobody waits for it.
func (d *desk) fail(peer string, r *row, reason string) error {
	if r.msg > 0 {
		if err := d.s.Note(r.msg, conch.ReceiptFailed, reason); err != nil {
			return err
		}
	}
	if r.seq == 0 {
		_, err := d.s.Tx().Exec(`DELETE FROM outbox WHERE n = ?`, r.n)
		return err
	}
	_, err := d.s.Tx().Exec(`UPDATE outbox SET kind = 'tombstone', msg = 0, attempt = attempt + 1, sealed = x'', published = 0, next_at = ? WHERE n = ?`, d.s.Now(), r.n)
	return err
}

// meet makes sure that there is a bundle of the peer's, and a session if one is
// needed: a new one if the old does not serve.
func (l *line) meet(ctx context.Context, peer string, ratchet bool) error {
	var ready, renew, fresh bool
	look := func(s *mail.Step) error {
		t, err := l.desk(s).talk(peer)
		if err != nil {
			return err
		}
		b := t.c.Bundle()
		fresh = b != nil && time.Unix(0, s.Wall()).Sub(b.Created()) < seal.RotateAfter+24*time.Hour
		ready, renew = t.c.Ready(), t.renew
		return nil
	}
	if err := l.p.o.Mail.View(ctx, look); err != nil {
		return err
	}
	if fresh && (!ratchet || ready && !renew) {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var data []byte
	var key *relay.OneTimeKey
	start := ratchet && (!ready || renew)
	if start {
		c, err := l.wire.Claim(ask, peer)
		if err != nil {
			return l.unmet(fresh && ready && !renew, err)
		}
		data, key = c.Bundle, c.Key
	} else {
		_, b, err := l.wire.Bundle(ask, peer)
		if err != nil {
			return l.unmet(ready && !renew, err)
		}
		data = b
	}
	b, err := seal.ParseBundle(data, peer)
	if err != nil {
		return fmt.Errorf("the relay's keys of %s: %w", peer, err)
	}
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		d := l.desk(s)
		t, err := d.talk(peer)
		if err != nil {
			return err
		}
		change, err := t.c.Learn(b)
		if err != nil {
			return fmt.Errorf("the relay's keys of %s: %w", peer, err)
		}
		t.changed = true
		if t.c.Bundle() == nil {
			return fmt.Errorf("the relay has only old keys of %s", peer)
		}
		if err := d.met(t, t.c.Device()); err != nil {
			return err
		}
		if err := d.moved(t, change); err != nil {
			return err
		}
		if start && (!t.c.Ready() || t.renew) {
			var once *seal.OneTimeKey
			if key != nil {
				// One that is not good is as if there were none.
				if once, err = seal.ParseOneTimeKey(key.Data, t.c.Device()); err != nil {
					l.p.o.Log.Warn("a one-time key of the relay is not the peer's", "peer", peer, "err", err)
					once = nil
				}
			}
			if err := t.c.Start(once); err != nil {
				return err
			}
			t.renew = false
		}
		return d.save()
	})
}

// unmet lets work go on with keys that are old but good when no others can be had.
func (l *line) unmet(good bool, err error) error {
	if good {
		return nil
	}
	return err
}

// published writes down what the relay has.
func (l *line) published(ctx context.Context, peer string, out []row) error {
	if len(out) == 0 {
		return nil
	}
	l.mu.Lock()
	l.unmarked = true
	l.mu.Unlock()
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		for _, r := range out {
			switch r.kind {
			case kindReceipt, kindAnswer, kindRetry, kindMissing:
				// Nothing reports on these: what they say is said again if it is needed.
				if _, err := s.Tx().Exec(`DELETE FROM outbox WHERE n = ?`, r.n); err != nil {
					return err
				}
				continue
			}
			res, err := s.Tx().Exec(`UPDATE outbox SET published = published + 1, next_at = ? WHERE n = ? AND attempt = ?`,
				s.Now()+int64(l.p.resend(r.published)), r.n, r.attempt)
			if err != nil {
				return err
			}
			if r.kind == kindRequest && r.published == 0 {
				if err := noteQueued(s, `SELECT msg FROM outbox WHERE agent = ? AND peer = ? AND kind = 'mail' AND next_at = ?`,
					"the recipient was asked to be a contact; the message waits for the answer", l.agent, peer, int64(never)); err != nil {
					return err
				}
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 || r.published > 0 || r.msg == 0 {
				if err != nil {
					return err
				}
				continue
			}
			if err := s.Note(r.msg, conch.ReceiptSent, ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// resend is how long to wait for a report after so many times before.
func (p *Post) resend(before int64) time.Duration {
	factor := []time.Duration{1, 10, 60, 360}
	return p.o.Limits.Resend * factor[min(before, int64(len(factor)-1))]
}

// upload puts the attachments of messages that are about to be sealed at the
// relay, each under a new id and key, which are kept once it is there.
func (l *line) upload(ctx context.Context, peer string, due []row) error {
	for _, r := range due {
		if r.kind != kindMail || len(r.sealed) > 0 {
			continue
		}
		var p mail.Parcel
		if err := l.p.o.Mail.View(ctx, func(s *mail.Step) (err error) { p, err = s.Parcel(r.msg); return err }); err != nil {
			return err
		}
		for i, a := range p.Attachments {
			if len(p.AttachmentKeys[i]) > 0 {
				continue
			}
			key, err := l.putFile(ctx, a)
			if errors.Is(err, conch.Damaged) || errors.Is(err, conch.TooLarge) {
				return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error { return l.desk(s).fail(peer, &r, err.Error()) })
			}
			if err != nil {
				return err
			}
			fault.Point("post.uploaded")
			if err := l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error { return s.SetKey(r.msg, a.N, key) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// putFile seals a file to a temporary one, so that what is sent can be sent
// again as it is, and puts it at the relay.
func (l *line) putFile(ctx context.Context, a conch.Attachment) ([]byte, error) {
	f, err := l.p.o.Mail.OpenFile(a)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tmp, err := os.CreateTemp("", "conch-attachment-") // 0600, and sealed
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	os.Remove(tmp.Name())
	sealed, err := seal.EncryptAttachment(tmp, f)
	if err != nil {
		return nil, err
	}
	if sum := sealed.Hash(); fmt.Sprintf("%x", sum) != a.SHA256 {
		return nil, conch.Errorf(conch.Damaged, "the file of attachment %d (%s) changed in the home", a.N, a.Name)
	}
	if _, err := tmp.Seek(0, 0); err != nil {
		return nil, err
	}
	id := mail.NewFileID()
	if _, err := l.wire.PutBlob(ctx, id, tmp); err != nil {
		return nil, err
	}
	return joinKey(id, sealed.Encode()), nil
}

// queue puts a statement or a report into the outbox, to go at once.
func (l *line) queue(s *mail.Step, peer, kind, id string, body []byte) error {
	_, err := s.Tx().Exec(`INSERT INTO outbox(agent, peer, kind, id, msg, body, seq, attempt, sealed, published, at, next_at) VALUES (?, ?, ?, ?, 0, ?, 0, 0, x'', 0, ?, ?)`,
		l.agent, peer, kind, id, body, s.Now(), s.Now())
	return err
}

func toJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings and numbers
	}
	return b
}

// strings is the first column of a query.
func strings(s *mail.Step, query string, args ...any) (list []string, err error) {
	rows, err := s.Tx().Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
