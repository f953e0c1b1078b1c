package mail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
)

// agents is a fixed set, with made-up addresses.
type agents []string

func (a agents) Known(name string) bool { return slices.Contains(a, name) }
func (a agents) Taken(name string) bool { return a.Known(name) }
func (a agents) Names() []string        { return a }
func (a agents) ByAddress(address string) (string, bool) {
	for _, n := range a {
		if addressOf(n) == address {
			return n, true
		}
	}
	return "", false
}

func addressOf(name string) string { return strings.Repeat("1", 43-len(name)) + name }

// watch is a clock that a test turns.
type watch struct{ wall, steady atomic.Int64 }

func (w *watch) clock() Clock {
	return Clock{
		Wall:   func() time.Time { return time.Unix(0, w.wall.Load()) },
		Steady: func() time.Duration { return time.Duration(w.steady.Load()) },
		Boot:   func() string { return "boot" },
	}
}

// pass lets time go by.
func (w *watch) pass(d time.Duration) { w.wall.Add(int64(d)); w.steady.Add(int64(d)) }

type office struct {
	*Mail
	t       *testing.T
	time    *watch
	running sync.Map // agent/label of shells that run a command
}

func newOffice(t *testing.T) *office {
	t.Helper()
	w := new(watch)
	w.wall.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	w.steady.Store(int64(time.Hour))
	return openOffice(t, filepath.Join(t.TempDir(), "conch.db"), w)
}

func openOffice(t *testing.T, path string, w *watch) *office {
	o := &office{t: t, time: w}
	o.Mail = New(Options{
		Path: path, Agents: agents{"me", "bob", "eve"}, Clock: w.clock(),
		Running: func(_ context.Context, agent, label string) (list []string) {
			o.running.Range(func(k, _ any) bool {
				if l, ok := cut(agent, k.(string)); ok && (label == "" || l == label) {
					list = append(list, l)
				}
				return true
			})
			return list
		},
		Had: func(agent, label string) bool { _, ok := o.running.Load(agent + "/" + label); return ok },
	})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// here makes a session live until the function it gives is called.
func (o *office) here(name string, priority ...int) (leave func()) {
	o.t.Helper()
	agent, label, _ := strings.Cut(name, "/")
	r := conch.PresenceRequest{Agent: agent, Label: label, Claim: true}
	if len(priority) > 0 {
		r.Priority = &priority[0]
	}
	p, err := o.Present(o.t.Context(), r)
	if err != nil {
		o.t.Fatal(err)
	}
	if p.Label != label {
		o.t.Fatalf("wanted %s, got %s", label, p.Label)
	}
	return p.End
}

// away makes a label known that nobody holds.
func (o *office) away(names ...string) {
	for _, n := range names {
		o.here(n)()
	}
}

func (o *office) trySend(from, to, text string, more ...func(*conch.SendRequest)) (conch.SentMessage, error) {
	o.t.Helper()
	agent, label, _ := strings.Cut(from, "/")
	r := conch.SendRequest{Agent: agent, Session: label, To: to, Text: text}
	for _, f := range more {
		f(&r)
	}
	return o.Send(o.t.Context(), r)
}

func (o *office) send(from, to, text string, more ...func(*conch.SendRequest)) conch.SentMessage {
	o.t.Helper()
	s, err := o.trySend(from, to, text, more...)
	if err != nil {
		o.t.Fatalf("send from %s to %s: %v", from, to, err)
	}
	return s
}

func (o *office) fetch(name string) []conch.InboxEntry {
	o.t.Helper()
	agent, label, _ := strings.Cut(name, "/")
	p, err := o.Fetch(o.t.Context(), agent, label, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	return p.Messages
}

func texts(list []conch.InboxEntry) string {
	var t []string
	for _, e := range list {
		t = append(t, e.Text)
	}
	return strings.Join(t, " ")
}

func (o *office) wantInbox(name, want string) []conch.InboxEntry {
	o.t.Helper()
	list := o.fetch(name)
	if got := texts(list); got != want {
		o.t.Errorf("inbox of %s: %q, want %q", name, got, want)
	}
	return list
}

// story is a message's receipts in a line.
func (o *office) story(agent, id string) string {
	o.t.Helper()
	r, err := o.Receipts(o.t.Context(), agent, id)
	if err != nil {
		o.t.Fatal(err)
	}
	var s []string
	for _, h := range r.History {
		s = append(s, string(h.Status))
	}
	return fmt.Sprintf("%s: %s", r.Status, strings.Join(s, " "))
}

func (o *office) wantStory(agent, id, want string) {
	o.t.Helper()
	if got := o.story(agent, id); got != want {
		o.t.Errorf("receipts of %s: %q, want %q", id, got, want)
	}
}

func wantKind(t *testing.T, what string, err error, k conch.Kind) {
	t.Helper()
	if !errors.Is(err, k) {
		t.Errorf("%s: %v, want %s", what, err, k)
	}
}

func TestALifeOfAMessage(t *testing.T) {
	o := newOffice(t)
	leave := o.here("bob/main")
	sent := o.send("me/main", "bob/main", "hi\x00 \U0001f41a", func(r *conch.SendRequest) { r.Role = "user" })
	if sent.Status != conch.ReceiptStored || *sent.ToSession != "main" || sent.To != "bob" || sent.Via != "local" {
		t.Errorf("%+v", sent)
	}
	list := o.wantInbox("bob/main", "hi\x00 \U0001f41a")
	e := list[0]
	if e.ID != sent.ID || e.From != "me" || *e.FromSession != "main" || e.Role != "user" || e.InReplyTo != nil || e.Repeat || e.Thread != sent.ID {
		t.Errorf("%+v", e)
	}
	o.wantInbox("bob/main", "") // leased
	o.wantStory("me", sent.ID, "seen: queued stored seen")
	reply, err := o.Reply(t.Context(), e.ID, conch.SendRequest{Agent: "bob", Session: "main", Text: "and you"})
	if err != nil {
		t.Fatal(err)
	}
	if reply.To != "me" || *reply.ToSession != "main" || reply.Status != conch.ReceiptHeld {
		t.Errorf("%+v", reply)
	}
	o.wantStory("me", sent.ID, "done: queued stored seen done")
	o.time.pass(2 * LeaseTime)
	o.wantInbox("bob/main", "") // consumed
	back := o.wantInbox("me/main", "and you")[0]
	if *back.InReplyTo != sent.ID || back.Thread != sent.ID {
		t.Errorf("%+v", back)
	}
	o.wantStory("bob", reply.ID, "seen: queued held stored seen")
	for range 2 {
		if err := o.Ack(t.Context(), "me", "main", []string{back.ID}); err != nil {
			t.Error(err)
		}
	}
	o.wantStory("bob", reply.ID, "done: queued held stored seen done")
	leave()
	thread, err := o.Thread(t.Context(), "me", reply.ID)
	if err != nil || len(thread) != 2 || thread[0].ID != sent.ID {
		t.Errorf("thread: %+v, %v", thread, err)
	}
	if _, err := o.Thread(t.Context(), "eve", reply.ID); !errors.Is(err, conch.MessageNotFound) {
		t.Errorf("another's thread: %v", err)
	}
}

func TestLease(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "me/b")
	id := o.send("me/a", "b", "one").ID
	o.send("me/a", "b", "two")
	if list := o.wantInbox("me/b", "one two"); list[0].Repeat {
		t.Error("the first time is no repeat")
	}
	o.time.pass(LeaseTime - time.Second)
	o.wantInbox("me/b", "")
	p, err := o.Peek(t.Context(), "me", "b", 0, 0)
	peek := p.Messages
	if err != nil || texts(peek) != "one two" || peek[0].LeasedUntil == nil || peek[0].LeasedUntil.Sub(o.Mail.o.Clock.Wall()) != time.Second {
		t.Errorf("peek: %+v, %v", peek, err)
	}
	o.time.pass(time.Second)
	list := o.wantInbox("me/b", "one two")
	if !list[0].Repeat || list[0].ID != id {
		t.Errorf("a repeat: %+v", list[0])
	}
	if err := o.Ack(t.Context(), "me", "b", []string{id, "nosuch"}); !errors.Is(err, conch.MessageNotFound) {
		t.Errorf("ack: %v", err)
	}
	if err := o.Ack(t.Context(), "me", "b", []string{id}); err != nil {
		t.Error(err)
	}
	o.time.pass(LeaseTime)
	o.wantInbox("me/b", "two")
	wantKind(t, "ack of another's", o.Ack(t.Context(), "me", "a", []string{id}), conch.MessageNotFound)
}

// Setting the wall clock does nothing; a suspension is time; a reboot is the
// wall clock's.
func TestClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conch.db")
	w := new(watch)
	w.wall.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	o := openOffice(t, path, w)
	o.away("me/a", "me/b")
	hour := func(r *conch.SendRequest) { r.ExpiresMS = time.Hour.Milliseconds() }
	id := o.send("me/a", "b", "one", hour).ID
	o.send("me/a", "b", "two")
	for _, jump := range []time.Duration{-10 * 365 * 24 * time.Hour, 20 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour} {
		w.wall.Add(int64(jump))
		o.wantStory("me", id, "held: queued held")
	}
	o.wantInbox("me/b", "one two")
	w.wall.Add(int64(-24 * time.Hour))
	w.steady.Add(int64(LeaseTime))
	o.wantInbox("me/b", "one two")
	w.wall.Add(int64(48 * time.Hour))
	o.wantInbox("me/b", "")
	// Another daemon of the same boot, after a jump.
	w.wall.Add(int64(-365 * 24 * time.Hour))
	o.Close()
	o = openOffice(t, path, w)
	o.wantInbox("me/b", "")
	w.steady.Add(int64(LeaseTime))
	o.wantInbox("me/b", "one two")

	unseen := o.send("me/b", "a", "three", hour).ID
	o.send("me/b", "a", "four")
	w.steady.Add(int64(time.Hour)) // suspended
	o.wantInbox("me/a", "four")
	o.wantStory("me", unseen, "expired: queued held expired")
	wantKind(t, "ack of what expired", o.Ack(t.Context(), "me", "a", []string{unseen}), conch.MessageNotFound)
	// What was seen in time stays.
	if list := o.wantInbox("me/b", "one two"); !list[0].Repeat {
		t.Error("no repeat")
	}
	// A lease never lasts longer than it may, whatever a clock was set to.
	w.wall.Add(int64(-365 * 24 * time.Hour))
	o.Close()
	w.steady.Store(1) // a reboot
	o = openOffice(t, path, w)
	o.wantInbox("me/b", "")
	w.pass(LeaseTime)
	o.wantInbox("me/b", "one two")
}

func TestTheTimeIsUp(t *testing.T) {
	o := newOffice(t)
	// The real clock: the housekeeper acts by itself.
	m := New(Options{Path: filepath.Join(t.TempDir(), "conch.db"), Agents: agents{"me"}})
	defer m.Close()
	o.Mail = m
	o.away("me/a", "me/b")
	done := make(chan conch.MailEvent, 10)
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan bool, 1)
	go m.Events(ctx, "me", "a", -1, func(e conch.MailEvent) error { done <- e; return nil }, func() error { listening <- true; return nil })
	<-listening
	o.send("me/a", "b", "soon gone", func(r *conch.SendRequest) { r.ExpiresMS = 30 })
	for e := range done {
		if e.Status == conch.ReceiptExpired {
			break
		}
	}
	cancel()
}

func TestIdempotence(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "me/b")
	with := func(r *conch.SendRequest) { r.ID, r.ExpiresMS = "mine.1", 1000_000 }
	first := o.send("me/a", "b", "one", with)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			again, err := o.trySend("me/a", "b", "one", with)
			if err != nil || again.ID != first.ID {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
	wg.Wait()
	o.wantInbox("me/b", "one")
	if s := o.send("me/a", "b", "one", with); s.Status != conch.ReceiptSeen {
		t.Errorf("its status now: %+v", s)
	}
	for name, change := range map[string]func(*conch.SendRequest){
		"text": func(r *conch.SendRequest) { r.Text = "two" }, "recipient": func(r *conch.SendRequest) { r.To = "a" },
		"session": func(r *conch.SendRequest) { r.Session = "b" }, "sender": func(r *conch.SendRequest) { r.Agent = "bob"; r.To = "me/b" },
		"role": func(r *conch.SendRequest) { r.Role = "user" }, "reply": func(r *conch.SendRequest) { r.InReplyTo = "x" },
	} {
		_, err := o.trySend("me/a", "b", "one", with, change)
		wantKind(t, name, err, conch.MessageConflict)
	}
	o.time.pass(LeaseTime)
	o.wantInbox("me/b", "one")
}

func TestBadInput(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "me/b", "bob/x", "bob/claude:10", "bob/claude:2")
	set := func(f func(*conch.SendRequest)) func(*conch.SendRequest) { return f }
	for _, c := range []struct {
		name, from, to, text string
		kind                 conch.Kind
		more                 func(*conch.SendRequest)
	}{
		{"10 MB", "me/a", "b", strings.Repeat("x", 10<<20), conch.TooLarge, nil},
		{"one byte too much", "me/a", "b", strings.Repeat("x", conch.MaxText+1), conch.TooLarge, nil},
		{"no text", "me/a", "b", "", conch.InvalidRequest, nil},
		{"not UTF-8", "me/a", "b", "a\xffb", conch.InvalidRequest, nil},
		{"a long id", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.ID = strings.Repeat("i", 300) })},
		{"a path as id", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.ID = "../../etc" })},
		{"a path as reply", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.InReplyTo = "../x" })},
		{"a newline as id", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.ID = "a\n" })},
		{"a role", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.Role = "system" })},
		{"a policy", "me/a", "bob", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.Policy = "bogus" })},
		{"a date", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.ExpiresMS = -1 })},
		{"a far date", "me/a", "b", "x", conch.InvalidRequest, set(func(r *conch.SendRequest) { r.ExpiresMS = 1 << 62 })},
		{"quotes in a label", "me/a", `b"; DROP TABLE messages`, "x", conch.InvalidRequest, nil},
		{"a newline in a label", "me/a", "bob/b\n", "x", conch.InvalidLabel, nil},
		{"a bad sender", "me/a b", "b", "x", conch.InvalidLabel, nil},
		{"an unknown label", "me/a", "bob/nosuch", "x", conch.LabelNotFound, nil},
		{"an unknown label of one's own", "me/a", "nosuch", "x", conch.LabelNotFound, nil},
		{"an unknown agent", "me/a", "zoe/x", "x", conch.AgentNotFound, nil},
		{"an unknown sender", "zoe/a", "me/b", "x", conch.AgentNotFound, nil},
		{"a strange address", "me/a", addressOf("zoe"), "x", conch.AgentNotFound, nil},
		{"an empty label", "me/a", "bob/", "x", conch.InvalidLabel, nil},
		{"nobody", "me/a", "", "x", conch.InvalidRequest, nil},
		{"a label that is an agent's name", "me/eve", "b", "x", conch.LabelTaken, nil},
	} {
		var more []func(*conch.SendRequest)
		if c.more != nil {
			more = append(more, c.more)
		}
		_, err := o.trySend(c.from, c.to, c.text, more...)
		wantKind(t, c.name, err, c.kind)
		if err != nil && c.name == "an unknown label" && !strings.Contains(conch.AsError(err).HintText, "claude:2, claude:10, x") {
			t.Errorf("%s: hint %q", c.name, conch.AsError(err).HintText)
		}
	}
	if _, err := o.Fetch(t.Context(), "me", "nosuch", 0); !errors.Is(err, conch.LabelNotFound) {
		t.Errorf("inbox of a label that never was: %v", err)
	}
	o.wantInbox("me/main", "") // the default needs no making
	_, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "bob", Claim: true})
	wantKind(t, "claiming an agent's name", err, conch.LabelTaken)
	_, err = o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "a/b"})
	wantKind(t, "a harness", err, conch.InvalidRequest)
	_, err = o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "never"})
	wantKind(t, "joining what never was", err, conch.LabelNotFound)
	// The largest that fits arrives whole.
	big := strings.Repeat("\x00", conch.MaxText)
	o.send("me/a", addressOf("bob")+"/x", big)
	if list := o.fetch("bob/x"); len(list) != 1 || list[0].Text != big {
		t.Error("1 MiB of NUL did not arrive")
	}
}

func TestAskAndAwait(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x", "bob/y")
	ask := func(to string, ms int64) chan conch.Asked {
		c := make(chan conch.Asked, 1)
		go func() {
			a, err := o.Ask(t.Context(), conch.AskRequest{SendRequest: conch.SendRequest{Agent: "me", Session: "a", To: to, Text: "?", ID: conch.NewMessageID()}, TimeoutMS: ms})
			if err != nil {
				t.Error(err)
			}
			c <- a
		}()
		return c
	}
	answer := func(from, id, text string) {
		agent, label, _ := strings.Cut(from, "/")
		if _, err := o.Send(t.Context(), conch.SendRequest{Agent: agent, Session: label, To: "me/a", Text: text, InReplyTo: id}); err != nil {
			t.Error(err)
		}
	}
	await := func(name string) conch.InboxEntry {
		agent, label, _ := strings.Cut(name, "/")
		e, err := o.Await(t.Context(), conch.AwaitRequest{Agent: agent, Session: label})
		if err != nil || e == nil {
			t.Fatal(e, err)
		}
		return *e
	}
	c := ask("bob/x", 0)
	q := await("bob/x")
	answer("bob/y", q.ID, "not asked")
	answer("bob/x", "another", "about something else")
	answer("bob/x", q.ID, "yes")
	if a := <-c; a.Reply == nil || a.Reply.Text != "yes" || a.TimedOut || a.Sent.ID != q.ID || *a.Sent.ToSession != "x" {
		t.Errorf("%+v", a)
	}
	o.wantInbox("me/a", "not asked about something else")

	// To the agent: whoever got it is the one asked.
	leave := o.here("bob/y")
	c = ask("bob", 0)
	answer("bob/x", await("bob/y").ID, "no")
	q = o.waitFor("bob", "y")
	answer("bob/y", q.ID, "I was asked")
	if a := <-c; a.Reply == nil || a.Reply.Text != "I was asked" || *a.Sent.ToSession != "y" {
		t.Errorf("%+v", a)
	}
	leave()

	// Too late: it is filed, and await looks before it waits.
	a := <-ask("bob/x", 1)
	if !a.TimedOut || a.Reply != nil {
		t.Errorf("%+v", a)
	}
	answer("bob/x", a.Sent.ID, "late")
	e, err := o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "a", InReplyTo: a.Sent.ID})
	if err != nil || e == nil || e.Text != "late" {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "a", From: "eve", TimeoutMS: 1})
	if err != nil || e != nil {
		t.Errorf("%+v, %v", e, err)
	}
	// Who waits is told when the daemon leaves.
	end := make(chan error, 1)
	go func() {
		_, err := o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "a", From: "eve"})
		end <- err
	}()
	for !o.Mail.here.held(target{"me", "a"}) {
		time.Sleep(time.Millisecond) // between two looks
	}
	o.Leave()
	wantKind(t, "waiting", <-end, conch.NotRunning)
}

// waitFor finds the question again although it is leased.
func (o *office) waitFor(agent, label string) conch.InboxEntry {
	p, err := o.Peek(o.t.Context(), agent, label, 0, 0)
	list := p.Messages
	if err != nil || len(list) == 0 {
		o.t.Fatal(list, err)
	}
	return list[len(list)-1]
}

func TestSearch(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x", "eve/z")
	o.send("me/a", "bob/x", `the "quick" brown fox`)
	o.send("bob/x", "me/a", "a Brown bear")
	o.send("eve/z", "bob/x", "brown and private")
	for q, want := range map[string]int{"brown": 2, "BROWN fox": 1, `"quick`: 1, "fox OR bear": 0, "NEAR(": 0, "a*": 1, "private": 0, "brown\x00bear": 1, "-": 0} {
		list, err := o.Search(t.Context(), "me", q, 0)
		if err != nil || len(list) != want {
			t.Errorf("search for %q: %d hits, %v; want %d", q, len(list), err, want)
		}
	}
	if _, err := o.Search(t.Context(), "me", " ", 0); !errors.Is(err, conch.InvalidRequest) {
		t.Error(err)
	}
}

func TestRecent(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x", "eve/z")
	for _, text := range []string{"one", "two", "three"} {
		o.send("me/a", "bob/x", text)
		o.send("eve/z", "bob/x", "not mine")
	}
	var got []string
	for before := ""; ; {
		list, err := o.Recent(t.Context(), "me", before, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			got = append(got, m.Text)
			before = m.ID
		}
		if len(list) == 0 {
			break
		}
	}
	if want := []string{"three", "two", "one"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Another's message is no place to go on from.
	theirs, err := o.Recent(t.Context(), "eve", "", 1)
	if err != nil || len(theirs) != 1 {
		t.Fatal(theirs, err)
	}
	if list, err := o.Recent(t.Context(), "me", theirs[0].ID, 0); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
}

func TestEvents(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x")
	listen := func(agent, label string, after int64, n int) []string {
		t.Helper()
		enough := errors.New("enough")
		var list []string
		err := o.Events(t.Context(), agent, label, after, func(e conch.MailEvent) error {
			list = append(list, fmt.Sprintf("%s %s", e.Type, e.Status))
			after = e.Seq
			if len(list) == n {
				return enough
			}
			return nil
		}, func() error { return nil })
		if !errors.Is(err, enough) {
			t.Errorf("after %v: %v", list, err)
		}
		return list
	}
	id := o.send("me/a", "bob/x", "hello").ID
	if l := listen("bob", "x", 0, 1); !slices.Equal(l, []string{"mail held"}) {
		t.Error(l)
	}
	leave := o.here("bob/x")
	if l := listen("bob", "x", 0, 2); !slices.Equal(l, []string{"mail held", "mail stored"}) {
		t.Error(l)
	}
	leave()
	o.wantInbox("bob/x", "hello")
	if l := listen("me", "a", 0, 4); !slices.Equal(l, []string{"receipt queued", "receipt held", "receipt stored", "receipt seen"}) {
		t.Error(l)
	}
	// Of all agents' mail each step comes once.
	if l := listen("", "", 0, 4); !slices.Equal(l, []string{"receipt queued", "mail held", "mail stored", "receipt seen"}) {
		t.Error(l)
	}
	// A listener that was told and read on: offered.
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan conch.MailEvent, 9)
	ready := make(chan bool, 9)
	ended := make(chan error, 1)
	go func() {
		ended <- o.Events(ctx, "bob", "x", -1, func(e conch.MailEvent) error { told <- e; return nil }, func() error { ready <- true; return nil })
	}()
	<-ready
	id = o.send("me/a", "bob/x", "ding").ID
	if e := <-told; e.Type != "mail" || e.ID != id || e.Bytes != 4 || e.FromSession != "a" || e.ToSession != "x" {
		t.Errorf("%+v", e)
	}
	for !strings.Contains(o.story("me", id), "offered") {
		time.Sleep(time.Millisecond) // between two looks
	}
	cancel()
	<-ended
}

func TestPresence(t *testing.T) {
	o := newOffice(t)
	claim := func(r conch.PresenceRequest) *Presence {
		t.Helper()
		r.Agent, r.Claim = "me", true
		p, err := o.Present(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := func(p *Presence, label, why string) {
		t.Helper()
		if p.Label != label || p.Why != why {
			t.Errorf("got %s (%s), want %s (%s)", p.Label, p.Why, label, why)
		}
	}
	c := conch.PresenceRequest{Harness: "claude", HarnessSession: "one"}
	one := claim(c)
	want(one, "claude:1", "free")
	same := claim(c) // the same conversation in a second process is the same session
	want(same, "claude:1", "before")
	want(claim(conch.PresenceRequest{Harness: "claude", HarnessSession: "two"}), "claude:2", "free")
	_, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Label: "claude:2", Only: true, Harness: "claude", HarnessSession: "one"})
	wantKind(t, "a label that another has", err, conch.LabelTaken)
	_, err = o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Only: true})
	wantKind(t, "only, of nothing", err, conch.InvalidRequest)
	o.running.Store("me/claude:3", true)
	four := claim(conch.PresenceRequest{Harness: "claude", HarnessSession: "four"})
	want(four, "claude:4", "free")
	o.running.Delete("me/claude:3")
	want(claim(conch.PresenceRequest{Harness: "claude", Label: "claude:1"}), "claude:3", "free")
	same.End()
	one.End()
	want(claim(conch.PresenceRequest{Harness: "claude", Label: "build"}), "build", "wanted")
	four.End()
	want(claim(conch.PresenceRequest{Harness: "claude", HarnessSession: "four"}), "claude:4", "before")
	// After a restart too.
	o.Close()
	o2 := openOffice(t, o.Mail.o.Path, o.time)
	p, err := o2.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", HarnessSession: "four"})
	if err != nil {
		t.Fatal(err)
	}
	want(p, "claude:4", "before")
	// Joining is not claiming: any number at once.
	for range 3 {
		j, err := o2.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "build"})
		if err != nil || j.Label != "build" || j.Why != "joined" {
			t.Errorf("%+v, %v", j, err)
		}
		if err := o2.SetBusy("me", "build", j.Holder, true); err != nil {
			t.Error(err)
		}
	}
	wantKind(t, "busy", o2.SetBusy("me", "build", 1000, true), conch.SessionNotFound)
	boxes, err := o2.Mailboxes(t.Context())
	if err != nil || len(boxes) != 2 {
		t.Errorf("%+v, %v", boxes, err)
	}
	for _, b := range boxes {
		if !b.Live || b.Busy != (b.Label == "build") {
			t.Errorf("%+v", b)
		}
	}
}

// A number under which mail waits for another is not free, and its own comes back to
// it whatever runs there meanwhile.
func TestKeptLabels(t *testing.T) {
	o := newOffice(t)
	claim := func(session string) *Presence {
		t.Helper()
		p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", HarnessSession: session})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	is := func(p *Presence, label string) *Presence {
		t.Helper()
		if p.Label != label {
			t.Errorf("got %s, want %s", p.Label, label)
		}
		return p
	}
	is(claim("one"), "claude:1").End()
	is(claim("two"), "claude:1").End() // nothing waits there
	if _, err := o.Send(t.Context(), conch.SendRequest{Agent: "bob", Session: "main", To: "me/claude:1", Text: "for two"}); err != nil {
		t.Fatal(err)
	}
	is(claim("three"), "claude:2").End()
	is(claim(""), "claude:2").End()
	o.running.Store("me/claude:1", true)
	two := is(claim("two"), "claude:1")
	if list, err := o.Fetch(t.Context(), "me", "claude:1", 0); err != nil || len(list.Messages) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	// One without a name comes back after a daemon's death by asking for its label,
	// though its own command runs there; and not while its holder lives.
	o.running.Delete("me/claude:1")
	left := is(claim(""), "claude:2")
	again := conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", Label: "claude:2", Only: true}
	o.running.Store("me/claude:2", true)
	_, err := o.Present(t.Context(), again)
	wantKind(t, "held by another without a name", err, conch.LabelTaken)
	o.Mail.here.remove(left.h) // as a daemon's death does
	p, err := o.Present(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	p.End()
	_, err = o.Present(t.Context(), again)
	wantKind(t, "given back, and something runs there", err, conch.LabelTaken)
	// Its being there is what turned held into stored: after Seq, not before.
	var heard []conch.MailEvent
	stop := errors.New("enough")
	err = o.Events(t.Context(), "me", "claude:1", two.Seq, func(e conch.MailEvent) error {
		heard = append(heard, e)
		return stop
	}, func() error { return nil })
	if !errors.Is(err, stop) || len(heard) != 1 || heard[0].Type != "mail" || heard[0].Status != conch.ReceiptStored {
		t.Errorf("%+v, %v", heard, err)
	}
}

// A process that is gone is no presence, though its connection may live on.
func TestGhost(t *testing.T) {
	o := newOffice(t)
	gone := proc.Self()
	gone.Start++ // another process that had this number
	_, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "a", Claim: true, PID: gone.PID, Start: gone.Start})
	wantKind(t, "a dead holder", err, conch.InvalidRequest)
	p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "a", Claim: true, PID: os.Getpid(), Boot: proc.BootID()})
	if err != nil {
		t.Fatal(err)
	}
	o.Mail.here.reap()
	select {
	case <-p.Gone():
		t.Error("ended while it lives")
	default:
	}
	o.Mail.here.mu.Lock() // the housekeeper looks too
	p.h.pid = gone
	o.Mail.here.mu.Unlock()
	o.Mail.here.reap()
	<-p.Gone()
}
