package post

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	stdstrings "strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/seal"
)

// A bad wire does to letters what a relay could.
type bad struct {
	Wire
	// publish gets what is published and what really publishes it.
	publish func(ctx context.Context, to, id string, data []byte, real func(to, id string, data []byte) error) error
}

func (b *bad) Publish(ctx context.Context, to, id string, data []byte, ttl time.Duration) (bool, error) {
	return false, b.publish(ctx, to, id, data, func(to, id string, data []byte) error {
		_, err := b.Wire.Publish(ctx, to, id, data, ttl)
		return err
	})
}

// trusting are two homes that are contacts, the first with a bad wire.
func trusting(t testing.TB, publish func(ctx context.Context, to, id string, data []byte, real func(to, id string, data []byte) error) error) (a, b *home) {
	t.Helper()
	a, b = newHome(t), newHome(t)
	if publish != nil {
		a.wrap = func(w Wire) Wire { return &bad{w, publish} }
	}
	a.open()
	b.open()
	join(t, a, b)
	befriend(t, a, b)
	return a, b
}

// talk sends n messages and expects each once and in order.
func (h *home) talk(to *home, n int) {
	h.t.Helper()
	var want []string
	for range n {
		text := fmt.Sprint("text ", rand.Int64())
		h.send(to.address()+"/main", text)
		want = append(want, text)
	}
	got := to.fetch(n)
	if !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				h.t.Fatalf("message %d of %d is %q, want %q", i, n, got[i], want[i])
			}
		}
		h.t.Fatalf("got %d of %d", len(got), len(want))
	}
	to.nothing()
}

// nothing expects an empty inbox.
func (h *home) nothing() {
	h.t.Helper()
	p, err := h.mail.Peek(h.t.Context(), "me", "main", 0, 10)
	if err != nil {
		h.t.Fatal(err)
	}
	if len(p.Messages) > 0 {
		h.t.Errorf("%d messages too many: %q", len(p.Messages), p.Messages[0].Text)
	}
}

func TestARelayThatLies(t *testing.T) {
	for name, publish := range map[string]func(ctx context.Context, to, id string, data []byte, real func(to, id string, data []byte) error) error{
		"says yes and loses a fifth": func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
			if rand.IntN(5) == 0 {
				return nil
			}
			return real(to, id, data)
		},
		"says no and keeps a fifth": func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
			if err := real(to, id, data); err != nil || rand.IntN(5) > 0 {
				return err
			}
			return conch.Errorf(conch.RelayUnreachable, "a lie")
		},
		"delivers everything three times": func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
			return errors.Join(real(to, id, data), real(to, id+"b", data), real(to, id+"c", data))
		},
		"flips a bit of a fifth": func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
			if rand.IntN(5) == 0 {
				data = bytes.Clone(data)
				data[rand.IntN(len(data))] ^= 1 << rand.IntN(8)
			}
			return real(to, id, data)
		},
		"sends bytes of its own": func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
			junk := make([]byte, rand.IntN(4000))
			return errors.Join(real(to, id+"j", junk), real(to, id, data), real(to, id+"k", data[:len(data)/2]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := trusting(t, publish)
			a.talk(b, 30)
			b.talk(a, 10)
		})
	}
}

// A letter that the relay lost is asked for as soon as a later one is there.
func TestALostLetterIsMissed(t *testing.T) {
	var mu sync.Mutex
	lose := 0
	a, b := trusting(t, func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
		mu.Lock()
		defer mu.Unlock()
		if lose > 0 {
			lose--
			return nil
		}
		return real(to, id, data)
	})
	a.post.o.Limits.Resend = time.Hour
	a.talk(b, 2)
	until(t, "all is reported on", func() bool { return a.count(`SELECT count(*) FROM outbox`) == 0 })
	mu.Lock()
	lose = 2
	mu.Unlock()
	a.talk(b, 6)
}

// A relay that gives out letters in another order than it got them.
func TestARelayThatMixes(t *testing.T) {
	var mu sync.Mutex
	var kept []func() error
	a, b := trusting(t, func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, func() error { return real(to, id, data) })
		if len(kept) < 5 && rand.IntN(4) > 0 {
			return nil
		}
		rand.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
		var err error
		for _, f := range kept {
			err = errors.Join(err, f())
		}
		kept = nil
		return err
	})
	a.talk(b, 80)
}

// A peer whose ratchets are gone asks for what it cannot open, and gets all of
// it, in order.
func TestAWedgedConversation(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 3)
	b.talk(a, 3)
	for range 3 {
		b.forget(a)
		a.talk(b, 10)
		b.talk(a, 5)
	}
	if n := b.count(`SELECT count(*) FROM quarantine`); n > 0 {
		t.Errorf("%d letters stay in quarantine", n)
	}
	if _, err := a.post.ResetContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address()}); err != nil {
		t.Fatal(err)
	}
	b.talk(a, 5)
	a.talk(b, 5)
}

// forget makes the ratchets with a peer those of a store that lost them.
func (h *home) forget(peer *home) {
	h.t.Helper()
	if err := h.mail.Update(h.t.Context(), nil, func(s *mail.Step) error {
		d := h.post.find("me").desk(s)
		t, err := d.talk(peer.address())
		if err != nil {
			return err
		}
		t.c.Reset()
		t.changed = true
		return d.save()
	}); err != nil {
		h.t.Fatal(err)
	}
}

func TestStrangers(t *testing.T) {
	a, b := pair(t)
	// One that does not ask, but writes.
	a.exec(`INSERT INTO contacts(agent, address, name, state, authority, verified, held, text, since, heard) VALUES ('me', ?, '', 'accepted', 'inform', 0, '', '', 0, 0)`, b.address())
	m := a.send(b.address()+"/main", "let me in")
	a.becomes(m.ID, conch.ReceiptRefused)
	if r := a.status(m.ID); !stdstrings.Contains(r.Reason, "contact") {
		t.Errorf("reason %q", r.Reason)
	}
	b.nothing()
	if c := b.contact(a); c != nil {
		t.Errorf("a stranger became %+v", c)
	}
	a.exec(`DELETE FROM contacts`)

	// One that asks, waits, is blocked, and is told.
	m = a.send(b.address()+"/main", "please")
	until(t, "the request is there", func() bool { return b.contact(a) != nil })
	heard := make(chan conch.MailEvent, 1)
	listen, stop := context.WithCancel(t.Context())
	defer stop()
	go b.mail.Events(listen, "me", "", -1, func(e conch.MailEvent) error { heard <- e; return nil }, func() error { return nil }) // ends with stop
	if e := <-heard; e.Type != "contact" || e.From != a.address() {
		t.Errorf("%+v", e)
	}
	stop()
	if c := b.contact(a); c.State != conch.ContactAsked || c.Authority != conch.AuthorityInform {
		t.Errorf("%+v", c)
	}
	if got := a.status(m.ID).Status; got != conch.ReceiptQueued {
		t.Errorf("pending: %s", got)
	}
	if _, err := b.post.BlockContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: a.address()}); err != nil {
		t.Fatal(err)
	}
	a.becomes(m.ID, conch.ReceiptRefused)
	if _, err := a.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: b.address(), Text: "again"}); !errors.Is(err, conch.NotAContact) {
		t.Errorf("to one who refused: %v", err)
	}
	// It asks again, and is let in.
	if _, err := a.post.AddContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address()}, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.post.AcceptContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: a.address()}); err != nil {
		t.Fatal(err)
	}
	until(t, "a is accepted", func() bool { c := a.contact(b); return c != nil && c.State == conch.ContactAccepted })
	a.talk(b, 3)
	b.talk(a, 3)
}

func TestNobodyThere(t *testing.T) {
	a, _ := pair(t)
	other := newHome(t)
	_, err := a.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: other.address(), Text: "hi"})
	if !errors.Is(err, conch.AgentNotFound) {
		t.Errorf("to nobody: %v", err)
	}
	other.open()
	if _, err := other.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: a.address(), Text: "hi"}); !errors.Is(err, conch.AgentNotFound) {
		t.Errorf("from a home without a relay: %v", err)
	}
	if n := other.count(`SELECT count(*) FROM messages`); n != 0 {
		t.Errorf("%d messages were kept", n)
	}
}

func TestRefusals(t *testing.T) {
	a, b := trusting(t, nil)
	m := a.send(b.address()+"/nobody", "hi")
	a.becomes(m.ID, conch.ReceiptRefused)
	if r := a.status(m.ID); !stdstrings.Contains(r.Reason, "nobody") {
		t.Errorf("reason %q", r.Reason)
	}
	if err := b.mail.SetPolicy(t.Context(), "me", conch.PolicyDrop); err != nil {
		t.Fatal(err)
	}
	m = a.send(b.address(), "hi")
	a.becomes(m.ID, conch.ReceiptRefused)
	// What comes after a refusal is not held back by it.
	a.talk(b, 2)

	// A message that is late is expired, here and there.
	b.close()
	m = a.send(b.address()+"/main", "soon", func(r *conch.SendRequest) { r.ExpiresMS = 50 })
	a.becomes(m.ID, conch.ReceiptExpired)
	b.open()
	a.talk(b, 2)
	if got := a.status(m.ID).Status; got != conch.ReceiptExpired {
		t.Errorf("the late one is %s", got)
	}
}

func TestQuota(t *testing.T) {
	a, b := trusting(t, nil)
	b.post.o.Limits.Rate = 5
	var ids []string
	for i := range 8 {
		ids = append(ids, a.send(b.address()+"/main", fmt.Sprint(i)).ID)
	}
	a.becomes(ids[7], conch.ReceiptRefused)
	if r := a.status(ids[7]); !stdstrings.Contains(r.Reason, "limit of 5") {
		t.Errorf("reason %q", r.Reason)
	}
	if got := b.fetch(5); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("got %q", got)
	}
	b.nothing()
}

func TestAskAndReply(t *testing.T) {
	a, b := trusting(t, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked, err := a.mail.Ask(t.Context(), conch.AskRequest{SendRequest: conch.SendRequest{Agent: "me", Session: "main", To: b.address() + "/main", Text: "how much?"}, TimeoutMS: 20_000})
		if err != nil || asked.Reply == nil || asked.Reply.Text != "42" || asked.Reply.From != b.address() {
			t.Errorf("%+v, %v", asked, err)
			return
		}
		if asked.Reply.Authority != conch.AuthorityInform || asked.Reply.Verified {
			t.Errorf("the reply counts for %s, verified %v", asked.Reply.Authority, asked.Reply.Verified)
		}
	}()
	e, err := b.mail.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "main", TimeoutMS: 20_000})
	if err != nil || e == nil {
		t.Fatal(err)
	}
	if _, err := b.mail.Reply(t.Context(), e.ID, conch.SendRequest{Agent: "me", Session: "main", Text: "42"}); err != nil {
		t.Fatal(err)
	}
	<-done
	a.becomes(e.ID, conch.ReceiptDone)
}

func TestAttachments(t *testing.T) {
	a, b := trusting(t, nil)
	var ids []string
	var content [][]byte
	for _, size := range []int{0, 1, 100_000, 3 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		at, err := a.mail.Upload(t.Context(), "../../etc/pass\x1bwd", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if at.Name != "pass_wd" || at.Size != int64(size) {
			t.Errorf("%+v", at)
		}
		ids, content = append(ids, at.ID), append(content, data)
	}
	m := a.send(b.address()+"/main", "see the files", func(r *conch.SendRequest) { r.Attachments = ids })
	var got conch.InboxEntry
	until(t, "the files are there", func() bool {
		p, err := b.mail.Peek(t.Context(), "me", "main", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Messages) == 0 {
			return false
		}
		got = p.Messages[0]
		return !slices.ContainsFunc(got.Attachments, func(a conch.Attachment) bool { return !a.Here })
	})
	if got.ID != m.ID || len(got.Attachments) != len(content) {
		t.Fatalf("%+v", got)
	}
	for i, want := range content {
		at, err := b.mail.Attachment(t.Context(), "me", m.ID, i+1)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.mail.OpenFile(at)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(f.Name())
		f.Close()
		if err != nil || !bytes.Equal(data, want) {
			t.Errorf("attachment %d: %d bytes, %v", i+1, len(data), err)
		}
	}
	a.becomes(m.ID, conch.ReceiptStored)
}

// Nothing that was written can be read in the relay's files.
func TestTheRelayHasNoPlaintext(t *testing.T) {
	a, b := trusting(t, nil)
	b.close() // so that it stays there
	secret := "a-word-that-nobody-else-writes"
	at, err := a.mail.Upload(t.Context(), "plan.txt", stdstrings.NewReader(stdstrings.Repeat(secret, 10)))
	if err != nil {
		t.Fatal(err)
	}
	m := a.send(b.address()+"/main", secret, func(r *conch.SendRequest) { r.Attachments = []string{at.ID} })
	a.becomes(m.ID, conch.ReceiptSent)
	a.close() // all of it is on disk
	found, files := 0, 0
	err = filepath.WalkDir(filepath.Join(a.dir, "relay"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		for _, word := range []string{secret, m.ID, "plan.txt", `"text"`, "envelope"} {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("%s holds %q", path, word)
			}
		}
		if bytes.Contains(data, []byte(b.address())) {
			found++
		}
		return err
	})
	if err != nil || files == 0 || found == 0 {
		t.Fatalf("%d files, %d with the mailbox's name: %v", files, found, err)
	}
	b.open()
	a.open()
	if got := b.fetch(1); got[0] != secret {
		t.Error(got)
	}
}

// The store is put back to what it was: what it says afterwards arrives, under
// new keys, and nothing comes twice.
func TestARestoredStore(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 3)
	b.talk(a, 3)
	for _, who := range []*home{b, a} {
		other := a
		if who == a {
			other = b
		}
		who.snapshot("conch.db.then")
		before := who.epoch()
		who.talk(other, 4)
		other.talk(who, 4)
		// What has no report is sent again, and a store that was put back has
		// forgotten that it had it.
		until(t, "all is reported on", func() bool {
			return other.count(`SELECT count(*) FROM outbox`) == 0 && who.count(`SELECT count(*) FROM outbox`) == 0
		})
		who.close()
		who.restore("conch.db.then")
		who.open()
		who.enrolled()
		if who.epoch() == before {
			t.Fatal("the keys are those of before")
		}
		who.fetchAll() // what it had not acknowledged when it was copied
		who.talk(other, 4)
		other.talk(who, 4)
	}
}

func (h *home) epoch() int { return h.count(`SELECT epoch FROM accounts`) }

func (h *home) snapshot(name string) {
	h.t.Helper()
	if _, err := h.mail.Snapshot(h.t.Context(), filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) restore(name string) {
	h.t.Helper()
	for _, f := range []string{"conch.db", "conch.db-wal", "conch.db-shm"} {
		os.Remove(filepath.Join(h.dir, f))
	}
	if err := os.Rename(filepath.Join(h.dir, name), filepath.Join(h.dir, "conch.db")); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) fetchAll() {
	h.t.Helper()
	p, err := h.mail.Fetch(h.t.Context(), "me", "main", 0)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range p.Messages {
		if err := h.mail.Ack(h.t.Context(), "me", "main", []string{e.ID}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// Two daemons with one identity: the older one stops, and says why.
func TestACopiedHome(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 2)
	b.snapshot("copy.db")
	c := &home{t: t, dir: t.TempDir(), keys: b.keys, log: b.log}
	if err := os.Rename(filepath.Join(b.dir, "copy.db"), filepath.Join(c.dir, "conch.db")); err != nil {
		t.Fatal(err)
	}
	c.open()
	inv, err := a.relay.Invite(t.Context(), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.relay.Join(t.Context(), inv.Invite, nil); err != nil {
		t.Fatal(err)
	}
	c.enrolled()
	until(t, "the older one is told", func() bool {
		_, err := b.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: a.address() + "/main", Text: "from the older one"})
		if err != nil && !errors.Is(err, conch.NotOwner) {
			t.Fatal(err)
		}
		return err != nil
	})
	lines := b.post.Lines()
	if len(lines) != 1 || !errors.Is(lines[0].Err, conch.NotOwner) || lines[0].Address != b.address() || !stdstrings.Contains(conch.AsError(lines[0].Err).HintText, "new device keys") {
		t.Errorf("the older one says %+v", lines)
	}
	c.talkPast(a)
}

// talkPast sends one message and waits for it, whatever else is there.
func (h *home) talkPast(to *home) {
	h.t.Helper()
	text := fmt.Sprint("text ", rand.Int64())
	h.send(to.address()+"/main", text)
	for {
		if got := to.fetch(1); got[0] == text {
			return
		}
	}
}

// Somebody who has the key and nothing else is not believed.
func TestChangedKeys(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 2)
	until(t, "all is reported on", func() bool { return a.count(`SELECT count(*) FROM outbox`) == 0 })
	// b begins anew with the same key: a new store, whose keys nobody vouches for.
	b.close()
	for _, f := range []string{"conch.db", "conch.db-wal", "conch.db-shm"} {
		os.Remove(filepath.Join(b.dir, f))
	}
	b.open()
	b.enrolled()
	b.exec(`INSERT INTO contacts(agent, address, name, state, authority, verified, held, text, since, heard) VALUES ('me', ?, '', 'accepted', 'inform', 0, '', '', 0, 0)`, a.address())
	m := b.send(a.address()+"/main", "it is me, truly")
	until(t, "a holds it", func() bool { return a.contact(b).Held != "" })
	a.nothing()
	b.becomes(m.ID, conch.ReceiptHeld)
	if r := b.status(m.ID); r.Reason == "" || stdstrings.Contains(r.Reason, "key") {
		t.Errorf("its sender is told %q", r.Reason)
	}
	out := a.send(b.address()+"/main", "who are you?")
	if r := a.status(out.ID); r.Status != conch.ReceiptQueued || !stdstrings.Contains(r.Reason, "keys changed") {
		t.Errorf("%+v", r)
	}
	if _, err := a.post.AcceptContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address()}); err != nil {
		t.Fatal(err)
	}
	if got := a.fetch(1); got[0] != "it is me, truly" {
		t.Error(got)
	}
	b.becomes(m.ID, conch.ReceiptDone)
	if got := b.fetch(1); got[0] != "who are you?" {
		t.Error(got)
	}
	// Both see the same number.
	x, err := a.post.VerifyContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address(), Confirm: true})
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.post.VerifyContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: a.address()})
	if err != nil || x.Number != y.Number || len(x.Number) < 60 || !x.Contact.Verified {
		t.Errorf("%q and %q, %v", x.Number, y.Number, err)
	}
}

// What is held of a peer is refused to it when it is blocked.
func TestBlockedWhileHeld(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 1)
	b.exec(`UPDATE contacts SET held = 'for the test'`)
	m := a.send(b.address()+"/main", "held")
	until(t, "it is held", func() bool { return b.count(`SELECT count(*) FROM early`) == 1 })
	if _, err := b.post.BlockContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: a.address()}); err != nil {
		t.Fatal(err)
	}
	a.becomes(m.ID, conch.ReceiptRefused)
	b.nothing()
	if n := b.count(`SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d letters in quarantine", n)
	}
}

// A message that its recipient asks for once too often is given up, and nobody
// waits for it. That an early letter of it opens after all does no harm.
func TestGivingUp(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 1)
	b.close()
	m := a.send(b.address()+"/main", "given up")
	behind := a.send(b.address()+"/main", "behind it")
	a.becomes(behind.ID, conch.ReceiptSent)
	a.exec(`UPDATE outbox SET attempt = ? WHERE id = ?`, maxAttempts, m.ID)
	if err := a.mail.Update(t.Context(), nil, func(s *mail.Step) error {
		d := a.post.find("me").desk(s)
		if err := d.retried(b.address(), seal.Retry{ID: m.ID, Attempt: maxAttempts, Reason: seal.ReasonForged}); err != nil {
			return err
		}
		return d.save()
	}); err != nil {
		t.Fatal(err)
	}
	a.becomes(m.ID, conch.ReceiptFailed)
	b.open()
	if got := b.fetch(2); !slices.Equal(got, []string{"given up", "behind it"}) {
		t.Errorf("got %q", got)
	}
	until(t, "all is reported on", func() bool { return a.count(`SELECT count(*) FROM outbox`) == 0 })
	a.becomes(m.ID, conch.ReceiptDone)
	a.talk(b, 2)
}

// Another with a login of its own sends somebody's letters again.
func TestReplayByAnother(t *testing.T) {
	var mu sync.Mutex
	var seen [][]byte
	a, b := trusting(t, func(_ context.Context, to, id string, data []byte, real func(string, string, []byte) error) error {
		mu.Lock()
		seen = append(seen, bytes.Clone(data))
		mu.Unlock()
		return real(to, id, data)
	})
	eve := newHome(t)
	eve.open()
	inv, err := a.relay.Invite(t.Context(), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eve.relay.Join(t.Context(), inv.Invite, nil); err != nil {
		t.Fatal(err)
	}
	eve.enrolled()
	a.talk(b, 5)
	mu.Lock()
	letters := slices.Clone(seen)
	mu.Unlock()
	for i, data := range letters {
		if _, err := eve.post.find("me").wire.Publish(t.Context(), b.address(), fmt.Sprint("again-", i), data, 0); err != nil {
			t.Fatal(err)
		}
	}
	a.talk(b, 5) // fetches exactly these
}

// The relay's disk is gone: what had no report is published again, keys too.
func TestARelayThatLostItsDisk(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 3)
	b.close()
	for i := range 5 {
		m := a.send(b.address()+"/main", fmt.Sprint("before ", i))
		a.becomes(m.ID, conch.ReceiptSent)
	}
	a.close()
	lose(t, filepath.Join(a.dir, "relay"))
	a.open()
	b.open()
	a.enrolled()
	b.enrolled()
	if got := b.fetch(5); got[0] != "before 0" || got[4] != "before 4" {
		t.Errorf("got %q", got)
	}
	a.talk(b, 3)
	b.talk(a, 3)
}

// lose removes what the relay's server keeps, and not what its owner set.
func lose(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
}

// drained is a relay that has no one-time keys to hand out.
type drained struct{ Wire }

func (d drained) Claim(ctx context.Context, address string) (relay.Claim, error) {
	c, err := d.Wire.Claim(ctx, address)
	c.Key, c.Limited = nil, true
	return c, err
}

// Somebody has drawn all one-time keys: conversations begin all the same.
func TestDrainedKeys(t *testing.T) {
	a, b := newHome(t), newHome(t)
	a.wrap = func(w Wire) Wire { return drained{w} }
	b.wrap = a.wrap
	a.open()
	b.open()
	join(t, a, b)
	befriend(t, a, b)
	a.talk(b, 5)
	b.talk(a, 5)
	b.forget(a)
	a.talk(b, 5)
}

// The wall clock jumps by a year, forth and back.
func TestClockJumps(t *testing.T) {
	a, b := newHome(t), newHome(t)
	var jump time.Duration
	var mu sync.Mutex
	clock := mail.SystemClock()
	b.clock = mail.Clock{Steady: clock.Steady, Boot: clock.Boot, Wall: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(jump)
	}}
	a.open()
	b.open()
	join(t, a, b)
	befriend(t, a, b)
	for _, d := range []time.Duration{0, 365 * 24 * time.Hour, -365 * 24 * time.Hour, 0} {
		mu.Lock()
		jump = d
		mu.Unlock()
		a.talk(b, 3)
		b.talk(a, 3)
	}
}
