package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Spec is what a session was made as. The daemon owns the file; the keeper
// reads it at its start.
type Spec struct {
	ID        string            `json:"id"`
	Agent     string            `json:"agent"`
	Label     string            `json:"label"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	Parent    string            `json:"parent"`
	RC        bool              `json:"rc"`
	CreatedAt time.Time         `json:"created_at"`
	ClosedAt  *time.Time        `json:"closed_at"` // nil while open
	// Limits are the session's own, by the names of the configuration's keys.
	Limits map[string]string `json:"limits,omitempty"`
	// Sandbox is around all of its processes; nil: there is none.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// Clean leaves out of the login environment all but what every program
	// needs, and what Only names.
	Clean bool     `json:"clean,omitempty"`
	Only  []string `json:"only,omitempty"`
}

// A Sandbox keeps a session to its directory.
type Sandbox struct {
	Allow   []string `json:"allow,omitempty"` // what may be read besides
	Network bool     `json:"network,omitempty"`
}

// Keeper is what a keeper says of itself once it serves. The file outlives it:
// a keeper.json whose lock nobody holds names what is left to sweep.
type Keeper struct {
	PID      int    `json:"pid"`
	Start    uint64 `json:"start"` // start ticks: the pid alone may be somebody else's by now
	Boot     string `json:"boot"`
	Socket   string `json:"socket"`
	RunDir   string `json:"rundir"`
	Mark     uint32 `json:"mark"` // session number in the mark its processes carry
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

const (
	specFile   = "spec.json"
	keeperFile = "keeper.json"
	lockFile   = "lock"
	tapeDir    = "tape"
	logFile    = "keeper.log"
)

func isID(s string) bool {
	return len(s) == 8 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func readSpec(dir string) (Spec, error) {
	var s Spec
	if err := readJSON(filepath.Join(dir, specFile), &s); err != nil {
		return Spec{}, err
	}
	if s.ID != filepath.Base(dir) {
		return Spec{}, fmt.Errorf("%s names session %q", filepath.Join(dir, specFile), s.ID)
	}
	return s, nil
}

// readKeeper gives nil when no keeper has written its record.
func readKeeper(dir string) (*Keeper, error) {
	var k Keeper
	err := readJSON(filepath.Join(dir, keeperFile), &k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &k, nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// WriteJSON puts v at path so that a reader, or a start after a crash, sees
// the old file or the new one, whole: temporary file, fsync, rename, fsync of
// the directory.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
