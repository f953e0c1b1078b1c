package agent

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/conchsh/conch"
)

// A disk that is really full: no agent is made, no assignment changed, nothing
// half-written stays, and with room again all of it works.
func TestDiskFull(t *testing.T) {
	home := t.TempDir()
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, home)
	made(t, s, "amy", "")
	global := conch.Assignment{Scope: conch.ScopeGlobal}
	if err := s.Assign("amy", global); err != nil {
		t.Fatal(err)
	}
	ballast, err := os.Create(filepath.Join(home, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	ballast.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err = s.New("bob", nil, nil)
	want(t, err, conch.StorageFull, "nothing was changed")
	_, err = s.Unassign(global)
	want(t, err, conch.StorageFull)
	if s.Known("bob") || s.Taken("bob") {
		t.Error("an agent that was not kept is known")
	}
	if a, err := s.Assignments(); err != nil || a.Global != "amy" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, dir := range []string{home, filepath.Join(home, "keys")} {
		if left, _ := filepath.Glob(filepath.Join(dir, temporary+"*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if _, err := s.Key("amy"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	made(t, s, "bob", "")
	if err := s.Assign("bob", global); err != nil {
		t.Error(err)
	}
}
