package tty

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Render is what draws this screen on a terminal of the same size, whatever that
// showed before: text, colours, the cursor, and the modes the program has set. It is
// made from the model and so cannot begin in the middle of a sequence, nor carry one
// that the model does not know.
func (s *Screen) Render() []byte {
	var b bytes.Buffer
	if s.Alternate() {
		b.WriteString("\x1b[?1049h")
	}
	b.WriteString("\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b(B\x0f\x1b[0m\x1b[H\x1b[2J")
	drawRows(&b, s.page.rows)
	if s.top != 0 || s.bottom != s.rows {
		fmt.Fprintf(&b, "\x1b[%d;%dr", s.top+1, s.bottom)
	}
	fmt.Fprintf(&b, "\x1b[%d;%dH", s.cur.y+1, s.cur.x+1)
	b.WriteString(s.cur.style.sequence())
	if s.cur.charset[0] == '0' {
		b.WriteString("\x1b(0")
	}
	if s.insert {
		b.WriteString("\x1b[4h")
	}
	if s.keypad {
		b.WriteString("\x1b=")
	}
	for _, n := range slices.Sorted(maps.Keys(s.modes)) {
		final := 'h'
		if onAtFirst(n) {
			final = 'l'
		}
		fmt.Fprintf(&b, "\x1b[?%d%c", n, final)
	}
	return b.Bytes()
}

// drawRows draws rows from the top, in the plain style at first.
func drawRows(b *bytes.Buffer, rows [][]cell) {
	var now style
	for y, row := range rows {
		last := len(row)
		for last > 0 && row[last-1] == (cell{}) {
			last--
		}
		if last == 0 {
			continue
		}
		fmt.Fprintf(b, "\x1b[%d;1H", y+1)
		for _, c := range row[:last] {
			if c.r == tailOfWide {
				continue
			}
			if c.style != now {
				b.WriteString(c.style.sequence())
				now = c.style
			}
			if c.r == 0 {
				b.WriteByte(' ')
			} else {
				b.WriteRune(c.r)
				b.WriteString(c.more)
			}
		}
	}
}

// Clip draws as much of this screen as a smaller window of a viewer can hold: the left
// of the rows down to the cursor's, and in the window's last row the note.
func (s *Screen) Clip(cols, rows int, note string) []byte {
	var b bytes.Buffer
	b.WriteString("\x1b[r\x1b[?6l\x1b[?7l\x1b[4l\x1b(B\x0f\x1b[0m\x1b[H\x1b[2J")
	from := max(0, s.cur.y-(rows-2))
	var part [][]cell
	for _, row := range s.page.rows[from:min(from+max(rows-1, 0), s.rows)] {
		if len(row) > cols {
			if row[cols].r == tailOfWide { // half of one is not shown
				row = slices.Clone(row)
				row[cols-1] = cell{}
			}
			row = row[:cols]
		}
		part = append(part, row)
	}
	drawRows(&b, part)
	if r := []rune(note); len(r) > cols {
		note = string(r[:cols])
	}
	fmt.Fprintf(&b, "\x1b[%d;1H\x1b[0;7m%s\x1b[0m\x1b[?7h\x1b[%d;%dH", rows, note, s.cur.y-from+1, min(s.cur.x, cols-1)+1)
	return b.Bytes()
}

// Leave is what a real terminal must be given when it stops showing this screen, so
// that nothing the program has set stays behind.
func (s *Screen) Leave() []byte {
	var b bytes.Buffer
	for _, n := range slices.Sorted(maps.Keys(s.modes)) {
		final := 'l'
		if onAtFirst(n) {
			final = 'h'
		}
		fmt.Fprintf(&b, "\x1b[?%d%c", n, final)
	}
	if s.cur.origin {
		b.WriteString("\x1b[?6l")
	}
	b.WriteString(plainAgain)
	if s.keypad {
		b.WriteString("\x1b>")
	}
	if s.Alternate() {
		b.WriteString("\x1b[?1049l")
	}
	return b.Bytes()
}

// plainAgain takes back what changes how text is drawn. Setting the region moves the
// cursor, hence the saving; so does leaving the origin mode, which is not in it.
const plainAgain = "\x1b7\x1b[r\x1b8\x1b[?7h\x1b[?25h\x1b[4l\x1b(B\x0f\x1b[0m"

// sequence is the SGR that gives this style, from any other.
func (st style) sequence() string {
	b := []byte("\x1b[0")
	for i, n := range [...]int{1, 2, 3, 4, 5, 7, 8, 9} {
		if st.attr&(1<<i) != 0 {
			b = append(b, ';')
			b = strconv.AppendInt(b, int64(n), 10)
		}
	}
	put := func(c color, base int) {
		switch {
		case c == 0:
		case c&direct != 0:
			b = fmt.Appendf(b, ";%d;2;%d;%d;%d", base+8, c>>16&255, c>>8&255, c&255)
		case c&255 < 8:
			b = fmt.Appendf(b, ";%d", base+int(c&255))
		default:
			b = fmt.Appendf(b, ";%d;5;%d", base+8, c&255)
		}
	}
	put(st.fg, 30)
	put(st.bg, 40)
	return string(append(b, 'm'))
}
