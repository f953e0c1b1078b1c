package install

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/conchsh/conch"
)

// A value is one of a JSON text, and where it stands.
type value struct {
	start, end int
	kind       byte // '{', '[', '"', or another first character
	members    []member
	items      []*value
}

// A member is one of an object. comma is where the comma after it stands; -1: none does.
type member struct {
	key   string
	start int
	value *value
	comma int
}

func (v *value) get(key string) *value {
	for _, m := range v.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// A parser reads JSON, and if comments are allowed also // and /* */ and a comma after
// the last of a list.
type parser struct {
	text     string
	at       int
	comments bool
	depth    int
}

func parse(text string, comments bool) (*value, error) {
	p := &parser{text: text, comments: comments}
	if err := p.blank(); err != nil {
		return nil, err
	}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if err := p.blank(); err != nil {
		return nil, err
	}
	if p.at < len(p.text) {
		return nil, p.wrong("something follows the end")
	}
	return v, nil
}

func (p *parser) wrong(format string, args ...any) error {
	before := p.text[:min(p.at, len(p.text))]
	line := 1 + strings.Count(before, "\n")
	column := 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	return conch.Errorf(conch.InvalidConfig, "line %d, column %d: %s", line, column, fmt.Sprintf(format, args...)).
		Hint("mend it there, or move the file away to begin anew")
}

// blank skips what means nothing.
func (p *parser) blank() error {
	for p.at < len(p.text) {
		switch rest := p.text[p.at:]; {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			p.at++
		case !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "/*"):
			return nil
		case !p.comments:
			return p.wrong("a comment, which this program does not read")
		case rest[1] == '/':
			if i := strings.IndexByte(rest, '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.text)
			}
		default:
			i := strings.Index(rest[2:], "*/")
			if i < 0 {
				return p.wrong("a comment without an end")
			}
			p.at += i + 4
		}
	}
	return nil
}

func (p *parser) peek() byte {
	if p.at >= len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) value() (*value, error) {
	if p.depth++; p.depth > 1000 {
		return nil, p.wrong("more than 1000 levels")
	}
	defer func() { p.depth-- }()
	v := &value{start: p.at, kind: p.peek()}
	var err error
	switch v.kind {
	case 0:
		return nil, p.wrong("it ends where a value should be")
	case '{':
		err = p.list('}', func() error { return p.member(v) }, func(comma int) { v.members[len(v.members)-1].comma = comma })
	case '[':
		err = p.list(']', func() error {
			item, err := p.value()
			v.items = append(v.items, item)
			return err
		}, func(int) {})
	case '"':
		_, err = p.str()
	default:
		end := strings.IndexAny(p.text[p.at:], " \t\r\n,:{}[]\"/")
		if end < 0 {
			end = len(p.text) - p.at
		}
		if end == 0 || !json.Valid([]byte(p.text[p.at:p.at+end])) {
			return nil, p.wrong("%.20q is not a value", p.text[p.at:])
		}
		p.at += end
	}
	v.end = p.at
	return v, err
}

// list reads what stands between brackets, with commas between.
func (p *parser) list(closing byte, one func() error, comma func(at int)) error {
	p.at++
	for first := true; ; first = false {
		if err := p.blank(); err != nil {
			return err
		}
		if p.peek() == closing && (first || p.comments) {
			p.at++
			return nil
		}
		if err := one(); err != nil {
			return err
		}
		if err := p.blank(); err != nil {
			return err
		}
		switch p.peek() {
		case closing:
			p.at++
			return nil
		case ',':
			comma(p.at)
			p.at++
		default:
			return p.wrong("%q or a comma is missing", closing)
		}
	}
}

func (p *parser) member(v *value) error {
	m := member{start: p.at, comma: -1}
	if p.peek() != '"' {
		return p.wrong("a name in quotes is missing")
	}
	var err error
	if m.key, err = p.str(); err != nil {
		return err
	}
	if slices.ContainsFunc(v.members, func(o member) bool { return o.key == m.key }) {
		p.at = m.start
		return p.wrong("%.40q stands there twice", m.key)
	}
	if err := p.blank(); err != nil {
		return err
	}
	if p.peek() != ':' {
		return p.wrong("a colon is missing")
	}
	p.at++
	if err := p.blank(); err != nil {
		return err
	}
	m.value, err = p.value()
	v.members = append(v.members, m)
	return err
}

func (p *parser) str() (string, error) {
	for i := p.at + 1; i < len(p.text); i++ {
		switch p.text[i] {
		case '\\':
			i++
		case '"':
			var s string
			if err := json.Unmarshal([]byte(p.text[p.at:i+1]), &s); err != nil {
				return "", p.wrong("not a string")
			}
			p.at = i + 1
			return s, nil
		}
	}
	return "", p.wrong("a string without an end")
}

// meaning is a value without its looks.
func (v *value) meaning(text string) any {
	switch v.kind {
	case '{':
		m := map[string]any{}
		for _, o := range v.members {
			m[o.key] = o.value.meaning(text)
		}
		return m
	case '[':
		list := []any{}
		for _, i := range v.items {
			list = append(list, i.meaning(text))
		}
		return list
	case '"':
		var s string
		json.Unmarshal([]byte(text[v.start:v.end]), &s) // it was read before
		return s
	}
	return json.Number(text[v.start:v.end]) // numbers as they are written; true, false, null
}

// planJSON edits a text so that servers have conch, or do not.
func planJSON(text string, g Program, s Server, remove bool) ([]edit, error) {
	blank := parser{text: text, comments: g.comments}
	if err := blank.blank(); err != nil {
		return nil, err
	}
	style := styleOf(text)
	if blank.at == len(text) {
		if remove {
			return nil, nil
		}
		// A program's own file without a word in it.
		doc := "{" + style.line(1) + style.member(g.key, servers{s, g.kind}, 1) + style.eol + "}" + style.eol
		at := len(text)
		if text != "" && !strings.HasSuffix(text, "\n") {
			doc = style.eol + doc
		}
		return []edit{{at, at, doc}}, nil
	}
	root, err := parse(text, g.comments)
	if err != nil {
		return nil, err
	}
	if root.kind != '{' {
		return nil, conch.Errorf(conch.InvalidConfig, "it is not an object").Hint("move it away to begin anew")
	}
	list := root.get(g.key)
	if list != nil && list.kind != '{' {
		return nil, conch.Errorf(conch.InvalidConfig, "%q in it is not an object", g.key).Hint("mend it there")
	}
	var edits []edit
	switch {
	case remove && (list == nil || list.get(serverName) == nil):
		return nil, nil
	case remove:
		edits = cut(text, list, serverName)
	case list == nil:
		edits = []edit{style.insert(text, root, 0, g.key, servers{s, g.kind})}
	case list.get(serverName) == nil:
		edits = []edit{style.insert(text, list, 1, serverName, entry{s, g.kind})}
	default:
		if edits, err = mend(text, style, list.get(serverName), entry{s, g.kind}); err != nil {
			return nil, err
		}
	}
	return edits, sameBut(text, apply(text, edits), g)
}

// serverName is what conch is called among servers.
const serverName = "conch"

// sameBut looks that a change has changed conch's entry and nothing else.
func sameBut(before, after string, g Program) error {
	without := func(text string) (any, error) {
		v, err := parse(text, g.comments)
		if err != nil {
			return nil, err
		}
		m := v.meaning(text).(map[string]any)
		if list, ok := m[g.key].(map[string]any); ok {
			delete(list, serverName)
			if len(list) == 0 {
				delete(m, g.key)
			}
		}
		return m, nil
	}
	a, err := without(before)
	if err != nil {
		return err
	}
	b, err := without(after)
	if err != nil || !reflect.DeepEqual(a, b) {
		return conch.Errorf(conch.InvalidConfig, "the change would change more than conch's entry (%v)", err).Hint("add it by hand: conch mcp --help")
	}
	return nil
}

// mend gives an entry that is there the command and the arguments it should have. What
// else it says stays.
func mend(text string, style style, v *value, e entry) (edits []edit, err error) {
	if v.kind != '{' {
		return nil, conch.Errorf(conch.InvalidConfig, "its entry %q is not an object", serverName).Hint("remove it there")
	}
	if len(v.members) == 0 {
		return []edit{{v.start, v.end, style.value(e, 2)}}, nil
	}
	for _, f := range e.fields() {
		have := v.get(f.key)
		switch {
		case have == nil && f.key == "type":
			// A program that knows servers of one type only.
		case have == nil:
			edits = append(edits, style.insert(text, v, 2, f.key, f.value))
			if len(edits) > 1 && edits[0].at == edits[1].at {
				edits[0].text += edits[1].text
				edits = edits[:1]
			}
		default:
			want, _ := json.Marshal(f.value)
			parsed, err := parse(string(want), false)
			if err != nil {
				return nil, err
			}
			if !reflect.DeepEqual(have.meaning(text), parsed.meaning(string(want))) {
				edits = append(edits, edit{have.start, have.end, style.value(f.value, 3)})
			}
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.at - b.at })
	return edits, nil
}

// cut removes a member with what belongs to it.
func cut(text string, v *value, key string) []edit {
	i := slices.IndexFunc(v.members, func(m member) bool { return m.key == key })
	m := v.members[i]
	start := m.start
	if line := strings.LastIndexByte(text[:start], '\n'); line >= 0 && strings.Trim(text[line:start], " \t\r\n") == "" {
		if start = line; start > 0 && text[start-1] == '\r' {
			start--
		}
	}
	if m.comma >= 0 {
		end := m.comma + 1
		if start == m.start { // within a line: the blank that follows goes too
			for end < len(text) && (text[end] == ' ' || text[end] == '\t') {
				end++
			}
		}
		return []edit{{start, end, ""}}
	}
	edits := []edit{{start, m.value.end, ""}}
	if i > 0 {
		c := v.members[i-1].comma
		edits = append([]edit{{c, c + 1, ""}}, edits...)
	}
	return edits
}
