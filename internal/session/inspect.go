package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conchsh/conch/internal/proc"
)

// A Found is a session's directory as somebody sees it who is not its daemon:
// nothing is locked, started or changed.
type Found struct {
	ID     string
	Dir    string
	Spec   Spec
	Keeper *Keeper // its record, nil: none
	Err    error   // why the directory cannot be read as a session
}

// Alive reports whether the keeper of the record is a living process. The
// lock decides for those who act; this is for those who only tell.
func (f Found) Alive() bool {
	return f.Keeper != nil && f.Keeper.Boot == proc.BootID() && (proc.ID{PID: f.Keeper.PID, Start: f.Keeper.Start}).Alive()
}

// Tape is the directory of its tape.
func (f Found) Tape() string { return filepath.Join(f.Dir, tapeDir) }

// List gives every session of a home, open and closed.
func List(home string) ([]Found, error) {
	root := filepath.Join(home, "sessions")
	ents, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Found
	for _, e := range ents {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		f := Found{ID: e.Name(), Dir: filepath.Join(root, e.Name())}
		f.Spec, f.Err = readSpec(f.Dir)
		if f.Err == nil {
			f.Keeper, f.Err = readKeeper(f.Dir)
		}
		list = append(list, f)
	}
	return list, nil
}

// ProbeLogin asks the login shell as the daemon does when it starts, and says
// which shell that is and how long it took. A directory is made below parent
// for the answer, and removed.
func ProbeLogin(ctx context.Context, parent string) (shell string, took time.Duration, err error) {
	a := whoami()
	dir, err := os.MkdirTemp(parent, ".login-")
	if err != nil {
		return a.shell, 0, err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	_, err = ask(ctx, dir, a, a.base(), []string{"-l", "-i", "-c"})
	return a.shell, time.Since(start), err
}
