package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary conch itself: for scripts by its name, for the
// daemon and keepers it starts by their verbs, which no test flag looks like.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "daemon" || os.Args[1] == "keeper") {
		main()
	}
	testscript.Main(m, map[string]func(){"conch": main})
}

// TestScript runs what a user could type, each script in a home of its own.
//
// Beside testscript's own commands there are
//
//	status N COMMAND...   run it; the exit status must be N
//	json PATH VALUE       the last stdout is JSON; what stands at PATH is VALUE
//	                      (JSON; `any`: it is there; `absent`: it is not)
//	fields NAME...        the last stdout is a JSON object with all these names
//	                      (of a list: its first element)
//	bytes FILE HEX        the file's bytes
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("CONCH_HOME", filepath.Join(env.WorkDir, "h"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("SHELL", "/bin/bash")
			// A binary with the race detector otherwise waits a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("CONCH_SESSION", "")
			env.Setenv("CONCH_AGENT", "")
			env.Setenv("CLAUDE_CODE_SESSION_ID", "")
			env.Defer(func() { closeHome(t, filepath.Join(env.WorkDir, "h")) })
			return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": cmdStatus, "json": cmdJSON, "fields": cmdFields, "bytes": cmdBytes,
		},
	})
}

// closeHome ends all that runs under a home and fails the test if something
// stays: a daemon, a keeper, a shell or a command of one.
func closeHome(t testing.TB, home string) {
	t.Helper()
	if _, err := os.Stat(home); err == nil {
		cmd := conchCommand(home, "down", "--all")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("conch down --all: %v: %s", err, out)
		}
	}
	// The daemon has given its home back by now and may be about to exit.
	var left []string
	gone := func() bool { left = processesOf(home); return len(left) == 0 }
	if !holds(gone, 5*time.Second) {
		t.Errorf("processes left behind:\n%s", strings.Join(left, "\n"))
	}
}

// conchCommand is this test binary as conch, for a home.
func conchCommand(home string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "conch"
	cmd.Env = append(os.Environ(), "CONCH_HOME="+home, "CONCH_SESSION=", "CONCH_AGENT=", "CLAUDE_CODE_SESSION_ID=", "HOME="+filepath.Dir(home))
	return cmd
}

// processesOf lists living processes that know of a home, by argument or
// environment. Only Linux shows them.
func processesOf(home string) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if len(cmdline) > 0 && strings.Contains(string(cmdline)+"\x00"+string(environ)+"\x00", home+"\x00") {
			left = append(left, filepath.Base(dir)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return left
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// stdoutJSON is the last stdout, which must be one JSON value and nothing else.
func stdoutJSON(ts *testscript.TestScript) any {
	text := ts.ReadFile("stdout")
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		ts.Fatalf("stdout is not one JSON value: %v\n%s", err, text)
	}
	return v
}

// at follows a path such as 0.shell.lost; -1 is the last of a list.
func at(v any, path string) (any, bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[step]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err == nil && i < 0 {
				i += len(x)
			}
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: json PATH VALUE")
	}
	got, ok := at(stdoutJSON(ts), args[0])
	same := ok
	switch args[1] {
	case "any":
	case "absent":
		same = !ok
	default:
		var want any
		if err := json.Unmarshal([]byte(args[1]), &want); err != nil {
			ts.Fatalf("%s is not JSON: %v", args[1], err)
		}
		same = ok && reflect.DeepEqual(got, want)
	}
	if same == neg {
		data, _ := json.Marshal(got)
		ts.Fatalf("%s is %s (there: %v), want %s (not: %v)", args[0], data, ok, args[1], neg)
	}
}

func cmdFields(ts *testscript.TestScript, neg bool, args []string) {
	v := stdoutJSON(ts)
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	object, ok := v.(map[string]any)
	if !ok || neg {
		ts.Fatalf("stdout is no JSON object")
	}
	missing := slices.DeleteFunc(slices.Clone(args), func(n string) bool { _, ok := object[n]; return ok })
	if len(missing) > 0 {
		ts.Fatalf("missing: %s", strings.Join(missing, " "))
	}
}

func cmdBytes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bytes FILE HEX")
	}
	if got := fmt.Sprintf("%x", ts.ReadFile(args[0])); got != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !holds(ok, 20*time.Second) {
		t.Fatalf("waited in vain until %s", what)
	}
}

// holds looks until ok or the limit.
func holds(ok func() bool, limit time.Duration) bool {
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			return false
		case <-tick.C:
		}
	}
	return true
}
