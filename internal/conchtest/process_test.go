package conchtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// run starts a process and gives its id.
func run(h *Home, args ...string) string {
	h.T.Helper()
	return strings.TrimSpace(h.OK(append([]string{"run"}, args...)...))
}

// ps gives one process as it is listed.
func ps(h *Home, id string) conch.Process {
	h.T.Helper()
	var list []conch.Process
	h.JSON(&list, "ps", "--json")
	for _, p := range list {
		if string(p.ProcessID) == id {
			return p
		}
	}
	h.T.Fatalf("%s is not listed: %+v", id, list)
	return conch.Process{}
}

// waited runs conch wait --json.
func waited(h *Home, status int, args ...string) conch.WaitResult {
	h.T.Helper()
	o := h.Conch(append([]string{"wait", "--json"}, args...)...)
	var r conch.WaitResult
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil || o.Status != status {
		h.T.Fatalf("wait %q: %v, want status %d", args, o, status)
	}
	return r
}

// What a process begins with is the session's state, and it changes nothing of it.
func TestRunHasTheSessionsState(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", `cd /usr; V="a  b"; A=(1 '2 3'); declare -A M=([k]=v); export E=exp; f() { echo "f:$1:$V"; }
alias hi='echo aliased'; set -f; shopt -s nullglob; umask 027; ulimit -n 123; set -- p1 'p 2'; trap 'echo TRAPPED' EXIT; readonly R=ro; true`, "")
	text := `pwd; echo "$V|${A[1]}|${M[k]}|$E|$R"; f x; hi; case $- in *f*) echo noglob;; esac; shopt -q nullglob && echo nullglob
umask; ulimit -n; echo "$#:$2"; env | grep -c ^E=; echo $CONCH_SESSION; trap -p | grep -v RTMIN; V=changed; cd /; exit 9`
	id := run(h, text)
	want := "/usr\na  b|2 3|v|exp|ro\nf:x:a  b\naliased\nnoglob\nnullglob\n0027\n123\n2:p 2\n1\nmain\n"
	if r := waited(h, 9, id); r.Reason != conch.WaitExit || *r.Process.ExitCode != 9 || r.Process.Status != conch.ProcessExited {
		t.Errorf("%+v", r)
	}
	if o := h.Conch("logs", id); o.Stdout != want || o.Stderr != "" {
		t.Errorf("%q\nwant %q\nstderr %q", o.Stdout, want, o.Stderr)
	}
	h.Want("main", "pwd; echo \"$V\"", "/usr\na  b\n")
	// Its messages are bash's own, with right lines and no path of ours.
	id = run(h, "true\nnosuchcommand")
	waited(h, 127, id)
	if o := h.Conch("logs", "--stderr", id); o.Stdout != "conch: line 2: nosuchcommand: command not found\n" {
		t.Errorf("%q", o.Stdout)
	}
	id = run(h, `echo "unclosed`)
	waited(h, 2, id)
	// Its own directory and variables.
	id = run(h, "--cwd", "/etc", "-e", "E=other", "-e", "N=a\nb", `pwd; echo "$E|$N"`)
	waited(h, 0, id)
	if got := h.OK("logs", id); got != "/etc\nother|a\nb\n" {
		t.Errorf("%q", got)
	}
	// A session that has run nothing yet; large state; text longer than bash's -c is given.
	id = run(h, "-s", "fresh", "--no-stdin", "cat; echo $PAGER")
	waited(h, 0, id)
	if got := h.OK("logs", id); got != "cat\n" {
		t.Errorf("%q", got)
	}
	h.Want("main", "big=$(printf '%300000s' x); true", "")
	if id = run(h, "echo ${#big}"); waited(h, 0, id).Reason != conch.WaitExit || h.OK("logs", id) != "300000\n" {
		t.Errorf("large state: %q", h.OK("logs", id))
	}
	long := "x='" + strings.Repeat("y", 110_000) + "'; echo ${#x} ${__conch-unset}"
	if id = run(h, long); waited(h, 0, id).Process.Command != long || h.OK("logs", id) != "110000 unset\n" {
		t.Errorf("long text: %q", h.OK("logs", id))
	}
}

// It starts while the shell is busy, from the state before.
func TestRunBesideACommand(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=before", "")
	path, open := gate(h, "gate")
	r := h.Start("exec", "V=after; echo begun; read x < "+path)
	r.Line("begun")
	id := run(h, "echo $V; sleep 1000")
	waited(h, 0, id, "--log", "before")
	open()
	r.End()
	// A timeout, a death and a reset of the shell are not the process's business.
	if o := h.Exec("main", "sleep 1000", "-t", "100ms"); !o.TimedOut {
		t.Errorf("%+v", o)
	}
	if o := h.Exec("main", "exit 4"); Code(o.ExitCode) != "4" || o.Background != 0 || len(o.Shell.Lost) != 0 {
		t.Errorf("%+v", o)
	}
	h.OK("reset", "main")
	if p := ps(h, id); p.Status != conch.ProcessRunning || p.Processes == 0 {
		t.Errorf("%+v", p)
	}
	if o := h.Exec("main", "echo ${V-unset}"); o.Stdout != "unset\n" || o.Background != 0 {
		t.Errorf("%+v", o)
	}
	pid := ps(h, id).PID
	h.OK("close", "main")
	if Alive(pid) {
		t.Error("it outlived its session")
	}
	// What it was can still be asked.
	if got := h.OK("logs", id); got != "before\n" {
		t.Errorf("%q", got)
	}
	if r := waited(h, 0, id, "--log", "bef.*"); r.Match.Text != "before" || r.Process.Status != conch.ProcessKilled {
		t.Errorf("%+v", r)
	}
}

// Signals are at their defaults, a simple command is the process itself, and what it
// is ended by is seen.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "sleep 1000")
	p := ps(h, id)
	var status []byte
	Until(t, Limit, "it is sleep", func() bool {
		status, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		return strings.Contains(string(status), "Name:\tsleep")
	})
	for _, name := range []string{"SigIgn", "SigBlk"} {
		_, mask, _ := strings.Cut(string(status), name+":\t")
		// Those above 31 have no say in what a program does; one may come from afar.
		if bits, err := strconv.ParseUint(mask[:16], 16, 64); err != nil || bits&0x7fffffff != 0 {
			t.Errorf("%s is %s", name, mask[:16])
		}
	}
	h.OK("kill", "--signal", "INT", id)
	if r := waited(h, 130, id); *r.Process.Signal != "SIGINT" || r.Process.ExitCode != nil || r.Process.Status != conch.ProcessKilled {
		t.Errorf("%+v", r.Process)
	}
	// Any signal reaches the whole tree.
	id = run(h, `t() { trap 'echo usr1 >> `+h.Work+`/got' USR1; echo up; while :; do sleep 0.05; done; }; (t) & (t) & t`)
	Until(t, Limit, "all three are up", func() bool { return h.OK("logs", id) == "up\nup\nup\n" })
	var k conch.Killed
	h.JSON(&k, "kill", "--json", "--signal", "usr1", id)
	Until(t, Limit, "all three got it", func() bool {
		b, _ := os.ReadFile(filepath.Join(h.Work, "got"))
		return string(b) == "usr1\nusr1\nusr1\n"
	})
	if k.Processes < 3 || k.Process.Status != conch.ProcessRunning {
		t.Errorf("%+v", k)
	}
	h.JSON(&k, "kill", "--json", id)
	if !k.Verified || k.Process.Processes != 0 || !k.Process.Status.Ended() {
		t.Errorf("%+v", k)
	}
	h.OK("kill", id) // once more: it is as was asked
	if o := h.Conch("kill", "--signal", "HUP", id); o.Status != 125 || !strings.Contains(o.Stderr, "has ended") {
		t.Errorf("%v", o)
	}
	for _, bad := range []string{"NOSUCH", "99", "-1"} {
		if o := h.Conch("kill", "--signal", bad, id); o.Status != 125 || !strings.Contains(o.Stderr, "signal") {
			t.Errorf("%s: %v", bad, o)
		}
	}
}

// What fled its group, its session and its parents is found; what ignores TERM goes too.
func TestKillWholeTree(t *testing.T) {
	t.Parallel()
	h := New(t)
	dir := filepath.Join(h.Work, "pids")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other := run(h, "sleep 1000")
	id := run(h, "--cwd", dir, `say() { echo $BASHPID > $1; }
(say plain; exec sleep 1000) &
(say group; exec setsid sleep 1000) &
( ( say orphan; exec setsid env -i /bin/sleep 1000 ) & ) 
bash -c 'trap "" TERM HUP INT; echo $$ > deaf; while :; do sleep 0.1; done' &
wait`)
	var pids []int
	Until(t, Limit, "all are up", func() bool {
		pids = nil
		for _, name := range []string{"plain", "group", "orphan", "deaf"} {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) == 4
	})
	var k conch.Killed
	h.JSON(&k, "kill", "--json", id)
	if !k.Verified || k.Signal != "SIGKILL" || k.Process.Processes != 0 {
		t.Errorf("%+v", k)
	}
	for _, pid := range pids {
		if Alive(pid) {
			t.Errorf("%d is still there", pid)
		}
	}
	if p := ps(h, other); p.Status != conch.ProcessRunning {
		t.Errorf("another process was hit: %+v", p)
	}
	// What is left behind by one that has ended is still its own.
	id = run(h, "setsid sleep 1000 & echo done")
	waited(h, 0, id, "--exit")
	Until(t, Limit, "its child is counted", func() bool { return ps(h, id).Processes == 1 })
	h.OK("kill", id)
	if p := ps(h, id); p.Processes != 0 || p.Status != conch.ProcessExited || *p.ExitCode != 0 {
		t.Errorf("%+v", p)
	}
}

// Output of processes, under load, to the byte, in the order of a stream.
func completeRuns(t *testing.T, n, workers int) {
	h := New(t)
	busy(t, 2)
	want := seq(5000)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			label := fmt.Sprint("s", w)
			for i := range n / workers {
				id := run(h, "-s", label, "seq 1 5000; seq 1 5000 >&2")
				var out Out
				if i%2 == 0 {
					if o := h.Conch("wait", id); o.Status != 0 {
						t.Errorf("%s: %v", id, o)
					}
					out = h.Conch("logs", id)
				} else {
					out = h.Conch("logs", "-f", id)
				}
				if out.Stdout != want || out.Stderr != want || out.Status != 0 {
					t.Errorf("%s: %d and %d bytes of %d, status %d", id, len(out.Stdout), len(out.Stderr), len(want), out.Status)
				}
			}
		})
	}
	wg.Wait()
}

func TestRunCompleteUnderLoad(t *testing.T) { completeRuns(t, 200, 4) }

func TestSoakRunComplete(t *testing.T) {
	soak(t)
	completeRuns(t, 10_000, 4)
}

func TestWait(t *testing.T) {
	t.Parallel()
	h := New(t)
	path, open := gate(h, "gate")
	id := run(h, "--name", "w", "echo first line; printf 'half '; echo oops >&2; read x < "+path+"; echo a line; exit 5")
	// History first, either stream, or the one asked for.
	if r := waited(h, 0, "w", "--log", "^first"); r.Match.Line != "first line" || r.Match.Stream != "stdout" || r.Match.Offset != 0 {
		t.Errorf("%+v", r.Match)
	}
	if r := waited(h, 0, id, "--log", "oo"); r.Match.Stream != "stderr" || r.Match.Text != "oo" {
		t.Errorf("%+v", r.Match)
	}
	if r := waited(h, 124, id, "--log", "oops", "--stream", "stdout", "-t", "50ms"); r.Reason != conch.WaitTimeout || r.Process.Status != conch.ProcessRunning {
		t.Errorf("%+v", r)
	}
	// Quiet it is already.
	if r := waited(h, 0, id, "--idle", "50ms", "-t", "30s"); r.Reason != conch.WaitIdle {
		t.Errorf("%+v", r)
	}
	// Across two writes, which are two frames at least.
	found := h.Start("wait", id, "--log", "half a line$")
	exit := h.Start("wait", id, "--exit", "--log", "never")
	never := h.Start("wait", id, "--log", "never", "--port", "1")
	Until(t, Limit, "they wait", func() bool { return h.Session("main").Processes == 1 })
	open()
	if o := found.End(); o.Status != 0 || o.Stdout != "half a line\n" {
		t.Errorf("%v", o)
	}
	if o := exit.End(); o.Status != 5 {
		t.Errorf("%v", o)
	}
	if o := never.End(); o.Status != 1 || !strings.Contains(o.Stderr, "ended first: exit 5") {
		t.Errorf("%v", o)
	}
	// After its end.
	if r := waited(h, 1, id, "--log", "never"); r.Reason != conch.WaitEnded {
		t.Errorf("%+v", r)
	}
	if r := waited(h, 0, id, "--log", "line"); r.Reason != conch.WaitLog {
		t.Errorf("%+v", r)
	}
	for _, bad := range [][]string{{"--log", "("}, {"--port", "70000"}, {"--port", "0"}, {"--http", "nonsense"}, {"--http", "ftp://x"}, {"--idle", "-1s"}, {"--log", ""}} {
		if o := h.Conch(append([]string{"wait", id}, bad...)...); o.Status != 125 || strings.Contains(o.Stderr, "fault in conch") {
			t.Errorf("%q: %v", bad, o)
		}
	}
	if o := h.Conch("wait", "aaaaaaaa-1"); o.Status != 125 || !strings.Contains(o.Stderr, "no process") {
		t.Errorf("%v", o)
	}
}

// freePort is a port nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

const server = `python3 -u -c '
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_GET(self):
        H.n += 1
        self.send_response(503 if H.n < 3 else 204); self.end_headers()
    def log_message(self, *a): print("asked", H.n)
s = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("listening on", sys.argv[1])
s.serve_forever()' `

func TestWaitForServer(t *testing.T) {
	t.Parallel()
	h := New(t)
	port := strconv.Itoa(freePort(t))
	id := run(h, server+port)
	if r := waited(h, 0, id, "--port", port, "-t", "60s"); r.Reason != conch.WaitPort || !strings.Contains(r.Detail, fmt.Sprint(r.Process.PID)) {
		t.Errorf("%+v", r)
	}
	if r := waited(h, 0, id, "--log", "listening on [0-9]+", "-t", "60s"); r.Match.Text != "listening on "+port {
		t.Errorf("%+v", r)
	}
	if r := waited(h, 0, id, "--http", "http://127.0.0.1:"+port+"/x", "-t", "60s"); r.Reason != conch.WaitHTTP || !strings.Contains(r.Detail, "204") {
		t.Errorf("%+v", r)
	}
	if r := waited(h, 124, id, "--http", "http://127.0.0.1:"+port+"/x", "--http-status", "200", "-t", "200ms"); !strings.Contains(r.Detail, "204") {
		t.Errorf("%+v", r)
	}
	// Somebody else's port is not this process's, however well it answers.
	second := run(h, "sleep 1000")
	if r := waited(h, 124, second, "--port", port, "-t", "300ms"); !strings.Contains(r.Detail, "was there before") {
		t.Errorf("%+v", r)
	}
	third := run(h, server+port)
	if r := waited(h, 1, third, "--port", port, "-t", "60s"); r.Reason != conch.WaitEnded {
		t.Errorf("%+v", r)
	}
	// One that listens on another address only.
	other := strconv.Itoa(freePort(t))
	fourth := run(h, strings.Replace(server, "127.0.0.1", "127.9.9.9", 1)+other)
	if r := waited(h, 0, fourth, "--port", other, "-t", "60s"); r.Reason != conch.WaitPort {
		t.Errorf("%+v", r)
	}
	h.OK("kill", id)
	if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	h := New(t)
	path, open := gate(h, "gate")
	id := run(h, `for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf '\377\0'; read x < `+path+"; echo last")
	Until(t, Limit, "it has written", func() bool { p := ps(h, id); return p.StdoutBytes == 20 && p.StderrBytes == 18 })
	for _, c := range []struct {
		args           []string
		stdout, stderr string
	}{
		{nil, "out 1\nout 2\nout 3\n\xff\x00", "err 1\nerr 2\nerr 3\n"},
		{[]string{"--stdout"}, "out 1\nout 2\nout 3\n\xff\x00", ""},
		{[]string{"--stderr"}, "err 1\nerr 2\nerr 3\n", ""},
		{[]string{"--stderr", "-n", "1"}, "err 3\n", ""},
		{[]string{"--stdout", "-n", "2"}, "out 3\n\xff\x00", ""},
		{[]string{"--grep", "2$"}, "out 2\n", "err 2\n"},
		{[]string{"--grep", "[12]", "--stdout", "-n", "1"}, "out 2\n", ""},
		{[]string{"--grep", "nothing"}, "", ""},
	} {
		if o := h.Conch(append([]string{"logs", id}, c.args...)...); o.Stdout != c.stdout || o.Stderr != c.stderr || o.Status != 0 {
			t.Errorf("%q: %q %q %d", c.args, o.Stdout, o.Stderr, o.Status)
		}
	}
	// By cursor, in pages.
	var page conch.LogPage
	var out bytes.Buffer
	for cursor, n := uint64(0), 0; ; n++ {
		h.JSON(&page, "logs", "--json", "--grep", "out", "--stdout", "--max-output", "8", "--since", fmt.Sprint(cursor), id)
		out.WriteString(page.Stdout)
		if cursor = page.Cursor; !page.More {
			break
		}
		if n > 10 {
			t.Fatal("the pages do not end")
		}
	}
	if out.String() != "out 1\nout 2\nout 3\n" {
		t.Errorf("%q", out.String())
	}
	h.JSON(&page, "logs", "--json", id)
	if page.Encoding != "base64" || page.Status != conch.ProcessRunning {
		t.Errorf("%+v", page)
	}
	since := page.Cursor
	f := h.Start("logs", "-f", "--since", fmt.Sprint(since), id)
	daemon := h.Daemon()
	Kill(t, daemon) // what follows is not cut
	open()
	if o := f.End(); o.Stdout != "last\n" || o.Status != 0 {
		t.Errorf("%v", o)
	}
	h.JSON(&page, "logs", "--json", "--since", fmt.Sprint(since), id)
	if page.Stdout != "last\n" || page.More {
		t.Errorf("%+v", page)
	}
	for _, bad := range [][]string{{"--grep", "("}, {"-n", "-1"}, {"--since", "x"}, {"--stdout", "--stderr"}} {
		if o := h.Conch(append([]string{"logs", id}, bad...)...); o.Status != 125 {
			t.Errorf("%q: %v", bad, o)
		}
	}
}

func TestProcessStdin(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--name", "c", "cat")
	h.Feed(strings.NewReader("one\n"), "stdin", "c")
	h.OK("stdin", id, "--text", "two\n", "--offset", "4")
	h.OK("stdin", id, "--text", "two\n", "--offset", "4") // the same again
	h.OK("stdin", id, "--text", "wo\nthree\n", "--offset", "5")
	if o := h.Conch("stdin", id, "--text", "x", "--offset", "100"); o.Status != 125 || !strings.Contains(o.Stderr, "past") {
		t.Errorf("%v", o)
	}
	h.Feed(strings.NewReader("four"), "stdin", id, "--close")
	waited(h, 0, id)
	if got := h.OK("logs", id); got != "one\ntwo\nthree\nfour" {
		t.Errorf("%q", got)
	}
	if o := h.Conch("stdin", id, "--text", "late"); o.Status != 125 || !strings.Contains(o.Stderr, "stdin is closed") {
		t.Errorf("%v", o)
	}
	id = run(h, "--no-stdin", "cat; echo end")
	waited(h, 0, id)
	// A writer that gave up on a process that does not read lets the next one write.
	path, open := gate(h, "gate")
	id = run(h, "read x < "+path+"; wc -c")
	ctx, cancel := context.WithCancel(t.Context())
	stuck := h.Cmd(ctx, "stdin", id)
	stuck.Stdin = io.LimitReader(zeros{}, 1<<20)
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	next := h.Start("stdin", id, "--text", "x", "--close")
	cancel()
	stuck.Wait()
	open()
	if o := next.End(); o.Status != 0 {
		t.Errorf("%v", o)
	}
	waited(h, 0, id)
}

// stop stops a process, all threads of it: what was running may go on for a moment.
func stop(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	Until(t, Limit, "it has stopped", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && !strings.Contains(string(b), ") T ") {
				return false
			}
		}
		return len(files) > 0
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The daemon's death is nothing to a process; the keeper's is its end, and is told.
func TestProcessesAndDeaths(t *testing.T) {
	t.Parallel()
	h := New(t)
	path, open := gate(h, "gate")
	id := run(h, "--name", "long", "echo begun; read x < "+path+"; seq 1 5000; exit 3")
	w := h.Start("wait", "long")
	waited(h, 0, id, "--log", "begun")
	Kill(t, h.Daemon())
	open()
	if o := w.End(); o.Status != 3 {
		t.Errorf("%v", o)
	}
	if got := h.OK("logs", id); got != "begun\n"+seq(5000) {
		t.Errorf("%d bytes", len(got))
	}
	id = run(h, "echo kept; setsid sleep 1000 & wait")
	waited(h, 0, id, "--log", "kept")
	p := ps(h, id)
	Kill(t, h.Session("main").KeeperPID)
	Until(t, Limit, "it is known to be lost", func() bool {
		var list []conch.Process
		h.JSON(&list, "ps", "--json")
		return len(list) == 2 && list[1].Status == conch.ProcessFailed && !Alive(p.PID)
	})
	if q := ps(h, id); q.ExitCode != nil || q.Signal != nil || q.EndedAt == nil {
		t.Errorf("%+v", q)
	}
	if r := waited(h, 125, id); r.Reason != conch.WaitExit || r.Process.Status != conch.ProcessFailed {
		t.Errorf("%+v", r)
	}
	if got := h.OK("logs", id); got != "kept\n" {
		t.Errorf("%q", got)
	}
	Until(t, Limit, "its tree is gone", func() bool { return ps(h, id).Processes == 0 })
}

// A keeper that dies between the fork and its word has not let anything run.
func TestRunFaults(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"keeper.before-process", "keeper.after-process", "keeper.before-process-exit"} {
		h := New(t)
		h.Want("main", "V=1", "")
		h.OK("close", "main")
		h.OK("down")
		armed := h.With("CONCH_FAULT=" + point)
		o := armed.Conch("run", "touch ran; exit 3")
		if point == "keeper.before-process-exit" {
			Until(t, Limit, "the keeper is gone", func() bool {
				return armed.Session("main").KeeperPID == 0 || ps(h, strings.TrimSpace(o.Stdout)).Status.Ended()
			})
		} else if o.Status == 0 {
			t.Errorf("%s: %v", point, o)
		}
		if _, err := os.Stat(filepath.Join(h.Work, "ran")); point == "keeper.before-process" && err == nil {
			t.Errorf("%s: it ran", point)
		}
		Until(t, Limit, "it is on record as failed", func() bool {
			var list []conch.Process
			h.JSON(&list, "ps", "--json")
			return len(list) == 1 && list[0].Status == conch.ProcessFailed
		})
	}
}

func TestRunRefusals(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--name", "web", "sleep 1000")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"already runs a process named web", []string{"run", "--name", "web", "true"}},
		{"is not a process name", []string{"run", "--name", "a b", "true"}},
		{"is not a process name", []string{"run", "--name", id, "true"}},
		{"no such file", []string{"run", "--cwd", "/nosuch", "true"}},
		{"not a directory", []string{"run", "--cwd", "/etc/passwd", "true"}},
		{"environment variable name", []string{"run", "-e", "1x=y", "true"}},
		{"no command given", []string{"run"}},
		{"session label", []string{"run", "-s", "a/b/c", "true"}},
		{"no session", []string{"run", "-s", "nosuch", "--no-create", "true"}},
		{"no process is named", []string{"logs", "nosuch"}},
		{"no process", []string{"logs", "aaaaaaaa-7"}},
		{"neither a process id nor a name", []string{"kill", "../x"}},
	} {
		if o := h.Conch(c.args...); o.Status != 125 || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("%q: %v", c.args, o)
		}
	}
	// A command is not a process.
	r := h.Exec("main", "true")
	if o := h.Conch("logs", string(r.CommandID)); o.Status != 125 || !strings.Contains(o.Stderr, "no process") {
		t.Errorf("%v", o)
	}
	// Ended names are free again, and the one that runs is meant.
	h.OK("kill", "web")
	id = run(h, "--name", "web", "echo second")
	waited(h, 0, "web")
	if got := h.OK("logs", "web"); got != "second\n" {
		t.Errorf("%q", got)
	}
	h.OK("prune")
	if got := h.OK("ps"); got != "no processes\n" {
		t.Errorf("%q", got)
	}
	few := New(t).With("CONCH_PROCESS_LIMIT=1")
	run(few, "sleep 1000")
	if o := few.Conch("run", "true"); o.Status != 125 || !strings.Contains(o.Stderr, "CONCH_PROCESS_LIMIT") {
		t.Errorf("%v", o)
	}
}

// What a stranger found in the first build of it.
func TestRunReview(t *testing.T) {
	t.Parallel()
	h := New(t)
	// A directory that is gone is not another one.
	dir := filepath.Join(h.Work, "a", "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(h.Work, "a", "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Want("gone", "cd "+dir, "")
	os.Remove(dir)
	if o := h.Conch("run", "-s", "gone", "rm -f -- *"); o.Status != 125 || !strings.Contains(o.Stderr, "directory is gone") {
		t.Errorf("%v", o)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	// No descriptor of ours, and so nothing of the state that was not exported.
	h.Want("main", "TOKEN=hunter2", "")
	id := run(h, "ls /proc/$$/fd; env | grep -c hunter2; true")
	waited(h, 0, id)
	if got := h.OK("logs", id); got != "0\n1\n2\n0\n" {
		t.Errorf("%q", got)
	}
	// Late output is history too.
	path, open := gate(h, "late")
	id = run(h, "(read x < "+path+"; echo READY) & exit 0")
	waited(h, 0, id)
	open()
	Until(t, Limit, "the late output is there", func() bool { return h.OK("logs", id) == "READY\n" })
	if o := h.Conch("logs", "-f", id); o.Stdout != "READY\n" || o.Status != 0 {
		t.Errorf("%v", o)
	}
	waited(h, 0, id, "--log", "^READY$")
	// What left something running stays listed until that is gone.
	id = run(h, "setsid sleep 1000 & exit 0")
	waited(h, 0, id)
	h.OK("prune")
	if p := ps(h, id); p.Processes != 1 {
		t.Errorf("%+v", p)
	}
	if o := h.OK("ps", "--running"); !strings.Contains(o, id) {
		t.Errorf("%q", o)
	}
	h.OK("kill", id)
	// Functions that bash reads back only with a word or an option more.
	h.Want("fn", "shopt -s extglob", "")
	h.Want("fn", "f() { case $1 in +(a|b)) echo m;; esac; }; g() { echo g; }; function a=b { echo ab; }; z() { echo z; }", "")
	h.Want("fn", "shopt -u extglob", "")
	id = run(h, "-s", "fn", `g; z; a\=b; shopt extglob`)
	waited(h, 1, id)
	if o := h.Conch("logs", id); o.Stdout != "g\nz\nab\nextglob        \toff\n" || o.Stderr != "" {
		t.Errorf("%v", o)
	}
	h.Exec("fn", "kill -9 $$")
	h.Want("fn", `g; z; a\=b`, "g\nz\nab\n")
	// What is ignored stays so; options that speak do not speak of us.
	h.Want("ign", "trap '' HUP; shopt -s extdebug", "")
	h.Exec("ign", "set -v")
	h.Exec("ign", "set -x")
	id = run(h, "-s", "ign", "trap -p; echo up; read x")
	waited(h, 0, id, "--log", "^.*read x$", "--stream", "stderr")
	waited(h, 0, id, "--log", "^up$", "--stream", "stdout")
	h.OK("kill", "--signal", "HUP", id)
	if p := ps(h, id); p.Status != conch.ProcessRunning {
		t.Errorf("%+v", p)
	}
	Until(t, Limit, "all it says is there", func() bool {
		o := h.Conch("logs", id)
		return o.Stdout == "trap -- '' SIGHUP\nup\n" && o.Stderr == "trap -p; echo up; read x\n+ trap -p\n+ echo up\n+ read x\n"
	})
	h.OK("kill", id)
	// The last write, sent again after the end.
	id = run(h, "cat")
	for range 2 {
		h.OK("stdin", id, "--text", "jk", "--offset", "0", "--close")
		waited(h, 0, id)
	}
	if o := h.Conch("stdin", id, "--text", "more", "--offset", "2"); o.Status != 125 || h.OK("logs", id) != "jk" {
		t.Errorf("%v", o)
	}
	if o := h.OK("logs", "-n", "0", id); o != "" {
		t.Errorf("%q", o)
	}
	// A keeper that dies under those who wait: they are told how it ended.
	id = run(h, "-s", "dies", "sleep 1000")
	never, exit := h.Start("wait", id, "--log", "never"), h.Start("wait", id)
	Until(t, Limit, "it runs", func() bool { return h.Session("dies").Processes == 1 })
	Kill(t, h.Session("dies").KeeperPID)
	if o := never.End(); o.Status != 1 {
		t.Errorf("%v", o)
	}
	if o := exit.End(); o.Status != 125 || !strings.Contains(o.Stderr, "nobody saw it") {
		t.Errorf("%v", o)
	}
	// A keeper that is stopped holds up neither the lists nor a deadline.
	id = run(h, "-s", "stopped", "sleep 1000")
	keeper := h.Session("stopped").KeeperPID
	stop(t, keeper)
	defer syscall.Kill(keeper, syscall.SIGCONT)
	if p := ps(h, id); p.Status != conch.ProcessRunning {
		t.Errorf("%+v", p)
	}
	if o := h.Conch("wait", id, "-t", "10ms"); o.Status != 125 || !strings.Contains(o.Stderr, "does not answer") {
		t.Errorf("%v", o)
	}
	syscall.Kill(keeper, syscall.SIGCONT)
	// A server that goes into the background by itself.
	port := strconv.Itoa(freePort(t))
	id = run(h, server+port+" & exit 0")
	waited(h, 0, id)
	waited(h, 0, id, "--port", port, "-t", "60s")
	h.OK("kill", id)
}

// Word of its end, and of what it writes, comes as mail; also over the daemon's death.
func TestRunNotify(t *testing.T) {
	t.Parallel()
	h := New(t)
	if o := h.Conch("run", "--notify", "nobody", "touch ran"); o.Status != 125 || !strings.Contains(o.Stderr, "nobody") {
		t.Errorf("%v", o)
	}
	if _, err := os.Stat(filepath.Join(h.Work, "ran")); err == nil {
		t.Error("it ran all the same")
	}
	h.Want("boss", "true", "")
	path, open := gate(h, "gate")
	id := run(h, "--name", "job", "--notify", "boss", "--notify-log", "ready.*", "echo ready to go; read x < "+path+"; exit 3")
	var m struct {
		ID, From, Text string
		FromSession    string `json:"from_session"`
		Auto           bool
	}
	h.JSON(&m, "await", "-s", "boss", "-t", "60s", "--json")
	if m.ID != id+".log" || !strings.Contains(m.Text, "ready to go") || m.FromSession != "main" || !m.Auto {
		t.Errorf("%+v", m)
	}
	h.OK("ack", "-s", "boss", m.ID)
	Kill(t, h.Daemon())
	open()
	h.JSON(&m, "await", "-s", "boss", "-t", "60s", "--json")
	if m.ID != id+".exit" || !strings.Contains(m.Text, "ended with status 3") {
		t.Errorf("%+v", m)
	}
	h.OK("ack", "-s", "boss", m.ID)
	// Once, however many daemons look.
	Kill(t, h.Daemon())
	h.OK("ps")
	id = run(h, "--notify", "boss", "true")
	h.JSON(&m, "await", "-s", "boss", "-t", "60s", "--json")
	if m.ID != id+".exit" {
		t.Errorf("%+v", m)
	}
	if o := h.OK("inbox", "-s", "boss", "--peek", "--json"); strings.Count(o, `"id"`) != 1 {
		t.Errorf("%s", o)
	}
}

// What it used is what the kernel says.
func TestProcessUsage(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "python3 -c 'x = bytearray(100_000_000); s = sum(range(5_000_000)); print(s)'")
	waited(h, 0, id)
	if p := ps(h, id); p.CPUMS < 20 || p.PeakMemory < 100_000_000 || p.PeakMemory > 300_000_000 {
		t.Errorf("%v ms, %d bytes", p.CPUMS, p.PeakMemory)
	}
	id = run(h, "echo x; sleep 1000")
	waited(h, 0, id, "--log", "x")
	if p := ps(h, id); p.PeakMemory == 0 || p.PeakMemory > 9_000_000 {
		t.Errorf("%d bytes", p.PeakMemory)
	}
	if o := h.OK("status", "--json"); !strings.Contains(o, `"processes":1`) {
		t.Errorf("%s", o)
	}
	start := time.Now()
	h.OK("kill", id)
	if time.Since(start) > 4*time.Second {
		t.Error("a willing process was waited for")
	}
}
