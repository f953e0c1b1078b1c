package conchtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// A cutter stands between a client and the daemon and ends each connection after so
// many bytes of answer.
type cutter struct {
	l     net.Listener
	to    string
	wg    sync.WaitGroup
	mu    sync.Mutex
	after func() int64 // what the next connection may carry; negative: all
	open  map[net.Conn]bool
	cuts  int
}

func newCutter(t *testing.T, h *Home, after func() int64) *cutter {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(h.Work, "c.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, to: h.socket(), after: after, open: map[net.Conn]bool{}}
	c.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.cutAll()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) serve(conn net.Conn) {
	defer conn.Close()
	back, err := net.Dial("unix", c.to)
	if err != nil {
		return
	}
	defer back.Close()
	c.mu.Lock()
	n := c.after()
	c.open[conn], c.open[back] = true, true
	c.mu.Unlock()
	c.wg.Go(func() { io.Copy(back, conn); back.Close() })
	if n < 0 {
		io.Copy(conn, back)
	} else if m, _ := io.CopyN(conn, back, n); m == n {
		c.mu.Lock()
		c.cuts++
		c.mu.Unlock()
	}
	c.mu.Lock()
	delete(c.open, conn)
	delete(c.open, back)
	c.mu.Unlock()
}

// cutAll ends all connections there are.
func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		conn.Close()
	}
}

// follow reads a stream to its end and checks its form.
func follow(t *testing.T, s *client.Stream) (stdout, stderr string, r *conch.Result) {
	t.Helper()
	var out, errs strings.Builder
	var last uint64
	starts := 0
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after event %d: %v", last, err)
		}
		if e.Seq <= last {
			t.Fatalf("event %d after %d", e.Seq, last)
		}
		last = e.Seq
		switch e.Kind {
		case client.Started:
			starts++
		case client.Stdout:
			out.Write(e.Data)
		case client.Stderr:
			errs.Write(e.Data)
		case client.Exited:
			r = e.Result
		}
	}
	if starts != 1 || r == nil {
		t.Errorf("%d starts, result %v", starts, r)
	}
	return out.String(), errs.String(), r
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// A stream whose connection is cut again and again brings every byte once.
func TestStreamSurvivesCuts(t *testing.T) {
	h := New(t)
	h.OK("up")
	size := int64(500)
	cut := newCutter(t, h, func() int64 { size += 7919; return size })
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	c := client.New(client.Options{Socket: cut.l.Addr().String(), Agent: "me", Cwd: h.Work})
	defer c.CloseIdle()
	s, err := c.Stream(ctx, "a", conch.ExecRequest{Command: "for i in {1..20}; do seq $((i*2000-1999)) $((i*2000)); echo e$i >&2; sleep 0.01; done; exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, errs, r := follow(t, s)
	if out != numbers(40000) || strings.Count(errs, "\n") != 20 || Code(r.ExitCode) != "7" {
		t.Errorf("%d bytes of stdout, %d lines of stderr, exit code %s", len(out), strings.Count(errs, "\n"), Code(r.ExitCode))
	}
	if cut.cuts < 3 {
		t.Errorf("it was cut %d times only", cut.cuts)
	}
	// Behind its exit there is nothing; from its start, all.
	again, err := c.Follow(ctx, s.ID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if out2, errs2, _ := follow(t, again); out2 != out || errs2 != errs {
		t.Errorf("followed later: %d and %d bytes", len(out2), len(errs2))
	}
}

// The daemon is killed in mid-stream: nothing is noticed. The connection is cut as
// well: the stream waits for the next daemon and goes on.
func TestStreamSurvivesTheDaemon(t *testing.T) {
	h := New(t)
	h.OK("up")
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	const command = "for i in {1..30}; do echo $i; until [ -e go$((i/10)) ]; do sleep 0.01; done; done"
	step := func(i int) {
		if err := os.WriteFile(filepath.Join(h.Work, fmt.Sprint("go", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, through := range []bool{false, true} {
		cut := newCutter(t, h, func() int64 { return -1 })
		c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Agent: "me", Cwd: h.Work})
		if through {
			c = client.New(client.Options{Socket: cut.l.Addr().String(), Agent: "me", Cwd: h.Work})
		}
		s, err := c.Stream(ctx, fmt.Sprint("s", through), conch.ExecRequest{Command: command})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		starts := 0
		until := func(line string) {
			for !strings.HasSuffix(out.String(), line+"\n") {
				e, err := s.Next()
				if err != nil {
					t.Fatalf("waiting for %s: %v", line, err)
				}
				if e.Kind == client.Started {
					starts++
				}
				out.Write(e.Data)
			}
		}
		until("1")
		step(0)
		until("10")
		Kill(t, h.Daemon())
		if through {
			cut.cutAll()
			// Meanwhile the command goes on, and another daemon comes.
			step(1)
			h.OK("up")
		}
		step(1)
		until("20")
		step(2)
		step(3)
		until("30")
		e, err := s.Next()
		if err != nil || e.Kind != client.Exited || Code(e.Result.ExitCode) != "0" || starts != 1 || out.String() != numbers(30) {
			t.Errorf("through %v: %v %v, %d starts, %q", through, e.Kind, err, starts, out.String())
		}
		s.Close()
		c.CloseIdle()
		cut.l.Close()
		h.OK("up")
		for i := range 4 {
			os.Remove(filepath.Join(h.Work, fmt.Sprint("go", i)))
		}
	}
}

// The keeper dies in mid-stream: what it recorded still comes, and then the word that
// the command is lost.
func TestStreamSurvivesTheKeeper(t *testing.T) {
	h := New(t)
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Agent: "me", Cwd: h.Work})
	defer c.CloseIdle()
	s, err := c.Stream(ctx, "a", conch.ExecRequest{Command: "echo one; sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Data) == "one\n" {
			break
		}
	}
	Kill(t, h.Session("a").KeeperPID)
	e, err := s.Next()
	if err != nil || e.Kind != client.Exited || e.Result.ExitCode != nil {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the exit: %v", err)
	}
}

// A stream that is left, by its context or by Close, ends at once.
func TestStreamIsLeft(t *testing.T) {
	h := New(t)
	c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Agent: "me", Cwd: h.Work})
	defer c.CloseIdle()
	for i := range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := c.Stream(ctx, fmt.Sprint("s", i), conch.ExecRequest{Command: "echo up; sleep 60"})
		if err != nil {
			t.Fatal(err)
		}
		for e, err := s.Next(); string(e.Data) != "up\n"; e, err = s.Next() {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(50*time.Millisecond, func() {
			if i == 0 {
				cancel()
			} else {
				s.Close()
			}
		})
		start := time.Now()
		_, err = s.Next()
		if want := []error{context.Canceled, io.ErrUnexpectedEOF}[i]; !errors.Is(err, want) || time.Since(start) > 5*time.Second {
			t.Errorf("%v after %v, want %v", err, time.Since(start), want)
		}
		s.Close()
		cancel()
	}
}

// A watch tells of every command, through cuts, to the session's end.
func TestWatch(t *testing.T) {
	h := New(t)
	h.OK("exec", "-s", "a", "echo before")
	n := 0
	cut := newCutter(t, h, func() int64 {
		if n++; n < 6 {
			return 600
		}
		return -1
	})
	c := client.New(client.Options{Socket: cut.l.Addr().String(), Agent: "me"})
	defer c.CloseIdle()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	w, err := c.Watch(ctx, "a", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h.OK("exec", "-s", "a", "echo now; echo e >&2")
	h.Conch("exec", "-s", "a", "(sleep 0.3; echo late) & (exit 3)")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "late\n" {
		e, err := w.Next()
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		switch e.Kind {
		case client.Started:
			got = append(got, e.Command)
		case client.Exited:
			got = append(got, Code(e.Result.ExitCode))
		default:
			got = append(got, string(e.Data))
		}
		if _, _, err := e.CommandID.Split(); err != nil {
			t.Error(err)
		}
	}
	want := []string{"echo before", "before\n", "0", "echo now; echo e >&2", "now\n", "e\n", "0", "(sleep 0.3; echo late) & (exit 3)", "3", "late\n"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	h.OK("close", "a")
	if e, err := w.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %+v, %v", e, err)
	}
}
