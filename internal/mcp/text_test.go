package mcp

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

// Whatever is written, the text can be read and acts on nobody.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"\x1b[31mx", "\x1b]52;c;eA==\x07", "\xff\x1b", "\u202e\r\n", "a\x1bP\x1b\\", "--- stderr ---\n"} {
		f.Add([]byte(s), []byte("e"))
	}
	f.Fuzz(func(t *testing.T, out, errs []byte) {
		for _, b := range [][]byte{out, errs} {
			text, _ := frame.Plain(b)
			if !utf8.ValidString(text) || len(text) > 10*len(b) {
				t.Fatalf("%q became %q", b, text)
			}
			for _, r := range text {
				if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
					t.Fatalf("%q holds %U", text, r)
				}
			}
			if lines := strings.Count(string(b), "\n"); strings.Count(text, "\n") < lines {
				t.Fatalf("%q lost lines: %q", b, text)
			}
		}
		// The last mark is the real one: nothing in front of it is the same.
		whole := render("exit 0", section{name: "stdout", data: out}, section{name: "stderr", data: errs})
		if len(errs) > 0 {
			text, _ := frame.Plain(errs)
			before, _ := frame.Plain(out)
			if len(text) > len(errs)+2000 || len(before) > len(out)+2000 {
				return // clipped
			}
			m := mark("stderr", "exit 0\n"+before, text)
			if strings.Contains(before, m) || strings.Contains(text, m) || strings.Count(whole, m+"\n") != 1 {
				t.Fatalf("the mark %q stands more than once in %q", m, whole)
			}
		}
	})
}

// A program's bytes as text do not cost a model much more than they are.
func TestBinaryIsClipped(t *testing.T) {
	data := make([]byte, 16_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, s := range []section{
		{name: "stdout", data: data, total: 16_000},
		{name: "stdout", data: data, total: 1 << 30, omitted: &conch.Omitted{Offset: 8000, Bytes: 1<<30 - 16_000}, more: "more"},
	} {
		text := render("exit 0", s)
		if len(text) > 22_000 || !utf8.ValidString(text) || !strings.Contains(text, "written out, left out here") {
			t.Errorf("%d bytes", len(text))
		}
	}
	long := strings.Repeat("ä", 8000)
	if got := render("exit 0", section{name: "stdout", data: []byte(long), total: 16_000}); got != "exit 0\n"+long+"\n" {
		t.Errorf("text was cut: %d bytes", len(got))
	}
}

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		size int
		want string
	}{
		{"", 3, 10, ""}, {"a", 3, 10, "a"}, {"a\nb\nc\n", 2, 10, "b\nc\n"}, {"a\nb\nc", 2, 10, "b\nc"},
		{"a\n\n\n", 2, 10, "\n\n"}, {"abcdef", 1, 3, "def"}, {"äöü", 1, 3, "ü"}, {"x\ny", 9, 9, "x\ny"},
	} {
		if got := string(lastLines([]byte(c.in), c.n, c.size)); got != c.want {
			t.Errorf("the last %d of %q: %q, want %q", c.n, c.in, got, c.want)
		}
	}
}

func TestHarnessName(t *testing.T) {
	for in, want := range map[string]string{
		"claude-code": "claude", "codex-mcp-client": "codex", "Visual Studio Code": "visual", "gemini-cli-mcp-client": "gemini",
		"": "", "///": "", "日本": "", strings.Repeat("x", 99): strings.Repeat("x", 20),
	} {
		if got := harnessName(in); got != want {
			t.Errorf("%q is called %q, want %q", in, got, want)
		}
	}
}

// A tool without a scope would be nobody's over HTTP.
func TestEveryToolHasAScope(t *testing.T) {
	for _, tool := range tools() {
		if tool.scope == "" {
			t.Errorf("%s has none", tool.name)
		}
		for _, one := range strings.Fields(tool.scope) {
			if one != "read" && one != "exec" && one != "mail" {
				t.Errorf("%s: there is no scope %q", tool.name, one)
			}
		}
		if tool.scope == "read" && !tool.readOnly {
			t.Errorf("%s may be used by who only reads, and is not marked so", tool.name)
		}
	}
}
