package tty

import (
	"slices"
	"strconv"
)

// A Cleaner passes a recorded program's output on without what could do harm to the
// terminal of the person who looks at it, or to the person: setting titles and the
// clipboard, hyperlinks, notifications, questions (whose answers would be typed into
// the viewer's shell), pictures and other device strings, mouse and keyboard modes,
// resets. Text, colours, moving, erasing, scrolling and the second screen pass.
// Whatever passes is written anew from what was understood.
type Cleaner struct {
	parser parser
	out    []byte
	other  bool // the second screen is shown
	origin bool // lines count from the region's top
}

// Clean takes the next bytes, however they are cut, and gives what may be shown.
func (c *Cleaner) Clean(b []byte) []byte {
	c.out = c.out[:0]
	c.parser.feed(b, c)
	return slices.Clone(c.out)
}

// End gives what leaves the terminal as it was: no colours, no region, the cursor
// shown, the first screen.
func (c *Cleaner) End() []byte {
	var out []byte
	if c.origin {
		out = append(out, "\x1b[?6l"...)
	}
	out = append(out, plainAgain...)
	if c.other {
		out = append(out, "\x1b[?1049l"...)
	}
	c.parser, c.other, c.origin = parser{}, false, false
	return out
}

func (c *Cleaner) print(r rune) { c.out = append(c.out, string(r)...) }

func (c *Cleaner) control(b byte) {
	switch b {
	case '\b', '\t', '\n', '\v', '\f', '\r', 0x0e, 0x0f:
		c.out = append(c.out, b)
	}
}

func (c *Cleaner) escape(inter []byte, final byte) {
	switch string(inter) {
	case "":
		switch final {
		case '7', '8', 'D', 'E', 'H', 'M':
			c.out = append(c.out, 0x1b, final)
		}
	case "(", ")":
		if final == '0' || final == 'B' || final == 'A' {
			c.out = append(c.out, 0x1b, inter[0], final)
		}
	}
}

func (c *Cleaner) csi(s *sequence) {
	switch {
	case s.marker == 0 && len(s.inter) == 0:
		switch s.final {
		case '@', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'P', 'S', 'X', 'Z', '`', 'a', 'b', 'd', 'e', 'f', 'g', 'm', 'r', 's', 'u':
		case 'T':
			if len(s.params) > 1 {
				return // about the mouse
			}
		case 'h', 'l':
			if len(s.params) != 1 || s.params[0].n != 4 {
				return
			}
		default:
			return
		}
		if s.final == 'b' && s.raw(0) > maxRepeat || s.final == 'J' && s.raw(0) > 2 {
			return // a flood; the lines that scrolled away are the viewer's own
		}
		c.write(s)
	case s.marker == '?' && len(s.inter) == 0 && (s.final == 'h' || s.final == 'l'):
		for _, p := range s.params {
			switch p.n {
			case 47, 1047, 1049:
				c.other = s.final == 'h'
				c.write(&sequence{marker: '?', params: []param{{n: 1049}}, final: s.final})
			case modeOrigin, modeWrap, modeShow:
				if p.n == modeOrigin {
					c.origin = s.final == 'h'
				}
				c.write(&sequence{marker: '?', params: []param{p}, final: s.final})
			}
		}
	}
}

// maxRepeat is how often a character is repeated on request.
const maxRepeat = MaxCols * 2

func (c *Cleaner) osc([]byte) {}

// write writes a sequence anew.
func (c *Cleaner) write(s *sequence) {
	c.out = append(c.out, 0x1b, '[')
	if s.marker != 0 {
		c.out = append(c.out, s.marker)
	}
	for i, p := range s.params {
		if i > 0 {
			if p.sub {
				c.out = append(c.out, ':')
			} else {
				c.out = append(c.out, ';')
			}
		}
		if p.n >= 0 {
			c.out = strconv.AppendInt(c.out, int64(p.n), 10)
		}
	}
	c.out = append(c.out, s.final)
}
