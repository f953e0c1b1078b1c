package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

var server = Server{Command: "conch", Args: []string{"mcp"}}

func place(t *testing.T) Place {
	dir := t.TempDir()
	return Place{Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "project"), GOOS: "linux", Getenv: func(string) string { return "" }}
}

func program(name string) Program {
	for _, g := range Programs() {
		if g.Name == name {
			return g
		}
	}
	panic(name)
}

// put writes a program's file.
func put(t *testing.T, g Program, p Place, text string) string {
	t.Helper()
	path := g.Path(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// do plans and makes a change, and gives what the file is then.
func do(t *testing.T, g Program, p Place, remove bool) string {
	t.Helper()
	c, err := Plan(g, p, server, remove)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Needed() {
		return get(t, g.Path(p))
	}
	before, _ := os.ReadFile(g.Path(p))
	backup, err := c.Apply()
	if err != nil {
		t.Fatal(err)
	}
	if (backup == "") != (before == nil) || backup != "" && get(t, backup) != string(before) {
		t.Errorf("the copy %q is not %q", backup, before)
	}
	return get(t, g.Path(p))
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, program, before, after, removed string }{
		{"no object", "claude", "{}", "{\n  \"mcpServers\": {\n    \"conch\": {\n      \"type\": \"stdio\",\n      \"command\": \"conch\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}", "{\n  \"mcpServers\": {\n  }\n}"},
		{"empty", "gemini", "", "{\n  \"mcpServers\": {\n    \"conch\": {\n      \"command\": \"conch\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n", "{\n  \"mcpServers\": {\n  }\n}\n"},
		{"only blanks", "gemini", " \n", " \n{\n  \"mcpServers\": {\n    \"conch\": {\n      \"command\": \"conch\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n", " \n{\n  \"mcpServers\": {\n  }\n}\n"},
		{"others, four blanks", "cursor", "{\n    \"theme\": 1.50,\n    \"mcpServers\": {\n        \"x\": {\"env\": {\"KEY\": \"secret\"}}\n    }\n}\n",
			"{\n    \"theme\": 1.50,\n    \"mcpServers\": {\n        \"conch\": {\n            \"command\": \"conch\",\n            \"args\": [\"mcp\"]\n        },\n        \"x\": {\"env\": {\"KEY\": \"secret\"}}\n    }\n}\n",
			"{\n    \"theme\": 1.50,\n    \"mcpServers\": {\n        \"x\": {\"env\": {\"KEY\": \"secret\"}}\n    }\n}\n"},
		{"tabs, CRLF, BOM", "vscode", "\xef\xbb\xbf{\r\n\t\"inputs\": []\r\n}\r\n",
			"\xef\xbb\xbf{\r\n\t\"servers\": {\r\n\t\t\"conch\": {\r\n\t\t\t\"type\": \"stdio\",\r\n\t\t\t\"command\": \"conch\",\r\n\t\t\t\"args\": [\"mcp\"]\r\n\t\t}\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n",
			"\xef\xbb\xbf{\r\n\t\"servers\": {\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n"},
		{"comments", "vscode", "// mine\n{ // all\n  /* a */ \"servers\": { // here\n    \"a\": {}, // one\n  },\n}\n",
			"// mine\n{ // all\n  /* a */ \"servers\": { // here\n    \"conch\": {\n      \"type\": \"stdio\",\n      \"command\": \"conch\",\n      \"args\": [\"mcp\"]\n    },\n    \"a\": {}, // one\n  },\n}\n",
			"// mine\n{ // all\n  /* a */ \"servers\": { // here\n    \"a\": {}, // one\n  },\n}\n"},
		{"a comment over lines behind the bracket", "vscode", "{ /* a\n b */\n  \"inputs\": [1 /* x */, 2,],\n}", "", ""},
		{"one line", "claude", `{"a":1,"mcpServers":{"x":{}},"z":[]}`, `{"a":1,"mcpServers":{"conch": {"type": "stdio","command": "conch","args": ["mcp"]}, "x":{}},"z":[]}`, `{"a":1,"mcpServers":{"x":{}},"z":[]}`},
		{"last of several", "claude", "{\n  \"mcpServers\": {\n    \"x\": {},\n    \"conch\": {\"command\": \"conch\", \"args\": [\"mcp\"]}\n  }\n}", "{\n  \"mcpServers\": {\n    \"x\": {},\n    \"conch\": {\"command\": \"conch\", \"args\": [\"mcp\"]}\n  }\n}", "{\n  \"mcpServers\": {\n    \"x\": {}\n  }\n}"},
		{"another path, with an environment", "claude", "{\n  \"mcpServers\": {\n    \"conch\": {\n      \"args\": [\"mcp\", \"--old\"],\n      \"env\": {\"CONCH_HOME\": \"/x\"},\n      \"command\": \"/old/conch\"\n    }\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"conch\": {\n      \"args\": [\"mcp\"],\n      \"env\": {\"CONCH_HOME\": \"/x\"},\n      \"command\": \"conch\"\n    }\n  }\n}", "{\n  \"mcpServers\": {\n  }\n}"},
		{"an entry without words", "claude", `{"mcpServers":{"conch":{}}}`, "", `{"mcpServers":{}}`},
		{"odd names", "claude", `{"mcp\u0053ervers":{"con\u0063h":{"command":"con\u0063h","args":["mcp"]}}}`, `{"mcp\u0053ervers":{"con\u0063h":{"command":"con\u0063h","args":["mcp"]}}}`, `{"mcp\u0053ervers":{}}`},
		{"toml, empty", "codex", "", "[mcp_servers.conch]\ncommand = \"conch\"\nargs = [\"mcp\"]\n", ""},
		{"toml", "codex", "model = \"x\" # why\n\n[mcp_servers.a]\ncommand = \"a\"", "model = \"x\" # why\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.conch]\ncommand = \"conch\"\nargs = [\"mcp\"]\n", "model = \"x\" # why\n\n[mcp_servers.a]\ncommand = \"a\"\n"},
		{"toml, CRLF", "codex", "model = \"x\"\r\n", "model = \"x\"\r\n\r\n[mcp_servers.conch]\r\ncommand = \"conch\"\r\nargs = [\"mcp\"]\r\n", "model = \"x\"\r\n"},
		{"toml, in the middle", "codex", "a = 1\n\n[mcp_servers.conch]\ncommand = \"/old\"\nargs = [\"mcp\"]\nenv = {A = \"b\"}\n\n[mcp_servers.conch.tools]\nx = 1\n\n# next\n[mcp_servers.z]\ncommand = \"z\"\n",
			"a = 1\n\n[mcp_servers.conch]\ncommand = \"conch\"\nargs = [\"mcp\"]\nenv = {A = \"b\"}\n\n[mcp_servers.conch.tools]\nx = 1\n\n# next\n[mcp_servers.z]\ncommand = \"z\"\n",
			"a = 1\n\n# next\n[mcp_servers.z]\ncommand = \"z\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, p := program(c.program), place(t)
			path := put(t, g, p, c.before)
			got := do(t, g, p, false)
			if c.after != "" && got != c.after {
				t.Errorf("installed:\n%q\nwant\n%q", got, c.after)
			}
			if again := do(t, g, p, false); again != got {
				t.Errorf("a second time:\n%s", again)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o640 {
				t.Errorf("mode %v, %v", fi.Mode(), err)
			}
			if got = do(t, g, p, true); c.after != "" && got != c.removed {
				t.Errorf("removed:\n%q\nwant\n%q", got, c.removed)
			}
			if again := do(t, g, p, true); again != got {
				t.Errorf("removed a second time:\n%s", again)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".conch-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// What cannot be understood is refused, with the path, and stays as it is.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, program, text, says string }{
		{"broken", "claude", "{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3: '}' or a comma is missing"},
		{"half", "gemini", `{"mcpServers": {`, "line 1, column 17"},
		{"a comment where none is read", "claude", "{\n  // no\n}", "line 2, column 3: a comment, which this program does not read"},
		{"a comma too much", "claude", `{"a": 1,}`, "line 1, column 9"},
		{"twice", "cursor", `{"mcpServers": {}, "mcpServers": {}}`, "stands there twice"},
		{"a list", "claude", `[]`, "not an object"},
		{"servers are a list", "vscode", `{"servers": []}`, `"servers" in it is not an object`},
		{"conch is a word", "claude", `{"mcpServers": {"conch": "x"}}`, "is not an object"},
		{"more", "claude", `{} {}`, "something follows the end"},
		{"a number", "claude", `{"a": 01}`, "is not a value"},
		{"a string", "claude", "{\"a\": \"x\ny\"}", "not a string"},
		{"a comment without an end", "vscode", "{ /* x", "without an end"},
		{"not UTF-8", "claude", "{\"a\": \"\xff\"}", "not UTF-8"},
		{"UTF-16", "cursor", "\xff\xfe{\x00}\x00", "not UTF-8"},
		{"toml", "codex", "a = 1\nb = \n", "line 2"},
		{"toml twice", "codex", "a = 1\na = 2\n", "line 2"},
		{"toml inline", "codex", "mcp_servers = {a = {command = \"a\"}}\n", "cannot be edited safely"},
		{"toml, a string like a heading", "codex", "x = '''\n[mcp_servers.conch]\ncommand = 1\n'''\nmcp_servers.conch.command = \"old\"\n", "cannot be edited safely"},
		{"toml, not a table", "codex", "mcp_servers = 1\n", "not a table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, p := program(c.program), place(t)
			path := put(t, g, p, c.text)
			_, err := Plan(g, p, server, false)
			e := conch.AsError(err)
			if err == nil || e.Kind != conch.InvalidConfig || !strings.Contains(e.Message, path) || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Message, "nothing was changed") {
				t.Errorf("%v", err)
			}
			if e != nil && e.HintText == "" {
				t.Errorf("%v has no hint", err)
			}
			if get(t, path) != c.text {
				t.Error("it was changed")
			}
		})
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	g, p := program("claude"), place(t)
	// Nothing there: made for the user alone, and nothing is to be removed.
	if c, err := Plan(g, p, server, true); err != nil || c.Needed() {
		t.Errorf("%v %v", c, err)
	}
	do(t, g, p, false)
	if fi, err := os.Stat(g.Path(p)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	// A project's is for all.
	p.Project = true
	do(t, g, p, false)
	if fi, err := os.Stat(filepath.Join(p.Dir, ".mcp.json")); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", fi, err)
	}
	// A link stays one, and what it names is changed.
	p = place(t)
	real := filepath.Join(p.Dir, "dotfiles", "claude.json")
	for _, d := range []string{p.Home, filepath.Dir(real)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(real, g.Path(p)); err != nil {
		t.Fatal(err)
	}
	if _, err := Plan(g, p, server, false); err == nil || !strings.Contains(err.Error(), "link to nothing") {
		t.Errorf("a dangling link: %v", err)
	}
	if err := os.WriteFile(real, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, g, p, false)
	if fi, err := os.Lstat(g.Path(p)); err != nil || fi.Mode()&os.ModeSymlink == 0 || !strings.Contains(get(t, real), `"conch"`) {
		t.Errorf("%v %v %s", fi, err, get(t, real))
	}
	// Read-only means it.
	p = place(t)
	path := put(t, g, p, "{}")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := Plan(g, p, server, false); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("read-only: %v", err)
	}
	// A directory is none.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Plan(g, p, server, false); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a directory: %v", err)
	}
	// Somebody was faster.
	p = place(t)
	path = put(t, g, p, "{}")
	c, err := Plan(g, p, server, false)
	if err != nil {
		t.Fatal(err)
	}
	put(t, g, p, `{"a": 1}`)
	if _, err := c.Apply(); err == nil || get(t, path) != `{"a": 1}` {
		t.Errorf("changed meanwhile: %v, %s", err, get(t, path))
	}
	p.Getenv = func(name string) string {
		return map[string]string{"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/d"}[name]
	}
	if a, b := g.Path(p), program("codex").Path(p); a != "/c/.claude.json" || b != "/d/config.toml" {
		t.Errorf("%s %s", a, b)
	}
}

// A diff shows what comes and goes, and nobody else's keys.
func TestDiff(t *testing.T) {
	t.Parallel()
	g, p := program("claude"), place(t)
	put(t, g, p, "{\n  \"mcpServers\": {\n    \"x\": {\"env\": {\"KEY\": \"secret\"}}\n  }\n}\n")
	c, err := Plan(g, p, server, false)
	if err != nil {
		t.Fatal(err)
	}
	want := "--- " + c.Path + "\n+++ " + c.Path + "\n@@ line 2 @@\n+    \"conch\": {\n+      \"type\": \"stdio\",\n+      \"command\": \"conch\",\n+      \"args\": [\"mcp\"]\n+    },\n"
	if got := c.Diff(); got != want {
		t.Errorf("%s", got)
	}
	put(t, g, p, `{"mcpServers":{"conch":{"command":"old","args":["mcp"]},"x":{"env":{"KEY":"secret"}}}}`)
	if c, err = Plan(g, p, server, false); err != nil {
		t.Fatal(err)
	}
	if got := c.Diff(); strings.Contains(got, "secret") || !strings.Contains(got, "-\"old\"\n+\"conch\"\n") {
		t.Errorf("%s", got)
	}
}

// Whatever a file holds: what encoding/json reads is read, with the same meaning, and a
// change leaves all but conch's entry as it was.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":null}],"mcpServers":{"conch":{"command":"x"}}}`, "{\n\t\"a\" : \"\\u00e4\\\"\" }", `{"mcpServers":{"x":{},"conch":{}}}`, "{/*a*/\"a\":1,}//b", `{"a":1e5,"b":-0}`, `[1,2`, "{\r\n  \"mcpServers\": {\r\n  }\r\n}"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, comments bool) {
		v, err := parse(text, comments)
		if !comments && (err == nil) && !json.Valid([]byte(text)) {
			t.Fatalf("%q was read", text)
		}
		if err != nil && json.Valid([]byte(text)) && !strings.Contains(err.Error(), "twice") && !strings.Contains(err.Error(), "levels") {
			t.Fatalf("%q was not read: %v", text, err)
		}
		if err == nil && json.Valid([]byte(text)) {
			dec := json.NewDecoder(strings.NewReader(text))
			dec.UseNumber()
			var want any
			if err := dec.Decode(&want); err != nil {
				t.Skip() // numbers out of range
			}
			if got := v.meaning(text); !reflect.DeepEqual(got, normal(want)) {
				t.Fatalf("%q means %v, want %v", text, got, want)
			}
		}
		for _, name := range []string{"claude", "vscode"} {
			g := program(name)
			if g.comments != comments {
				continue
			}
			edits, err := planJSON(text, g, server, false)
			if err != nil {
				continue
			}
			after := apply(text, edits)
			if again, err := planJSON(after, g, server, false); err != nil || len(again) > 0 {
				t.Fatalf("%q became %q: %v %v", text, after, again, err)
			}
			gone, err := planJSON(after, g, server, true)
			if err != nil {
				t.Fatalf("%q became %q, from which it cannot be removed: %v", text, after, err)
			}
			last := apply(after, gone)
			if strings.TrimSpace(text) != "" {
				if err := sameBut(text, last, g); err != nil {
					if _, perr := parse(text, g.comments); perr == nil {
						t.Fatalf("%q became %q: %v", text, last, err)
					}
				}
			}
		}
	})
}

// normal is what encoding/json makes of a value, in this package's words.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case nil:
		return json.Number("null")
	case bool:
		if v {
			return json.Number("true")
		}
		return json.Number("false")
	}
	return v
}
