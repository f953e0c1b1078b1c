package proc

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ladder has the steps of an interrupt, with waits for tests.
var ladder = []Step{
	{syscall.SIGINT, 300 * time.Millisecond},
	{syscall.SIGTERM, 300 * time.Millisecond},
	{syscall.SIGKILL, 10 * time.Second},
}

// patient is for ends that must come from the first signal.
var patient = []Step{
	{syscall.SIGINT, 10 * time.Second},
	{syscall.SIGTERM, 10 * time.Second},
	{syscall.SIGKILL, 10 * time.Second},
}

// catcher catches INT and TERM and exits by itself, with 0.
const catcher = `perl -e '$|=1; $SIG{INT}=$SIG{TERM}=sub{exit 0}; print "ready\n"; sleep 100 while 1'`

// plain dies of what it gets.
const plain = `sh -c 'echo ready; exec sleep 100'`

// The part of a command that had not run yet never runs, whoever the parent is and however
// its child takes the signal.
func TestEndRunsNoRest(t *testing.T) {
	deaf := `sh -c 'trap "" INT; echo ready; exec sleep 100'`
	deafer := `sh -c 'trap "" INT TERM; echo ready; exec sleep 100'`
	for _, c := range []struct {
		name, script, signal string
	}{
		{"plain", plain + `; echo AFTER`, "SIGINT"},
		{"catches", catcher + `; echo AFTER`, "SIGINT"},
		{"ignores INT", deaf + `; echo AFTER`, "SIGTERM"},
		{"ignores INT and TERM", deafer + `; echo AFTER`, "SIGKILL"},
		{"subshell", `(` + catcher + `; echo AFTER); echo AFTER`, "SIGINT"},
		{"or", catcher + ` && echo AFTER || echo AFTER`, "SIGINT"},
		{"loop", `while :; do ` + plain + `; echo AFTER; done`, "SIGINT"},
		{"substitution", `x=$(` + strings.ReplaceAll(catcher, `print "ready\n"`, `open(F, ">&=", 3); syswrite F, "ready\n"`) + `); echo AFTER`, "SIGINT"},
		{"pipeline", catcher + ` | cat; echo AFTER`, "SIGINT"},
		{"function", `f() { ` + catcher + `; echo AFTER; }; f; echo AFTER`, "SIGINT"},
		{"background and wait", catcher + ` & wait; echo AFTER`, "SIGINT"},
		{"nested", `bash -c '` + strings.ReplaceAll(plain, `'`, `"`) + `; echo AFTER'; echo AFTER`, "SIGINT"},
		{"dash", `dash -c '` + strings.ReplaceAll(plain, `'`, `"`) + `; echo AFTER'; echo AFTER`, "SIGINT"},
		{"perl system", `perl -e 'system(q{sh -c "echo ready; exec sleep 100"}); system("echo AFTER")'; echo AFTER`, "SIGINT"},
		{"python system", `python3 -c 'import os; os.system("echo ready; sleep 100; echo AFTER"); os.system("echo AFTER")'; echo AFTER`, "SIGINT"},
		{"interactive", `bash --norc -i -c '` + strings.ReplaceAll(plain, `'`, `"`) + `; echo AFTER' 2>/dev/null; echo AFTER`, "SIGINT"},
		{"job control", `set -m; ` + plain + `; echo AFTER`, "SIGINT"},
		{"deaf parent", `sh -c 'trap "" INT; sh -c "trap - INT; echo ready; exec sleep 100"; echo AFTER'; echo AFTER`, "SIGTERM"},
		{"deaf parents", `trap "" INT TERM; perl -e '$SIG{INT}=$SIG{TERM}="DEFAULT"; $|=1; print "ready\n"; sleep 100'; echo AFTER`, "SIGKILL"},
		{"exits on EXIT trap", `trap 'echo CLEAN' EXIT; ` + catcher + `; echo AFTER`, "SIGINT"},
		{"INT trap of its own", `trap 'echo CLEAN; exit 3' INT; ` + plain + `; echo AFTER`, "SIGINT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, 0, "bash", "-c", "exec 3>&1; "+c.script)
			p.line(t)
			r := End(t.Context(), all, ladder)
			rest, err := io.ReadAll(p.out)
			if err != nil || strings.Contains(string(rest), "AFTER") {
				t.Errorf("the rest ran: %q %v", rest, err)
			}
			if strings.Contains(c.script, "CLEAN") && string(rest) != "CLEAN\n" {
				t.Errorf("the trap did not run: %q", rest)
			}
			if !r.Verified || r.Signal != c.signal || r.Processes < 2 {
				t.Errorf("%+v, want %s", r, c.signal)
			}
			if left := all(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// The signal often comes here while the shell's child is not yet the program it will be.
func TestEndBetweenForkAndExec(t *testing.T) {
	for range 40 {
		p := bash(t, `bash -c 'echo ready; sleep 100; echo AFTER'; echo AFTER`)
		p.line(t)
		if r := End(t.Context(), all, patient); !r.Verified || r.Signal != "SIGINT" {
			t.Fatalf("%+v", r)
		}
		if rest, _ := io.ReadAll(p.out); len(rest) > 0 {
			t.Fatalf("%q", rest)
		}
	}
}

// One that was stopped before must be continued, or INT and TERM never arrive.
func TestEndOfStopped(t *testing.T) {
	p := bash(t, `trap 'echo caught; exit' INT; kill -STOP $$; echo AFTER`)
	until(t, "stopped", func() bool { s, _ := State(p.PID); return s == 'T' })
	r := End(t.Context(), all, patient)
	if want := (Report{"SIGINT", 1, true}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if out, _ := io.ReadAll(p.out); string(out) != "caught\n" {
		t.Errorf("%q", out)
	}
}

// A stopped child whose parent is not: the parent must not go on when the child dies.
func TestEndOfStoppedChild(t *testing.T) {
	p := bash(t, `sh -c 'echo $$; kill -STOP $$'; echo AFTER`)
	kid := p.pid(t)
	until(t, "stopped", func() bool { s, _ := State(kid.PID); return s == 'T' })
	if r := End(t.Context(), all, patient); !r.Verified || r.Signal != "SIGINT" {
		t.Errorf("%+v", r)
	}
	if out, _ := io.ReadAll(p.out); len(out) > 0 {
		t.Errorf("%q", out)
	}
}

func TestEndStorm(t *testing.T) {
	// The storms have an end, for the sake of the machine, which is not reached. Short waits: what is let go to act on a signal goes on breeding.
	ladder := []Step{{syscall.SIGINT, 20 * time.Millisecond}, {syscall.SIGTERM, 20 * time.Millisecond}, {syscall.SIGKILL, 10 * time.Second}}
	for _, c := range []struct{ name, script string }{
		{"breeder", `echo go; while ((i++ < 300)); do sleep 100 & done; wait`},
		{"breeder that traps", `trap : INT TERM; echo go; while ((i++ < 300)); do (trap : INT TERM; sleep 100; sleep 100) & done; wait`},
		{"fork and leave", `f() { f & }; echo go; f`},
		{"fork, leave, setsid", `echo go; perl -MPOSIX -e 'while(1){ setsid(); fork and POSIX::_exit(0) }'`},
		{"vfork", `echo go; python3 -c '
import subprocess
for i in range(300): subprocess.Popen(["sleep", "100"])'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := MakeMark(0x57000000+uint32(os.Getpid()), 1)
			gone := reaper.count()
			p := start(t, m, "bash", "-c", c.script)
			p.line(t)
			// Either many at once, or many that have come and gone.
			until(t, "the storm is on", func() bool { return len(all()) > 20 || reaper.count() > gone+20 })
			begin := time.Now()
			r := End(t.Context(), func() []ID { return Scan(func(got Mark) bool { return got == m }) }, ladder)
			t.Logf("%+v in %v", r, time.Since(begin))
			if !r.Verified || len(all()) > 0 {
				t.Errorf("%+v; left %v", r, all())
			}
			if _, err := io.ReadAll(p.out); err != nil { // ends when nobody has the pipe any more
				t.Error(err)
			}
		})
	}
}

// Processes under another mark are older background jobs: they stay.
func TestEndLeavesOthers(t *testing.T) {
	session := 0x07e40000 + uint32(os.Getpid())
	old := start(t, MakeMark(session, 1), "sh", "-c", "echo ready; exec setsid sleep 100")
	old.line(t)
	cmd := start(t, MakeMark(session, 2), "bash", "-c", "sleep 100 & echo ready; wait")
	cmd.line(t)
	r := End(t.Context(), func() []ID {
		return Scan(func(m Mark) bool { return m == MakeMark(session, 2) })
	}, ladder)
	if !r.Verified || cmd.Alive() || !old.Alive() {
		t.Errorf("%+v; ended %v, other alive %v", r, !cmd.Alive(), old.Alive())
	}
}

func TestEndOfNothing(t *testing.T) {
	want := Report{Verified: true}
	if r := End(t.Context(), func() []ID { return nil }, ladder); r != want {
		t.Errorf("%+v", r)
	}
	if r := End(t.Context(), func() []ID { return []ID{Self()} }, ladder); r != want {
		t.Errorf("the caller ended itself: %+v", r)
	}
}

// Without KILL what refuses to go is reported, and not left stopped.
func TestEndUnverified(t *testing.T) {
	p := bash(t, `trap "" INT; sh -c 'echo ready; exec sleep 100'; :`)
	p.line(t)
	r := End(t.Context(), all, ladder[:1])
	if want := (Report{"SIGINT", 2, false}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	for _, id := range all() {
		until(t, "continued", func() bool { s, _ := State(id.PID); return s == 'S' })
	}
}

func TestEndIsCutShort(t *testing.T) {
	p := bash(t, `trap 'echo INT' INT; echo ready; while :; do read -r _; done`)
	p.line(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Report)
	go func() {
		done <- End(ctx, all, []Step{{syscall.SIGINT, time.Hour}, {syscall.SIGTERM, time.Hour}, {Signal: syscall.SIGKILL}})
	}()
	p.line(t) // it is in its first wait
	cancel()
	if r, want := <-done, (Report{"SIGKILL", 1, true}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestEndWithoutPidfd(t *testing.T) {
	defer func() { pidfdOpen = unix.PidfdOpen }()
	for _, errno := range []error{unix.ENOSYS, unix.EMFILE} {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			pidfdOpen = func(int, int) (int, error) { return -1, errno }
			p := bash(t, catcher+`; echo AFTER`)
			p.line(t)
			if r := End(t.Context(), all, patient); !r.Verified || r.Signal != "SIGINT" {
				t.Errorf("%+v", r)
			}
			if rest, _ := io.ReadAll(p.out); len(rest) > 0 {
				t.Errorf("%q", rest)
			}
		})
	}
}

func TestNoDescriptorIsLeft(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	p := bash(t, `trap "" INT; sleep 100 & `+catcher+` & wait`)
	p.line(t)
	before := open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r := End(ctx, all, ladder[:1]); r.Verified {
		t.Errorf("%+v", r)
	}
	Scan(func(Mark) bool { return true })
	if r := End(ctx, all, ladder); !r.Verified {
		t.Errorf("%+v", r)
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func BenchmarkMarkOf(b *testing.B) {
	p := start(b, MakeMark(1, 2), "sleep", "100")
	for b.Loop() {
		MarkOf(p.PID)
	}
}

// A shell, a subshell and its child.
func BenchmarkTree(b *testing.B) {
	p := bash(b, `(sleep 100; :) & sh -c 'echo ready'; wait`)
	p.line(b)
	root := p.PID
	until(b, "two", func() bool { return len(Tree(root)) == 2 })
	b.Run("2 below a shell", func(b *testing.B) {
		for b.Loop() {
			Tree(root)
		}
	})
	b.Run("3 below the caller", func(b *testing.B) {
		for b.Loop() {
			Tree(os.Getpid())
		}
	})
}

func BenchmarkChildWatch(b *testing.B) {
	p := start(b, 0, "sleep", "100")
	var w ChildWatch
	if err := w.Open(p.PID); err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for b.Loop() {
		w.Any()
	}
}

func BenchmarkScan(b *testing.B) {
	for b.Loop() {
		Scan(func(Mark) bool { return false })
	}
}

func BenchmarkEnd(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		p := bash(b, `sh -c 'echo ready; exec sleep 100'; :`)
		p.line(b)
		b.StartTimer()
		if r := End(b.Context(), all, patient); !r.Verified {
			b.Fatal(r)
		}
	}
}
