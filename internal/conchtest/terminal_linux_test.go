package conchtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

// screen runs conch screen --json.
func screen(h *Home, status int, args ...string) conch.Screen {
	h.T.Helper()
	o := h.Conch(append([]string{"screen", "--json"}, args...)...)
	var s conch.Screen
	if err := json.Unmarshal([]byte(o.Stdout), &s); err != nil || o.Status != status {
		h.T.Fatalf("screen %q: %v, want status %d", args, o, status)
	}
	return s
}

// shows waits until a screen matches.
func shows(h *Home, id, re string) conch.Screen {
	h.T.Helper()
	o := h.Conch("screen", "--json", id, "--contains", re, "-t", "20s")
	var s conch.Screen
	if err := json.Unmarshal([]byte(o.Stdout), &s); err != nil || o.Status != 0 {
		h.T.Fatalf("%s does not show %q: %v\n%s", id, re, o, s.Text)
	}
	return s
}

func TestVim(t *testing.T) {
	t.Parallel()
	h := New(t)
	file := filepath.Join(t.TempDir(), "note.txt")
	id := run(h, "--tty", "--size", "60x12", "vi -N -u NONE -i NONE -n "+file)
	shows(h, id, `note\.txt.*\[New`)
	s := screen(h, 0, id, "--contains", "~", "--wait-stable", "200ms", "-t", "20s")
	if !s.Alternate || s.Cols != 60 || s.Rows != 12 || s.Cursor.Row != 0 || s.Cursor.Col != 0 || !s.Cursor.Visible {
		t.Errorf("%+v", s)
	}
	h.OK("keys", id, "ione<Enter>two <lt>b><Up><End>!<Esc>")
	s = shows(h, id, `(?s)\Aone!\ntwo <b>\n~`)
	h.OK("keys", id, ":wq<Enter>")
	waited(h, 0, id)
	if b, err := os.ReadFile(file); err != nil || string(b) != "one!\ntwo <b>\n" {
		t.Errorf("%q, %v", b, err)
	}
	// The screen it leaves is the first one again.
	if s = screen(h, 0, id); s.Alternate || strings.Contains(s.Text, "~") || s.Status != conch.ProcessExited {
		t.Errorf("%+v", s)
	}
}

func TestLess(t *testing.T) {
	t.Parallel()
	h := New(t)
	file := filepath.Join(t.TempDir(), "lines")
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "line %d end\n", i)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	id := run(h, "--tty", "-e", "LESS=", "-e", "LESSHISTFILE=-", "less "+file)
	if s := shows(h, id, "line 22 end"); !s.Alternate || !strings.HasPrefix(s.Text, "line 0 end\n") {
		t.Errorf("%+v", s)
	}
	h.OK("keys", id, "<Down>") // as this program wants it: less asks for the other codes
	shows(h, id, `\Aline 1 end\n`)
	h.OK("keys", id, "/line 333<Enter>")
	shows(h, id, `\Aline 333 end\n`)
	h.OK("keys", id, "q")
	waited(h, 0, id)
}

func TestTop(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", "--name", "top", "--size", "100x20", "top")
	if s := shows(h, id, "PID USER"); s.Rows != 20 || strings.Count(s.Text, "\n") > 19 {
		t.Errorf("%+v", s)
	}
	// By the session's label too, where it is the only one.
	if s := screen(h, 0, "main"); string(s.ProcessID) != id {
		t.Errorf("%+v", s)
	}
	h.OK("screen", "--size", "80x10", id)
	Until(t, Limit, "top uses the new size", func() bool {
		s := screen(h, 0, id)
		return s.Rows == 10 && strings.Contains(s.Text, "PID USER") && strings.Count(s.Text, "\n") == 9
	})
	h.OK("keys", "top", "q")
	waited(h, 0, id)
	if o := h.Conch("screen", "main"); o.Status != 125 {
		t.Errorf("%v", o)
	}
}

func TestREPL(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", "-e", "PYTHON_HISTORY=/dev/null", "python3 -q")
	shows(h, id, `>>> *$`)
	h.OK("keys", id, "x = 6 * 7\nx<Enter>")
	shows(h, id, `(?m)^42$`)
	h.OK("keys", id, "while True: pass\n\n")
	if s := screen(h, 0, id, "--wait-stable", "100ms", "-t", "20s"); s.Reason != conch.ScreenStable {
		t.Errorf("%+v", s)
	}
	h.OK("keys", id, "<C-c>")
	shows(h, id, "KeyboardInterrupt")
	h.OK("stdin", id, "--text", "exit()\n")
	waited(h, 0, id)
}

// A password is asked for on the terminal, read without echo, and nowhere on record.
func TestPasswordPrompt(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", `python3 -c 'import getpass; p = getpass.getpass("Password: "); print("got", len(p))'`)
	s := shows(h, id, `Password: *$`)
	if s.Cursor.Row != 0 || s.Cursor.Col != len("Password: ") {
		t.Errorf("%+v", s.Cursor)
	}
	h.OK("keys", id, "hunter2-secret<Enter>")
	shows(h, id, "got 14")
	waited(h, 0, id)
	if got := h.OK("logs", id); strings.Contains(got, "hunter2") {
		t.Errorf("%q", got)
	}
	if got := h.OK("log", "export"); strings.Contains(got, "hunter2") {
		t.Errorf("%q", got)
	}
	// A command of the shell has no terminal to ask on, and does not wait for one.
	if r := h.Exec("main", "read -r x </dev/tty"); Code(r.ExitCode) == "0" {
		t.Errorf("%+v", r)
	}
}

// A program that asks the terminal gets its answer, once.
func TestTerminalAnswers(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", `stty raw -echo; printf 'ab\033[6n'; IFS= read -r -d R a; stty sane; printf '\r\n<%q>\n' "$a"`)
	shows(h, id, `<\$'\\E\[1;3'>`)
	waited(h, 0, id)
	id = run(h, "--tty", `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty >/dev/tty; echo $TERM; stty size`)
	shows(h, id, `tty\nxterm-256color\n24 80`)
}

// All a program wrote on its terminal is on the tape when its end is.
func TestTerminalOutputIsWhole(t *testing.T) {
	t.Parallel()
	h := New(t)
	var want strings.Builder
	for i := 1; i <= 5000; i++ {
		fmt.Fprintf(&want, "%d\r\n", i)
	}
	for range 20 {
		id := run(h, "--tty", "seq 1 5000")
		waited(h, 0, id)
		if got := h.OK("logs", id); got != want.String() {
			t.Fatalf("%d bytes, want %d", len(got), want.Len())
		}
	}
	// Also with a background process that still has it.
	id := run(h, "--tty", "trap '' HUP; sleep 1000 & seq 1 5000; kill $!")
	waited(h, 0, id)
	if got := h.OK("logs", id); got != want.String() {
		t.Fatalf("%d bytes, want %d", len(got), want.Len())
	}
	// A flood does not hold up anybody, and the model comes to its end.
	id = run(h, "--tty", "head -c 8000000 /dev/zero | tr '\\0' x | fold -w 79; echo; echo last")
	h.Want("main", "echo meanwhile", "meanwhile\n")
	if s := shows(h, id, `(?m)^last$`); s.Partial {
		t.Errorf("%+v", s)
	}
	waited(h, 0, id)
}

func TestTerminalEndsAsOthersDo(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", "trap 'echo winch' WINCH; echo up; while :; do sleep 0.05; done")
	shows(h, id, "up")
	h.OK("screen", "--size", "50x5", id)
	shows(h, id, "winch")
	if o := h.Conch("screen", id, "--contains", "never", "-t", "100ms"); o.Status != 124 || !strings.Contains(o.Stdout, "up") {
		t.Errorf("%v", o)
	}
	waiting := h.Start("screen", id, "--contains", "never")
	h.OK("kill", id)
	if o := waiting.End(); o.Status != 1 {
		t.Errorf("%v", o)
	}
	if p := ps(h, id); p.Status != conch.ProcessKilled || !p.TTY || p.Processes != 0 {
		t.Errorf("%+v", p)
	}
	// What it showed last can be seen, also when the session is gone.
	if s := screen(h, 0, id); !strings.HasPrefix(s.Text, "up\nwinch") || s.Cols != 50 || s.Rows != 5 {
		t.Errorf("%+v", s)
	}
	h.OK("close", "main")
	if s := screen(h, 0, id, "--contains", "winch"); s.Reason != conch.ScreenContains || s.Cols != 50 {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"keys", id, "x"}, "ended with its session"},
		{[]string{"screen", id, "--size", "10x10"}, "ended with its session"},
	} {
		if o := h.Conch(c.args...); o.Status != 125 || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("%q: %v", c.args, o)
		}
	}
}

func TestTerminalIsRefused(t *testing.T) {
	t.Parallel()
	h := New(t)
	plain := run(h, "sleep 1000")
	other := run(h, "--tty", "sleep 1000")
	id := run(h, "--tty", "cat")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"screen", plain}, "has no terminal"},
		{[]string{"keys", plain, "x"}, "has no terminal"},
		{[]string{"screen", plain, "--size", "80x24"}, "has no terminal"},
		{[]string{"keys", id, "<Entr>"}, `no key is called "<Entr>"`},
		{[]string{"keys", id, ""}, "nothing to type"},
		{[]string{"keys", id, "\xff"}, "must be UTF-8"},
		{[]string{"screen", id, "--contains", "("}, "contains"},
		{[]string{"screen", id, "--size", "1x1"}, "cannot be had"},
		{[]string{"screen", id, "--size", "80"}, "not a size"},
		{[]string{"screen", "nosuch"}, "no session"},
		{[]string{"screen", "main"}, "2 processes"},
		{[]string{"keys", "nosuch", "x"}, "no process, and no session"},
		{[]string{"run", "--tty", "--size", "100000x10", "true"}, "cannot be had"},
		{[]string{"run", "--size", "80x24", "true"}, "need tty"},
		{[]string{"run", "--tty", "--no-stdin", "true"}, "a terminal has a stdin"},
	} {
		if o := h.Conch(c.args...); o.Status != 125 || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("%q: %v", c.args, o)
		}
	}
	h.OK("kill", other)
	// Nothing of it was typed.
	h.OK("keys", id, "through<Enter>")
	if s := shows(h, id, "through\nthrough"); s.Text != "through\nthrough" {
		t.Errorf("%q", s.Text)
	}
	h.OK("stdin", "--close", id) // Ctrl-D
	waited(h, 0, id)
}

// A recording has what was shown and when; playing it does no harm.
func TestRecording(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", "--name", "rec", "--size", "70x10",
		`stty -echo; printf 'first \033]52;c;cm0gLXJm\007\033]0;evil\007\033[6n\033[?1000h\033P+q544e\033\\'; sleep 0.4; printf '\033[31msecond\033[0m\n'`)
	waited(h, 0, id)
	file := filepath.Join(t.TempDir(), "rec.cast")
	h.OK("log", "export", "--asciicast", "--process", "rec", "-o", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var head map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head["version"] != 2.0 || head["width"] != 70.0 || head["height"] != 10.0 {
		t.Errorf("%v %v", head, err)
	}
	at := map[string]float64{}
	for _, line := range lines[1:] {
		var e []any
		if err := json.Unmarshal([]byte(line), &e); err != nil || len(e) != 3 {
			t.Fatalf("%q: %v", line, err)
		}
		for _, word := range []string{"first", "second", "exit 0"} {
			if strings.Contains(e[2].(string), word) {
				at[word] = e[0].(float64)
			}
		}
	}
	if d := at["second"] - at["first"]; d < 0.3 || d > 20 || at["exit 0"] < at["second"] {
		t.Errorf("recorded at %v", at)
	}
	// Not on a terminal: at once, and only what does no harm.
	o := h.Conch("replay", file)
	if !strings.HasPrefix(o.Stdout, "first \x1b[31msecond\x1b[0m\r\n") || o.Status != 0 {
		t.Errorf("%v", o)
	}
	for _, bad := range []string{"\x1b]", "\x1bP", "[6n", "?1000", "evil", "\a"} {
		if strings.Contains(o.Stdout, bad) {
			t.Errorf("%q passes: %q", bad, o.Stdout)
		}
	}
	// On one: with its timing.
	w := onTerminal(h, "replay", file, "--speed", "2")
	w.shows("second")
	if got := w.wait(); got != 0 {
		t.Errorf("status %d: %q", got, w.text())
	}
	w = onTerminal(h, "replay", file, "--speed", "0.05")
	w.shows("first")
	w.typeIn("\x03")
	if got := w.wait(); got != 130 || strings.Contains(w.text(), "second") {
		t.Errorf("status %d: %q", got, w.text())
	}
	// A session's, also when it is closed.
	h.Want("work", "echo one; echo two", "one\ntwo\n")
	open := h.OK("log", "export", "--asciicast", "-s", "work")
	h.OK("close", "work")
	if closed := h.OK("log", "export", "--asciicast", "-s", "work"); closed != open || !strings.Contains(open, `echo one; echo two`) || !strings.Contains(open, `one\r\n`) {
		t.Errorf("%s\n%s", open, closed)
	}
	h.OK("close", "main")
	if got := h.OK("log", "export", "--asciicast", "--process", id); got != string(b) {
		t.Errorf("after closing: %q", got)
	}
	if err := os.WriteFile(file, []byte("{\"version\":2}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := h.Conch("replay", file); o.Status != 125 || !strings.Contains(o.Stderr, "line 2 is not an event") {
		t.Errorf("%v", o)
	}
}
