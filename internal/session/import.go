package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

const (
	// partial begins the name of a directory that an import is still filling.
	// It gets a session's name when it is whole, so that an import that was
	// cut short, by whatever, is never read as a session.
	partial = ".import-"
	// importedLabel and a number name imports that were given no label.
	importedLabel = "imported:"
	// importText stands where a command's text would.
	importText = "log import"
	// importBatch is how much is appended at once. Lines that change streams
	// make a frame each, and a write for each would be slow.
	importBatch = 256 << 10
)

// Imported describes a session that an import made.
type Imported struct {
	Spec           Spec
	Stdout, Stderr int64 // bytes
	Unlabelled     int64 // bytes of lines that are kept, and in neither stream
}

// Import keeps a labelled log as the tape of a new closed session. The label
// must be new: the records of an earlier session that had it are reached by
// the label, and are not to be hidden. An empty one stands for the lowest free
// imported:<n>. When it fails nothing is left.
//
// The session has one command, which is the import: its times are the
// import's, and it has no exit code, since a log has none.
func (st *Store) Import(ctx context.Context, agent, label string, log io.Reader) (*Imported, error) {
	spec, err := st.reserveImport(agent, label)
	if err != nil {
		return nil, err
	}
	defer st.wg.Done() // reserveImport entered
	im := &Imported{Spec: spec}
	dir := filepath.Join(st.home, "sessions", partial+spec.ID)
	if err = st.fill(ctx, dir, im, log); err == nil {
		err = os.Rename(dir, st.dir(spec.ID))
	}
	if err == nil {
		err = syncDir(filepath.Join(st.home, "sessions"))
		fault.Point("import.named")
		dir = st.dir(spec.ID)
	}
	st.mu.Lock()
	delete(st.importing, name{agent, im.Spec.Label})
	if err == nil {
		st.closed[spec.ID] = im.Spec
	}
	st.mu.Unlock()
	if err != nil {
		if rerr := os.RemoveAll(dir); rerr != nil {
			st.log.Warn("remove", "dir", dir, "err", rerr)
		}
		return nil, storageError(err)
	}
	return im, nil
}

// reserveImport takes a label for an import, and enters.
func (st *Store) reserveImport(agent, label string) (Spec, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ctx.Err() != nil || st.held {
		return Spec{}, errLeaving()
	}
	had := map[string]bool{}
	for _, s := range st.closed {
		if s.Agent == agent {
			had[s.Label] = true
		}
	}
	taken := func(label string) bool {
		k := name{agent, label}
		return st.open[k] != nil || st.importing[k] || had[label]
	}
	switch {
	case label == "":
		for n := 1; label == "" || taken(label); n++ {
			label = importedLabel + strconv.Itoa(n)
		}
	case st.open[name{agent, label}] != nil:
		return Spec{}, conch.Errorf(conch.LabelTaken, "session %s exists already", label).
			Hint("an imported log needs a label of its own")
	case taken(label):
		return Spec{}, conch.Errorf(conch.LabelTaken, "a closed session %s is still kept", label).
			Hint("an imported log needs a label of its own; conch prune removes closed sessions")
	}
	if err := st.checkReserved(label); err != nil {
		return Spec{}, err
	}
	st.importing[name{agent, label}] = true
	st.wg.Add(1)
	return Spec{
		ID: st.freeID(), Agent: agent, Label: label, Env: map[string]string{}, CreatedAt: time.Now().UTC(),
	}, nil
}

// fill makes the directory of an import, whole and on the disk.
func (st *Store) fill(ctx context.Context, dir string, im *Imported, log io.Reader) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// A log may be longer than a tape is let grow, and all of it was asked for.
	t, err := tape.Open(filepath.Join(dir, tapeDir), tape.Options{MaxBytes: math.MaxInt64})
	if err != nil {
		return err
	}
	err = im.record(ctx, t, log)
	fault.Point("import.filled")
	if err == nil {
		err = t.Sync()
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	now := time.Now().UTC()
	im.Spec.ClosedAt = &now
	return WriteJSON(filepath.Join(dir, specFile), im.Spec)
}

// record writes the log to a tape as the output of its one command.
func (im *Imported) record(ctx context.Context, t *tape.Tape, log io.Reader) error {
	id := conch.NewCommandID(im.Spec.ID, 1)
	started := time.Now().UTC()
	if err := appendJSON(t, tape.Start, history.Start{Command: importText, CommandID: id, Session: im.Spec.Label}); err != nil {
		return err
	}
	buf, frames := make([]byte, 0, importBatch), []tape.Frame(nil)
	flush := func() error {
		_, err := t.Append(frames...)
		buf, frames = buf[:0], frames[:0]
		return err
	}
	for f, err := range tape.ReadLabelled(log) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return cut(err)
		}
		if len(buf)+len(f.Data) > cap(buf) || len(frames) == 4096 {
			if err := flush(); err != nil {
				return err
			}
		}
		at := len(buf)
		buf = append(buf, f.Data...)
		frames = append(frames, tape.Frame{Command: 1, Kind: f.Kind, Data: buf[at:]})
		switch f.Kind {
		case tape.Stdout:
			im.Stdout += int64(len(f.Data))
		case tape.Stderr:
			im.Stderr += int64(len(f.Data))
		case tape.Note:
			im.Unlabelled += int64(len(f.Data))
		}
	}
	if im.Unlabelled > 0 && im.Stdout+im.Stderr == 0 {
		return conch.Errorf(conch.InvalidRequest, "no line of it is labelled (\\x01\\x01\\x01 or \\x02\\x02\\x02 in front); nothing was kept").
			Hint("a labelled log is what conch log export writes")
	}
	if err := flush(); err != nil {
		return err
	}
	ex := history.Exit{}
	ex.Session, ex.CommandID, ex.Encoding = im.Spec.Label, id, "utf-8"
	ex.StdoutBytes, ex.StderrBytes = im.Stdout, im.Stderr
	ex.Shell = conch.ShellReport{Restored: []string{}, Lost: []string{}}
	ex.StartedAt, ex.DurationMS = started, float64(time.Since(started))/1e6
	return appendJSON(t, tape.Exit, ex)
}

// cut says that a log could not be read to its end, which is the sender's
// doing and no fault of ours.
func cut(err error) error {
	return conch.Errorf(conch.InvalidRequest, "the log ended before its end: %v", err).
		Hint("nothing was kept; import it again")
}

func appendJSON(t *tape.Tape, k tape.Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = t.Append(tape.Frame{Command: 1, Kind: k, Data: b})
	return err
}
