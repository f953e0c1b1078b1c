package conchtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hostile are the inputs of the torture tables (facts of other systems) that
// broke them. any matches whatever comes; the next command must be alive with
// its state within 5 s.
type hostile struct {
	text, stdout, stderr, exit string
	flags                      []string
}

const whatever = "\x00any"

func hostiles(work string) []hostile {
	return []hostile{
		{text: `printf abc`, stdout: "abc", exit: "0"},
		{text: `printf 'abc\n\n\n'`, stdout: "abc\n\n\n", exit: "0"},
		{text: `printf '\n\n'`, stdout: "\n\n", exit: "0"},
		{text: `printf err >&2`, stderr: "err", exit: "0"},
		{text: `printf 'a\0b\0c'`, stdout: "a\x00b\x00c", exit: "0"},
		{text: `printf '\xff\xfe\xe9'`, stdout: "\xff\xfe\xe9", exit: "0"},
		{text: `printf '\1\1\1x\n\2\2\2y\n'`, stdout: "\x01\x01\x01x\n\x02\x02\x02y\n", exit: "0"},
		{text: `echo o1; echo e1 >&2; echo o2; echo e2 >&2`, stdout: "o1\no2\n", stderr: "e1\ne2\n", exit: "0"},
		{text: `printf '10%%\r50%%\r100%%\n'`, stdout: "10%\r50%\r100%\n", exit: "0"},
		{text: `printf '\033[31mred\033[0m\033[2Jcleared'`, stdout: "\x1b[31mred\x1b[0m\x1b[2Jcleared", exit: "0"},
		{text: `exit 3`, exit: "3"},
		{text: `(exit 42)`, exit: "42"},
		{text: `echo "abc`, stderr: whatever, exit: "2"},
		{text: `if then fi`, stderr: whatever, exit: "2"},
		{text: `}`, stderr: whatever, exit: "2"},
		{text: `echo one; } ; echo two`, stderr: whatever, exit: "2"},
		{text: `set -e; false`, exit: "1"},
		{text: `set -u; echo $NOPE; echo after`, stderr: "conch: NOPE: unbound variable\n", exit: "1"},
		{text: `set +u`, exit: "0"},
		{text: `set -n; echo n`, stdout: "n\n", exit: "0"},
		{text: `set -x; true; set +x`, stderr: whatever, exit: "0"},
		{text: `sleep 5 & echo started; kill $!`, stdout: "started\n", stderr: whatever, exit: "0"},
		{text: `sleep 0.01 &`, exit: "0"},
		{text: `cat`, exit: "0"},
		{text: `read x; echo rc=$?`, stdout: "rc=1\n", exit: "0"},
		{text: "cat\necho second", stdout: "second\n", exit: "0"},
		{text: `read -s -p Password: pw; echo "[$pw]"`, stdout: "[]\n", stderr: whatever, exit: "0"},
		{text: `while :; do :; done`, exit: "null", flags: []string{"-t", "300ms"}},
		{text: `sleep 100`, exit: "null", flags: []string{"-t", "300ms"}},
		{text: `printf partial; sleep 100`, stdout: "partial", exit: "null", flags: []string{"-t", "300ms"}},
		{text: `bash -c 'sleep 100 & sleep 100'`, exit: "null", flags: []string{"-t", "300ms"}},
		{text: `bash -c 'trap "" INT; sleep 100'`, exit: "null", flags: []string{"-t", "300ms"}},
		{text: `vim -u NONE 2>/dev/null || less /etc/passwd >/dev/null || true; python3`, stdout: whatever, stderr: whatever, exit: whatever, flags: []string{"-t", "2s"}},
		{text: `top -n 1`, stdout: whatever, stderr: whatever, exit: whatever, flags: []string{"-t", "2s"}},
		{text: `bash`, exit: "0"},
		{text: `kill -9 $$`, exit: "137"},
		{text: `kill -TERM $$; echo b`, stdout: "b\n", exit: "0"},
		{text: `kill -9 $BASHPID`, exit: "137"},
		{text: `kill 0; echo b`, stdout: "b\n", exit: "0"},
		{text: `kill -9 0`, exit: "137"},
		{text: `suspend -f`, exit: "null"},
		{text: `exec ls -d /`, stdout: "/\n", exit: "0"},
		{text: `exec env -i bash`, exit: "0"},
		{text: `cd /nonexistent`, stderr: "conch: cd: /nonexistent: No such file or directory\n", exit: "1"},
		{text: `echo no`, stderr: whatever, exit: "1", flags: []string{"--cwd", "/nonexistent"}},
		{text: "cat <<E\nx\nE", stdout: "x\n", exit: "0"},
		{text: "cat <<'E'\n$x\nE\necho after", stdout: "$x\nafter\n", exit: "0"},
		{text: "cat <<E\nabc", stdout: "abc\n", stderr: whatever, exit: "0"},
		{text: `echo hi # c`, stdout: "hi\n", exit: "0"},
		{text: `# c`, exit: "0"},
		{text: ``, exit: "0"},
		{text: `echo hi \`, stdout: "hi \\\n", exit: "0"},
		{text: `echo hi |`, stderr: whatever, exit: "2"},
		{text: "false\ntrue", exit: "0"},
		{text: "for i in 1 2\ndo\n  echo $i\ndone", stdout: "1\n2\n", exit: "0"},
		{text: "echo 'a\tb'", stdout: "a\tb\n", exit: "0"},
		{text: `echo "wow!x" hello!`, stdout: "wow!x hello!\n", exit: "0"},
		{text: `history 1 | sed 's/^ *[0-9]* *//'; (exit 5)`, stdout: "history 1 | sed 's/^ *[0-9]* *//'; (exit 5)\n", exit: "5"},
		{text: `trap 'echo bye' EXIT; trap - EXIT`, exit: "0"},
		{text: `trap 'echo bye' EXIT; exit 4`, stdout: "bye\n", exit: "4"},
		{text: `trap 'echo e >&2' ERR; false; trap - ERR`, stderr: "e\n", exit: "0"},
		{text: `exec >/dev/null; echo hi`, exit: "0"},
		{text: `exec 2>/dev/null; ls /nonexistent`, exit: "2"},
		{text: `exec 1>&- 2>&-`, exit: "0"},
		{text: `exec </dev/null; cat`, exit: "0"},
		{text: `exec 3>` + work + `/three; echo x >&3; exec 3>&-`, exit: "0"},
		{text: `ulimit -n 10`, exit: "0"},
		{text: `ulimit -S -f 1`, exit: "0"},
		{text: `ulimit -S -f unlimited`, exit: "0"},
		{text: `echo 日本 🐚 é`, stdout: "日本 🐚 é\n", exit: "0"},
		{text: `printf '\xe6\x97'`, stdout: "\xe6\x97", exit: "0"},
		{text: `tty; stty -a; [ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo none`, stdout: "not a tty\nnone\n", stderr: whatever, exit: "0"},
		{text: `log=1; dir=2; sp=3; ep=4; EXIT_CODE=5; PREV_DIR=6; CMD_PID=7; cleanup=8; echo out`, stdout: "out\n", exit: "0"},
		{text: `mv() { :; }; rm() { :; }; printf() { :; }; echo() { :; }; eval() { :; }; trap() { :; }; history() { :; }`, exit: "0"},
		{text: `unset -f mv rm printf echo eval trap history`, exit: "0"},
		{text: `PATH=; echo x; ls`, stdout: "x\n", stderr: whatever, exit: "127"},
		{text: `PATH=/usr/bin:/bin`, exit: "0"},
		{text: `mkdir gone; cd gone; rmdir ../gone; pwd >/dev/null; cd ..`, exit: "0"},
		{text: `PROMPT_COMMAND='echo noise'`, exit: "0"},
		{text: `unset PROMPT_COMMAND; PS1='$(echo noise)'`, exit: whatever},
		{text: `unset PS1`, exit: "0"},
		{text: `trap 'echo debug' DEBUG; trap - DEBUG`, stdout: whatever, exit: "0"},
		{text: `stty echo; true`, stderr: whatever, exit: "0"},
		{text: `nohup sleep 100 >/dev/null 2>&1 & setsid sleep 100 >/dev/null 2>&1 & true`, exit: "0"},
		{text: `:() { :; }; unset -f :`, exit: whatever, stderr: whatever},
		{text: `builtin() { :; }`, exit: whatever},
		{text: `exec 0<&- 1>&- 2>&-; kill -9 $$`, exit: "137"},
		{text: "echo $'\\x1b]0;title\\x07'", stdout: "\x1b]0;title\x07\n", exit: "0"},
	}
}

func TestHostileInputs(t *testing.T) { hostileInputs(t) }

// hostileInputs runs them all in sessions made with flags.
func hostileInputs(t *testing.T, flags ...string) {
	t.Parallel()
	h := New(t)
	all := hostiles(h.Work)
	const sessions = 6
	t.Run("in", func(t *testing.T) {
		for w := range sessions {
			t.Run(fmt.Sprint("session", w), func(t *testing.T) {
				t.Parallel()
				h := *h
				h.T = t
				label := fmt.Sprint("s", w)
				dir := filepath.Join(h.Work, label)
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				h.OK(append([]string{"new", label, "--cwd", h.Work}, flags...)...)
				h.Want(label, "cd "+dir+"; KEEP=kept; export E=6; f() { echo F; }; a=(1 2)", "")
				// A row and what puts right what it does stay in one session:
				// rows are dealt in blocks.
				block := (len(all) + sessions - 1) / sessions
				for i := w * block; i < min((w+1)*block, len(all)); i++ {
					endure(&h, label, dir, all[i])
				}
			})
		}
	})
}

func endure(h *Home, label, dir string, c hostile) {
	t := h.T
	t.Helper()
	start := time.Now()
	r := h.Exec(label, c.text, c.flags...)
	if took := time.Since(start); took > 9*time.Second {
		t.Errorf("%q took %v", c.text, took)
	}
	ok := func(got, want string) bool { return got == want || want == whatever }
	if !ok(r.Stdout, c.stdout) || !ok(r.Stderr, c.stderr) || !ok(Code(r.ExitCode), c.exit) {
		t.Errorf("%q:\n got %q %q %s\nwant %q %q %s", c.text, r.Stdout, r.Stderr, Code(r.ExitCode), c.stdout, c.stderr, c.exit)
	}
	if strings.Contains(r.Stderr, h.Path) || strings.Contains(r.Stderr, "/dev/shm") || strings.Contains(r.Stdout, "/dev/shm") {
		t.Errorf("%q shows a path of ours: %q %q", c.text, r.Stdout, r.Stderr)
	}
	next := h.Exec(label, `\builtin echo "alive:$KEEP $E ${a[1]}"; f; \builtin pwd`)
	want := "alive:kept 6 2\nF\n" + dir + "\n"
	if strings.HasPrefix(c.text, "mv()") {
		want = "alive:kept 6 2\n" + dir + "\n" // f says its word through echo
	}
	if next.Stdout != want {
		t.Errorf("after %q: %q %q, want %q (%+v)", c.text, next.Stdout, next.Stderr, want, next.Shell)
	}
}

// Big things, compared by sum.
func TestHostileSizes(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "KEEP=kept", "")
	random := filepath.Join(h.Work, "random")
	h.OK("exec", "head -c 3000000 /dev/urandom > "+random)
	want, err := os.ReadFile(random)
	if err != nil {
		t.Fatal(err)
	}
	if o := h.Conch("exec", "cat "+random+" & cat "+random+" >&2; wait"); o.Stdout != string(want) || o.Stderr != string(want) || o.Status != 0 {
		t.Errorf("random bytes: %d and %d of %d, status %d", len(o.Stdout), len(o.Stderr), len(want), o.Status)
	}
	if o := h.Conch("exec", "--jsonl", "cat "+random+" & cat "+random+" >&2; wait"); o.Status != 0 {
		t.Error(o)
	} else if out, errs, e := events(t, o.Stdout); out != string(want) || errs != string(want) || e.StdoutBytes != 3_000_000 || e.StderrBytes != 3_000_000 {
		t.Errorf("--jsonl: %d and %d", len(out), len(errs))
	}
	for name, text := range map[string]string{
		"a million lines":   "seq 1 1000000",
		"50 MB in one line": "head -c 50000000 /dev/zero | tr '\\0' x",
	} {
		ref, _, _ := plain(t, h.Work, h.Env, "-c", text)
		if o := h.Conch("exec", text); sha256.Sum256([]byte(o.Stdout)) != sha256.Sum256([]byte(ref)) || o.Stderr != "" {
			t.Errorf("%s: %d bytes of %d", name, len(o.Stdout), len(ref))
		}
		r := h.Exec("main", text)
		if !r.Truncated || r.StdoutBytes != int64(len(ref)) || r.StdoutOmitted == nil || int64(len(r.Stdout))+r.StdoutOmitted.Bytes != r.StdoutBytes ||
			r.Stdout != ref[:r.StdoutOmitted.Offset]+ref[r.StdoutOmitted.Offset+r.StdoutOmitted.Bytes:] {
			t.Errorf("%s: head and tail do not fit: %d bytes, %+v of %d", name, len(r.Stdout), r.StdoutOmitted, r.StdoutBytes)
		}
	}
	// Commands of 20 kB, 200 kB, 2 MB and 10 MB.
	for _, n := range []int{20_000, 200_000, 2_000_000, 10_000_000} {
		start := time.Now()
		r := h.Exec("main", "x='"+strings.Repeat("a", n)+"'; echo ${#x}; unset x")
		if r.Stdout != fmt.Sprint(n)+"\n" || Code(r.ExitCode) != "0" || time.Since(start) > 30*time.Second {
			t.Errorf("a command of %d bytes: %.100q %.100q %s after %v", n, r.Stdout, r.Stderr, Code(r.ExitCode), time.Since(start))
		}
	}
	h.Want("main", "echo $KEEP", "kept\n")
}
