package conchtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// client is a Go client of the home that starts no daemon.
func (h *Home) client() *client.Client {
	return client.New(client.Options{Home: h.Path, NoStart: true, Exe: h.Exe, Agent: conch.DefaultAgent})
}

// stubborn repeats a call until the daemon, whichever one, has answered it.
func stubborn(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		e := conch.AsError(err)
		if !e.Retryable && e.Kind != conch.NotRunning && e.Kind != conch.Internal {
			return err
		}
		time.Sleep(2 * time.Millisecond) // nobody tells when the next daemon is there
	}
}

func TestMailSurvivesKills(t *testing.T) {
	t.Parallel()
	mailUnderKills(t, 4000, 30)
}

func TestSoakMail(t *testing.T) {
	if os.Getenv("CONCH_SOAK") == "" {
		t.Skip("make soak runs this")
	}
	mailUnderKills(t, 100_000, 200)
}

// mailUnderKills has sessions write to each other while the daemon is killed,
// at random and at each named step, and finds every message once and in order.
func mailUnderKills(t *testing.T, total, kills int) {
	const senders, readers = 4, 2 // each sender has as many for each reader
	h := New(t)
	h.OK("up")
	for i := range readers {
		h.OK("exec", "-s", fmt.Sprint("r", i), "true")
	}
	limit := 5 * time.Minute
	if total > 10_000 {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var sent, writing, done atomic.Int64
	writing.Store(senders)
	var wg sync.WaitGroup
	each := total / senders
	for s := range senders {
		wg.Go(func() {
			defer writing.Add(-1)
			c := h.client()
			defer c.CloseIdle()
			for i := range each {
				m := conch.SendRequest{To: fmt.Sprint("r", i%readers), Text: fmt.Sprintf("%d %d", s, i), ID: conch.NewMessageID()}
				if err := stubborn(ctx, func() error { _, err := c.Send(ctx, fmt.Sprint("s", s), m); return err }); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				sent.Add(1)
			}
		})
	}
	for r := range readers {
		wg.Go(func() {
			c := h.client()
			defer c.CloseIdle()
			last := map[string]int{}
			gone := map[string]bool{}
			for n := 0; n < total/readers; {
				var list []conch.InboxEntry
				err := stubborn(ctx, func() (err error) { list, err = c.Peek(ctx, fmt.Sprint("r", r), 50); return err })
				if err != nil {
					t.Errorf("after %d of %d: %v", n, total/readers, err)
					return
				}
				var ids []string
				for _, e := range list {
					s, i, _ := strings.Cut(e.Text, " ")
					number, _ := strconv.Atoi(i)
					if gone[e.ID] {
						t.Errorf("%s came again", e.Text)
					}
					before, ok := last[s]
					if ok && number != before+readers || !ok && number != r {
						t.Errorf("reader %d: %d of sender %s comes after %d", r, number, s, before)
					}
					last[s], gone[e.ID] = number, true
					ids = append(ids, e.ID)
				}
				if len(ids) == 0 {
					time.Sleep(time.Millisecond) // between two looks
					continue
				}
				if err := stubborn(ctx, func() error { return c.Ack(ctx, fmt.Sprint("r", r), ids...) }); err != nil {
					t.Errorf("ack: %v", err)
					return
				}
				n += len(ids)
				done.Add(int64(len(ids)))
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	points := []string{"store.before-commit", "store.after-commit", "mail.accepted", "mail.acked"}
	for k := range kills {
		share := int64(total) * int64(k+1) / int64(kills+1)
		pid := 0
		Until(t, limit, "mail goes on", func() bool { return sent.Load() >= share || ended(finished) })
		if pid = h.Daemon(); pid > 1 {
			syscall.Kill(pid, syscall.SIGKILL)
			Until(t, 10*time.Second, "the daemon is dead", func() bool { return !Alive(pid) })
		}
		if k%2 == 0 && !ended(finished) {
			// This one dies by itself, at a step, in the midst of the others.
			armed := h.With(fmt.Sprintf("CONCH_FAULT=%s:%d", points[(k/2)%len(points)], 1+rand.IntN(20)))
			armed.Conch("up") // it may be dead before it could say that it is up
			if pid = h.Daemon(); pid > 1 {
				Until(t, limit, "the daemon reaches "+points[(k/2)%len(points)], func() bool {
					return !Alive(pid) || ended(finished) || writing.Load() == 0
				})
			}
		}
		h.OK("up")
	}
	<-finished
	if done.Load() != int64(total) || sent.Load() != int64(total) {
		t.Errorf("%d sent, %d received, of %d", sent.Load(), done.Load(), total)
	}
	for r := range readers {
		var list []conch.InboxEntry
		if h.JSON(&list, "inbox", "--json", "-s", fmt.Sprint("r", r)); len(list) != 0 {
			t.Errorf("%d messages too many", len(list))
		}
	}
	var found []conch.FoundMessage
	h.JSON(&found, "mail", "search", "0", "--json", "-n", "1000")
	for _, f := range found {
		if f.Status != conch.ReceiptDone {
			t.Errorf("message %s is %s", f.ID, f.Status)
		}
	}
	if o := h.Conch("doctor"); !strings.Contains(o.Stdout, "conch.db is whole") {
		t.Error(o)
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What was leased by an answer that never arrived comes again; what was
// accepted by a daemon that died before it said so is there.
func TestMailFaultPoints(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"store.migrating", "store.before-commit", "store.after-commit", "mail.accepted", "mail.leased", "mail.acked"} {
		t.Run(point, func(t *testing.T) {
			h := New(t)
			h.With("CONCH_FAULT=" + point).OK("up")
			pid := h.Daemon()
			if point == "mail.leased" || point == "mail.acked" {
				h.OK("send", "main", "hello", "--id", "one", "-s", "main")
			}
			switch point {
			case "mail.leased":
				// The daemon dies, and nobody asks again by himself: a second
				// fetch would be another.
				if o := h.Conch("inbox", "--json"); o.Status == 0 {
					t.Errorf("inbox: %v", o)
				}
			case "mail.acked":
				h.OK("ack", "one") // done again by the next daemon
			default:
				// The client sends again under its id: once in all.
				h.OK("send", "main", "hello", "--id", "one", "-s", "main")
			}
			if Alive(pid) {
				t.Fatal("the daemon passed the point")
			}
			var list []conch.InboxEntry
			h.JSON(&list, "inbox", "--json", "--peek")
			want := 1
			if point == "mail.acked" {
				want = 0
			}
			if len(list) != want {
				t.Errorf("%d messages, want %d", len(list), want)
			}
			if want == 1 && (list[0].LeasedUntil != nil) != (point == "mail.leased") {
				t.Errorf("leased: %+v", list[0])
			}
		})
	}
}

// An ask outlives the daemon it was begun with.
func TestAskSurvivesADaemon(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("exec", "-s", "worker", "true")
	ask := h.Start("ask", "worker", "still there?", "--id", "q", "--json", "-t", "60s")
	Until(t, 10*time.Second, "it waits", func() bool { return h.Session("main").Live })
	Kill(t, h.Daemon())
	h.OK("reply", "q", "yes", "-s", "worker")
	if o := ask.End(); o.Status != 0 || !strings.Contains(o.Stdout, `"text":"yes"`) {
		t.Error(o)
	}
}

// Nor does it mind a daemon that is asked to leave, and neither does an await.
func TestAskSurvivesDown(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("exec", "-s", "worker", "true")
	h.OK("exec", "-s", "other", "true")
	ask := h.Start("ask", "worker", "still there?", "--id", "q", "--json", "-t", "60s")
	await := h.Start("await", "-s", "other", "--json", "-t", "60s")
	for range 2 {
		Until(t, 10*time.Second, "both wait", func() bool { return h.Session("main").Live && h.Session("other").Live })
		h.OK("down")
	}
	h.OK("reply", "q", "yes", "-s", "worker")
	h.OK("send", "other", "and you")
	if o := ask.End(); o.Status != 0 || !strings.Contains(o.Stdout, `"text":"yes"`) {
		t.Error(o)
	}
	if o := await.End(); o.Status != 0 || !strings.Contains(o.Stdout, `"text":"and you"`) {
		t.Error(o)
	}
}

// An ask that is interrupted says what it has sent and how to wait on.
func TestAskInterrupted(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("exec", "-s", "worker", "true")
	ask := h.Start("ask", "worker", "?", "-t", "60s", "-s", "main")
	Until(t, 10*time.Second, "it waits", func() bool { return h.Session("main").Live })
	if err := ask.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := ask.End()
	id := regexp.MustCompile(`--reply-to (\S+) -s me/main`).FindStringSubmatch(o.Stderr)
	if o.Status != 130 || id == nil {
		t.Fatal(o)
	}
	h.OK("reply", id[1], "here", "-s", "worker")
	if o := h.OK("await", "--reply-to", id[1], "-s", "main"); !strings.Contains(o, "here") {
		t.Error(o)
	}
}

// A presence ends with its connection, and with its process.
func TestPresenceEnds(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("up")
	c := h.client()
	p, err := c.Present(t.Context(), conch.PresenceRequest{Claim: true, Harness: "claude"})
	if err != nil || p.Label != "claude:1" {
		t.Fatal(p, err)
	}
	if s := h.Session("claude:1"); !s.Live || s.Busy || s.ID != "" {
		t.Errorf("%+v", s)
	}
	if err := p.SetBusy(t.Context(), true); err != nil || !h.Session("claude:1").Busy {
		t.Errorf("busy: %v", err)
	}
	p.Close()
	<-p.Done()
	Until(t, 5*time.Second, "the session is away", func() bool { return !h.Session("claude:1").Live })

	// Another's process, whose end no connection tells.
	other := exec.Command("/bin/cat")
	in, err := other.StdinPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err = c.Present(t.Context(), conch.PresenceRequest{Claim: true, Label: "ghost", PID: other.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	other.Wait()
	begin := time.Now()
	<-p.Done()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("a ghost lived for %v", took)
	}
	// The daemon's leaving ends presences at once.
	p, err = c.Present(t.Context(), conch.PresenceRequest{Claim: true, Label: "last"})
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	h.OK("down")
	<-p.Done()
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("down took %v with a presence open", took)
	}
}

// claimer is a process that claims a label for each line it reads, holds it,
// and lets go at the next. TestMain runs it.
func claimer() {
	c := client.New(client.Options{Home: os.Getenv("CONCH_HOME"), NoStart: true, Agent: conch.DefaultAgent})
	in := bufio.NewScanner(os.Stdin)
	var p *client.Presence
	for in.Scan() {
		if p != nil {
			p.Close()
			p = nil
		}
		if in.Text() == "" {
			fmt.Println()
			continue
		}
		var err error
		if p, err = c.Present(context.Background(), conch.PresenceRequest{Claim: true, Harness: "claude", HarnessSession: in.Text()}); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(p.Label)
	}
}

func TestLabelsRaced(t *testing.T) {
	t.Parallel()
	raceLabels(t, 50, 5)
}

func TestSoakLabels(t *testing.T) {
	if os.Getenv("CONCH_SOAK") == "" {
		t.Skip("make soak runs this")
	}
	raceLabels(t, 50, 200)
}

// raceLabels lets processes claim at once, round after round, with the labels
// and claims of all rounds before lying about: no label twice, none left out.
func raceLabels(t *testing.T, processes, rounds int) {
	h := New(t)
	h.OK("up")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type racer struct {
		in  io.WriteCloser
		out *bufio.Reader
	}
	racers := make([]racer, processes)
	for i := range racers {
		cmd := exec.Command(self)
		cmd.Env = append(h.Env, "CONCHTEST_CLAIMER=1")
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		racers[i] = racer{in, bufio.NewReader(out)}
		defer cmd.Wait()
		defer in.Close()
	}
	var want []string
	for i := range processes {
		want = append(want, fmt.Sprintf("claude:%d", i+1))
	}
	slices.Sort(want)
	tell := func(text func(i int) string) []string {
		for i, r := range racers {
			fmt.Fprintln(r.in, text(i))
		}
		var got []string
		for _, r := range racers {
			line, err := r.out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.TrimSpace(line))
		}
		slices.Sort(got)
		return got
	}
	for round := range rounds {
		// Some conversations come back, some are new.
		got := tell(func(i int) string { return fmt.Sprintf("conversation %d", rand.IntN(2)*1000*round+i) })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %v", round, got)
		}
		tell(func(int) string { return "" })
		Until(t, 10*time.Second, "all are away", func() bool {
			var list []conch.SessionInfo
			h.JSON(&list, "sessions", "--json")
			return !slices.ContainsFunc(list, func(s conch.SessionInfo) bool { return s.Live })
		})
	}
}

// A listener that goes on after the last number it saw misses nothing and
// hears nothing twice, whichever daemon answers.
func TestMailEventsGoOn(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("exec", "-s", "box", "true")
	c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Agent: conch.DefaultAgent})
	defer c.CloseIdle()
	const total = 60
	enough := errors.New("enough")
	heard := make(chan []string, 1)
	failed := make(chan error, 1)
	go func() {
		var ids []string
		after := int64(0)
		for {
			err := c.MailEvents(t.Context(), "me", "box", after, func(e conch.MailEvent) error {
				after = e.Seq
				if e.Type == "mail" && e.Status == conch.ReceiptHeld {
					if ids = append(ids, e.ID); len(ids) == total {
						return enough
					}
				}
				return nil
			})
			if errors.Is(err, enough) {
				heard <- ids
				return
			}
			if e := conch.AsError(err); !e.Retryable && e.Kind != conch.NotRunning {
				failed <- err
				return
			}
		}
	}()
	var sent []string
	for i := range total {
		id := fmt.Sprint("m", i)
		h.OK("send", "box", "x", "--id", id)
		sent = append(sent, id)
		if i%20 == 10 {
			Kill(t, h.Daemon())
		}
	}
	select {
	case got := <-heard:
		if !slices.Equal(got, sent) {
			t.Errorf("heard %v", got)
		}
	case err := <-failed:
		t.Error(err)
	case <-time.After(30 * time.Second):
		t.Error("the listener hears no more")
	}
}
