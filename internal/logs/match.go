package logs

import (
	"bytes"
	"regexp"
	"regexp/syntax"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// matchWindow bounds what a match can span.
const matchWindow = 1 << 20

// A Matcher looks for an expression in a process's streams, each for itself, however
// their bytes are cut into frames. Within a stream it finds the first place where the
// expression matches. An expression that cannot match a newline is tried on lines;
// any other on the last matchWindow bytes.
//
// A line that has not ended is tried as well, since prompts do not end theirs. Only an
// expression that looks at the end of a line waits for it: what is not yet complete
// must not be taken for the end. And a match that reaches the end of what is there may
// grow with what follows (a number, half of it written): it is Pending until more
// comes, or until the caller has waited long enough and calls Settle.
type Matcher struct {
	re      *regexp.Regexp
	byLine  bool
	atEnd   bool // looks at the end of the line or the text
	stream  tape.Kind
	windows map[tape.Kind]*window
	pending *conch.Match
}

// window is what may still be part of a match.
type window struct {
	buf    []byte
	offset int64 // of buf in its stream
	tried  int   // whole lines before this have been tried
}

// Compile reads an expression in the syntax of RE2, where ^ and $ stand for the
// ends of lines.
func Compile(expr string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("(?m:" + expr + ")")
	if err != nil {
		// The user's own text in the message, not ours around it.
		if _, e := regexp.Compile(expr); e != nil {
			err = e
		}
		return nil, conch.Errorf(conch.InvalidRequest, "not a regular expression: %v", err).
			Hint("the syntax is RE2's: no back-references, no look-around")
	}
	return re, nil
}

// NewMatcher looks for expr in one stream, or in both for 0.
func NewMatcher(expr string, stream tape.Kind) (*Matcher, error) {
	re, err := Compile(expr)
	if err != nil {
		return nil, err
	}
	m := &Matcher{re: re, stream: stream, windows: map[tape.Kind]*window{}}
	t, err := syntax.Parse("(?m:"+expr+")", syntax.Perl)
	if err != nil {
		return nil, conch.Errorf(conch.InvalidRequest, "not a regular expression: %v", err)
	}
	m.byLine, m.atEnd = true, false
	walk(t, func(r *syntax.Regexp) {
		switch r.Op {
		case syntax.OpAnyChar:
			m.byLine = false
		case syntax.OpLiteral:
			for _, c := range r.Rune {
				m.byLine = m.byLine && c != '\n'
			}
		case syntax.OpCharClass:
			for i := 0; i+1 < len(r.Rune); i += 2 {
				if r.Rune[i] <= '\n' && '\n' <= r.Rune[i+1] {
					m.byLine = false
				}
			}
		case syntax.OpBeginText:
			m.byLine = false
		case syntax.OpEndLine, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
			m.atEnd = true
		}
	})
	return m, nil
}

func walk(r *syntax.Regexp, f func(*syntax.Regexp)) {
	f(r)
	for _, s := range r.Sub {
		walk(s, f)
	}
}

// Add takes the next frame and reports the first match in its stream, if it is there now.
func (m *Matcher) Add(fr tape.Frame) (*conch.Match, bool) {
	if fr.Kind != tape.Stdout && fr.Kind != tape.Stderr || m.stream != 0 && fr.Kind != m.stream {
		return nil, false
	}
	w := m.windows[fr.Kind]
	if w == nil {
		w = &window{}
		m.windows[fr.Kind] = w
	}
	// In pieces, so that what is kept stays bounded whatever a frame brings.
	m.pending = nil
	for data := fr.Data; len(data) > 0; {
		n := min(len(data), matchWindow)
		w.buf = append(w.buf, data[:n]...)
		data = data[n:]
		at := m.find(w, false)
		if at == nil {
			continue
		}
		if at[1] == len(w.buf) && at[1] > at[0] && at[1] < matchWindow && w.buf[at[1]-1] != '\n' {
			m.pending = m.match(w, at, fr)
			continue
		}
		return m.match(w, at, fr), true
	}
	return nil, false
}

// Pending reports whether there is a match that the next bytes may make longer.
func (m *Matcher) Pending() bool { return m.pending != nil }

// Settle takes the pending match for what it is.
func (m *Matcher) Settle() *conch.Match { return m.pending }

// End is called when nothing can follow: the ends of the streams are ends of lines.
func (m *Matcher) End(last tape.Frame) (*conch.Match, bool) {
	if m.pending != nil {
		return m.pending, true
	}
	for _, k := range []tape.Kind{tape.Stdout, tape.Stderr} {
		if w := m.windows[k]; w != nil {
			if at := m.find(w, true); at != nil {
				last.Kind = k
				return m.match(w, at, last), true
			}
		}
	}
	return nil, false
}

// find tries what has not been tried, and lets go of what can no longer match.
func (m *Matcher) find(w *window, ended bool) []int {
	if !m.byLine {
		if !m.atEnd || ended {
			if at := m.re.FindIndex(w.buf); at != nil {
				return at
			}
		} else if i := bytes.LastIndexByte(w.buf, '\n'); i >= 0 {
			// $ is before a newline; the end of the text must not be taken for one.
			if at := m.re.FindIndex(w.buf[:i]); at != nil {
				return at
			}
		}
		w.drop(len(w.buf) - matchWindow)
		return nil
	}
	for {
		line := w.buf[w.tried:]
		i := bytes.IndexByte(line, '\n')
		if i < 0 {
			break
		}
		if at := m.re.FindIndex(line[:i]); at != nil {
			return []int{w.tried + at[0], w.tried + at[1]}
		}
		w.tried += i + 1
	}
	w.drop(w.tried)
	w.tried = 0
	if !m.atEnd || ended {
		if at := m.re.FindIndex(w.buf); at != nil {
			return at
		}
	}
	w.drop(len(w.buf) - matchWindow)
	return nil
}

func (w *window) drop(n int) {
	if n <= 0 {
		return
	}
	w.buf = append(w.buf[:0], w.buf[n:]...)
	w.offset += int64(n)
	w.tried = max(0, w.tried-n)
}

// shown bounds the text in a match.
const shown = 4 << 10

func (m *Matcher) match(w *window, at []int, fr tape.Frame) *conch.Match {
	from := bytes.LastIndexByte(w.buf[:at[0]], '\n') + 1
	to := len(w.buf)
	if i := bytes.IndexByte(w.buf[at[0]:], '\n'); i >= 0 {
		to = at[0] + i
	}
	cut := func(b []byte) string { return string(bytes.ToValidUTF8(b[:min(len(b), shown)], []byte("\ufffd"))) }
	return &conch.Match{Stream: fr.Kind.String(), Offset: w.offset + int64(at[0]), Text: cut(w.buf[at[0]:at[1]]),
		Line: cut(w.buf[from:to]), Cursor: fr.Seq}
}
