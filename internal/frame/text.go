package frame

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes a command's output fit to be read by a model: valid UTF-8, escape
// sequences left out, and every other character that cannot be seen written out, so
// that what is read is what is there. Newlines and tabs stay; a carriage return
// becomes a newline. It counts what it changed. The exact bytes are in the structured
// result.
func Plain(b []byte) (text string, changed int) {
	var out strings.Builder
	out.Grow(len(b))
	var before, symbol rune // the character before, and the one whose look it may only choose
	for len(b) > 0 {
		if n := escape(b); n > 0 {
			changed++
			b = b[n:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '\n' || r == '\t':
			out.WriteByte(b[0])
		case r == '\r':
			// Before a newline it is only another system's line end. Alone it has
			// the next text overwrite this; here both are shown.
			if len(b) < 2 || b[1] != '\n' {
				out.WriteByte('\n')
				changed++
			}
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, b[0])
			changed++
		case visible(r) || r == emojiLook && looks(before, first(b[n:])) || r == joiner && joins(symbol) && joins(first(b[n:])):
			out.Write(b[:n])
		default:
			fmt.Fprintf(&out, `\u{%x}`, r)
			changed++
		}
		if before = r; r != emojiLook {
			symbol = r
		}
		b = b[n:]
	}
	return out.String(), changed
}

// The two that are part of how an emoji is written.
const (
	joiner    = '\u200d'
	emojiLook = '\ufe0f'
)

// visible says whether a character may stand as it is. Those that cannot be seen can
// hide text from people or turn it round: controls, bidirectional marks, tags, the
// choices between a character's looks, and letters that are blank.
func visible(r rune) bool {
	switch {
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef, // variation selectors
		r >= 0x180b && r <= 0x180f, // Mongolian ones, and its vowel separator
		r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0:
		return false
	}
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r)
}

// joins says whether a character can be part of an emoji of several: symbols, and the
// colours of skin.
func joins(r rune) bool {
	return r > 0x7f && unicode.In(r, unicode.So, unicode.Sm, unicode.Sk)
}

// looks says whether a character has a look as an emoji: symbols, two punctuation marks,
// and what stands on a key, before the key around it.
func looks(r, next rune) bool {
	const key = '\u20e3'
	return joins(r) || r == '‼' || r == '⁉' || next == key && (r >= '0' && r <= '9' || r == '#' || r == '*')
}

func first(b []byte) rune {
	r, _ := utf8.DecodeRune(b)
	return r
}

// longest is how far an escape sequence is followed that does not end.
const longest = 4096

// escape gives the length of the escape sequence that b begins with, 0 if it begins
// with none. One that does not end within the limit is its first byte.
func escape(b []byte) int {
	if b[0] != 0x1b {
		return 0
	}
	if len(b) == 1 {
		return 1
	}
	limit := min(len(b), longest)
	switch b[1] {
	case '[': // CSI: parameters, intermediates, one final byte
		for i := 2; i < limit; i++ {
			switch c := b[i]; {
			case c >= 0x40 && c <= 0x7e:
				return i + 1
			case c < 0x20 || c > 0x7e:
				return i // broken off; what broke it is not its part
			}
		}
		return limit
	case ']', 'P', 'X', '^', '_': // strings: to BEL or ST
		for i := 2; i < limit; i++ {
			switch {
			case b[i] == 0x07:
				return i + 1
			case b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\':
				return i + 2
			case b[i] == '\n', b[i] == 0x1b:
				return i // a terminal would swallow on; a reader must not lose lines
			}
		}
		if limit == len(b) {
			return limit
		}
		return 2
	}
	for i := 1; i < limit; i++ { // intermediates, one final byte
		switch c := b[i]; {
		case c >= 0x20 && c <= 0x2f:
		case c >= 0x30 && c <= 0x7e:
			return i + 1
		default:
			return i
		}
	}
	return limit
}

// Clip cuts a text in the middle that writing out bytes has made much longer than the
// size that was asked for: nobody reads pages of them.
func Clip(text string, size int) string {
	const slack = 2000
	if len(text) <= size+slack {
		return text
	}
	half := (size + slack) / 2
	head, tail := text[:half], text[len(text)-half:]
	for !utf8.ValidString(head) {
		head = head[:len(head)-1]
	}
	for !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return fmt.Sprintf("%s\n[conch: %d characters, mostly bytes written out, left out here]\n%s",
		head, len(text)-len(head)-len(tail), tail)
}

// OneLine is text for the middle of a sentence.
func OneLine(s string, limit int) string {
	s, _ = Plain([]byte(s))
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}
