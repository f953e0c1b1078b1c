package install

import (
	"errors"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/conchsh/conch"
)

// planTOML edits a text so that the table of servers has conch, or does not. A table is
// added at the end, and removed from its heading to the next one.
func planTOML(text string, g Program, s Server, remove bool) ([]edit, error) {
	doc, err := readTOML(text)
	if err != nil {
		return nil, err
	}
	list, _ := doc[g.key].(map[string]any)
	if doc[g.key] != nil && list == nil {
		return nil, conch.Errorf(conch.InvalidConfig, "%s in it is not a table", g.key).Hint("mend it there")
	}
	have, there := list[serverName].(map[string]any)
	if !there && list[serverName] != nil {
		return nil, conch.Errorf(conch.InvalidConfig, "%s.%s in it is not a table", g.key, serverName).Hint("mend it there")
	}
	want := map[string]any{"command": s.Command, "args": anySlice(s.Args)}
	style := styleOf(text)
	var edits []edit
	switch {
	case remove && !there:
		return nil, nil
	case remove:
		edits = cutTable(text, g.key+"."+serverName)
	case !there && inlined(text, g.key):
		// Nothing can be added to a table on one line; the parser here lets it pass,
		// others do not.
	case !there:
		table := "[" + g.key + "." + serverName + "]" + style.eol + tomlLines(s, style.eol)
		if text != "" {
			table = style.eol + table
			if !strings.HasSuffix(text, "\n") {
				table = style.eol + table
			}
		}
		edits = []edit{{len(text), len(text), table}}
	case reflect.DeepEqual(have["command"], want["command"]) && reflect.DeepEqual(have["args"], want["args"]):
		return nil, nil
	default:
		edits = mendTable(text, g.key+"."+serverName, s, style)
	}
	// The text is edited by its lines, which strings of several lines can look like: so
	// what came of it is read again and compared.
	now, err := readTOML(apply(text, edits))
	same := err == nil && len(edits) > 0
	if same {
		nowList, _ := now[g.key].(map[string]any)
		got, _ := nowList[serverName].(map[string]any)
		same = remove == (got == nil) && (remove || reflect.DeepEqual(got["command"], want["command"]) && reflect.DeepEqual(got["args"], want["args"]))
		if same && got != nil && have != nil {
			for _, m := range []map[string]any{got, have} {
				delete(m, "command")
				delete(m, "args")
			}
			same = reflect.DeepEqual(got, have)
		}
		for _, m := range []map[string]any{doc, now} {
			if l, ok := m[g.key].(map[string]any); ok {
				delete(l, serverName)
				if len(l) == 0 {
					delete(m, g.key)
				}
			}
		}
		same = same && reflect.DeepEqual(doc, now)
	}
	if !same {
		return nil, conch.Errorf(conch.InvalidConfig, "%s.%s is written in a way that cannot be edited safely", g.key, serverName).
			Hint("by hand: [%s.%s] with command = %s and args = %s", g.key, serverName, quote(s.Command), style.value(s.Args, 0))
	}
	return edits, nil
}

func readTOML(text string) (map[string]any, error) {
	doc := map[string]any{}
	_, err := toml.Decode(text, &doc)
	if err == nil {
		return doc, nil
	}
	var at toml.ParseError
	if errors.As(err, &at) {
		return nil, conch.Errorf(conch.InvalidConfig, "line %d: %s", at.Position.Line, at.Message).Hint("mend it there, or move the file away to begin anew")
	}
	return nil, conch.Errorf(conch.InvalidConfig, "%v", err).Hint("mend it, or move the file away to begin anew")
}

func anySlice(list []string) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// tomlLines is a server's table without its heading. What JSON quotes is a basic string
// of TOML as well.
func tomlLines(s Server, eol string) string {
	return "command = " + quote(s.Command) + eol + "args = " + style{}.value(s.Args, 0) + eol
}

// inlined reports whether a key could be given a value, a table on one line.
func inlined(text, key string) bool {
	for line := range strings.Lines(text) {
		if k, _, ok := strings.Cut(line, "="); ok && strings.Trim(k, " \t\"'") == key {
			return true
		}
	}
	return false
}

// heading is the name of the table that a line begins; "": it begins none.
func heading(line string) string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") {
		return ""
	}
	name, _, ok := strings.Cut(strings.TrimLeft(line, "["), "]")
	if !ok {
		return ""
	}
	return strings.NewReplacer(" ", "", "\t", "", `"`, "", "'", "").Replace(name)
}

// cutTable removes a table and those below it, with the blank line before it. Comments
// and blank lines at its end are the next one's.
func cutTable(text, name string) (edits []edit) {
	at, start, last := 0, -1, 0
	for line := range strings.Lines(text) {
		if h := heading(line); h != "" {
			mine := h == name || strings.HasPrefix(h, name+".")
			switch {
			case start >= 0 && !mine:
				edits = append(edits, edit{start, last, ""})
				start = -1
			case start < 0 && mine:
				start = at
				for _, blank := range []string{"\n\r\n", "\n\n"} {
					if strings.HasSuffix(text[:start], blank) {
						start -= len(blank) - 1
						break
					}
				}
			}
		}
		at += len(line)
		if word := strings.TrimSpace(line); word != "" && word[0] != '#' {
			last = at
		}
	}
	if start >= 0 {
		edits = append(edits, edit{start, last, ""})
	}
	return edits
}

// mendTable replaces command and args in a table, each on one line.
func mendTable(text, name string, s Server, style style) (edits []edit) {
	at, inside := 0, false
	for line := range strings.Lines(text) {
		if h := heading(line); h != "" {
			inside = h == name
		}
		key, _, _ := strings.Cut(line, "=")
		body := len(strings.TrimRight(line, "\r\n"))
		switch key = strings.TrimSpace(key); {
		case inside && key == "command":
			edits = append(edits, edit{at, at + body, "command = " + quote(s.Command)})
		case inside && key == "args":
			edits = append(edits, edit{at, at + body, "args = " + style.value(s.Args, 0)})
		}
		at += len(line)
	}
	return edits
}
