// Package conchtest runs the real conch for tests: it builds the binary once,
// gives each test a home of its own, and fails a test that leaves something
// behind: a process that names the home, a socket, a directory in memory.
//
// Every run has a deadline; nothing here sleeps to let something happen, it
// waits for the condition. Processes are ended by number only.
package conchtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/sock"
)

// Limit is what any one run of conch may take; reaching it is a hang.
const Limit = 90 * time.Second

var build struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// Binary is the conch of this tree, built once for the test process.
func Binary(t testing.TB) string { return Variant(t, "conch", "") }

// Variant is a conch in whose file (from the module root) each old of edit is
// replaced by the new after it. It is called conch too, in a directory of its own.
func Variant(t testing.TB, name, file string, edit ...string) string {
	t.Helper()
	build.Lock()
	defer build.Unlock()
	if exe, ok := build.made[name]; ok {
		return exe
	}
	if build.dir == "" {
		dir, err := os.MkdirTemp("", "conchtest")
		if err != nil {
			t.Fatal(err)
		}
		build.dir, build.made = dir, map[string]string{}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root := strings.TrimSpace(string(out))
	dir := filepath.Join(build.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "conch")
	args := []string{"build", "-trimpath", "-o", exe}
	if file != "" {
		overlay := filepath.Join(dir, "overlay.json")
		replaceIn(t, filepath.Join(root, file), filepath.Join(dir, "file.go"), overlay, edit)
		args = append(args, "-overlay", overlay, "-ldflags", "-X main.version="+name)
	}
	cmd := exec.Command("go", append(args, "./cmd/conch")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	build.made[name] = exe
	return exe
}

func replaceIn(t testing.TB, from, to, overlay string, edit []string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(edit...).Replace(string(text))
	if changed == string(text) {
		t.Fatalf("%s has no %q", from, edit[0])
	}
	m, _ := json.Marshal(map[string]any{"Replace": map[string]string{from: to}})
	for path, data := range map[string][]byte{to: []byte(changed), overlay: m} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Main is for TestMain: it runs the tests and removes what was built.
func Main(m *testing.M) {
	code := m.Run()
	Clean()
	os.Exit(code)
}

// Clean removes what was built, for a TestMain that has more to do.
func Clean() {
	if build.dir != "" {
		os.RemoveAll(build.dir)
	}
}

// A Home is a conch home and a directory to work in.
type Home struct {
	T    testing.TB
	Exe  string
	Path string // CONCH_HOME
	Work string // where conch is called
	Env  []string
	UID  int // who calls it, where that is not who tests
}

// New makes a home, which is closed and searched for leftovers at the test's
// end. Its path is short: sockets live under it.
func New(t testing.TB) *Home {
	t.Helper()
	dir, err := os.MkdirTemp("", "ce")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	h := &Home{T: t, Exe: Binary(t), Path: filepath.Join(dir, "h"), Work: filepath.Join(dir, "w")}
	for _, d := range []string{h.Work, filepath.Join(dir, "home")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "CONCH_HOME", "CONCH_SESSION", "CONCH_AGENT", "CONCH_FAULT", "CLAUDE_CODE_SESSION_ID", "HOME", "SHELL", "TMPDIR", "BASH_ENV", "ENV":
		default:
			h.Env = append(h.Env, kv)
		}
	}
	h.Env = append(h.Env, "CONCH_HOME="+h.Path, "HOME="+filepath.Join(dir, "home"), "SHELL=/bin/bash")
	t.Cleanup(func() {
		h.close()
		os.RemoveAll(dir)
	})
	return h
}

// As makes an unused home another user's, as only root can.
func (h *Home) As(uid int) *Home {
	h.T.Helper()
	root := filepath.Dir(h.Path)
	for _, d := range []string{root, h.Work, filepath.Join(root, "home")} {
		if err := os.Chown(d, uid, uid); err != nil {
			h.T.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(h.Exe)), 0o711); err != nil {
		h.T.Fatal(err)
	}
	h.UID = uid
	return h
}

// close ends all of the home and looks for what stayed.
func (h *Home) close() {
	h.T.Helper()
	if h.T.Failed() {
		h.logs()
	}
	if fi, err := os.Stat(h.Path); err == nil && fi.IsDir() {
		if o := h.Conch("down", "--all"); o.Status != 0 {
			h.T.Errorf("down --all: %v", o)
		}
	}
	// The daemon answers before it is reaped; its last breath is waited for.
	deadline := time.Now().Add(10 * time.Second)
	left := h.Processes()
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
		left = h.Processes()
	}
	for _, p := range left {
		h.T.Errorf("left behind: process %d: %s", p.PID, p.Args)
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
	if list, _ := filepath.Glob(filepath.Join(h.Path, "run", "*")); len(list) > 0 {
		h.T.Errorf("left behind: %v", list)
	}
	memory := sock.MemoryPath(h.Path)
	if _, err := os.Lstat(memory); err == nil {
		list, _ := filepath.Glob(memory + "/*/*")
		h.T.Errorf("left behind: %s %v", memory, list)
		os.RemoveAll(memory)
	}
}

// logs shows what the daemon and keepers said, for a test that failed.
func (h *Home) logs() {
	list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "keeper.log"))
	for _, path := range append(list, filepath.Join(h.Path, "daemon.log")) {
		b, _ := os.ReadFile(path)
		var said []string
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, "level=INFO") {
				said = append(said, line)
			}
		}
		if len(said) > 0 {
			h.T.Logf("%s:\n%s", path, strings.Join(said[max(0, len(said)-40):], ""))
		}
	}
}

// A Process is one that has to do with a home.
type Process struct {
	PID  int
	Args string
}

// Processes lists the living processes that know of the home, by argument,
// environment or working directory.
func (h *Home) Processes() []Process {
	var left []Process
	root := filepath.Dir(h.Path)
	ents, err := os.ReadDir("/proc")
	if err != nil {
		h.T.Logf("no /proc, no search for processes: %v", err)
	}
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if len(args) == 0 {
			continue // a zombie or the kernel's
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if strings.Contains(string(args)+"\x00"+string(env)+"\x00"+cwd+"/", root+"/") {
			left = append(left, Process{pid, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))})
		}
	}
	return left
}

// Out is what a run of conch gave.
type Out struct {
	Stdout, Stderr string
	Status         int // 128+n when a signal ended it
	Took           time.Duration
}

func (o Out) String() string {
	return fmt.Sprintf("status %d after %v, stdout %.2000q, stderr %.2000q", o.Status, o.Took.Round(time.Millisecond), o.Stdout, o.Stderr)
}

// Cmd is a run of conch that the caller starts.
func (h *Home) Cmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.Exe, args...)
	cmd.Dir, cmd.Env = h.Work, h.Env
	cmd.WaitDelay = 5 * time.Second
	if h.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.UID), Gid: uint32(h.UID)}}
	}
	return cmd
}

// With is the same home, called with more environment.
func (h *Home) With(env ...string) *Home {
	c := *h
	c.Env = append(h.Env[:len(h.Env):len(h.Env)], env...)
	return &c
}

// Conch runs conch to its end.
func (h *Home) Conch(args ...string) Out { h.T.Helper(); return h.Feed(nil, args...) }

// Feed runs conch with a stdin.
func (h *Home) Feed(stdin io.Reader, args ...string) Out {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	cmd := h.Cmd(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	o := Out{stdout.String(), stderr.String(), 0, time.Since(start)}
	if ctx.Err() != nil {
		h.T.Errorf("conch %.200q hangs: %v", args, o)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		h.T.Fatalf("conch %.200q: %v", args, err)
	}
	o.Status = status(cmd.ProcessState)
	return o
}

func status(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// OK runs conch, which must succeed, and gives its stdout.
func (h *Home) OK(args ...string) string {
	h.T.Helper()
	o := h.Conch(args...)
	if o.Status != 0 {
		h.T.Fatalf("conch %.200q: %v", args, o)
	}
	return o.Stdout
}

// JSON runs conch, whose stdout must be one JSON value, and decodes it.
func (h *Home) JSON(v any, args ...string) Out {
	h.T.Helper()
	o := h.Conch(args...)
	if err := json.Unmarshal([]byte(o.Stdout), v); err != nil {
		h.T.Fatalf("conch %.200q: %v: %v", args, err, o)
	}
	return o
}

// Exec runs a command with exec --json and gives the result, streams decoded.
func (h *Home) Exec(label, text string, flags ...string) conch.Result {
	h.T.Helper()
	var r conch.Result
	args := append([]string{"exec", "--json", "-s", label}, flags...)
	if len(text) > 100_000 {
		f := filepath.Join(h.Work, ".command-"+label)
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			h.T.Fatal(err)
		}
		args = append(args, "-f", f)
	} else {
		args = append(args, "--", text)
	}
	h.JSON(&r, args...)
	if r.Encoding == "base64" {
		for _, s := range []*string{&r.Stdout, &r.Stderr} {
			b, err := base64.StdEncoding.DecodeString(*s)
			if err != nil {
				h.T.Fatal(err)
			}
			*s = string(b)
		}
	}
	return r
}

// Want runs a command that must have this stdout, no stderr and exit code 0.
func (h *Home) Want(label, text, stdout string) conch.Result {
	h.T.Helper()
	r := h.Exec(label, text)
	if r.Stdout != stdout || r.Stderr != "" || Code(r.ExitCode) != "0" {
		h.T.Errorf("%.200q: stdout %q, stderr %q, exit %s; want stdout %q", text, r.Stdout, r.Stderr, Code(r.ExitCode), stdout)
	}
	return r
}

// Code is an exit code as JSON has it.
func Code(c *int) string {
	if c == nil {
		return "null"
	}
	return strconv.Itoa(*c)
}

// History is a session's.
func (h *Home) History(label string) []conch.HistoryEntry {
	h.T.Helper()
	var list []conch.HistoryEntry
	h.JSON(&list, "history", "--json", "-s", label)
	return list
}

// Last is the youngest command of a session.
func (h *Home) Last(label string) conch.HistoryEntry {
	h.T.Helper()
	list := h.History(label)
	if len(list) == 0 {
		h.T.Fatalf("session %s has no history", label)
	}
	return list[len(list)-1]
}

// Session describes an open session; the zero value: there is none.
func (h *Home) Session(label string) conch.SessionInfo {
	h.T.Helper()
	var list []conch.SessionInfo
	h.JSON(&list, "sessions", "--json")
	for _, s := range list {
		if s.Label == label {
			return s
		}
	}
	return conch.SessionInfo{}
}

// Daemon is the pid of the daemon, 0 if none runs.
func (h *Home) Daemon() int {
	h.T.Helper()
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	return s.DaemonPID
}

// Running is a conch that runs beside the test.
type Running struct {
	*exec.Cmd
	h      *Home
	In     io.WriteCloser
	Out    *bufio.Reader
	stderr bytes.Buffer
	cancel context.CancelFunc
}

// Start starts conch; the test reads its stdout and ends it.
func (h *Home) Start(args ...string) *Running {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	r := &Running{Cmd: h.Cmd(ctx, args...), h: h, cancel: cancel}
	r.Stderr = &r.stderr
	in, err := r.StdinPipe()
	if err != nil {
		h.T.Fatal(err)
	}
	out, err := r.StdoutPipe()
	if err != nil {
		h.T.Fatal(err)
	}
	r.In, r.Out = in, bufio.NewReader(out)
	if err := r.Cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(cancel)
	return r
}

// Line waits for one line of stdout.
func (r *Running) Line(want string) {
	r.h.T.Helper()
	got, err := r.Out.ReadString('\n')
	if got != want+"\n" {
		r.h.T.Fatalf("read %q (%v), want %q; stderr %q", got, err, want, r.stderr.String())
	}
}

// End waits for the end and gives what was not yet read.
func (r *Running) End() Out {
	r.h.T.Helper()
	rest, _ := io.ReadAll(r.Out)
	r.Cmd.Wait()
	r.cancel()
	return Out{Stdout: string(rest), Stderr: r.stderr.String(), Status: status(r.ProcessState)}
}

// Kill ends a process without warning.
func Kill(t testing.TB, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to kill (%d)", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// Until waits for a condition that other processes bring about.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}
