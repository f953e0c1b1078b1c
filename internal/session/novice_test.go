package session_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// keepers are the processes that were started as keepers of a home.
func keepers(home string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		if strings.HasSuffix(string(args), "\x00keeper\x00") && strings.Contains(string(env), "CONCH_HOME="+home+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			out = append(out, pid)
		}
	}
	return out
}

// A session takes the keeper that waits, another comes in its place, one that has died
// is not taken, and none stays when the store is closed.
func TestSpare(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	home := newHome(t)
	st := open(t, home)
	known := map[int]bool{pid(t, obtain(t, st, "a")): true}
	spare := func() (pid int) {
		t.Helper()
		eventually(t, "a keeper waits", 10*time.Second, func() bool {
			for _, p := range keepers(home) {
				if !known[p] {
					pid = p
				}
			}
			return pid != 0
		})
		return pid
	}
	want := spare()
	if got := pid(t, obtain(t, st, "b")); got != want {
		t.Errorf("session b has keeper %d, not %d, which waited", got, want)
	}
	known[want] = true
	dead := spare()
	if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is dead", 10*time.Second, func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(dead) + "/cmdline")
		return err != nil || len(b) == 0
	})
	got := pid(t, obtain(t, st, "c"))
	if got == dead || got == 0 {
		t.Errorf("session c has keeper %d; %d is dead", got, dead)
	}
	known[got] = true
	known[dead] = true
	last := spare()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(last, 0); err != syscall.ESRCH {
		t.Errorf("keeper %d still waits after Close: %v", last, err)
	}
}
