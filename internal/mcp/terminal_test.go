package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/conchtest"
)

type shown struct {
	ID         conch.ProcessID
	Session    string
	Lines      []string
	Cols, Rows int
	Cursor     conch.ScreenCursor
	Alternate  bool
	Still      *bool
	Title      string
}

// A full-screen program is started, looked at, typed into and left, all by tools.
func TestTerminal(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := connect(h, revision)
		// A program that takes single keys, on the alternate screen, in bash alone.
		script := `printf '\033[?1049h\033]0;keys\007'; stty raw -echo
			while k=$(head -c1 | od -An -tx1); k=${k// }; [ "$k" != 71 ]; do printf 'got %s\r\n' "$k"; done
			stty sane; printf '\033[?1049lbye\n'`
		if err := os.WriteFile(filepath.Join(h.Work, "keys.sh"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		var pr conch.Process
		out := p.ok(&pr, "shell_start", args{"command": "bash keys.sh", "name": "keys", "tty": true})
		has(t, out.text, "started "+string(pr.ProcessID), "shell_screen")
		var s shown
		screen := func(want string) string {
			t.Helper()
			var text string
			until(t, "the screen has "+want, func() bool {
				text = p.ok(&s, "shell_screen", args{"id": "keys"}).text
				return strings.Contains(text, want)
			})
			return text
		}
		has(t, screen("full-screen"), "screen 80x24", "cursor row 0, column 0", "title keys", "(the screen is empty)")
		if !s.Alternate || s.Cols != 80 || s.Rows != 24 || s.Still == nil || s.Title != "keys" || s.ID != pr.ProcessID {
			t.Errorf("%+v", s)
		}
		p.ok(nil, "shell_input", args{"id": "keys", "text": "a\n", "keys": []string{"up", "ctrl-c", "<C-x>", "Escape", "b", "<", "shift-tab"}})
		// A, Enter as a terminal sends it, CSI A, ETX, CAN, ESC, b, <, CSI Z
		screen("got 5a")
		got := strings.Join(s.Lines, " ")
		if want := "got 61 got 0d got 1b got 5b got 41 got 03 got 18 got 1b got 62 got 3c got 1b got 5b got 5a"; got != want {
			t.Errorf("the program got %q, want %q", got, want)
		}
		if s.Cursor.Row != 13 || !*s.Still {
			t.Errorf("%+v", s)
		}
		// The session's label means its one program on a terminal.
		has(t, p.ok(nil, "shell_screen", args{"id": "codex:1"}).text, "got 5a")
		// A word that is no key is refused before anything is typed.
		for _, k := range []string{"hello", ":wq", "ctrl-", "", "no such", "hyper-x", "<nothing>"} {
			p.fails(conch.InvalidRequest, "shell_input", args{"id": "keys", "text": "x", "keys": []string{"y", k}})
		}
		p.ok(nil, "shell_input", args{"id": "keys", "keys": []string{"z"}})
		if screen("got 7a"); len(s.Lines) != 14 {
			t.Errorf("something was typed: %q", s.Lines)
		}
		p.ok(nil, "shell_input", args{"id": "keys", "keys": []string{"q"}})
		p.ok(nil, "shell_wait", args{"id": "keys"})
		if text := screen("bye"); s.Alternate || !strings.Contains(text, "exited 0") {
			t.Errorf("%s", text)
		}
		// Ctrl-D is what close types.
		p.ok(nil, "shell_start", args{"command": "cat", "name": "cat", "tty": true})
		p.ok(nil, "shell_input", args{"id": "cat", "text": "line\n", "close": true})
		has(t, p.ok(nil, "shell_wait", args{"id": "cat"}).text, "exited 0", "line")
		// A session of which a person has the prompt shows that.
		c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Cwd: h.Work})
		defer c.CloseIdle()
		a, err := c.Attach(t.Context(), "codex:1", client.AttachOptions{Size: conch.TerminalSize{Cols: 60, Rows: 10}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		go func() { // ends with the attachment
			for {
				if _, err := a.Next(); err != nil {
					return
				}
			}
		}()
		if err := a.Input(t.Context(), []byte("echo $((6*7)) from a person\r")); err != nil {
			t.Fatal(err)
		}
		until(t, "the person's line is on the screen", func() bool {
			text := p.ok(&s, "shell_screen", args{"id": "codex:1"}).text
			return strings.Contains(text, "\n42 from a person\n") && strings.Contains(text, "1 person at its prompt") && s.Cols == 60
		})
	})
}

// A program that would show its model the JSON in place of the text has the text alone.
func TestTextAlone(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	for _, c := range []struct {
		client  string
		args    []string
		structs bool
	}{
		{"claude-code", nil, false}, {"codex-mcp-client", nil, false}, {"claude-code", []string{"--results", "both"}, true},
		{"claude-code-sdk-test", nil, true}, {"other", []string{"--results", "text"}, false},
	} {
		for _, revision := range []string{withInitialize, withoutInitialize} {
			p := connectAs(h, c.client, revision, c.args...)
			r := p.try("whoami", nil)
			if has(t, r.text, "you are me/"); (r.StructuredContent != nil) != c.structs {
				t.Errorf("%s %v (%s): structured %v", c.client, c.args, revision, r.StructuredContent)
			}
			r = p.try("shell_output", args{"id": "none"})
			if has(t, r.text, "error process_not_found"); !r.IsError || (r.StructuredContent != nil) != c.structs {
				t.Errorf("%s %v (%s): %s", c.client, c.args, revision, r.raw)
			}
			p.Close()
		}
	}
	if o := h.Conch("mcp", "--results", "json"); o.Status != 125 || !strings.Contains(o.Stderr, "text nor both") {
		t.Errorf("%v", o)
	}
}
