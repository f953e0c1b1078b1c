package keeper

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
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/sock"
)

func init() {
	if os.Getenv("CONCH_TEST_KEEPER") != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("CONCH_TEST_KEEPER"); dir != "" {
		os.Unsetenv("CONCH_TEST_KEEPER")
		os.Exit(Main(dir, "test"))
	}
	os.Exit(m.Run())
}

// A rig is a real keeper process and a client of it.
type rig struct {
	t      testing.TB
	home   string
	dir    string
	cmd    *exec.Cmd
	ctl    *net.UnixConn
	pass   *sock.Passer
	client *http.Client
}

const testID = "testtest"

func newRig(t testing.TB, env ...string) *rig {
	t.Helper()
	home, err := os.MkdirTemp("", "ck")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: home, dir: filepath.Join(home, "sessions", testID)}
	for _, d := range []string{r.dir, filepath.Join(home, "run")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec := fmt.Sprintf(`{"id":%q,"agent":"me","label":"main","cwd":%q,"created_at":"2026-01-01T00:00:00Z"}`, testID, home)
	if err := os.WriteFile(filepath.Join(r.dir, "spec.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(env...)
	t.Cleanup(func() {
		r.stop()
		os.RemoveAll(sock.MemoryPath(home))
		os.RemoveAll(home)
	})
	return r
}

func (r *rig) start(env ...string) {
	r.t.Helper()
	exe, _ := os.Executable()
	r.cmd = exec.Command(exe)
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.home, "CONCH_TEST_KEEPER=" + r.dir, "LANG=C.UTF-8"}, env...)
	if v := os.Getenv("GOCOVERDIR"); v != "" {
		r.cmd.Env = append(r.cmd.Env, "GOCOVERDIR="+v)
	}
	log, err := os.OpenFile(filepath.Join(r.dir, "keeper.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		r.t.Fatalf("keeper says %q", line)
	}
	path, err := sock.Path(r.home, testID+".sock")
	if err != nil {
		r.t.Fatal(err)
	}
	r.ctl, err = sock.Dial(context.Background(), path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.pass = sock.NewPasser(r.ctl)
	r.client = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		a, b, err := sock.Pair()
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return a, r.pass.Pass(b, nil)
	}, MaxIdleConnsPerHost: 100}}
}

func (r *rig) stop() {
	if r.cmd == nil {
		return
	}
	r.client.Post(r.url("/shutdown"), "application/json", nil)
	done := make(chan struct{})
	go func() { r.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		r.t.Errorf("keeper does not leave")
		r.cmd.Process.Kill()
		<-done
	}
	r.ctl.Close()
	r.client.CloseIdleConnections()
	if r.t.Failed() || testing.Verbose() {
		b, _ := os.ReadFile(filepath.Join(r.dir, "keeper.log"))
		r.t.Logf("keeper.log:\n%s", b)
	}
	r.cmd = nil
}

func (r *rig) url(path string) string { return "http://s-test.conch/v1/sessions/me/main" + path }

// call does one request and decodes the answer; an error body is returned.
func (r *rig) call(method, path string, body, v any) error {
	r.t.Helper()
	b, _ := json.Marshal(body)
	req, _ := http.NewRequest(method, r.url(path), bytes.NewReader(b))
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		var e conch.ErrorBody
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
			return err
		}
		return e.Err()
	}
	if raw, ok := v.(*[]byte); ok {
		*raw, err = io.ReadAll(resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func (r *rig) try(q conch.ExecRequest) (*conch.Result, error) {
	r.t.Helper()
	var res conch.Result
	if err := r.call("POST", "/exec", q, &res); err != nil {
		return nil, err
	}
	return &res, nil
}

func (r *rig) exec(text string) *conch.Result {
	r.t.Helper()
	return r.run(conch.ExecRequest{Command: text, TimeoutMS: 60_000})
}

func (r *rig) run(q conch.ExecRequest) *conch.Result {
	r.t.Helper()
	res, err := r.try(q)
	if err != nil {
		r.t.Fatalf("%.80q: %v", q.Command, err)
	}
	return res
}

func code(res *conch.Result) string {
	if res.ExitCode == nil {
		return "null"
	}
	return fmt.Sprint(*res.ExitCode)
}

func (r *rig) want(text, stdout, stderr, exit string) *conch.Result {
	r.t.Helper()
	res := r.exec(text)
	if res.Stdout != stdout || res.Stderr != stderr || code(res) != exit {
		r.t.Errorf("%.100q:\n got stdout %q stderr %q exit %s\nwant stdout %q stderr %q exit %s", text, res.Stdout, res.Stderr, code(res), stdout, stderr, exit)
	}
	return res
}

func TestEveryCallHasItsHandler(t *testing.T) {
	if _, wrong := route.Build(route.Session(), new(Keeper).handlers(), sendError); len(wrong) > 0 {
		t.Errorf("calls without handler, or handlers without call: %v", wrong)
	}
}

func TestExec(t *testing.T) {
	r := newRig(t)
	r.want("echo hi; echo err >&2", "hi\n", "err\n", "0")
	r.want("X=5; declare -A m=([a]=1); f(){ echo F; }; alias ll='echo LL'", "", "", "0")
	r.want("echo $X ${m[a]}; f; ll", "5 1\nF\nLL\n", "", "0")
	r.want("(exit 7)", "", "", "7")
	r.want("echo $?", "7\n", "", "0")
	r.want("echo $?", "0\n", "", "0")
	res := r.want("exit 3", "", "", "3")
	if !res.Shell.Restarted || !strings.Contains(fmt.Sprint(res.Shell.Restored), "functions") {
		t.Errorf("shell report: %+v", res.Shell)
	}
	r.want("echo $? $X ${m[a]}; f; ll", "3 5 1\nF\nLL\n", "", "0")
}
