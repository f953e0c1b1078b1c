package mcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conchsh/conch/internal/conchtest"
)

// What differs from run to run: ids, marks, times.
var varying = regexp.MustCompile(`\b[a-z2-7]{8}-\d+\b|\b[0-9a-v]{24}\b|\b[0-9a-f]{32}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\b|\b\d+(\.\d+)?(µs|ms|s)\b|\bpid \d+`)

// A called line of a transcript: [session] tool {arguments}, or [session] and what a
// call before it, which waited, comes back with.
var called = regexp.MustCompile(`^\[(claude:\d)\] (\w+) (\{.*\}|returns)$`)

// The transcripts of README are what the program says: every call in them is made, by
// two servers, and its text compared. Where this fails it shows what to write.
func TestReadmeTranscript(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repo, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## For agents\n")
	section, _, _ = strings.Cut(section, "\n## ")
	h := conchtest.New(t)
	if err := os.WriteFile(filepath.Join(h.Work, "api.conf"), []byte("listen 8081\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	peers := map[string]*peer{}
	for label, id := range map[string]string{"claude:1": "one", "claude:2": "two"} {
		peers[label] = connectAs(h.With("CLAUDE_CODE_SESSION_ID="+id, "CONCH_SESSION="+label), "claude-code", withInitialize)
		peers[label].try("whoami", nil)
	}
	waiting := map[string]chan result{}
	real := map[string]string{} // what varies, as README has it: as it is here
	calls := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(\\[.*?)```").FindAllStringSubmatch(section, -1) {
		lines := strings.Split(strings.TrimRight(block[1], "\n"), "\n")
		for i := 0; i < len(lines); {
			m := called.FindStringSubmatch(lines[i])
			if m == nil {
				t.Fatalf("not a call: %q", lines[i])
			}
			var want []string
			for i++; i < len(lines) && !called.MatchString(lines[i]); i++ {
				want = append(want, lines[i])
			}
			label, tool := m[1], m[2]
			expected := strings.TrimRight(strings.Join(want, "\n"), "\n")
			calls++
			var got result
			if m[3] == "returns" {
				got = <-waiting[label]
			} else {
				text := strings.ReplaceAll(m[3], "/srv/app", h.Work)
				for as, is := range real {
					text = strings.ReplaceAll(text, as, is)
				}
				var a args
				if err := json.Unmarshal([]byte(text), &a); err != nil {
					t.Fatalf("%s: %v", lines[i-1], err)
				}
				if expected == "" { // it comes back later
					waiting[label] = make(chan result, 1)
					go func() { waiting[label] <- peers[label].try(tool, a) }()
					until(t, "the other has it", func() bool { return h.Session("claude:2").Mail == 1 })
					continue
				}
				got = peers[label].try(tool, a)
			}
			actual := strings.TrimRight(strings.ReplaceAll(got.text, h.Work, "/srv/app"), "\n")
			if varying.ReplaceAllString(actual, "~") != varying.ReplaceAllString(expected, "~") {
				t.Errorf("[%s] %s %s says\n%s\nand README has\n%s", label, tool, m[3], actual, expected)
				continue
			}
			as, is := varying.FindAllString(expected, -1), varying.FindAllString(actual, -1)
			for i := range as {
				real[as[i]] = is[i]
			}
		}
	}
	if calls < 8 {
		t.Errorf("README has %d calls", calls)
	}
}
