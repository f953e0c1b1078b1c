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
	"slices"
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
	TTY       bool            `json:"tty,omitempty"`     // it was typed, and runs on the session's terminal
	Process   *Process        `json:"process,omitempty"` // it runs in the background
}

// Process is what a Start frame says of a background process.
type Process struct {
	Name string `json:"name,omitempty"`
	PID  int    `json:"pid"`
	Cwd  string `json:"cwd"`
	// Terminal is the size it has at first; nil: it has no terminal.
	Terminal *conch.TerminalSize `json:"terminal,omitempty"`
	// Notify and NotifyLog are as in a conch.RunRequest.
	Notify    string `json:"notify,omitempty"`
	NotifyLog string `json:"notify_log,omitempty"`
}

// Used is what an Exit frame says a process used.
type Used struct {
	CPUMS      float64 `json:"cpu_ms"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

// Forgotten is the payload of a Note frame: processes that are not listed any more.
type Forgotten struct {
	Processes []uint32 `json:"forgotten"`
}

// Exit is the payload of an Exit frame: the result without its streams. Lost
// marks a command whose keeper died.
type Exit struct {
	conch.Result
	Lost bool  `json:"lost,omitempty"`
	Used *Used `json:"used,omitempty"`
	// Error says what of a process could not be kept.
	Error string `json:"error,omitempty"`
}

// Brief is what an Index keeps of an Exit. The rest is read from the tape when
// asked for: a session may have had a hundred thousand commands, and its keeper
// holds them all in memory.
type Brief struct {
	Code                              int // with Seen
	Seen, TimedOut, Interrupted, Lost bool
	Restarted                         bool
	Signal                            *string
	Used                              *Used
	Error                             string
}

// ExitCode is nil where nobody saw one.
func (b *Brief) ExitCode() *int {
	if !b.Seen {
		return nil
	}
	code := b.Code
	return &code
}

// Outcome says how a command ended, in a word.
func (b *Brief) Outcome() string {
	switch {
	case b.Lost:
		return "lost"
	case b.TimedOut:
		return "timed_out"
	case b.Interrupted:
		return "interrupted"
	case b.Seen && b.Code == 0:
		return "done"
	}
	return "failed"
}

func (ex *Exit) brief() *Brief {
	b := &Brief{Signal: ex.Signal, TimedOut: ex.TimedOut, Interrupted: ex.Interrupted, Lost: ex.Lost, Restarted: ex.Shell.Restarted, Used: ex.Used, Error: ex.Error}
	if ex.ExitCode != nil {
		b.Code, b.Seen = *ex.ExitCode, true
	}
	return b
}

// keepText bounds the command text kept in memory; longer ones are read from the
// tape when asked for.
const keepText = 256

// An Entry is one command or process in an Index.
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
	Process  *Process    // nil: a command of the shell
}

// An Index holds the commands and processes of one tape, oldest first.
type Index struct {
	// Touched, if set, is told the number of each that begins, ends or is dropped.
	Touched func(n uint32)

	id, label string
	list      []*Entry // commands
	procs     []*Entry // processes
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
		if f.Kind == tape.Start || f.Kind == tape.Exit || f.Kind == tape.Note {
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
// Only Start, Exit and Note frames need their payload.
func (x *Index) Add(f tape.Frame, n int, from, to tape.Cursor) {
	e := x.byN[f.Command]
	switch f.Kind {
	case tape.Start:
		var s Start
		_ = json.Unmarshal(f.Data, &s) // a frame with a good checksum that we wrote
		x.Open(f.Command, s, time.Unix(0, f.Time).UTC(), from, to)
		return
	case tape.Note:
		var gone Forgotten
		_ = json.Unmarshal(f.Data, &gone)
		x.Drop(gone.Processes)
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
func (x *Index) Open(n uint32, s Start, started time.Time, from, to tape.Cursor) *Entry {
	e := &Entry{N: n, Text: s.Command, Status: conch.StatusRunning, From: from, To: to, Started: started, Process: s.Process}
	if len(e.Text) > keepText {
		e.Text, e.Long = "", true
	}
	if e.Process != nil {
		x.procs = append(x.procs, e)
	} else {
		x.list = append(x.list, e)
	}
	x.byN[n] = e
	x.touch(n)
	return e
}

func (x *Index) touch(n uint32) {
	if x.Touched != nil {
		x.Touched(n)
	}
}

// Close is Add for an Exit frame by somebody who knows what it says.
func (x *Index) Close(e *Entry, ex *Exit, ended time.Time, at, to tape.Cursor) {
	e.Exit, e.ExitAt, e.Ended, e.Status, e.To = ex.brief(), at, ended, conch.StatusDone, to
	if ex.Lost {
		e.Status = conch.StatusLost
	}
	x.touch(e.N)
}

// Last is the highest command number seen.
func (x *Index) Last() uint32 {
	var n uint32
	for k := range x.byN {
		n = max(n, k)
	}
	return n
}

// Get finds a command by number.
func (x *Index) Get(n uint32) *Entry { return x.byN[n] }

// Entries gives all commands, oldest first.
func (x *Index) Entries() []*Entry { return x.list }

// Processes gives all processes, oldest first.
func (x *Index) Processes() []*Entry { return x.procs }

// Running gives the commands and processes that have a start but no end.
func (x *Index) Running() []*Entry {
	var out []*Entry
	for _, list := range [][]*Entry{x.list, x.procs} {
		for _, e := range list {
			if e.Exit == nil {
				out = append(out, e)
			}
		}
	}
	return out
}

// Forget drops entries whose frames have left the tape.
func (x *Index) Forget(oldest tape.Cursor) {
	for _, list := range []*[]*Entry{&x.list, &x.procs} {
		i := 0
		for i < len(*list) && (*list)[i].Exit != nil && (*list)[i].To.Less(oldest) {
			delete(x.byN, (*list)[i].N)
			i++
		}
		if i > 0 {
			*list = append([]*Entry(nil), (*list)[i:]...)
		}
	}
}

// Drop takes ended processes off the list. Their output stays on the tape.
func (x *Index) Drop(ns []uint32) {
	x.procs = slices.DeleteFunc(x.procs, func(e *Entry) bool {
		if !slices.Contains(ns, e.N) || e.Exit == nil {
			return false
		}
		delete(x.byN, e.N)
		x.touch(e.N)
		return true
	})
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
		h.ExitCode, h.Signal, h.TimedOut, h.Interrupted, h.Restarted = e.Exit.ExitCode(), e.Exit.Signal, e.Exit.TimedOut, e.Exit.Interrupted, e.Exit.Restarted
	}
	return h
}

// DescribeProcess is e as `ps` shows it, as far as the tape knows.
func (x *Index) DescribeProcess(e *Entry, agent string, text func(*Entry) string) conch.Process {
	p := conch.Process{
		ProcessID: conch.NewCommandID(x.id, e.N), Name: e.Process.Name, Agent: agent, Session: x.label, Command: e.Text,
		Status: conch.ProcessRunning, PID: e.Process.PID, StartedAt: e.Started, Cwd: e.Process.Cwd, TTY: e.Process.Terminal != nil, StdoutBytes: e.Out, StderrBytes: e.Err,
		Notify: e.Process.Notify, NotifyLog: e.Process.NotifyLog,
	}
	if e.Long && text != nil {
		p.Command = text(e)
	}
	if e.Exit == nil {
		return p
	}
	ended := e.Ended
	p.EndedAt, p.ExitCode, p.Signal = &ended, e.Exit.ExitCode(), e.Exit.Signal
	p.Error = e.Exit.Error
	if u := e.Exit.Used; u != nil {
		p.CPUMS, p.PeakMemory = u.CPUMS, u.PeakMemory
	}
	switch {
	case p.Signal != nil:
		p.Status = conch.ProcessKilled
	case p.ExitCode != nil:
		p.Status = conch.ProcessExited
	default:
		p.Status = conch.ProcessFailed
	}
	return p
}

// Text reads a command's text from its Start frame.
func Text(r *tape.Reader) string {
	f, err := r.Next()
	if err != nil {
		return ""
	}
	return TextOf(f)
}

// TextOf is the command's text in a Start frame.
func TextOf(f tape.Frame) string {
	var s Start
	if f.Kind == tape.Start {
		_ = json.Unmarshal(f.Data, &s)
	}
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
