package mail

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// waits starts f in the name of a session and returns when it is there.
func (o *office) waits(name string, f func(ctx context.Context)) (stop func()) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(o.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	agent, label, _ := strings.Cut(name, "/")
	for !o.Mail.here.held(target{agent, label}) {
		time.Sleep(time.Millisecond) // between two looks
	}
	return func() { cancel(); <-done }
}

// Who asks its own agent asks another session of it, and waits for one.
func TestNobodyAsksItself(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "me/b")
	c := make(chan conch.Asked, 1)
	go func() {
		a, err := o.Ask(t.Context(), conch.AskRequest{SendRequest: conch.SendRequest{Agent: "me", Session: "a", To: "me", Text: "?", ID: "q"}})
		if err != nil {
			t.Error(err)
		}
		c <- a
	}()
	for !o.Mail.here.held(target{"me", "a"}) {
		time.Sleep(time.Millisecond) // between two looks
	}
	o.wantInbox("me/a", "")
	o.wantStory("me", "q", "held: queued held")
	// Its own session, held by more than the question.
	p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "a"})
	if err != nil {
		t.Fatal(err)
	}
	o.wantInbox("me/a", "")
	p.End()
	o.wantInbox("me/b", "?")
	if _, err := o.Reply(t.Context(), "q", conch.SendRequest{Agent: "me", Session: "b", Text: "!"}); err != nil {
		t.Fatal(err)
	}
	if a := <-c; a.Reply == nil || a.Reply.Text != "!" || a.Sent.ToSession == nil || *a.Sent.ToSession != "b" {
		t.Errorf("%+v", a)
	}
	// Nor does a broadcast come back.
	defer o.here("me/a")()
	defer o.here("me/b")()
	o.send("me/a", "me", "all", func(r *conch.SendRequest) { r.Policy = conch.PolicyBroadcast })
	o.wantInbox("me/a", "")
	o.wantInbox("me/b", "all")
}

// The call is the sender's presence: what it writes to itself is not held.
func TestToOneself(t *testing.T) {
	o := newOffice(t)
	if s := o.send("me/main", "main", "note"); s.Status != conch.ReceiptStored || *s.ToSession != "main" {
		t.Errorf("%+v", s)
	}
}

// Looking binds no mail to the session that looks.
func TestLookingTakesNothingAway(t *testing.T) {
	o := newOffice(t)
	o.away("bob/x", "me/a", "me/b", "me/c")
	o.send("bob/x", "me", "1")
	o.send("bob/x", "me", "2")
	o.send("bob/x", "me/a", "mine")
	for range 2 {
		p, err := o.Peek(t.Context(), "me", "a", 0, 0)
		if err != nil || texts(p.Messages) != "1 2 mine" || p.More {
			t.Fatal(p, err)
		}
	}
	stop := o.waits("me/a", func(ctx context.Context) {
		if e, err := o.Await(ctx, conch.AwaitRequest{Agent: "me", Session: "a", From: "eve"}); e != nil || err == nil {
			t.Error(e, err)
		}
	})
	id := o.send("bob/x", "me", "3").ID
	if err := o.settle(t.Context(), "me", ""); err != nil { // as the housekeeper does
		t.Fatal(err)
	}
	o.wantStory("bob", id, "held: queued held")
	stop()
	// One is taken, and one only: the rest is for who comes next.
	e, err := o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "b"})
	if err != nil || e == nil || e.Text != "1" {
		t.Fatal(e, err)
	}
	p, err := o.Fetch(t.Context(), "me", "c", 1)
	if err != nil || texts(p.Messages) != "2" || !p.More {
		t.Fatal(p, err)
	}
	o.wantInbox("me/a", "mine 3")
	o.wantInbox("me/b", "")
	// Who waits for anything is there, and gets what comes.
	got := make(chan *conch.InboxEntry, 1)
	stop = o.waits("me/b", func(ctx context.Context) {
		e, err := o.Await(ctx, conch.AwaitRequest{Agent: "me", Session: "b"})
		if err != nil {
			t.Error(err)
		}
		got <- e
	})
	o.send("bob/x", "me", "4")
	if e := <-got; e == nil || e.Text != "4" {
		t.Errorf("%+v", e)
	}
	stop()
}

// A message to several is as far as the one that is least far.
func TestReceiptsOfSeveral(t *testing.T) {
	o := newOffice(t)
	o.away("me/a")
	for _, n := range []string{"bob/1", "bob/2", "bob/10"} {
		defer o.here(n)()
	}
	to := func(r *conch.SendRequest) { r.Policy, r.ExpiresMS = conch.PolicyBroadcast, 60_000 }
	id := o.send("me/a", "bob", "all", to).ID
	look := func(status, reason, each string) {
		t.Helper()
		r, err := o.Receipts(t.Context(), "me", id)
		if err != nil {
			t.Fatal(err)
		}
		found, err := o.Search(t.Context(), "me", "all", 1)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		for _, got := range []struct {
			status conch.Receipt
			reason string
			list   []conch.Recipient
		}{{r.Status, r.Reason, r.Recipients}, {found[0].Status, found[0].Reason, found[0].Recipients}} {
			s := ""
			for _, r := range got.list {
				s += fmt.Sprintf("%s %s %d; ", r.Session, r.Status, r.At.Sub(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))/time.Second)
			}
			if string(got.status) != status || got.reason != reason || s != each {
				t.Errorf("%s (%s) %s\nwant %s (%s) %s", got.status, got.reason, s, status, reason, each)
			}
		}
	}
	look("stored", "", "bob/1 stored 0; bob/2 stored 0; bob/10 stored 0; ")
	o.time.pass(time.Second)
	o.wantInbox("bob/2", "all")
	look("stored", "1 of 3 seen, 2 stored", "bob/1 stored 0; bob/2 seen 1; bob/10 stored 0; ")
	if err := o.Ack(t.Context(), "bob", "2", []string{id}); err != nil {
		t.Fatal(err)
	}
	look("stored", "1 of 3 done, 2 stored", "bob/1 stored 0; bob/2 done 1; bob/10 stored 0; ")
	o.time.pass(time.Minute)
	look("expired", "1 of 3 done, 2 expired unread", "bob/1 expired 61; bob/2 done 1; bob/10 expired 61; ")
	id = o.send("me/a", "bob", "all", to).ID
	for _, l := range []string{"1", "2", "10"} {
		o.fetch("bob/" + l)
		if err := o.Ack(t.Context(), "bob", l, []string{id}); err != nil {
			t.Fatal(err)
		}
	}
	look("done", "", "bob/1 done 61; bob/2 done 61; bob/10 done 61; ")
}

// Who asks is told when nobody will answer.
func TestAskingInVain(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x", "bob/y")
	ask := func(id, to string, more ...func(*conch.AskRequest)) conch.Asked {
		t.Helper()
		r := conch.AskRequest{SendRequest: conch.SendRequest{Agent: "me", Session: "a", To: to, Text: "?", ID: id, ExpiresMS: 1000}}
		for _, f := range more {
			f(&r)
		}
		a, err := o.Ask(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	over := func(what string, a conch.Asked, status conch.Receipt) {
		t.Helper()
		if a.Reply != nil || a.TimedOut || a.Sent.Status != status || a.Sent.Reason == "" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	vain := make(chan conch.Asked, 1)
	stop := o.waits("me/a", func(context.Context) { vain <- ask("q", "bob/x") })
	o.wantStory("me", "q", "held: queued held")
	o.time.pass(time.Second)
	o.housekeeping() // the clock is a test's, so nobody wakes it
	over("while it waits", <-vain, conch.ReceiptExpired)
	stop()
	over("asked again", ask("q", "bob/x"), conch.ReceiptExpired)

	// The agent's policy changes.
	stop = o.waits("me/a", func(context.Context) { vain <- ask("r", "bob") })
	o.wantStory("me", "r", "held: queued held")
	if err := o.SetPolicy(t.Context(), "bob", conch.PolicyDrop); err != nil {
		t.Fatal(err)
	}
	over("refused", <-vain, conch.ReceiptRefused)
	stop()

	// One of two has seen it, and may answer yet.
	x, y := o.here("bob/x"), o.here("bob/y")
	defer x()
	defer y()
	all := func(r *conch.AskRequest) { r.Policy = conch.PolicyBroadcast }
	if a := ask("s", "bob", all, func(r *conch.AskRequest) { r.TimeoutMS = 1 }); !a.TimedOut || a.Sent.Status != conch.ReceiptStored {
		t.Errorf("%+v", a)
	}
	o.fetch("bob/x")
	o.time.pass(time.Second)
	if a := ask("s", "bob", all, func(r *conch.AskRequest) { r.TimeoutMS = 1 }); !a.TimedOut || a.Sent.Status != conch.ReceiptExpired || a.Sent.Reason != "1 of 2 seen, 1 expired unread" {
		t.Errorf("%+v", a)
	}
}

// A reply is leased to the request that got it, which may be sent again.
func TestALeasedReply(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x")
	id := o.send("me/a", "bob/x", "?").ID
	o.fetch("bob/x")
	if _, err := o.Reply(t.Context(), id, conch.SendRequest{Agent: "bob", Session: "x", Text: "!"}); err != nil {
		t.Fatal(err)
	}
	await := func(token string) string {
		t.Helper()
		e, err := o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "a", InReplyTo: id, TimeoutMS: 1, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return ""
		}
		return fmt.Sprint(e.Text, e.Repeat)
	}
	ask := func(token string) string {
		t.Helper()
		a, err := o.Ask(t.Context(), conch.AskRequest{SendRequest: conch.SendRequest{Agent: "me", Session: "a", To: "bob/x", Text: "?", ID: id}, TimeoutMS: 1, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if a.Reply == nil {
			return ""
		}
		return fmt.Sprint(a.Reply.Text, a.Reply.Repeat)
	}
	for i, c := range []struct {
		get   func(string) string
		token string
		want  string
	}{{await, "one", "!false"}, {await, "two", ""}, {ask, "two", ""}, {await, "", ""}, {await, "one", "!true"}} {
		if got := c.get(c.token); got != c.want {
			t.Errorf("%d: %q, not %q", i, got, c.want)
		}
	}
	o.time.pass(LeaseTime)
	if got := ask("two"); got != "!true" {
		t.Errorf("after the lease: %q", got)
	}
	if got := ask("two"); got != "!true" {
		t.Errorf("once more: %q", got)
	}
	// Without a filter, what it had and not the next.
	o.send("bob/x", "me/a", "1")
	o.send("bob/x", "me/a", "2")
	for range 2 {
		e, err := o.Await(t.Context(), conch.AwaitRequest{Agent: "me", Session: "a", Token: "three"})
		if err != nil || e.Text != "1" {
			t.Error(e, err)
		}
	}
}

// An inbox is shown to its end, page by page, what nobody has drawn included.
func TestPages(t *testing.T) {
	o := newOffice(t)
	o.away("bob/x", "me/a")
	want := ""
	for i := range 7 {
		to := "me/a"
		if i%2 == 1 {
			to = "me"
		}
		o.send("bob/x", to, fmt.Sprint(i))
		want += fmt.Sprint(" ", i)
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 8} {
		got, after, pages := "", int64(0), 0
		for more := true; more; pages++ {
			p, err := o.Peek(t.Context(), "me", "a", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Messages) > limit || pages > 8 {
				t.Fatal(p)
			}
			got += " " + texts(p.Messages)
			more, after = p.More, p.Next
		}
		if got != want || pages != (7+limit-1)/limit {
			t.Errorf("%d a page: %s in %d pages", limit, got, pages)
		}
	}
	// By size.
	big := strings.Repeat("x", conch.MaxText)
	for range 17 {
		o.send("bob/x", "me", big)
	}
	p, err := o.Peek(t.Context(), "me", "a", 7, 0)
	if err != nil || len(p.Messages) != 16 || !p.More {
		t.Error(len(p.Messages), p.More, err)
	}
	if p, err = o.Peek(t.Context(), "me", "a", p.Next, 0); err != nil || len(p.Messages) != 1 || p.More {
		t.Error(len(p.Messages), p.More, err)
	}
	if p, err = o.Fetch(t.Context(), "me", "a", 7); err != nil || len(p.Messages) != 7 || !p.More {
		t.Error(len(p.Messages), p.More, err)
	}
	if p, err = o.Fetch(t.Context(), "me", "a", 0); err != nil || len(p.Messages) != 16 || !p.More {
		t.Error(len(p.Messages), p.More, err)
	}
	if p, err = o.Fetch(t.Context(), "me", "a", 0); err != nil || len(p.Messages) != 1 || p.More {
		t.Error(len(p.Messages), p.More, err)
	}
}
