package session

import (
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
	"github.com/conchsh/conch/internal/tty"
)

// An Archive is the record of a closed session: its tape, which nobody writes
// any more.
type Archive struct {
	Spec Spec
	tape string
}

// Archived gives the most recently closed session that had a label.
func (st *Store) Archived(agent, label string) (*Archive, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var last Spec
	for _, s := range st.closed {
		if s.Agent == agent && s.Label == label && (last.ID == "" || s.ClosedAt.After(*last.ClosedAt)) {
			last = s
		}
	}
	return st.archive(last), last.ID != ""
}

// ArchivedByID gives a closed session by its id.
func (st *Store) ArchivedByID(id string) (*Archive, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s, ok := st.closed[id]
	return st.archive(s), ok
}

func (st *Store) archive(s Spec) *Archive {
	return &Archive{Spec: s, tape: filepath.Join(st.dir(s.ID), tapeDir)}
}

// errNoTape is what a session has that never ran a command.
var errNoTape = errors.New("no tape")

func (a *Archive) reader(from tape.Cursor) (*tape.Reader, error) {
	dir := filepath.Dir(a.tape)
	if !hasTape(dir) {
		// Pruned since it was found, which is not the same as having none.
		if _, err := os.Stat(filepath.Join(dir, specFile)); errors.Is(err, fs.ErrNotExist) {
			return nil, conch.Errorf(conch.OutputGone, "what session %s left was removed", a.Spec.Label)
		}
		return nil, errNoTape
	}
	return tape.OpenReader(a.tape, from)
}

func (a *Archive) index() (*history.Index, error) {
	r, err := a.reader(tape.Cursor{})
	if errors.Is(err, errNoTape) {
		return history.New(a.Spec.ID, a.Spec.Label), nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	x, err := history.Scan(r, a.Spec.ID, a.Spec.Label)
	if errors.Is(err, tape.ErrCorrupt) {
		err = nil // what stands before the damage is still true
	}
	return x, err
}

// text reads the text of a command that is too long for the index.
func (a *Archive) text(e *history.Entry) string {
	r, err := a.reader(e.From)
	if err != nil {
		return ""
	}
	defer r.Close()
	return history.Text(r)
}

// History lists the last limit commands, oldest first; 0: all.
func (a *Archive) History(limit int) ([]conch.HistoryEntry, error) {
	x, err := a.index()
	if err != nil {
		return nil, err
	}
	list := x.Entries()
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	out := make([]conch.HistoryEntry, len(list))
	for i, e := range list {
		out[i] = x.Describe(e, a.text)
	}
	return out, nil
}

// find gives the entry of a command or says why there is none.
func (a *Archive) find(n uint32) (*history.Index, *history.Entry, error) {
	x, err := a.index()
	if err != nil {
		return nil, nil, err
	}
	if e := x.Get(n); e != nil {
		return x, e, nil
	}
	id := conch.NewCommandID(a.Spec.ID, n)
	if list := x.Entries(); len(list) > 0 && n < list[0].N {
		return nil, nil, conch.Errorf(conch.OutputGone, "command %s has left the tape", id).
			Hint("a tape that reaches its size limit drops its oldest part")
	}
	return nil, nil, conch.Errorf(conch.CommandNotFound, "no command %s", id).Hint("conch history lists them")
}

// Command describes one command.
func (a *Archive) Command(n uint32) (conch.HistoryEntry, error) {
	x, e, err := a.find(n)
	if err != nil {
		return conch.HistoryEntry{}, err
	}
	return x.Describe(e, a.text), nil
}

// Process describes one process.
func (a *Archive) Process(n uint32) (conch.Process, error) {
	x, e, err := a.find(n)
	if err != nil && !errors.Is(err, conch.CommandNotFound) {
		return conch.Process{}, err
	}
	if err != nil || e.Process == nil {
		return conch.Process{}, conch.Errorf(conch.ProcessNotFound, "no process %s", conch.NewCommandID(a.Spec.ID, n)).Hint("conch ps lists them")
	}
	return x.DescribeProcess(e, a.Spec.Agent, a.text), nil
}

// Processes lists the processes, oldest first.
func (a *Archive) Processes() ([]conch.Process, error) {
	x, err := a.index()
	if err != nil {
		return nil, err
	}
	out := []conch.Process{}
	for _, e := range x.Processes() {
		out = append(out, x.DescribeProcess(e, a.Spec.Agent, a.text))
	}
	return out, nil
}

// Screen is what a process's terminal showed last.
func (a *Archive) Screen(n uint32, q conch.ScreenRequest, re *regexp.Regexp) (conch.Screen, error) {
	_, e, err := a.find(n)
	if err != nil {
		return conch.Screen{}, err
	}
	id := conch.NewCommandID(a.Spec.ID, n)
	if e.Process == nil || e.Process.Terminal == nil {
		return conch.Screen{}, conch.Errorf(conch.NoTerminal, "process %s has no terminal", id).Hint("conch logs shows its output")
	}
	next, end, err := a.Frames(n)
	if err != nil {
		return conch.Screen{}, err
	}
	defer end()
	s, err := tty.Past(next, *e.Process.Terminal, e.Out)
	s.Reason = tty.PastReason(q, re, s.Text)
	return s, err
}

// Frames reads the frames of one command or process in order, to io.EOF. The caller
// calls end.
func (a *Archive) Frames(n uint32) (next func() (tape.Frame, error), end func() error, err error) {
	_, e, err := a.find(n)
	if err != nil {
		return nil, nil, err
	}
	r, err := a.reader(e.From)
	if err != nil {
		return nil, nil, err
	}
	return func() (tape.Frame, error) {
		for {
			if !r.Cursor().Less(e.To) {
				return tape.Frame{}, io.EOF
			}
			if f, err := r.Next(); err != nil || f.Command == n {
				return f, err
			}
		}
	}, r.Close, nil
}

// Output gives what a command wrote on one stream, late output included. The
// caller closes it.
func (a *Archive) Output(n uint32, kind tape.Kind) (io.ReadCloser, error) {
	_, e, err := a.find(n)
	if err != nil {
		return nil, err
	}
	return a.stream(e, kind)
}

func (a *Archive) stream(e *history.Entry, kind tape.Kind) (io.ReadCloser, error) {
	r, err := a.reader(e.From)
	if err != nil {
		return nil, err
	}
	return &output{r: r, n: e.N, kind: kind, to: e.To}, nil
}

// output reads one stream of one command off a tape.
type output struct {
	r    *tape.Reader
	n    uint32
	kind tape.Kind
	to   tape.Cursor
	left []byte
}

func (o *output) Read(p []byte) (int, error) {
	for len(o.left) == 0 {
		if !o.r.Cursor().Less(o.to) {
			return 0, io.EOF
		}
		f, err := o.r.Next()
		if err != nil {
			return 0, err
		}
		if f.Command == o.n && f.Kind == o.kind {
			o.left = f.Data
		}
	}
	n := copy(p, o.left)
	o.left = o.left[n:]
	return n, nil
}

func (o *output) Close() error { return o.r.Close() }

// defaultMaxOutput is what a result carries of each stream.
const defaultMaxOutput = 1 << 20

// Result gives a command's result with at most max bytes of each stream, the
// first and the last half.
func (a *Archive) Result(n uint32, max int64) (conch.Result, error) {
	_, e, err := a.find(n)
	if err != nil {
		return conch.Result{}, err
	}
	if max <= 0 {
		max = defaultMaxOutput
	}
	var res conch.Result
	if e.Exit != nil {
		r, err := a.reader(e.ExitAt)
		if err != nil {
			return conch.Result{}, err
		}
		ex, err := history.ReadExit(r)
		r.Close()
		if err != nil {
			return conch.Result{}, err
		}
		res = ex.Result
	}
	res.Session, res.CommandID = a.Spec.Label, conch.NewCommandID(a.Spec.ID, n)
	res.StdoutBytes, res.StderrBytes = e.Out, e.Err
	var out, errb []byte
	if out, res.StdoutOmitted, err = a.ends(e, tape.Stdout, e.Out, max); err != nil {
		return conch.Result{}, err
	}
	if errb, res.StderrOmitted, err = a.ends(e, tape.Stderr, e.Err, max); err != nil {
		return conch.Result{}, err
	}
	res.Truncated = res.StdoutOmitted != nil || res.StderrOmitted != nil
	if utf8.Valid(out) && utf8.Valid(errb) {
		res.Encoding, res.Stdout, res.Stderr = "utf-8", string(out), string(errb)
	} else {
		res.Encoding = "base64"
		res.Stdout, res.Stderr = base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errb)
	}
	return res, nil
}

// ends reads a stream of size bytes less its middle.
func (a *Archive) ends(e *history.Entry, kind tape.Kind, size, max int64) ([]byte, *conch.Omitted, error) {
	o, err := a.stream(e, kind)
	if err != nil {
		return nil, nil, err
	}
	defer o.Close()
	if size <= max {
		b, err := io.ReadAll(o)
		return b, nil, err
	}
	head := max / 2
	tail := max - head
	b := make([]byte, max)
	if _, err := io.ReadFull(o, b[:head]); err != nil {
		return nil, nil, err
	}
	if _, err := io.CopyN(io.Discard, o, size-max); err != nil {
		return nil, nil, err
	}
	if _, err := io.ReadFull(o, b[head:head+tail]); err != nil {
		return nil, nil, err
	}
	return b, &conch.Omitted{Offset: head, Bytes: size - max}, nil
}

// Log writes the whole tape in the labelled form.
func (a *Archive) Log(w io.Writer) error {
	r, err := a.reader(tape.Cursor{})
	if errors.Is(err, errNoTape) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return tape.WriteLabelled(w, r)
}

// Cast writes the session's commands as a recording.
func (a *Archive) Cast(w io.Writer) error {
	title := a.Spec.Agent + "/" + a.Spec.Label
	r, err := a.reader(tape.Cursor{})
	if errors.Is(err, errNoTape) {
		return tty.CastSession(w, func() (tape.Frame, error) { return tape.Frame{}, io.EOF }, title)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return tty.CastSession(w, r.Next, title)
}

// Starts gives a function that tells when a command began, in ns; 0 when that is
// not known. It reads the tape at its first call.
func (a *Archive) Starts() func(n uint32) int64 {
	var x *history.Index
	return func(n uint32) int64 {
		if x == nil {
			if x, _ = a.index(); x == nil {
				x = history.New(a.Spec.ID, a.Spec.Label)
			}
		}
		if e := x.Get(n); e != nil {
			return e.Started.UnixNano()
		}
		return 0
	}
}

// GoneError is what Replay says of a place that has fallen off the tape.
type GoneError struct{ Oldest uint64 } // the number of the oldest frame there is

func (e *GoneError) Error() string { return "part of the tape has been dropped" }

// Replay calls f with the frames after one of a number: of a command, from its
// start to its exit, or with n 0 of all. It gives the number of the last frame
// on the tape, or of the command's exit.
func (a *Archive) Replay(n uint32, after uint64, f func(tape.Frame) error) (last uint64, err error) {
	var from tape.Cursor
	if n != 0 {
		_, e, err := a.find(n)
		if err != nil {
			return 0, err
		}
		from = e.From
	}
	r, err := a.reader(from)
	if errors.Is(err, errNoTape) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if at := r.Find(after + 1); from.Less(at) {
		r.Again(at)
	}
	gone := false
	for {
		fr, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, tape.ErrCorrupt): // what stands before the damage is still true
			return last, nil
		case err != nil:
			return last, err
		case gone:
			return last, &GoneError{fr.Seq}
		case fr.Kind == tape.Gap:
			gone = true
			continue
		}
		last = fr.Seq
		if n != 0 && fr.Command != n {
			continue
		}
		if fr.Seq > after {
			if err := f(fr); err != nil {
				return last, err
			}
		}
		if n != 0 && fr.Kind == tape.Exit {
			return last, nil
		}
	}
}
