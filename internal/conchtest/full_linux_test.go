package conchtest

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// A disk that fills up: the command is told so, nothing hangs, what was kept
// stays readable, and with space again the session goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a small file system needs root to mount")
	}
	h := New(t)
	if err := os.Mkdir(h.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", h.Path, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		// Before New's cleanup, which removes the directory.
		h.Conch("down", "--all")
		// The daemon's own log is open until its very end.
		Until(t, 10*time.Second, "the file system is unused", func() bool { return syscall.Unmount(h.Path, 0) == nil })
	})
	h.Want("main", "KEEP=kept; f() { echo F; }", "")
	first := h.Last("main").CommandID
	o := h.Conch("exec", "seq 1 3000000; sleep 1000")
	if o.Status != 125 || !strings.Contains(o.Stderr, "conch: ") || !strings.HasPrefix(seq(3000000), o.Stdout) || o.Took > 20*time.Second {
		t.Errorf("output on a full disk: status %d, %d bytes, stderr %q, took %v", o.Status, len(o.Stdout), o.Stderr, o.Took)
	}
	o = h.Conch("exec", "echo hi")
	if o.Status != 125 && o.Stdout != "hi\n" || o.Status == 125 && !strings.Contains(o.Stderr, "space") {
		t.Errorf("a command on a full disk: %v", o)
	}
	// A new session there.
	o = h.Conch("exec", "-s", "other", "echo hi")
	if o.Status != 125 && o.Stdout != "hi\n" || o.Status == 125 && !strings.Contains(o.Stderr, "space") {
		t.Errorf("a session on a full disk: %v", o)
	}
	if o := h.Conch("output", string(first)); o.Status != 0 {
		t.Errorf("what was kept: %v", o)
	}
	// Space again.
	if err := syscall.Mount("tmpfs", h.Path, "tmpfs", syscall.MS_REMOUNT, "size=64m,mode=700"); err != nil {
		t.Fatal(err)
	}
	if r := h.Exec("main", "echo $KEEP; f"); r.Stdout != "kept\nF\n" || Code(r.ExitCode) != "0" {
		t.Errorf("with space again: %+v", r)
	}
	if got := h.OK("exec", "seq 1 100000"); got != seq(100000) {
		t.Errorf("with space again: %d bytes", len(got))
	}
}

// Mail on a disk that fills up: who sends is told, what was accepted stays, and
// with space again all goes on.
func TestMailOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a small file system needs root to mount")
	}
	h := New(t)
	if err := os.Mkdir(h.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", h.Path, "tmpfs", 0, "size=8m,mode=700"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		h.Conch("down", "--all")
		Until(t, 10*time.Second, "the file system is unused", func() bool { return syscall.Unmount(h.Path, 0) == nil })
	})
	h.OK("exec", "-s", "box", "true")
	accepted, refused := 0, 0
	for range 30 {
		o := h.Feed(strings.NewReader(strings.Repeat("x", 400_000)), "send", "box", "-")
		switch {
		case o.Status == 0:
			accepted++
		case o.Status == 125 && strings.Contains(o.Stderr, "space"):
			refused++
		default:
			t.Errorf("send on a full disk: %v", o)
		}
	}
	if accepted == 0 || refused == 0 {
		t.Fatalf("%d accepted, %d refused", accepted, refused)
	}
	h.Want("box", "echo shells go on", "shells go on\n")
	if err := syscall.Mount("tmpfs", h.Path, "tmpfs", syscall.MS_REMOUNT, "size=64m,mode=700"); err != nil {
		t.Fatal(err)
	}
	h.OK("send", "box", "last", "--id", "last")
	n := 0
	for {
		var list []conch.InboxEntry
		h.JSON(&list, "inbox", "-s", "box", "--json")
		if len(list) == 0 {
			break
		}
		n += len(list)
	}
	if n != accepted+1 {
		t.Errorf("%d messages, of %d accepted", n, accepted+1)
	}
	if o := h.Conch("doctor"); !strings.Contains(o.Stdout, "conch.db is whole") {
		t.Error(o)
	}
}
