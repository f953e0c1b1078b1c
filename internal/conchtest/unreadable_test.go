package conchtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A session whose record cannot be read keeps no other from being closed, nor its own
// processes alive.
func TestDownAllUnreadable(t *testing.T) {
	h := New(t)
	spec := func(label string) string {
		return filepath.Join(h.Path, "sessions", h.Session(label).ID, "spec.json")
	}
	damage := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The daemon knows it still: it is closed, and its record is whole again.
	h.OK("exec", "-s", "a", "sleep 600 >/dev/null 2>&1 &")
	h.OK("exec", "-s", "b", "true")
	path := spec("a")
	damage(path)
	h.OK("down", "--all")
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), "closed_at") {
		t.Errorf("its record: %q, %v", b, err)
	}
	// The next daemon does not: it is named, once.
	h.OK("exec", "-s", "c", "sleep 600 >/dev/null 2>&1 &")
	h.OK("exec", "-s", "d", "true")
	path = spec("c")
	Kill(t, h.Daemon())
	damage(path)
	o := h.Conch("down", "--all")
	if o.Status == 0 || !strings.Contains(o.Stderr, filepath.Dir(path)) || strings.Contains(o.Stderr, "fault in conch") {
		t.Errorf("down --all: %v", o)
	}
	for _, p := range h.Processes() {
		t.Errorf("left: %+v", p)
	}
	if b, err := os.ReadFile(path); string(b) != "{" {
		t.Errorf("its record was touched: %q, %v", b, err)
	}
	h.OK("down", "--all")
}
