package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/keeper"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
)

// The keeper wants the process's first thread.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "keeper" {
		runtime.LockOSThread()
	}
}

// TestMain is a keeper or a daemon when started as one: daemons here are real
// processes, to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "keeper" {
		os.Exit(keeper.Main("", "test"))
	}
	if len(os.Args) >= 3 && os.Args[1] == "daemon" {
		o := Options{Home: os.Args[2], Version: "test", Login: map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/", noRaceSleep: noRaceValue}}
		if len(os.Args) == 4 {
			o.AutoStarted = true
			o.IdleExit, _ = time.ParseDuration(os.Args[3])
		}
		o.Ready = func() { fmt.Println("ready") }
		if err := Run(context.Background(), o); err != nil {
			b, _ := json.Marshal(conch.AsError(err).Body())
			fmt.Println(string(b))
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The race detector's runtime sleeps a second at each exit.
const noRaceSleep, noRaceValue = "GORACE", "atexit_sleep_ms=0"

type daemon struct {
	t    *testing.T
	home string
	cmd  *exec.Cmd
	out  *bytes.Buffer
	gone chan struct{}
	http *http.Client
}

// launch starts a daemon and does not wait for it.
func launch(t *testing.T, home string, args, env []string) *daemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, home: home, out: &bytes.Buffer{}, gone: make(chan struct{})}
	d.cmd = exec.Command(exe, append([]string{"daemon", home}, args...)...)
	d.cmd.Env = append(append(os.Environ(), noRaceSleep+"="+noRaceValue), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.cmd.Wait(); close(d.gone) }() // ends with the daemon, at the latest in Cleanup
	t.Cleanup(func() { d.kill(syscall.SIGKILL) })
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return sock.Dial(ctx, d.record().Socket)
	}}}
	t.Cleanup(d.http.CloseIdleConnections)
	return d
}

func (d *daemon) kill(sig syscall.Signal) {
	d.cmd.Process.Signal(sig)
	<-d.gone
}

func (d *daemon) record() (r Record) {
	b, err := os.ReadFile(filepath.Join(d.home, "daemon.json"))
	if err == nil {
		json.Unmarshal(b, &r)
	}
	return r
}

// start runs a daemon and waits until it serves.
func start(t *testing.T, home string, env ...string) *daemon {
	t.Helper()
	d := launch(t, home, nil, env)
	d.ready()
	return d
}

func (d *daemon) ready() {
	d.t.Helper()
	eventually(d.t, "daemon is ready", 10*time.Second, func() bool {
		select {
		case <-d.gone:
			d.t.Fatalf("daemon ended: %s", d.out)
		default:
		}
		return d.record().PID == d.cmd.Process.Pid
	})
}

func eventually(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", limit, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// newHome is a home whose keepers, and what they started, end with the test.
func newHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "h")
	t.Cleanup(func() {
		records, _ := filepath.Glob(filepath.Join(home, "sessions/*/keeper.json"))
		for _, f := range records {
			var k session.Keeper
			b, _ := os.ReadFile(f)
			if json.Unmarshal(b, &k) != nil {
				continue
			}
			proc.Signal(proc.ID{PID: k.PID, Start: k.Start}, syscall.SIGKILL)
			proc.End(context.Background(), func() []proc.ID {
				return proc.Scan(func(m proc.Mark) bool { return m.Session() == k.Mark })
			}, []proc.Step{{Signal: syscall.SIGKILL, Wait: 2 * time.Second}})
		}
		os.RemoveAll(sock.MemoryPath(home))
	})
	return home
}

// do sends a request and decodes the answer; an error's form is an error.
func (d *daemon) do(method, path string, body, out any) error {
	var resp *http.Response
	for tries := 0; ; tries++ {
		var r io.Reader
		if body != nil {
			b, _ := json.Marshal(body)
			r = bytes.NewReader(b)
		}
		req, err := http.NewRequest(method, "http://daemon.conch"+path, r)
		if err != nil {
			d.t.Fatal(err)
		}
		resp, err = d.http.Do(req)
		// As the client does: a connection that was handed to a keeper in its
		// last moment is reset, and the request was in nobody's hands.
		if errors.Is(err, syscall.ECONNRESET) && tries < 5 {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var eb conch.ErrorBody
		if json.Unmarshal(b, &eb) != nil || eb.Error.Code == "" {
			return fmt.Errorf("status %d: %s", resp.StatusCode, b)
		}
		return eb.Err()
	}
	if s, ok := out.(*string); ok {
		*s = string(b)
		return nil
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func (d *daemon) exec(label, command string) (r conch.Result, err error) {
	err = d.do("POST", "/v1/sessions/me/"+label+"/exec?create=1&cwd=/", conch.ExecRequest{Command: command}, &r)
	return r, err
}

func (d *daemon) mustExec(label, command string) conch.Result {
	d.t.Helper()
	r, err := d.exec(label, command)
	if err != nil {
		d.t.Fatalf("exec %q: %v", command, err)
	}
	return r
}

func TestServes(t *testing.T) {
	d := start(t, newHome(t))
	var ok string
	if err := d.do("GET", "/healthz", nil, &ok); err != nil || ok != "ok\n" {
		t.Errorf("healthz: %q, %v", ok, err)
	}
	var v struct {
		Version  string
		Protocol int
	}
	if err := d.do("GET", "/v1/version", nil, &v); err != nil || v.Version != "test" || v.Protocol != conch.ProtocolVersion {
		t.Errorf("version: %+v, %v", v, err)
	}
	resp, err := d.http.Get("http://daemon.conch/v1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 404 || resp.Header.Get("Conch-Protocol") != "1" || resp.Header.Get("Conch-Version") != "test" || !bytes.Contains(b, []byte(`"code":"route_not_found"`)) {
		t.Errorf("unknown path: %d %v %s", resp.StatusCode, resp.Header, b)
	}
	var st conch.StatusInfo
	if err := d.do("GET", "/v1/status", nil, &st); err != nil || st.DaemonPID != d.cmd.Process.Pid || st.Home != d.home {
		t.Errorf("status: %+v, %v", st, err)
	}
	for _, c := range []struct {
		method, path string
		body         any
		kind         conch.Kind
	}{
		{"POST", "/v1/sessions", map[string]any{"label": "bad label"}, conch.InvalidLabel},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "agent": "UPPER"}, conch.InvalidAgent},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "env": map[string]string{"1X": ""}}, conch.InvalidEnv},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "env": map[string]string{"X": "a\x00b"}}, conch.InvalidEnv},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "cwd": "relative"}, conch.InvalidRequest},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "cwd": "/does/not/exist"}, conch.InvalidRequest},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "cmd": "typo"}, conch.InvalidRequest},
		{"POST", "/v1/sessions", map[string]any{"label": "a", "parent": "none"}, conch.SessionNotFound},
		{"POST", "/v1/sessions", map[string]any{"label": strings.Repeat("a", 5<<20)}, conch.TooLarge},
		{"GET", "/v1/sessions/me/none", nil, conch.SessionNotFound},
		{"GET", "/v1/sessions/me/none/history", nil, conch.SessionNotFound},
		{"GET", "/v1/sessions/me/a%20b/history", nil, conch.InvalidLabel},
		{"POST", "/v1/sessions/me/none/exec", conch.ExecRequest{Command: "true"}, conch.SessionNotFound},
		{"POST", "/v1/sessions/me/x/exec?create=1&cwd=/does/not/exist", conch.ExecRequest{Command: "true"}, conch.InvalidRequest},
		{"POST", "/v1/sessions/me/none/close", nil, conch.SessionNotFound},
		{"GET", "/v1/commands/nonsense", nil, conch.CommandNotFound},
		{"GET", "/v1/commands/aaaaaaaa-1/output", nil, conch.CommandNotFound},
	} {
		if err := d.do(c.method, c.path, c.body, nil); !errors.Is(err, c.kind) {
			t.Errorf("%s %s: %v, want %s", c.method, c.path, err, c.kind)
		}
	}
	req, _ := http.NewRequest("GET", "http://daemon.conch/v1/status", nil)
	req.Header.Set("Conch-Protocol", "99")
	if resp, err := d.http.Do(req); err != nil || resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("other protocol: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	var doc struct {
		Checks []struct {
			Name, Detail string
			OK           bool
		}
	}
	if err := d.do("GET", "/v1/doctor", nil, &doc); err != nil || len(doc.Checks) < 10 {
		t.Errorf("doctor: %+v, %v", doc, err)
	}
	for _, c := range doc.Checks {
		if !c.OK && c.Name != "space" {
			t.Errorf("doctor: %+v", c)
		}
	}
	d.kill(syscall.SIGTERM)
	for _, f := range []string{"daemon.json", "run/d.sock"} {
		if _, err := os.Lstat(filepath.Join(d.home, f)); !os.IsNotExist(err) {
			t.Errorf("%s is left after a clean end", f)
		}
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("status %d: %s", code, d.out)
	}
}

func TestTwoAtOnce(t *testing.T) {
	home := newHome(t)
	var ds []*daemon
	for range 6 {
		ds = append(ds, launch(t, home, nil, nil))
	}
	running := func() (n int) {
		for _, d := range ds {
			select {
			case <-d.gone:
			default:
				n++
			}
		}
		return n
	}
	eventually(t, "one is left", 10*time.Second, func() bool { return running() == 1 })
	for _, d := range ds {
		select {
		case <-d.gone:
			if !strings.Contains(d.out.String(), string(conch.AlreadyRunning)) {
				t.Errorf("a loser said %q", d.out)
			}
		default:
			d.ready()
			d.mustExec("main", "true")
		}
	}
}

func TestKilledDaemon(t *testing.T) {
	home := newHome(t)
	d := start(t, home)
	pid := d.mustExec("main", "echo $$; X=kept").Stdout
	result := make(chan conch.Result, 1)
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		r, err := d.exec("main", "echo before; read y < "+fifo+"; echo after; exit 3")
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // the command is there
	if err != nil {
		t.Fatal(err)
	}
	d.kill(syscall.SIGKILL)
	if _, err := os.Lstat(filepath.Join(home, "run/d.sock")); err != nil {
		t.Errorf("no stale socket to test with: %v", err)
	}
	d2 := start(t, home)
	io.WriteString(w, "go\n")
	w.Close()
	if r := <-result; r.Stdout != "before\nafter\n" || r.ExitCode == nil || *r.ExitCode != 3 {
		t.Errorf("the command under way gave %+v", r)
	}
	_ = pid // the shell itself went with `exit`, its state did not
	if got := d2.mustExec("main", "echo $X").Stdout; got != "kept\n" {
		t.Errorf("X is %q", got)
	}
	var list []conch.SessionInfo
	if err := d2.do("GET", "/v1/sessions", nil, &list); err != nil || len(list) != 1 || list[0].KeeperPID == 0 {
		t.Errorf("sessions: %+v, %v", list, err)
	}
}

func TestSameShellAfterKilledDaemon(t *testing.T) {
	home := newHome(t)
	d := start(t, home)
	pid := d.mustExec("main", "echo $$").Stdout
	d.kill(syscall.SIGKILL)
	d = start(t, home)
	if got := d.mustExec("main", "echo $$").Stdout; got != pid {
		t.Errorf("shell %q, was %q", got, pid)
	}
}

func TestConcurrentFirstUse(t *testing.T) {
	d := start(t, newHome(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	shells := map[string]int{}
	for range 30 {
		wg.Go(func() {
			r, err := d.exec("main", "echo $PPID")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			shells[r.Stdout]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(shells) != 1 {
		t.Errorf("keepers: %v", shells)
	}
	err := d.do("POST", "/v1/sessions/me/other/exec", conch.ExecRequest{Command: "true"}, nil)
	if !errors.Is(err, conch.SessionNotFound) || !strings.Contains(conch.AsError(err).HintText, "main") {
		t.Errorf("%v (%s)", err, conch.AsError(err).HintText)
	}
}

// One connection that first asked the daemon something, then a session: the
// request is already in the server's hands and must be given on whole.
func TestHandoverByHijack(t *testing.T) {
	d := start(t, newHome(t))
	d.mustExec("main", "true")
	big := "echo " + strings.Repeat("x", 300_000) + " | wc -c"
	for name, body := range map[string]func(io.Writer, []byte){
		"length": func(w io.Writer, b []byte) {
			fmt.Fprintf(w, "Content-Length: %d\r\n\r\n%s", len(b), b)
		},
		"chunked": func(w io.Writer, b []byte) {
			io.WriteString(w, "Transfer-Encoding: chunked\r\n\r\n")
			for len(b) > 0 {
				n := min(len(b), 1000)
				fmt.Fprintf(w, "%x\r\n%s\r\n", n, b[:n])
				b = b[n:]
			}
			io.WriteString(w, "0\r\n\r\n")
		},
		"expect": func(w io.Writer, b []byte) {
			fmt.Fprintf(w, "Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
		},
	} {
		c, err := sock.Dial(t.Context(), d.record().Socket)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(conch.ExecRequest{Command: big})
		go func() {
			io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nPOST /v1/sessions/me/main/exec HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
			body(c, b)
		}()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		all, err := io.ReadAll(c)
		c.Close()
		if err != nil || !bytes.Contains(all, []byte(`"stdout":"300001\n"`)) {
			t.Errorf("%s: %v, %.600s", name, err, all)
		}
	}
}

func TestCloseHistoryPrune(t *testing.T) {
	d := start(t, newHome(t))
	r := d.mustExec("main", "echo out; echo err >&2; (setsid sleep 1000 >/dev/null 2>&1 &)")
	var e struct {
		OK, Verified bool
		Processes    int
	}
	if err := d.do("POST", "/v1/sessions/me/main/close", nil, &e); err != nil || !e.OK || !e.Verified || e.Processes < 1 {
		t.Errorf("close: %+v, %v", e, err)
	}
	if left, _ := filepath.Glob(filepath.Join(sock.MemoryPath(d.home), "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	var h []conch.HistoryEntry
	if err := d.do("GET", "/v1/sessions/me/main/history", nil, &h); err != nil || len(h) != 1 || h[0].CommandID != r.CommandID || h[0].Status != conch.StatusDone {
		t.Errorf("history of the closed: %+v, %v", h, err)
	}
	for path, want := range map[string]string{
		"/v1/commands/%s/output":                                "out\n",
		"/v1/commands/%s/output?stream=stderr":                  "err\n",
		"/v1/sessions/me/main/commands/%s/output?stream=stderr": "err\n",
	} {
		var out string
		if err := d.do("GET", fmt.Sprintf(path, r.CommandID), nil, &out); err != nil || out != want {
			t.Errorf("%s: %q, %v", path, out, err)
		}
	}
	var again conch.Result
	if err := d.do("GET", fmt.Sprintf("/v1/commands/%s?wait=1", r.CommandID), nil, &again); err != nil || again.Stdout != "out\n" || again.ExitCode == nil || *again.ExitCode != 0 {
		t.Errorf("result of the closed: %+v, %v", again, err)
	}
	var log string
	if err := d.do("GET", "/v1/sessions/me/main/log?format=labelled", nil, &log); err != nil || !strings.Contains(log, "\x01\x01\x01out\n") {
		t.Errorf("log of the closed: %q, %v", log, err)
	}
	if n := d.mustExec("main", "echo new").CommandID; strings.HasPrefix(string(n), string(r.CommandID)[:9]) {
		t.Errorf("the label's next command %s is of the closed session", n)
	}
	if err := d.do("GET", "/v1/sessions/me/main/history", nil, &h); err != nil || len(h) != 1 || h[0].CommandID == r.CommandID {
		t.Errorf("history of the open: %+v, %v", h, err)
	}
	var out string
	if err := d.do("GET", fmt.Sprintf("/v1/commands/%s/output", r.CommandID), nil, &out); err != nil || out != "out\n" {
		t.Errorf("output by id: %q, %v", out, err)
	}
	var p struct{ Removed, Bytes int }
	if err := d.do("POST", "/v1/prune", nil, &p); err != nil || p.Removed != 1 || p.Bytes == 0 {
		t.Errorf("prune: %+v, %v", p, err)
	}
	if err := d.do("GET", fmt.Sprintf("/v1/commands/%s/output", r.CommandID), nil, &out); !errors.Is(err, conch.CommandNotFound) {
		t.Errorf("output of the pruned: %v", err)
	}
}

func TestNewAndParent(t *testing.T) {
	d := start(t, newHome(t))
	d.mustExec("p", "cd /usr; export FROM=parent LATE='a\nb'; PLAIN=1")
	d.mustExec("p", "true") // starts only when the one before is in the checkpoint
	var info conch.SessionInfo
	req := map[string]any{"label": "c:1", "parent": "p", "inherit_env": true, "env": map[string]string{"FROM": "me"}}
	if err := d.do("POST", "/v1/sessions", req, &info); err != nil || info.Cwd != "/usr" || info.Label != "c:1" || info.KeeperPID == 0 {
		t.Fatalf("new: %+v, %v", info, err)
	}
	if got := d.mustExec(url.PathEscape("c:1"), `echo "$PWD $FROM $LATE $PLAIN $CONCH_SESSION $CONCH_AGENT"`).Stdout; got != "/usr me a\nb  c:1 me\n" {
		t.Errorf("child: %q", got)
	}
	if err := d.do("POST", "/v1/sessions", req, nil); !errors.Is(err, conch.LabelTaken) {
		t.Errorf("again: %v", err)
	}
}

func TestKilledKeeper(t *testing.T) {
	home := newHome(t)
	d := start(t, home)
	d.mustExec("main", "X=kept")
	var info conch.SessionInfo
	if err := d.do("GET", "/v1/sessions/me/main", nil, &info); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "pid")
	failed := make(chan error, 1)
	go func() {
		_, err := d.exec("main", "echo partial; echo $BASHPID > "+mark+".tmp; mv "+mark+".tmp "+mark+"; sleep 1000")
		failed <- err
	}()
	eventually(t, "command runs", 10*time.Second, func() bool { _, err := os.Stat(mark); return err == nil })
	// What is still in the pipe dies with the keeper.
	eventually(t, "its output is taken", 10*time.Second, func() bool {
		var h []conch.HistoryEntry
		return d.do("GET", "/v1/sessions/me/main/history", nil, &h) == nil && len(h) == 2 && h[1].StdoutBytes == 8
	})
	syscall.Kill(info.KeeperPID, syscall.SIGKILL)
	if err := <-failed; err == nil {
		t.Error("the client of the lost command got an answer")
	}
	if got := d.mustExec("main", "echo $X").Stdout; got != "kept\n" {
		t.Errorf("X is %q", got)
	}
	var h []conch.HistoryEntry
	if err := d.do("GET", "/v1/sessions/me/main/history", nil, &h); err != nil || len(h) != 3 || h[1].Status != conch.StatusLost || h[1].ExitCode != nil {
		t.Fatalf("history: %+v, %v", h, err)
	}
	var out string
	if err := d.do("GET", fmt.Sprintf("/v1/commands/%s/output", h[1].CommandID), nil, &out); err != nil || out != "partial\n" {
		t.Errorf("output so far: %q, %v", out, err)
	}
	b, _ := os.ReadFile(mark)
	var pid int
	fmt.Sscan(string(b), &pid)
	if _, err := proc.Lookup(pid); err == nil {
		if st, _ := proc.State(pid); st != 'Z' {
			t.Errorf("shell %d of the dead keeper lives (%c)", pid, st)
		}
	}
}

func TestShutdownAll(t *testing.T) {
	d := start(t, newHome(t))
	d.mustExec("a", "sleep 1000 &")
	d.mustExec("b", "true")
	var e struct {
		OK, Verified bool
		Processes    int
	}
	if err := d.do("POST", "/v1/shutdown", map[string]bool{"all": true}, &e); err != nil || !e.OK || !e.Verified || e.Processes < 1 {
		t.Errorf("shutdown: %+v, %v", e, err)
	}
	<-d.gone
	if left, _ := filepath.Glob(filepath.Join(d.home, "sessions/*/keeper.json")); len(left) > 0 {
		t.Errorf("keepers left: %v", left)
	}
}

func TestIdleExit(t *testing.T) {
	home := newHome(t)
	d := launch(t, home, []string{"300ms"}, nil)
	d.ready()
	d.mustExec("main", "true")
	select {
	case <-d.gone:
		t.Fatal("it left while a session was open")
	case <-time.After(time.Second): // three times the limit
	}
	if err := d.do("POST", "/v1/sessions/me/main/close", nil, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.gone:
	case <-time.After(10 * time.Second):
		t.Fatal("it stays")
	}
}

// Killed at each named point, the next daemon finds a home it can work with.
func TestFaultPoints(t *testing.T) {
	for point, op := range map[string]func(*daemon) error{
		"create.written": func(d *daemon) error { _, err := d.exec("main", "true"); return err },
		"start.spawned":  func(d *daemon) error { _, err := d.exec("main", "true"); return err },
		"close.ended":    func(d *daemon) error { return closeMain(d) },
		"close.recorded": func(d *daemon) error { return closeMain(d) },
		"prune.renamed": func(d *daemon) error {
			if err := closeMain(d); err != nil {
				return err
			}
			return d.do("POST", "/v1/prune", nil, nil)
		},
	} {
		t.Run(point, func(t *testing.T) {
			home := newHome(t)
			d := start(t, home, fault.Variable+"="+point)
			if !strings.HasPrefix(point, "create") && !strings.HasPrefix(point, "start") {
				d.mustExec("main", "true")
			}
			if err := op(d); err == nil {
				t.Fatal("the point was not passed")
			}
			select {
			case <-d.gone:
			case <-time.After(10 * time.Second):
				t.Fatal("the daemon did not die")
			}
			d = start(t, home)
			if got := d.mustExec("main", "echo hi").Stdout; got != "hi\n" {
				t.Errorf("after the crash: %q", got)
			}
			var list []conch.SessionInfo
			if err := d.do("GET", "/v1/sessions", nil, &list); err != nil || len(list) != 1 {
				t.Errorf("sessions: %+v, %v", list, err)
			}
			if err := closeMain(d); err != nil {
				t.Error(err)
			}
			if err := d.do("POST", "/v1/prune", nil, nil); err != nil {
				t.Error(err)
			}
			if left, _ := os.ReadDir(filepath.Join(home, "sessions")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func closeMain(d *daemon) error { return d.do("POST", "/v1/sessions/me/main/close", nil, nil) }

func TestLongHome(t *testing.T) {
	home := filepath.Join(newHome(t), strings.Repeat("long/", 30))
	t.Cleanup(func() { os.RemoveAll(sock.MemoryPath(home)) })
	d := start(t, home)
	if got := d.mustExec("main", "echo hi").Stdout; got != "hi\n" {
		t.Errorf("%q", got)
	}
	if err := d.do("POST", "/v1/shutdown", map[string]bool{"all": true}, nil); err != nil {
		t.Error(err)
	}
	<-d.gone
}

func TestManyClientsLeaveNothing(t *testing.T) {
	d := start(t, newHome(t))
	d.mustExec("main", "true")
	began := time.Now()
	fds := func() int {
		ents, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
		return len(ents)
	}
	d.http.CloseIdleConnections()
	before := fds()
	for range 50 {
		c, err := sock.Dial(t.Context(), d.record().Socket)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET /v1/sess") // and leaves
		c.Close()
		d.mustExec("main", "true")
	}
	d.http.CloseIdleConnections()
	const spare = 3 // to the keeper that waits for the next session, and may have come since
	eventually(t, "descriptors are closed again", 12*time.Second, func() bool { return fds() <= before+spare })
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("took %v: those who left were waited for", took)
	}
}

// A daemon that dies in the middle of a sweep leaves the rest to the next one,
// and a command is recorded as lost once.
func TestKilledInSweep(t *testing.T) {
	for _, point := range []string{"sweep.ended", "sweep.marked"} {
		t.Run(point, func(t *testing.T) {
			home := newHome(t)
			d := start(t, home)
			var info conch.SessionInfo
			d.mustExec("main", "X=kept")
			if err := d.do("GET", "/v1/sessions/me/main", nil, &info); err != nil {
				t.Fatal(err)
			}
			go d.exec("main", "echo partial; sleep 1000") // ends with the keeper
			eventually(t, "command runs", 10*time.Second, func() bool {
				var h []conch.HistoryEntry
				return d.do("GET", "/v1/sessions/me/main/history", nil, &h) == nil && len(h) == 2 && h[1].StdoutBytes > 0
			})
			d.kill(syscall.SIGKILL)
			d = launch(t, home, nil, []string{fault.Variable + "=" + point})
			d.ready()
			syscall.Kill(info.KeeperPID, syscall.SIGKILL)
			select {
			case <-d.gone:
			case <-time.After(10 * time.Second):
				t.Fatal("the point was not passed")
			}
			d = start(t, home)
			if got := d.mustExec("main", "echo $X").Stdout; got != "kept\n" {
				t.Errorf("X is %q", got)
			}
			if err := closeMain(d); err != nil {
				t.Fatal(err)
			}
			var h []conch.HistoryEntry
			if err := d.do("GET", "/v1/sessions/me/main/history", nil, &h); err != nil || len(h) != 3 || h[1].Status != conch.StatusLost || h[1].StdoutBytes != 8 {
				t.Errorf("history: %+v, %v", h, err)
			}
		})
	}
}

// A client inside a session may be the one that starts the daemon. It must not
// be ended with that session.
func TestDaemonTakesItsMarkOff(t *testing.T) {
	home := newHome(t)
	if err := proc.SetMark(os.Getpid(), proc.MakeMark(uint32(os.Getpid()), 1)); err != nil {
		t.Skipf("no marks here: %v", err)
	}
	d := launch(t, home, nil, nil)
	if err := proc.SetMark(os.Getpid(), 0); err != nil {
		t.Fatal(err)
	}
	d.ready()
	if m, ok := proc.MarkOf(d.cmd.Process.Pid); ok {
		t.Errorf("the daemon carries mark %v", m)
	}
}
