package mcp

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

type outputIn struct {
	ID        string `json:"id" jsonschema:"process id or name, or command id"`
	Cursor    any    `json:"cursor,omitempty" jsonschema:"where to go on, from an earlier result"`
	Stream    string `json:"stream,omitempty" jsonschema:"stdout or stderr; default both"`
	TailLines int    `json:"tail_lines,omitempty" jsonschema:"only the last lines"`
}

// page is shell_output's result.
type page struct {
	ID       conch.CommandID `json:"id"`
	Kind     string          `json:"kind"` // process or command
	Status   string          `json:"status"`
	ExitCode *int            `json:"exit_code"`
	Stdout   string          `json:"stdout"`
	Stderr   string          `json:"stderr"`
	Encoding string          `json:"encoding"`
	Cursor   string          `json:"cursor"`
	More     bool            `json:"more"` // now; what is written later comes after the cursor too
	Note     string          `json:"note,omitempty"`
}

const (
	maxTail = 100_000
	// tailBytes is how much of the end is looked at for the last lines.
	tailBytes = 256 << 10
)

// shellOutput reads a page.
func shellOutput(ctx context.Context, c *call, in outputIn) (reply, error) {
	streams, err := streamsOf(in.Stream)
	if err != nil {
		return reply{}, err
	}
	if in.TailLines < 0 || in.TailLines > maxTail {
		return reply{}, conch.Errorf(conch.InvalidRequest, "tail_lines is 1 to %d", maxTail)
	}
	th, err := c.find(ctx, in.ID)
	if err != nil {
		return reply{}, err
	}
	var p *page
	var line string
	switch {
	case th.process != nil:
		line = processLine(th.process)
		p, err = c.processPage(ctx, th.process, in)
	case th.command != nil:
		line = commandLine(th.command)
		p, err = c.commandPage(ctx, th.command, streams, in)
	default:
		return reply{}, conch.Errorf(conch.InvalidRequest, "%s is a session; output is of a process or a command", in.ID).
			Hint("shell_screen shows what a session ran last, with its id")
	}
	if err != nil {
		return reply{}, err
	}
	next := "nothing more yet; cursor " + p.Cursor + " goes on"
	switch {
	case p.More:
		next = "there is more: cursor " + p.Cursor
	case p.Status != string(conch.ProcessRunning) && p.Status != string(conch.StatusQueued):
		next = "that is all"
	}
	if p.Note != "" {
		next = "note: " + p.Note + "\n" + next
	}
	out, errs := decode(p.Encoding, p.Stdout, p.Stderr)
	text := render(line+"\n"+next, section{name: "stdout", data: out}, section{name: "stderr", data: errs})
	return reply{p, text}, nil
}

func streamsOf(name string) ([]client.EventKind, error) {
	switch name {
	case "":
		return []client.EventKind{client.Stdout, client.Stderr}, nil
	case "stdout":
		return []client.EventKind{client.Stdout}, nil
	case "stderr":
		return []client.EventKind{client.Stderr}, nil
	}
	return nil, conch.Errorf(conch.InvalidRequest, "there is no stream %q", frame.OneLine(name, 40)).Hint("stream is stdout or stderr; left out: both")
}

// cursorText is a cursor as text: a model may give back as a number what looks like one.
func cursorText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return strings.TrimSpace(v), nil
	case float64:
		if v >= 0 && v == math.Trunc(v) && v < 1<<53 {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
	}
	return "", badCursor(v)
}

func badCursor(v any) error {
	return conch.Errorf(conch.InvalidRequest, "%s is not a cursor", frame.OneLine(fmt.Sprintf("%q", fmt.Sprint(v)), 60)).
		Hint("give the cursor of an earlier result of the same id, or none to begin at the start")
}

// processPage is a page of a process. Its cursor is the tape's.
func (c *call) processPage(ctx context.Context, pr *conch.Process, in outputIn) (*page, error) {
	o := client.LogOptions{Tail: in.TailLines}
	switch in.Stream {
	case "stdout":
		o.Stream = client.Stdout
	case "stderr":
		o.Stream = client.Stderr
	}
	cursor, err := cursorText(in.Cursor)
	if err != nil {
		return nil, err
	}
	if cursor != "" {
		if o.Since, err = strconv.ParseUint(cursor, 10, 64); err != nil {
			return nil, badCursor(cursor)
		}
	}
	l, err := c.s.client.LogPage(ctx, pr.ProcessID, o, maxOutput)
	if err != nil {
		return nil, err
	}
	note := ""
	if o.Since > 0 && l.Stdout == "" && l.Stderr == "" && !l.More {
		end, err := c.s.client.LogPage(ctx, pr.ProcessID, client.LogOptions{Tail: 1}, maxOutput)
		if err != nil {
			return nil, err
		}
		if o.Since > end.Cursor {
			l.Cursor, note = end.Cursor, pastEnd(cursor)
		}
	}
	return &page{pr.ProcessID, "process", string(l.Status), pr.ExitCode, l.Stdout, l.Stderr, l.Encoding,
		strconv.FormatUint(l.Cursor, 10), l.More, note}, nil
}

// pastEnd says that a cursor is none that a result gave.
func pastEnd(cursor string) string {
	return fmt.Sprintf("cursor %s is past the end; the new cursor is at the end, and without one it begins at the start", cursor)
}

// commandPage is a page of a command. Its cursor is the offsets in its two streams.
func (c *call) commandPage(ctx context.Context, h *conch.HistoryEntry, streams []client.EventKind, in outputIn) (*page, error) {
	cursor, err := cursorText(in.Cursor)
	if err != nil {
		return nil, err
	}
	var at [2]int64
	if cursor != "" {
		a, b, both := strings.Cut(cursor, ",")
		for i, s := range []string{a, b} {
			if at[i], err = strconv.ParseInt(s, 10, 64); err != nil || at[i] < 0 || !both {
				return nil, badCursor(cursor)
			}
		}
	}
	p := &page{ID: h.CommandID, Kind: "command", Status: string(h.Status), ExitCode: h.ExitCode}
	var data [2][]byte
	for _, s := range streams {
		i := 0
		if s == client.Stderr {
			i = 1
		}
		var more bool
		if in.TailLines > 0 {
			data[i], at[i], err = c.tail(ctx, h.CommandID, s, in.TailLines, maxOutput)
		} else {
			var from int64
			data[i], from, more, err = c.piece(ctx, h.CommandID, s, at[i])
			if from < at[i] {
				p.Note = pastEnd(cursor)
			}
			at[i] = from + int64(len(data[i]))
		}
		if err != nil {
			return nil, err
		}
		p.More = p.More || more
	}
	p.Encoding, p.Stdout, p.Stderr = encode(data[0], data[1])
	p.Cursor = fmt.Sprintf("%d,%d", at[0], at[1])
	return p, nil
}

// piece is what a command wrote from an offset on, or from the end if that is before it,
// and whether there is more. A piece that has more behind it ends with a whole character.
func (c *call) piece(ctx context.Context, id conch.CommandID, stream client.EventKind, offset int64) (data []byte, from int64, more bool, err error) {
	r, err := c.s.client.Output(ctx, id, stream, false)
	if err != nil {
		return nil, 0, false, err
	}
	defer r.Close()
	if from, err = io.CopyN(io.Discard, r, offset); err != nil && err != io.EOF {
		return nil, 0, false, cutOff(id, err)
	}
	data, err = io.ReadAll(io.LimitReader(r, maxOutput+1))
	if err != nil {
		return nil, 0, false, cutOff(id, err)
	}
	if len(data) <= maxOutput {
		return data, from, false, nil
	}
	data = data[:maxOutput]
	for i := 1; i < utf8.UTFMax; i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-i:]) {
				data = data[:len(data)-i]
			}
			break
		}
	}
	return data, from, true, nil
}

// tail is the last lines a command wrote, and how much it wrote in all.
func (c *call) tail(ctx context.Context, id conch.CommandID, stream client.EventKind, lines, size int) (data []byte, total int64, err error) {
	r, err := c.s.client.Output(ctx, id, stream, false)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	keep := max(size, tailBytes)
	var end []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		total += int64(n)
		if end = append(end, buf[:n]...); len(end) > 2*keep {
			end = append(end[:0], end[len(end)-keep:]...)
		}
		if err == io.EOF {
			return lastLines(end, lines, size), total, nil
		}
		if err != nil {
			return nil, 0, cutOff(id, err)
		}
	}
}

func cutOff(id conch.CommandID, err error) error {
	if e := conch.AsError(err); e.Kind != conch.Internal {
		return e
	}
	return conch.Errorf(conch.Internal, "the output of %s could not be read to its end: %v", id, err).Hint("try again").Retry()
}
