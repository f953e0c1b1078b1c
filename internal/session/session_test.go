package session_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/session/fakekeeper"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/tape"
)

func TestMain(m *testing.M) {
	fakekeeper.Main()
	os.Exit(m.Run())
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", limit, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// newHome is a home whose keepers end with the test.
func newHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	before := descriptors()
	t.Cleanup(func() {
		for _, f := range glob(home, "sessions/*/keeper.json") {
			if k := record(t, filepath.Dir(f)); k.PID > 0 {
				proc.Signal(proc.ID{PID: k.PID, Start: k.Start}, syscall.SIGKILL)
			}
		}
		end := time.Now().Add(5 * time.Second)
		for descriptors() > before && time.Now().Before(end) {
			runtime.Gosched()
		}
		if n := descriptors(); n > before {
			t.Errorf("descriptors: %d before, %d after", before, n)
		}
	})
	return home
}

func descriptors() int {
	ents, _ := os.ReadDir("/proc/self/fd")
	return len(ents)
}

func glob(home, pattern string) []string {
	m, _ := filepath.Glob(filepath.Join(home, pattern))
	return m
}

func record(t *testing.T, dir string) (k session.Keeper) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "keeper.json"))
	if err == nil {
		json.Unmarshal(b, &k)
	}
	return k
}

func open(t *testing.T, home string) *session.Store {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	st, err := session.Open(session.Options{Home: home, Exe: exe, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Login: map[string]string{"PATH": os.Getenv("PATH")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func obtain(t *testing.T, st *session.Store, label string) *session.Session {
	t.Helper()
	s, err := st.Obtain(t.Context(), session.NewSpec{Agent: "me", Label: label})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pid(t *testing.T, s *session.Session) int {
	t.Helper()
	k, err := s.Keeper(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k.PID
}

// request sends one request to a running keeper as a client would.
func request(t *testing.T, s *session.Session, method, path, body string) *http.Response {
	t.Helper()
	ours, theirs, err := sock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	err = s.Handover(theirs, fmt.Appendf(nil, "%s /v1/sessions/me/%s%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", method, s.Label(), path, len(body)))
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(ours, body)
	resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func begin(t *testing.T, s *session.Session, command string) (id conch.CommandID, wait func() conch.Result) {
	t.Helper()
	b, _ := json.Marshal(conch.ExecRequest{Command: command})
	resp := request(t, s, "POST", "/exec", string(b))
	return conch.CommandID(resp.Header.Get("Conch-Command-Id")), func() (r conch.Result) {
		if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func marked(mark uint32) []proc.ID {
	return proc.Scan(func(m proc.Mark) bool { return m.Session() == mark })
}

func TestFirstUsesStartOneKeeper(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	var mu sync.Mutex
	pids := map[int]bool{}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			s, err := st.Obtain(t.Context(), session.NewSpec{Agent: "me", Label: "main"})
			if err != nil {
				t.Error(err)
				return
			}
			k, err := s.Keeper(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			pids[k.PID] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if dirs := glob(home, "sessions/*"); len(pids) != 1 || len(dirs) != 1 {
		t.Errorf("keepers %v, directories %v; want one each", pids, dirs)
	}
	if _, err := st.Create(t.Context(), session.NewSpec{Agent: "me", Label: "main"}); !errors.Is(err, conch.LabelTaken) {
		t.Errorf("Create on a label in use: %v", err)
	}
	if _, err := st.Lookup("me", "other"); !errors.Is(err, conch.SessionNotFound) || !strings.Contains(conch.AsError(err).HintText, "main") {
		t.Errorf("Lookup: %v (%s)", err, conch.AsError(err).HintText)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	for fail, want := range map[string]string{"no bash here": "no bash here", "die": "died at its start"} {
		_, err := st.Create(t.Context(), session.NewSpec{Agent: "me", Label: "x", Env: map[string]string{"FAKE_FAIL": fail}})
		if !errors.Is(err, conch.ShellFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", fail, err)
		}
		if left := glob(home, "sessions/*"); len(left) > 0 {
			t.Errorf("%q: left %v", fail, left)
		}
	}
	obtain(t, st, "x") // the label is free
}

func TestKeeperEnvironment(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s, err := st.Create(t.Context(), session.NewSpec{Agent: "bob", Label: "a:1", Env: map[string]string{"X": "1\n2", "PAGER": "less", "CONCH_AGENT": "eve"}})
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	json.NewDecoder(request(t, s, "GET", "/environ", "").Body).Decode(&env)
	for _, want := range []string{"X=1\n2", "PAGER=less", "GIT_PAGER=cat", "AWS_PAGER=", "TERM=dumb", "CONCH_SESSION=a:1", "CONCH_AGENT=bob", "CONCH_HOME=" + home} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is missing in %q", want, env)
		}
	}
}

func TestAdoptLivingKeeper(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	was := pid(t, s)
	_, wait := begin(t, s, "echo hi; read x </dev/null; exit 7")
	st.Close()
	if r := wait(); r.ExitCode == nil || *r.ExitCode != 7 {
		t.Errorf("the command under way gave %+v", r)
	}
	st2 := open(t, home)
	s2, err := st2.Lookup("me", "main")
	if err != nil {
		t.Fatal(err)
	}
	if !s2.Running() || pid(t, s2) != was {
		t.Errorf("running %v, pid %d; want the keeper %d", s2.Running(), pid(t, s2), was)
	}
	info, err := s2.Info(t.Context())
	if err != nil || !info.Live || info.KeeperPID != was {
		t.Errorf("Info = %+v, %v", info, err)
	}
}

func TestKilledKeeperIsSwept(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	id, _ := begin(t, s, "echo partial; sleep 1000")
	eventually(t, "output", 5*time.Second, func() bool { return len(marked(k.Mark)) > 0 && onTape(home, "partial\n") })
	start := time.Now()
	syscall.Kill(k.PID, syscall.SIGKILL)
	eventually(t, "no marked process", 10*time.Second, func() bool { return len(marked(k.Mark)) == 0 })
	if now := pid(t, s); now == k.PID {
		t.Errorf("the next use got the dead keeper")
	}
	t.Logf("swept and started again after %v", time.Since(start))
	if r := proc.Scan(func(m proc.Mark) bool { return m.Session() == k.Mark }); len(r) > 0 {
		t.Errorf("left: %v", r)
	}
	checkLost(t, st, s, id)
}

// checkLost closes the session and looks at what its tape says of a command.
func checkLost(t *testing.T, st *session.Store, s *session.Session, id conch.CommandID) {
	t.Helper()
	if _, err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sid, n, _ := id.Split()
	a, ok := st.ArchivedByID(sid)
	if !ok {
		t.Fatal("no archive")
	}
	h, err := a.Command(n)
	if err != nil || h.Status != conch.StatusLost || h.ExitCode != nil || h.EndedAt == nil {
		t.Errorf("history = %+v, %v; want lost", h, err)
	}
	if h.StdoutBytes != int64(len("partial\n")) {
		t.Errorf("%d bytes of output kept", h.StdoutBytes)
	}
	res, err := a.Result(n, 0)
	if err != nil || res.ExitCode != nil || res.Stdout != "partial\n" {
		t.Errorf("result = %+v, %v", res, err)
	}
}

func TestSweepAtOpen(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	id, _ := begin(t, s, "echo partial; sleep 1000")
	eventually(t, "output", 5*time.Second, func() bool { return len(marked(k.Mark)) > 0 && onTape(home, "partial\n") })
	st.Close()
	syscall.Kill(k.PID, syscall.SIGKILL)
	eventually(t, "death", 5*time.Second, func() bool { return !proc.ID{PID: k.PID, Start: k.Start}.Alive() })
	st = open(t, home)
	eventually(t, "sweep", 10*time.Second, func() bool {
		return len(marked(k.Mark)) == 0 && len(glob(home, "run/*")) == 0 && len(glob(home, "sessions/*/keeper.json")) == 0
	})
	s, err := st.Lookup("me", "main")
	if err != nil || s.Running() {
		t.Fatalf("Lookup: %v, running %v", err, s.Running())
	}
	if pid(t, s) == k.PID {
		t.Error("not a new keeper")
	}
	checkLost(t, st, s, id)
}

// onTape reports whether output has reached a session's tape.
func onTape(home, output string) bool {
	for _, f := range glob(home, "sessions/*/tape/*") {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), output) {
			return true
		}
	}
	return false
}

func TestCopiedHomeHarmsNobody(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	_, wait := begin(t, s, "read x </dev/null; sleep 0.2; exit 5")
	other := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-r", home, other).CombinedOutput(); err != nil {
		t.Logf("cp: %s", out) // sockets cannot be copied
	}
	st2 := open(t, other)
	eventually(t, "the copy is looked at", 10*time.Second, func() bool { return st2.Live() == 0 })
	if r := wait(); r.ExitCode == nil || *r.ExitCode != 5 {
		t.Errorf("the original's command ended with %+v", r)
	}
	if pid(t, s) != k.PID || len(glob(home, "run/*")) == 0 {
		t.Error("the original's keeper was touched")
	}
}

func TestCloseEndsEverything(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	id, wait := begin(t, s, "echo out; echo err >&2; (setsid sleep 1000 >/dev/null 2>&1 &)")
	wait()
	eventually(t, "a stray", 5*time.Second, func() bool { return len(marked(k.Mark)) == 1 })
	e, err := s.Close(t.Context())
	if err != nil || !e.Verified || e.Processes != 1 {
		t.Fatalf("Close = %+v, %v", e, err)
	}
	if left := marked(k.Mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left := append(glob(home, "run/*"), glob(home, "sessions/*/keeper.json")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := s.Close(t.Context()); !errors.Is(err, conch.SessionClosed) {
		t.Errorf("second Close: %v", err)
	}
	// The label is free, and the record stays until pruned.
	s2 := obtain(t, st, "main")
	if s2.ID() == s.ID() {
		t.Error("same session again")
	}
	_, n, _ := id.Split()
	a, ok := st.Archived("me", "main")
	if !ok {
		t.Fatal("no archive")
	}
	hist, err := a.History(0)
	if err != nil || len(hist) != 1 || hist[0].Status != conch.StatusDone {
		t.Errorf("history %+v, %v", hist, err)
	}
	for kind, want := range map[tape.Kind]string{tape.Stdout: "out\n", tape.Stderr: "err\n"} {
		out, err := a.Output(n, kind)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(out); err != nil || string(b) != want {
			t.Errorf("%v: %q, %v", kind, b, err)
		}
		out.Close()
	}
	if _, err := a.Command(99); !errors.Is(err, conch.CommandNotFound) {
		t.Errorf("unknown command: %v", err)
	}
	if n, bytes, err := st.Prune(); n != 1 || bytes == 0 || err != nil {
		t.Errorf("Prune = %d, %d, %v", n, bytes, err)
	}
	if dirs := glob(home, "sessions/*"); len(dirs) != 1 || filepath.Base(dirs[0]) != s2.ID() {
		t.Errorf("after prune: %v", dirs)
	}
}

// A session that is stopped runs nothing and is still the same session.
func TestStopKeepsTheSession(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	_, wait := begin(t, s, "(setsid sleep 1000 >/dev/null 2>&1 &)")
	wait()
	eventually(t, "a stray", 5*time.Second, func() bool { return len(marked(k.Mark)) == 1 })
	e, err := s.Stop(t.Context())
	if err != nil || !e.Verified || e.Processes != 1 {
		t.Fatalf("Stop = %+v, %v", e, err)
	}
	if left := marked(k.Mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left := append(glob(home, "run/*"), glob(home, "sessions/*/keeper.json")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	again := obtain(t, st, "main")
	if again.ID() != s.ID() || !again.Running() {
		t.Errorf("%s, then %s, running %t", s.ID(), again.ID(), again.Running())
	}
	if _, err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stop(t.Context()); !errors.Is(err, conch.SessionClosed) {
		t.Errorf("Stop after Close: %v", err)
	}
}

// A session that is only reserved has nothing on disk, and no processes.
func TestProcessesOfASessionBeingMade(t *testing.T) {
	st := open(t, newHome(t))
	s, done := session.Reserve(t, st, "soon")
	defer done()
	if list, err := s.Processes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("Processes = %v, %v", list, err)
	}
}

func TestCloseStoppedKeeper(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	begin(t, s, "sleep 1000")
	syscall.Kill(k.PID, syscall.SIGSTOP)
	e, err := s.Close(t.Context())
	if err != nil || !e.Verified {
		t.Errorf("Close = %+v, %v", e, err)
	}
	if left := marked(k.Mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	eventually(t, "the keeper is gone", 5*time.Second, func() bool { return !proc.ID{PID: k.PID, Start: k.Start}.Alive() })
}

// A keeper that neither shuts down nor dies by itself is killed.
func TestCloseDeafKeeper(t *testing.T) {
	session.SetLimits(t, 300*time.Millisecond)
	home := newHome(t)
	st := open(t, home)
	s, err := st.Create(t.Context(), session.NewSpec{Agent: "me", Label: "main", Env: map[string]string{"FAKE_DEAF": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	k := record(t, glob(home, "sessions/*")[0])
	begin(t, s, "sleep 1000")
	e, err := s.Close(t.Context())
	if err != nil || !e.Verified || e.Processes == 0 {
		t.Errorf("Close = %+v, %v", e, err)
	}
	if left := marked(k.Mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A control connection that breaks is made again; the keeper keeps its work.
func TestBrokenControl(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	s := obtain(t, st, "main")
	was := pid(t, s)
	session.BreakControl(s)
	eventually(t, "link is back", 5*time.Second, func() bool { return s.Running() && pid(t, s) == was })
}

func TestWaiterLeaves(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := obtain(t, st, "main")
	k := record(t, glob(home, "sessions/*")[0])
	syscall.Kill(k.PID, syscall.SIGKILL)
	eventually(t, "EOF", 5*time.Second, func() bool { return !s.Running() })
	if _, err := s.Keeper(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Keeper with an ended context: %v", err)
	}
	pid(t, s)
}
