package conchtest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The daemon tells a service manager when it is ready and when it leaves, and
// leaves sessions running.
func TestServiceManagerIsTold(t *testing.T) {
	h := New(t)
	path := filepath.Join(h.Work, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hear := func(want string) {
		t.Helper()
		l.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 100)
		n, err := l.Read(b)
		if string(b[:n]) != want {
			t.Errorf("told %q (%v), want %q", b[:n], err, want)
		}
	}
	r := h.With("NOTIFY_SOCKET="+path).Start("up", "--foreground")
	hear("READY=1")
	// Ready means ready, and the address is the daemon's alone.
	h.Want("a", "x=1; echo ${NOTIFY_SOCKET-none}", "none\n")
	shell := h.Session("a").ShellPID
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if o := r.End(); o.Status != 0 {
		t.Errorf("%v", o)
	}
	if !Alive(shell) {
		t.Error("the session was ended with the service")
	}
	h.Want("a", "echo $x", "1\n")
}

// up --install asks systemctl, and says what to run where that does not work.
func TestUpInstall(t *testing.T) {
	h := New(t)
	bin := filepath.Join(h.Work, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(script string) {
		for _, name := range []string{"systemctl", "launchctl"} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := h.With("PATH="+bin+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+filepath.Join(h.Work, "config"))
	write("echo no bus >&2; exit 1")
	h.Want("a", "true", "")
	daemon := h.Daemon()
	out := c.OK("up", "--install")
	if !strings.Contains(out, "wrote ") || !strings.Contains(out, "no bus") || !strings.Contains(out, "  systemctl --user enable conch.service\n") {
		t.Errorf("%s", out)
	}
	if h.Daemon() != daemon {
		t.Error("the daemon that runs was stopped for nothing")
	}
	write("[ $2 != restart ] || " + h.Exe + " up")
	out = c.OK("up", "--install")
	if !strings.Contains(out, "starts at every login") || !strings.Contains(out, "as it should be") {
		t.Errorf("%s", out)
	}
	if out = c.OK("up", "--install"); !strings.Contains(out, "as it should be") {
		t.Errorf("%s", out)
	}
	h.Want("a", "echo still", "still\n")
	if out = c.OK("up", "--uninstall"); !strings.HasPrefix(out, "removed ") {
		t.Errorf("%s", out)
	}
	if out = c.OK("up", "--uninstall"); out != "not installed\n" {
		t.Errorf("%s", out)
	}
}
