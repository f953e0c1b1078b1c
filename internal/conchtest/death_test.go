package conchtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// gate is a FIFO on which a command waits until the test lets it go on.
func gate(h *Home, name string) (path string, open func()) {
	h.T.Helper()
	path = filepath.Join(h.Work, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		h.T.Fatal(err)
	}
	return path, func() {
		h.T.Helper()
		if err := os.WriteFile(path, []byte("\n"), 0); err != nil {
			h.T.Fatal(err)
		}
	}
}

// The client's stream is not even cut when the daemon dies: the keeper has the
// connection.
func TestDaemonKilledInMidCommand(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=kept; f() { echo F; }", "")
	shell := h.Session("main").ShellPID
	for _, form := range []string{"", "--json", "--jsonl"} {
		path, open := gate(h, "gate"+form)
		args := []string{"exec", "echo begun; echo e1 >&2; read x < " + path + "; seq 1 50000; echo e2 >&2; (exit 6)"}
		if form != "" {
			args = append(args, form)
		}
		r := h.Start(args...)
		Until(t, Limit, "it runs", func() bool { return h.Last("main").StdoutBytes == 6 })
		daemon := h.Daemon()
		Kill(t, daemon)
		Until(t, Limit, "the daemon is gone", func() bool { return !Alive(daemon) })
		open()
		o := r.End()
		want := "begun\n" + seq(50000)
		switch form {
		case "":
			if o.Stdout != want || o.Stderr != "e1\ne2\n" {
				t.Errorf("%d bytes of %d, stderr %q", len(o.Stdout), len(want), o.Stderr)
			}
		case "--json":
			var res conch.Result
			if err := json.Unmarshal([]byte(o.Stdout), &res); err != nil || res.Stdout != want || res.Stderr != "e1\ne2\n" {
				t.Errorf("%v: %v", err, o)
			}
		case "--jsonl":
			if out, _, exit := events(t, o.Stdout); out != want || Code(exit.ExitCode) != "6" {
				t.Errorf("%d bytes of %d, %+v", len(out), len(want), exit)
			}
		}
		if o.Status != 6 {
			t.Errorf("%s: %v", form, o)
		}
		last := h.Last("main") // starts a new daemon
		if last.Status != conch.StatusDone || Code(last.ExitCode) != "6" || last.StdoutBytes != int64(len(want)) || last.StderrBytes != 6 {
			t.Errorf("%s: recorded %+v", form, last)
		}
		if got := h.OK("output", string(last.CommandID)); got != want {
			t.Errorf("%s: output has %d bytes of %d", form, len(got), len(want))
		}
		if now := h.Session("main").ShellPID; now != shell {
			t.Errorf("%s: shell %d, was %d", form, now, shell)
		}
		if h.Daemon() == daemon {
			t.Errorf("the daemon's pid is the dead one's")
		}
	}
	h.Want("main", "echo $V; f", "kept\nF\n")
}

// With nobody there a command goes on, and the one behind it in the queue too.
func TestDaemonAndClientsKilled(t *testing.T) {
	t.Parallel()
	h := New(t)
	path, open := gate(h, "gate")
	first := h.Start("exec", "echo begun; read x < "+path+"; seq 1 20000; exit 4")
	first.Line("begun")
	second := h.Start("exec", "echo second; (exit 5)")
	Until(t, Limit, "the second waits", func() bool { return h.Session("main").Queue == 1 })
	if l := h.Last("main"); l.Status != conch.StatusQueued || l.Position != 1 {
		t.Errorf("%+v", l)
	}
	Kill(t, h.Daemon())
	Kill(t, first.Process.Pid)
	first.End()
	Kill(t, second.Process.Pid)
	second.End()
	open()
	Until(t, Limit, "all is done", func() bool {
		list := h.History("main")
		return len(list) > 0 && list[0].Status == conch.StatusDone && (len(list) < 2 || list[1].Status == conch.StatusDone)
	})
	list := h.History("main")
	if Code(list[0].ExitCode) != "4" {
		t.Errorf("%+v", list[0])
	}
	if got := h.OK("output", string(list[0].CommandID)); got != "begun\n"+seq(20000) {
		t.Errorf("output: %d bytes", len(got))
	}
	if len(list) != 2 || Code(list[1].ExitCode) != "5" {
		t.Errorf("the queued command: %+v", list[1:])
	}
}

func TestClientKilled(t *testing.T) {
	t.Parallel()
	h := New(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP} {
		path, open := gate(h, fmt.Sprint("gate", int(sig)))
		r := h.Start("exec", "echo begun; echo e >&2; read x < "+path+"; seq 1 30000; (exit 7)")
		r.Line("begun")
		r.Process.Signal(sig)
		r.End()
		if l := h.Last("main"); l.Status != conch.StatusRunning {
			t.Errorf("%v: %+v", sig, l)
		}
		open()
		Until(t, Limit, "it is done", func() bool { return h.Last("main").Status == conch.StatusDone })
		l := h.Last("main")
		if Code(l.ExitCode) != "7" || h.OK("output", string(l.CommandID)) != "begun\n"+seq(30000) || h.OK("output", "--stderr", string(l.CommandID)) != "e\n" {
			t.Errorf("%v: %+v", sig, l)
		}
	}
}

func TestShellKilled(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=kept; export E=exported; a=(1 2); f() { echo F; }; alias ll='echo LL'; set -o pipefail; umask 027; cd /usr", "")
	check := func(when string, restarted bool) {
		t.Helper()
		r := h.Exec("main", `echo "$V $E ${a[1]} $(umask)"; f; ll; pwd; shopt -qo pipefail && echo pipefail`)
		if want := "kept exported 2 0027\nF\nLL\n/usr\npipefail\n"; r.Stdout != want {
			t.Errorf("%s: %q %q, want %q", when, r.Stdout, r.Stderr, want)
		}
		if r.Shell.Restarted != restarted {
			t.Errorf("%s: %+v", when, r.Shell)
		}
	}
	// While idle.
	Kill(t, h.Session("main").ShellPID)
	check("idle", true)
	// In mid-command: 137, the output so far, and what it changed is not kept.
	r := h.Start("exec", "--json", "V=changed; cd /; echo partial; sleep 1000")
	Until(t, Limit, "it runs", func() bool { return h.Last("main").StdoutBytes == 8 })
	Kill(t, h.Session("main").ShellPID)
	o := r.End()
	var res conch.Result
	if err := json.Unmarshal([]byte(o.Stdout), &res); err != nil {
		t.Fatalf("%v: %v", err, o)
	}
	if Code(res.ExitCode) != "137" || res.Signal == nil || *res.Signal != "SIGKILL" || res.Stdout != "partial\n" || !res.Shell.Restarted || o.Status != 137 {
		t.Errorf("%+v, status %d", res, o.Status)
	}
	for _, word := range []string{"cwd", "variables", "functions", "aliases", "options", "umask"} {
		if !slices.Contains(res.Shell.Restored, word) {
			t.Errorf("restored %v has no %s", res.Shell.Restored, word)
		}
	}
	check("mid-command", false)
	// Stopped: noticed within 5 s.
	start := time.Now()
	r = h.Start("exec", "--json", "echo a; kill -STOP $$; echo b")
	if o := r.End(); time.Since(start) > 5*time.Second || o.Status != 125 {
		t.Errorf("a stopped shell took %v: %v", time.Since(start), o)
	}
	check("stopped", false)
}

// seq is what seq 1 n prints.
func seq(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.String()
}

// A keeper that dies at any point of a command: what the record says is true,
// what it ran is gone within 10 s, the next command has the checkpoint's state.
func TestKeeperKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	points := []struct {
		name string
		// what may be on record of the command: exit codes, "null" for lost,
		// "none" for nothing
		record []string
		state  []string // what V may be afterwards
		output []string // what the record may hold
		flags  []string
	}{
		{"keeper.before-start", []string{"none"}, []string{"old"}, nil, nil},
		{"keeper.after-run", []string{"null"}, []string{"old"}, []string{"", "out\n"}, nil},
		{"keeper.after-end", []string{"null"}, []string{"old"}, []string{"out\n"}, nil},
		{"keeper.before-exit", []string{"null"}, []string{"old"}, []string{"out\n"}, nil},
		{"keeper.after-checkpoint", []string{"null"}, []string{"old"}, []string{"out\n"}, nil},
		{"keeper.after-exit", []string{"3"}, []string{"new"}, []string{"out\n"}, nil},
		{"keeper.ending", []string{"null"}, []string{"old"}, []string{"out\n"}, []string{"-t", "1"}},
	}
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			h := New(t)
			// A session with a state, by a daemon that is not armed.
			h.Want("main", "V=old; f() { echo F; }; export E=1", "")
			h.Want("main", "true", "") // waits for the checkpoint, which follows a result
			Kill(t, h.Session("main").KeeperPID)
			h.OK("down")
			armed := h.With("CONCH_FAULT=" + p.name)
			pids, after := filepath.Join(h.Work, "pids"), filepath.Join(h.Work, "after")
			text := fmt.Sprintf("setsid sleep 1000 >/dev/null 2>&1 & echo $! > %s; V=new; echo out; ", pids)
			if p.flags != nil {
				text += "sleep 1000; touch " + after
			} else {
				text += "(exit 3)"
			}
			o := armed.Conch(append([]string{"exec", text}, p.flags...)...)
			done := p.record[0] == "3"
			if done && (o.Status != 3 || o.Stdout != "out\n") || !done && (o.Status != 125 || strings.Count(o.Stderr, "\n") != 1 || !strings.HasPrefix(o.Stderr, "conch: ") || !strings.HasSuffix(o.Stderr, ")\n")) {
				t.Errorf("client: %v", o)
			}
			if !done && !slices.Contains(append(p.output, ""), o.Stdout) {
				t.Errorf("client: %v", o)
			}
			// Its processes are gone within 10 s of the keeper's death.
			if b, err := os.ReadFile(pids); err == nil {
				pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
				Until(t, 10*time.Second, "its process is gone", func() bool { return !Alive(pid) })
			} else if p.name != "keeper.before-start" && p.name != "keeper.after-run" {
				t.Error(err)
			}
			h.OK("down") // and the fault with it
			list := h.History("main")
			got := "none"
			if len(list) > 2 {
				l := list[2]
				got = Code(l.ExitCode)
				if (l.Status == conch.StatusLost) != (got == "null") || l.Signal != nil {
					t.Errorf("recorded %+v", l)
				}
				out := h.OK("output", string(l.CommandID))
				if !slices.Contains(p.output, out) || int64(len(out)) != l.StdoutBytes {
					t.Errorf("output %q, recorded %+v", out, l)
				}
			}
			if !slices.Contains(p.record, got) {
				t.Errorf("recorded %s, want one of %v: %+v", got, p.record, list)
			}
			r := h.Exec("main", "echo $V $E; f; pwd")
			ok := false
			for _, v := range p.state {
				ok = ok || r.Stdout == v+" 1\nF\n"+h.Work+"\n"
			}
			if !ok {
				t.Errorf("next: %q %q, want V one of %v", r.Stdout, r.Stderr, p.state)
			}
			if _, err := os.Stat(after); err == nil {
				t.Errorf("the rest of the command ran")
			}
		})
	}
}

func TestKeeperKilledInMidCommand(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=old; setsid sleep 1000 >/dev/null 2>&1 & OLD=$!", "")
	pids := filepath.Join(h.Work, "pids")
	text := "V=new; (setsid sleep 1000 & echo $!; exec setsid env -i sleep 1000 & echo $!) >" + pids + "; seq 1 1000; echo err >&2; trap '' TERM INT HUP; sleep 1000"
	r := h.Start("exec", "--jsonl", text)
	Until(t, Limit, "it runs", func() bool { l := h.Last("main"); return l.StdoutBytes == int64(len(seq(1000))) && l.StderrBytes == 4 })
	queued := h.Start("exec", "echo queued")
	Until(t, Limit, "another waits", func() bool { return h.Session("main").Queue == 1 })
	Kill(t, h.Session("main").KeeperPID)
	died := time.Now()
	o := r.End()
	out, errs, exit := events(t, o.Stdout)
	if out != seq(1000) || errs != "err\n" || exit.ExitCode != nil || o.Status != 125 {
		t.Errorf("client: %d bytes, %q, %+v, status %d", len(out), errs, exit, o.Status)
	}
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strings.Fields(string(b)) {
		pid, _ := strconv.Atoi(s)
		Until(t, time.Until(died.Add(10*time.Second)), "process "+s+" is gone", func() bool { return !Alive(pid) })
	}
	if o := queued.End(); o.Status != 125 && o.Stdout != "queued\n" {
		t.Errorf("the queued one: %v", o)
	}
	var l conch.HistoryEntry
	for _, e := range h.History("main") {
		if e.Command == text {
			l = e
		}
	}
	if l.Status != conch.StatusLost || l.ExitCode != nil || l.StdoutBytes != int64(len(seq(1000))) {
		t.Errorf("recorded %+v", l)
	}
	if h.OK("output", string(l.CommandID)) != seq(1000) || h.OK("output", "--stderr", string(l.CommandID)) != "err\n" {
		t.Error("the output so far is not kept")
	}
	res := h.Exec("main", "echo $V")
	if res.Stdout != "old\n" {
		t.Errorf("state %q %+v", res.Stdout, res.Shell)
	}
}

// The daemon's own points: whatever it died in, the next one goes on from there.
func TestDaemonKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"daemon.ready", "create.written", "start.spawned", "sweep.ended", "sweep.marked", "close.ended", "close.recorded", "prune.renamed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			h := New(t)
			armed := h.With("CONCH_FAULT=" + point)
			kind, _, _ := strings.Cut(point, ".")
			var o Out
			switch kind {
			case "daemon", "create", "start":
				o = armed.Conch("exec", "echo hi")
			case "sweep":
				h.Want("main", "V=1; setsid sleep 1000 >/dev/null 2>&1 & echo x > /dev/null", "")
				h.Want("main", "true", "") // waits for the checkpoint
				keeper := h.Session("main").KeeperPID
				Kill(t, h.Daemon())
				Until(t, Limit, "the daemon is gone", func() bool { return h.Daemon() == 0 })
				Kill(t, keeper)
				o = armed.Conch("exec", "echo hi")
			case "close":
				h.Want("main", "setsid sleep 1000 >/dev/null 2>&1 & echo x > /dev/null", "")
				h.OK("down")
				o = armed.Conch("close", "main")
			case "prune":
				h.Want("main", "V=1", "")
				h.OK("close", "main")
				h.OK("down")
				o = armed.Conch("prune")
			}
			// Whoever asked is told, or was served by the next daemon.
			if o.Status != 0 && (o.Status != 125 || !strings.HasPrefix(o.Stderr, "conch: ")) {
				t.Errorf("%v", o)
			}
			if r := h.Exec("main", "echo $V; echo works"); !strings.HasSuffix(r.Stdout, "works\n") || kind == "sweep" && r.Stdout != "1\nworks\n" {
				t.Errorf("next: %+v", r)
			}
			for _, p := range h.Processes() {
				if kind != "start" && strings.HasPrefix(p.Args, "sleep 1000") {
					t.Errorf("still there: %+v", p)
				}
			}
		})
	}
}
