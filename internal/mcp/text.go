package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// plain makes a command's output fit to be read by a model: valid UTF-8, escape
// sequences left out, and every other character that cannot be seen written out, so
// that what is read is what is there. Newlines and tabs stay; a carriage return
// becomes a newline. It counts what it changed. The exact bytes are in the structured
// result.
func plain(b []byte) (text string, changed int) {
	var out strings.Builder
	out.Grow(len(b))
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
		case visible(r):
			out.Write(b[:n])
		default:
			fmt.Fprintf(&out, `\u{%x}`, r)
			changed++
		}
		b = b[n:]
	}
	return out.String(), changed
}

// visible says whether a character may stand as it is. Those that cannot be seen can
// hide text from people or turn it round: controls, bidirectional marks, tags. The
// joiner is let through for what is written with it, emoji and several scripts.
func visible(r rune) bool {
	const joiner = '\u200d'
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) || r == joiner
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

// A section is one stream of a result as text.
type section struct {
	name    string
	data    []byte
	total   int64          // bytes of the whole stream
	omitted *conch.Omitted // what data leaves out of it
	more    string         // how to read what is left out
}

// render writes the streams of a result below its head: stdout bare, stderr behind a
// mark. The mark is one that the text before it does not hold, so that output cannot
// pass for the other stream.
func render(head string, sections ...section) string {
	var out strings.Builder
	out.WriteString(strings.TrimRight(head, "\n"))
	out.WriteByte('\n')
	changed := 0
	for i, s := range sections {
		if len(s.data) == 0 && s.omitted == nil {
			continue
		}
		text, n := cutText(s)
		changed += n
		if i > 0 || s.name != "stdout" {
			out.WriteString(mark(s.name, out.String(), text) + "\n")
		}
		out.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			out.WriteByte('\n')
		}
	}
	if changed > 0 {
		fmt.Fprintf(&out, "[conch: %d escape sequences or unseeable characters were left out or written as \\xNN, \\u{N}; the structured result is exact]\n", changed)
	}
	return out.String()
}

// mark is the line in front of a stream.
func mark(name string, texts ...string) string {
	for n := 0; ; n++ {
		m := "--- " + name + " ---"
		if n > 0 {
			m = fmt.Sprintf("--- %s (%d) ---", name, n)
		}
		free := true
		for _, t := range texts {
			free = free && !strings.Contains(t, m)
		}
		if free {
			return m
		}
	}
}

// cutText is a section's text, with a line where something is left out.
func cutText(s section) (string, int) {
	if s.omitted == nil || s.omitted.Offset > int64(len(s.data)) {
		text, n := plain(s.data)
		return clip(text, len(s.data)), n
	}
	head, n := plain(s.data[:s.omitted.Offset])
	tail, m := plain(s.data[s.omitted.Offset:])
	head, tail = clip(head, int(s.omitted.Offset)), clip(tail, len(s.data)-int(s.omitted.Offset))
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return fmt.Sprintf("%s[conch: %d of %d bytes left out here; %s]\n%s", head, s.omitted.Bytes, s.total, s.more, tail), n + m
}

// clip cuts a text in the middle that writing out bytes has made much longer than the
// size that was asked for: nobody reads pages of them.
func clip(text string, size int) string {
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
	return fmt.Sprintf("%s\n[conch: %d characters, mostly bytes written out, left out here; the structured result is exact]\n%s",
		head, len(text)-len(head)-len(tail), tail)
}

// decode gives the bytes of two streams as they come in results and pages.
func decode(encoding, stdout, stderr string) (out, errs []byte) {
	if encoding != "base64" {
		return []byte(stdout), []byte(stderr)
	}
	out, _ = base64.StdEncoding.DecodeString(stdout)
	errs, _ = base64.StdEncoding.DecodeString(stderr)
	return out, errs
}

// encode is the other way round: text where both are, else base64 for both.
func encode(out, errs []byte) (encoding, stdout, stderr string) {
	if utf8.Valid(out) && utf8.Valid(errs) {
		return "utf-8", string(out), string(errs)
	}
	return "base64", base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errs)
}

// lastLines is the end of b: at most n lines and size bytes, whole characters.
func lastLines(b []byte, n, size int) []byte {
	if len(b) > size {
		b = b[len(b)-size:]
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	end := len(b)
	if end > 0 && b[end-1] == '\n' {
		end--
	}
	for ; n > 0; n-- {
		i := bytes.LastIndexByte(b[:end], '\n')
		if i < 0 {
			return b
		}
		end = i
	}
	return b[end+1:]
}

// oneLine is text for the middle of a sentence.
func oneLine(s string, limit int) string {
	s, _ = plain([]byte(s))
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}
