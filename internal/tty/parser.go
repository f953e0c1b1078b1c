package tty

import "unicode/utf8"

// sink is what a parser's findings go to: a screen to draw on, or a filter.
type sink interface {
	print(r rune)
	control(b byte)                  // below 0x20, and DEL
	escape(inter []byte, final byte) // ESC inter final
	csi(s *sequence)
	// osc is an operating system command without its introducer and terminator.
	osc(data []byte)
}

// A sequence is a control sequence: CSI marker params inter final.
type sequence struct {
	marker byte // one of < = > ?, or 0
	params []param
	inter  []byte
	final  byte
}

// A param is one number. sub says that it belongs to the one before it (a colon).
type param struct {
	n   int // -1: left out
	sub bool
}

// arg is the i'th number, or def where it is left out or 0.
func (s *sequence) arg(i, def int) int {
	if i < len(s.params) && s.params[i].n > 0 {
		return s.params[i].n
	}
	return def
}

// raw is the i'th number as given, 0 where it is left out.
func (s *sequence) raw(i int) int {
	if i < len(s.params) {
		return max(0, s.params[i].n)
	}
	return 0
}

// is reports whether the sequence has this form.
func (s *sequence) is(marker byte, inter string, final byte) bool {
	return s.marker == marker && string(s.inter) == inter && s.final == final
}

type state uint8

const (
	ground state = iota
	inEscape
	inCSI
	badCSI    // to be skipped to its end
	inOSC     // kept
	inString  // DCS, SOS, PM, APC: skipped
	stringEsc // ESC inside of one of the last two
)

// Limits of what one sequence may hold. A sequence beyond them is skipped whole.
const (
	maxParams = 32
	maxNumber = 65535
	maxInter  = 4
	maxOSC    = 4096
)

// A parser takes a terminal's input apart as the DEC terminals did, in UTF-8.
type parser struct {
	state state
	back  state // what stringEsc came from
	seq   sequence
	inter []byte
	text  []byte
	part  [utf8.UTFMax]byte // an unfinished character
	parts int
}

// feed takes the next bytes, however they are cut.
func (p *parser) feed(b []byte, to sink) {
	for i := 0; i < len(b); {
		c := b[i]
		if p.state == ground && p.parts == 0 && c >= 0x20 && c < 0x7f {
			to.print(rune(c))
			i++
			continue
		}
		if p.parts > 0 || p.state == ground && c >= 0x80 {
			i += p.character(b[i:], to)
			continue
		}
		i++
		p.step(c, to)
	}
}

// character takes bytes of a character of more than one, and says how many.
func (p *parser) character(b []byte, to sink) (n int) {
	for n < len(b) {
		p.part[p.parts] = b[n]
		if p.parts > 0 && utf8.RuneStart(b[n]) {
			// The one before was cut short; this byte begins something else.
			p.parts = 0
			to.print(utf8.RuneError)
			return n
		}
		n++
		p.parts++
		if have := p.part[:p.parts]; utf8.FullRune(have) {
			r, size := utf8.DecodeRune(have)
			if r == utf8.RuneError && size == 1 && p.parts > 1 {
				// One wrong character, then what follows its first byte.
				rest := append([]byte(nil), have[1:]...)
				p.parts = 0
				to.print(r)
				p.feed(rest, to)
				return n
			}
			p.parts = 0
			if r >= 0x80 && r < 0xa0 {
				return n // controls of eight bits, which nobody means in UTF-8
			}
			to.print(r)
			return n
		}
	}
	return n
}

func (p *parser) step(c byte, to sink) {
	switch p.state {
	case inOSC, inString:
		p.inText(c, to)
		return
	case stringEsc:
		if c == '\\' {
			p.end(to)
			return
		}
		// Not the terminator: the string ends here without one, unfinished.
		p.state = ground
		p.begin()
		p.step(c, to)
		return
	}
	switch {
	case c == 0x1b:
		p.begin()
		return
	case c == 0x18 || c == 0x1a: // CAN, SUB: the sequence is called off
		p.state = ground
		return
	case c < 0x20 || c == 0x7f:
		if c != 0x7f {
			to.control(c) // also within a sequence
		}
		return
	case c >= 0x80:
		p.state = ground // no part of a sequence
		return
	}
	switch p.state {
	case ground:
		to.print(rune(c))
	case inEscape:
		p.inEscape(c, to)
	case inCSI, badCSI:
		p.inCSI(c, to)
	}
}

// begin is at an ESC.
func (p *parser) begin() {
	p.state = inEscape
	p.inter = p.inter[:0]
}

func (p *parser) inEscape(c byte, to sink) {
	if c < 0x30 {
		if len(p.inter) < maxInter {
			p.inter = append(p.inter, c)
		}
		return
	}
	p.state = ground
	if len(p.inter) == 0 {
		switch c {
		case '[':
			p.state = inCSI
			p.seq = sequence{params: p.seq.params[:0], inter: p.seq.inter[:0]}
			return
		case ']':
			p.state, p.text = inOSC, p.text[:0]
			return
		case 'P', 'X', '^', '_':
			p.state, p.text = inString, p.text[:0]
			return
		}
	}
	to.escape(p.inter, c)
}

func (p *parser) inCSI(c byte, to sink) {
	s := &p.seq
	switch {
	case c >= 0x40:
		ok := p.state == inCSI
		p.state = ground
		if ok {
			s.final = c
			to.csi(s)
		}
	case p.state == badCSI:
	case c >= '0' && c <= '9':
		if len(s.inter) > 0 {
			p.state = badCSI
			return
		}
		if len(s.params) == 0 {
			s.params = append(s.params, param{n: -1})
		}
		last := &s.params[len(s.params)-1]
		last.n = min(max(last.n, 0)*10+int(c-'0'), maxNumber)
	case c == ';' || c == ':':
		if len(s.inter) > 0 || len(s.params) >= maxParams {
			p.state = badCSI
			return
		}
		if len(s.params) == 0 {
			s.params = append(s.params, param{n: -1})
		}
		s.params = append(s.params, param{n: -1, sub: c == ':'})
	case c >= 0x3c: // < = > ?
		if len(s.params) > 0 || s.marker != 0 || len(s.inter) > 0 {
			p.state = badCSI
			return
		}
		s.marker = c
	default: // an intermediate
		if len(s.inter) >= maxInter {
			p.state = badCSI
			return
		}
		s.inter = append(s.inter, c)
	}
}

// inText takes a byte of a string. Its end is ESC \ or, of an OSC, BEL.
func (p *parser) inText(c byte, to sink) {
	switch {
	case c == 0x07 && p.state == inOSC:
		p.end(to)
	case c == 0x1b:
		p.back, p.state = p.state, stringEsc
	case c == 0x18 || c == 0x1a:
		p.state = ground
	case p.state == inOSC && len(p.text) <= maxOSC:
		p.text = append(p.text, c)
	}
}

func (p *parser) end(to sink) {
	kept := p.state == inOSC || p.state == stringEsc && p.back == inOSC
	p.state = ground
	if kept && len(p.text) <= maxOSC {
		to.osc(p.text)
	}
}
