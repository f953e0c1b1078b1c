// Package history reads a session's tape as a list of commands.
//
// The tape is the one record of what happened: a Start frame opens a command, an
// Exit frame closes it, output frames belong to it by its number, also when they
// come late. An Index is that record in memory, small enough to keep for every
// command; the keeper grows it as it appends, and anybody else (the daemon, for a
// session that is closed) builds it by Scan.
package history

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// Start is the payload of a Start frame.
type Start struct {
	Command   string          `json:"command"`
	CommandID conch.CommandID `json:"command_id"`
	Session   string          `json:"session"`
	Cwd       string          `json:"cwd,omitempty"` // as asked for this command
	Merge     bool            `json:"merge,omitempty"`
}

// Exit is the payload of an Exit frame: the result without its streams. Lost
// marks a command whose keeper died.
type Exit struct {
	conch.Result
	Lost bool `json:"lost,omitempty"`
}

// Brief is what an Index keeps of an Exit. The rest is read from the tape when
// asked for: a session may have had a hundred thousand commands, and its keeper
// holds them all in memory.
type Brief struct {
	Code                              int // with Seen
	Seen, TimedOut, Interrupted, Lost bool
	Signal                            *string
}

// ExitCode is nil where nobody saw one.
func (b *Brief) ExitCode() *int {
	if !b.Seen {
		return nil
	}
	code := b.Code
	return &code
}

func (ex *Exit) brief() *Brief {
	b := &Brief{Signal: ex.Signal, TimedOut: ex.TimedOut, Interrupted: ex.Interrupted, Lost: ex.Lost}
	if ex.ExitCode != nil {
		b.Code, b.Seen = *ex.ExitCode, true
	}
	return b
}

// keepText bounds the command text kept in memory; longer ones are read from the
// tape when asked for.
const keepText = 256

// An Entry is one command in an Index.
type Entry struct {
	N        uint32
	Text     string // empty with Long when over keepText
	Long     bool
	Status   conch.Status
	From, To tape.Cursor // first frame, and after the last
	Started  time.Time
	Ended    time.Time
	Out, Err int64
	Exit     *Brief
	ExitAt   tape.Cursor // the Exit frame
}

// An Index holds the commands of one tape, oldest first.
type Index struct {
	id, label string
	list      []*Entry
	byN       map[uint32]*Entry
}

// New makes an empty index for a session.
func New(id, label string) *Index {
	return &Index{id: id, label: label, byN: map[uint32]*Entry{}}
}

// Scan builds the index of all that r still has to give.
func Scan(r *tape.Reader, id, label string) (*Index, error) {
	x := New(id, label)
	for {
		f, n, err := r.NextHeader()
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return x, err
		}
		if f.Kind == tape.Start || f.Kind == tape.Exit {
			// Small frames: go back and read them whole.
			r.Again(r.Cursor().Back(n))
			if f, err = r.Next(); err != nil {
				return x, err
			}
		}
		x.Add(f, n, r.Cursor().Back(n), r.Cursor())
	}
}

// Add takes one frame, of n payload bytes, that stands between two cursors.
// Only Start and Exit frames need their payload.
func (x *Index) Add(f tape.Frame, n int, from, to tape.Cursor) {
	e := x.byN[f.Command]
	switch f.Kind {
	case tape.Start:
		var s Start
		_ = json.Unmarshal(f.Data, &s) // a frame with a good checksum that we wrote
		x.Open(f.Command, s.Command, time.Unix(0, f.Time).UTC(), from, to)
		return
	case tape.Exit:
		if e == nil {
			return // its start fell off the tape
		}
		var ex Exit
		_ = json.Unmarshal(f.Data, &ex)
		x.Close(e, &ex, time.Unix(0, f.Time).UTC(), from, to)
	case tape.Stdout:
		if e != nil {
			e.Out += int64(n)
		}
	case tape.Stderr:
		if e != nil {
			e.Err += int64(n)
		}
	}
	if e != nil {
		e.To = to
	}
}

// Open is Add for a Start frame by somebody who knows what it says.
func (x *Index) Open(n uint32, text string, started time.Time, from, to tape.Cursor) *Entry {
	e := &Entry{N: n, Text: text, Status: conch.StatusRunning, From: from, To: to, Started: started}
	if len(e.Text) > keepText {
		e.Text, e.Long = "", true
	}
	x.list = append(x.list, e)
	x.byN[n] = e
	return e
}

// Close is Add for an Exit frame by somebody who knows what it says.
func (x *Index) Close(e *Entry, ex *Exit, ended time.Time, at, to tape.Cursor) {
	e.Exit, e.ExitAt, e.Ended, e.Status, e.To = ex.brief(), at, ended, conch.StatusDone, to
	if ex.Lost {
		e.Status = conch.StatusLost
	}
}

// Last is the highest command number seen.
func (x *Index) Last() uint32 {
	var n uint32
	for _, e := range x.list {
		n = max(n, e.N)
	}
	return n
}

// Get finds a command by number.
func (x *Index) Get(n uint32) *Entry { return x.byN[n] }

// Entries gives all commands, oldest first.
func (x *Index) Entries() []*Entry { return x.list }

// Running gives the commands that have a start but no end.
func (x *Index) Running() []*Entry {
	var out []*Entry
	for _, e := range x.list {
		if e.Exit == nil {
			out = append(out, e)
		}
	}
	return out
}

// Forget drops entries whose frames have left the tape.
func (x *Index) Forget(oldest tape.Cursor) {
	i := 0
	for i < len(x.list) && x.list[i].Exit != nil && x.list[i].To.Less(oldest) {
		delete(x.byN, x.list[i].N)
		i++
	}
	if i > 0 {
		x.list = append([]*Entry(nil), x.list[i:]...)
	}
}

// Describe is e as the API shows it. text supplies a long command's text.
func (x *Index) Describe(e *Entry, text func(*Entry) string) conch.HistoryEntry {
	h := conch.HistoryEntry{
		CommandID: conch.NewCommandID(x.id, e.N), Session: x.label, Command: e.Text, Status: e.Status,
		StdoutBytes: e.Out, StderrBytes: e.Err,
	}
	if e.Long && text != nil {
		h.Command = text(e)
	}
	started := e.Started
	h.StartedAt = &started
	if e.Exit != nil {
		ended := e.Ended
		h.EndedAt = &ended
		h.ExitCode, h.Signal, h.TimedOut, h.Interrupted = e.Exit.ExitCode(), e.Exit.Signal, e.Exit.TimedOut, e.Exit.Interrupted
	}
	return h
}

// Text reads a command's text from its Start frame.
func Text(r *tape.Reader) string {
	f, err := r.Next()
	if err != nil || f.Kind != tape.Start {
		return ""
	}
	var s Start
	_ = json.Unmarshal(f.Data, &s)
	return s.Command
}

// ReadExit reads a command's whole end from its Exit frame (Entry.ExitAt).
func ReadExit(r *tape.Reader) (Exit, error) {
	var ex Exit
	f, err := r.Next()
	if err != nil {
		return ex, err
	}
	if f.Kind != tape.Exit {
		return ex, conch.Errorf(conch.OutputGone, "the end of the command is no longer on the tape")
	}
	return ex, json.Unmarshal(f.Data, &ex)
}

// LostExit is the Exit frame for a command that nobody saw the end of.
func LostExit(x *Index, e *Entry) tape.Frame {
	ex := Exit{Lost: true}
	ex.Session, ex.CommandID = x.label, conch.NewCommandID(x.id, e.N)
	ex.StartedAt, ex.StdoutBytes, ex.StderrBytes = e.Started, e.Out, e.Err
	ex.Encoding = "utf-8"
	ex.Shell = conch.ShellReport{Restarted: true, Restored: []string{}, Lost: []string{}}
	ex.DurationMS = float64(time.Since(e.Started)) / 1e6
	b, _ := json.Marshal(ex) // plain data
	return tape.Frame{Time: time.Now().UnixNano(), Command: e.N, Kind: tape.Exit, Data: b}
}
