package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test process what a keeper is: a subreaper that reaps whatever dies.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_HELPER") == "leave" {
		leaveByMainThread()
	}
	if err := Subreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, syscall.SIGCHLD)
	go func() { // until the process exits
		for range chld {
			reaper.reap()
		}
	}()
	code := m.Run()
	if kids := Children(os.Getpid()); len(kids) > 0 {
		fmt.Fprintf(os.Stderr, "children left: %v\n", kids)
		code = 1
	}
	os.Exit(code)
}

// leaveByMainThread ends the main thread alone; the others go on until they are killed.
func leaveByMainThread() {
	runtime.LockOSThread()
	go func() { select {} }()
	go func() {
		var b [1]byte
		for {
			os.Stdin.Read(b[:]) // blocks: the test holds the other end
		}
	}()
	fmt.Println("ready")
	syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// statuses is what the reaper has seen.
type statuses struct {
	pause sync.Mutex // held: nothing is reaped
	mu    sync.Mutex // guards ended; taken inside pause
	ended map[int]syscall.WaitStatus
}

var reaper = statuses{ended: make(map[int]syscall.WaitStatus)}

func (s *statuses) reap() {
	s.pause.Lock()
	defer s.pause.Unlock()
	Reap(func(pid int, ws syscall.WaitStatus, _ syscall.Rusage) {
		if ws.Stopped() {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended[pid] = ws
	})
}

func (s *statuses) status(pid int) (syscall.WaitStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ws, ok := s.ended[pid]
	return ws, ok
}

func (s *statuses) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ended)
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s; tree %v", what, Tree(os.Getpid()))
		}
	}
}

// running is a program started by a test, with its output.
type running struct {
	ID
	out *bufio.Reader
	in  *os.File
}

// start runs argv with stdin and stdout piped and the mark, if any, already in place. At the end
// of the test every process that it left is ended.
func start(t testing.TB, m Mark, argv ...string) *running {
	t.Helper()
	prog, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if m != 0 {
		if err := SetMark(os.Getpid(), m); err != nil {
			t.Fatal(err)
		}
	}
	// Not os/exec: the reaper takes all children.
	pid, err := syscall.ForkExec(prog, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{inR.Fd(), outW.Fd(), 2},
	})
	if m != 0 {
		if err := SetMark(os.Getpid(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	id, err := Lookup(pid)
	if err != nil {
		id.PID = pid // it has left already and is reaped
	}
	t.Cleanup(func() {
		if r := End(context.Background(), all, []Step{{syscall.SIGKILL, 10 * time.Second}}); !r.Verified {
			t.Errorf("left running: %v", Tree(os.Getpid()))
		}
		outR.Close()
		inW.Close()
		until(t, "all reaped", func() bool { reaper.reap(); return len(Children(os.Getpid())) == 0 })
	})
	return &running{id, bufio.NewReader(outR), inW}
}

// all is everything that the tests have started.
func all() []ID { return Tree(os.Getpid()) }

// line reads one line of output.
func (r *running) line(t testing.TB) string {
	t.Helper()
	s, err := r.out.ReadString('\n')
	if err != nil {
		t.Fatalf("output ended: %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

// pid reads a line with a pid and returns its process.
func (r *running) pid(t testing.TB) ID {
	t.Helper()
	n, err := strconv.Atoi(r.line(t))
	if err != nil {
		t.Fatal(err)
	}
	id, err := Lookup(n)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func bash(t testing.TB, script string) *running { return start(t, 0, "bash", "-c", script) }

func TestStatOfAnyName(t *testing.T) {
	for _, name := range []string{"a", ") S 7 7", "a b (c) ", "x\ny)", ""} {
		text := "12 (" + name + ") T 34 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 2 0 4711 23" + strings.Repeat(" 0", 28) + " 2 9\n"
		in, ok := parseStat([]byte(text))
		if !ok || in.state != 'T' || in.ppid != 34 || in.threads != 2 || in.start != 4711 {
			t.Errorf("%q: %+v %v", name, in, ok)
		}
	}
	for _, text := range []string{"", "1", "1 (a)", "1 (a) ", "1 (a) S", ")"} {
		if in, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q is taken for %+v", text, in)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 5 1 1"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b); parsePIDs(nil, b) })
}

func TestIDOfAReusedPID(t *testing.T) {
	p := bash(t, "echo ready; exec sleep 100")
	p.line(t)
	other := ID{p.PID, p.Start - 1}
	if other.Alive() || !p.Alive() {
		t.Errorf("alive: with another start %v, with its own %v", other.Alive(), p.Alive())
	}
	if err := Signal(other, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal with another start: %v", err)
	}
	if !p.Alive() {
		t.Fatal("a signal to another process reached this one")
	}
	if err := Signal(p.ID, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	until(t, "ended", func() bool { ws, ok := reaper.status(p.PID); return ok && ws.Signal() == syscall.SIGTERM })
	if _, err := Lookup(p.PID); err == nil {
		t.Error("a reaped process is found")
	}
	if Self().PID != os.Getpid() || !Self().Alive() || BootID() == "" {
		t.Error("self", Self(), BootID())
	}
}

func TestZombieIsNotAlive(t *testing.T) {
	reaper.pause.Lock()
	defer reaper.pause.Unlock()
	p := bash(t, "exit 3")
	until(t, "a zombie", func() bool { s, _ := State(p.PID); return s == 'Z' })
	if p.Alive() || len(all()) != 0 {
		t.Error("a zombie counts as alive")
	}
	if !slices.Contains(Children(os.Getpid()), p.PID) {
		t.Error("a zombie is a child")
	}
	if err := Signal(p.ID, syscall.SIGTERM); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal: %v", err)
	}
	id := p.ID
	r := End(t.Context(), func() []ID { return []ID{id} }, ladder)
	if want := (Report{Verified: true}); r != want {
		t.Errorf("end of a zombie: %+v", r)
	}
}

// A process whose main thread has left has state Z and runs on.
func TestMainThreadGone(t *testing.T) {
	t.Setenv("PROC_TEST_HELPER", "leave")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, 0, exe)
	p.line(t)
	until(t, "its main thread is gone", func() bool { s, _ := State(p.PID); return s == 'Z' })
	if !p.Alive() || !slices.Contains(all(), p.ID) {
		t.Error("a process with living threads counts as a zombie")
	}
	if r := End(t.Context(), all, ladder); !r.Verified || r.Processes != 1 {
		t.Errorf("%+v", r)
	}
	if p.Alive() {
		t.Error("alive after its end")
	}
}

func TestTree(t *testing.T) {
	const script = `sleep 100 & echo $!; (setsid sleep 100 & echo $BASHPID $!; wait) & (exit 0) & wait`
	for _, kernel := range []string{"children", "no children file"} {
		t.Run(kernel, func(t *testing.T) {
			if kernel != "children" {
				have := haveChildren
				haveChildren = func() bool { return false }
				defer func() { haveChildren = have }()
			}
			p := bash(t, script)
			var want []int
			want = append(want, p.PID)
			for range 2 {
				for _, f := range strings.Fields(p.line(t)) {
					n, _ := strconv.Atoi(f)
					want = append(want, n)
				}
			}
			slices.Sort(want)
			var got []int
			until(t, "the tree is whole", func() bool {
				got = nil
				for _, id := range all() {
					got = append(got, id.PID)
				}
				sorted := slices.Sorted(slices.Values(got))
				return slices.Equal(sorted, want) && len(Tree(p.PID)) == len(want)-1
			})
			if got[0] != p.PID {
				t.Errorf("parents are not first: %v", got)
			}
			if Tree(-1) != nil || Tree(0) != nil || Children(-1) != nil {
				t.Error("descendants of no process")
			}
		})
	}
}

func TestReapTellsStopped(t *testing.T) {
	reaper.pause.Lock()
	defer reaper.pause.Unlock()
	p := bash(t, "kill -STOP $$; exit 7")
	var seen []syscall.WaitStatus
	collect := func() bool {
		n := len(seen)
		Reap(func(pid int, ws syscall.WaitStatus, _ syscall.Rusage) {
			if pid == p.PID {
				seen = append(seen, ws)
			}
		})
		return len(seen) > n
	}
	until(t, "stopped", collect)
	if !seen[0].Stopped() {
		t.Fatalf("%v", seen)
	}
	if err := Signal(p.ID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "exited", collect)
	if seen[1].ExitStatus() != 7 {
		t.Fatalf("%v", seen)
	}
}

func TestChildWatch(t *testing.T) {
	p := bash(t, `echo ready; while read -r line; do eval "$line"; done`)
	p.line(t)
	var w ChildWatch
	if err := w.Open(p.PID); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Any() {
		t.Error("children of a shell that has none")
	}
	say := func(s string) string {
		t.Helper()
		if _, err := io.WriteString(p.in, s+"\n"); err != nil {
			t.Fatal(err)
		}
		return p.line(t)
	}
	one, _ := strconv.Atoi(say("sleep 100 & echo $!"))
	if !w.Any() || w.Any(one) {
		t.Errorf("one child: %v, less itself: %v", w.Any(), w.Any(one))
	}
	two, _ := strconv.Atoi(say("sleep 100 & echo $!"))
	if !w.Any(one) || w.Any(one, two) {
		t.Error("two children")
	}
	// More than the first buffer and more than a page of pids, all of them known.
	many := []int{one, two}
	for range 9 {
		for _, f := range strings.Fields(say(`for i in {1..100}; do sleep 100 & printf '%s ' $!; done; echo`)) {
			n, _ := strconv.Atoi(f)
			many = append(many, n)
		}
	}
	if len(many) != 902 || w.Any(many...) || !w.Any(many[:901]...) || !w.Any(many[1:]...) {
		t.Errorf("%d children", len(many))
	}
	if r := End(t.Context(), func() []ID { return Tree(p.PID) }, ladder); !r.Verified || r.Processes != 902 {
		t.Errorf("%+v", r)
	}
	if !p.Alive() || w.Any() {
		t.Error("children after their end")
	}
	if err := Signal(p.ID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	until(t, "reaped", func() bool { _, err := Lookup(p.PID); return err != nil })
	if w.Any() {
		t.Error("children of a dead process")
	}
	if err := w.Open(p.PID); err == nil {
		t.Error("a dead process can be watched")
	}
	if err := new(ChildWatch).Close(); err != nil {
		t.Error(err)
	}
}

func TestSignalName(t *testing.T) {
	for sig, want := range map[syscall.Signal]string{
		syscall.SIGKILL: "SIGKILL", syscall.SIGINT: "SIGINT", syscall.SIGABRT: "SIGABRT",
		34: "SIGRTMIN", 39: "SIGRTMIN+5", 64: "SIGRTMIN+30", 0: "signal 0", 65: "signal 65",
	} {
		if got := SignalName(sig); got != want {
			t.Errorf("%d: %s, want %s", int(sig), got, want)
		}
	}
}
