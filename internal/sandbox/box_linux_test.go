package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is the first process of its own boxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "keeper" && os.Args[2] == Word {
		os.Exit(Init())
	}
	os.Exit(m.Run())
}

func start(t *testing.T, c Config) *Box {
	t.Helper()
	b, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	pid := b.PID
	t.Cleanup(func() {
		b.Close()
		unix.Wait4(pid, nil, 0, nil)
	})
	return b
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// run runs a command in a box and gives what it wrote and how it ended.
func run(t *testing.T, b *Box, dir, text string, more ...uintptr) (string, unix.WaitStatus) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid, err := b.ForkExec("/bin/bash", []string{"bash", "-c", text}, &syscall.ProcAttr{Dir: dir, Env: []string{"PATH=/usr/bin:/bin"},
		Files: append([]uintptr{null(t).Fd(), w.Fd(), w.Fd()}, more...)})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(out), ws
}

func TestFork(t *testing.T) {
	dir := t.TempDir()
	b := start(t, Config{Work: dir})
	if out, ws := run(t, b, dir, "pwd; echo oops >&2; exit 7"); out != dir+"\noops\n" || ws.ExitStatus() != 7 {
		t.Errorf("%q, status %d", out, ws.ExitStatus())
	}
	if _, ws := run(t, b, "/", "kill -9 $$"); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("killed: %v", ws)
	}
	// What could not be started is told, and leaves no child.
	for _, c := range []struct {
		path, dir string
		want      error
	}{{"/nonexistent", "/", unix.ENOENT}, {"/bin/sh", "/nonexistent", unix.ENOENT}, {"/etc/passwd", "/", unix.EACCES}} {
		pid, err := b.ForkExec(c.path, []string{"x"}, &syscall.ProcAttr{Dir: c.dir, Files: []uintptr{null(t).Fd()}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s in %s: %d, %v", c.path, c.dir, pid, err)
		}
	}
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); pid > 0 {
		t.Errorf("child %d is left (%v)", pid, err)
	}
	// Its limits are those that a program outside has.
	var outside unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &outside)
	if l := openFiles(); l == nil || l.Max != outside.Max {
		t.Errorf("open files: %+v, here %+v", l, outside)
	}
}

// Descriptors that lie in each other's way arrive in order.
func TestForkDescriptors(t *testing.T) {
	dir := t.TempDir()
	b := start(t, Config{Work: dir})
	var files []uintptr
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append([]uintptr{f.Fd()}, files...) // highest first
	}
	out, _ := run(t, b, "/", "for i in 3 4 5 6 7; do cat <&$i; done", files...)
	if out != "edcba" {
		t.Errorf("%q", out)
	}
}

func TestEnd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := t.TempDir()
	run := t.TempDir()
	b := start(t, Config{Work: dir, Run: run})
	if !b.Holds() {
		t.Fatal("a new box does not hold")
	}
	if err := b.Dir("/usr/bin"); err != nil {
		t.Error(err)
	}
	if err := b.Dir("/sys"); err == nil {
		t.Error("it has /sys")
	}
	if err := b.Dir("/etc/passwd"); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
	// A link leads to what is inside.
	if err := os.Symlink("/sys", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := b.Dir(filepath.Join(dir, "link")); err == nil {
		t.Error("a link leads outside")
	}
	pid, err := b.ForkExec("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Dir: "/", Files: []uintptr{null(t).Fd(), null(t).Fd(), null(t).Fd()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(b.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Signaled() {
		t.Errorf("what was inside: %v, %v", ws, err)
	}
	if b.Holds() {
		t.Error("it holds without its first process")
	}
	if pid, err := b.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Dir: "/"}); err == nil {
		t.Errorf("process %d was started in it", pid)
	}
}

func TestProbe(t *testing.T) {
	how, err := Probe("/proc/self/exe")
	if err != nil || !strings.Contains(how, "namespaces") {
		t.Errorf("%q, %v", how, err)
	}
	if pid, _ := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid > 0 {
		t.Errorf("child %d is left", pid)
	}
}
