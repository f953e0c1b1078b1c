package post

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"math/bits"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/seal"
)

const (
	// markEvery is how old the relay's word that this is the agent's one daemon
	// may be when something is sent or taken.
	markEvery = 5 * time.Second
	// keysEvery is how often keys are looked at: some are replaced weekly, and
	// others are used up.
	keysEvery = time.Hour
	// refillBelow is when one-time keys are made.
	refillBelow = 50
	// askTime bounds one question to the relay.
	askTime = 20 * time.Second
)

// A line is one agent at the relay.
type line struct {
	p     *Post
	agent string
	key   Identity
	wire  Wire
	woken chan struct{}   // the link changed, or keys are short
	ctx   context.Context // ends with Shut, or with the Post
	stop  context.CancelFunc
	wg    sync.WaitGroup // what the line began
	// restored says that a restore left word. Nothing is published before the
	// line has been claimed, and that begins with new keys then. Of run alone.
	restored bool

	mu       sync.Mutex         // guards what follows
	fenced   error              // another daemon is this agent now
	quit     context.CancelFunc // ends the reading of the mailbox
	failed   error              // why the keys are not published
	enrolled bool
	relay    string // that the keys are published at
	store    string // this run, as the relay knows it; "": not yet
	mark     int64  // its generation
	marked   time.Time
	unmarked bool // more was sealed since
	senders  map[string]*sender
	missed   map[string]time.Time // peers that were told of letters that did not come
}

func newLine(p *Post, agent string, key Identity) *line {
	l := &line{p: p, agent: agent, key: key, woken: make(chan struct{}, 1), senders: map[string]*sender{}, missed: map[string]time.Time{}}
	l.ctx, l.stop = context.WithCancel(p.ctx)
	return l
}

// begin has f run as a part of the line. It must end with ctx.
func (l *line) begin(f func()) {
	l.wg.Add(1)
	l.p.wg.Go(func() {
		defer l.wg.Done()
		f()
	})
}

// linked is told of every change of the connection.
func (l *line) linked(relay.Link) { wake(l.woken) }

// down says why the relay cannot be reached now; "": it can.
func (l *line) down() string {
	link := l.wire.Link()
	switch {
	case link.Connected:
		return ""
	case link.Err != nil:
		return conch.AsError(link.Err).Message
	}
	return "the relay is not connected yet"
}

// stale is the error of a daemon that another has replaced.
func (l *line) stale() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fenced
}

func (l *line) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// account makes the agent's keys for encryption, if it has none. An agent that
// was made anew under its name has another address, and begins anew.
func (l *line) account(ctx context.Context) error {
	l.restored = l.p.o.Restored != nil && l.p.o.Restored(l.agent)
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		var address string
		err := s.Tx().Row(`SELECT address FROM accounts WHERE agent = ?`, l.agent).Scan(&address)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case address != l.key.Address():
			for _, table := range []string{"accounts", "conversations", "outbox", "dedupe", "dedupe_sparse", "early", "reports", "contacts", "statements"} {
				if _, err := s.Tx().Exec(`DELETE FROM `+table+` WHERE agent = ?`, l.agent); err != nil {
					return err
				}
			}
		default:
			return nil
		}
		a, err := seal.NewAccount(l.key, time.Unix(0, s.Wall()))
		if err != nil {
			return err
		}
		if err := a.Refill(0); err != nil {
			return err
		}
		state, err := a.State()
		if err != nil {
			return err
		}
		_, err = s.Tx().Exec(`INSERT INTO accounts(agent, address, state, epoch, store, generation) VALUES (?, ?, ?, ?, '', 0)`,
			l.agent, l.key.Address(), state, int64(a.Epoch()))
		return err
	})
}

// retire takes new keys in place of ones that may have been used by another copy
// of this store, and has everything sealed again that has no report.
func (l *line) retire(s *mail.Step, after seal.Epoch) error {
	d := l.desk(s)
	a, err := d.account()
	if err != nil {
		return err
	}
	if err := a.Retire(time.Unix(0, s.Wall()), after); err != nil {
		return err
	}
	if err := a.Refill(0); err != nil {
		return err
	}
	d.changed = true
	if err := d.save(); err != nil {
		return err
	}
	if _, err := s.Tx().Exec(`UPDATE conversations SET next = 1, reports = 1, renew = 1 WHERE agent = ?`, l.agent); err != nil {
		return err
	}
	if _, err := s.Tx().Exec(`DELETE FROM outbox WHERE agent = ? AND kind = 'receipt'`, l.agent); err != nil {
		return err
	}
	// The numbers that were compared are not the numbers any more.
	if _, err := s.Tx().Exec(`UPDATE contacts SET verified = 0, note = ? WHERE agent = ? AND verified = 1`,
		"this home's keys were made anew at "+moment(s)+"; compare the safety number again", l.agent); err != nil {
		return err
	}
	_, err = s.Tx().Exec(`UPDATE outbox SET sealed = x'', seq = 0, attempt = attempt + 1, published = 0, next_at = min(next_at, ?) WHERE agent = ?`, s.Now(), l.agent)
	return err
}

// run keeps the keys published and the mailbox read for as long as the line is open.
func (l *line) run() {
	ctx := l.ctx
	defer l.stop()
	defer l.wire.Close()
	defer l.last()
	reading := false
	tick, marks := time.NewTicker(keysEvery), time.NewTicker(markEvery)
	defer tick.Stop()
	defer marks.Stop()
	wait := backoff{}
	for {
		var again <-chan time.Time
		if l.stale() == nil && l.wire.Link().Connected {
			err := l.enrol(ctx)
			l.mu.Lock()
			l.failed, l.enrolled = err, err == nil
			l.mu.Unlock()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				if l.stale() == nil {
					l.p.o.Log.Warn("publish keys", "agent", l.agent, "err", err)
					again = time.After(wait.next())
				}
			default:
				wait = backoff{}
				if !reading {
					reading = true
					rctx, quit := context.WithCancel(ctx)
					l.mu.Lock()
					l.quit = quit
					l.mu.Unlock()
					l.begin(func() { defer quit(); l.read(rctx) }) // ends with the line, or when another has it
				}
				l.sendAll(ctx)
			}
		}
		for looking := true; looking; {
			looking = false
			select {
			case <-ctx.Done():
				return
			case <-l.woken:
			case <-tick.C:
			case <-again:
			case <-marks.C:
				looking = true
				l.keepMark(ctx)
			}
		}
	}
}

// keepMark moves the relay's mark, if more was sealed since it was moved.
func (l *line) keepMark(ctx context.Context) {
	l.mu.Lock()
	due := l.unmarked && l.fenced == nil && l.enrolled
	l.mu.Unlock()
	if !due || !l.wire.Link().Connected {
		return
	}
	if err := l.remark(ctx); err != nil && ctx.Err() == nil {
		l.p.o.Log.Warn("mark", "agent", l.agent, "err", err)
	}
}

// last moves the mark when the line is closed, so that whoever opens the store
// next, or a copy of it from before, can tell.
func (l *line) last() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l.keepMark(ctx)
}

// enrol claims the agent at the relay and publishes its keys, new ones if they
// are due: on disk first, then out.
func (l *line) enrol(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	link := l.wire.Link()
	l.mu.Lock()
	moved := l.relay != "" && l.relay != link.Relay
	l.mu.Unlock()
	if err := l.claim(ctx, link, moved); err != nil {
		return err
	}
	left, err := l.wire.Count(ctx)
	if err != nil {
		return err
	}
	var a *seal.Account
	err = l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) (err error) {
		d := l.desk(s)
		if a, err = d.account(); err != nil {
			return err
		}
		rotated, err := a.Rotate(time.Unix(0, s.Wall()))
		if err != nil {
			return err
		}
		if left < refillBelow {
			if err := a.Refill(left); err != nil {
				return err
			}
		}
		d.changed = rotated || left < refillBelow
		return d.save()
	})
	if err != nil {
		return err
	}
	fault.Point("post.keys-made")
	b, err := a.Bundle()
	if err != nil {
		return err
	}
	// Later devices, and later bundles of one, have the higher number.
	serial := uint64(a.Epoch()) + b.Serial()
	if link.Bundle > serial {
		return conch.Errorf(conch.GenerationStale, "the relay has later keys of agent %s", l.agent)
	}
	lost := link.Bundle == 0
	if link.Bundle != serial {
		if link.Bundle != 0 && link.Bundle < uint64(a.Epoch()) {
			if err := l.wire.DropOneTimeKeys(ctx); err != nil { // of a device that is no more
				return err
			}
		}
		if err := l.wire.PutBundle(ctx, serial, b.Encode()); err != nil {
			return err
		}
	}
	if err := l.putKeys(ctx, a); err != nil {
		return err
	}
	l.mu.Lock()
	l.relay = link.Relay
	l.mu.Unlock()
	if moved || lost {
		// Another relay, or one that lost its disk: what it had is gone.
		return l.again(ctx)
	}
	return nil
}

func (l *line) putKeys(ctx context.Context, a *seal.Account) error {
	keys, err := a.Unpublished()
	if err != nil || len(keys) == 0 {
		return err
	}
	var out []relay.OneTimeKey
	for _, k := range keys {
		out = append(out, relay.OneTimeKey{ID: k.ID(), Data: k.Encode()})
	}
	if _, err := l.wire.PutOneTimeKeys(ctx, out); err != nil {
		return err
	}
	fault.Point("post.keys-published")
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		d := l.desk(s)
		now, err := d.account()
		if err != nil || now.Epoch() != a.Epoch() {
			return err
		}
		now.MarkPublished(keys)
		d.changed = true
		return d.save()
	})
}

// again has everything published again that has no report.
func (l *line) again(ctx context.Context) error {
	return l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		_, err := s.Tx().Exec(`UPDATE outbox SET next_at = ?1 WHERE agent = ?2 AND published > 0 AND next_at < ?3`, s.Now(), l.agent, int64(never))
		return err
	})
}

// claim says to the relay that this daemon is the agent's, and finds out whether
// the store is behind what the relay has seen of it.
func (l *line) claim(ctx context.Context, link relay.Link, moved bool) error {
	l.mu.Lock()
	claimed := l.store != "" && !moved
	l.mu.Unlock()
	if claimed {
		return l.remark(ctx)
	}
	was, err := l.standing(ctx)
	if err != nil {
		return err
	}
	behind := false
	next := was.Generation
	if was.Generation > 0 {
		has, err := l.wire.Mark(ctx, was)
		switch {
		case errors.Is(err, conch.GenerationStale):
			behind, next = true, max(next, has.Generation)
		case err != nil:
			return err
		}
	} else {
		// A store that never was here: another may have been.
		has, err := l.wire.Mark(ctx, relay.Mark{Store: newStore(), Generation: 0})
		if err != nil && !errors.Is(err, conch.GenerationStale) {
			return err
		}
		next = max(next, has.Generation)
	}
	behind = behind || l.restored
	mark := relay.Mark{Store: newStore(), Generation: next + 1}
	err = l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		if behind {
			if err := l.retire(s, latest(link.Bundle, s.Wall())); err != nil {
				return err
			}
		}
		mark.Sent, err = l.sent(s)
		if err != nil {
			return err
		}
		_, err := s.Tx().Exec(`UPDATE accounts SET store = ?, generation = ? WHERE agent = ?`, mark.Store, int64(mark.Generation), l.agent)
		return err
	})
	if err != nil {
		return err
	}
	if behind {
		l.p.o.Log.Warn("this home's mail is older than what the relay has seen of it: it was restored from a backup, or is a copy; new keys were made", "agent", l.agent)
	}
	if l.restored = false; l.p.o.Renewed != nil {
		l.p.o.Renewed(l.agent)
	}
	if _, err := l.wire.Mark(ctx, mark); err != nil {
		return l.fence(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store, l.mark, l.marked = mark.Store, int64(mark.Generation), time.Now()
	return nil
}

// latest is an epoch that none of a bundle at the relay is later than. The
// bundle's number is its device's epoch and its own, the milliseconds of when it
// was made, which was up to a week ago, or longer if nobody was here.
func latest(bundle uint64, wall int64) seal.Epoch {
	return seal.Epoch(bundle - min(bundle, uint64(max(0, (wall-int64(seal.RotateAfter))/int64(time.Millisecond)))))
}

func newStore() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// standing is the mark as the store has it.
func (l *line) standing(ctx context.Context) (m relay.Mark, err error) {
	err = l.p.o.Mail.View(ctx, func(s *mail.Step) error {
		if err := s.Tx().Row(`SELECT store, generation FROM accounts WHERE agent = ?`, l.agent).Scan(&m.Store, &m.Generation); err != nil {
			return err
		}
		m.Sent, err = l.sent(s)
		return err
	})
	return m, err
}

// sent counts what was ever sealed: it only grows while the keys are the same.
func (l *line) sent(s *mail.Step) (n uint64, err error) {
	err = s.Tx().Row(`SELECT coalesce(sum(next + reports), 0) FROM conversations WHERE agent = ?`, l.agent).Scan(&n)
	return n, err
}

// remark has the relay say again that this is the agent's daemon.
func (l *line) remark(ctx context.Context) error {
	m, err := l.standing(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	m.Store, m.Generation, l.unmarked = l.store, uint64(l.mark), false
	l.mu.Unlock()
	has, err := l.wire.Mark(ctx, m)
	// A mark of ours that says more than the store is no other daemon's.
	if ours := has.Store == m.Store && has.Generation == m.Generation; err != nil && !(ours && errors.Is(err, conch.GenerationStale)) {
		return l.fence(err)
	}
	l.mu.Lock()
	l.marked = time.Now()
	l.mu.Unlock()
	return nil
}

// sure is remark, if the last is some time ago.
func (l *line) sure(ctx context.Context) error {
	l.mu.Lock()
	fenced, fresh := l.fenced, l.store != "" && time.Since(l.marked) < markEvery
	l.mu.Unlock()
	if fenced != nil || fresh {
		return fenced
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return l.remark(ctx)
}

// fence makes a stale mark the end of this line.
func (l *line) fence(err error) error {
	if !errors.Is(err, conch.GenerationStale) {
		return err
	}
	err = conch.Errorf(conch.NotOwner, "another daemon has taken over agent %s at the relay; this one sends and takes nothing for it any more", l.agent).
		Hint("two homes have the same key: stop one of them for good. Starting this one again (conch down) takes the agent over with new device keys, which contacts that know the other's hold until a person accepts them")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quit != nil {
		l.quit() // the mailbox is the other's to read
	}
	if l.fenced == nil {
		l.p.o.Log.Error("fenced", "agent", l.agent, "err", err)
	}
	l.fenced = err
	return err
}

// A backoff gives longer and longer waits, from 0.1 to 30 s, no two alike.
type backoff struct{ n int }

func (b *backoff) next() time.Duration {
	d := 30 * time.Second
	if b.n < bits.Len(300)-1 {
		d = 100 * time.Millisecond << b.n
		b.n++
	}
	return d/2 + time.Duration(mathrand.Int64N(int64(d)))/2
}
