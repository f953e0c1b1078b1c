package tty

import (
	"fmt"
	"strconv"
	"strings"
)

func (s *Screen) control(b byte) {
	switch b {
	case '\b':
		if s.cur.x > 0 {
			s.cur.x--
		}
		s.cur.wrap = false
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.lineFeed()
		if s.newline {
			s.cur.x = 0
		}
		s.cur.wrap = false
	case '\r':
		s.cur.x, s.cur.wrap = 0, false
	case 0x0e:
		s.cur.shift = 1
	case 0x0f:
		s.cur.shift = 0
	}
}

func (s *Screen) escape(inter []byte, final byte) {
	switch string(inter) {
	case "":
	case "(", ")":
		s.cur.charset[strings.IndexByte("()", inter[0])] = final
		return
	case "#":
		if final == '8' { // a test picture
			for _, row := range s.page.rows {
				for x := range row {
					row[x] = cell{r: 'E'}
				}
			}
			s.top, s.bottom = 0, s.rows
			s.cur.x, s.cur.y, s.cur.wrap = 0, 0, false
		}
		return
	default:
		return
	}
	switch final {
	case '7':
		s.save()
	case '8':
		s.restore()
	case '=':
		s.keypad = true
	case '>':
		s.keypad = false
	case 'D':
		s.lineFeed()
		s.cur.wrap = false
	case 'E':
		s.lineFeed()
		s.cur.x, s.cur.wrap = 0, false
	case 'H':
		s.tabs[s.cur.x] = true
	case 'M':
		s.reverseFeed()
		s.cur.wrap = false
	case 'Z':
		s.reply(deviceAttributes)
	case 'c':
		s.reset()
	}
}

// What the terminal says it is: a VT220 with colours, of no known version. Programs
// that hear of a newer one ask more.
const (
	deviceAttributes = "\x1b[?62;22c"
	secondAttributes = "\x1b[>1;10;0c"
)

func (s *Screen) csi(q *sequence) {
	switch {
	case q.marker == 0 && len(q.inter) == 0:
		s.plain(q)
	case q.marker == '?' && len(q.inter) == 0:
		s.private(q)
	case q.is('>', "", 'c'):
		s.reply(secondAttributes)
	case q.is(0, "!", 'p'): // soft reset
		s.modes = map[int]bool{}
		s.insert, s.newline, s.keypad = false, false, false
		s.top, s.bottom = 0, s.rows
		x, y := s.cur.x, s.cur.y
		s.cur = cursor{x: x, y: y}
		s.page.saved = cursor{}
	case q.is('?', "$", 'p'):
		s.reply(fmt.Sprintf("\x1b[?%d;%d$y", q.raw(0), s.asked(q.raw(0))))
	}
}

// plain is a sequence without marker and intermediates.
func (s *Screen) plain(q *sequence) {
	n := q.arg(0, 1)
	switch q.final {
	case '@':
		s.insertCells(n)
		s.cur.wrap = false
	case 'A':
		s.vertical(-n)
	case 'B', 'e':
		s.vertical(n)
	case 'C', 'a':
		s.horizontal(n)
	case 'D':
		s.horizontal(-n)
	case 'E':
		s.vertical(n)
		s.cur.x = 0
	case 'F':
		s.vertical(-n)
		s.cur.x = 0
	case 'G', '`':
		s.cur.x, s.cur.wrap = clamp(n-1, 0, s.cols-1), false
	case 'H', 'f':
		s.move(q.arg(1, 1)-1, n-1)
	case 'I':
		s.tab(min(n, s.cols))
	case 'J':
		s.eraseScreen(q.raw(0))
	case 'K':
		s.eraseLine(q.raw(0))
	case 'L':
		if s.inRegion() {
			s.scrollDown(s.cur.y, n)
			s.cur.x, s.cur.wrap = 0, false
		}
	case 'M':
		if s.inRegion() {
			s.scrollUp(s.cur.y, n)
			s.cur.x, s.cur.wrap = 0, false
		}
	case 'P':
		s.deleteCells(n)
		s.cur.wrap = false
	case 'S':
		s.scrollUp(s.top, n)
	case 'T':
		if len(q.params) <= 1 { // with more it is about the mouse
			s.scrollDown(s.top, n)
		}
	case 'X':
		s.erase(s.cur.y, s.cur.x, s.cur.x+n)
		s.cur.wrap = false
	case 'Z':
		s.tab(-min(n, s.cols))
	case 'b':
		if s.last != 0 {
			for range min(n, s.cols*s.rows) {
				s.print(s.last)
			}
		}
	case 'c':
		if q.raw(0) == 0 {
			s.reply(deviceAttributes)
		}
	case 'd':
		y := n - 1
		low, high := 0, s.rows
		if s.cur.origin {
			y += s.top
			low, high = s.top, s.bottom
		}
		s.cur.y, s.cur.wrap = clamp(y, low, high-1), false
	case 'g':
		switch q.raw(0) {
		case 0:
			s.tabs[s.cur.x] = false
		case 3:
			clear(s.tabs)
		}
	case 'h', 'l':
		for _, p := range q.params {
			switch p.n {
			case 4:
				s.insert = q.final == 'h'
			case 20:
				s.newline = q.final == 'h'
			}
		}
	case 'm':
		s.rendition(q.params)
	case 'n':
		switch q.raw(0) {
		case 5:
			s.reply("\x1b[0n")
		case 6:
			s.reply(s.position("\x1b["))
		}
	case 'r':
		top, bottom := q.arg(0, 1)-1, min(q.arg(1, s.rows), s.rows)
		if top < bottom-1 {
			s.top, s.bottom = top, bottom
			s.move(0, 0)
		}
	case 's':
		s.save()
	case 'u':
		s.restore()
	case 't':
		if q.raw(0) == 18 {
			s.reply(fmt.Sprintf("\x1b[8;%d;%dt", s.rows, s.cols))
		}
	}
}

func (s *Screen) inRegion() bool { return s.cur.y >= s.top && s.cur.y < s.bottom }

// position is the cursor's place as a report.
func (s *Screen) position(head string) string {
	y := s.cur.y
	if s.cur.origin {
		y -= s.top
	}
	return fmt.Sprintf("%s%d;%dR", head, y+1, s.cur.x+1)
}

func (s *Screen) eraseScreen(how int) {
	switch how {
	case 0:
		s.erase(s.cur.y, s.cur.x, s.cols)
		for y := s.cur.y + 1; y < s.rows; y++ {
			s.erase(y, 0, s.cols)
		}
	case 1:
		for y := range s.cur.y {
			s.erase(y, 0, s.cols)
		}
		s.erase(s.cur.y, 0, s.cur.x+1)
	case 2:
		for y := range s.rows {
			s.erase(y, 0, s.cols)
		}
	}
}

func (s *Screen) eraseLine(how int) {
	switch how {
	case 0:
		s.erase(s.cur.y, s.cur.x, s.cols)
	case 1:
		s.erase(s.cur.y, 0, s.cur.x+1)
	case 2:
		s.erase(s.cur.y, 0, s.cols)
	}
}

// private is a sequence with a question mark.
func (s *Screen) private(q *sequence) {
	switch q.final {
	case 'h', 'l':
		for _, p := range q.params {
			s.setMode(p.n, q.final == 'h')
		}
	case 'J':
		s.eraseScreen(q.raw(0))
	case 'K':
		s.eraseLine(q.raw(0))
	case 'n':
		if q.raw(0) == 6 {
			s.reply(s.position("\x1b[?"))
		}
	}
}

// onAtFirst are the private modes that are on in a new terminal.
func onAtFirst(n int) bool { return n == modeWrap || n == modeShow }

// kept are the private modes that are remembered, to be set again on a terminal that
// joins: what the program wants to hear of the mouse and the keys.
func kept(n int) bool {
	switch n {
	case modeCursorKeys, modeReverse, modeWrap, modeShow, modePaste, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015:
		return true
	}
	return false
}

func (s *Screen) setMode(n int, on bool) {
	switch n {
	case modeOrigin:
		s.cur.origin = on
		s.move(0, 0)
	case 47, 1047:
		if !on && n == 1047 && s.Alternate() {
			s.eraseScreen(2)
		}
		s.showOther(on)
	case 1048:
		if on {
			s.save()
		} else {
			s.restore()
		}
	case 1049:
		if on {
			if !s.Alternate() {
				s.save()
			}
			s.showOther(true)
			s.eraseScreen(2)
			return
		}
		s.showOther(false)
		s.restore()
	default:
		if !kept(n) {
			return
		}
		if on == onAtFirst(n) {
			delete(s.modes, n)
		} else {
			s.modes[n] = true
		}
	}
}

// asked is what DECRQM gets to hear: 1 set, 2 not set, 0 not known.
func (s *Screen) asked(n int) int {
	var on bool
	switch {
	case n == modeOrigin:
		on = s.cur.origin
	case n == 47 || n == 1047 || n == 1049:
		on = s.Alternate()
	case kept(n):
		on = s.modes[n] != onAtFirst(n)
	default:
		return 0
	}
	if on {
		return 1
	}
	return 2
}

// rendition is SGR.
func (s *Screen) rendition(ps []param) {
	if len(ps) == 0 {
		s.cur.style = style{}
		return
	}
	st := &s.cur.style
	for i := 0; i < len(ps); i++ {
		n := max(0, ps[i].n)
		switch {
		case ps[i].sub:
		case n == 0:
			*st = style{}
		case n >= 1 && n <= 9:
			switch n {
			case 4:
				st.attr |= underline
				if i+1 < len(ps) && ps[i+1].sub && ps[i+1].n == 0 {
					st.attr &^= underline
				}
			case 6:
				st.attr |= blink
			default:
				st.attr |= [...]attr{1: bold, 2: dim, 3: italic, 5: blink, 7: reverse, 8: hidden, 9: strike}[n]
			}
		case n == 21:
			st.attr |= underline
		case n == 22:
			st.attr &^= bold | dim
		case n >= 23 && n <= 29:
			st.attr &^= [...]attr{italic, underline, blink, 0, reverse, hidden, strike}[n-23]
		case n >= 30 && n <= 37:
			st.fg = indexed | color(n-30)
		case n >= 40 && n <= 47:
			st.bg = indexed | color(n-40)
		case n >= 90 && n <= 97:
			st.fg = indexed | color(n-90+8)
		case n >= 100 && n <= 107:
			st.bg = indexed | color(n-100+8)
		case n == 39:
			st.fg = 0
		case n == 49:
			st.bg = 0
		case n == 38 || n == 48 || n == 58:
			c, used, ok := extended(ps[i+1:])
			i += used
			if ok && n == 38 {
				st.fg = c
			} else if ok && n == 48 {
				st.bg = c
			}
		}
	}
}

// extended reads 5;N or 2;R;G;B, with colons also 2::R:G:B. used is how many numbers
// belong to it.
func extended(ps []param) (c color, used int, ok bool) {
	if len(ps) == 0 {
		return 0, 0, false
	}
	if ps[0].sub {
		for used < len(ps) && ps[used].sub {
			used++
		}
		ps = ps[:used]
		if ps[0].n == 2 && len(ps) >= 5 { // a color space is given, or left out
			ps = append([]param{ps[0]}, ps[len(ps)-3:]...)
		}
	}
	part := func(i int) color { return color(clamp(ps[i].n, 0, 255)) }
	switch {
	case ps[0].n == 5 && len(ps) >= 2:
		return indexed | part(1), max(used, 2), true
	case ps[0].n == 2 && len(ps) >= 4:
		return direct | part(1)<<16 | part(2)<<8 | part(3), max(used, 4), true
	}
	return 0, max(used, 1), false
}

func (s *Screen) osc(data []byte) {
	word, rest, _ := strings.Cut(string(data), ";")
	n, err := strconv.Atoi(word)
	if err != nil {
		return
	}
	switch {
	case n == 0 || n == 2:
		s.setTitle(rest)
	case n == 10 && rest == "?":
		s.reply("\x1b]10;rgb:ffff/ffff/ffff\x1b\\")
	case n == 11 && rest == "?":
		s.reply("\x1b]11;rgb:0000/0000/0000\x1b\\")
	}
}
