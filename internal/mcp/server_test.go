package mcp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

// What a model pays for the tools before it uses any.
func TestListIsSmall(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	list, err := p.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("tools/list has %d characters", len(b))
	if len(b) > 9_500 {
		t.Errorf("tools/list has %d characters of JSON, more than 9,500", len(b))
	}
	// Names and arguments are the contract.
	want := map[string]string{
		"shell_exec": "command cwd env max_output session stdin timeout_s", "shell_start": "command name notify session tty",
		"shell_output": "cursor id stream tail_lines", "shell_wait": "exit http id idle_s log port timeout_s",
		"shell_input": "close id keys text", "shell_signal": "id signal", "shell_screen": "id",
		"sessions": "", "whoami": "", "use": "agent label remember",
		"send": "auto expires_s reply_to role text to", "ask": "role text timeout_s to", "inbox": "limit peek",
		"await_reply": "from reply_to timeout_s", "ack": "ids", "contacts": "action peer",
	}
	for _, tool := range list.Tools {
		raw, _ := json.Marshal(tool.InputSchema)
		var schema struct{ Properties map[string]struct{ Type any } }
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		var names []string
		for n := range schema.Properties {
			names = append(names, n)
		}
		if got := strings.Join(sorted(names), " "); got != want[tool.Name] {
			t.Errorf("%s takes %q, want %q", tool.Name, got, want[tool.Name])
		}
		delete(want, tool.Name)
		if tool.Description == "" {
			t.Errorf("%s has no description", tool.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func sorted(list []string) []string {
	for i := range list {
		for j := i; j > 0 && list[j] < list[j-1]; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
	return list
}

type identity struct {
	Agent, Label, Note, Address string
	Sessions                    []conch.SessionInfo
	Daemon                      struct {
		PID  int
		Mode string
	}
}

func (p *peer) whoami() (i identity) {
	p.t.Helper()
	p.ok(&i, "whoami", nil)
	return i
}

// A harness session has its label, and with it its shell, again after a restart, of
// the server and of the daemon, whatever came between.
func TestLabelOverRestarts(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	one, two := h.With("CLAUDE_CODE_SESSION_ID=one"), h.With("CLAUDE_CODE_SESSION_ID=two")
	p := connect(one, withoutInitialize)
	if i := p.whoami(); i.Agent != "me" || i.Label != "claude:1" || i.Daemon.PID != h.Daemon() || i.Daemon.Mode != "auto" || i.Address == "" {
		t.Errorf("%+v", i)
	}
	p.exec("V=of-one")
	q := connect(two, withInitialize)
	if i := q.whoami(); i.Label != "claude:2" {
		t.Errorf("the second is %s", i.Label)
	}
	p.Close()
	// It waits for its own.
	if i := connect(h.With("CLAUDE_CODE_SESSION_ID=three"), withInitialize).whoami(); i.Label != "claude:3" {
		t.Errorf("the third is %s", i.Label)
	}
	conchtest.Kill(t, h.Daemon())
	// The others are on their way back, and their numbers are not free meanwhile.
	if i := connect(h.With("CLAUDE_CODE_SESSION_ID=meanwhile"), withInitialize).whoami(); i.Label != "claude:4" {
		t.Errorf("right after a daemon's death: %s", i.Label)
	}
	p = connect(one, withInitialize)
	if r, _ := p.exec("echo $V"); r.Stdout != "of-one\n" || r.Session != "claude:1" {
		t.Errorf("after the restart: %+v", r)
	}
	// The same harness session twice is one session.
	again := connect(one, withoutInitialize)
	if r, _ := again.exec("echo $V"); r.Stdout != "of-one\n" {
		t.Errorf("the same again: %+v", r)
	}
	// A label that its owner gave up is not offered with the owner's shell in it.
	four := connect(h.With("CLAUDE_CODE_SESSION_ID=four"), withInitialize)
	four.exec("F=of-four")
	four.ok(nil, "use", args{"label": "elsewhere"})
	if i := connect(h.With("CLAUDE_CODE_SESSION_ID=five"), withInitialize).whoami(); i.Label != "claude:6" {
		t.Errorf("the fifth is %s", i.Label)
	}
	// What was taken by use is had again, unless it was for now only.
	var i identity
	p.ok(&i, "use", args{"label": "build"})
	if i.Label != "build" {
		t.Errorf("%+v", i)
	}
	p.exec("W=of-build")
	until(t, "the second is back", func() bool { return h.Session("claude:2").Live })
	p.fails(conch.LabelTaken, "use", args{"label": "claude:2"})
	p.fails(conch.InvalidLabel, "use", args{"label": "a b"})
	p.fails(conch.InvalidAgent, "use", args{"agent": "A"})
	p.Close()
	again.Close()
	p = connect(one, withInitialize)
	if r, _ := p.exec("echo $W"); r.Stdout != "of-build\n" {
		t.Errorf("after use and a restart: %+v", r)
	}
	p.ok(&i, "use", args{"label": "aside", "remember": false})
	p.Close()
	if i = connect(one, withInitialize).whoami(); i.Label != "build" {
		t.Errorf("after a use that was not to be remembered: %+v", i)
	}
	// A handle is the same for those who have no such variable.
	p = connect(h, withInitialize, "--handle", "x")
	if i = p.whoami(); i.Label != "codex:1" {
		t.Errorf("%+v", i)
	}
	p.fails(conch.AgentNotFound, "use", args{"agent": "bob"})
	h.OK("agent", "new", "bob")
	p.fails(conch.LabelTaken, "use", args{"label": "bob"})
	p.ok(&i, "use", args{"agent": "bob"})
	if i.Agent != "bob" || i.Label != "codex:1" {
		t.Errorf("%+v", i)
	}
	p.exec("true")
	p.Close()
	if i = connect(h, withInitialize, "--handle", "x").whoami(); i.Agent != "bob" || i.Label != "codex:1" {
		t.Errorf("%+v", i)
	}
}

func TestLabelAskedFor(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	h.Want("main", "V=1", "")
	p := connect(h, withInitialize, "--session", "main")
	if r, _ := p.exec("echo $V"); r.Stdout != "1\n" {
		t.Errorf("%+v", r)
	}
	// Another server uses it: the next gets one of its own, and is told.
	i := connect(h.With("CONCH_SESSION=main"), withInitialize).whoami()
	if i.Label != "codex:1" || !strings.Contains(i.Note, "main") {
		t.Errorf("%+v", i)
	}
	// What runs under its own label does not keep it from coming back to it.
	p.ok(nil, "shell_exec", args{"command": "mkfifo go"})
	running := make(chan result, 1)
	go func() { running <- p.try("shell_exec", args{"command": "read x <go; echo $x"}) }()
	until(t, "it runs", func() bool { return h.Session("main").Busy })
	conchtest.Kill(t, h.Daemon())
	if i := p.whoami(); i.Label != "main" || i.Note != "" {
		t.Errorf("%+v", i)
	}
	if err := os.WriteFile(filepath.Join(h.Work, "go"), []byte("on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if r := <-running; !strings.Contains(r.text, "\non\n") {
		t.Errorf("%s", r.text)
	}
	p.Close()
	if i := connect(h.With("CONCH_SESSION=me/main"), withInitialize).whoami(); i.Label != "main" || i.Note != "" {
		t.Errorf("%+v", i)
	}
	if o := h.Conch("mcp", "--session", "a b"); o.Status != 125 || !strings.Contains(o.Stderr, "label") {
		t.Errorf("%v", o)
	}
	// A shell that somebody made without claiming is not taken by number.
	h.Want("codex:2", "true", "")
	if i := connect(h, withInitialize).whoami(); i.Label != "codex:3" {
		t.Errorf("%+v", i)
	}
}

// Servers that start at once all get labels of their own.
func TestLabelsRaced(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	h.OK("up")
	const n = 12
	labels := make(chan string, n)
	var wg sync.WaitGroup
	for i := range n {
		p := connect(h.With(fmt.Sprintf("CLAUDE_CODE_SESSION_ID=%d", i)), withInitialize)
		wg.Go(func() {
			var i identity
			json.Unmarshal(p.try("whoami", nil).raw, &i)
			labels <- i.Label
		})
	}
	wg.Wait()
	close(labels)
	seen := map[string]bool{}
	for l := range labels {
		seen[l] = true
	}
	for i := range n {
		if l := fmt.Sprintf("claude:%d", i+1); !seen[l] {
			t.Errorf("nobody got %s: %v", l, seen)
		}
	}
}

// The daemon's death between calls and during one is not seen.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := connect(h, revision)
		p.exec("V=kept; mkfifo go")
		for range 3 {
			conchtest.Kill(t, h.Daemon())
			if r, out := p.exec("echo $V"); r.Stdout != "kept\n" {
				t.Errorf("after a kill: %s", out.text)
			}
		}
		p.ok(nil, "shell_start", args{"command": "read x <go; echo read $x", "name": "reader"})
		waiting := make(chan result, 1)
		go func() { waiting <- p.try("shell_wait", args{"id": "reader"}) }()
		running := make(chan result, 1)
		go func() {
			running <- p.try("shell_exec", args{"command": "echo before; read x <go2; echo after $x", "cwd": h.Work, "session": "new:other"})
		}()
		if err := syscall.Mkfifo(filepath.Join(h.Work, "go2"), 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, "it runs", func() bool { return h.Session("other").Busy })
		conchtest.Kill(t, h.Daemon())
		for _, f := range []string{"go", "go2"} {
			if err := os.WriteFile(filepath.Join(h.Work, f), []byte("on\n"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if r := <-running; r.IsError || !strings.Contains(r.text, "before\nafter on\n") {
			t.Errorf("a command during it: %s", r.text)
		}
		if r := <-waiting; r.IsError || !strings.Contains(r.text, "read on") {
			t.Errorf("a wait during it: %s", r.text)
		}
	})
}

// The keeper's death in a command is a result that says so.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withoutInitialize)
	p.exec("V=kept")
	done := make(chan result, 1)
	go func() { done <- p.try("shell_exec", args{"command": "echo before; sleep 300"}) }()
	until(t, "it runs", func() bool {
		id := h.Session("codex:1").Running
		return id != "" && h.OK("output", string(id)) == "before\n"
	})
	conchtest.Kill(t, h.Session("codex:1").KeeperPID)
	r := <-done
	if r.IsError || !strings.HasPrefix(r.text, "exit unknown: ") || !strings.Contains(r.text, "\nbefore\n") {
		t.Errorf("%s", r.text)
	}
	if r, _ := p.exec("echo $V"); r.Stdout != "kept\n" {
		t.Errorf("after it: %+v", r)
	}
}

// raw is a server spoken to in lines.
type raw struct {
	*exec.Cmd
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(h *conchtest.Home, args ...string) *raw {
	h.T.Helper()
	r := &raw{Cmd: h.Cmd(h.T.Context(), append([]string{"mcp"}, args...)...), t: h.T}
	var err error
	if r.in, err = r.StdinPipe(); err != nil {
		h.T.Fatal(err)
	}
	out, err := r.StdoutPipe()
	if err != nil {
		h.T.Fatal(err)
	}
	r.out = bufio.NewScanner(out)
	r.out.Buffer(nil, 1<<20)
	if err := r.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { r.in.Close(); r.Process.Kill(); r.Wait() })
	return r
}

func (r *raw) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

type answer struct {
	ID     any
	Result struct {
		ProtocolVersion   string
		SupportedVersions []string
		ResultType        string
		Content           []struct{ Text string }
		Tools             []struct{ Name string }
	}
	Error *struct {
		Code    int
		Message string
	}
}

// answer reads the next answer.
func (r *raw) answer() (a answer) {
	r.t.Helper()
	if !r.out.Scan() {
		r.t.Fatalf("no answer: %v", r.out.Err())
	}
	if err := json.Unmarshal(r.out.Bytes(), &a); err != nil {
		r.t.Fatalf("%v: %s", err, r.out.Bytes())
	}
	return a
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`

// meta is what a call has where there was no handshake.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

func TestLines(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		r := start(h)
		r.send(fmt.Sprintf(hello, revision))
		if a := r.answer(); a.Result.ProtocolVersion != revision {
			t.Errorf("%s: %+v", revision, a)
		}
		r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		if a := r.answer(); len(a.Result.Tools) != 16 {
			t.Errorf("%s: %+v", revision, a)
		}
	}
	r := start(h)
	// No handshake: the first line is a call.
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `,"name":"shell_exec","arguments":{"command":"echo hi"}}}`)
	if a := r.answer(); len(a.Result.Content) != 1 || !strings.HasSuffix(a.Result.Content[0].Text, "\nhi\n") || a.Result.ResultType != "complete" {
		t.Errorf("%+v", a)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{` + meta + `}}`)
	if a := r.answer(); len(a.Result.SupportedVersions) < 5 {
		t.Errorf("%+v", a)
	}
	// Whatever is no message is answered, and the server goes on.
	for line, code := range map[string]int{
		"garbage": -32700, `{"jsonrpc":"2.0"`: -32700, `42`: -32600, `{}`: -32600, `[]`: -32600, `[1]`: -32600,
		`{"jsonrpc":"1.0","id":3,"method":"tools/list"}`: -32600,
		`"` + strings.Repeat("x", 200_000) + `"`:         -32600,
	} {
		r.send(line)
		if a := r.answer(); a.Error == nil || a.Error.Code != code || a.ID != nil {
			t.Errorf("%.60s: %+v", line, a)
		}
	}
	r.send("")
	r.send(`{"jsonrpc":"2.0","id":4,"method":"nonsense","params":{` + meta + `}}`)
	if a := r.answer(); a.Error == nil || a.Error.Code != -32601 {
		t.Errorf("%+v", a)
	}
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{` + meta + `,"name":"shell_exec","arguments":[]}}`)
	if a := r.answer(); len(a.Result.Content) != 1 || !strings.HasPrefix(a.Result.Content[0].Text, "error invalid_request: ") {
		t.Errorf("%+v", a)
	}
}

// A client that pipes its requests in and closes is answered; one that goes away in a
// long command is not waited for, and its command runs on.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	lines := fmt.Sprintf(hello, "2025-06-18") + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"sleep 0.2; echo piped"}}}`
	o := h.Feed(strings.NewReader(lines), "mcp")
	if o.Status != 0 || o.Stderr != "" || !strings.Contains(o.Stdout, `\npiped\n`) {
		t.Errorf("%v", o)
	}
	for _, how := range []string{"close", "TERM", "INT", "KILL"} {
		r := start(h)
		r.send(fmt.Sprintf(hello, "2025-06-18"))
		r.answer()
		label := "left-" + strings.ToLower(how)
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"echo begun; sleep 299","session":"new:` + label + `"}}}`)
		until(t, "it runs", func() bool { return h.Session(label).Busy })
		begun := time.Now()
		switch how {
		case "close":
			r.in.Close()
		case "TERM":
			r.Process.Signal(syscall.SIGTERM)
		case "INT":
			r.Process.Signal(syscall.SIGINT)
		case "KILL":
			r.Process.Kill()
		}
		err := r.Wait()
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("%s: the server took %v to leave", how, took)
		}
		if how != "KILL" && err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if s := h.Session(label); !s.Busy {
			t.Errorf("%s: the command did not run on: %+v", how, s)
		}
	}
}

// With --standalone nothing is left running, and the state is.
func TestStandalone(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	alone := h.With("CLAUDE_CODE_SESSION_ID=s")
	p := connect(alone, withInitialize, "--standalone")
	i := p.whoami()
	if i.Daemon.PID != p.cmd.Process.Pid || i.Daemon.Mode != "standalone" {
		t.Errorf("%+v, the server is %d", i, p.cmd.Process.Pid)
	}
	p.exec("cd /usr; V=kept; sleep 301 &")
	p.ok(nil, "shell_start", args{"command": "sleep 300"})
	// Others find the same daemon, under the same lock; a second server uses it too.
	if got := h.Daemon(); got != p.cmd.Process.Pid {
		t.Errorf("status names %d", got)
	}
	q := connect(h, withInitialize, "--standalone")
	if i := q.whoami(); i.Daemon.PID != p.cmd.Process.Pid || i.Label == "claude:1" {
		t.Errorf("%+v", i)
	}
	q.exec("W=other")
	p.Close()
	// The daemon has gone with the first; the second runs its own now.
	if r, out := q.exec("echo $W"); r.Stdout != "other\n" {
		t.Errorf("after the daemon left: %s", out.text)
	}
	if i := q.whoami(); i.Daemon.PID != q.cmd.Process.Pid {
		t.Errorf("%+v", i)
	}
	q.Close()
	until(t, "nothing is left", func() bool { return len(h.Processes()) == 0 })
	if list, _ := filepath.Glob(filepath.Join(h.Path, "run", "*")); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
	p = connect(alone, withoutInitialize, "--standalone")
	if r, out := p.exec("echo $V $PWD"); r.Stdout != "kept /usr\n" || r.Session != "claude:1" || !slices.Contains(r.Shell.Lost, "jobs") {
		t.Errorf("the next time: %+v %s", r.Shell, out.text)
	}
	// Killed, it leaves its shells to the next daemon, with all that runs in them.
	p.ok(nil, "shell_start", args{"command": "sleep 300", "name": "nap"})
	p.cmd.Process.Kill()
	p.Wait()
	p = connect(alone, withoutInitialize, "--standalone")
	if r, out := p.exec("echo $V"); r.Stdout != "kept\n" {
		t.Errorf("after its death: %s", out.text)
	}
	has(t, p.ok(nil, "sessions", nil).text, "(nap) running")
	// conch down means the process that is the daemon.
	h.OK("down")
	if err := p.Wait(); err != nil && !errors.Is(err, io.EOF) {
		t.Log(err)
	}
	if i := h.Session("claude:1"); i.KeeperPID == 0 || !conchtest.Alive(i.KeeperPID) {
		t.Errorf("conch down ended the session: %+v", i)
	}
	// A daemon that runs is used.
	p = connect(alone, withInitialize, "--standalone")
	if i := p.whoami(); i.Daemon.PID == p.cmd.Process.Pid || i.Daemon.PID != h.Daemon() {
		t.Errorf("%+v", i)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := connect(h, revision)
		// Listing needs no daemon and starts none.
		list, err := p.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 2 {
			t.Fatalf("%+v %v", list, err)
		}
		if _, err := os.Stat(filepath.Join(h.Path, "daemon.json")); err == nil {
			t.Error("listing started a daemon")
		}
		templates, err := p.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 3 {
			t.Fatalf("%+v %v", templates, err)
		}
		r, _ := p.exec(`echo one; echo two >&2; printf '\033[1mbold\n'`)
		var pr conch.Process
		p.ok(&pr, "shell_start", args{"command": `while read -r l; do echo "saw $l"; done`, "name": "w"})
		if list, err = p.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 5 {
			t.Fatalf("%+v %v", list, err)
		}
		read := func(uri string) *sdk.ResourceContents {
			t.Helper()
			got, err := p.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if err != nil || len(got.Contents) != 1 {
				t.Fatalf("%s: %+v %v", uri, got, err)
			}
			return got.Contents[0]
		}
		out := "conch://output/" + string(r.CommandID) + "/stdout"
		if c := read(out); c.Text != "one\n\x1b[1mbold\n" || c.MIMEType != "text/plain" {
			t.Errorf("%+v", c)
		}
		if c := read("conch://output/" + string(r.CommandID) + "/stderr"); c.Text != "two\n" {
			t.Errorf("%+v", c)
		}
		const own = "conch://session/me/codex:1/"
		has(t, read(own+"transcript").Text, "$ echo one; echo two", "\none\nbold\ntwo\n["+string(r.CommandID)+" exit 0]\n")
		var hist []conch.HistoryEntry
		if err := json.Unmarshal([]byte(read(own+"history").Text), &hist); err != nil || len(hist) == 0 || hist[0].CommandID != r.CommandID {
			t.Errorf("%v %+v", err, hist)
		}
		has(t, read("conch://sessions").Text, `"label":"codex:1"`)
		b, _ := p.exec(`printf '\377'`)
		if c := read("conch://output/" + string(b.CommandID) + "/stdout"); string(c.Blob) != "\xff" || c.Text != "" {
			t.Errorf("%+v", c)
		}
		for _, uri := range []string{
			"conch://output/aaaaaaaa-1/stdout", "conch://output/x/stdout", "conch://output/" + string(r.CommandID) + "/both",
			"conch://session/me/nobody/history", "conch://session/me/..%2f/history", "conch://nothing", "file:///etc/passwd",
		} {
			if _, err := p.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%s can be read", uri)
			}
		}

		// Subscriptions ring when there is something new, and not before.
		log := "conch://output/" + string(pr.ProcessID) + "/stdout"
		for _, uri := range []string{log, own + "transcript", "conch://sessions"} {
			if err := p.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
				t.Fatalf("%s: %v", uri, err)
			}
		}
		p.ok(nil, "shell_input", args{"id": "w", "text": "a\n"})
		until(t, "the log rings", func() bool { return p.rings(log) > 0 })
		if c := read(log); c.Text != "saw a\n" {
			t.Errorf("%+v", c)
		}
		p.exec("echo more")
		until(t, "the transcript rings", func() bool { return p.rings(own+"transcript") > 0 })
		p.ok(nil, "shell_exec", args{"command": "true", "session": "new:more"})
		until(t, "the sessions ring", func() bool { return p.rings("conch://sessions") > 0 })
		if err := p.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: log}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPrompts(t *testing.T) {
	t.Parallel()
	p := connect(conchtest.New(t), withoutInitialize)
	list, err := p.ListPrompts(t.Context(), nil)
	if err != nil || len(list.Prompts) != 4 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, j := range list.Prompts {
		given := map[string]string{}
		for _, a := range j.Arguments {
			given[a.Name] = "word-" + a.Name
		}
		got, err := p.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: j.Name, Arguments: given})
		if err != nil || len(got.Messages) != 1 {
			t.Fatalf("%s: %+v %v", j.Name, got, err)
		}
		text := got.Messages[0].Content.(*sdk.TextContent).Text
		for _, w := range given {
			has(t, text, w)
		}
		if len(text) < 100 {
			t.Errorf("%s says only %q", j.Name, text)
		}
	}
	if _, err := p.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "serve"}); err == nil || !strings.Contains(err.Error(), "command") {
		t.Errorf("without its argument: %v", err)
	}
}

// A session that is busy is waited for, and not for ever.
func TestBusy(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withInitialize)
	p.exec("true")
	// A command that calls for its own session would wait for itself.
	r, _ := p.exec(fmt.Sprintf(`printf '%%s\n' %s | %s mcp`, strconv.Quote(""), h.Exe))
	if conchtest.Code(r.ExitCode) != "0" {
		t.Errorf("%+v", r)
	}
	inside := strings.ReplaceAll(fmt.Sprintf(hello, "2025-06-18"), `"`, `\"`) + `\n` +
		strings.ReplaceAll(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"true","session":"codex:1"}}}`, `"`, `\"`)
	r, _ = p.exec(fmt.Sprintf(`printf "%s\n" | CONCH_SESSION= %s mcp`, inside, h.Exe))
	if !strings.Contains(r.Stdout, "error session_busy") || !strings.Contains(r.Stdout, "new:LABEL") {
		t.Errorf("from inside: %s %s", r.Stdout, r.Stderr)
	}
}
