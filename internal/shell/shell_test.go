package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// bash runs a script in a plain bash and gives its output.
func bash(t testing.TB, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, script)
	}
	return string(out)
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a", "it's", `"$x" \`, "a\nb", "''", "日本", "\x01\xff", strings.Repeat("'", 50)} {
		if got := bash(t, "printf %s "+Quote(s)); got != s {
			t.Errorf("Quote(%q): bash reads %q", s, got)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("it's")
	f.Add("a\nb'")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.IndexByte(s, 0) >= 0 || len(s) > 1000 {
			t.Skip()
		}
		if got := bash(t, "printf %s "+Quote(s)); got != s {
			t.Errorf("Quote(%q): bash reads %q", s, got)
		}
	})
}

// capture takes a checkpoint of a bash that ran setup.
func capture(t testing.TB, setup string) *State {
	t.Helper()
	out := bash(t, setup+"\ndebug=$(trap -p DEBUG); trap - DEBUG\n"+strings.ReplaceAll(stateScript(), "declare -p;", "declare -p | grep -v '^declare -- debug';")+`printf %s "$debug"`)
	end := strings.LastIndex(out, "end\x00") + 4
	st, err := ParseState([]byte(out[:end]), []byte(out[end:]))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestRestore compares a bash with one that was given its state back.
func TestRestore(t *testing.T) {
	const show = `
declare -p s x e arr assoc nl tricky num ro 2>&1
declare -f f g
alias ll
umask; pwd; printf '%s|' "$@"; echo
shopt extglob nullglob; set -o | grep -E 'pipefail|noclobber'
trap -p USR1 ERR
echo "${unset_by_user-unset}"`
	setup := `
s=plain; export x='a b'; declare -i num=5; arr=(1 "two words" [7]=$'x\ny'); declare -A assoc=([k 1]=v [q]='"')
nl=$'line1\ndeclare -x FAKE="no"\nline3'; tricky=$'back\\slash "quote" \'single\' $dollar \x60tick\x60 \x01\xff'; readonly ro=1; export e=
f() { echo "in f: $1"; }
g() { case $1 in (a|b) echo ab;; *) echo other;; esac; }
shopt -s expand_aliases extglob nullglob; alias ll='ls -l "x y"'
set -o pipefail -o noclobber; umask 027; cd /usr; set -- one "two three"
trap 'echo "got usr1"' USR1; trap 'echo err' ERR
unset unset_by_user
`
	want := bash(t, setup+show)
	st := capture(t, setup)
	got := bash(t, "unset_by_user=1; unset unset_by_user\n"+string(st.script())+show)
	if got != want {
		t.Errorf("restored:\n%s\nwas:\n%s", got, want)
	}
	if strings.Contains(string(st.script()), "\ndeclare -x FAKE=\"no\"\n\\builtin") {
		t.Error("a line of a value was taken for a variable")
	}
	if st.Environ()["x"] != "a b" || st.OldPwd() == "" {
		t.Errorf("environ %q, OLDPWD %q", st.Environ()["x"], st.OldPwd())
	}
	restored, _ := st.Names()
	for _, w := range []string{"cwd", "variables", "functions", "aliases", "options", "traps", "umask", "readonly:ro"} {
		if !slices.Contains(restored, w) {
			t.Errorf("%s is not among %v", w, restored)
		}
	}
}

func TestParseStateRefusesHalves(t *testing.T) {
	for _, s := range []string{"", "a\x00b", strings.Repeat("x\x00", len(stateSections)), strings.Repeat("x\x00", len(stateSections)+3) + "end\x00"} {
		if _, err := ParseState([]byte(s), nil); err == nil {
			t.Errorf("took %q for a checkpoint", s)
		}
	}
	whole := strings.Repeat("\x00", 8) + "enable -n eval\n\x00\x00/\x00end\x00"
	if _, err := ParseState([]byte(whole), nil); err == nil || !strings.Contains(err.Error(), "eval") {
		t.Errorf("a shell without eval: %v", err)
	}
}

func FuzzSplitQuoted(f *testing.F) {
	f.Add([]byte("declare -- a=\"x\ny\"\ndeclare -x b=$'q\\'\n'\n"))
	f.Add([]byte("trap -- 'a\nb' INT\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Nothing but separating newlines may be lost.
		got := strings.Join(splitQuoted(b), "\n")
		if strings.ReplaceAll(got, "\n", "") != strings.ReplaceAll(string(b), "\n", "") {
			t.Errorf("%q became %q", b, got)
		}
	})
}

func TestJudge(t *testing.T) {
	j := &Judge{}
	if j.Quiet("true") {
		t.Error("quiet before anything is known of functions and aliases")
	}
	j.Learn(capture(t, "shopt -s expand_aliases; alias ll='cd /'; f() { x=1; }"))
	for text, want := range map[string]bool{
		"true": true, "ls -l": true, "echo $HOME": true, "git status && make": true, "ls | wc -l": true, "(cd /; x=1)": true,
		"FOO=1 make": true, "sleep 5 &": true, "if true; then echo a; fi": true, "cat <<E\nx\nE": true, "echo $(cd /; x=1)": true,
		"printf '%s' a": true, "x=1": false, "cd /": false, "export A=1": false, "f": false, "ll": false, "$cmd": false, "\\cd /": false,
		"echo ${x:=1}": false, "echo $((x++))": false, "printf -v x a": false, "read x": false, ". ./file": false, "source f": false,
		"eval x=1": false, "f() { :; }": false, "set -e": false, "for i in 1; do :; done": false, "[[ a =~ b ]]": false,
		"unset x": false, "exec 3>f": false, "cmd {fd}>f": false, "trap x INT": false, "umask 0": false, "true; x=1": false,
		"command cd /": false, "builtin cd /": false, "coproc x": false, "wait": false, "echo \"": false, "shopt -s x": false,
		"let x=1": false, "(( x = 1 ))": false, "x[0]=1": false, "echo ${a[x=1]}": false, "! x=1": false, "{ x=1; }": false,
		"while read x; do :; done": false, "case a in a) x=1;; esac": false, "alias a=b": false, "mapfile a": false,
	} {
		if got := j.Quiet(text); got != want {
			t.Errorf("Quiet(%q) = %v", text, got)
		}
	}
	j.Learn(capture(t, "trap 'x=1' DEBUG"))
	if j.Quiet("true") {
		t.Error("quiet although a trap runs with every command")
	}
}

func TestIncomplete(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "echo hi": false, `echo "open`: true, "for i in 1; do": true, "cat <<X": true, "cat <<X\nbody": true, "cat <<X\nbody\nX": false,
		`echo \`: true, `echo \\`: false, "if true; then": true, "f() {": true, "echo )": false, "x=$(": true, "echo hi |": true, "a &&": true,
		"echo done; done": false, "case x in": true, "echo # \"": false,
	} {
		if got := Incomplete(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
