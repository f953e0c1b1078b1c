package mcp

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

type inputIn struct {
	ID    string   `json:"id" jsonschema:"process id or name"`
	Text  string   `json:"text,omitempty" jsonschema:"as it is; end a line with \\n"`
	Keys  []string `json:"keys,omitempty" jsonschema:"after text: enter, tab, escape, space, backspace, up, down, left, right, ctrl-c, ctrl-d; on a terminal also home, pageup, f1, ctrl-x, alt-x, shift-tab, or a character"`
	Close bool     `json:"close,omitempty" jsonschema:"end its input"`
}

// inputOut is shell_input's result.
type inputOut struct {
	ProcessID conch.ProcessID `json:"process_id"`
	Written   int             `json:"written"` // bytes of text, and of keys where there is no terminal
	Closed    bool            `json:"closed"`
	Signalled bool            `json:"signalled"` // ctrl-c, where there is no terminal to make a signal of it
}

// shellInput writes to a process, or types on its terminal.
func shellInput(ctx context.Context, c *call, in inputIn) (reply, error) {
	th, err := c.find(ctx, in.ID)
	if err != nil {
		return reply{}, err
	}
	if th.process == nil {
		return reply{}, conch.Errorf(conch.StdinClosed, "%s is not a background process", in.ID)
	}
	if in.Text == "" && len(in.Keys) == 0 && !in.Close {
		return reply{}, conch.Errorf(conch.InvalidRequest, "nothing to write").Hint("give text, keys or close")
	}
	stop, err := c.inputTurn(ctx, th.process.ProcessID)
	defer stop()
	if err != nil {
		return reply{}, err
	}
	if th.process.TTY {
		return c.typeIn(ctx, th.process.ProcessID, in)
	}
	return c.writeTo(ctx, th.process, in)
}

// typeIn presses keys on a terminal.
func (c *call) typeIn(ctx context.Context, id conch.ProcessID, in inputIn) (reply, error) {
	// Where lines are edited a newline is what Enter makes of it, and where they
	// are not Enter is what a person would have pressed.
	text := strings.ReplaceAll(strings.ReplaceAll(in.Text, "\r\n", "\n"), "\n", "\r")
	var keys strings.Builder
	for _, k := range in.Keys {
		name, err := keyName(k)
		if err != nil {
			return reply{}, err
		}
		keys.WriteString(name)
	}
	if in.Close {
		keys.WriteString("<C-d>")
	}
	// One request: the keeper looks at all names before it types anything.
	if err := c.s.client.Keys(ctx, id, conch.KeysRequest{Text: text, Keys: keys.String()}); err != nil {
		return reply{}, err
	}
	var what []string
	if n := utf8.RuneCountInString(in.Text); n > 0 {
		what = append(what, fmt.Sprintf("%d characters", n))
	}
	if len(in.Keys) > 0 {
		what = append(what, frame.OneLine(strings.Join(in.Keys, " "), 100))
	}
	if in.Close {
		what = append(what, "ctrl-d")
	}
	said := fmt.Sprintf("typed %s into %s", strings.Join(what, ", then "), id)
	return reply{inputOut{ProcessID: id, Written: len(in.Text), Closed: in.Close}, said + "\nnext: shell_screen shows what came of it\n"}, nil
}

// keyName is a key as the keeper calls it: ctrl-c, C-c and <C-c> are <C-c>; a character
// is itself.
func keyName(k string) (string, error) {
	switch {
	case k == "<":
		return "<lt>", nil
	case utf8.RuneCountInString(k) == 1:
		return k, nil
	case strings.HasPrefix(k, "<") && strings.HasSuffix(k, ">"):
		k = k[1 : len(k)-1]
	}
	name := ""
	for rest := strings.ReplaceAll(k, "+", "-"); ; {
		modifier, after, more := strings.Cut(rest, "-")
		if !more || after == "" {
			name += rest
			break
		}
		switch strings.ToLower(modifier) {
		case "ctrl", "control", "c":
			name += "C-"
		case "alt", "meta", "option", "m", "a":
			name += "M-"
		case "shift", "s":
			name += "S-"
		default:
			return "", noKey(k)
		}
		rest = after
	}
	// What the keeper would take for text must not be typed as such.
	if k == "" || name[0]|0x20 < 'a' || name[0]|0x20 > 'z' || strings.ContainsAny(name, "<> \t\n") || len(name) > 20 {
		return "", noKey(k)
	}
	return "<" + name + ">", nil
}

func noKey(k string) error {
	return conch.Errorf(conch.InvalidRequest, "there is no key %q; nothing was typed", frame.OneLine(k, 40)).
		Hint("keys is a list of single keys: enter, tab, escape, up, f1, ctrl-c, alt-x, a character; other text goes into text")
}

// keyBytes are what keys write where there is no terminal.
func keyBytes(key string) (string, bool) {
	switch key {
	case "enter":
		return "\n", true
	case "tab":
		return "\t", true
	case "escape":
		return "\x1b", true
	case "space":
		return " ", true
	case "backspace":
		return "\x7f", true
	case "up":
		return "\x1b[A", true
	case "down":
		return "\x1b[B", true
	case "right":
		return "\x1b[C", true
	case "left":
		return "\x1b[D", true
	}
	return "", false
}

// writeTo writes to a stdin that is no terminal. There is nobody to make a signal of
// ctrl-c and an end of ctrl-d: those two are done.
func (c *call) writeTo(ctx context.Context, p *conch.Process, in inputIn) (reply, error) {
	// All keys are looked at before any is pressed.
	type step struct {
		data   string
		signal bool
	}
	steps := []step{{data: in.Text}}
	end := in.Close
	for i, k := range in.Keys {
		k = strings.ToLower(k)
		last := &steps[len(steps)-1]
		switch b, known := keyBytes(k); {
		case known:
			last.data += b
		case k == "ctrl-c":
			last.signal = true
			steps = append(steps, step{})
		case k == "ctrl-d" && i == len(in.Keys)-1:
			end = true
		case k == "ctrl-d":
			return reply{}, conch.Errorf(conch.InvalidRequest, "ctrl-d ends the input; no key can follow it").Hint("give it last; nothing was written")
		default:
			return reply{}, conch.Errorf(conch.InvalidRequest, "there is no key %q for a process without a terminal; nothing was written", frame.OneLine(k, 40)).
				Hint("enter, tab, escape, space, backspace, up, down, left, right, ctrl-c, ctrl-d; other text goes into text; shell_start with tty makes a terminal")
		}
	}
	if p.Status.Ended() {
		return reply{}, conch.Errorf(conch.StdinClosed, "process %s has ended and reads nothing any more; nothing was written", p.ProcessID).
			Hint("shell_output says how it ended and what it wrote; shell_start starts another")
	}
	id := p.ProcessID
	out := inputOut{ProcessID: id, Closed: end}
	for i, s := range steps {
		closing := end && i == len(steps)-1
		if s.data != "" || closing {
			if _, err := c.s.client.WriteStdin(ctx, id, []byte(s.data), -1, closing); err != nil {
				return reply{}, err
			}
			out.Written += len(s.data)
		}
		if s.signal {
			if _, err := c.s.client.Signal(ctx, id, "INT"); err != nil {
				return reply{}, err
			}
			out.Signalled = true
		}
	}
	text := fmt.Sprintf("wrote %d bytes to %s", out.Written, id)
	if out.Signalled {
		text += "; sent INT"
	}
	if end {
		text += "; its input is ended"
	}
	return reply{out, text + "\n"}, nil
}
