package seal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAnyOrder has two homes talk while letters are lost, doubled and reordered,
// homes crash before they commit, keys rotate, time passes and stores go back to
// backups. Nothing is ever opened as something else, and once letters arrive
// again every message does.
//
// The homes keep to the rules of the package comment; what they keep is a model
// of what mail has in its store.
func TestAnyOrder(t *testing.T) {
	// Fewer runs than rapid's 100, unless somebody asks for a number.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		f.Value.Set("10")
		defer f.Value.Set(f.DefValue)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		steps := rapid.IntRange(10, 60).Draw(t, "steps")
		for range steps {
			i := rapid.IntRange(0, 1).Draw(t, "who")
			crash := rapid.IntRange(0, 9).Draw(t, "crash") == 0
			switch rapid.SampledFrom([]string{
				"send", "send", "send", "receive", "receive", "receive", "lose", "double", "republish",
				"keys", "time", "backup", "restore", "reset", "burst",
			}).Draw(t, "step") {
			case "send":
				w.send(i, crash)
			case "burst": // more than skipped keys are kept for
				if rapid.IntRange(0, 3).Draw(t, "burst") == 0 {
					for range 45 {
						w.send(i, false)
					}
				}
			case "receive":
				if n := len(w.box[i]); n > 0 {
					at := 0
					if rapid.Bool().Draw(t, "reorder") {
						at = rapid.IntRange(0, n-1).Draw(t, "at")
					}
					letter := w.box[i][at]
					if w.receive(i, letter, crash) {
						w.box[i] = slices.Delete(w.box[i], at, at+1)
					}
				}
			case "lose":
				if n := len(w.box[i]); n > 0 {
					at := rapid.IntRange(0, n-1).Draw(t, "at")
					w.box[i] = slices.Delete(w.box[i], at, at+1)
				}
			case "double":
				if n := len(w.box[i]); n > 0 {
					w.box[i] = append(w.box[i], w.box[i][rapid.IntRange(0, n-1).Draw(t, "at")])
				}
			case "republish":
				w.republish(i)
			case "keys":
				w.keys(i, rapid.IntRange(0, 3).Draw(t, "until"))
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 240).Draw(t, "hours")) * time.Hour)
			case "backup":
				w.home[i].backup = w.home[i].disk.copy()
			case "restore":
				w.restore(i)
			case "reset":
				w.do(i, crash, func(x *tx) { x.c.Reset() })
			}
		}
		w.heal()
	})
}

type world struct {
	t      *rapid.T
	now    time.Time
	home   [2]*home
	box    [2][][]byte // mailboxes at the relay
	bundle [2][]byte   // its directory
	pool   [2][][]byte
	said   map[string]string // message id: text
	at     map[place]string  // where a sender put it: message id
	n      int
}

// A place is where a message stands with its sender, for ever.
type place struct {
	from  int
	epoch Epoch
	seq   uint64
}

type home struct {
	id     identity
	disk   disk
	backup disk
}

// A disk is what a home has committed.
type disk struct {
	account, talk []byte
	seq           uint64
	out           []sent // without a receipt
	got           map[string]bool
}

type sent struct {
	id      string
	seq     uint64
	attempt uint16
	to      Epoch
	expires time.Time
	letter  []byte
}

func (d disk) copy() disk {
	d.out, d.got = slices.Clone(d.out), maps.Clone(d.got)
	return d
}

// A tx is a transaction: a copy of the disk with what is on it loaded.
type tx struct {
	w    *world
	i    int
	disk disk
	a    *Account
	c    *Conversation
	post [][]byte // goes to the peer once committed
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: noon, said: map[string]string{}, at: map[place]string{}}
	for i, name := range []string{"amy", "bob"} {
		h := &home{id: named(name)}
		a := must(NewAccount(h.id, w.now))
		w.home[i] = h
		h.disk.account, h.disk.got = must(a.State()), map[string]bool{}
		w.bundle[i] = must(a.Bundle()).Encode()
	}
	for i, h := range w.home {
		a := must(LoadAccount(h.id, h.disk.account))
		h.disk.talk = must(must(a.Conversation(w.address(1 - i))).State())
		h.backup = h.disk.copy()
		w.keys(i, 3)
	}
	return w
}

func (w *world) address(i int) string {
	return must(LoadAccount(w.home[i].id, w.home[i].disk.account)).Address()
}

// do runs one transaction, and posts what came of it unless it crashes before
// the commit.
func (w *world) do(i int, crash bool, f func(x *tx)) {
	h := w.home[i]
	x := &tx{w: w, i: i, disk: h.disk.copy()}
	x.a = must(LoadAccount(h.id, x.disk.account))
	x.c = must(x.a.LoadConversation(w.address(1-i), x.disk.talk))
	f(x)
	if crash {
		return
	}
	x.disk.account, x.disk.talk = must(x.a.State()), must(x.c.State())
	h.disk = x.disk
	w.box[1-i] = append(w.box[1-i], x.post...)
}

// learn takes the peer's bundle from the directory.
func (x *tx) learn() {
	b := must(ParseBundle(x.w.bundle[1-x.i], x.c.Peer()))
	must(x.c.Learn(b))
}

// ready makes the conversation ready, with a new session if asked.
func (x *tx) ready(anew bool) {
	if !anew && x.c.Ready() {
		return
	}
	x.learn()
	if !anew && x.c.Ready() {
		return
	}
	var key *OneTimeKey
	if pool := x.w.pool[1-x.i]; len(pool) > 0 {
		x.w.pool[1-x.i] = pool[1:] // claimed, whatever becomes of the transaction
		if k, err := ParseOneTimeKey(pool[0], x.c.Device()); err == nil {
			key = k
		}
	}
	if err := x.c.Start(key); err != nil {
		x.w.t.Fatal(err)
	}
}

func (x *tx) seal(s sent) sent {
	x.ready(false)
	letter, err := x.c.Seal(Header{Kind: Mail, ID: s.id, Sequence: s.seq, Attempt: s.attempt, Created: x.w.now}, []byte(x.w.said[s.id]))
	if err != nil {
		x.w.t.Fatal(err)
	}
	s.letter, s.to, s.expires = letter, x.c.Bundle().Device().Epoch(), x.c.Bundle().Expires()
	x.post = append(x.post, letter)
	return s
}

func (w *world) send(i int, crash bool) {
	w.n++
	id := fmt.Sprint("m", w.n)
	w.said[id] = fmt.Sprintf("text %d of %d", w.n, i)
	w.do(i, crash, func(x *tx) {
		x.disk.seq++
		x.disk.out = append(x.disk.out, x.seal(sent{id: id, seq: x.disk.seq}))
		w.at[place{i, x.a.Epoch(), x.disk.seq}] = id
	})
}

// republish sends what has no receipt: the same bytes, unless the peer cannot
// open them any more.
func (w *world) republish(i int) {
	w.do(i, false, func(x *tx) {
		x.learn()
		for j, s := range x.disk.out {
			if s.to != x.c.Device().Epoch() || w.now.After(s.expires) {
				s.attempt++
				x.disk.out[j] = x.seal(s)
			} else {
				x.post = append(x.post, s.letter)
			}
		}
	})
}

// receive takes one letter and reports whether the relay may forget it.
func (w *world) receive(i int, letter []byte, crash bool) bool {
	w.do(i, crash, func(x *tx) {
		l, err := x.a.Unwrap(letter)
		switch {
		case errors.Is(err, ErrPrekey):
			return
		case err != nil:
			w.t.Fatal(err)
		case l.Statement:
			x.retry(l)
			return
		case l.Header.Kind == Mail && x.disk.got[l.Header.ID]:
			x.receipt(l.Header.ID)
			return
		}
		before := x.state()
		o, err := x.c.Open(l)
		if err != nil {
			if x.state() != before {
				w.t.Fatal("what failed has changed the state:", err)
			}
			if errors.Is(err, ErrFork) || !CanRetry(err) {
				w.t.Fatal(err)
			}
			x.ask(l, err)
			return
		}
		if o.Header.Kind == Receipt {
			x.disk.out = slices.DeleteFunc(x.disk.out, func(s sent) bool { return s.id == string(o.Body) })
			return
		}
		h := o.Header
		if string(o.Body) != w.said[h.ID] || w.at[place{1 - i, h.FromEpoch, h.Sequence}] != h.ID {
			w.t.Fatalf("%+v opened as %q", h, o.Body)
		}
		x.disk.got[h.ID] = true
		x.receipt(h.ID)
	})
	return !crash
}

func (x *tx) state() string {
	s := side{t: x.w.t, a: x.a, c: x.c}
	return s.snapshot()
}

func (x *tx) receipt(id string) {
	x.ready(false)
	x.w.n++
	letter, err := x.c.Seal(Header{Kind: Receipt, ID: fmt.Sprint("r", x.w.n), Lane: 1, Created: x.w.now}, []byte(id))
	if err != nil {
		x.w.t.Fatal(err)
	}
	x.post = append(x.post, letter)
}

func (x *tx) ask(l *Letter, why error) {
	r, ok := x.a.RetryOf(l, why)
	if !ok {
		x.w.t.Fatal(why)
	}
	x.w.n++
	to := must(ParseBundle(x.w.bundle[1-x.i], x.c.Peer()))
	x.post = append(x.post, must(x.a.Statement(to, Header{Kind: RetryKind, ID: fmt.Sprint("q", x.w.n), Created: x.w.now}, r.Encode())))
}

func (x *tx) retry(l *Letter) {
	o, err := x.a.OpenStatement(l, x.c.Device(), x.w.now)
	if errors.Is(err, ErrStale) {
		return
	}
	if err != nil {
		x.w.t.Fatal(err)
	}
	r := must(ParseRetry(o.Body))
	// The session does not work, whether or not the message is still wanted.
	x.ready(true)
	for j, s := range x.disk.out {
		if s.id == r.ID && s.attempt == r.Attempt {
			s.attempt++
			x.disk.out[j] = x.seal(s)
		}
	}
}

// keys rotates and refills, and stops after so many of the steps.
func (w *world) keys(i, until int) {
	var keys []OneTimeKey
	w.do(i, until == 0, func(x *tx) {
		must(x.a.Rotate(w.now))
		if err := x.a.Refill(len(w.pool[i])); err != nil {
			w.t.Fatal(err)
		}
	})
	if until < 1 {
		return
	}
	w.do(i, true, func(x *tx) { // published is what is committed
		w.bundle[i] = must(x.a.Bundle()).Encode()
		keys = must(x.a.Unpublished())
	})
	if until < 2 {
		return
	}
	for _, k := range keys {
		if data := k.Encode(); !slices.ContainsFunc(w.pool[i], func(b []byte) bool { return bytes.Equal(b, data) }) {
			w.pool[i] = append(w.pool[i], data)
		}
	}
	if until < 3 {
		return
	}
	w.do(i, false, func(x *tx) { x.a.MarkPublished(keys) })
}

// restore goes back to the backup, which is noticed.
func (w *world) restore(i int) {
	w.home[i].disk = w.home[i].backup.copy()
	w.pool[i] = nil
	w.do(i, false, func(x *tx) {
		public := must(ParseBundle(w.bundle[i], x.a.Address()))
		if err := x.a.Retire(w.now, public.Device().Epoch()); err != nil {
			w.t.Fatal(err)
		}
		x.c = must(x.a.LoadConversation(x.c.Peer(), x.disk.talk))
		x.disk.seq = 0
		w.bundle[i] = must(x.a.Bundle()).Encode()
		for j, s := range x.disk.out {
			x.disk.seq++
			s.seq, s.attempt = x.disk.seq, s.attempt+1
			w.at[place{i, x.a.Epoch(), s.seq}] = s.id
			x.disk.out[j] = x.seal(s)
		}
	})
}

// heal lets everything arrive.
func (w *world) heal() {
	for round := 0; ; round++ {
		if len(w.home[0].disk.out)+len(w.home[1].disk.out) == 0 {
			return
		}
		if round == 8 {
			w.t.Fatalf("still without a receipt: %d and %d", len(w.home[0].disk.out), len(w.home[1].disk.out))
		}
		for i := range w.home {
			w.keys(i, 3)
			w.republish(i)
		}
		for n := 0; len(w.box[0])+len(w.box[1]) > 0; n++ {
			if n > 5000 {
				w.t.Fatal("the mailboxes do not become empty")
			}
			for i := range w.home {
				if len(w.box[i]) > 0 {
					letter := w.box[i][0]
					w.box[i] = w.box[i][1:]
					w.receive(i, letter, false)
				}
			}
		}
	}
}
