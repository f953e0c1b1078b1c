package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// bashWords is what bash makes of shell text: the words after `printf`.
func bashWords(t testing.TB, text string) []string {
	t.Helper()
	cmd := exec.Command("bash", "--norc", "--noprofile", "-c", `eval "$1"`, "bash", `printf '%s\0' `+text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash on %q: %v", text, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

var nasty = []string{
	"", "a", "a b", "'", "''", `"`, `\`, `\'`, "$HOME", "$(echo no)", "`echo no`", "*", "?", "[a-z]", "~", "~root",
	"a=b", "-n", "--", "-", "!", "!!", "#", "# no", ";", "&", "&&", "|", ">x", "2>&1", "<", "(", ")", "{", "}", "{a,b}",
	"\n", "a\nb\n", "\t", "\r", "\x01", "\x7f", "\xff\xfe", "é", "日本", "%1", "if", "then", "time", "[[", "]]", "done",
	"$'x'", `$"x"`, "a'b'c", "'\\''", "\\\n", "~+", "@(a|b)", "+", ":", ".", "coproc", "x\x1b]0;t\x07",
	strings.Repeat("'", 100), strings.Repeat("long ", 10000),
}

func TestQuoteArgvIsBash(t *testing.T) {
	got := bashWords(t, quoteArgv(nasty))
	if len(got) != len(nasty) {
		t.Fatalf("%d words became %d", len(nasty), len(got))
	}
	for i := range nasty {
		if got[i] != nasty[i] {
			t.Errorf("%q became %q", nasty[i], got[i])
		}
	}
}

// A first word is where bash looks for syntax and assignments. (It looks for
// jobs there too, quoted or not: a program named %1 needs a path in front.)
func TestQuoteArgvFirstWordIsACommand(t *testing.T) {
	for _, w := range nasty {
		if w == "" || strings.ContainsAny(w, "/\x00") || w == ":" || w == "." || w == "%1" || len(w) > 100 {
			continue
		}
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
		cmd.Env = append(os.Environ(), "PATH=/nonexistent", "PS1=", "PS2=")
		cmd.Stdin = strings.NewReader("set +mH\ncommand_not_found_handle() { builtin printf '%s\\0' \"$@\"; }\n" + quoteArgv([]string{w, "b c"}) + "\n")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		if want := w + "\x00b c\x00"; !strings.Contains(stdout.String(), want) {
			t.Errorf("%q as a command: stdout %q, stderr %q", w, stdout.String(), stderr.String())
		}
	}
}

func FuzzQuoteArgv(f *testing.F) {
	for _, w := range nasty {
		f.Add(w, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Contains(a+b, "\x00") || len(a)+len(b) > 50000 {
			t.Skip("not an argument")
		}
		got := bashWords(t, quoteArgv([]string{a, b}))
		if len(got) != 2 || got[0] != a || got[1] != b {
			t.Fatalf("%q, %q became %q", a, b, got)
		}
	})
}

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"30": 30 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "30s": 30 * time.Second, "1m30s": 90 * time.Second,
		"250ms": 250 * time.Millisecond, "2h": 2 * time.Hour, "0.001": time.Millisecond, "1e2": 100 * time.Second, "0s": 0,
	}
	for in, want := range good {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1s", "x", "30 s", "nan", "inf", "1e300", "s", "5d", "9999999h"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("%q was taken as %v", in, got)
		}
	}
	if ms := duration(time.Microsecond).ms(); ms != 1 {
		t.Errorf("1µs is sent as %d ms, which is no limit", ms)
	}
	if ms := duration(1500 * time.Millisecond).ms(); ms != 1500 {
		t.Errorf("1.5s is sent as %d ms", ms)
	}
}

func TestParseEnv(t *testing.T) {
	env, err := parseEnv([]string{"A=1", "B=x=y", "C=", "D=two\nlines", "A=2", "E=\xff"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "2", "B": "x=y", "C": "", "D": "two\nlines", "E": "\xff"}
	for k, v := range want {
		if got, ok := env[k]; !ok || got != v {
			t.Errorf("%s=%q, want %q", k, got, v)
		}
	}
	for _, bad := range []string{"A", "=x", "1A=x", "A-B=x", "", "A B=x", "é=x"} {
		_, err := parseEnv([]string{bad})
		if err == nil {
			t.Errorf("-e %q was taken", bad)
		}
	}
	if _, err := parseEnv([]string{"NOVALUE"}); err == nil || !strings.Contains(err.Error(), "NOVALUE") {
		t.Errorf("the error does not name it: %v", err)
	}
}

func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	wd, _ := os.Getwd()
	for in, want := range map[string]string{"": "", "/x/../y": "/x/../y", "a/../b": wd + "/a/../b", ".": wd + "/."} {
		if got, err := absolute(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}
