package responder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/mail"
)

// one is a home with two agents.
type one struct{}

func (one) Known(name string) bool { return name == "me" || name == "bob" }
func (one) Taken(name string) bool { return name == "me" || name == "bob" }
func (one) Names() []string        { return []string{"bob", "me"} }
func (one) ByAddress(string) (string, bool) {
	return "", false
}

// A desk is a post office with a responder at it.
type desk struct {
	t    *testing.T
	mail *mail.Mail
	r    *Responder

	mu            sync.Mutex
	now, most     int
	jobs, cleared int
}

func newDesk(t *testing.T, s Settings, run func(Job) (Result, error)) *desk {
	t.Helper()
	d := &desk{t: t}
	d.mail = mail.New(mail.Options{Path: filepath.Join(t.TempDir(), "conch.db"), Agents: one{}, Had: func(string, string) bool { return true }})
	if s.Sandboxed == nil {
		s.Sandboxed = func() (string, error) { return "test", nil }
	}
	if s.Command == "" {
		s.Command = "x"
	}
	if s.Hops == 0 {
		s.Hops = 3
	}
	if s.Reply == 0 {
		s.Reply = 1000
	}
	s.Time = time.Minute
	d.r = New(Options{Settings: s, Mail: d.mail, NewDir: func() string { return "" }, Participant: func(a string) string { return "@" + a },
		Authority: func(_, peer string) string {
			if peer == "bob" {
				return "inform"
			}
			return "own"
		},
		Clear: func(context.Context, string, string, string) { d.mu.Lock(); d.cleared++; d.mu.Unlock() },
		Run: func(_ context.Context, j Job) (Result, error) {
			d.mu.Lock()
			d.jobs++
			d.now++
			d.most = max(d.most, d.now)
			d.mu.Unlock()
			defer func() { d.mu.Lock(); d.now--; d.mu.Unlock() }()
			return run(j)
		}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { d.r.Serve(ctx); close(done) }()
	t.Cleanup(func() {
		stop()
		<-done
		d.mail.Close()
	})
	return d
}

func (d *desk) send(agent, session, to string, hops int, chain ...string) string {
	d.t.Helper()
	m, err := d.mail.Send(d.t.Context(), conch.SendRequest{Agent: agent, Session: session, To: to, Text: "hello", Hops: hops, Chain: chain})
	if err != nil {
		d.t.Fatal(err)
	}
	return m.ID
}

// status waits until the responder has come to n ends.
func (d *desk) status(n int) conch.ResponderStatus {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		st, err := d.r.Status(d.t.Context(), "me")
		if err != nil {
			d.t.Fatal(err)
		}
		if t := st.Totals; t.Answered+t.Failed+t.Refused >= n && st.Running == 0 {
			return st
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%+v", st)
		}
	}
}

func reply(text string) (Result, error) {
	zero := 0
	return Result{Stdout: []byte(text), Bytes: int64(len(text)), ExitCode: &zero}, nil
}

// The pool bounds what runs at once, and every message gets its one reply.
func TestPool(t *testing.T) {
	release := make(chan struct{})
	d := newDesk(t, Settings{All: true, Pool: 3}, func(Job) (Result, error) {
		<-release
		return reply("done")
	})
	if err := d.r.Set(t.Context(), "me", true); err != nil {
		t.Fatal(err)
	}
	const n = 20
	for i := range n {
		d.send("me", fmt.Sprint("s", i), "me/away", 0)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		now := d.now
		d.mu.Unlock()
		if now == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d run", now)
		}
	}
	close(release)
	st := d.status(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.most != 3 || d.jobs != n || st.Totals.Answered != n {
		t.Errorf("%d at once, %d runs, %+v", d.most, d.jobs, st.Totals)
	}
	for i := range n {
		p, err := d.mail.Fetch(t.Context(), "me", fmt.Sprint("s", i), 0)
		if err != nil || len(p.Messages) != 1 || p.Messages[0].Text != "done" || !p.Messages[0].Auto {
			t.Errorf("session %d: %+v, %v", i, p, err)
		}
	}
}

// What must not be answered is refused once, and said so.
func TestRefusals(t *testing.T) {
	d := newDesk(t, Settings{All: true, Pool: 1}, func(Job) (Result, error) { return reply("x") })
	if err := d.r.Set(t.Context(), "me", true); err != nil {
		t.Fatal(err)
	}
	d.send("me", "a", "me/away", 3, "@x", "@y", "@z")
	d.send("me", "b", "me/away", 1, "@me")
	d.send("bob", "c", "me/away", 0)
	if _, err := d.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "d", To: "me/away", Text: "auto", Auto: true}); err != nil {
		t.Fatal(err)
	}
	st := d.status(3)
	for deadline := time.Now().Add(20 * time.Second); st.Waiting != 0 && time.Now().Before(deadline); {
		st = d.status(3) // the runs are on record before they are off the list
	}
	if d.jobs != 0 || st.Totals.Refused != 3 || st.Totals.Runs != 0 || st.Waiting != 0 {
		t.Errorf("%d runs, %+v", d.jobs, st)
	}
	p, err := d.mail.Peek(t.Context(), "me", "away", 0, 0)
	if err != nil || len(p.Messages) != 4 {
		t.Errorf("the inbox has %d messages, %v", len(p.Messages), err)
	}
}

// What cannot run says so, and is not switched on.
func TestNotReady(t *testing.T) {
	none := errors.New("no namespaces here")
	d := newDesk(t, Settings{Sandboxed: func() (string, error) { return "", none }}, nil)
	if err := d.r.Set(t.Context(), "me", true); !errors.Is(err, conch.Unsupported) {
		t.Error(err)
	}
	st, err := d.r.Status(t.Context(), "me")
	if err != nil || st.On || st.NotReady != none.Error() {
		t.Errorf("%+v, %v", st, err)
	}
}
