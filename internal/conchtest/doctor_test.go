package conchtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// finds runs the doctor, which must say all of want in one failed check.
func finds(t *testing.T, h *Home, name string, want []string, flags ...string) {
	t.Helper()
	var r struct {
		Checks []struct {
			Name         string
			OK           bool
			Detail, Hint string
		}
	}
	o := h.JSON(&r, append([]string{"doctor", "--json"}, flags...)...)
	if o.Status != 1 {
		t.Errorf("doctor: %v; want status 1", o)
	}
	for _, c := range r.Checks {
		if c.Name != name || c.OK {
			continue
		}
		if c.Hint == "" {
			t.Errorf("%s has no hint: %s", name, c.Detail)
		}
		for _, w := range want {
			if !strings.Contains(c.Detail+" → "+c.Hint, w) {
				t.Errorf("%s says %q → %q, want %q", name, c.Detail, c.Hint, w)
			}
		}
		return
	}
	t.Errorf("the doctor did not find %s: %s", name, o.Stdout)
}

// healthy runs the doctor, which must find nothing.
func healthy(t *testing.T, h *Home, flags ...string) {
	t.Helper()
	if o := h.Conch(append([]string{"doctor"}, flags...)...); o.Status != 0 {
		t.Errorf("doctor: %v", o)
	}
}

// A daemon that does not answer is told of at once, and nothing waits for it.
func TestStoppedDaemon(t *testing.T) {
	h := New(t)
	h.Want("a", "true", "")
	pid := h.Daemon()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	defer resume()
	o := h.Conch("status")
	if o.Status != 125 || !strings.Contains(o.Stderr, "is stopped") || !strings.Contains(o.Stderr, "kill -CONT") || o.Took > 4*time.Second {
		t.Errorf("status: %v", o)
	}
	finds(t, h, "daemon", []string{"is stopped", "kill -CONT"})
	resume()
	healthy(t, h)
}

func TestDoctorOfKeepers(t *testing.T) {
	h := New(t)
	h.Want("a", "x=1", "")
	healthy(t, h)
	pid := h.Session("a").KeeperPID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	finds(t, h, "keepers", []string{"session a", "is stopped", "kill -CONT"})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	healthy(t, h)
	h.OK("down")
	Kill(t, pid)
	Until(t, 10*time.Second, "the keeper is dead", func() bool { return !Alive(pid) })
	finds(t, h, "keepers", []string{"session a", "is dead", "any command"})
	h.Want("a", "echo $x", "1\n")
	healthy(t, h)
}

// What a disk does to a tape is found: at its ends by a quick look, anywhere by
// a deep one.
func TestDoctorOfTapes(t *testing.T) {
	h := New(t)
	h.Want("a", "echo one", "one\n")
	h.Want("a", "seq 5000 | tail -1", "5000\n")
	healthy(t, h, "--deep")
	h.OK("close", "a")
	tapes, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "tape", "00000001.tape"))
	if len(tapes) != 1 {
		t.Fatal(tapes)
	}
	b, err := os.ReadFile(tapes[0])
	if err != nil {
		t.Fatal(err)
	}
	// A second segment behind it, so that the first one has to be whole.
	h.Want("b", "echo two", "two\n")
	broken := append([]byte(nil), b...)
	broken[3] ^= 1
	if err := os.WriteFile(tapes[0], broken, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(tapes[0]), "00000002.tape"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	healthy(t, h) // closed: the quick look leaves it alone
	finds(t, h, "tapes", []string{"session a", "segment 1"}, "--deep")
}

// A login shell that is slow is told of, with the line that takes its time.
func TestDoctorOfLogin(t *testing.T) {
	h := New(t)
	home := filepath.Join(filepath.Dir(h.Path), "home")
	rc := filepath.Join(home, ".bash_profile")
	if err := os.WriteFile(rc, []byte("x=1\nread -t 2.2 < <(sleep 10)\ny=2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	finds(t, h, "login", []string{"/bin/bash takes 2", ".bash_profile, line 2"})
	if err := os.WriteFile(rc, []byte("exit 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	finds(t, h, "login", []string{"fails", "exit status 3"})
	if err := os.Remove(rc); err != nil {
		t.Fatal(err)
	}
	healthy(t, h)
}

func TestDoctorOfFiles(t *testing.T) {
	h := New(t)
	h.Want("a", "true", "")
	sessions := filepath.Join(h.Path, "sessions")
	os.Chmod(sessions, 0o755)
	finds(t, h, "permissions", []string{sessions, "chmod 700"})
	os.Chmod(sessions, 0o700)
	id := h.Session("a").ID
	spec := filepath.Join(sessions, id, "spec.json")
	b, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(spec, []byte("{"), 0o600)
	finds(t, h, "sessions", []string{id, "spec.json"})
	os.WriteFile(spec, b, 0o600)
	tape := filepath.Join(sessions, id, "tape", "00000001.tape")
	future := time.Now().Add(3 * time.Hour)
	os.Chtimes(tape, future, future)
	finds(t, h, "clock", []string{"in the future"})
	now := time.Now()
	os.Chtimes(tape, now, now)
	healthy(t, h)
}
