package conchtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// configure writes the home's configuration.
func configure(t *testing.T, h *Home, text string) {
	t.Helper()
	if err := os.MkdirAll(h.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.Path, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// atLimit runs conch, which must fail as conch and say all of want.
func atLimit(t *testing.T, h *Home, want []string, args ...string) {
	t.Helper()
	o := h.Conch(args...)
	if o.Status != 125 {
		t.Errorf("conch %q: %v; want 125", args, o)
	}
	for _, w := range want {
		if !strings.Contains(o.Stderr, w) {
			t.Errorf("conch %q says %q, want %q", args, o.Stderr, w)
		}
	}
}

// Each limit that is reached is an error that names it and says how to raise it.
func TestLimitsNameThemselves(t *testing.T) {
	h := New(t)
	configure(t, h, "queue_limit = 1\nresult_limit = \"2KiB\"\nsession_limit = 3\ncommand_rate = 40\n")
	h.Want("a", "echo 1", "1\n")

	r := h.Start("exec", "-s", "a", "echo on; read -t 60 < <(sleep 60)")
	r.Line("on")
	waiting := h.Start("exec", "-s", "a", "echo second")
	Until(t, 10*time.Second, "a command waits", func() bool { return h.Session("a").Queue == 1 })
	atLimit(t, h, []string{"1 commands waiting", "queue_limit", "CONCH_QUEUE_LIMIT"}, "exec", "-s", "a", "true")
	h.OK("interrupt", "-s", "a")
	r.End()
	if o := waiting.End(); o.Stdout != "second\n" {
		t.Errorf("what waited: %v", o)
	}

	atLimit(t, h, []string{"2048", "result_limit"}, "exec", "-s", "a", "--json", "--max-output", "4096", "true")
	if r := h.Exec("a", "head -c 100000 /dev/zero | tr '\\0' x"); int64(len(r.Stdout)) != 2048 || !r.Truncated {
		t.Errorf("%d bytes, truncated %v", len(r.Stdout), r.Truncated)
	}

	h.OK("new", "b", "--limit", "command_rate=2", "--limit", "queue_limit=0")
	h.OK("exec", "-s", "b", "true")
	said := ""
	for range 50 { // a second may end in between
		if o := h.Conch("exec", "-s", "b", "true"); o.Status == 125 {
			said = o.Stderr
			break
		}
	}
	if !strings.Contains(said, "2 commands within a second") || !strings.Contains(said, "command_rate") {
		t.Errorf("the rate: %q", said)
	}

	h.OK("new", "c")
	atLimit(t, h, []string{"3 sessions are open", "session_limit"}, "exec", "-s", "d", "true")
	h.OK("close", "c")
	h.Want("d", "echo there", "there\n")

	atLimit(t, h, []string{"no limit \"tap_limit\"", "did you mean tape_limit?"}, "new", "e", "--limit", "tap_limit=1")
	atLimit(t, h, []string{"session_limit", "all sessions together"}, "new", "e", "--limit", "session_limit=1")
	// No variable of these reaches the shell.
	if r := h.Exec("d", "env | grep -c 'CONCH_.*_LIMIT\\|CONCH_IDLE'"); r.Stdout != "0\n" {
		t.Errorf("the shell sees %s of them", r.Stdout)
	}
}

// How many commands run in all is limited by locks that go with their keepers.
func TestCommandLimit(t *testing.T) {
	h := New(t).With("CONCH_COMMAND_LIMIT=2")
	h.Want("a", "true", "")
	h.Want("b", "true", "")
	h.Want("c", "true", "")
	var busy []*Running
	for _, l := range []string{"a", "b"} {
		r := h.Start("exec", "-s", l, "echo on; sleep 60")
		r.Line("on")
		busy = append(busy, r)
	}
	atLimit(t, h, []string{"2 sessions are running", "command_limit", "not run"}, "exec", "-s", "c", "echo ran > ran")
	if _, err := os.Stat(filepath.Join(h.Work, "ran")); err == nil {
		t.Error("it ran all the same")
	}
	h.OK("interrupt", "-s", "a")
	busy[0].End()
	h.Want("c", "echo now", "now\n")
	// A second is refused again, and the death of a keeper gives its place back.
	r := h.Start("exec", "-s", "c", "echo on; sleep 60")
	r.Line("on")
	atLimit(t, h, []string{"command_limit"}, "exec", "-s", "a", "true")
	Kill(t, h.Session("b").KeeperPID)
	busy[1].End()
	h.Want("a", "echo again", "again\n")
	h.OK("interrupt", "-s", "c")
	r.End()
}

// A limit that this machine cannot keep is refused, not forgotten.
func TestLimitUnsupported(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("this machine has cgroups of version 2")
	}
	h := New(t)
	atLimit(t, h, []string{"limits on memory", "not available", "session_memory"}, "new", "m", "--limit", "session_memory=64MiB")
	if s := h.Session("m"); s.ID != "" {
		t.Errorf("the session was made: %+v", s)
	}
	h.Want("m", "echo without", "without\n")
}

// A broken configuration says where it is broken and locks nobody out.
func TestBadConfig(t *testing.T) {
	h := New(t)
	h.Want("a", "x=kept", "")
	configure(t, h, "# mine\nque_limit = 5\n")
	h.Want("a", "echo $x", "kept\n") // what runs is not affected
	h.OK("down")
	atLimit(t, h, []string{"config.toml, line 2", `"que_limit"`, "did you mean queue_limit?"}, "exec", "-s", "a", "true")
	if o := h.Conch("doctor"); o.Status != 1 || !strings.Contains(o.Stdout, "did you mean queue_limit?") {
		t.Errorf("doctor: %v", o)
	}
	if o := h.Conch("down"); o.Status != 0 {
		t.Errorf("down: %v", o)
	}
	if o := h.Conch("down", "--all"); o.Status != 0 {
		t.Errorf("down --all: %v", o)
	}
	Until(t, 10*time.Second, "all is gone", func() bool { return len(h.Processes()) == 0 })
	configure(t, h, "queue_limit = 5\n")
	h.Want("a", "echo [$x]", "[]\n") // it was closed
}

// An idle session lets its shell go and comes back with its state. One that
// has a process, or a state that would not all come back, keeps it.
func TestIdleRelease(t *testing.T) {
	h := New(t).With("CONCH_IDLE_RELEASE=400ms")
	h.Want("idle", "cd /usr; x=1; f() { echo f$x; }; alias g=f", "")
	keeper := h.Session("idle").KeeperPID // one that is about to go may still turn round
	h.OK("exec", "-s", "busy", "sleep 600 >/dev/null 2>&1 &")
	h.OK("exec", "-s", "held", "exec 7</dev/null")
	busy, held := h.Session("busy").KeeperPID, h.Session("held").KeeperPID
	Until(t, 20*time.Second, "the idle session lets go", func() bool {
		return h.Session("idle").KeeperPID == 0 && (keeper == 0 || !Alive(keeper))
	})
	s := h.Session("idle")
	if s.ShellPID != 0 || s.ID == "" {
		t.Errorf("%+v", s)
	}
	r := h.Exec("idle", "f; pwd; g")
	if r.Stdout != "f1\n/usr\nf1\n" || !r.Shell.Restarted || !strings.Contains(strings.Join(r.Shell.Restored, " "), "functions") {
		t.Errorf("%q %+v %s", r.Stdout, r.Shell, r.Stderr)
	}
	if len(r.Shell.Lost) != 0 {
		t.Errorf("lost %v", r.Shell.Lost)
	}
	if h.Session("busy").KeeperPID != busy || h.Session("held").KeeperPID != held || busy == 0 || held == 0 {
		t.Error("a session that was not idle was let go")
	}
	for _, e := range h.History("idle") {
		if e.Status != conch.StatusDone {
			t.Errorf("%+v", e)
		}
	}
}

// A command that comes at the very moment of letting go is not lost.
func TestIdleReleaseRace(t *testing.T) {
	h := New(t).With("CONCH_IDLE_RELEASE=30ms")
	n := 40
	if testing.Short() {
		n = 10
	}
	released := 0
	for i := range n {
		r := h.Exec("r", fmt.Sprintf("n=$((n+1)); echo $n"))
		if r.Stdout != fmt.Sprintf("%d\n", i+1) {
			t.Fatalf("%d: %q %q %+v", i, r.Stdout, r.Stderr, r.Shell)
		}
		if r.Shell.Restarted {
			released++
		}
		// Another moment each time, around the limit.
		time.Sleep(time.Duration(20+i) * time.Millisecond)
	}
	t.Logf("let go %d times in %d commands", released, n)
	if released == 0 {
		t.Error("it was never let go")
	}
}

// What closed sessions left goes when it is old, sessions that sleep for long
// are closed, and each of this can be switched off.
func TestPolicies(t *testing.T) {
	h := New(t)
	age := func(label string, days int) {
		id := h.Session(label).ID
		h.OK("close", label)
		path := filepath.Join(h.Path, "sessions", id, "spec.json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var spec map[string]any
		if err := json.Unmarshal(b, &spec); err != nil {
			t.Fatal(err)
		}
		spec["closed_at"] = time.Now().Add(-time.Duration(days) * 24 * time.Hour)
		b, _ = json.Marshal(spec)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for label, days := range map[string]int{"old": 40, "young": 3} {
		h.Want(label, "echo "+label, label+"\n")
		age(label, days)
	}
	h.OK("down")
	h.With("CONCH_PRUNE_AFTER=off").OK("up")
	h.OK("history", "-s", "old")
	h.OK("down")
	h.OK("up")
	Until(t, 10*time.Second, "the old one is gone", func() bool { return h.Conch("history", "-s", "old").Status == 125 })
	h.OK("history", "-s", "young")
	h.OK("down")
	h.With("CONCH_PRUNE_SIZE=1").OK("up")
	Until(t, 10*time.Second, "the large one is gone", func() bool { return h.Conch("history", "-s", "young").Status == 125 })
	h.OK("down")

	asleep := h.With("CONCH_IDLE_RELEASE=10ms", "CONCH_IDLE_CLOSE=10ms")
	asleep.Want("s", "x=1", "")
	Until(t, 10*time.Second, "it sleeps", func() bool { return h.Session("s").KeeperPID == 0 })
	h.OK("down")
	h.Want("s", "echo $x", "1\n") // the default leaves it open
	h.OK("down")
	keeper := keeperOf(t, h, "s")
	Kill(t, keeper)
	Until(t, 10*time.Second, "its keeper is dead", func() bool { return !Alive(keeper) })
	asleep.OK("up")
	Until(t, 10*time.Second, "it is closed", func() bool { return h.Session("s").ID == "" })
	h.OK("history", "-s", "s")
	var p struct{ Removed int }
	h.JSON(&p, "prune", "--json", "--keep", "1")
	if p.Removed != 0 {
		t.Errorf("%d removed", p.Removed)
	}
	h.JSON(&p, "prune", "--json", "--older-than", "1h")
	if p.Removed != 0 {
		t.Errorf("%d removed", p.Removed)
	}
	h.JSON(&p, "prune", "--json", "--older-than", "0s")
	if p.Removed != 1 {
		t.Errorf("%d removed", p.Removed)
	}
	atLimit(t, h, []string{"not a duration"}, "prune", "--older-than", "soon")
}

// keeperOf is the keeper of a session, asked of its record: no daemon runs.
func keeperOf(t *testing.T, h *Home, label string) int {
	t.Helper()
	list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "keeper.json"))
	for _, path := range list {
		var k struct{ PID int }
		var s struct{ Label string }
		for p, v := range map[string]any{path: &k, filepath.Join(filepath.Dir(path), "spec.json"): &s} {
			b, err := os.ReadFile(p)
			if err == nil {
				err = json.Unmarshal(b, v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.Label == label {
			return k.PID
		}
	}
	t.Fatalf("session %s has no keeper", label)
	return 0
}
