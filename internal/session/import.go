package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// Imported says what an import has become.
type Imported struct {
	Agent       string `json:"agent"`
	Label       string `json:"label"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
}

// Import keeps a labelled log as a closed session with one command, of which
// nobody saw an exit code. Empty label: the lowest free imported:<n>. It is
// there whole or not at all.
func (st *Store) Import(agent, label string, log io.Reader) (Imported, error) {
	if !st.enter() {
		return Imported{}, errLeaving()
	}
	defer st.wg.Done()
	spec, err := st.reserveImport(agent, label)
	if err != nil {
		return Imported{}, err
	}
	defer func() {
		st.mu.Lock()
		delete(st.importing, name{spec.Agent, spec.Label})
		st.mu.Unlock()
	}()
	// Under a name that the next start removes, until all of it is there.
	dir := filepath.Join(st.home, "sessions", trash+"import-"+spec.ID)
	imp, err := writeImport(dir, &spec, log)
	if err == nil {
		err = os.Rename(dir, st.dir(spec.ID))
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err != nil {
		if rerr := os.RemoveAll(dir); rerr != nil {
			st.log.Warn("remove", "dir", dir, "err", rerr)
		}
		return Imported{}, storageError(err)
	}
	st.mu.Lock()
	st.closed[spec.ID] = spec
	st.mu.Unlock()
	return imp, nil
}

// reserveImport takes a label that no session has or had.
func (st *Store) reserveImport(agent, label string) (Spec, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	taken := map[name]bool{}
	for k := range st.open {
		taken[k] = true
	}
	for k := range st.importing {
		taken[k] = true
	}
	for _, s := range st.closed {
		taken[name{s.Agent, s.Label}] = true
	}
	for n := 1; label == ""; n++ {
		if l := fmt.Sprint("imported:", n); !taken[name{agent, l}] {
			label = l
		}
	}
	k := name{agent, label}
	if taken[k] {
		return Spec{}, conch.Errorf(conch.LabelTaken, "there is a session %s already", label).
			Hint("leave -s out and the log gets a label of its own")
	}
	id := newID()
	for st.byID[id] != nil || st.closed[id].ID != "" {
		id = newID()
	}
	if st.importing == nil {
		st.importing = map[name]bool{}
	}
	st.importing[k] = true
	return Spec{ID: id, Agent: agent, Label: label, Cwd: "/", Env: map[string]string{}, CreatedAt: time.Now().UTC()}, nil
}

// writeImport makes the directory of a closed session from a log.
func writeImport(dir string, spec *Spec, log io.Reader) (imp Imported, err error) {
	imp = Imported{Agent: spec.Agent, Label: spec.Label}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return imp, err
	}
	// No limit: a log that lost its beginning would not be the one given.
	t, err := tape.Open(filepath.Join(dir, tapeDir), tape.Options{MaxBytes: math.MaxInt64 / 2})
	if err != nil {
		return imp, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	id := conch.NewCommandID(spec.ID, 1)
	start, err := json.Marshal(history.Start{Command: "conch log import", CommandID: id, Session: spec.Label})
	if err != nil {
		return imp, err
	}
	if _, err := t.Append(tape.Frame{Command: 1, Kind: tape.Start, Data: start}); err != nil {
		return imp, err
	}
	for f, err := range tape.ReadLabelled(log) {
		if err != nil {
			return imp, conch.Errorf(conch.InvalidRequest, "the log cannot be read: %v", err).
				Hint(`each line stands behind \x01\x01\x01 or \x02\x02\x02; conch log export writes such a log`)
		}
		switch f.Kind {
		case tape.Stdout:
			imp.StdoutBytes += int64(len(f.Data))
		case tape.Stderr:
			imp.StderrBytes += int64(len(f.Data))
		}
		f.Command, f.Time = 1, 0
		if _, err := t.Append(f); err != nil {
			return imp, err
		}
	}
	now := time.Now().UTC()
	exit, err := json.Marshal(history.Exit{Result: conch.Result{
		Session: spec.Label, CommandID: id, Encoding: "utf-8", StdoutBytes: imp.StdoutBytes, StderrBytes: imp.StderrBytes,
		Shell: conch.ShellReport{Restored: []string{}, Lost: []string{}}, Cwd: spec.Cwd, StartedAt: spec.CreatedAt,
	}})
	if err != nil {
		return imp, err
	}
	if _, err := t.Append(tape.Frame{Command: 1, Kind: tape.Exit, Data: exit}); err != nil {
		return imp, err
	}
	if err := t.Sync(); err != nil {
		return imp, err
	}
	spec.ClosedAt = &now
	return imp, WriteJSON(filepath.Join(dir, specFile), spec)
}
