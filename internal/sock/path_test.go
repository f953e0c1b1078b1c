package sock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPathMovesToMemoryWhenLong(t *testing.T) {
	if got, err := Path("/h", "d.sock"); err != nil || got != "/h/run/d.sock" {
		t.Errorf("short home: %q, %v", got, err)
	}
	if _, err := os.Stat(memoryRoot); err != nil {
		t.Skip("no " + memoryRoot)
	}
	home := t.TempDir() + "/" + strings.Repeat("x", MaxPath)
	t.Cleanup(func() { os.RemoveAll(MemoryPath(home)) })
	got, err := Path(home, "d.sock")
	if err != nil || len(got) > MaxPath {
		t.Fatalf("long home: %q, %v", got, err)
	}
	fi, err := os.Stat(filepath.Dir(got))
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", fi, err)
	}
	// Somebody else may have been there first.
	os.Chmod(filepath.Dir(got), 0o777)
	if _, err := Path(home, "d.sock"); err == nil {
		t.Error("a directory open to others was taken")
	}
	os.RemoveAll(filepath.Dir(got))
	if err := os.Symlink(t.TempDir(), filepath.Dir(got)); err != nil {
		t.Fatal(err)
	}
	if _, err := Path(home, "d.sock"); err == nil {
		t.Error("a link was taken")
	}
}
