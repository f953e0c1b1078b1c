package conchtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
)

// A terminal with conch in it.
type terminal struct {
	t      testing.TB
	master *os.File
	wait   func() int

	mu     sync.Mutex
	screen strings.Builder
}

// onTerminal starts conch on a real pseudo-terminal, as a shell would: leader
// of a session, the terminal its controlling one.
func onTerminal(h *Home, args ...string) *terminal {
	h.T.Helper()
	t := h.T
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	// Not Fd, which would make it blocking and its Close wait for a reader.
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	cmd := h.Cmd(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	w := &terminal{t: t, master: master}
	read := make(chan struct{})
	go func() { // ends when the last process lets go of the terminal
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			w.mu.Lock()
			w.screen.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	w.wait = func() int {
		cmd.Wait()
		<-read
		cancel()
		master.Close()
		return status(cmd.ProcessState)
	}
	return w
}

func (w *terminal) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.screen.String()
}

func (w *terminal) shows(s string) {
	w.t.Helper()
	Until(w.t, Limit, fmt.Sprintf("the terminal shows %q", s), func() bool { return strings.Contains(w.text(), s) })
}

func (w *terminal) typeIn(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w.master, s); err != nil {
		w.t.Fatal(err)
	}
}

func TestCtrlCOnATerminal(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=kept", "")
	for _, flags := range [][]string{nil, {"-i"}, {"--json"}, {"--jsonl"}, {"--merge"}} {
		w := onTerminal(h, append([]string{"exec", "echo begun; sleep 1000; touch never"}, flags...)...)
		Until(t, Limit, "it runs", func() bool { l := h.Last("main"); return l.Status == conch.StatusRunning && l.StdoutBytes == 6 })
		w.typeIn("\x03")
		if got := w.wait(); got != 130 {
			t.Errorf("%v: status %d, screen %q", flags, got, w.text())
		}
		if l := h.Last("main"); !l.Interrupted || Code(l.ExitCode) != "130" {
			t.Errorf("%v: %+v", flags, l)
		}
	}
	if _, err := os.Stat(h.Work + "/never"); err == nil {
		t.Error("the rest of the command ran")
	}
	h.Want("main", "echo $V", "kept\n")
}

// Ctrl-\ and a hang-up are not the command's business.
func TestHangUpOnATerminal(t *testing.T) {
	t.Parallel()
	h := New(t)
	path, open := gate(h, "gate")
	w := onTerminal(h, "exec", "echo begun; read x < "+path+"; echo rest")
	w.shows("begun")
	w.master.Close() // the terminal goes: SIGHUP
	w.wait()
	if l := h.Last("main"); l.Status != conch.StatusRunning {
		t.Errorf("%+v", l)
	}
	open()
	Until(t, Limit, "it is done", func() bool { return h.Last("main").Status == conch.StatusDone })
	if got := h.OK("output", string(h.Last("main").CommandID)); got != "begun\nrest\n" {
		t.Errorf("%q", got)
	}
}

// Typed input, the end of it by Ctrl-D, and remarks that only people get.
func TestTypingOnATerminal(t *testing.T) {
	t.Parallel()
	h := New(t)
	w := onTerminal(h, "exec", "-i", "read a; echo \"<$a>\"; cat; exit 5")
	w.typeIn("typed\n")
	w.shows("<typed>")
	w.typeIn("more\n\x04")
	if got := w.wait(); got != 5 || strings.Count(w.text(), "more\r\n") != 2 {
		t.Errorf("status %d, %q", got, w.text())
	}
	w = onTerminal(h, "exec", "exit 3")
	if got := w.wait(); got != 3 || !strings.Contains(w.text(), "the shell was started again") {
		t.Errorf("status %d, %q", got, w.text())
	}
}

// hidden reports whether the terminal keeps to itself what is typed.
func (w *terminal) hidden() bool {
	raw, err := w.master.SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	var state *unix.Termios
	raw.Control(func(fd uintptr) { state, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	if err != nil {
		w.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO == 0
}

// answer types a passphrase once it is asked for and not shown.
func (w *terminal) answer(prompt, line string) {
	w.t.Helper()
	w.shows(prompt)
	Until(w.t, Limit, "the terminal hides what is typed", w.hidden)
	w.typeIn(line)
}

// A passphrase is typed twice and shown never; Ctrl-C leaves the terminal as it
// was.
func TestPassphraseOnATerminal(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("up")
	w := onTerminal(h, "agent", "new", "amy", "--passphrase")
	w.answer("passphrase: ", "open sesame\n")
	w.answer("again: ", "open sesame\n")
	if got := w.wait(); got != 0 || strings.Contains(w.text(), "sesame") {
		t.Errorf("status %d, %q", got, w.text())
	}
	w = onTerminal(h, "agent", "new", "bob", "--passphrase")
	w.answer("passphrase: ", "one\n")
	w.answer("again: ", "two\n")
	if got := w.wait(); got != 125 || !strings.Contains(w.text(), "differ") {
		t.Errorf("status %d, %q", got, w.text())
	}
	w = onTerminal(h, "agent", "unlock", "amy")
	w.answer("passphrase: ", "open sesame\n")
	if got := w.wait(); got != 0 {
		t.Errorf("status %d, %q", got, w.text())
	}
	w = onTerminal(h, "agent", "unlock", "amy")
	w.answer("passphrase: ", "half\x03")
	Until(t, Limit, "the terminal shows what is typed again", func() bool { return !w.hidden() })
	if got := w.wait(); got != 130 || strings.Contains(w.text(), "half") {
		t.Errorf("status %d, %q", got, w.text())
	}
	if o := h.Conch("whoami", "--agent", "bob"); o.Status != 125 {
		t.Errorf("%v", o)
	}
}

// A person is shown what would change in another program's file, and asked.
func TestInstallAsks(t *testing.T) {
	t.Parallel()
	h := New(t)
	h = h.With("PATH=" + h.Work) // where no program is found
	path := filepath.Join(filepath.Dir(h.Path), "home", ".claude.json")
	if o := h.Conch("mcp", "--install"); o.Status != 125 || !strings.Contains(o.Stderr, "none of claude, codex, gemini, cursor, vscode is found here") {
		t.Errorf("%v", o)
	}
	for answer, want := range map[string]bool{"\n": false, "n\n": false, "what\n": false, "\x04": false, "y\n": true} {
		w := onTerminal(h, "mcp", "--install", "claude")
		w.shows("Change 1 file? [y/N] ")
		if !strings.Contains(w.text(), `+      "command": "`+h.Exe+`"`) {
			t.Errorf("asked for what is not shown: %q", w.text())
		}
		w.typeIn(answer)
		got := w.wait()
		_, err := os.Stat(path)
		if got != 0 || (err == nil) != want || want == strings.Contains(w.text(), "nothing was changed") {
			t.Errorf("%q: status %d, %v, %q", answer, got, err, w.text())
		}
		os.Remove(path)
	}
}
