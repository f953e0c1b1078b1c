package conchtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// alone are commands that plain bash and conch must agree on: stdout, stderr
// and exit code. Each runs in a fresh bash -c and in a shared session.
var alone = []string{
	// builtins
	`echo hi`, `echo -n no newline`, `echo -e 'a\tb\\c'`, `printf '%s|%5d|%-4s|%q\n' a 42 b "c d"`, `true`, `false`, `:`, `! true`,
	`type -t cd if ls echo`, `command -v cd`, `test -d /; echo $?`, `[ 1 -lt 2 ] && [[ abc == a* ]] && echo yes`,
	`pwd`, `cd / && pwd`, `cd /tmp/.. && pwd && pwd -P`, `pushd / >/dev/null; dirs; popd`, `umask`, `umask 027; umask -S; umask 022`,
	`getopts ab: o -a -b x; echo "$o"; OPTIND=1`, `read -r a b <<< "one two three"; echo "$a/$b"`, `mapfile -t m < <(seq 3); echo "${#m[@]} ${m[2]}"`,
	`declare -p HOME | head -c 15`, `x=1; local x`, `shift 5; echo $?`, `hash -r; hash`, `times >/dev/null; echo $?`, `let 'n=3*7'; echo $n`,
	`wait; echo $?`, `sleep 0 & wait $!; echo $?`, `(exit 9) & wait $!; echo $?`, `kill -0 $$ && echo self`, `ulimit -c 0; ulimit -c`,
	// pipelines and lists
	`seq 1 1000 | tail -n 1`, `seq 3 | while read -r i; do echo "<$i>"; done`, `false | true; echo "${PIPESTATUS[@]}"`, `set -o pipefail; false | true; echo $?; set +o pipefail`,
	`true && false || echo or`, `yes | head -n 2`, `echo a | { cat; echo b; }`, `printf 'b\na\n' | sort | uniq -c | tr -d ' '`,
	`{ echo out; echo err >&2; } 2>&1 | sort`, `TIMEFORMAT=t; time true; echo $?`,
	// heredocs and here-strings
	"cat <<E\n$((1+1)) `echo x` $(echo y)\nE", "cat <<'E'\n$((1+1)) `echo x`\nE", "cat <<-E\n\t\ttabs\n\tE", "cat <<A; cat <<B\na\nA\nb\nB", "cat <<< 'one line'",
	"cat <<E | tr a-z A-Z\nheredoc in a pipeline\nE", "while read -r l; do echo \"[$l]\"; done <<E\n1\n\n 3\nE",
	// arrays
	`a=(x "y z" 'q'); echo "${#a[@]} ${a[1]} ${a[@]: -1}"; a+=(n); echo "${!a[@]}"; unset 'a[0]'; echo "${a[@]}"`,
	`declare -A m=([k]=v [other]=w); for k in "${!m[@]}"; do echo "$k=${m[$k]}"; done | sort`, `a=({1..5}); echo "${a[@]/3/three}"; declare -p a`, `declare -i n=5+5; echo $n; declare +i n; unset n`,
	`declare -n ref=HOME; [ "$ref" = "$HOME" ] && echo same; unset -n ref`, `readarray -d '' z < <(printf 'a\0b c\0'); printf '%s\n' "${z[@]}"`,
	// functions, traps, subshells
	`g() { local v=in; echo "$v $1 $#"; return 3; }; g a b; echo $?; unset -f g`, `g() { g2; }; g2() { echo "${FUNCNAME[0]}"; }; g; unset -f g g2`,
	`r() { (( $1 < 2 )) && echo 1 || echo $(( $1 * $(r $(($1-1))) )); }; r 6; unset -f r`, `trap 'echo usr1' USR1; kill -USR1 $$; trap - USR1`,
	`trap 'echo err $?' ERR; (exit 4); trap - ERR`, `(trap 'echo leaving' EXIT; echo in)`, `(cd /; pwd); pwd`, `x=out; (x=in; echo $x); echo $x`, `(exit 5); echo $?`,
	`(set -e; false; echo never); echo $?`, `bash -c 'kill -TERM $$'; echo $?`, `coproc C { tr a b; }; echo aaa >&"${C[1]}"; eval "exec ${C[1]}>&-"; cat <&"${C[0]}"; wait`,
	// redirections
	`echo x > f; echo y >> f; cat f; rm f`, `ls /nonexistent 2>/dev/null; echo $?`, `{ echo a; echo b >&2; } 2>err; cat err; rm err`, `exec 3>f; echo three >&3; exec 3>&-; cat f; rm f`,
	`cat < /nonexistent`, `echo hi > /nonexistent/x`, `echo both &> f; cat f; rm f`, `cat <(echo p1) <(echo p2)`, `echo to | tee >(cat >/dev/null)`, `set -C; echo a > f; echo b > f; echo $?; set +C; rm f`,
	`echo err 1>&2`, `{ echo o; echo e >&2; } 3>&1 1>&2 2>&3`,
	// arithmetic
	`echo $((2**10)) $((7%3)) $((-7/2)) $((0x1f)) $((2#101)) $((1<2?3:4))`, `i=5; echo $((i++ + ++i)) $i`, `((0)); echo $?`, `for ((i=0;i<3;i++)); do printf %d $i; done; echo`, `echo $((1/0))`, `echo $((08))`,
	// quoting and expansion
	`echo 'a'\''b' "c\"d" $'t\tn' \$HOME`, `x='a  b'; echo $x "$x"`, `echo ${x:-def} ${#HOME} | tr 0-9 n`, `v=hello.tar.gz; echo ${v%.*} ${v%%.*} ${v#*.} ${v^^} ${v/l/L} ${v:1:3}`,
	`echo {a,b}{1..3} {01..03}`, `echo *nomatch*`, `touch b1 b2; echo b?; rm b1 b2`, `IFS=:; set -- $(echo a:b:c); echo $#; IFS=$' \t\n'`, `echo "$(printf 'trailing\n\n\n')."`, `eval 'echo $((1+2))'`, `echo ~root`, `echo "wow!x" !!`,
	`case foobar in f*r) echo glob;; *) echo no;; esac`, `[[ foo123 =~ ([a-z]+)([0-9]+) ]]; echo "${BASH_REMATCH[@]}"`, `shopt -s extglob; case aab in +(a)b) echo ext;; esac; shopt -u extglob`,
	// unicode and bytes
	`echo 日本語 🐚 é`, `x=héllo; echo ${#x} ${x:1:1}`, `printf '\xff\xfe\0\x80'`, `printf 'a\0b\0' >&2`, `printf '\u00e9\n'`, `head -c 100000 /dev/zero | wc -c`, `printf '\r\n\x1b[31mred\x1b[0m'`,
	// errors
	`nosuchcommand`, `/nonexistent/prog`, `cd /nonexistent`, `/tmp`, `if then fi`, `}`, `echo "unclosed`, "echo a\necho b\nif", `echo hi |`, `for in`, `a b c ((`, `case x in`, `foo() {`, `$(`, "echo `", `echo $(( 1 + ))`, `[ 1 -eq x ]`, `return 7`, `break`, `unset 1x`, `export 1x=2`, `readonly RO=1; RO=2`,
	`kill -99 1`, `exit 3`, `exit 300`, `echo before; exit`, `exec echo replaced`, `exec true`, `kill -9 $$`, `set -e; true; false; echo never`, `set -u; echo "$NOPE_X"`, `trap 'echo bye' EXIT; exit 2`, `exit notanumber`,
}

// different are the rows where bash differs from itself: conch's shell is an
// interactive one without job control, which sources what it runs.
var different = map[string]string{
	`return 7`:                         "a sourced file may return, bash -c may not",
	`set -u; echo "$NOPE_X"`:           "bash -c ends with 127, an interactive shell drops the command with 1",
	`bash -c 'kill -TERM $$'; echo $?`: "an interactive bash without job control does not announce the deaths of children",
}

var prefix = regexp.MustCompile(`(?m)^(bash|conch): ((-c|eval): )?(line [0-9]+: )?`)

// plain runs bash -c as a person would, in the same directory and environment.
func plain(t testing.TB, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command("bash", args...)
	var o, e bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), status(cmd.ProcessState)
}

// environment is that of a session's commands, for plain bash.
func environment(h *Home, label string) []string {
	return strings.Split(strings.TrimSuffix(h.Exec(label, "env -0").Stdout, "\x00"), "\x00")
}

func TestDifferential(t *testing.T) {
	t.Parallel()
	h := New(t)
	env := environment(h, "env")
	jobs := make(chan int, len(alone))
	for i := range alone {
		jobs <- i
	}
	close(jobs)
	t.Run("in", func(t *testing.T) {
		for w := range 4 {
			t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
				t.Parallel()
				h := *h
				h.T = t
				for i := range jobs {
					differ(&h, env, fmt.Sprint("d", i), alone[i])
				}
			})
		}
	})
}

// differ runs one command in a fresh session and in a fresh bash.
func differ(h *Home, env []string, label, text string) {
	t := h.T
	dir, ref := filepath.Join(h.Work, label), filepath.Join(h.Work, label+"ref")
	for _, d := range []string{dir, ref} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.OK("new", label, "--cwd", dir)
	defer h.OK("close", label)
	got := h.Exec(label, text)
	gotOut := strings.ReplaceAll(got.Stdout, dir, ref)
	gotErr := prefix.ReplaceAllString(strings.ReplaceAll(got.Stderr, dir, ref), "sh: ")
	wantOut, wantErr, wantCode := plain(t, ref, env, "-c", text)
	wantErr = prefix.ReplaceAllString(wantErr, "sh: ")
	same := gotOut == wantOut && gotErr == wantErr && Code(got.ExitCode) == fmt.Sprint(wantCode)
	if why, ok := different[text]; ok == same {
		t.Errorf("%q (%s):\nconch %q\n      %q %s\n bash %q\n      %q %d", text, why, gotOut, gotErr, Code(got.ExitCode), wantOut, wantErr, wantCode)
	}
	if next := h.Exec(label, "echo $?"); next.Stdout != Code(got.ExitCode)+"\n" {
		t.Errorf("%q: $? afterwards is %q, its exit code %s", text, next.Stdout, Code(got.ExitCode))
	}
}

// What set -x shows is the command's and nothing of ours. (The plus signs count
// bash's nesting, of which conch's sourcing is a part.)
func TestTraceShowsOnlyTheCommand(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "set -x", "")
	r := h.Exec("main", "x=1; echo $x")
	if strings.ReplaceAll(r.Stderr, "+", "") != " x=1\n echo 1\n" || r.Stdout != "1\n" {
		t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
}

// together are sequences that share state: one session and one bash are fed the
// same lines, and everything they write is compared.
var together = [][]string{
	{`x=1`, `((x+=41))`, `echo $x`, `export x`, `bash -c 'echo child $x'`, `unset x`, `echo "[${x-unset}]"`},
	{`f() { echo "f:$1"; }`, `f a`, `declare -f f`, `g() { f "$@"; }`, `g b`, `unset -f f`, `g c`, `echo $?`},
	{`cd /usr`, `pwd`, `cd lib`, `echo $OLDPWD`, `cd - >/dev/null`, `pwd`, `pushd /tmp >/dev/null`, `dirs -l`, `popd >/dev/null`, `pwd`},
	{`a=(1 2 3)`, `a+=(4)`, `echo ${a[@]}`, `declare -A m`, `m[k]=v`, `m[l]='two words'`, `echo "${m[k]} ${m[l]} ${#m[@]}"`, `declare -p a m`},
	{`set -o pipefail`, `false | true`, `echo $?`, `set +o pipefail`, `shopt -s nullglob`, `echo /nonexistent/*`, `shopt -u nullglob`, `echo /nonexistent/*`, `set -f`, `echo *`, `set +f`},
	{`trap 'echo usr' USR1`, `kill -USR1 $$`, `trap -p USR1`, `trap - USR1`, `trap -p | grep -v RTMIN+5`, `trap 'echo ERR' ERR`, `false`, `true`, `trap - ERR`, `false`, `echo $?`},
	{`umask 077`, `umask`, `touch private`, `stat -c %a private`, `umask 022`, `rm private`},
	{`(exit 7)`, `echo $?`, `false`, `echo $?`, `nosuchcommand`, `echo $?`, `true`, `echo $?`, `! false`, `echo $?`},
	{`exec 5> five`, `echo to five >&5`, `echo more >&5`, `exec 5>&-`, `cat five`, `echo x >&5`, `echo $?`, `rm five`},
	{`set -- one two three`, `echo $# $2`, `shift`, `echo $1 $#`, `set --`, `echo $#`},
	{`readonly R=1`, `echo $R`, `(R=2)`, `echo $?`, `declare -i n=3`, `n=n+4`, `echo $n`, `declare -l low=ABC`, `echo $low`, `declare -u low`, `low=abc`, `echo $low`},
	{`PATH=/nonexistent:$PATH`, `nosuch`, `PATH=${PATH#*:}`, `sleep 0 & wait`, `echo done $?`, `SECONDS=100`, `((SECONDS >= 100)) && echo later`, `RANDOM=7`, `echo $((RANDOM >= 0))`},
	{`IFS=,`, `v=a,b,c`, `for w in $v; do echo $w; done`, `unset IFS`, `for w in $v; do echo $w; done`, `LC_ALL=C`, `printf '%s\n' b A a B | sort`, `unset LC_ALL`},
	{`x=$'two\nlines'`, `echo "$x"`, `y=$'tab\tand \x01 control'`, `echo "$y" | od -c | head -n 2`, `z='日本'`, `echo ${#z}`, `q="quote ' and \""`, `echo "$q"`},
	{`alias`, `echo "${-//[!eu]/}"`, `set -e`, `true`, `set +e`, `false`, `echo $?`},
	{`declare -n r=target`, `target=1`, `r=2`, `echo $target`, `unset -n r`, `printf -v out '%03d' 7`, `echo $out`, `mapfile -t l < <(printf 'x\ny\n')`, `echo ${l[1]}`},
	{`shopt -s extglob`, `v=aaab`, `echo ${v/+(a)/x}`, `shopt -u extglob`, `set -o noclobber`, `echo 1 > nc`, `echo 2 > nc`, `echo $?`, `set +o noclobber`, `rm nc`},
	{"cat <<E\nheredoc $((1+1))\nE", "h() {\n  cat <<'E'\nin a $function\nE\n}", `h`, `declare -f h | tail -n 4`, `unset -f h`},
}

func TestDifferentialSequences(t *testing.T) {
	t.Parallel()
	h := New(t)
	env := environment(h, "env")
	jobs := make(chan int, len(together))
	for i := range together {
		jobs <- i
	}
	close(jobs)
	t.Run("in", func(t *testing.T) {
		for w := range 3 {
			t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
				t.Parallel()
				h := *h
				h.T = t
				for i := range jobs {
					differTogether(&h, env, fmt.Sprint("t", i), together[i])
				}
			})
		}
	})
}

func differTogether(h *Home, env []string, label string, lines []string) {
	t := h.T
	dir, ref := filepath.Join(h.Work, label), filepath.Join(h.Work, label+"ref")
	script := filepath.Join(h.Work, label+".sh")
	for _, d := range []string{dir, ref} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(script, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.OK("new", label, "--cwd", dir)
	defer h.OK("close", label)
	var gotOut, gotErr, each strings.Builder
	code := ""
	for _, text := range lines {
		r := h.Exec(label, text)
		gotOut.WriteString(r.Stdout)
		gotErr.WriteString(r.Stderr)
		code = Code(r.ExitCode)
		fmt.Fprintf(&each, "%q: %q %q %s\n", text, r.Stdout, r.Stderr, code)
	}
	name := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(script) + `: (line [0-9]+: )?`)
	wantOut, wantErr, wantCode := plain(t, ref, env, script)
	g, w := prefix.ReplaceAllString(gotErr.String(), "sh: "), name.ReplaceAllString(wantErr, "sh: ")
	if gotOut.String() != wantOut || g != w || code != fmt.Sprint(wantCode) {
		t.Errorf("%s\n bash stdout %q\nconch stdout %q\n bash stderr %q\nconch stderr %q\n bash %d, conch %s", each.String(), wantOut, gotOut.String(), w, g, wantCode, code)
	}
}
