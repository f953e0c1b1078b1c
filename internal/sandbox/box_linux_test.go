package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
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

// run runs a command in a box and gives what it wrote and how it ended.
func run(t *testing.T, b *Box, dir, text string) (string, unix.WaitStatus) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pid, err := b.ForkExec("/bin/bash", []string{"bash", "-c", text}, &syscall.ProcAttr{Dir: dir, Env: []string{"PATH=/usr/bin:/bin"},
		Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 0, 1<<16)
	buf := make([]byte, 1<<16)
	for {
		n, err := r.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			break
		}
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(out), ws
}

func start(t *testing.T, c Config) *Box {
	t.Helper()
	runtime.LockOSThread()
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

func TestX(t *testing.T) {
	dir := t.TempDir()
	b := start(t, Config{Work: dir, Home: "/root"})
	out, ws := run(t, b, dir, `id; pwd; ls -la / /dev /tmp /root /proc/1/ ; cat /proc/self/mountinfo; grep -i cap /proc/self/status; ps aux; touch x && ls; touch /usr/x; cat /etc/shadow; ip a; ulimit -n; unshare -Ur true; echo hi >/tmp/z; mount -t tmpfs x /tmp; tty; cat /proc/1/environ; ls -la /proc/1/root/; kill -9 1; kill -SEGV 1; echo alive; nproc; cat /proc/self/limits | head -20`)
	fmt.Println(out, ws)
	if s, err := Probe(); err != nil {
		t.Fatal(err)
	} else {
		fmt.Println(s)
	}
	_ = exec.Command
}
