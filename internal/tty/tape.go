package tty

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// Apply gives a screen what a frame of its program says: output, or a new size.
func Apply(s *Screen, f tape.Frame) {
	at := time.Unix(0, f.Time).UTC()
	switch f.Kind {
	case tape.Stdout, tape.Stderr:
		s.Feed(f.Data, at)
	case tape.Resize:
		var size conch.TerminalSize
		if json.Unmarshal(f.Data, &size) == nil {
			s.Resize(size.Cols, size.Rows, at)
		}
	case tape.Start:
		if s.changed.IsZero() {
			s.changed = at
		}
	}
}

// Describe is the screen as it is shown to others.
func Describe(s *Screen) conch.Screen {
	col, row, shown := s.Cursor()
	return conch.Screen{
		Text: s.Text(), TerminalSize: conch.TerminalSize{Cols: s.cols, Rows: s.rows},
		Cursor: conch.ScreenCursor{Row: row, Col: col, Visible: shown}, Alternate: s.Alternate(), Title: s.Title(), ChangedAt: s.Changed(),
	}
}

// replayed is how much of a program's output, counted from its end, its last screen is
// made from.
const replayed = 8 << 20

// Past is the last screen of a program that has ended, from its frames. total is how
// much it wrote in all.
func Past(next func() (tape.Frame, error), size conch.TerminalSize, total int64) (conch.Screen, error) {
	s := New(size.Cols, size.Rows)
	partial, seen := false, int64(0)
	for {
		f, err := next()
		switch {
		case errors.Is(err, io.EOF):
			d := Describe(s)
			d.Partial = partial
			return d, nil
		case errors.Is(err, conch.OutputGone):
			partial = true
			continue
		case err != nil:
			return conch.Screen{}, err
		}
		if f.Kind == tape.Stdout || f.Kind == tape.Stderr {
			if seen += int64(len(f.Data)); total-seen > replayed {
				partial = true
				continue
			}
		}
		Apply(s, f)
	}
}

// PastReason is what a wait for the screen of a program that has ended comes to.
func PastReason(q conch.ScreenRequest, re *regexp.Regexp, text string) string {
	switch {
	case re != nil && !re.MatchString(text):
		return conch.ScreenEnded
	case q.StableMS > 0:
		return conch.ScreenStable
	case re != nil:
		return conch.ScreenContains
	}
	return ""
}

// ParseScreen reads the parameters of a request for a screen.
func ParseScreen(q url.Values) (r conch.ScreenRequest, re *regexp.Regexp, err error) {
	for name, v := range map[string]*int64{"stable_ms": &r.StableMS, "timeout_ms": &r.TimeoutMS} {
		if s := q.Get(name); s != "" {
			if *v, err = strconv.ParseInt(s, 10, 64); err != nil || *v < 0 {
				return r, nil, conch.Errorf(conch.InvalidRequest, "%s=%q is not a time in milliseconds", name, s)
			}
		}
	}
	if r.Contains = q.Get("contains"); r.Contains != "" {
		if re, err = regexp.Compile("(?m)" + r.Contains); err != nil {
			return r, nil, conch.Errorf(conch.InvalidRequest, "contains: %v", err).Hint("expressions are RE2: https://golang.org/s/re2syntax")
		}
	}
	return r, re, nil
}
