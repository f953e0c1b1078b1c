package conchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The shell of a session with a control group is born in it, and what stays in
// it is killed with the session.
func TestSessionInGroup(t *testing.T) { sessionInGroup(t) }

func sessionInGroup(t *testing.T, flags ...string) {
	mount := filepath.Join(t.TempDir(), "cgroup")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", mount, "cgroup2", 0, ""); err != nil {
		t.Skipf("cannot mount cgroups: %v", err)
	}
	defer syscall.Unmount(mount, syscall.MNT_DETACH)
	h := New(t)
	h.OK(append([]string{"new", "g"}, flags...)...)
	id := h.Session("g").ID
	group := filepath.Join(mount, "conch-"+id)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip(err)
	}
	defer os.Remove(group)
	if err := os.WriteFile(filepath.Join(h.Path, "sessions", id, "cgroup"), []byte(group+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.Exec("g", "grep ^0: /proc/self/cgroup; setsid bash -c 'trap \"\" HUP TERM; sleep 600' >/dev/null 2>&1 & sleep 0")
	if !strings.Contains(r.Stdout, "/conch-"+id) {
		t.Errorf("the shell is in %q", r.Stdout)
	}
	// So is a process in the background, which is not the shell's child.
	p := strings.TrimSpace(h.OK("run", "-s", "g", "grep ^0: /proc/self/cgroup"))
	h.OK("wait", p, "--exit", "-t", "20s")
	if got := h.OK("logs", p); !strings.Contains(got, "/conch-"+id) {
		t.Errorf("a process is in %q", got)
	}
	// After the shell's death the next is born there too.
	h.Exec("g", "kill -9 $$")
	if r := h.Exec("g", "grep ^0: /proc/self/cgroup"); !strings.Contains(r.Stdout, "/conch-"+id) {
		t.Errorf("the second shell is in %q", r.Stdout)
	}
	// The keeper itself is not limited with it.
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", h.Session("g").KeeperPID))
	if strings.Contains(string(b), "conch-") {
		t.Errorf("the keeper is in %s", b)
	}
	h.OK("close", "g")
	if _, err := os.Stat(group); err == nil {
		t.Error("the group is still there")
	}
}
