package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

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
		fmt.Fprintf(&out, "[conch: %d escape sequences or unseeable characters were left out or written as \\xNN, \\u{N}; the structured result, or conch output and conch logs, are exact]\n", changed)
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
		text, n := frame.Plain(s.data)
		return frame.Clip(text, len(s.data)), n
	}
	head, n := frame.Plain(s.data[:s.omitted.Offset])
	tail, m := frame.Plain(s.data[s.omitted.Offset:])
	head, tail = frame.Clip(head, int(s.omitted.Offset)), frame.Clip(tail, len(s.data)-int(s.omitted.Offset))
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return fmt.Sprintf("%s[conch: %d of %d bytes left out here; %s]\n%s", head, s.omitted.Bytes, s.total, s.more, tail), n + m
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
