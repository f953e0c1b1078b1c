package post

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
)

// A home is one end: mail, post, keys and a relay, all real.
type home struct {
	t     testing.TB
	dir   string
	keys  *agent.Store
	mail  *mail.Mail
	post  *Post
	relay *relay.Relay
	log   *slog.Logger
	clock mail.Clock

	mu   sync.Mutex
	wrap func(Wire) Wire // for a relay that misbehaves
}

type names struct{ keys *agent.Store }

func (n names) Known(name string) bool                  { return n.keys.Known(name) }
func (n names) Taken(name string) bool                  { return n.keys.Taken(name) }
func (n names) Names() []string                         { return n.keys.Names() }
func (n names) ByAddress(address string) (string, bool) { return n.keys.ByAddress(address) }

func limits() Limits {
	return Limits{Rate: 100_000, Bytes: 1 << 30, Requests: 10, Resend: 20 * time.Millisecond, Patience: time.Hour, HoldBack: time.Minute}
}

// newHome makes a home with the agent me. It is opened by open.
func newHome(t testing.TB) *home { return newSealedHome(t, nil) }

// newSealedHome is newHome with a passphrase, which has been given.
func newSealedHome(t testing.TB, passphrase []byte) *home {
	t.Helper()
	dir := t.TempDir()
	keys, err := agent.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.New("me", passphrase, nil); err != nil {
		t.Fatal(err)
	}
	if passphrase != nil {
		if err := keys.Unlock("me", passphrase); err != nil {
			t.Fatal(err)
		}
	}
	h := &home{t: t, dir: dir, keys: keys}
	if testing.Verbose() {
		h.log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("home", filepath.Base(dir), "address", h.address()[:6])
	}
	return h
}

func (h *home) address() string {
	info, err := h.keys.Get("me")
	if err != nil {
		h.t.Fatal(err)
	}
	return info.Address
}

// open starts everything, as a daemon does.
func (h *home) open() {
	h.t.Helper()
	h.relay = relay.New(relay.Options{Dir: filepath.Join(h.dir, "relay"), Log: h.log})
	h.mail = mail.New(mail.Options{
		Path: filepath.Join(h.dir, "conch.db"), Agents: names{h.keys}, Log: h.log, Clock: h.clock, Files: filepath.Join(h.dir, "files"),
		Ready:   func(ctx context.Context, agent, address string) error { return h.post.Ready(ctx, agent, address) },
		Carry:   func(s *mail.Step, n int64, address string) (string, error) { return h.post.Carry(s, n, address) },
		Carried: func(agent, address string) { h.post.Carried(agent, address) },
		Contact: func(ctx context.Context, agent, name string) (string, bool, error) {
			return h.post.Contact(ctx, agent, name)
		},
		Report: func() { h.post.Report() },
	})
	h.post = New(Options{
		Mail: h.mail, Active: h.relay.Active, Agents: h.keys.Names, Limits: limits(), Log: h.log,
		Key: func(name string) (Identity, error) {
			k, err := h.keys.Key(name)
			if err != nil {
				return nil, err
			}
			return k, nil
		},
		Connect: func(id Identity, observe func(relay.Link)) (Wire, error) {
			w, err := h.relay.Connect(id, observe)
			if err != nil {
				return nil, err
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.wrap != nil {
				return h.wrap(w), nil
			}
			return w, nil
		},
	})
	// The session main exists from here on.
	if _, err := h.mail.Peek(h.t.Context(), "me", "main", 0, 1); err != nil {
		h.t.Fatal(err)
	}
	h.relay.OnChange(h.post.Start)
	go func(r *relay.Relay) { r.Start(h.t.Context()) }(h.relay) // ends with the test, at the latest
	h.post.Start()
	h.t.Cleanup(h.close)
}

// close ends everything, as a daemon does.
func (h *home) close() {
	if h.post == nil {
		return
	}
	h.post.Close()
	h.relay.Close()
	h.mail.Close()
	h.post = nil
}

// pair gives two homes at one relay, the first one's.
func pair(t testing.TB) (a, b *home) {
	t.Helper()
	a, b = newHome(t), newHome(t)
	a.open()
	b.open()
	join(t, a, b)
	return a, b
}

func join(t testing.TB, hub *home, others ...*home) {
	t.Helper()
	ctx := t.Context()
	if _, err := hub.relay.Listen(ctx, "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		inv, err := hub.relay.Invite(ctx, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.relay.Join(ctx, inv.Invite, nil); err != nil {
			t.Fatal(err)
		}
		o.enrolled()
	}
	hub.enrolled()
}

// enrolled waits until the agent can be written to.
func (h *home) enrolled() {
	h.t.Helper()
	until(h.t, "the agent is enrolled", func() bool {
		l := h.post.find("me")
		if l == nil {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.enrolled
	})
}

func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(25 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func (h *home) send(to, text string, more ...func(*conch.SendRequest)) conch.SentMessage {
	h.t.Helper()
	r := conch.SendRequest{Agent: "me", Session: "main", To: to, Text: text}
	for _, f := range more {
		f(&r)
	}
	sent, err := h.mail.Send(h.t.Context(), r)
	if err != nil {
		h.t.Fatalf("send: %v", err)
	}
	return sent
}

func (h *home) status(id string) conch.Receipts {
	h.t.Helper()
	r, err := h.mail.Receipts(h.t.Context(), "me", id)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *home) becomes(id string, want conch.Receipt) {
	h.t.Helper()
	until(h.t, fmt.Sprintf("message %s is %s", id, want), func() bool { return h.status(id).Status == want })
}

// fetch gives what comes into main, as many as are wanted.
func (h *home) fetch(n int) (texts []string) {
	h.t.Helper()
	until(h.t, fmt.Sprintf("%d messages are there", n), func() bool {
		p, err := h.mail.Fetch(h.t.Context(), "me", "main", n-len(texts))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, e := range p.Messages {
			texts = append(texts, e.Text)
			if err := h.mail.Ack(h.t.Context(), "me", "main", []string{e.ID}); err != nil {
				h.t.Fatal(err)
			}
		}
		return len(texts) >= n
	})
	return texts
}

// befriend makes two homes contacts of each other.
func befriend(t testing.TB, a, b *home) {
	t.Helper()
	if _, err := a.post.AddContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address()}, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.accept(a)
	until(t, "a is told", func() bool { c := a.contact(b); return c != nil && c.State == conch.ContactAccepted })
}

func (h *home) contact(peer *home) *conch.Contact {
	list, err := h.post.Contacts(h.t.Context(), "me")
	if err != nil {
		h.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(c conch.Contact) bool { return c.Address == peer.address() })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (h *home) accept(peer *home) {
	h.t.Helper()
	until(h.t, "the request is there", func() bool { return h.contact(peer) != nil })
	if _, err := h.post.AcceptContact(h.t.Context(), conch.ContactRequest{Agent: "me", Peer: peer.address()}); err != nil {
		h.t.Fatal(err)
	}
}

func TestThereAndBack(t *testing.T) {
	a, b := pair(t)
	sent := a.send(b.address(), "hello")
	if sent.Status != conch.ReceiptQueued || sent.Via != "relay" || sent.To != b.address() {
		t.Fatalf("%+v", sent)
	}
	if r := a.status(sent.ID); r.Status != conch.ReceiptQueued || r.Reason == "" {
		t.Errorf("a message to a stranger: %+v", r)
	}
	b.accept(a)
	a.becomes(sent.ID, conch.ReceiptHeld) // nobody is there
	if got := b.fetch(1); got[0] != "hello" {
		t.Fatal(got)
	}
	a.becomes(sent.ID, conch.ReceiptDone)
	back := b.send(a.address()+"/main", "and back")
	if got := a.fetch(1); got[0] != "and back" {
		t.Fatal(got)
	}
	b.becomes(back.ID, conch.ReceiptDone)
	// Now everything is there: they go out as they are accepted, in order.
	var want []string
	for i := range 100 {
		text := fmt.Sprint("message ", i)
		a.send(b.address()+"/main", text)
		want = append(want, text)
	}
	if got := b.fetch(100); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	until(t, "the outbox is empty", func() bool {
		return a.count(`SELECT count(*) FROM outbox`) == 0 && b.count(`SELECT count(*) FROM outbox`) == 0
	})
	for _, table := range []string{"early", "quarantine", "dedupe_sparse"} {
		if n := a.count(`SELECT count(*) FROM `+table) + b.count(`SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
}

func (h *home) count(query string, args ...any) (n int) {
	h.t.Helper()
	if err := h.mail.View(h.t.Context(), func(s *mail.Step) error { return s.Tx().Row(query, args...).Scan(&n) }); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *home) exec(query string, args ...any) {
	h.t.Helper()
	if err := h.mail.Update(h.t.Context(), nil, func(s *mail.Step) error { _, err := s.Tx().Exec(query, args...); return err }); err != nil {
		h.t.Fatal(err)
	}
}
