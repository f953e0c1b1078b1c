package tty

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// A CastHeader is the first line of an asciicast, version 2.
type CastHeader struct {
	Version   int               `json:"version"`
	Width     int               `json:"width"`
	Height    int               `json:"height"`
	Timestamp int64             `json:"timestamp,omitempty"`
	Title     string            `json:"title,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// A caster writes an asciicast.
type caster struct {
	w     *bufio.Writer
	begun time.Time // of the recording; zero: nothing is written yet
	last  time.Duration
	part  []byte // a character that has only begun
	line  bool   // the last line is unfinished
	err   error
}

func (c *caster) header(h CastHeader, at time.Time) {
	h.Version, h.Timestamp = 2, at.Unix()
	c.begun = at
	b, _ := json.Marshal(h)
	c.w.Write(append(b, '\n'))
}

// event writes one event. Time never goes back, whatever the clock did.
func (c *caster) event(at time.Time, kind, data string) {
	c.last = max(c.last, at.Sub(c.begun))
	b, _ := json.Marshal(data)
	_, c.err = fmt.Fprintf(c.w, "[%s, %q, %s]\n", strconv.FormatFloat(c.last.Seconds(), 'f', 6, 64), kind, b)
}

// output writes what a program wrote: the events hold text, so a character that is cut
// in two waits for its rest, and what is no UTF-8 is shown as such.
func (c *caster) output(at time.Time, b []byte) {
	b = append(c.part, b...)
	n := len(b)
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if s := b[len(b)-i:]; utf8.RuneStart(s[0]) {
			if !utf8.FullRune(s) {
				n -= i
			}
			break
		}
	}
	c.part = append([]byte(nil), b[n:]...)
	if n > 0 {
		c.event(at, "o", strings.ToValidUTF8(string(b[:n]), "\ufffd"))
	}
}

func (c *caster) flush(at time.Time) {
	if len(c.part) > 0 {
		c.part = nil
		c.event(at, "o", "\ufffd")
	}
}

// CastProcess writes the recording of one process, from its frames. A process without a
// terminal is shown as one of the usual size would show it.
func CastProcess(w io.Writer, next func() (tape.Frame, error)) error {
	c := &caster{w: bufio.NewWriterSize(w, 64<<10)}
	plain := false
	for c.err == nil {
		f, err := next()
		if errors.Is(err, io.EOF) {
			break
		} else if errors.Is(err, conch.OutputGone) {
			if !c.begun.IsZero() {
				c.event(c.begun.Add(c.last), "m", "output is missing here")
			}
			continue
		} else if err != nil {
			return err
		}
		at := time.Unix(0, f.Time)
		if c.begun.IsZero() {
			h := CastHeader{Width: DefaultCols, Height: DefaultRows}
			var s history.Start
			if f.Kind == tape.Start && json.Unmarshal(f.Data, &s) == nil {
				h.Title = firstLine(s.Command)
				if plain = s.Process == nil || s.Process.Terminal == nil; !plain {
					h.Width, h.Height = s.Process.Terminal.Cols, s.Process.Terminal.Rows
					h.Env = map[string]string{"TERM": "xterm-256color"}
				}
			}
			c.header(h, at)
		}
		c.frame(f, at, plain)
	}
	if c.begun.IsZero() && c.err == nil {
		c.header(CastHeader{Width: DefaultCols, Height: DefaultRows}, time.Unix(0, 0))
	}
	c.flush(c.begun.Add(c.last))
	return c.w.Flush()
}

// CastSession writes the recording of a session: its commands, each behind a prompt,
// and what they wrote. Background processes have recordings of their own.
func CastSession(w io.Writer, next func() (tape.Frame, error), title string) error {
	c := &caster{w: bufio.NewWriterSize(w, 64<<10)}
	process, typed := map[uint32]bool{}, map[uint32]bool{}
	for c.err == nil {
		f, err := next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		at := time.Unix(0, f.Time)
		if c.begun.IsZero() {
			c.header(CastHeader{Width: DefaultCols, Height: DefaultRows, Title: title}, at)
		}
		var s history.Start
		if f.Kind == tape.Start && json.Unmarshal(f.Data, &s) == nil {
			process[f.Command], typed[f.Command] = s.Process != nil, s.TTY
			if s.Process == nil {
				c.flush(at)
				c.event(at, "m", firstLine(s.Command))
			}
			if s.Process == nil && !s.TTY { // what was typed is behind its own prompt
				c.event(at, "o", c.fresh()+"\x1b[1m$\x1b[0m "+string(Lines(s.Command))+"\r\n")
			}
			continue
		}
		if f.Kind == tape.Gap {
			c.event(at, "m", "output is missing here")
			continue
		}
		if f.Kind == tape.Prompt || f.Kind == tape.Resize && f.Command == 0 {
			c.frame(f, at, false)
		} else if !process[f.Command] && f.Kind != tape.Exit && f.Kind != tape.Resize {
			c.frame(f, at, !typed[f.Command])
		}
	}
	if c.begun.IsZero() && c.err == nil {
		c.header(CastHeader{Width: DefaultCols, Height: DefaultRows, Title: title}, time.Unix(0, 0))
	}
	c.flush(c.begun.Add(c.last))
	return c.w.Flush()
}

// fresh begins a line where one is unfinished.
func (c *caster) fresh() string {
	if c.line {
		c.line = false
		return "\r\n"
	}
	return ""
}

// frame writes output, new sizes and the end. plain output has no terminal that would
// have begun its lines at the left.
func (c *caster) frame(f tape.Frame, at time.Time, plain bool) {
	switch f.Kind {
	case tape.Stdout, tape.Stderr, tape.Prompt:
		b := f.Data
		if len(b) > 0 {
			c.line = b[len(b)-1] != '\n'
		}
		if plain {
			b = Lines(string(b))
		}
		c.output(at, b)
	case tape.Resize:
		var size conch.TerminalSize
		if json.Unmarshal(f.Data, &size) == nil {
			c.event(at, "r", fmt.Sprintf("%dx%d", size.Cols, size.Rows))
		}
	case tape.Exit:
		c.flush(at)
		var ex history.Exit
		_ = json.Unmarshal(f.Data, &ex)
		how := "lost"
		switch {
		case ex.Signal != nil:
			how = *ex.Signal
		case ex.ExitCode != nil:
			how = fmt.Sprintf("exit %d", *ex.ExitCode)
		}
		c.event(at, "m", how)
	}
}

// Lines ends lines as a terminal does.
func Lines(s string) []byte { return []byte(strings.ReplaceAll(s, "\n", "\r\n")) }

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.ToValidUTF8(s, "\ufffd"), "\n")
	return s
}

// A CastEvent is something that happened in a recording.
type CastEvent struct {
	At   time.Duration // since its beginning
	Kind string        // o output, i input, r size, m marker, x exit
	Data string
}

// A CastReader reads an asciicast of version 2 or 3.
type CastReader struct {
	Width, Height int
	r             *bufio.Reader
	intervals     bool // times count from the event before
	at            time.Duration
	line          int
}

// maxCastLine bounds one line of a recording.
const maxCastLine = 64 << 20

// NewCastReader reads the header.
func NewCastReader(r io.Reader) (*CastReader, error) {
	c := &CastReader{r: bufio.NewReaderSize(r, 64<<10)}
	line, err := c.next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, err
	}
	var h struct {
		CastHeader
		Term struct {
			Cols int `json:"cols"`
			Rows int `json:"rows"`
		} `json:"term"`
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("line 1 is not the header of an asciicast: %w", err)
	}
	switch h.Version {
	case 2:
		c.Width, c.Height = h.Width, h.Height
	case 3:
		c.Width, c.Height, c.intervals = h.Term.Cols, h.Term.Rows, true
	default:
		return nil, fmt.Errorf("asciicast version %d is not known; 2 and 3 are", h.Version)
	}
	return c, nil
}

// next is the next line that is neither empty nor a comment.
func (c *CastReader) next() ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := c.r.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > maxCastLine {
				return nil, fmt.Errorf("line %d is longer than %d bytes", c.line+1, maxCastLine)
			}
			if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
		c.line++
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line, nil
		}
	}
}

// Next gives the next event, and io.EOF after the last.
func (c *CastReader) Next() (CastEvent, error) {
	line, err := c.next()
	if err != nil {
		return CastEvent{}, err
	}
	var raw []json.RawMessage
	var e CastEvent
	var at float64
	if err = json.Unmarshal(line, &raw); err == nil && len(raw) < 3 {
		err = errors.New("fewer than three parts")
	}
	for i, v := range []any{&at, &e.Kind, &e.Data} {
		if err == nil {
			err = json.Unmarshal(raw[i], v)
		}
	}
	const century = 100 * 365 * 24 * 3600
	if err == nil && (at < 0 || at > century) {
		err = errors.New("a time that cannot be")
	}
	if err != nil {
		return CastEvent{}, fmt.Errorf("line %d is not an event: %w", c.line, err)
	}
	d := time.Duration(at * float64(time.Second))
	if c.intervals {
		c.at += d
	} else {
		c.at = max(c.at, d)
	}
	e.At = c.at
	return e, nil
}
