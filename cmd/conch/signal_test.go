package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conchsh/conch"
)

// newHome is a home for one test, closed and searched for leftovers at its end.
// Its path is short: sockets live under it.
func newHome(t *testing.T) string {
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "h")
	t.Cleanup(func() {
		closeHome(t, home)
		os.RemoveAll(dir)
	})
	return home
}

// A running conch of a test, its stdout read line by line.
type running struct {
	*exec.Cmd
	t      *testing.T
	pipe   io.Closer
	out    *bufio.Reader
	stderr bytes.Buffer
}

func start(t *testing.T, home string, args ...string) *running {
	t.Helper()
	r := &running{Cmd: conchCommand(home, args...), t: t}
	r.Stderr = &r.stderr
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.pipe, r.out = out, bufio.NewReader(out)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// line waits for one line of stdout.
func (r *running) line(want string) {
	r.t.Helper()
	got, err := r.out.ReadString('\n')
	if got != want+"\n" {
		r.t.Fatalf("read %q (%v), want %q; stderr: %s", got, err, want, r.stderr.String())
	}
}

// end waits for the process and gives the rest of its stdout and its state.
func (r *running) end() (string, *os.ProcessState) {
	r.t.Helper()
	rest, _ := io.ReadAll(r.out)
	var exit *exec.ExitError
	if err := r.Wait(); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return string(rest), r.ProcessState
}

// ask runs conch to its end and gives its stdout.
func ask(t *testing.T, home string, args ...string) string {
	t.Helper()
	out, err := conchCommand(home, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("conch %q: %v: %s", args, err, exit.Stderr)
	}
	return string(out)
}

func lastCommand(t *testing.T, home string) conch.HistoryEntry {
	t.Helper()
	var list []conch.HistoryEntry
	if err := json.Unmarshal([]byte(ask(t, home, "history", "--json", "-n", "1")), &list); err != nil || len(list) != 1 {
		t.Fatalf("history: %v, %d entries", err, len(list))
	}
	return list[0]
}

func TestCtrlCInterrupts(t *testing.T) {
	home := newHome(t)
	ask(t, home, "exec", "v=kept")
	for _, flag := range []string{"", "--json", "--jsonl"} {
		args := []string{"exec", "echo begun; sleep 9311; echo AFTER"}
		if flag != "" {
			args = append(args, flag)
		}
		before := lastCommand(t, home).CommandID
		r := start(t, home, args...)
		switch flag {
		case "":
			r.line("begun")
		default:
			eventually(t, "it runs", func() bool {
				h := lastCommand(t, home)
				return h.CommandID != before && h.StdoutBytes == 6
			})
		}
		r.Process.Signal(os.Interrupt)
		rest, state := r.end()
		if state.ExitCode() != statusInterrupted || strings.Contains(rest, "AFTER") {
			t.Errorf("%s: %v, stdout %q, stderr %q", flag, state, rest, r.stderr.String())
		}
		if flag == "--json" {
			var res conch.Result
			if err := json.Unmarshal([]byte(rest), &res); err != nil || !res.Interrupted || res.Stdout != "begun\n" {
				t.Errorf("%v: %s", err, rest)
			}
		}
	}
	if got := ask(t, home, "exec", "echo $v"); got != "kept\n" {
		t.Errorf("state: %q", got)
	}
}

func TestSecondCtrlCDetaches(t *testing.T) {
	home := newHome(t)
	// It takes no notice of INT, so the ladder has 2 s to go when the second comes.
	r := start(t, home, "exec", "bash -c 'trap \"echo no\" INT; echo begun; while :; do sleep 0.1; done'")
	r.line("begun")
	r.Process.Signal(os.Interrupt)
	r.line("no")
	r.Process.Signal(os.Interrupt)
	_, state := r.end()
	id := lastCommand(t, home).CommandID
	if state.ExitCode() != statusInterrupted || !strings.Contains(r.stderr.String(), string(id)) {
		t.Errorf("%v, stderr %q", state, r.stderr.String())
	}
	eventually(t, "the first Ctrl-C has ended it", func() bool { return lastCommand(t, home).Status == conch.StatusDone })
}

func TestTermAndHangupDetach(t *testing.T) {
	// Under nohup what we start would ignore HUP too; what is caught it has at its default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		home := newHome(t)
		dir := filepath.Dir(home)
		fifo := filepath.Join(dir, "go")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, home, "exec", "echo begun; read x < "+fifo+"; echo went on; (exit 5)")
		r.line("begun")
		r.Process.Signal(sig)
		if _, state := r.end(); state.Success() {
			t.Errorf("%v: %v", sig, state)
		}
		if h := lastCommand(t, home); h.Status != conch.StatusRunning {
			t.Errorf("%v: %s", sig, h.Status)
		}
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is done", func() bool { return lastCommand(t, home).Status == conch.StatusDone })
		h := lastCommand(t, home)
		if h.ExitCode == nil || *h.ExitCode != 5 {
			t.Errorf("%v: %+v", sig, h)
		}
		if got := ask(t, home, "output", string(h.CommandID)); got != "begun\nwent on\n" {
			t.Errorf("%v: output %q", sig, got)
		}
	}
}

func TestClosedStdoutDetachesQuietly(t *testing.T) {
	home := newHome(t)
	ask(t, home, "exec", "true")
	r := start(t, home, "exec", "echo begun; while :; do echo more; sleep 0.01; done")
	r.line("begun")
	r.pipe.Close()
	r.Wait()
	ws := r.ProcessState.Sys().(syscall.WaitStatus)
	if !(ws.Signaled() && ws.Signal() == syscall.SIGPIPE) && ws.ExitStatus() != statusPipe {
		t.Errorf("%v", r.ProcessState)
	}
	if r.stderr.Len() > 0 {
		t.Errorf("stderr %q", r.stderr.String())
	}
	if h := lastCommand(t, home); h.Status != conch.StatusRunning {
		t.Errorf("status %s", h.Status)
	}
	ask(t, home, "interrupt")
}

func TestStdinIsLive(t *testing.T) {
	home := newHome(t)
	cmd := conchCommand(home, "exec", "-i", "while read l; do echo \"got $l\"; done; echo end")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for _, w := range []string{"a", "b"} {
		io.WriteString(in, w+"\n")
		if got, err := lines.ReadString('\n'); got != "got "+w+"\n" {
			t.Fatalf("%q %v", got, err)
		}
	}
	in.Close()
	if got, _ := lines.ReadString('\n'); got != "end\n" {
		t.Errorf("%q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
