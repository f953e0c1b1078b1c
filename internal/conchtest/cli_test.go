package conchtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func TestStdin(t *testing.T) {
	t.Parallel()
	h := New(t)
	data := make([]byte, 5_000_000)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	if o := h.Feed(bytes.NewReader(data), "exec", "-i", "cat"); o.Stdout != string(data) || o.Status != 0 {
		t.Errorf("5 MB through cat: %d bytes, status %d, %.200q", len(o.Stdout), o.Status, o.Stderr)
	}
	for _, c := range []struct{ text, in, out string }{
		{"cat", "", ""},
		{"cat", "no newline", "no newline"},
		{"head -c 3; exit 0", "abcdef", "abc"},
		{"true", strings.Repeat("x", 1_000_000), ""},
		{"read a; read b; echo $b-$a", "1\n2\n3\n", "2-1\n"},
		{"while read l; do echo \"<$l>\"; done", "a\nb\n", "<a>\n<b>\n"},
		{"(cat) | tr a-z A-Z", "sub", "SUB"},
		{"exec cat", "replaced", "replaced"},
		{"bash", "echo from stdin; exit 0\n", "from stdin\n"},
	} {
		if o := h.Feed(strings.NewReader(c.in), "exec", "-i", c.text); o.Stdout != c.out || o.Status != 0 || o.Stderr != "" {
			t.Errorf("%q with %.20q: %v", c.text, c.in, o)
		}
	}
	// Without -i there is none, even if the caller has one.
	if o := h.Feed(strings.NewReader("secret"), "exec", "cat; read x; echo $?"); o.Stdout != "1\n" {
		t.Errorf("without -i: %v", o)
	}
	// As text of the command.
	if o := h.Feed(strings.NewReader("echo a\ncat\necho b\n"), "exec", "-f", "-"); o.Stdout != "a\nb\n" {
		t.Errorf("-f -: %v", o)
	}
	// Live, both ways.
	r := h.Start("exec", "-i", "while read l; do echo \"got $l\"; done; echo end; (exit 9)")
	for i := range 20 {
		fmt.Fprintln(r.In, i)
		r.Line(fmt.Sprint("got ", i))
	}
	r.In.Close()
	if o := r.End(); o.Stdout != "end\n" || o.Status != 9 {
		t.Errorf("%v", o)
	}
}

// Two streams that are one are in exact order.
func TestMergeOrder(t *testing.T) {
	t.Parallel()
	h := New(t)
	var want strings.Builder
	for i := 1; i <= 500; i++ {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	text := "for i in {1..500}; do echo o$i; echo e$i >&2; done"
	if o := h.Conch("exec", "--merge", text); o.Stdout != want.String() || o.Stderr != "" {
		t.Errorf("stdout %d bytes, stderr %q", len(o.Stdout), o.Stderr)
	}
	if r := h.Exec("main", text, "--merge"); r.Stdout != want.String() || r.Stderr != "" || r.StderrBytes != 0 {
		t.Errorf("--json: %d bytes, %q", len(r.Stdout), r.Stderr)
	}
	// Errors of bash itself too, and only for this command.
	if r := h.Exec("main", "echo a; nosuchcommand; echo b", "--merge"); r.Stdout != "a\nconch: nosuchcommand: command not found\nb\n" {
		t.Errorf("%+v", r)
	}
	if r := h.Exec("main", "nosuchcommand; echo b"); r.Stdout != "b\n" || r.Stderr == "" {
		t.Errorf("%+v", r)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	h := New(t)
	o := h.Conch("exec", "--jsonl", "echo out; sleep 0.02; echo err >&2; sleep 0.02; printf '\\xff'; sleep 60 & exit 3")
	out, errs, exit := events(t, o.Stdout)
	if out != "out\n\xff" || errs != "err\n" || Code(exit.ExitCode) != "3" || !exit.Shell.Restarted || exit.StdoutBytes != 5 || o.Status != 3 || o.Stderr != "" {
		t.Errorf("%q %q %+v status %d", out, errs, exit, o.Status)
	}
	var last float64
	for i, line := range strings.Split(strings.TrimSpace(o.Stdout), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if now := m["t"].(float64); now < last || i == 0 && now != 0 {
			t.Errorf("time goes back: %v after %v", now, last)
		} else {
			last = now
		}
		if m["type"] == "exit" {
			for _, name := range []string{"session", "command_id", "exit_code", "signal", "stdout_bytes", "stderr_bytes", "truncated", "timed_out", "interrupted", "background", "shell", "cwd", "duration_ms", "started_at"} {
				if _, ok := m[name]; !ok {
					t.Errorf("exit event has no %s", name)
				}
			}
		}
	}
	// Live: the event is there while the command waits.
	path, open := gate(h, "gate")
	r := h.Start("exec", "--jsonl", "echo live; read x < "+path)
	for range 2 {
		if _, err := r.Out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if l := h.Last("main"); l.Status != conch.StatusRunning {
		t.Errorf("%+v", l)
	}
	open()
	r.End()
}

func TestEnvAndCwdLeaveNoTrace(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "plain=old; export exported=old; declare -i num=4; readonly ro=1; cd /usr; cd /usr/lib", "")
	state := "declare -p plain exported num ro; echo ${fresh-unset} ${nl-unset}; pwd; echo $OLDPWD; dirs"
	before := h.Exec("main", state)
	values := []string{"two\nlines\n", "\n", "", "'\"`$(echo no)\\ \t", "日本", "a=b=c", "  spaces  ", strings.Repeat("long ", 20000), "\x01\x7f", "\xff\xfe"}
	for _, v := range values {
		o := h.Conch("exec", "-e", "nl="+v, "-e", "plain="+v, "-e", "exported=x", "-e", "fresh=1", `printf '%s|' "$nl" "$plain"; bash -c 'printf %s "$nl"'; nl=changed; cd /tmp; unset fresh`, "--cwd", "/")
		if want := v + "|" + v + "|" + v; o.Stdout != want || o.Status != 0 {
			t.Errorf("%.50q: %.200q, status %d, stderr %q", v, o.Stdout, o.Status, o.Stderr)
		}
		if after := h.Exec("main", state); after.Stdout != before.Stdout {
			t.Fatalf("%.50q leaves a trace:\n%q\n%q", v, before.Stdout, after.Stdout)
		}
	}
	// Also when the command fails, ends the shell, removes its directory, times out.
	gone := filepath.Join(h.Work, "gone")
	for _, text := range []string{"exit 3", "if then", "kill -9 $$", "exec true", "rmdir " + gone + "; true", "cd /; cd /etc", "pushd / >/dev/null", "sleep 100", "set -e; false"} {
		if err := os.MkdirAll(gone, 0o755); err != nil {
			t.Fatal(err)
		}
		h.Exec("main", text, "--cwd", gone, "-e", "fresh=1", "-e", "plain=new", "-t", "500ms")
		after := h.Exec("main", "set +e; "+state)
		got, want := after.Stdout, before.Stdout
		if strings.HasPrefix(text, "pushd") {
			got, want = strings.Split(got, "dirs")[0], strings.Split(want, "dirs")[0]
			h.Exec("main", "dirs -c")
			got = strings.Join(strings.Split(got, "\n")[:6], "\n")
			want = strings.Join(strings.Split(want, "\n")[:6], "\n")
		}
		if got != want {
			t.Errorf("%q leaves a trace:\n%q\n%q\n%s", text, want, got, after.Stderr)
		}
	}
	// A name that cannot be changed is refused, not passed over.
	if o := h.Conch("exec", "-e", "ro=2", "echo $ro"); o.Status != 125 || o.Stdout != "" || !strings.Contains(o.Stderr, "ro is readonly") {
		t.Errorf("readonly: %v", o)
	}
	if after := h.Exec("main", state); after.Stdout != before.Stdout {
		t.Errorf("%q\n%q", before.Stdout, after.Stdout)
	}
	// The session's own directory gone meanwhile.
	own := filepath.Join(h.Work, "own")
	os.Mkdir(own, 0o755)
	h.Want("gone", "cd "+own, "")
	os.Remove(own)
	h.Exec("gone", "true", "--cwd", "/tmp")
	if r := h.Exec("gone", "echo $PWD"); r.Stdout != own+"\n" {
		t.Errorf("after --cwd the session stands in %q, stderr %q", r.Stdout, r.Stderr)
	}
}

func TestStatusHistoryOutput(t *testing.T) {
	t.Parallel()
	h := New(t)
	for _, c := range []struct{ text, status string }{
		{"(exit 7)", "7"}, {"false", "1"}, {"nosuch", "127"}, {"exit 3", "3"}, {"if", "2"}, {"kill -9 $$", "137"}, {"exec false", "1"}, {"true", "0"}, {"set -e; (exit 9)", "9"},
	} {
		h.Exec("main", c.text)
		h.Want("main", "echo $?", c.status+"\n")
	}
	list := h.History("main")
	if len(list) != 18 {
		t.Fatalf("%d commands", len(list))
	}
	for i, e := range list {
		if e.CommandID != conch.NewCommandID(h.Session("main").ID, uint32(i+1)) || e.Status != conch.StatusDone || e.ExitCode == nil || e.StartedAt == nil || e.EndedAt == nil || e.EndedAt.Before(*e.StartedAt) || e.Session != "main" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	// The session's commands are its shell's history, and survive the shell.
	h.Exec("hist", "echo one")
	h.Exec("hist", "echo two\necho three")
	h.Exec("hist", "exit 0")
	r := h.Exec("hist", "history")
	for _, w := range []string{"echo one", "echo two", "echo three", "exit 0", "history"} {
		if !strings.Contains(r.Stdout, w) {
			t.Errorf("history has no %q: %q", w, r.Stdout)
		}
	}
	if r := h.Exec("hist", "fc -ln -1 -1"); !strings.Contains(r.Stdout, "history") {
		t.Errorf("fc: %q %q", r.Stdout, r.Stderr)
	}
	r = h.Exec("main", "printf 'o\\0\\xff'; printf 'e\\n\\n' >&2")
	if got := h.OK("output", string(r.CommandID)); got != "o\x00\xff" {
		t.Errorf("output %q", got)
	}
	if got := h.OK("output", "--stderr", string(r.CommandID)); got != "e\n\n" {
		t.Errorf("output --stderr %q", got)
	}
	// While it runs.
	path, open := gate(h, "gate")
	run := h.Start("exec", "echo sofar; read x < "+path+"; echo rest")
	run.Line("sofar")
	id := string(h.Last("main").CommandID)
	if got := h.OK("output", id); got != "sofar\n" {
		t.Errorf("output of a running command %q", got)
	}
	open()
	run.End()
	if got := h.OK("output", id); got != "sofar\nrest\n" {
		t.Errorf("output %q", got)
	}
	// A truncated result says what is left out, and output has it.
	r = h.Exec("main", "seq 1 100000", "--max-output", "100")
	if !r.Truncated || len(r.Stdout) != 100 || h.OK("output", string(r.CommandID)) != seq(100000) {
		t.Errorf("%+v", r)
	}
}

func TestLogRoundTrip(t *testing.T) {
	t.Parallel()
	h := New(t)
	text := `import random, os, sys
random.seed(7)
for i in range(300):
    n = random.choice([0, 1, 2, 3, 10, 1000])
    b = bytes(random.choice([1, 2, 10, 13, 0, 255, 65]) for _ in range(n))
    os.write(random.choice([1, 2]), b)
`
	prog := filepath.Join(h.Work, "p.py")
	if err := os.WriteFile(prog, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Conch("exec", "python3 "+prog)
	h.Conch("exec", `printf '\1\1\1looks like stdout\n\2\2\2no newline'; printf '\2\2\2x' >&2`)
	first := h.OK("log", "export")
	file := filepath.Join(h.Work, "log")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	label := strings.TrimSpace(h.OK("log", "import", file))
	if again := h.OK("log", "export", "-s", label); again != first {
		t.Errorf("export, import, export: %d bytes became %d", len(first), len(again))
	}
	// Both streams come back exactly.
	var wantOut, wantErr, gotOut, gotErr string
	for _, l := range []struct {
		label    string
		out, err *string
	}{{"main", &wantOut, &wantErr}, {label, &gotOut, &gotErr}} {
		for _, e := range h.History(l.label) {
			*l.out += h.OK("output", string(e.CommandID))
			*l.err += h.OK("output", "--stderr", string(e.CommandID))
		}
	}
	if gotOut != wantOut || gotErr != wantErr || wantOut == "" || wantErr == "" {
		t.Errorf("streams: %d and %d bytes, were %d and %d", len(gotOut), len(gotErr), len(wantOut), len(wantErr))
	}
	// The plain form of others.
	plainLog := "\x01\x01\x01one\n\x02\x02\x02two\n\x01\x01\x01\n\x01\x01\x01last"
	o := h.Feed(strings.NewReader(plainLog), "log", "import", "-", "-s", "theirs")
	if o.Status != 0 || o.Stdout != "theirs\n" {
		t.Fatal(o)
	}
	list := h.History("theirs")
	out, errs := "", ""
	for _, e := range list {
		out += h.OK("output", string(e.CommandID))
		errs += h.OK("output", "--stderr", string(e.CommandID))
	}
	if out != "one\n\nlast" || errs != "two\n" {
		t.Errorf("plain form: %q %q", out, errs)
	}
}

// pidsIn reads numbers a command wrote to a file.
func pidsIn(t testing.TB, path string, n int) []int {
	t.Helper()
	var pids []int
	Until(t, Limit, "the processes are there", func() bool {
		b, _ := os.ReadFile(path)
		pids = nil
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil || !Alive(pid) {
				return false
			}
			pids = append(pids, pid)
		}
		return len(pids) == n
	})
	return pids
}

// Processes that try to get away: setsid, double fork, empty environment,
// signals ignored.
const escapees = `rm -f pids
sleep 1000 & echo $! >> pids
setsid bash -c 'echo $$ >> pids; exec sleep 1000' >/dev/null 2>&1 </dev/null &
(setsid bash -c '(bash -c "echo \$\$ >> pids; exec env -i sleep 1000" & disown) ' >/dev/null 2>&1 &)
nohup bash -c 'trap "" TERM INT HUP; echo $$ >> pids; while :; do sleep 1000; done' >/dev/null 2>&1 &
`

func TestCloseResetPrune(t *testing.T) {
	t.Parallel()
	h := New(t)
	file := filepath.Join(h.Work, "pids")
	gone := func(what string, pids []int) {
		t.Helper()
		for _, pid := range pids {
			if Alive(pid) {
				t.Errorf("%s left process %d", what, pid)
			}
		}
	}
	h.Exec("main", "V=1; f() { :; }; cd /usr")
	h.Exec("main", "cd "+h.Work+"; "+escapees+" cd /usr")
	pids := pidsIn(t, file, 4)
	before := h.Session("main")
	h.OK("reset", "main")
	gone("reset", pids)
	after := h.Session("main")
	if after.ID != before.ID || after.ShellPID == before.ShellPID {
		t.Errorf("reset: %+v, was %+v", after, before)
	}
	if r := h.Exec("main", `echo "${V-clean}"; type f 2>/dev/null; pwd`); r.Stdout != "clean\n"+h.Work+"\n" {
		t.Errorf("after reset: %q %q", r.Stdout, r.Stderr)
	}
	if n := len(h.History("main")); n != 3 {
		t.Errorf("history after reset has %d", n)
	}

	h.Exec("main", escapees)
	pids = pidsIn(t, file, 4)
	r := h.Exec("main", "echo kept")
	h.OK("close", "main")
	gone("close", pids)
	if list, _ := filepath.Glob(filepath.Join(h.Path, "run", before.ID+"*")); len(list) > 0 {
		t.Errorf("close left %v", list)
	}
	if got := h.OK("output", string(r.CommandID)); got != "kept\n" {
		t.Errorf("output after close %q", got)
	}
	if n := len(h.History("main")); n != 5 {
		t.Errorf("history after close has %d", n)
	}
	refused(t, "close again", h.Conch("close", "main"), "main")
	h.Want("main", "echo ${V-new}", "new\n")
	if h.Session("main").ID == before.ID {
		t.Error("a closed session came back")
	}
	h.OK("prune")
	refused(t, "output after prune", h.Conch("output", string(r.CommandID)))
	h.Want("main", "echo still", "still\n")
	if n := len(h.History("main")); n != 2 {
		t.Errorf("prune touched an open session: %d", n)
	}

	// Close in mid-command: whoever follows is told.
	run := h.Start("exec", "-s", "mid", "echo begun; sleep 1000")
	run.Line("begun")
	h.OK("close", "mid")
	if o := run.End(); o.Status == 0 {
		t.Errorf("the command of a closed session: %v", o)
	}
	list := h.History("mid")
	if l := list[len(list)-1]; l.Status == conch.StatusRunning || Code(l.ExitCode) == "0" {
		t.Errorf("recorded %+v", l)
	}
	// Reset in mid-command.
	run = h.Start("exec", "-s", "mid2", "echo begun; sleep 1000")
	run.Line("begun")
	h.OK("reset", "mid2")
	if o := run.End(); o.Status == 0 {
		t.Errorf("the command of a reset session: %v", o)
	}
	h.Want("mid2", "echo clean", "clean\n")
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=1; sleep 1000 & OLD=$!", "")
	marker := filepath.Join(h.Work, "never")
	start := time.Now()
	o := h.Conch("exec", "-t", "500ms", "echo partial; "+strings.ReplaceAll(escapees, "\n", "\n")+"sleep 1000; touch "+marker)
	if o.Status != 124 || o.Stdout != "partial\n" {
		t.Errorf("%v", o)
	}
	if took := time.Since(start); took < 500*time.Millisecond || took > 12*time.Second {
		t.Errorf("took %v", took)
	}
	b, _ := os.ReadFile(filepath.Join(h.Work, "pids"))
	if len(strings.Fields(string(b))) != 4 {
		t.Errorf("pids %q", b)
	}
	for _, f := range strings.Fields(string(b)) {
		if pid, _ := strconv.Atoi(f); Alive(pid) {
			t.Errorf("process %d outlived the time limit", pid)
		}
	}
	l := h.Last("main")
	if !l.TimedOut || l.ExitCode != nil || l.Status != conch.StatusDone {
		t.Errorf("%+v", l)
	}
	h.Want("main", "echo $V; kill -0 $OLD && echo old", "1\nold\n")
	if r := h.Exec("main", "sleep 1000", "-t", "200ms"); !r.TimedOut || r.ExitCode != nil || r.Ended == nil || !r.Ended.Verified || r.Shell.Restarted {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the rest of the command ran")
	}
}

// A shell that dies after its own end, while the ladder is at work on a process
// that will not go.
func TestShellKilledWhileEnding(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=1; cd /usr", "")
	pids := filepath.Join(h.Work, "pids")
	r := h.Start("exec", "--json", "-t", "300ms", "cd /; bash -c 'trap \"\" INT; echo $$ >> "+pids+"; sleep 1000; :' & sleep 1000 & echo $! >> "+pids+"; wait")
	Until(t, Limit, "both run", func() bool {
		b, _ := os.ReadFile(pids)
		return len(strings.Fields(string(b))) == 2
	})
	shell := h.Session("main").ShellPID
	Until(t, Limit, "the shell waits for its next command", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", shell))
		return strings.Contains(string(b), "pipe") || len(b) == 0
	})
	Kill(t, shell)
	o := r.End()
	var res conch.Result
	if err := json.Unmarshal([]byte(o.Stdout), &res); err != nil || !res.TimedOut || res.ExitCode != nil || res.Ended == nil || !res.Ended.Verified || !res.Shell.Restarted || o.Status != 124 {
		t.Errorf("%v: %v", err, o)
	}
	h.Want("main", "echo $V; pwd", "1\n/usr\n")
}

func TestInterruptVerb(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "V=1", "")
	if got := h.OK("interrupt"); got != "nothing is running\n" {
		t.Errorf("%q", got)
	}
	for text, signal := range map[string]string{
		"echo begun; sleep 1000; touch never":                             "SIGINT",
		"bash -c 'trap \"\" INT; echo begun; sleep 1000'; touch never":    "SIGTERM",
		"bash -c 'echo begun; trap \"\" INT TERM; sleep 3' ; touch never": "",
		"echo begun; while :; do :; done; touch never":                    "SIGINT",
	} {
		r := h.Start("exec", text)
		r.Line("begun")
		got := h.OK("interrupt")
		if !strings.HasPrefix(got, "interrupted ") || !strings.Contains(got, signal) {
			t.Errorf("%q: %q", text, got)
		}
		if o := r.End(); o.Status != 130 || o.Stdout != "" {
			t.Errorf("%q: %v", text, o)
		}
		h.Want("main", "echo $? $V", "130 1\n")
	}
	if _, err := os.Stat(filepath.Join(h.Work, "never")); err == nil {
		t.Error("the rest of the command ran")
	}
	// One that only waits is not begun at all, by its client's Ctrl-C.
	path, open := gate(h, "gate")
	first := h.Start("exec", "echo begun; read x < "+path)
	first.Line("begun")
	second := h.Start("exec", "touch never")
	Until(t, Limit, "it waits", func() bool { return h.Session("main").Queue == 1 })
	second.Process.Signal(os.Interrupt)
	if o := second.End(); o.Status != 130 {
		t.Errorf("a waiting command: %v", o)
	}
	open()
	if o := first.End(); o.Status != 0 {
		t.Errorf("%v", o)
	}
	h.Want("main", "ls never 2>/dev/null; true", "")
}

func TestSubSessions(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "cd /usr/lib; export FROM=parent; V=not", "")
	h.OK("new", "child", "--parent", "main")
	h.Want("child", "pwd; echo ${FROM-unset} ${V-unset}", "/usr/lib\nunset unset\n")
	h.OK("new", "heir", "--parent", "main", "--inherit-env", "-e", "MORE=1")
	h.Want("heir", "pwd; echo ${FROM-unset} ${V-unset} $MORE $CONCH_SESSION", "/usr/lib\nparent unset 1 heir\n")
	// The parent's directory of now, in mid-command too.
	path, open := gate(h, "gate")
	r := h.Start("exec", "cd /etc; echo begun; read x < "+path)
	r.Line("begun")
	h.OK("new", "mid", "--parent", "main")
	h.Want("mid", "pwd", "/etc\n")
	open()
	r.End()
	h.OK("new", "own", "--parent", "main", "--cwd", "/var")
	h.Want("own", "pwd", "/var\n")
	// A new session starts where its caller is, with the profile's quiet pagers.
	h.Want("fresh", "pwd; echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT ${TMOUT-unset}", h.Work+"\ncat cat 0 unset\n")
	// Not with the caller's environment.
	h.With("SECRET_OF_CALLER=1").Want("fresh2", "echo ${SECRET_OF_CALLER-unset}", "unset\n")
}

func TestBackground(t *testing.T) {
	t.Parallel()
	h := New(t)
	start := time.Now()
	r := h.Exec("main", "sleep 1000 & sleep 1000 & echo hi")
	if r.Stdout != "hi\n" || r.Background != 2 || time.Since(start) > 5*time.Second {
		t.Errorf("%+v", r)
	}
	h.Want("main", "jobs -p | wc -l; kill %1 %2; wait 2>/dev/null; jobs -p | wc -l", "2\n0\n")
	r = h.Exec("main", "echo to > >(sed s/^/late:/)")
	Until(t, Limit, "the substitution's output is there", func() bool { return h.OK("output", string(r.CommandID)) == "late:to\n" })
	// Nor is it lost if it comes, and its writer goes, in the moment of the end.
	for range 100 {
		r = h.Exec("main", "(echo late) &")
		Until(t, Limit, "what a short process wrote is there", func() bool { return h.OK("output", string(r.CommandID)) == "late\n" })
	}
	// A writer that goes on keeps its stream, whatever runs meanwhile.
	path, open := gate(h, "gate")
	r = h.Exec("main", "(read x < "+path+"; echo late; echo lateerr >&2) &")
	h.Want("main", "echo between", "between\n")
	open()
	Until(t, Limit, "late output is there", func() bool { return h.OK("output", string(r.CommandID)) == "late\n" })
	Until(t, Limit, "late errors are there", func() bool { return h.OK("output", "--stderr", string(r.CommandID)) == "lateerr\n" })
}

// The caller's own directory is gone.
func TestCallerWithoutDirectory(t *testing.T) {
	t.Parallel()
	h := New(t)
	here := *h
	here.Work = filepath.Join(h.Work, "gone")
	if err := os.Mkdir(here.Work, 0o755); err != nil {
		t.Fatal(err)
	}
	ref, _, _ := plain(t, h.Work, append(h.Env, "CONCH="+h.Exe), "-c", `cd gone; rmdir ../gone; "$CONCH" exec -s x 'echo works'; "$CONCH" exec -s x --cwd sub true; echo $?`)
	if ref != "works\n125\n" {
		t.Errorf("%q", ref)
	}
}
