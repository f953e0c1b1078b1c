package install

import (
	"encoding/json"
	"strings"
)

// A style is how a file is written: what ends its lines and what indents them.
type style struct{ eol, unit string }

func styleOf(text string) style {
	s := style{"\n", "  "}
	if i := strings.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		s.eol = "\r\n"
	}
	// The least that a line is indented by is one level.
	least := ""
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, " \t")
		blank := line[:len(line)-len(rest)]
		if blank != "" && rest != "" && strings.IndexByte("\"}]/", rest[0]) >= 0 && (least == "" || len(blank) < len(least)) {
			least = blank
		}
	}
	if strings.HasPrefix(least, "\t") {
		least = "\t"
	}
	if least != "" {
		s.unit = least
	}
	return s
}

// line begins a line at a level.
func (s style) line(level int) string { return s.eol + strings.Repeat(s.unit, level) }

// A field is a member that is to be written.
type field struct {
	key   string
	value any
}

// An entry is conch among a program's servers, and servers an object that has it alone.
type entry struct {
	Server
	kind string
}

type servers entry

func (e entry) fields() []field {
	list := []field{{"command", e.Command}, {"args", e.Args}}
	if e.kind != "" {
		list = append([]field{{"type", e.kind}}, list...)
	}
	return list
}

// member is a member at a level.
func (s style) member(key string, v any, level int) string {
	return quote(key) + ": " + s.value(v, level)
}

func (s style) value(v any, level int) string {
	var list []field
	switch v := v.(type) {
	case entry:
		list = v.fields()
	case servers:
		list = []field{{serverName, entry(v)}}
	case []string:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = quote(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return quote(v)
	}
	var b strings.Builder
	b.WriteString("{")
	for i, f := range list {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(s.line(level+1) + s.member(f.key, f.value, level+1))
	}
	return b.String() + s.line(level) + "}"
}

func quote(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(text) // a string can always be written
	return strings.TrimSuffix(b.String(), "\n")
}

// insert puts a member first into an object whose members are one level below level, so
// that no line of another is touched.
func (s style) insert(text string, v *value, level int, key string, val any) edit {
	at := v.start + 1
	if len(v.members) == 0 && !strings.Contains(text[at:v.end], "\n") {
		return edit{at, v.end - 1, s.line(level+1) + s.member(key, val, level+1) + s.line(level)}
	}
	comma := ","
	if len(v.members) == 0 {
		comma = ""
	}
	// A comment behind the bracket stays there.
	lineEnd := len(text)
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		lineEnd = at + i
	}
	if len(v.members) > 0 && v.members[0].start < lineEnd {
		// All on one line, and so is this.
		return edit{at, at, style{}.member(key, val, 0) + ", "}
	}
	if lineEnd > at && text[lineEnd-1] == '\r' {
		lineEnd--
	}
	if strings.Contains(text[at:lineEnd], "/*") && !strings.Contains(text[at:lineEnd], "*/") {
		lineEnd = at // the comment goes on over the line's end
	}
	return edit{lineEnd, lineEnd, s.line(level+1) + s.member(key, val, level+1) + comma}
}
