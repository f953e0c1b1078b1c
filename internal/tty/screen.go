package tty

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Sizes a terminal can have. What is outside is refused by CheckSize.
const (
	MinCols, MaxCols = 2, 1000
	MinRows, MaxRows = 1, 300
)

// Size that a terminal has when nobody says otherwise.
const (
	DefaultCols = 80
	DefaultRows = 24
)

// A color is nothing (the default), one of 256, or red, green and blue.
type color uint32

const (
	indexed color = 1 << 24
	direct  color = 2 << 24
)

type attr uint16

const (
	bold attr = 1 << iota
	dim
	italic
	underline
	blink
	reverse
	hidden
	strike
)

// A style is how a character looks. Comparable.
type style struct {
	fg, bg color
	attr   attr
}

// A cell is one place of the screen. A wide character has a second cell after it,
// whose rune is -1.
type cell struct {
	r     rune   // 0: blank
	more  string // what combines with r
	style style
}

const tailOfWide = -1

// maxMore bounds what combines with one character.
const maxMore = 32

// A page is one of the terminal's two screens.
type page struct {
	rows  [][]cell
	saved cursor
}

type cursor struct {
	x, y    int
	wrap    bool // it stands behind the last column: the next character goes to a new line
	style   style
	origin  bool
	charset [2]byte
	shift   int
}

// A Screen is a model of a terminal. See the package's comment.
type Screen struct {
	cols, rows  int
	parser      parser
	main, other page // the other one has no rows until it is used
	page        *page
	cur         cursor
	top, bottom int // scrolling region, bottom not included
	tabs        []bool
	modes       map[int]bool // DEC private modes that differ from a new terminal's
	insert      bool
	newline     bool
	keypad      bool
	title       string
	last        rune // for REP
	replies     []byte
	changed     time.Time
}

// Private modes that matter here.
const (
	modeCursorKeys = 1
	modeReverse    = 5
	modeOrigin     = 6
	modeWrap       = 7
	modeShow       = 25
	modePaste      = 2004
)

// New gives an empty screen.
func New(cols, rows int) *Screen {
	s := &Screen{cols: clamp(cols, MinCols, MaxCols), rows: clamp(rows, MinRows, MaxRows)}
	s.reset()
	return s
}

func clamp(n, low, high int) int { return max(low, min(n, high)) }

func (s *Screen) reset() {
	s.main = page{rows: blankRows(s.rows, s.cols)}
	s.other = page{}
	s.page = &s.main
	s.cur = cursor{}
	s.top, s.bottom = 0, s.rows
	s.modes = map[int]bool{}
	s.insert, s.newline, s.keypad = false, false, false
	s.resetTabs()
}

func (s *Screen) resetTabs() {
	s.tabs = make([]bool, s.cols)
	for i := 8; i < s.cols; i += 8 {
		s.tabs[i] = true
	}
}

func blankRows(rows, cols int) [][]cell {
	out := make([][]cell, rows)
	for i := range out {
		out[i] = make([]cell, cols)
	}
	return out
}

// Feed takes output that was written at a time.
func (s *Screen) Feed(b []byte, at time.Time) {
	s.parser.feed(b, s)
	if len(b) > 0 {
		s.changed = at
	}
}

// Replies takes what the terminal answers to questions in what was fed since the last
// call. It belongs into the program's input, unless a real terminal answers too.
func (s *Screen) Replies() []byte {
	r := s.replies
	s.replies = nil
	return r
}

// maxReplies bounds the answers nobody takes.
const maxReplies = 4096

func (s *Screen) reply(text string) {
	if len(s.replies)+len(text) <= maxReplies {
		s.replies = append(s.replies, text...)
	}
}

// Size gives columns and rows.
func (s *Screen) Size() (cols, rows int) { return s.cols, s.rows }

// Resize changes the size as a terminal does that does not wrap its lines anew: what
// does not fit is cut off, at the bottom first as long as that is below the cursor.
func (s *Screen) Resize(cols, rows int, at time.Time) {
	cols, rows = clamp(cols, MinCols, MaxCols), clamp(rows, MinRows, MaxRows)
	if cols == s.cols && rows == s.rows {
		return
	}
	up := max(0, s.cur.y-rows+1)
	for _, p := range []*page{&s.main, &s.other} {
		if p.rows == nil {
			continue
		}
		cut := 0
		if p == s.page {
			cut = up
		}
		kept := p.rows[cut:]
		p.rows = blankRows(rows, cols)
		for y := range min(len(kept), rows) {
			row := p.rows[y]
			copy(row, kept[y])
			if len(kept[y]) > cols && kept[y][cols].r == tailOfWide {
				row[cols-1] = cell{} // half a wide character is none
			}
		}
		p.saved.x, p.saved.y = min(p.saved.x, cols-1), min(p.saved.y, rows-1)
	}
	s.cols, s.rows = cols, rows
	s.cur.x, s.cur.y, s.cur.wrap = min(s.cur.x, cols-1), min(s.cur.y-up, rows-1), false
	s.top, s.bottom = 0, rows
	s.resetTabs()
	s.changed = at
}

// Text is what the screen shows, a line a row, without the blanks at the ends of lines
// and the empty lines at the end.
func (s *Screen) Text() string {
	var b strings.Builder
	blank := 0
	for _, row := range s.page.rows {
		line := lineText(row)
		if line == "" {
			blank++
			continue
		}
		for ; blank > 0; blank-- {
			b.WriteByte('\n')
		}
		b.WriteString(line)
		blank = 1
	}
	return b.String()
}

func lineText(row []cell) string {
	var b strings.Builder
	for _, c := range row {
		switch {
		case c.r == tailOfWide:
		case c.r == 0 || c.style.attr&hidden != 0:
			b.WriteByte(' ')
		default:
			b.WriteRune(c.r)
			b.WriteString(c.more)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Cursor gives the cursor's column and row, from 0, and whether it is shown.
func (s *Screen) Cursor() (col, row int, shown bool) {
	return s.cur.x, s.cur.y, !s.modes[modeShow]
}

// Alternate reports whether the second screen is shown, as full-screen programs do.
func (s *Screen) Alternate() bool { return s.page == &s.other }

// Title is the window title the program has set; it is text on one line.
func (s *Screen) Title() string { return s.title }

// Changed is when the program last wrote something.
func (s *Screen) Changed() time.Time { return s.changed }

// CursorKeys reports whether the program asked for the cursor keys' other codes.
func (s *Screen) CursorKeys() bool { return s.modes[modeCursorKeys] }

// Paste reports whether the program wants pasted text marked.
func (s *Screen) Paste() bool { return s.modes[modePaste] }

// maxTitle bounds a title.
const maxTitle = 256

func (s *Screen) setTitle(t string) {
	t = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(t, ""))
	for len(t) > maxTitle {
		_, n := utf8.DecodeLastRuneInString(t)
		t = t[:len(t)-n]
	}
	s.title = t
}

// print puts a character at the cursor.
func (s *Screen) print(r rune) {
	if set := s.cur.charset[s.cur.shift]; set == '0' && r >= 0x5f && r <= 0x7e {
		r = lines[r-0x5f]
	}
	w := 1
	if r >= 0x300 {
		if w = width(r); w == 0 {
			s.combine(r)
			return
		}
	}
	if s.cur.wrap || s.cur.x+w > s.cols {
		if s.modes[modeWrap] { // off
			s.cur.x = s.cols - w
		} else {
			s.cur.x = 0
			s.lineFeed()
		}
		s.cur.wrap = false
	}
	row := s.page.rows[s.cur.y]
	if s.insert {
		s.insertCells(w)
	}
	s.split(row, s.cur.x)
	if w == 2 && s.cur.x+1 < s.cols {
		s.split(row, s.cur.x+1)
		row[s.cur.x+1] = cell{r: tailOfWide, style: s.cur.style}
	}
	// The cell after what is written may be the second half of what stood here.
	if next := s.cur.x + w; next < s.cols && row[next].r == tailOfWide {
		row[next] = cell{style: row[next].style}
	}
	row[s.cur.x] = cell{r: r, style: s.cur.style}
	s.last = r
	if s.cur.x += w; s.cur.x >= s.cols {
		s.cur.x = s.cols - 1
		s.cur.wrap = true
	}
}

// split makes blanks of a wide character one half of which is about to go.
func (s *Screen) split(row []cell, x int) {
	if row[x].r == tailOfWide && x > 0 {
		row[x-1] = cell{style: row[x-1].style}
	}
}

// combine adds to the character before the cursor.
func (s *Screen) combine(r rune) {
	x := s.cur.x
	if !s.cur.wrap {
		x--
	}
	row := s.page.rows[s.cur.y]
	if x >= 0 && row[x].r == tailOfWide {
		x--
	}
	if x < 0 || row[x].r == 0 || len(row[x].more) >= maxMore {
		return
	}
	row[x].more += string(r)
}

// lines are the line-drawing characters of the DEC terminals, from 0x5f on.
var lines = [...]rune{' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼',
	'⎺', '⎻', '─', '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·'}

// blank is what erasing leaves: the background stays.
func (s *Screen) blank() cell { return cell{style: style{bg: s.cur.style.bg}} }

// erase blanks columns [from,to) of a row.
func (s *Screen) erase(y, from, to int) {
	row := s.page.rows[y]
	from, to = max(0, from), min(to, s.cols)
	if from >= to {
		return
	}
	s.split(row, from)
	if to < s.cols && row[to].r == tailOfWide {
		row[to] = cell{style: row[to].style}
	}
	for x := from; x < to; x++ {
		row[x] = s.blank()
	}
}

func (s *Screen) insertCells(n int) {
	row := s.page.rows[s.cur.y]
	n = min(n, s.cols-s.cur.x)
	s.split(row, s.cur.x)
	if row[s.cols-n].r == tailOfWide && s.cols-n > s.cur.x {
		row[s.cols-n-1] = s.blank()
	}
	copy(row[s.cur.x+n:], row[s.cur.x:s.cols-n])
	for x := s.cur.x; x < s.cur.x+n; x++ {
		row[x] = s.blank()
	}
	if after := s.cur.x + n; after < s.cols && row[after].r == tailOfWide {
		row[after] = s.blank()
	}
}

func (s *Screen) deleteCells(n int) {
	row := s.page.rows[s.cur.y]
	n = min(n, s.cols-s.cur.x)
	s.split(row, s.cur.x)
	if at := s.cur.x + n; at < s.cols && row[at].r == tailOfWide {
		row[at] = s.blank()
	}
	copy(row[s.cur.x:], row[s.cur.x+n:])
	for x := s.cols - n; x < s.cols; x++ {
		row[x] = s.blank()
	}
}

// scrollUp moves rows [from,bottom) up by n.
func (s *Screen) scrollUp(from, n int) {
	n = min(n, s.bottom-from)
	if n <= 0 {
		return
	}
	rows := s.page.rows[from:s.bottom]
	gone := append([][]cell(nil), rows[:n]...)
	copy(rows, rows[n:])
	s.putBlank(rows[len(rows)-n:], gone)
}

// scrollDown moves rows [from,bottom) down by n.
func (s *Screen) scrollDown(from, n int) {
	n = min(n, s.bottom-from)
	if n <= 0 {
		return
	}
	rows := s.page.rows[from:s.bottom]
	gone := append([][]cell(nil), rows[len(rows)-n:]...)
	copy(rows[n:], rows)
	s.putBlank(rows[:n], gone)
}

// putBlank puts rows that are not needed any more where blank ones are.
func (s *Screen) putBlank(at, gone [][]cell) {
	for i, row := range gone {
		for x := range row {
			row[x] = s.blank()
		}
		at[i] = row
	}
}

func (s *Screen) lineFeed() {
	switch {
	case s.cur.y == s.bottom-1:
		s.scrollUp(s.top, 1)
	case s.cur.y < s.rows-1:
		s.cur.y++
	}
}

func (s *Screen) reverseFeed() {
	switch {
	case s.cur.y == s.top:
		s.scrollDown(s.top, 1)
	case s.cur.y > 0:
		s.cur.y--
	}
}

// move goes to a place, inside of the region where that is what is asked for.
func (s *Screen) move(x, y int) {
	low, high := 0, s.rows
	if s.cur.origin {
		y += s.top
		low, high = s.top, s.bottom
	}
	s.cur.x, s.cur.y, s.cur.wrap = clamp(x, 0, s.cols-1), clamp(y, low, high-1), false
}

// up and down stop at the region's edge, if they begin inside.
func (s *Screen) vertical(n int) {
	low, high := 0, s.rows-1
	if n < 0 && s.cur.y >= s.top {
		low = s.top
	}
	if n > 0 && s.cur.y < s.bottom {
		high = s.bottom - 1
	}
	s.cur.y, s.cur.wrap = clamp(s.cur.y+n, low, high), false
}

func (s *Screen) horizontal(n int) {
	s.cur.x, s.cur.wrap = clamp(s.cur.x+n, 0, s.cols-1), false
}

func (s *Screen) tab(n int) {
	x := s.cur.x
	for ; n > 0; n-- {
		for x++; x < s.cols-1 && !s.tabs[x]; x++ {
		}
	}
	for ; n < 0; n++ {
		for x--; x > 0 && !s.tabs[x]; x-- {
		}
	}
	s.cur.x = clamp(x, 0, s.cols-1)
	if n == 0 && s.cur.x < s.cols-1 {
		s.cur.wrap = false
	}
}

// showOther switches between the screens.
func (s *Screen) showOther(on bool) {
	if on == s.Alternate() {
		return
	}
	if on {
		if s.other.rows == nil {
			s.other.rows = blankRows(s.rows, s.cols)
		}
		s.page = &s.other
		return
	}
	s.page = &s.main
	s.other.rows = nil // its memory, until it is shown again
}

func (s *Screen) save() { s.page.saved = s.cur }

func (s *Screen) restore() {
	s.cur = s.page.saved
	s.cur.x, s.cur.y = min(s.cur.x, s.cols-1), min(s.cur.y, s.rows-1)
}
