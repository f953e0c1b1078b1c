package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

// eras runs a test against both.
func eras(t *testing.T, f func(t *testing.T, revision string)) {
	for _, r := range []string{withInitialize, withoutInitialize} {
		t.Run(r, func(t *testing.T) { t.Parallel(); f(t, r) })
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := connect(h, revision)
		r, out := p.exec(`cd /usr; V=kept; f() { echo "f $V"; }; echo out; echo err >&2; (exit 3)`)
		if conchtest.Code(r.ExitCode) != "3" || r.Stdout != "out\n" || r.Stderr != "err\n" || r.Encoding != "utf-8" || r.Session != "codex:1" {
			t.Errorf("%s", out.raw)
		}
		if !strings.HasPrefix(out.text, "exit 3 · ") || !strings.HasSuffix(out.text, "\nout\n--- stderr ---\nerr\n") {
			t.Errorf("reads %q", out.text)
		}
		r, out = p.exec(`f; pwd`)
		if r.Stdout != "f kept\n/usr\n" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "cwd /usr · session codex:1 · id "+string(r.CommandID))
		// cwd, env and stdin are this command's only.
		p.ok(&r, "shell_exec", args{"command": `cat; echo "$A"; pwd`, "cwd": "/", "env": args{"A": "x\ny"}, "stdin": "in"})
		if r.Stdout != "inx\ny\n/\n" {
			t.Errorf("stdout %q", r.Stdout)
		}
		r, out = p.exec(`echo "[$A]"; cat`)
		if r.Stdout != "[]\n" || conchtest.Code(r.ExitCode) != "0" {
			t.Errorf("%s", out.raw)
		}
		_, out = p.exec(`true`)
		has(t, out.text, "(no output)")
		// A shell that the command takes down is started again, and the text says so.
		r, out = p.exec(`V=changed; kill -9 $$`)
		if !r.Shell.Restarted {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "(SIGKILL)", "note: the shell was started again", "restored: ", "lost: ")
		if r, _ = p.exec(`f`); r.Stdout != "f kept\n" {
			t.Errorf("stdout %q", r.Stdout)
		}
		r, out = p.exec(`sleep 300 & echo $!`)
		if r.Background != 1 {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "note: 1 of its processes run on in the background")
		p.ok(&r, "shell_exec", args{"command": `echo part; sleep 60; touch never`, "timeout_s": 0.3})
		if !r.TimedOut || r.ExitCode != nil || r.Stdout != "part\n" || r.Ended == nil || !r.Ended.Verified {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(filepath.Join(h.Work, "never")); err == nil {
			t.Error("the rest of the command ran")
		}
		has(t, p.ok(&r, "shell_exec", args{"command": `sleep 60`, "timeout_s": 0.1}).text, "timed out after 100ms", "all its processes are gone")
	})
}

func TestSessionsByLabel(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withoutInitialize)
	p.exec("true")
	r := p.fails(conch.SessionNotFound, "shell_exec", args{"command": "true", "session": "buidl"})
	has(t, r.text, "codex:1", "new:LABEL")
	var res conch.Result
	p.ok(&res, "shell_exec", args{"command": "V=1; echo made", "session": "new:build"})
	if res.Session != "build" || res.Stdout != "made\n" {
		t.Errorf("%+v", res)
	}
	p.ok(&res, "shell_exec", args{"command": "echo $V", "session": "build"})
	p.ok(&res, "shell_exec", args{"command": "echo $V", "session": "me/build"})
	if res.Stdout != "1\n" {
		t.Errorf("stdout %q", res.Stdout)
	}
	p.fails(conch.LabelTaken, "shell_exec", args{"command": "true", "session": "new:build"})
	p.fails(conch.InvalidLabel, "shell_exec", args{"command": "true", "session": "new:a b"})
	p.fails(conch.InvalidLabel, "shell_start", args{"command": "true", "session": "a.b"})
	p.fails(conch.SessionNotFound, "shell_start", args{"command": "true", "session": "nobody"})
	// The session's name is the caller's own by its label too.
	p.ok(&res, "shell_exec", args{"command": "echo me", "session": "codex:1"})

	var list struct {
		You       string
		Sessions  []conch.SessionInfo
		Processes []conch.Process
	}
	p.ok(nil, "shell_start", args{"command": "sleep 300", "name": "nap"})
	out := p.ok(&list, "sessions", nil)
	if list.You != "me/codex:1" || len(list.Sessions) != 2 || len(list.Processes) != 1 || list.Processes[0].Name != "nap" {
		t.Errorf("%s", out.raw)
	}
	has(t, out.text, "you are me/codex:1\n", "me/build · away, idle", "(nap) running")
	if h.Session("buidl").Label != "" || h.Session("nobody").Label != "" {
		t.Error("a mistyped label became a session")
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	for _, c := range []struct {
		tool string
		args args
		says string
	}{
		{"shell_exec", nil, "command is missing"},
		{"shell_exec", args{"command": nil}, "command is missing"},
		{"shell_exec", args{"command": 7}, "command must be a string, not a number"},
		{"shell_exec", args{"command": "true", "tiemout": 1}, `unknown field \"tiemout\"`},
		{"shell_exec", args{"command": "true", "timeout_s": "30"}, "timeout_s must be a number, not a string"},
		{"shell_exec", args{"command": "true", "timeout_s": -1}, "timeout_s must be a number of seconds"},
		{"shell_exec", args{"command": "true", "max_output": -1}, "max_output is 1 to"},
		{"shell_exec", args{"command": "true", "env": args{"A": 1}}, "must be a string"},
		{"shell_output", args{"id": "aaaaaaaa-1", "stream": "both"}, "no stream"},
		{"shell_output", args{"id": ""}, "id is empty"},
		{"shell_input", args{"text": "x"}, "id is missing"},
		{"use", args{}, "neither agent nor label"},
		{"whoami", args{"x": 1}, "unknown field"},
	} {
		r := p.fails(conch.InvalidRequest, c.tool, c.args)
		has(t, string(r.raw), c.says)
	}
	p.fails(conch.InvalidEnv, "shell_exec", args{"command": "true", "env": args{"A B": "x"}})
	p.fails(conch.CommandNotFound, "shell_output", args{"id": "aaaaaaaa-1"})
	p.fails(conch.ProcessNotFound, "shell_output", args{"id": "nobody"})
	r := p.try("shell_start", args{"command": "true", "notify": "a b"})
	if !r.IsError || !strings.Contains(r.text, "hint: ") {
		t.Errorf("a label that is none: %s", r.text)
	}
	// An unknown tool is the protocol's to refuse.
	if _, err := p.CallTool(t.Context(), &sdk.CallToolParams{Name: "shell"}); err == nil {
		t.Error("there is a tool named shell")
	}
}

func TestLongOutput(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	var want strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&want, "zeile %d ü\n", i)
	}
	r, out := p.exec(`for ((i=0;i<20000;i++)); do echo "zeile $i ü"; done; echo end >&2`)
	if r.StdoutBytes != int64(want.Len()) || !r.Truncated || len(r.Stdout) > 16_000 || r.StdoutOmitted == nil || r.Encoding != "utf-8" {
		t.Fatalf("%d bytes, %d in the result, omitted %+v, %s", r.StdoutBytes, len(r.Stdout), r.StdoutOmitted, r.Encoding)
	}
	has(t, out.text, "\nzeile 0 ü\n", "zeile 19999 ü\n", "bytes left out here; shell_output {\"id\":\""+string(r.CommandID), "--- stderr ---\nend\n")
	if len(out.text) > 18_000 {
		t.Errorf("the text has %d bytes", len(out.text))
	}
	// What was left out is read on from the cursor that the text names.
	got := r.Stdout[:r.StdoutOmitted.Offset]
	type page struct {
		Stdout, Stderr, Encoding, Cursor string
		More                             bool
	}
	pages := 0
	for cursor := fmt.Sprintf("%d,0", r.StdoutOmitted.Offset); ; pages++ {
		var pg page
		p.ok(&pg, "shell_output", args{"id": r.CommandID, "stream": "stdout", "cursor": cursor})
		got += pg.Stdout
		cursor = pg.Cursor
		if pg.Encoding != "utf-8" || pg.Stderr != "" {
			t.Fatalf("page %d: %s, stderr %q", pages, pg.Encoding, pg.Stderr)
		}
		if !pg.More {
			break
		}
	}
	if got != want.String() || pages < 10 {
		t.Errorf("%d pages gave %d bytes, want %d", pages, len(got), want.Len())
	}
	var pg page
	p.ok(&pg, "shell_output", args{"id": r.CommandID, "tail_lines": 2})
	if pg.Stdout != "zeile 19998 ü\nzeile 19999 ü\n" || pg.Stderr != "end\n" {
		t.Errorf("%+v", pg)
	}
	end := p.ok(&pg, "shell_output", args{"id": r.CommandID, "cursor": "99999999,0", "stream": "stdout"})
	has(t, end.text, "note: cursor 99999999,0 is past the end")
	if want := fmt.Sprintf("%d,0", r.StdoutBytes); pg.Stdout != "" || pg.Cursor != want {
		t.Errorf("past the end: %+v, want cursor %s", pg, want)
	}
	has(t, p.fails(conch.InvalidRequest, "contacts", args{"action": "bogus"}).text, "ls, request, block, verify, reset")
	p.fails(conch.InvalidRequest, "shell_output", args{"id": r.CommandID, "cursor": "x"})
	p.ok(&r, "shell_exec", args{"command": "seq 100", "max_output": 20})
	if len(r.Stdout) != 20 {
		t.Errorf("max_output 20 gave %q", r.Stdout)
	}
}

// Output acts on nobody who reads the text, and is exact in the structured result.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	hostile := "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x1b\\\x00\x07\xff\u202egnp.\u2066\U000e0041\r\nover\rwrite\n--- stderr ---\nexit 0\n"
	if err := os.WriteFile(filepath.Join(p.cmd.Dir, "hostile"), []byte(hostile), 0o644); err != nil {
		t.Fatal(err)
	}
	r, out := p.exec(`cat hostile; echo real >&2; false`)
	b, err := base64.StdEncoding.DecodeString(r.Stdout)
	if r.Encoding != "base64" || err != nil || string(b) != hostile {
		t.Errorf("%s %q (%v)", r.Encoding, b, err)
	}
	_, body, _ := strings.Cut(out.text, "\n")
	want := "red" + `\u{0}\u{7}\xff\u{202e}gnp.\u{2066}\u{e0041}` + "\nover\nwrite\n--- stderr ---\nexit 0\n--- stderr (1) ---\nreal\n"
	if !strings.HasPrefix(body, want) || !strings.HasPrefix(out.text, "exit 1 ") {
		t.Errorf("reads %q, want %q", out.text, want)
	}
	has(t, out.text, "[conch: 11 escape sequences or unseeable characters")
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		p := connect(conchtest.New(t), revision)
		p.exec(`G=hello`)
		var pr conch.Process
		out := p.ok(&pr, "shell_start", args{"command": `echo "$G"; echo ready >&2; while IFS= read -r l; do echo "got $l"; done; echo over; exit 7`, "name": "echo"})
		if pr.Name != "echo" || pr.PID == 0 || pr.Session != "codex:1" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "started "+string(pr.ProcessID)+" (echo)", "shell_wait")
		var w conch.WaitResult
		out = p.ok(&w, "shell_wait", args{"id": "echo", "log": "^rea.y$"})
		if w.Reason != conch.WaitLog || w.Match.Stream != "stderr" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "log: found on stderr: ready")
		p.ok(nil, "shell_input", args{"id": pr.ProcessID, "text": "one\ntw", "keys": []string{"space"}})
		p.ok(nil, "shell_input", args{"id": "echo", "keys": []string{"ENTER"}})
		p.ok(&w, "shell_wait", args{"id": "echo", "log": "got tw $"})
		type page struct {
			Kind, Status, Stdout, Stderr, Cursor string
			More                                 bool
			ExitCode                             *int `json:"exit_code"`
		}
		var pg page
		out = p.ok(&pg, "shell_output", args{"id": "echo"})
		if pg.Kind != "process" || pg.Status != "running" || pg.Stdout != "hello\ngot one\ngot tw \n" || pg.Stderr != "ready\n" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "nothing more yet; cursor "+pg.Cursor)
		var past page
		has(t, p.ok(&past, "shell_output", args{"id": "echo", "cursor": "987654321"}).text, "note: cursor 987654321 is past the end", "cursor "+pg.Cursor)
		if past.Cursor != pg.Cursor || past.Stdout != "" {
			t.Errorf("%+v, want cursor %s", past, pg.Cursor)
		}
		if at := p.ok(&past, "shell_output", args{"id": "echo", "cursor": pg.Cursor}); strings.Contains(at.text, "past") || past.Cursor != pg.Cursor {
			t.Errorf("at the end: %s", at.text)
		}
		p.ok(&w, "shell_wait", args{"id": "echo", "timeout_s": 0.05})
		if w.Reason != conch.WaitTimeout {
			t.Errorf("%+v", w)
		}
		p.ok(nil, "shell_input", args{"id": "echo", "text": "last\n", "close": true})
		out = p.ok(&w, "shell_wait", args{"id": "echo"})
		if w.Reason != conch.WaitExit || conchtest.Code(w.Process.ExitCode) != "7" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "exit: it ended", "exited 7", "last lines of stdout ---\n", "over\n")
		// From a cursor, also when the model makes a number of it.
		var number json.Number
		if err := json.Unmarshal([]byte(pg.Cursor), &number); err != nil {
			t.Fatal(err)
		}
		out = p.ok(&pg, "shell_output", args{"id": pr.ProcessID, "cursor": number})
		if pg.Stdout != "got last\nover\n" || pg.Stderr != "" || pg.Status != "exited" || conchtest.Code(pg.ExitCode) != "7" {
			t.Errorf("%s", out.raw)
		}
		has(t, out.text, "that is all")
		has(t, p.fails(conch.StdinClosed, "shell_input", args{"id": pr.ProcessID, "text": "x"}).text, "has ended", "nothing was written", "hint: shell_output")
		p.fails(conch.InvalidRequest, "shell_input", args{"id": pr.ProcessID, "keys": []string{"f13"}})
		p.fails(conch.InvalidRequest, "shell_input", args{"id": pr.ProcessID})

		var screen struct{ Lines []string }
		out = p.ok(&screen, "shell_screen", args{"id": pr.ProcessID})
		if got := strings.Join(screen.Lines, "|"); !slices.Contains(screen.Lines, "over") || len(screen.Lines) != 6 {
			t.Errorf("screen %q: %s", got, out.raw)
		}
	})
}

// Whoever is to be told of a process's end has a message then.
func TestNotify(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withoutInitialize)
	p.exec("true")
	var pr conch.Process
	p.ok(nil, "shell_exec", args{"command": "true", "session": "new:other"})
	p.ok(nil, "shell_signal", args{"id": "other"}) // leaves a connection to the session's keeper behind
	p.ok(&pr, "shell_start", args{"command": "echo done; exit 3", "session": "other", "notify": "codex:1"})
	until(t, "the message", func() bool {
		return strings.Contains(h.OK("inbox", "--peek", "--json", "-s", "codex:1"), string(pr.ProcessID))
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withoutInitialize)
	var pr conch.Process
	p.ok(&pr, "shell_start", args{"command": `trap 'echo hup' HUP; trap 'echo int; exit 4' INT; echo up; while :; do sleep 0.05; done`, "name": "svc"})
	p.ok(nil, "shell_wait", args{"id": "svc", "log": "up"})
	out := p.ok(nil, "shell_signal", args{"id": "svc", "signal": "SIGHUP"})
	has(t, out.text, "sent HUP: "+string(pr.ProcessID))
	p.ok(nil, "shell_wait", args{"id": "svc", "log": "^hup$"})
	p.ok(nil, "shell_input", args{"id": "svc", "keys": []string{"ctrl-c"}})
	var w conch.WaitResult
	p.ok(&w, "shell_wait", args{"id": "svc", "exit": true})
	if conchtest.Code(w.Process.ExitCode) != "4" {
		t.Errorf("%+v", w.Process)
	}
	p.ok(&pr, "shell_start", args{"command": `trap '' TERM INT; setsid sleep 300 & sleep 300`})
	var k conch.Killed
	out = p.ok(&k, "shell_signal", args{"id": pr.ProcessID})
	if !k.Verified {
		t.Errorf("%s", out.raw)
	}
	has(t, out.text, "ended: ")

	// A command of another call: by its id, and by the session's label.
	for _, by := range []string{"command", "session"} {
		done := make(chan result, 1)
		go func() {
			done <- p.try("shell_exec", args{"command": "echo begun; sleep 300; touch never", "session": "codex:1"})
		}()
		var id conch.CommandID
		until(t, "it runs", func() bool { id = h.Session("codex:1").Running; return id != "" })
		target := string(id)
		if by == "session" {
			target = "codex:1"
		}
		has(t, p.ok(nil, "shell_screen", args{"id": target}).text, string(id)+" running")
		has(t, p.ok(nil, "shell_wait", args{"id": id, "timeout_s": 0.05}).text, "timeout: ")
		p.fails(conch.InvalidRequest, "shell_wait", args{"id": id, "port": 1})
		p.fails(conch.Unsupported, "shell_signal", args{"id": target, "signal": "USR1"})
		has(t, p.ok(nil, "shell_signal", args{"id": target, "signal": "INT"}).text, "interrupted "+string(id), "the shell and its state are kept")
		r := <-done
		if !strings.HasPrefix(r.text, "interrupted · ") {
			t.Errorf("by %s: %s", by, r.text)
		}
		has(t, p.ok(nil, "shell_wait", args{"id": id}).text, "interrupted · ", "\nbegun\n")
	}
	has(t, p.ok(nil, "shell_signal", args{"id": "codex:1", "signal": "INT"}).text, "nothing was running")
	if _, err := os.Stat(filepath.Join(h.Work, "never")); err == nil {
		t.Error("the rest of a command ran")
	}
}

// Cancelling a call ends the command, all of it, and keeps the shell.
func TestCancel(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := connect(h, revision)
		p.exec("V=kept")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.CallTool(ctx, &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "sleep 297 & sleep 298; touch never"}})
			done <- err
		}()
		var id conch.CommandID
		until(t, "it runs", func() bool { id = h.Session("codex:1").Running; return id != "" })
		// One more waits behind it, and is cancelled there.
		queued, drop := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := p.CallTool(queued, &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "touch queued"}})
			gone <- err
		}()
		until(t, "the second waits", func() bool { return h.Session("codex:1").Queue == 1 })
		drop()
		if err := <-gone; err == nil {
			t.Error("the cancelled call gave a result")
		}
		until(t, "it has left the queue", func() bool { return h.Session("codex:1").Queue == 0 })
		cancel()
		if err := <-done; err == nil {
			t.Error("the cancelled call gave a result")
		}
		until(t, "the command has ended", func() bool {
			return slices.ContainsFunc(h.History("codex:1"), func(e conch.HistoryEntry) bool {
				return e.CommandID == id && e.Status == conch.StatusDone && e.Interrupted
			})
		})
		for _, q := range h.Processes() {
			if strings.Contains(q.Args, "sleep 29") {
				t.Errorf("%d %s is left", q.PID, q.Args)
			}
		}
		if r, _ := p.exec("echo $V; ls"); r.Stdout != "kept\n" {
			t.Errorf("after it: %q", r.Stdout)
		}
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		p := connect(conchtest.New(t), revision)
		call := func(token, tool string, a args) {
			t.Helper()
			params := &sdk.CallToolParams{Name: tool, Arguments: a}
			params.SetProgressToken(token)
			if r, err := p.CallTool(t.Context(), params); err != nil || r.IsError {
				t.Fatalf("%s: %v %+v", tool, err, r)
			}
		}
		// The command goes on only once its first words have been told.
		p.exec("mkfifo go")
		go func() {
			until(t, "progress", func() bool { return len(p.told()) > 0 })
			os.WriteFile(filepath.Join(p.cmd.Dir, "go"), []byte("x\n"), 0)
		}()
		call("a", "shell_exec", args{"command": `printf '\033[1mfirst\n'; read x <go; head -c 3000000 /dev/zero | tr '\0' z; echo`})
		told := p.told()
		if len(told) == 0 || told[0].Message != "first\n" || told[0].ProgressToken != "a" {
			t.Fatalf("%+v", told)
		}
		for i, n := range told {
			if strings.HasPrefix(n.Message, "running for") {
				t.Errorf("%d: %q, although there was output", i, n.Message)
			}
			if len(n.Message) > 1000 || i > 0 && n.Progress <= told[i-1].Progress {
				t.Errorf("%d: %d bytes, %v after %v", i, len(n.Message), n.Progress, told[max(i-1, 0)].Progress)
			}
		}
		if len(told) > 40 {
			t.Errorf("3 MB in %d notifications", len(told))
		}
		// A wait tells what the process writes.
		p.ok(nil, "shell_start", args{"command": `while read -r l; do echo "saw $l"; done`, "name": "w"})
		go func() {
			p.try("shell_input", args{"id": "w", "text": "something\n"})
			until(t, "the wait's progress", func() bool {
				return slices.ContainsFunc(p.told(), func(n *sdk.ProgressNotificationParams) bool {
					return n.ProgressToken == "b" && strings.Contains(n.Message, "saw something")
				})
			})
			p.try("shell_input", args{"id": "w", "close": true})
		}()
		call("b", "shell_wait", args{"id": "w"})
		// Nobody asked, nobody is told.
		n := len(p.told())
		p.exec("echo x")
		if got := len(p.told()); got != n {
			t.Errorf("%d notifications without a token", got-n)
		}
	})
}

func TestParallelCalls(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			var r conch.Result
			a := args{"command": fmt.Sprintf("echo %d; seq 2000 | tail -1", i)}
			if i%2 == 0 {
				a["session"] = fmt.Sprintf("new:s%d", i)
			}
			out := p.try("shell_exec", a)
			if err := json.Unmarshal(out.raw, &r); err != nil || out.IsError || r.Stdout != fmt.Sprintf("%d\n2000\n", i) {
				t.Errorf("%d: %s", i, out.text)
			}
		})
	}
	wg.Wait()
	var list struct{ Sessions []conch.SessionInfo }
	p.ok(&list, "sessions", nil)
	if len(list.Sessions) != 11 {
		t.Errorf("%d sessions, want 11", len(list.Sessions))
	}
}
