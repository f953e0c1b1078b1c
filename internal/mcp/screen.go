package mcp

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

const (
	// screenLines is a screenful of what has no screen.
	screenLines = 24
	// A screen is shown when its program has written nothing for screenStill, which
	// a program that draws does between two keys, and at the latest after screenWait:
	// a clock or a spinner is never still.
	screenStill = 150 * time.Millisecond
	screenWait  = 2 * time.Second
)

type screenIn struct {
	ID string `json:"id" jsonschema:"process id or name, command id, or session label"`
}

// screen is shell_screen's result. Those of terminal are there where there is one.
type screen struct {
	ID      conch.CommandID `json:"id,omitempty"`
	Session string          `json:"session"`
	Lines   []string        `json:"lines"`
	*terminal
}

// terminal is what a real screen has beside its lines. Rows and columns count from 0.
type terminal struct {
	Cols      int                `json:"cols"`
	Rows      int                `json:"rows"`
	Cursor    conch.ScreenCursor `json:"cursor"`
	Alternate bool               `json:"alternate"`
	Title     string             `json:"title"`
	Still     bool               `json:"still"`
	Partial   bool               `json:"partial"`
}

// shellScreen shows a terminal; of what has none, the end of what was written.
func shellScreen(ctx context.Context, c *call, in screenIn) (reply, error) {
	th, err := c.find(ctx, in.ID)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := c.leaving(ctx)
	defer cancel()
	if th.process == nil && th.command == nil {
		s := th.session
		if th.process, err = c.onTerminal(ctx, s); err != nil {
			return reply{}, err
		}
		if th.process == nil && s.Attached > 0 {
			shown, err := c.s.client.SessionScreen(ctx, name(s), stillScreen())
			if err != nil {
				return reply{}, err
			}
			head := fmt.Sprintf("session %s · %s at its prompt", s.Label, people(s.Attached))
			return terminalReply(screen{Session: s.Label}, head, shown), nil
		}
		if th.process == nil {
			list, err := c.s.client.History(ctx, name(s), 1)
			if err != nil {
				return reply{}, err
			}
			if len(list) == 0 {
				return reply{screen{Session: s.Label, Lines: []string{}}, fmt.Sprintf("session %s has run nothing yet\n", s.Label)}, nil
			}
			th.command = &list[0]
		}
	}
	if p := th.process; p != nil && p.TTY {
		shown, err := c.s.client.Screen(ctx, p.ProcessID, stillScreen())
		if err != nil {
			return reply{}, err
		}
		return terminalReply(screen{ID: p.ProcessID, Session: p.Session}, processLine(p), shown), nil
	}
	return c.lastScreenful(ctx, th)
}

func people(n int) string {
	if n == 1 {
		return "1 person"
	}
	return fmt.Sprintf("%d people", n)
}

func stillScreen() conch.ScreenRequest {
	return conch.ScreenRequest{StableMS: screenStill.Milliseconds(), TimeoutMS: screenWait.Milliseconds()}
}

// onTerminal is the one process of a session that runs on a terminal; nil: there is none.
func (c *call) onTerminal(ctx context.Context, s *conch.SessionInfo) (*conch.Process, error) {
	if s.Processes == 0 {
		return nil, nil
	}
	list, err := c.s.client.Processes(ctx)
	if err != nil {
		return nil, err
	}
	var found *conch.Process
	for i := range list {
		p := &list[i]
		if !p.TTY || p.Status.Ended() || p.Agent != s.Agent || p.Session != s.Label {
			continue
		}
		if found != nil {
			return nil, conch.Errorf(conch.InvalidRequest, "session %s runs more than one process on a terminal: %s and %s", s.Label, found.ProcessID, p.ProcessID).
				Hint("say which by its id")
		}
		found = p
	}
	return found, nil
}

// terminalReply is a terminal as a result.
func terminalReply(out screen, head string, s *conch.Screen) reply {
	out.terminal = &terminal{s.Cols, s.Rows, s.Cursor, s.Alternate, s.Title, s.Reason != conch.ScreenTimeout, s.Partial}
	out.Lines = []string{}
	if s.Text != "" {
		out.Lines = strings.Split(s.Text, "\n")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nscreen %dx%d · cursor row %d, column %d from 0", head, s.Cols, s.Rows, s.Cursor.Row, s.Cursor.Col)
	if !s.Cursor.Visible {
		b.WriteString(", hidden")
	}
	if s.Alternate {
		b.WriteString(" · full-screen")
	}
	if s.Title != "" {
		fmt.Fprintf(&b, " · title %s", frame.OneLine(s.Title, 80))
	}
	if !out.Still {
		fmt.Fprintf(&b, " · still changing after %v", screenWait)
	}
	if s.Partial {
		b.WriteString(" · the beginning of its output is not in it")
	}
	text, _ := frame.Plain([]byte(s.Text))
	if text == "" {
		text = "(the screen is empty)"
	}
	return reply{out, b.String() + "\n" + text + "\n"}
}

// lastScreenful is for what has no terminal.
func (c *call) lastScreenful(ctx context.Context, th thing) (reply, error) {
	out := screen{}
	var line string
	var text []byte
	var err error
	if th.process != nil {
		out.ID, out.Session, line = th.process.ProcessID, th.process.Session, processLine(th.process)
		text, err = c.lastOfLog(ctx, th.process.ProcessID)
	} else {
		out.ID, out.Session, line = th.command.CommandID, th.command.Session, commandLine(th.command)
		for _, s := range []client.EventKind{client.Stdout, client.Stderr} {
			var part []byte
			if part, _, err = c.tail(ctx, out.ID, s, screenLines, maxOutput); err != nil {
				break
			}
			if len(text) > 0 && text[len(text)-1] != '\n' {
				text = append(text, '\n')
			}
			text = append(text, part...)
		}
	}
	if err != nil {
		return reply{}, err
	}
	out.Lines = drawn(text)
	return reply{out, line + "\n" + strings.Join(out.Lines, "\n") + "\n"}, nil
}

// lastOfLog is the end of a process's output, both streams in the order they came.
func (c *call) lastOfLog(ctx context.Context, id conch.ProcessID) ([]byte, error) {
	l, err := c.s.client.Logs(ctx, id, client.LogOptions{Tail: screenLines})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var text []byte
	for {
		e, err := l.Next()
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, cutOff(id, err)
		}
		if text = append(text, e.Data...); len(text) > 2*tailBytes {
			text = append(text[:0], text[len(text)-tailBytes:]...)
		}
	}
}

// drawn is text as the lines of a screen, near enough: what a carriage return lets be
// overwritten is gone, escape sequences are left out, lines are cut.
func drawn(b []byte) []string {
	const width = 200
	b = lastLines(b, screenLines, maxOutput)
	lines := []string{}
	for l := range strings.Lines(string(b)) {
		l = strings.TrimRight(l, "\r\n")
		l = l[strings.LastIndexByte(l, '\r')+1:]
		l, _ = frame.Plain([]byte(l))
		if r := []rune(l); len(r) > width {
			l = string(r[:width-1]) + "…"
		}
		lines = append(lines, l)
	}
	return lines
}
