package conchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What reviewers broke once.

// A result that was given out is in the state, whatever dies right after.
func TestStateIsSavedBeforeTheResult(t *testing.T) {
	t.Parallel()
	h := New(t)
	for i := range 15 {
		h.Want("s", fmt.Sprintf("x=%d", i), "")
		Kill(t, h.Session("s").ShellPID)
		h.Want("s", "echo $x", fmt.Sprintln(i))
		keeper := h.Session("s").KeeperPID
		h.Want("s", fmt.Sprintf("x=k%d", i), "")
		Kill(t, keeper)
		h.Want("s", "echo $x", fmt.Sprintf("k%d\n", i))
	}
}

func TestReview(t *testing.T) {
	t.Parallel()
	h := New(t)
	// An EXIT trap may take longer than the watchdog's patience.
	if o := h.Conch("exec", "-s", "trap", `trap "sleep 3; echo cleaned" EXIT; echo start; exit 4`); o.Stdout != "start\ncleaned\n" || o.Status != 4 {
		t.Errorf("exit trap: %v", o)
	}
	// A directory that is gone is not called restored.
	gone := filepath.Join(h.Work, "gone")
	h.Want("cwd", "mkdir "+gone+"; cd "+gone, "")
	h.Want("cwd", "rmdir "+gone, "")
	r := h.Exec("cwd", "exit 1")
	if strings.Contains(fmt.Sprint(r.Shell.Restored), "cwd") || !strings.Contains(fmt.Sprint(r.Shell.Lost), "cwd") || r.Cwd != h.Work {
		t.Errorf("gone directory: %+v, cwd %s", r.Shell, r.Cwd)
	}
	h.Want("cwd", "pwd", h.Work+"\n")
	// Text that begins with a dash is text.
	if o := h.Conch("exec", "--", "-x; echo hi"); o.Stdout != "hi\n" || !strings.Contains(o.Stderr, "-x: command not found") {
		t.Errorf("dash: %v", o)
	}
	// A command cannot report for the shell.
	if o := h.Conch("exec", `printf 'e0 /forged\0' > "${BASH_SOURCE%d}s"; echo late; (exit 9)`); o.Stdout != "late\n" || o.Status != 9 {
		t.Errorf("forged: %v", o)
	}
	// An empty label is not repaired.
	for _, args := range [][]string{{"exec", "-s", "", "true"}, {"history", "-s", ""}, {"interrupt", "-s", ""}, {"exec", "--agent", "", "true"}} {
		if o := h.Conch(args...); o.Status != 125 {
			t.Errorf("%q: %v", args, o)
		}
	}
	// --cwd does not set what was not set.
	h.Want("old", "unset OLDPWD", "")
	h.Exec("old", "true", "--cwd", "/usr")
	if o := h.Conch("exec", "-s", "old", "cd -"); o.Status != 1 || !strings.Contains(o.Stderr, "OLDPWD not set") {
		t.Errorf("OLDPWD: %v", o)
	}
	// Run files that somebody took away.
	h.Want("shm", "V=5", "")
	fifos, _ := filepath.Glob("/dev/shm/conch-*/" + h.Session("shm").ID + "/*")
	if len(fifos) == 0 {
		t.Error("no run files found")
	}
	for _, f := range fifos {
		os.Remove(f)
	}
	h.Want("shm", "echo $V", "5\n")
}

// A client that leaves takes its -i with it: the session is not held up.
func TestStdinEndsWithItsClient(t *testing.T) {
	t.Parallel()
	h := New(t)
	r := h.Start("exec", "-s", "in", "-i", "echo begun; cat; echo eof")
	r.Line("begun")
	Kill(t, r.Process.Pid)
	r.End()
	h.Want("in", "echo free", "free\n")
	l := h.History("in")[0]
	Until(t, 10*time.Second, "it ends", func() bool { return h.History("in")[0].ExitCode != nil })
	if out := h.OK("output", string(l.CommandID)); out != "begun\neof\n" {
		t.Errorf("output %q", out)
	}
	// Killed while its first bytes are on their way to it.
	for range 50 {
		r := h.Start("exec", "-s", "in", "-i", "echo begun; cat")
		r.Line("begun")
		Kill(t, r.Process.Pid)
		r.End()
	}
	// Killed while it waits for its turn.
	path, open := gate(h, "gate")
	first := h.Start("exec", "-s", "in", "echo begun; read x < "+path)
	first.Line("begun")
	second := h.Start("exec", "-s", "in", "-i", "cat; echo second")
	Until(t, Limit, "it waits", func() bool { return h.Session("in").Queue == 1 })
	Kill(t, second.Process.Pid)
	second.End()
	open()
	first.End()
	h.Want("in", "echo free", "free\n")
	if got := h.History("in")[53]; got.Command != "cat; echo second" || got.StdoutBytes != 7 || Code(got.ExitCode) != "0" {
		t.Errorf("%+v", got)
	}
}

// A home that is deleted takes its daemon and its sessions with it.
func TestDeletedHome(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "sleep 1000 & true", "")
	s := h.Session("main")
	daemon := h.Daemon()
	if err := os.RemoveAll(h.Path); err != nil {
		t.Fatal(err)
	}
	Until(t, 30*time.Second, "all have left", func() bool { return !Alive(daemon) && !Alive(s.KeeperPID) && !Alive(s.ShellPID) })
}

// Ctrl-C before the command was taken means that it is not run.
func TestInterruptBeforeTheStart(t *testing.T) {
	t.Parallel()
	h := New(t)
	slow := filepath.Join(h.Work, "slow")
	if err := os.Mkdir(slow, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slow, ".bash_profile"), []byte("sleep 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h = h.With("HOME="+slow, "SHELL=/bin/bash")
	file := filepath.Join(h.Work, "ran")
	r := h.Start("exec", "touch "+file+"; sleep 1000")
	Until(t, Limit, "the daemon runs", func() bool { return h.Daemon() != 0 })
	r.Process.Signal(os.Interrupt)
	if o := r.End(); o.Status != 130 {
		t.Errorf("%v", o)
	}
	h.Want("main", "echo free", "free\n")
	if _, err := os.Stat(file); err == nil || len(h.History("main")) != 1 {
		t.Errorf("it ran: %+v", h.History("main"))
	}
}

// A shell that dies between a command's end and its checkpoint: the result of that very
// command says so, or the state is there.
func TestShellDiesAfterTheEnd(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("s", "x=0", "")
	kept, told := 0, 0
	last := "0"
	for i := 1; i <= 60; i++ {
		r := h.Exec("s", fmt.Sprintf("x=%d; { read -t 0.000%d <> <(:); kill -9 $$; } 2>/dev/null &", i, i%10))
		next := h.Exec("s", "echo $x")
		if next.Signal != nil { // on a busy machine it is this one that is hit
			next = h.Exec("s", "echo $x")
		}
		switch {
		case next.Stdout == fmt.Sprintln(i):
			kept++
			last = fmt.Sprint(i)
		case next.Stdout == last+"\n" && r.Shell.Restarted:
			told++
		default:
			t.Errorf("%d: exit %s %+v, then %q %+v", i, Code(r.ExitCode), r.Shell, next.Stdout, next.Shell)
		}
	}
	t.Logf("%d kept, %d told", kept, told)
}

// What a second stranger found in what is around the shell.
func TestReviewOperations(t *testing.T) {
	t.Parallel()
	h := New(t).With("CONCH_TAPE_LIMIT=1000000")
	// A follower that the tape has left behind is told, and not given part of it.
	for _, form := range [][]string{{}, {"--jsonl"}} {
		o := h.Conch(append([]string{"exec", "-s", "small", "head -c 20000000 /dev/zero"}, form...)...)
		if o.Status == 0 && len(o.Stdout) < 20_000_000 || o.Status != 0 && !strings.Contains(o.Stderr, "CONCH_TAPE_LIMIT") {
			t.Errorf("%q: status %d, %d bytes, stderr %q", form, o.Status, len(o.Stdout), o.Stderr)
		}
	}
	if o := h.Conch("output", string(h.Last("small").CommandID)); o.Status != 125 || !strings.Contains(o.Stderr, "CONCH_TAPE_LIMIT") {
		t.Errorf("%v", o)
	}
	// A state that cannot be read is told of.
	h.Want("state", "V=1", "")
	s := h.Session("state")
	Kill(t, s.KeeperPID)
	for _, name := range []string{"checkpoint", "checkpoint.1"} {
		os.WriteFile(filepath.Join(h.Path, "sessions", s.ID, name), []byte("{"), 0o600)
	}
	Until(t, Limit, "the keeper is gone", func() bool { return h.Session("state").KeeperPID != s.KeeperPID })
	if r := h.Exec("state", "echo ${V-unset}"); r.Stdout != "unset\n" || !r.Shell.Restarted || !slices.Contains(r.Shell.Lost, "variables") {
		t.Errorf("%+v", r)
	}
	// No timer overflows.
	if o := h.Conch("exec", "-t", "100000h", "echo ran"); o.Status != 125 || !strings.Contains(o.Stderr, "at most") {
		t.Errorf("%v", o)
	}
	// A daemon that nobody can find makes room for one that can be found.
	daemon := h.Daemon()
	sockets, _ := filepath.Glob(filepath.Join(h.Path, "run", "d.sock"))
	if len(sockets) == 0 {
		t.Skip("its socket is elsewhere")
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	Until(t, Limit, "it has left", func() bool { return !Alive(daemon) })
	h.Want("state", "echo there", "there\n")
}
