package post

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/seal"
)

// tidying ends what waited long enough.
func (p *Post) tidying() {
	every := min(time.Minute, max(100*time.Millisecond, p.o.Limits.HoldBack/4))
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-t.C:
		}
		p.mu.Lock()
		var lines []*line
		for _, l := range p.lines {
			lines = append(lines, l)
		}
		p.mu.Unlock()
		for _, l := range lines {
			if err := l.tidy(l.ctx); err != nil && l.ctx.Err() == nil {
				p.o.Log.Warn("tidy mail between homes", "agent", l.agent, "err", err)
			}
		}
	}
}

func (l *line) tidy(ctx context.Context) error {
	// Nearly always there is nothing to do, and looking is cheap.
	var work bool
	limits := l.p.o.Limits
	err := l.p.o.Mail.View(ctx, func(s *mail.Step) error {
		return s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM early WHERE agent = ?1 AND at < ?2)
			OR EXISTS (SELECT 1 FROM outbox WHERE agent = ?1 AND (at < ?3 OR next_at = ?4 AND at < ?5))
			OR EXISTS (SELECT 1 FROM statements WHERE agent = ?1 AND at < ?6)
			OR EXISTS (SELECT 1 FROM reports WHERE agent = ?1 AND due = 0 AND at < ?7)`,
			l.agent, s.Now()-int64(limits.HoldBack), s.Now()-int64(giveUp), int64(never), s.Now()-int64(limits.Patience),
			s.Now()-int64(seal.StatementAge+2*seal.StatementSkew), s.Wall()-int64(giveUp)).Scan(&work)
	})
	if err != nil || !work {
		return err
	}
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		d := l.desk(s)
		if err := d.tired(); err != nil {
			return err
		}
		if err := d.impatient(limits.Patience); err != nil {
			return err
		}
		if _, err := s.Tx().Exec(`DELETE FROM statements WHERE agent = ? AND at < ?`, l.agent, s.Now()-int64(seal.StatementAge+2*seal.StatementSkew)); err != nil {
			return err
		}
		if _, err := s.Tx().Exec(`DELETE FROM reports WHERE agent = ? AND due = 0 AND at < ?`, l.agent, s.Wall()-int64(giveUp)); err != nil {
			return err
		}
		return d.save()
	})
}

// tired stops waiting for messages that did not come in time.
func (d *desk) tired() error {
	rows, err := d.s.Tx().Query(`SELECT e.peer, e.epoch, min(e.seq) FROM early e JOIN contacts c ON c.agent = e.agent AND c.address = e.peer AND c.held = ''
		WHERE e.agent = ? GROUP BY e.peer, e.epoch HAVING min(e.at) < ?`, d.l.agent, d.s.Now()-int64(d.l.p.o.Limits.HoldBack))
	if err != nil {
		return err
	}
	type gap struct {
		peer       string
		epoch, low int64
	}
	var list []gap
	for rows.Next() {
		var g gap
		if err := rows.Scan(&g.peer, &g.epoch, &g.low); err != nil {
			rows.Close()
			return err
		}
		list = append(list, g)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, g := range list {
		t, err := d.talk(g.peer)
		if err != nil {
			return err
		}
		if err := d.skip(t, g.epoch, g.low); err != nil {
			return err
		}
	}
	return nil
}

// impatient gives up messages that nobody reported on, and those that wait for
// an answer that does not come.
func (d *desk) impatient(patience time.Duration) error {
	peers, err := strings(d.s, `SELECT DISTINCT peer FROM outbox WHERE agent = ? AND next_at = ? AND at < ?`, d.l.agent, int64(never), d.s.Now()-int64(patience))
	if err != nil {
		return err
	}
	for _, peer := range peers {
		if err := d.end(peer, conch.ReceiptExpired, fmt.Sprintf("nobody answered within %v", patience)); err != nil {
			return err
		}
	}
	old, err := numbers(d.s, `SELECT n FROM outbox WHERE agent = ? AND at < ?`, d.l.agent, d.s.Now()-int64(giveUp))
	if err != nil {
		return err
	}
	for _, n := range old {
		var msg int64
		if err := d.s.Tx().Row(`SELECT msg FROM outbox WHERE n = ?`, n).Scan(&msg); err != nil {
			return err
		}
		if msg > 0 {
			if err := d.s.Note(msg, conch.ReceiptFailed, fmt.Sprintf("no word from the recipient in %v", giveUp)); err != nil {
				return err
			}
		}
		if _, err := d.s.Tx().Exec(`DELETE FROM outbox WHERE n = ?`, n); err != nil {
			return err
		}
	}
	return nil
}

// fetching gets the attachments of messages that came.
func (p *Post) fetching() {
	wait := backoff{}
	for {
		again, err := p.fetchSome(p.ctx)
		if err != nil && p.ctx.Err() == nil {
			p.o.Log.Warn("fetch attachments", "err", err)
		}
		var later <-chan time.Time
		if again || err != nil {
			later = time.After(wait.next())
		} else {
			wait = backoff{}
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.fetch:
		case <-later:
		}
	}
}

// fetchSome tries each file that is away once, and says whether some still are.
func (p *Post) fetchSome(ctx context.Context) (again bool, err error) {
	var list []mail.Away
	if err := p.o.Mail.View(ctx, func(s *mail.Step) (err error) { list, err = s.Away(64); return err }); err != nil {
		return false, err
	}
	for _, a := range list {
		l := p.find(a.Agent)
		if l == nil || !l.wire.Link().Connected {
			again = true
			continue
		}
		err := l.getFile(ctx, a)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		final := errors.Is(err, conch.BlobNotFound) || errors.Is(err, seal.ErrMalformed) || errors.Is(err, conch.TooLarge)
		if err != nil && !final {
			again = true
		}
		if e := p.o.Mail.Update(ctx, nil, func(s *mail.Step) error { return s.Fetched(a, err, final) }); e != nil {
			return again, e
		}
	}
	return again, nil
}

// getFile fetches a sealed file and keeps what it holds.
func (l *line) getFile(ctx context.Context, a mail.Away) error {
	blob, key := splitKey(a.Key)
	sealed, err := seal.ParseAttachment(key)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp("", "conch-attachment-") // 0600, and sealed
	if err != nil {
		return err
	}
	defer tmp.Close()
	os.Remove(tmp.Name())
	if _, err := l.wire.Blob(ctx, a.From, blob, &limited{tmp, sealed.SealedSize()}); err != nil {
		return err
	}
	if _, err := tmp.Seek(0, 0); err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(sealed.Decrypt(w, tmp)) }() // ends with the reader
	defer r.Close()
	_, _, err = l.p.o.Mail.KeepFile(a.ID, r)
	return err
}

// limited refuses what is longer than was announced.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, fmt.Errorf("attachment: longer than announced: %w", seal.ErrMalformed)
	}
	return l.w.Write(b)
}
