package keeper

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// TestTorture runs what breaks other shells. After each case the session must
// answer with the state it had.
func TestTorture(t *testing.T) {
	const any = "\x00any"
	cases := []struct {
		name, text, stdout, stderr, exit string
		restarted                        bool
	}{
		{"no newline", "printf abc", "abc", "", "0", false},
		{"blank lines", `printf 'abc\n\n\n'`, "abc\n\n\n", "", "0", false},
		{"stderr no newline", "printf abc >&2", "", "abc", "0", false},
		{"labels in output", `printf '\1\1\1x\n\2\2\2y\n'`, "\x01\x01\x01x\n\x02\x02\x02y\n", "", "0", false},
		{"exit", "echo out; exit 3", "out\n", "", "3", true},
		{"exit in subshell", "(exit 3)", "", "", "3", false},
		{"return", "return 4", "", "", "4", false},
		{"unclosed quote", `echo "abc`, "", "conch: eval: line 1: unexpected EOF while looking for matching `\"'\n", "2", false},
		{"unclosed quote, line 3", "echo a\necho b\necho 'c", "a\nb\n", "conch: eval: line 3: unexpected EOF while looking for matching `''\n", "2", false},
		{"syntax error", "if then fi", "", any, "2", false},
		{"lone brace", "}", "", any, "2", false},
		{"brace in the middle", "echo one; } ; echo two", "", any, "2", false},
		{"set -e", "set -e; false", "", "", "1", true},
		{"set -u", "set -u; echo $NOPE; echo after", "", "conch: NOPE: unbound variable\n", "1", false},
		{"set +u", "set +u", "", "", "0", false},
		{"set -n", "set -n; echo n", "n\n", "", "0", false},
		{"set -t", "set -t", "", "", "0", true},
		{"set -r", "set -r", "", "", "null", true},
		{"set -v", "set -v", "", "", "0", false},
		{"set +v", "set +v", "", "set +v\n", "0", false},
		{"background", "sleep 0.01 & echo started", "started\n", "", "0", false},
		{"cat", "cat", "", "", "0", false},
		{"read", "read x; echo rc=$?", "rc=1\n", "", "0", false},
		{"kill -9", "echo a; kill -9 $$", "a\n", "", "137", true},
		{"kill -TERM", "kill -TERM $$; echo b", "b\n", "", "0", false},
		{"kill -INT", "kill -INT $$; echo b", "", "", "130", false},
		{"kill -HUP", "kill -HUP $$; echo b", "", "", "129", true},
		{"kill 0", "kill 0; echo b", "b\n", "", "0", false},
		{"kill -9 0", "kill -9 0; echo b", "", "", "137", true},
		{"kill -STOP", "echo a; kill -STOP $$", "a\n", "", "null", true},
		{"suspend -f", "suspend -f", "", "", "null", true},
		{"exec", "exec ls -d /", "/\n", "", "0", true},
		{"exec fails", "exec /nonexistent/x; echo b", any, any, any, false},
		{"exec false", "exec false", "", "", "1", true},
		{"cd nowhere", "cd /nonexistent", "", "conch: cd: /nonexistent: No such file or directory\n", "1", false},
		{"heredoc", "cat <<E\nx $V\nE", "x 5\n", "", "0", false},
		{"quoted heredoc", "cat <<'E'\nx $V\nE", "x $V\n", "", "0", false},
		{"tabbed heredoc", "cat <<-E\n\tx\n\tE", "x\n", "", "0", false},
		{"open heredoc", "cat <<E\nabc", "abc\n", any, "0", false},
		{"comment", "echo hi # c", "hi\n", "", "0", false},
		{"only a comment", "# c", "", "", "0", false},
		{"empty", "", "", "", "0", false},
		{"blank", " \n\t", "", "", "0", false},
		{"trailing backslash", `echo hi \`, "hi \\\n", "", "0", false},
		{"trailing pipe", "echo hi |", "", any, "2", false},
		{"trailing and", "sleep 0.01 &", "", "", "0", false},
		{"bang", `echo "wow!x" hello!`, "wow!x hello!\n", "", "0", false},
		{"tab", "echo 'a\tb'", "a\tb\n", "", "0", false},
		{"exit trap", "trap 'echo bye' EXIT; exit 4", "bye\n", "", "4", true},
		{"err trap", "trap 'echo e >&2' ERR; false; trap - ERR", "", "e\n", "0", false},
		{"mute", "exec >/dev/null 2>&1; echo hi", "", "", "0", false},
		{"after mute", "echo hi", "hi\n", "", "0", false},
		{"close out", "exec 1>&- 2>&-", "", "", "0", false},
		{"merge", "exec 2>&1; echo a >&2", "a\n", "", "0", false},
		{"close in", "exec <&-", "", "", "0", false},
		{"in from null", "exec </dev/null; cat", "", "", "0", false},
		{"ulimit -n 10", "ulimit -n 10", "", "", "0", false},
		{"ulimit -f 0", "ulimit -S -f 0; echo x", "x\n", "", "0", false},
		{"ulimit -f back", "ulimit -S -f unlimited", "", "", "0", false},
		{"umask", "umask 777; echo x", "x\n", "", "0", false},
		{"umask back", "umask 022", "", "", "0", false},
		{"noclobber", "set -C; echo x", "x\n", "", "0", false},
		{"noclobber back", "set +C", "", "", "0", false},
		{"unicode", "echo 日本 🐚 é", "日本 🐚 é\n", "", "0", false},
		{"no tty", "tty; [ -t 0 ] || [ -t 1 ] || echo none", "not a tty\nnone\n", "", "0", false},
		{"dev tty", "cat /dev/tty; echo rc=$?", "rc=1\n", any, "0", false},
		{"printf function", "printf() { echo HIJACK; }; printf x", "HIJACK\n", "", "0", false},
		{"unset printf", "unset -f printf", "", "", "0", false},
		{"dot function", "function . { echo HIJACK; }; function eval { echo H2; }; function trap { echo H3; }; function source { :; }", "", "", "0", false},
		{"unset dot", "unset -f . eval trap source", "", "", "0", false},
		{"builtin function", "builtin() { :; }", "", "", "null", true},
		{"enable -n builtin", "enable -n builtin", "", "", "null", true},
		{"enable -n eval", "enable -n eval", "", "", "0", true},
		{"enable -n printf", "enable -n printf", "", "", any, true},
		{"no path", "PATH=; echo x; ls", "x\n", "conch: ls: No such file or directory\n", "127", false},
		{"path back", "PATH=/usr/bin:/bin", "", "", "0", false},
		{"prompt", "PS1='$(cat)'", "", "", "null", true},
		{"prompt command", "PROMPT_COMMAND=cat", "", "", "null", true},
		{"debug cat", "trap cat DEBUG", "", "", "null", true},
		{"ifs", "IFS=0123456789; (exit 10)", "", "", "10", false},
		{"ifs back", `IFS=$' \t\n'`, "", "", "0", false},
		{"posix", "set -o posix; echo x", "x\n", "", "0", false},
		{"posix off", "set +o posix", "", "", "0", false},
		{"unalias", "unalias -a; shopt -u expand_aliases", "", "", "0", false},
		{"aliases back", "shopt -s expand_aliases; alias ll='echo LL'", "", "", "0", false},
		{"close 10", "exec 10>&- 11>&- 12>&-", "", any, any, true},
		{"close many", "for i in {3..250}; do eval \"exec $i>&-\"; done", "", any, any, true},
		{"readonly", "readonly RO=1; RO=2; echo not", "", "conch: RO: readonly variable\n", "1", false},
		{"division", "echo $((1/0)); echo not", "", any, "1", false},
		{"not found", "nosuchcommand", "", "conch: nosuchcommand: command not found\n", "127", false},
		{"positional", "set -- a b; echo $#", "2\n", "", "0", false},
		{"break", "break; continue; echo x", "x\n", any, "0", false},
		{"extdebug", "shopt -s extdebug; echo x; shopt -u extdebug", "x\n", "", "0", false},
		{"failglob", "shopt -s failglob; echo /nonexistent*x; echo y", "", any, "1", false},
		{"failglob off", "shopt -u failglob", "", "", "0", false},
		{"lastpipe", "shopt -s lastpipe; echo 5 | read LP; echo $LP; shopt -u lastpipe", "5\n", "", "0", false},
		{"coproc", "coproc cat; kill $COPROC_PID; wait; echo x", "x\n", "", "0", false},
		{"job control", "set -m; sleep 0.01 & wait; echo x; set +m", any, any, "0", false},
		{"process substitution", "cat <(echo a); echo b > >(cat)", any, "", "0", false},
		{"pipefail", "set -o pipefail; false | true", "", "", "1", false},
		{"pipefail off", "set +o pipefail", "", "", "0", false},
		{"huge word", "x=" + strings.Repeat("a", 200_000) + "; echo ${#x}; unset x", "200000\n", "", "0", false},
		{"nested shell", "bash", "", "", "0", false},
		{"exec bash", "exec bash", "", "", "0", true},
		{"python", "python3 -c 'print(1)'", "1\n", "", "0", false},
		{"declare -r LINENO", "declare -r LINENO", "", "", "0", false},
		{"unset everything", "unset BASH_ARGV0 PWD OLDPWD HOME; echo x", "x\n", "", "0", false},
		{"TMOUT", "TMOUT=100", "", "", "0", false},
		{"our word", "__conch=1; readonly __conch", "", "", "0", false},
	}
	r := newRig(t)
	setup := "V=5; export E=6; f() { echo F; }; alias ll='echo LL'; mkdir -p d; cd d"
	r.want(setup, "", "", "0")
	for _, c := range cases {
		start := time.Now()
		res := r.exec(c.text)
		took := time.Since(start)
		if c.stdout != any && res.Stdout != c.stdout || c.stderr != any && res.Stderr != c.stderr || c.exit != any && code(res) != c.exit {
			t.Errorf("%s: %.100q:\n got stdout %q stderr %q exit %s\nwant stdout %q stderr %q exit %s", c.name, c.text, res.Stdout, res.Stderr, code(res), c.stdout, c.stderr, c.exit)
		}
		if c.restarted != res.Shell.Restarted && c.exit != any {
			t.Errorf("%s: restarted %v, want %v (%+v)", c.name, res.Shell.Restarted, c.restarted, res.Shell)
		}
		if took > 5*time.Second {
			t.Errorf("%s: took %v", c.name, took)
		}
		next := r.exec("\\builtin echo \"$V $E\"; f; ll; \\builtin pwd")
		if want := "5 6\nF\nLL\n" + r.home + "/d\n"; next.Stdout != want && c.name != "unalias" {
			t.Errorf("%s: next got %q %q, want %q (%+v)", c.name, next.Stdout, next.Stderr, want, next.Shell)
		}
		if strings.Contains(res.Stderr, r.home) || strings.Contains(res.Stderr, "/dev/shm") {
			t.Errorf("%s: stderr shows a path of ours: %q", c.name, res.Stderr)
		}
	}
}

// TestBytes compares sums of random bytes on both streams.
func TestBytes(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.home, "random")
	if out, err := exec.Command("head", "-c", "3000000", "/dev/urandom").Output(); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile(file)
	res := r.run(conch.ExecRequest{Command: "cat random & cat random >&2; wait", MaxOutput: 8 << 20})
	if res.Encoding != "base64" || res.Truncated {
		t.Fatalf("encoding %s truncated %v", res.Encoding, res.Truncated)
	}
	for name, s := range map[string]string{"stdout": res.Stdout, "stderr": res.Stderr} {
		got, err := base64.StdEncoding.DecodeString(s)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s differs (%v): %d bytes of %d", name, err, len(got), len(want))
		}
	}
}

func TestTruncation(t *testing.T) {
	r := newRig(t)
	res := r.run(conch.ExecRequest{Command: "seq 1 300000", MaxOutput: 1000})
	if !res.Truncated || res.StdoutOmitted == nil || len(res.Stdout) != 1000 || !strings.HasPrefix(res.Stdout, "1\n2\n") || !strings.HasSuffix(res.Stdout, "300000\n") {
		t.Errorf("got %d bytes %+v", len(res.Stdout), res.StdoutOmitted)
	}
	if res.StdoutOmitted.Offset+res.StdoutOmitted.Bytes+500 != res.StdoutBytes {
		t.Errorf("counts do not add up: %+v of %d", res.StdoutOmitted, res.StdoutBytes)
	}
	var out []byte
	if err := r.call("GET", "/commands/"+string(res.CommandID)+"/output", nil, &out); err != nil {
		t.Fatal(err)
	}
	want, _ := exec.Command("seq", "1", "300000").Output()
	if string(out) != string(want) {
		t.Errorf("output has %d bytes, want %d", len(out), len(want))
	}
	// A cut in the middle of a character moves to its edge.
	res = r.run(conch.ExecRequest{Command: `printf 'ééééééééé'`, MaxOutput: 6})
	if res.Encoding != "utf-8" || res.StdoutOmitted == nil || res.StdoutOmitted.Bytes != int64(18-len(res.Stdout)) {
		t.Errorf("%q %s %+v", res.Stdout, res.Encoding, res.StdoutOmitted)
	}
}

// TestEnding: the command goes, all of it; the shell and older jobs stay.
func TestEnding(t *testing.T) {
	cases := []string{
		"sleep 60; echo AFTER",
		"while :; do :; done; echo AFTER",
		"x=$(sleep 60); echo AFTER",
		"trap '' INT; sleep 60; echo AFTER",
		"trap 'echo got' INT; sleep 60; echo AFTER",
		"g() { sleep 60; echo IN; }; g; echo AFTER",
		"read x </dev/zero; echo AFTER",
		"sleep 60 & wait; echo AFTER",
		"sleep 60 | cat; echo AFTER",
		"if sleep 60; then echo AFTER; else echo AFTER; fi || echo AFTER",
		"sleep 60 || echo AFTER",
		"eval 'sleep 60; echo AFTER'; echo AFTER",
		"bash -c 'sleep 60; echo AFTER'; echo AFTER",
		"bash -c 'sleep 60 & sleep 60'; echo AFTER",
		"(trap '' INT; sleep 60; echo AFTER); echo AFTER",
		"setsid sleep 60 & disown; sleep 60; echo AFTER",
		"(setsid bash -c 'sleep 60 & sleep 60' &) ; sleep 60; echo AFTER",
		"env -i setsid sleep 60; echo AFTER",
		"trap '' RTMIN+5; sleep 60; echo AFTER",
		"for i in 1 2 3; do sleep 20; echo AFTER; done",
		"python3 -c 'import time,signal; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)'; echo AFTER",
		"until false; do sleep 60; done",
		"cat < <(sleep 60); echo AFTER",
		"coproc sleep 60; wait; echo AFTER",
		"exec sleep 60; echo AFTER",
		"kill -STOP $BASHPID & sleep 60; echo AFTER",
		"(ulimit -SR 12345; exec sleep 60) & sleep 60; echo AFTER",
	}
	unique := fmt.Sprintf("60.%06d", os.Getpid())
	r := newRig(t)
	r.want("V=5; f() { echo F; }; sleep 1000 & OLD=$!", "", "", "0")
	for _, text := range cases {
		marker := filepath.Join(r.home, "after")
		// Durations nobody else sleeps, to find what is left behind.
		text = strings.NewReplacer("sleep 60", "sleep "+unique, "sleep 20", "sleep "+unique).Replace(text)
		res := r.run(conch.ExecRequest{Command: "printf partial; " + strings.ReplaceAll(text, "echo AFTER", "touch "+marker), TimeoutMS: 300})
		if !res.TimedOut || res.ExitCode != nil {
			t.Errorf("%q: timed out %v, exit %s", text, res.TimedOut, code(res))
		}
		if !strings.HasPrefix(res.Stdout, "partial") {
			t.Errorf("%q: stdout %q", text, res.Stdout)
		}
		if res.Ended == nil || !res.Ended.Verified {
			t.Errorf("%q: ended %+v", text, res.Ended)
		}
		if res.Background != 0 {
			t.Errorf("%q: %d processes left", text, res.Background)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("%q: the rest ran", text)
			os.Remove(marker)
		}
		next := r.exec("echo $V; f; kill -0 $OLD && echo old")
		if next.Stdout != "5\nF\nold\n" {
			t.Errorf("%q: next %q %q %+v", text, next.Stdout, next.Stderr, next.Shell)
		}
		out, _ := exec.Command("ps", "-eo", "pid,args").Output()
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, unique) {
				t.Errorf("%q: left behind: %s", text, line)
			}
		}
	}
	r.want("kill $OLD", "", "", "0")
}

func TestInterrupt(t *testing.T) {
	r := newRig(t)
	done := make(chan *conch.Result)
	go func() { done <- r.exec("echo begun; sleep 60; echo AFTER") }()
	r.running("sleep 60")
	var ans struct {
		Interrupted bool
		Ended       conch.Ended
	}
	if err := r.call("POST", "/interrupt", map[string]string{}, &ans); err != nil || !ans.Interrupted || !ans.Ended.Verified {
		t.Fatalf("%v %+v", err, ans)
	}
	res := <-done
	if code(res) != "130" || !res.Interrupted || res.Stdout != "begun\n" {
		t.Errorf("%+v", res)
	}
	r.want("echo $?", "130\n", "", "0")
	if err := r.call("POST", "/interrupt", map[string]string{}, &ans); err != nil {
		t.Fatal(err)
	}
}

// running waits until the session says it runs text and has a child.
func (r *rig) running(text string) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		var info conch.SessionInfo
		if err := r.call("GET", "", nil, &info); err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(info.Command, text) {
			if kids, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", info.ShellPID, info.ShellPID)); len(kids) > 0 {
				return
			}
		}
	}
	r.t.Fatalf("%q does not run", text)
}

// TestStdin: given whole, streamed, or not there.
func TestStdin(t *testing.T) {
	r := newRig(t)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	res := r.run(conch.ExecRequest{Command: "wc -c", Stdin: []byte(big)})
	if strings.TrimSpace(res.Stdout) != fmt.Sprint(len(big)) {
		t.Errorf("got %q", res.Stdout)
	}
	// A command that does not read it does not wait for it.
	r.run(conch.ExecRequest{Command: "true", Stdin: []byte(big)})
	for i := range 20 {
		if res := r.run(conch.ExecRequest{Command: "head -c 5", Stdin: []byte(big)}); res.Stdout != "01234" {
			t.Errorf("%d: got %q", i, res.Stdout)
		}
	}
	done := make(chan *conch.Result)
	go func() { done <- r.run(conch.ExecRequest{Command: "cat; echo end", OpenStdin: true}) }()
	r.running("cat")
	var info conch.SessionInfo
	if err := r.call("GET", "", nil, &info); err != nil {
		t.Fatal(err)
	}
	post := func(body, query string) error {
		resp, err := r.client.Post(r.url("/commands/"+string(info.Running)+"/stdin"+query), "application/octet-stream", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
	for _, p := range []struct{ body, query string }{{"one ", "?offset=0"}, {"one two ", "?offset=0"}, {"three\n", "?close=1"}} {
		if err := post(p.body, p.query); err != nil {
			t.Errorf("%q: %v", p.body, err)
		}
	}
	if res := <-done; res.Stdout != "one two three\nend\n" {
		t.Errorf("got %q", res.Stdout)
	}
	// Merged, in exact order, and nothing left open.
	res = r.run(conch.ExecRequest{Command: "for i in 1 2 3; do echo o$i; echo e$i >&2; done", Merge: true})
	if res.Stdout != "o1\ne1\no2\ne2\no3\ne3\n" || res.Stderr != "" {
		t.Errorf("merged: %q %q", res.Stdout, res.Stderr)
	}
	fds := func() int {
		l, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	before := fds()
	for range 50 {
		r.run(conch.ExecRequest{Command: "cat >&2", Merge: true, Stdin: []byte("x")})
		r.run(conch.ExecRequest{Command: "cat", Env: map[string]string{"A": "1"}, Cwd: "/", Stdin: []byte("x")})
	}
	r.exec("true")
	if after := fds(); after > before+3 {
		t.Errorf("descriptors grew from %d to %d", before, after)
	}
}

// TestAbortRaces interrupts commands at every moment of their short lives: none may
// run its rest, none may cost the session its state.
func TestAbortRaces(t *testing.T) {
	r := newRig(t)
	r.want("V=5; f() { echo F; }", "", "", "0")
	for i := range 300 {
		res := r.run(conch.ExecRequest{Command: "sleep 0.00" + fmt.Sprint(i%10) + "; sleep 30; V=broken", TimeoutMS: int64(1 + i%13)})
		if !res.TimedOut || res.Background != 0 || res.Shell.Restarted {
			t.Fatalf("%d: %+v", i, res)
		}
		quick := r.run(conch.ExecRequest{Command: "true", TimeoutMS: 1})
		if quick.Shell.Restarted {
			t.Errorf("%d: an ended true restarted the shell: %+v", i, quick)
		}
		if next := r.exec("echo $V; f"); next.Stdout != "5\nF\n" {
			t.Fatalf("%d: next %q %q %+v", i, next.Stdout, next.Stderr, next.Shell)
		}
	}
}

// TestDebugTrap: a user's DEBUG trap runs with the user's commands, and only those.
func TestDebugTrap(t *testing.T) {
	r := newRig(t)
	r.want("trap 'echo D' DEBUG; V=7", "D\n", "", "0")
	r.want("echo one; echo two", "D\none\nD\ntwo\n", "", "0")
	r.want("exit 3", "D\n", "", "3")
	r.want("echo $V", "D\n7\n", "", "0")
	r.want("trap - DEBUG", "D\n", "", "0")
	r.want("echo $V", "7\n", "", "0")
	r.want("trap 'echo R' RETURN; W=8", "", "", "0")
	r.want("exit 4", "", "", "4")
	r.want("echo $V $W", "7 8\n", "", "0")
}

// TestLostWords: what a result says was lost is what was there.
func TestLostWords(t *testing.T) {
	r := newRig(t)
	for i := range 30 {
		if res := r.exec("X=" + fmt.Sprint(i) + "; kill -STOP $$"); len(res.Shell.Lost) != 0 || res.Background != 0 {
			t.Fatalf("%d: lost %v, background %d", i, res.Shell.Lost, res.Background)
		}
		r.exec("Y=1")
		if res := r.exec("exit"); len(res.Shell.Lost) != 0 {
			t.Fatalf("%d: lost %v", i, res.Shell.Lost)
		}
	}
	r.exec("exec 7>/dev/null; sleep 1000 & J=$!")
	if res := r.exec("exit"); !slices.Equal(res.Shell.Lost, []string{"descriptors", "jobs"}) {
		t.Errorf("lost %v", res.Shell.Lost)
	}
	r.exec("kill $J")
}
