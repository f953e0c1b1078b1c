package conchtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// An sse is one server-sent event; a comment has no name.
type sse struct {
	id, name, data string
	comment        bool
}

// readEvent reads one event; ok is false at the stream's end.
func readEvent(r *bufio.Reader) (e sse, ok bool) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return e, false
		}
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if e != (sse{}) {
				return e, true
			}
		case strings.HasPrefix(line, ":"):
			e.comment = true
		case key == "id":
			e.id = value
		case key == "event":
			e.name = value
		case key == "data":
			e.data = value
		}
	}
}

// events asks for a path and reads all events there are.
func (h *Home) events(path string, header ...string) (int, []sse) {
	h.T.Helper()
	resp := h.ask("GET", path, "", header...)
	defer resp.Body.Close()
	var list []sse
	r := bufio.NewReader(resp.Body)
	for {
		e, ok := readEvent(r)
		if !ok {
			return resp.StatusCode, list
		}
		list = append(list, e)
	}
}

func (h *Home) ask(method, path, body string, header ...string) *http.Response {
	h.T.Helper()
	req, err := http.NewRequest(method, "http://conch"+path, strings.NewReader(body))
	if err != nil {
		h.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := h.web().Do(req)
	if err != nil {
		h.T.Fatal(err)
	}
	return resp
}

// told joins what events say of one stream.
func told(list []sse, name string) string {
	var b strings.Builder
	for _, e := range list {
		var ev conch.Event
		if e.name == name && json.Unmarshal([]byte(e.data), &ev) == nil {
			b.WriteString(ev.Data)
		}
	}
	return b.String()
}

// A command's events replay from every place, live or not, open or closed, and end
// with its exit.
func TestEventsResume(t *testing.T) {
	h := New(t)
	h.OK("exec", "-s", "a", "for i in 1 2 3 4 5; do echo $i; sleep 0.02; done; echo e >&2")
	id := h.Last("a").CommandID
	base := "/v1/commands/" + string(id) + "/events"
	_, all := h.events(base)
	if told(all, "stdout") != "1\n2\n3\n4\n5\n" || told(all, "stderr") != "e\n" || all[0].name != "start" || all[len(all)-1].name != "exit" {
		t.Fatalf("%+v", all)
	}
	everyPlace := func(base string) {
		for i, e := range all {
			rest := all[i+1:]
			for _, form := range []string{"after", "header", "both"} {
				path, header := base, []string{}
				if form != "header" {
					path += "?after=" + e.id
				}
				if form == "header" {
					header = []string{"Last-Event-ID", e.id}
				} else if form == "both" {
					header = []string{"Last-Event-ID", "1"}
				}
				status, got := h.events(path, header...)
				if fmt.Sprint(got) != fmt.Sprint(append([]sse(nil), rest...)) {
					t.Errorf("%s by %s: %.300v, want %.300v", path, form, got, rest)
				}
				if len(rest) == 0 != (status == http.StatusNoContent) {
					t.Errorf("%s: status %d with %d events left", path, status, len(rest))
				}
			}
		}
	}
	everyPlace(base)
	everyPlace("/v1/sessions/me/a/commands/" + string(id) + "/events")

	// While it runs: cut after every event, and go on.
	stream := func(after string) (sse, bool) {
		resp := h.ask("GET", "/v1/commands/"+string(h.Session("a").Running)+"/events?after="+after, "")
		defer resp.Body.Close()
		return readEvent(bufio.NewReader(resp.Body))
	}
	run := h.Start("exec", "-s", "a", "for i in 1 2 3 4; do echo $i; read -t 0.3 <> <(:); done; sleep 60")
	run.Line("1")
	after, lines := "0", ""
	for lines != "1\n2\n3\n4\n" {
		e, ok := stream(after)
		if !ok || e.id == "" {
			t.Fatalf("after %s: %+v", after, e)
		}
		after = e.id
		lines += told([]sse{e}, "stdout")
	}
	h.OK("interrupt", "-s", "a")
	run.End()

	for _, bad := range []string{"?after=x", "?after=-1", "?after=999999"} {
		resp := h.ask("GET", base+bad, "")
		if resp.StatusCode != 400 {
			t.Errorf("%s: %d", bad, resp.StatusCode)
		}
		resp.Body.Close()
	}
	h.OK("close", "a")
	everyPlace(base)
	if _, got := h.events("/v1/sessions/me/a/events"); told(got, "stdout") != "1\n2\n3\n4\n5\n1\n2\n3\n4\n" {
		t.Errorf("of the closed session: %v", got)
	}
}

// A session's events are those of all commands, as they come.
func TestSessionEvents(t *testing.T) {
	h := New(t)
	h.OK("exec", "-s", "a", "echo before")
	resp := h.ask("GET", "/v1/sessions/me/a/events?live=1", "")
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	h.OK("exec", "-s", "a", "echo now")
	var names []string
	for len(names) < 3 {
		e, ok := readEvent(r)
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.name != "" {
			names = append(names, e.name)
		}
		var ev conch.Event
		json.Unmarshal([]byte(e.data), &ev)
		if e.name == "start" && (ev.Command != "echo now" || ev.Session != "a") || e.name != "" && ev.CommandID == "" {
			t.Errorf("%+v", e)
		}
	}
	if fmt.Sprint(names) != "[start stdout exit]" {
		t.Error(names)
	}
	if _, all := h.events("/v1/sessions/me/a/events?follow=0"); told(all, "stdout") != "before\nnow\n" {
		t.Errorf("%+v", all)
	}
	// Its end is the stream's.
	h.OK("close", "a")
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("at the session's end: %v", err)
	}
}

// A place that has fallen off the tape is told of, with where to go on.
func TestEventsGone(t *testing.T) {
	h := New(t).With("CONCH_TAPE_LIMIT=400000")
	h.OK("exec", "-s", "a", "echo first")
	first := h.Last("a").CommandID
	for range 4 {
		h.OK("exec", "-s", "a", "head -c 200000 /dev/zero | tr '\\0' x >&2")
	}
	for _, path := range []string{"/v1/sessions/me/a/events?follow=0", "/v1/sessions/me/a/events?after=2&follow=0"} {
		_, list := h.events(path)
		last := list[len(list)-1]
		if last.name != "error" || !strings.Contains(last.data, "output_gone") || last.id == "" {
			t.Fatalf("%s: %.300v", path, list)
		}
		_, rest := h.events("/v1/sessions/me/a/events?follow=0", "Last-Event-ID", last.id)
		next, _ := strconv.Atoi(last.id)
		if len(rest) < 2 || rest[1].id != strconv.Itoa(next+1) && rest[0].id != strconv.Itoa(next+1) || rest[len(rest)-1].name != "exit" {
			t.Errorf("behind the gap: %.300v", rest)
		}
	}
	if resp := h.ask("GET", "/v1/commands/"+string(first)+"/events", ""); resp.StatusCode != 404 && resp.StatusCode != 410 && resp.StatusCode != 200 {
		t.Errorf("a command that is gone: %d", resp.StatusCode)
	} else {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !bytes.Contains(b, []byte("output_gone")) && !bytes.Contains(b, []byte("command_not_found")) {
			t.Errorf("a command that is gone: %s", b)
		}
	}
}

// rss is a process's memory in bytes.
func rss(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	n, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// Readers that do not read hold up neither the command nor memory.
func TestSlowReaders(t *testing.T) {
	h := New(t)
	const text = "yes | head -c 200M"
	plain := h.Exec("plain", text, "--max-output", "10") // nobody follows this one
	h.OK("exec", "-s", "a", "true")
	keeper := h.Session("a").KeeperPID
	before := rss(t, keeper)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i, path := range []string{"/v1/sessions/me/a/events?live=1", "/v1/sessions/me/a/events", "/v1/sessions/me/a/tape?follow=1", "/v1/sessions/me/a/events?live=1"} {
		c, err := net.Dial("unix", h.socket())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		accept := "text/event-stream"
		if i == 3 {
			accept = "application/vnd.conch.tape"
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: conch\r\nAccept: %s\r\n\r\n", path, accept)
		// Its first byte says that it is followed; no more is read.
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil && i != 3 {
			t.Fatalf("%s: %v", path, err)
		}
	}
	slow := h.Exec("a", text, "--max-output", "10")
	if slow.StdoutBytes != 200<<20 || Code(slow.ExitCode) != "0" {
		t.Fatalf("%+v", slow)
	}
	grown := rss(t, keeper) - before
	t.Logf("200 MB in %.0f ms, and in %.0f ms with four readers that do not read; the keeper grew by %d KiB", plain.DurationMS, slow.DurationMS, grown>>10)
	if slow.DurationMS > 3*plain.DurationMS+2000 {
		t.Error("the readers held it up")
	}
	if grown > 32<<20 {
		t.Error("they cost too much memory")
	}
	// One that begins to read gets all of it.
	resp := h.ask("GET", "/v1/commands/"+string(slow.CommandID)+"/output", "")
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != 200<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// The same call by curl, by the Go client and by the command line has the same result.
func TestThreeWays(t *testing.T) {
	h := New(t)
	h.OK("up")
	c := client.New(client.Options{Home: h.Path, Exe: h.Exe, Agent: "me", Cwd: h.Work})
	defer c.CloseIdle()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	curl := func(v any, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--unix-socket", h.socket()}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		if err := json.Unmarshal(out, v); err != nil {
			t.Fatalf("%v: %v: %.300q", cmd.Args, err, out)
		}
	}
	// same is a value without what differs from run to run.
	same := func(v any) string {
		b, _ := json.Marshal(v)
		var m any
		json.Unmarshal(b, &m)
		var strip func(any)
		strip = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				for _, k := range []string{"session", "command_id", "duration_ms", "started_at", "ended_at", "shell_pid", "keeper_pid", "last_active", "id", "label", "tape_bytes", "uptime_s"} {
					delete(v, k)
				}
				for _, e := range v {
					strip(e)
				}
			case []any:
				for _, e := range v {
					strip(e)
				}
			}
		}
		strip(m)
		b, _ = json.Marshal(m)
		return string(b)
	}
	compare := func(what string, ways ...any) {
		t.Helper()
		for i, w := range ways[1:] {
			if same(w) != same(ways[0]) {
				t.Errorf("%s: way %d differs:\n%s\n%s", what, i+1, same(w), same(ways[0]))
			}
		}
	}
	for _, q := range []conch.ExecRequest{
		{Command: "echo hi; echo err >&2; exit 3"},
		{Command: "echo $?"},
		{Command: "cd /; x=5; f() { echo F; }"},
		{Command: "pwd; echo $x; f"},
		{Command: "printf 'a\\377b'"},
		{Command: "seq 100000"},
		{Command: "echo \"unclosed"},
		{Command: "nonsuch-command"},
		{Command: "kill -9 $$"},
		{Command: "echo $x"},
		{Command: "sleep 20", TimeoutMS: 200},
		{Command: "echo out; echo err >&2", Merge: true},
		{Command: "seq 1000", MaxOutput: 20},
		{Command: "echo $K; pwd", Env: map[string]string{"K": "v w"}, Cwd: "/tmp"},
		{Command: "head -c 5", Stdin: []byte("")},
		{Command: ""},
	} {
		body, _ := json.Marshal(q)
		var byCurl, byCLI conch.Result
		curl(&byCurl, "--json", string(body), "http://conch/v1/sessions/me/curl/exec?create=1&cwd="+h.Work)
		byGo, err := c.Exec(ctx, "go", q)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"exec", "--json", "-s", "cli"}
		if q.TimeoutMS > 0 {
			args = append(args, "-t", fmt.Sprint(q.TimeoutMS, "ms"))
		}
		if q.Merge {
			args = append(args, "--merge")
		}
		if q.MaxOutput > 0 {
			args = append(args, "--max-output", fmt.Sprint(q.MaxOutput))
		}
		if q.Cwd != "" {
			args = append(args, "--cwd", q.Cwd)
		}
		for k, v := range q.Env {
			args = append(args, "-e", k+"="+v)
		}
		h.JSON(&byCLI, append(args, "--", q.Command)...)
		compare(q.Command, byCurl, byGo, byCLI)
	}
	var history [3][]conch.HistoryEntry
	curl(&history[0], "http://conch/v1/sessions/me/curl/history")
	history[1], _ = c.History(ctx, "go", 0)
	history[2] = h.History("cli")
	compare("history", history[0], history[1], history[2])
	var info [3]conch.SessionInfo
	curl(&info[0], "http://conch/v1/sessions/me/curl")
	if s, err := c.Session(ctx, "go"); err == nil {
		info[1] = *s
	}
	info[2] = h.Session("cli")
	compare("session", info[0], info[1], info[2])
	var status [2]conch.StatusInfo
	curl(&status[0], "http://conch/v1/status")
	h.JSON(&status[1], "status", "--json")
	byGo, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	compare("status", status[0], byGo, status[1])

	// Background processes: started, waited for and described.
	const text = "echo out; echo err >&2; exit 5"
	var ran [3]conch.Process
	curl(&ran[0], "--json", `{"command":"`+text+`"}`, "http://conch/v1/sessions/me/curl/run")
	if p, err := c.Run(ctx, "go", conch.RunRequest{Command: text}); err == nil {
		ran[1] = *p
	}
	h.JSON(&ran[2], "run", "--json", "-s", "cli", text)
	var waited [2]conch.WaitResult
	curl(&waited[0], "--json", "{}", "http://conch/v1/processes/"+string(ran[0].ProcessID)+"/wait")
	if w, err := c.Wait(ctx, ran[1].ProcessID, conch.WaitRequest{}); err == nil {
		waited[1] = *w
	}
	if o := h.Conch("wait", string(ran[2].ProcessID), "--exit"); o.Status != 5 || waited[0].Reason != conch.WaitExit || waited[1].Reason != conch.WaitExit {
		t.Errorf("%+v, %+v, %v", waited[0], waited[1], o)
	}
	for i, r := range ran {
		p, err := c.Process(ctx, r.ProcessID)
		if err != nil {
			t.Fatalf("way %d: %v", i, err)
		}
		if Code(p.ExitCode) != "5" || p.Status != conch.ProcessExited || p.Command != text || p.StdoutBytes != 4 || p.StderrBytes != 4 || p.Cwd != ran[1].Cwd {
			t.Errorf("way %d: %+v", i, p)
		}
	}

	// And the same refusal, each in its own form.
	var e conch.ErrorBody
	curl(&e, "http://conch/v1/sessions/me/none/history")
	_, err = c.History(ctx, "none", 0)
	o := h.Conch("history", "-s", "none")
	if e.Error.Code != conch.SessionNotFound || conch.AsError(err).Kind != e.Error.Code || !strings.Contains(o.Stderr, e.Error.Message) || conch.AsError(err).Message != e.Error.Message {
		t.Errorf("curl %+v, Go %v, command line %v", e, err, o)
	}
}
