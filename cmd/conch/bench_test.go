package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch/bench"
	"github.com/conchsh/conch/internal/sock"
)

// benchCommand is `conch bench` with a temporary directory of its own, which is
// searched for leftovers when the test ends.
func benchCommand(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	tmp, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(tmp + "/*")
		for _, dir := range left {
			t.Errorf("left behind: %s", dir)
		}
		if p := processesOf(tmp); len(p) > 0 { // TMPDIR stands in the environment of daemon and keepers
			t.Errorf("processes left behind:\n%s", strings.Join(p, "\n"))
		}
		os.RemoveAll(tmp)
	})
	cmd = conchCommand(filepath.Join(tmp, "unused"), append([]string{"bench"}, args...)...)
	// The race detector has each of the many processes linger for a second.
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return cmd, tmp
}

// TestBench runs everything once or twice: that all rows are there and that what
// is counted is complete. Times are for a quiet machine.
func TestBench(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bench.json")
	cmd, _ := benchCommand(t, "--quick", "--json", "--out", out)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("conch bench: %v\n%s", err, stderr.String())
	}
	var rep, written bench.Report
	if err := json.Unmarshal(printed, &rep); err != nil {
		t.Fatalf("--json: %v\n%s", err, printed)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &written); err != nil || len(written.Rows) != len(rep.Rows) {
		t.Errorf("--out has %d rows, --json %d (%v)", len(written.Rows), len(rep.Rows), err)
	}

	rows := map[string]bench.Row{}
	for _, row := range rep.Rows {
		rows[row.Name] = row
		if row.Skipped == "" && (row.Value <= 0 || row.Unit == "" || row.Samples == 0) {
			t.Errorf("%s has no value: %+v", row.Name, row)
		}
		if row.Skipped == "" && row.Bar != nil && row.OK == nil {
			t.Errorf("%s has a bar and no verdict", row.Name)
		}
		if row.Against != "" && row.Skipped == "" && (row.Baseline == nil || row.Ratio == nil) {
			t.Errorf("%s has no baseline", row.Name)
		}
	}
	for _, name := range []string{
		"exec-true", "exec-true-fork", "exec-true-fresh", "exec-true-fresh-fork", "exec-echo", "exec-assign", "exec-cli",
		"exec-true-tmux", "new-session", "daemon-start", "daemon-memory", "session-memory", "stream", "stream-cli", "stream-memory", "seq",
		"mail-send", "mail-read", "mail-rate",
	} {
		if _, ok := rows[name]; !ok {
			t.Errorf("no row %s", name)
		}
	}
	for name, of := range map[string]int64{"stream": 1_000_000, "stream-cli": 1_000_000, "seq": 8, "mail-rate": 64} {
		row := rows[name]
		if row.Got == nil || row.Of == nil || *row.Got != of || *row.Of != of {
			t.Errorf("%s: got %v of %v, want %d", name, row.Got, row.Of, of)
		}
	}
	if home := filepath.Join(rep.Environment.Home, "home"); exists(sock.MemoryPath(home)) {
		t.Errorf("left behind: %s", sock.MemoryPath(home))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestBenchStopped has a Ctrl-C clean up as an ordinary end does.
func TestBenchStopped(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, tmp := benchCommand(t, "--only", "seq", "--seq", "1000000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// It is at work once its sessions are there.
			limit := time.Now().Add(30 * time.Second)
			for {
				if tapes, _ := filepath.Glob(tmp + "/conch-bench-*/home/sessions/*/tape"); len(tapes) > 2 {
					break
				}
				if time.Now().After(limit) {
					cmd.Process.Kill()
					t.Fatal("the benchmark started no sessions")
				}
				time.Sleep(10 * time.Millisecond)
			}
			cmd.Process.Signal(sig)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != statusInterrupted {
				t.Errorf("ended with %v, want exit status %d", err, statusInterrupted)
			}
		})
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, args := range [][]string{{"--only", "nosuch"}, {"--seq", "0"}, {"word"}} {
		cmd, _ := benchCommand(t, args...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != statusFailed || !strings.HasPrefix(string(out), "conch: ") {
			t.Errorf("bench %v: %v: %s", args, err, out)
		}
	}
}
