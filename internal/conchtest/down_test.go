package conchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conchsh/conch/internal/sock"
)

// memoryLeft lists what a home has in memory, the directory itself included.
func (h *Home) memoryLeft() []string {
	dir := sock.MemoryPath(h.Path)
	if _, err := os.Lstat(dir); err != nil {
		return nil
	}
	list, _ := filepath.Glob(filepath.Join(dir, "*"))
	return append([]string{dir}, list...)
}

// Whatever was killed before, down --all closes what is left.
func TestDownAllAfterKills(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"daemon", "keeper", "daemon keeper", "shell daemon"} {
		t.Run(killed, func(t *testing.T) {
			t.Parallel()
			h := New(t)
			h.Want("main", "setsid sleep 1000 >/dev/null 2>&1 & V=1", "")
			h.Want("other", "true", "")
			s := h.Session("main")
			pids := map[string]int{"daemon": h.Daemon(), "keeper": s.KeeperPID, "shell": s.ShellPID}
			for name := range strings.FieldsSeq(killed) {
				Kill(t, pids[name])
			}
			if o := h.Conch("down", "--all"); o.Status != 0 || !strings.Contains(o.Stdout, "all sessions are closed") {
				t.Errorf("%v", o)
			}
			// What waits in reserve ends when it hears of its daemon's death.
			Until(t, Limit, "nothing is left behind", func() bool { return len(h.Processes()) == 0 })
			if left := h.memoryLeft(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if got := h.OK("sessions", "--json"); got != "[]\n" {
				t.Errorf("sessions: %s", got)
			}
			if list := h.History("main"); len(list) != 1 {
				t.Errorf("history: %+v", list)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		h := New(t)
		if o := h.Conch("down", "--all"); o.Status != 0 || o.Stdout != "not running\n" {
			t.Errorf("%v", o)
		}
		if _, err := os.Stat(h.Path); err == nil {
			t.Error("it made the home")
		}
	})
}

// When down returns the daemon's process has ended, and the next may start.
func TestDownAndUpAtOnce(t *testing.T) {
	t.Parallel()
	h := New(t)
	for range 10 {
		if got := h.OK("up"); !strings.HasPrefix(got, "started ") {
			t.Fatalf("up: %s", got)
		}
		pid := h.Daemon()
		h.OK("down")
		if left := h.Processes(); len(left) > 0 || Alive(pid) {
			t.Fatalf("daemon %d after down: %v", pid, left)
		}
	}
}

func TestMemoryDirectoryGoesWithTheLastSession(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("a", "true", "")
	h.Want("b", "true", "")
	h.OK("close", "a")
	if len(h.memoryLeft()) != 2 {
		t.Errorf("one session is open: %v", h.memoryLeft())
	}
	h.OK("close", "b")
	if left := h.memoryLeft(); len(left) > 0 {
		t.Errorf("close: %v", left)
	}
	h.Conch("doctor")
	if left := h.memoryLeft(); len(left) > 0 {
		t.Errorf("doctor: %v", left)
	}
	if _, err := sock.MemoryDir(h.Path); err != nil {
		t.Skip(err)
	}
	h.OK("prune")
	if left := h.memoryLeft(); len(left) > 0 {
		t.Errorf("prune: %v", left)
	}
	h.Want("a", "echo still", "still\n")
	h.OK("down")
	if len(h.memoryLeft()) != 2 {
		t.Errorf("a session runs on: %v", h.memoryLeft())
	}
	h.Want("a", "echo still", "still\n")
}

// Sessions that end must not take the directory from under those that begin.
func TestSessionsComeAndGo(t *testing.T) {
	t.Parallel()
	h := New(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			label := fmt.Sprintf("s%d", i)
			for n := range 8 {
				if o := h.Conch("exec", "-s", label, "--", fmt.Sprintf("echo %d", n)); o.Stdout != fmt.Sprintf("%d\n", n) || o.Stderr != "" {
					t.Errorf("%s: %v", label, o)
				}
				if o := h.Conch("close", label); o.Status != 0 {
					t.Errorf("%s: %v", label, o)
				}
			}
		})
	}
	wg.Wait()
	if left := h.memoryLeft(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
