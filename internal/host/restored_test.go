package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// An agent that had new keys after a restore does not get others at the next
// start, because another agent is locked and had none yet.
func TestRestoredIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), restoredFile)
	if (&restored{path: path}).is("me") {
		t.Error("nothing was restored")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"me", "sealed"}
	r := &restored{path: path}
	if !r.is("me") || !r.is("sealed") {
		t.Error("a restore was not noticed")
	}
	if err := r.renewed("me", all); err != nil {
		t.Fatal(err)
	}
	r = &restored{path: path} // another daemon
	if r.is("me") || !r.is("sealed") {
		t.Errorf("me %v, sealed %v", r.is("me"), r.is("sealed"))
	}
	if err := r.renewed("sealed", all); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark stays: %v", err)
	}
}
