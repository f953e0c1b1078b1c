package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
	"github.com/conchsh/conch/internal/tape"
)

// TestMain also plays the daemon for the tests that start one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		os.Exit(fakeDaemon())
	}
	conchtest.Main(m)
}

// fakeDaemon owns the home, listens, and does what FAKE says.
func fakeDaemon() int {
	ready := os.NewFile(3, "ready")
	home := os.Getenv("CONCH_HOME")
	switch os.Getenv("FAKE") {
	case "hang":
		// Until the client has gone and its end of the pipe with it.
		for range time.Tick(20 * time.Millisecond) {
			if _, err := ready.WriteString("."); err != nil {
				return 1
			}
		}
	case "die":
		return 1
	case "refuse":
		Ready(ready, conch.Errorf(conch.HomeUnusable, "no room").Hint("make some"))
		return 1
	}
	lock, err := os.OpenFile(filepath.Join(home, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		Ready(ready, conch.Errorf(conch.AlreadyRunning, "owned: %v", err))
		return 1
	}
	starts, _ := os.OpenFile(filepath.Join(home, "starts"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	fmt.Fprintln(starts, os.Getpid(), strings.Join(os.Args[1:], " "))
	path := filepath.Join(home, "d.sock")
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		Ready(ready, err)
		return 1
	}
	data, _ := json.Marshal(daemonFile{PID: os.Getpid(), Socket: path})
	file := filepath.Join(home, "daemon.json")
	os.WriteFile(file+".new", data, 0o600)
	os.Rename(file+".new", file)
	left := make(chan struct{})
	mux := http.NewServeMux()
	srv := &http.Server{Handler: protocol(mux, "1")}
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(conch.StatusInfo{DaemonPID: os.Getpid(), Home: home})
	})
	mux.HandleFunc("POST /v1/shutdown", func(w http.ResponseWriter, r *http.Request) {
		os.Remove(file)
		fmt.Fprintln(w, "{}")
		go func() {
			srv.Shutdown(context.Background()) // waits until this answer is through
			close(left)
		}()
	})
	Ready(ready, nil)
	go srv.Serve(l)
	<-left
	return 0
}

func protocol(h http.Handler, p string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Conch-Protocol", p)
		w.Header().Set("Conch-Version", "9.9")
		h.ServeHTTP(w, r)
	})
}

// serve answers on a socket for one test and gives a client of it.
func serve(t *testing.T, h http.Handler) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	c := New(Options{Socket: path, Agent: "me", Cwd: "/start"})
	t.Cleanup(func() { c.CloseIdle(); s.Close() })
	return c
}

func fake(t *testing.T, pattern string, f http.HandlerFunc) *Client {
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, f)
	return serve(t, protocol(mux, "1"))
}

func TestExec(t *testing.T) {
	seven := 7
	c := fake(t, "POST /v1/sessions/{agent}/{label}/exec", func(w http.ResponseWriter, r *http.Request) {
		if host := "s-6d652f623a31.conch"; r.Host != host {
			t.Errorf("host %s, want %s", r.Host, host)
		}
		if got := r.PathValue("agent") + " " + r.PathValue("label") + " " + r.URL.RawQuery; got != "me b:1 create=1&cwd=%2Fstart" {
			t.Errorf("asked for %s", got)
		}
		var req conch.ExecRequest
		json.NewDecoder(r.Body).Decode(&req)
		json.NewEncoder(w).Encode(conch.Result{Session: "b:1", Stdout: req.Command + req.Env["K"], ExitCode: &seven})
	})
	r, err := c.Exec(t.Context(), "b:1", conch.ExecRequest{Command: "x<&>", Env: map[string]string{"K": "a\nb"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stdout != "x<&>a\nb" || *r.ExitCode != 7 || r.Shell.Lost == nil || r.Shell.Restored == nil {
		t.Errorf("%+v", r)
	}
}

func TestExecCarriesAnyByte(t *testing.T) {
	c := fake(t, "POST /v1/sessions/{agent}/{label}/exec", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		json.NewEncoder(w).Encode(conch.Result{Stdout: string(body)})
	})
	r, err := c.Exec(t.Context(), "main", conch.ExecRequest{Command: "\xff", Cwd: "/", Env: map[string]string{"A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Command, Cwd, Encoding string
		Env                    map[string]string
	}
	if err := json.Unmarshal([]byte(r.Stdout), &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Encoding != "base64" || sent.Command != "/w==" || sent.Cwd != "Lw==" || sent.Env["A"] != "Yg==" {
		t.Errorf("sent %s", r.Stdout)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	c := fake(t, "/", func(w http.ResponseWriter, r *http.Request) {
		e := conch.Errorf(conch.SessionBusy, "busy").Hint("wait").Retry()
		w.WriteHeader(e.Kind.HTTPStatus())
		json.NewEncoder(w).Encode(e.Body())
	})
	_, err := c.Exec(t.Context(), "main", conch.ExecRequest{Command: "x"})
	if !errors.Is(err, conch.SessionBusy) || errors.Is(err, conch.Internal) {
		t.Errorf("%v", err)
	}
	if e := conch.AsError(err); e.HintText != "wait" || !e.Retryable {
		t.Errorf("%+v", e)
	}
	if _, err := c.Exec(t.Context(), "no label", conch.ExecRequest{}); !errors.Is(err, conch.InvalidLabel) {
		t.Errorf("label: %v", err)
	}
	if _, err := c.Exec(t.Context(), "No/label", conch.ExecRequest{}); !errors.Is(err, conch.InvalidAgent) {
		t.Errorf("agent: %v", err)
	}
	if _, err := c.Command(t.Context(), "../x"); !errors.Is(err, conch.CommandNotFound) {
		t.Errorf("id: %v", err)
	}
}

func TestResolve(t *testing.T) {
	t.Setenv("CONCH_HOME", t.TempDir())
	for _, c := range []struct{ agent, envAgent, envSession, name, want string }{
		{"", "", "", "", "me/main"},
		{"", "", "", "x", "me/x"},
		{"", "bob", "s1", "", "bob/s1"},
		{"", "bob", "al/s1", "", "al/s1"},
		{"eve", "bob", "s1", "", "eve/s1"},
		{"eve", "bob", "s1", "al/x", "al/x"},
	} {
		t.Setenv("CONCH_AGENT", c.envAgent)
		t.Setenv("CONCH_SESSION", c.envSession)
		agent, label, err := New(Options{Agent: c.agent}).Resolve(c.name)
		if got := agent + "/" + label; err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

func TestVersionMismatch(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, `{"version":"9.9","protocol":2}`) })
	c := serve(t, protocol(mux, "2"))
	_, err := c.Status(t.Context())
	if !errors.Is(err, conch.VersionMismatch) || !strings.Contains(conch.AsError(err).HintText, "conch down") {
		t.Errorf("%v", err)
	}
	if err := c.Shutdown(t.Context(), false); err != nil {
		t.Errorf("down must work across versions: %v", err)
	}
	if v, err := c.Version(t.Context()); err != nil || v.Protocol != 2 {
		t.Errorf("%v %v", v, err)
	}
}

// stream answers an exec with frames.
func stream(t *testing.T, frames ...tape.Frame) *Client {
	return fake(t, "POST /v1/sessions/{agent}/{label}/exec", func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept"); got != "application/vnd.conch.tape" {
			t.Errorf("Accept: %s", got)
		}
		w.Header().Set("Conch-Command-Id", "abcdefgh-1")
		var b []byte
		for _, f := range frames {
			b = tape.AppendFrame(b, f)
		}
		w.Write(b)
	})
}

func TestStream(t *testing.T) {
	c := stream(t,
		tape.Frame{Seq: 4, Time: 1e9, Kind: tape.Start},
		tape.Frame{Seq: 5, Time: 2e9, Kind: tape.Stdout, Data: []byte("out\x00")},
		tape.Frame{Seq: 6, Time: 3e9, Kind: tape.Stderr, Data: []byte("err")},
		tape.Frame{Seq: 7, Time: 4e9, Kind: tape.Exit, Data: []byte(`{"exit_code":3}`)},
	)
	s, err := c.Stream(t.Context(), "main", conch.ExecRequest{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.ID() != "abcdefgh-1" {
		t.Errorf("id %s", s.ID())
	}
	var got []string
	for {
		e, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %d %v %q", e.Kind, e.Seq, e.T, e.Data)
		if e.Result != nil {
			line += fmt.Sprint(" ", *e.Result.ExitCode)
		}
		got = append(got, line)
	}
	want := []string{`start 4 0s ""`, `stdout 5 1s "out\x00"`, `stderr 6 2s "err"`, `exit 7 3s "" 3`}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", got)
	}
}

// A stream that is cut asks for the rest; one that brings nothing gives up.
func TestStreamThatIsCut(t *testing.T) {
	frames := []tape.Frame{{Seq: 1, Kind: tape.Start}, {Seq: 2, Kind: tape.Stdout, Data: []byte("x")}, {Seq: 3, Kind: tape.Exit, Data: []byte("{}")}}
	for _, dead := range []bool{false, true} {
		asked := []string{}
		mux := http.NewServeMux()
		send := func(w http.ResponseWriter, list []tape.Frame) {
			for _, f := range list {
				w.Write(tape.AppendFrame(nil, f))
			}
		}
		mux.HandleFunc("POST /v1/sessions/me/main/exec", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Conch-Command-Id", "aaaaaaaa-1")
			send(w, frames[:1])
		})
		mux.HandleFunc("GET /v1/commands/aaaaaaaa-1/events", func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RawQuery)
			if n := len(asked); !dead {
				send(w, frames[n:n+1])
			}
		})
		c := serve(t, protocol(mux, "1"))
		s, err := c.Stream(t.Context(), "main", conch.ExecRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var kinds []EventKind
		for err == nil {
			var e Event
			if e, err = s.Next(); err == nil {
				kinds = append(kinds, e.Kind)
			}
		}
		if !dead && (err != io.EOF || fmt.Sprint(kinds) != "[start stdout exit]" || fmt.Sprint(asked) != "[after=1 after=2]") {
			t.Errorf("%v, %v, asked %v", kinds, err, asked)
		}
		if dead && (err != io.ErrUnexpectedEOF || len(asked) != maxCuts) {
			t.Errorf("%v after asking %d times", err, len(asked))
		}
	}
}

// Every kind there is matches with errors.Is after the wire, and no other does.
func TestEveryKindSurvivesTheWire(t *testing.T) {
	source, err := os.ReadFile("../error.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Kind = "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, m[1])
	}
	var listed []string
	for _, k := range conch.Kinds() {
		listed = append(listed, string(k))
	}
	slices.Sort(declared)
	slices.Sort(listed)
	if len(declared) < 20 || !slices.Equal(declared, listed) {
		t.Errorf("declared are %v, listed %v", declared, listed)
	}
	var kind conch.Kind
	c := fake(t, "/", func(w http.ResponseWriter, r *http.Request) {
		e := conch.Errorf(kind, "it is %s", kind).Hint("hint").Retry()
		w.WriteHeader(e.Kind.HTTPStatus())
		json.NewEncoder(w).Encode(e.Body())
	})
	for _, kind = range conch.Kinds() {
		if s := kind.HTTPStatus(); s < 400 || s > 599 || s == 500 && kind != conch.Internal && kind != conch.ShellFailed && kind != conch.HomeUnusable {
			t.Errorf("%s travels as %d", kind, s)
		}
		_, execErr := c.Exec(t.Context(), "main", conch.ExecRequest{})
		_, streamErr := c.Stream(t.Context(), "main", conch.ExecRequest{})
		_, statusErr := c.Status(t.Context())
		for _, err := range []error{execErr, streamErr, statusErr, fmt.Errorf("wrapped: %w", execErr)} {
			for _, k := range conch.Kinds() {
				if errors.Is(err, k) != (k == kind) {
					t.Errorf("%v is %s: %v", err, k, errors.Is(err, k))
				}
			}
			if e := conch.AsError(err); e.HintText != "hint" || !e.Retryable {
				t.Errorf("%+v", e)
			}
		}
	}
}

func TestStreamThatNeverStarts(t *testing.T) {
	note, _ := json.Marshal(conch.Errorf(conch.QueueTimeout, "waited").Body())
	c := stream(t, tape.Frame{Kind: tape.Note, Data: note})
	s, err := c.Stream(t.Context(), "main", conch.ExecRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); !errors.Is(err, conch.QueueTimeout) {
		t.Errorf("%v", err)
	}
}

func TestStdin(t *testing.T) {
	var got bytes.Buffer
	closed := false
	c := fake(t, "POST /v1/sessions/{agent}/{label}/commands/{id}/stdin", func(w http.ResponseWriter, r *http.Request) {
		if want := fmt.Sprint(got.Len()); r.FormValue("offset") != want {
			t.Errorf("offset %s, want %s", r.FormValue("offset"), want)
		}
		io.Copy(&got, r.Body)
		closed = r.URL.Query().Get("close") == "1"
		fmt.Fprintf(w, `{"offset":%d}`, got.Len())
	})
	w := c.Stdin(t.Context(), "main", "abcdefgh-1")
	for _, s := range []string{"one", "", "two\x00"} {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got.String() != "onetwo\x00" || !closed {
		t.Errorf("%q closed=%v", got.String(), closed)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, conch.StdinClosed) {
		t.Errorf("%v", err)
	}
}

// A daemon that dies with a request unread loses nothing: the request is sent
// again. One that read it gives no such right.
func TestUnreadRequestIsSentAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var conns atomic.Int32
	var read atomic.Bool
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			if read.Load() {
				http.ReadRequest(bufio.NewReader(conn))
				conn.Close()
				continue
			}
			if n < 3 {
				// Some of it has arrived and is not read.
				raw, _ := conn.(*net.UnixConn).SyscallConn()
				raw.Read(func(fd uintptr) bool {
					_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
					return err != syscall.EAGAIN
				})
				conn.Close()
				continue
			}
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConch-Protocol: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
			conn.Close()
		}
	}()
	c := New(Options{Socket: path})
	if _, err := c.Exec(t.Context(), "main", conch.ExecRequest{Command: "x"}); err != nil || conns.Load() != 3 {
		t.Errorf("%d connections, %v", conns.Load(), err)
	}
	read.Store(true)
	conns.Store(0)
	if _, err := c.Exec(t.Context(), "main", conch.ExecRequest{Command: "x"}); err == nil || conns.Load() != 1 {
		t.Errorf("%d connections, %v", conns.Load(), err)
	}
}

func TestNotRunning(t *testing.T) {
	home := filepath.Join(t.TempDir(), "none")
	c := New(Options{Home: home, NoStart: true})
	if _, err := c.Status(t.Context()); !errors.Is(err, conch.NotRunning) {
		t.Errorf("%v", err)
	}
	if err := New(Options{Home: home}).Shutdown(t.Context(), false); !errors.Is(err, conch.NotRunning) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Error("asking made the home")
	}
}

func TestHome(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	dir, _ = os.Getwd()
	for _, c := range []struct{ arg, env, xdg, want string }{
		{"", "", "/xdg", "/xdg/conch"},
		{"", "", "rel", "/u/.local/state/conch"},
		{"", "", "", "/u/.local/state/conch"},
		{"", "/e", "/xdg", "/e"},
		{"", "h", "/xdg", filepath.Join(dir, "h")},
		{"/a", "/e", "", "/a"},
	} {
		t.Setenv("HOME", "/u")
		t.Setenv("CONCH_HOME", c.env)
		t.Setenv("XDG_STATE_HOME", c.xdg)
		if got, err := Home(c.arg); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func self(t *testing.T) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestManyClientsStartOneDaemon(t *testing.T) {
	home := shortDir(t)
	var wg sync.WaitGroup
	pids := make([]int, 20)
	for i := range pids {
		wg.Go(func() {
			s, err := New(Options{Home: home, Exe: self(t)}).Status(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = s.DaemonPID
		})
	}
	wg.Wait()
	c := New(Options{Home: home, Exe: self(t)})
	defer c.Shutdown(context.Background(), false)
	for _, pid := range pids {
		if pid == 0 || pid != pids[0] {
			t.Fatalf("pids %v", pids)
		}
	}
	data, _ := os.ReadFile(filepath.Join(home, "starts"))
	if n := bytes.Count(data, []byte("\n")); n != 1 || !bytes.Contains(data, []byte("--auto")) {
		t.Errorf("%d starts: %s", n, data)
	}
	if started, err := c.Start(t.Context()); started || err != nil {
		t.Errorf("started again: %v %v", started, err)
	}
}

func TestStartAfterShutdownAtOnce(t *testing.T) {
	home := shortDir(t)
	c := New(Options{Home: home, Exe: self(t)})
	for range 3 {
		if started, err := c.Start(t.Context()); !started || err != nil {
			t.Fatal(started, err)
		}
		if err := c.Shutdown(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
}

// A daemon killed leaves its daemon.json and socket behind.
func TestStaleDaemonIsReplaced(t *testing.T) {
	home := shortDir(t)
	c := New(Options{Home: home, Exe: self(t)})
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(s.DaemonPID, syscall.SIGKILL)
	if err := c.waitGone(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := c.Status(t.Context())
	if err != nil || again.DaemonPID == s.DaemonPID {
		t.Errorf("%+v, %v", again, err)
	}
	c.Shutdown(t.Context(), false)
}

func TestDaemonThatDoesNotStart(t *testing.T) {
	for _, c := range []struct {
		fake string
		kind conch.Kind
		says string
	}{
		{"die", conch.NotRunning, "daemon.log"},
		{"refuse", conch.HomeUnusable, "make some"},
	} {
		t.Setenv("FAKE", c.fake)
		_, err := New(Options{Home: shortDir(t), Exe: self(t)}).Status(t.Context())
		if !errors.Is(err, c.kind) || !strings.Contains(conch.AsError(err).HintText, c.says) {
			t.Errorf("%s: %#v", c.fake, err)
		}
	}
	t.Setenv("FAKE", "hang")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := New(Options{Home: shortDir(t), Exe: self(t)}).Status(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

func TestUnusableHome(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o600)
	for _, home := range []string{file, filepath.Join(file, "under")} {
		if _, err := New(Options{Home: home, Exe: self(t)}).Status(t.Context()); !errors.Is(err, conch.HomeUnusable) {
			t.Errorf("%s: %v", home, err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 4096)
	raw := tape.AppendFrame(nil, tape.Frame{Kind: tape.Stdout, Data: chunk})
	const chunks = 1600 // 100 MB
	path := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: protocol(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range chunks {
			w.Write(raw)
		}
		w.Write(tape.AppendFrame(nil, tape.Frame{Kind: tape.Exit, Data: []byte("{}")}))
	}), "1")}
	go s.Serve(l)
	defer s.Close()
	c := New(Options{Socket: path})
	b.SetBytes(chunks * int64(len(chunk)))
	for b.Loop() {
		s, err := c.Stream(b.Context(), "main", conch.ExecRequest{})
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := s.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		s.Close()
	}
}
