package session

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// MarkLost records every command of a session's tape that began and was not
// seen to end as lost: exit code null, its output so far kept. The caller
// holds the session's lock file, so that nobody else writes the tape.
func MarkLost(dir string, spec Spec) error {
	if !hasTape(dir) {
		return nil
	}
	open, err := unended(filepath.Join(dir, tapeDir))
	if err != nil || len(open) == 0 {
		return err
	}
	// Opening to write cuts a torn last frame; only then can one be appended.
	t, err := tape.Open(filepath.Join(dir, tapeDir), tape.Options{})
	if err != nil {
		return err
	}
	x := history.New(spec.ID, spec.Label)
	frames := make([]tape.Frame, len(open))
	for i, e := range open {
		frames[i] = history.LostExit(x, e)
	}
	_, err = t.Append(frames...)
	if err == nil {
		err = t.Sync()
	}
	return errors.Join(err, t.Close())
}

// unended finds the commands with a Start and no Exit, by their frames'
// headers alone: a tape may have gigabytes.
func unended(dir string) ([]*history.Entry, error) {
	r, err := tape.OpenReader(dir, tape.Cursor{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	open := map[uint32]*history.Entry{}
	for {
		f, n, err := r.NextHeader()
		if errors.Is(err, tape.ErrCorrupt) {
			// What ended in the damaged part was not seen to end by anybody
			// who could still tell.
			r.Skip()
			continue
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		e := open[f.Command]
		switch {
		case f.Kind == tape.Start:
			open[f.Command] = &history.Entry{N: f.Command, Started: time.Unix(0, f.Time).UTC()}
		case f.Kind == tape.Exit:
			delete(open, f.Command)
		case e == nil:
		case f.Kind == tape.Stdout:
			e.Out += int64(n)
		case f.Kind == tape.Stderr:
			e.Err += int64(n)
		}
	}
	list := make([]*history.Entry, 0, len(open))
	for _, e := range open {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *history.Entry) int { return int(int64(a.N) - int64(b.N)) })
	return list, nil
}
