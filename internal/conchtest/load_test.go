package conchtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// busy keeps n processors busy until the test ends.
func busy(t testing.TB, n int) {
	t.Helper()
	for range n {
		cmd := exec.Command("bash", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
}

func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("CONCH_SOAK") == "" {
		t.Skip("a long run: make soak")
	}
}

// complete runs seq 1 5000 n times over sessions, every byte compared: in the
// result, as a stream, and late from the background, on the tape.
func complete(t *testing.T, n, sessions int) {
	h := New(t)
	busy(t, 2)
	want := seq(5000)
	var wg sync.WaitGroup
	for w := range sessions {
		wg.Go(func() {
			label := fmt.Sprint("s", w)
			for i := range n / sessions {
				switch i % 4 {
				case 0:
					if r := h.Exec(label, "seq 1 5000"); r.Stdout != want || r.Stderr != "" || Code(r.ExitCode) != "0" {
						t.Errorf("%s %d: %d bytes of %d", label, i, len(r.Stdout), len(want))
					}
				case 1:
					if o := h.Conch("exec", "-s", label, "seq 1 5000 >&2; seq 1 5000"); o.Stdout != want || o.Stderr != want || o.Status != 0 {
						t.Errorf("%s %d: %d and %d bytes of %d, status %d", label, i, len(o.Stdout), len(o.Stderr), len(want), o.Status)
					}
				case 2:
					o := h.Conch("exec", "--jsonl", "-s", label, "seq 1 5000 | cat; exit 3")
					if out, _, e := events(t, o.Stdout); out != want || e.StdoutBytes != int64(len(want)) || o.Status != 3 {
						t.Errorf("%s %d: %d bytes of %d, status %d", label, i, len(out), len(want), o.Status)
					}
				case 3:
					// Late output is under the command that started it.
					r := h.Exec(label, "(sleep 0.05; seq 1 5000; seq 1 5000 >&2) & echo first")
					if !strings.HasPrefix(r.Stdout, "first\n") {
						t.Errorf("%s %d: %.50q", label, i, r.Stdout)
					}
					id := string(r.CommandID)
					Until(t, Limit, "the late output is there", func() bool {
						for _, e := range h.History(label) {
							if string(e.CommandID) == id {
								return e.StdoutBytes == int64(len(want))+6 && e.StderrBytes == int64(len(want))
							}
						}
						return false
					})
					if out, errs := h.OK("output", id), h.OK("output", "--stderr", id); out != "first\n"+want || errs != want {
						t.Errorf("%s %d: late: %d and %d bytes of %d", label, i, len(out), len(errs), len(want))
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestCompleteUnderLoad(t *testing.T) {
	t.Parallel()
	complete(t, 200, 4)
}

func TestSoakComplete(t *testing.T) {
	soak(t)
	complete(t, 10_000, 4)
}

// resident is a process's memory in bytes: the most it ever had.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("process %d has no VmHWM", pid)
	return 0
}

// bounded streams n bytes through exec and looks at what that cost in memory.
func bounded(t *testing.T, n int64) {
	h := New(t).With("CONCH_TAPE_LIMIT=" + strconv.FormatInt(2*n+(64<<20), 10))
	h.Want("main", "KEEP=kept", "")
	keeper, daemon := h.Session("main").KeeperPID, h.Daemon()
	before := [2]int64{resident(t, keeper), resident(t, daemon)}
	text := fmt.Sprintf("yes 'a line of text that is somewhat longer than most lines are' | head -c %d", n)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	sum := func(name string, args ...string) string {
		cmd := h.Cmd(ctx, args...)
		cmd.Stderr = os.Stderr
		if name != "" {
			cmd = exec.Command(name, args...)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		got, _ := io.Copy(hash, out)
		if err := cmd.Wait(); err != nil || got != n {
			t.Errorf("%v: %d bytes of %d: %v", args, got, n, err)
		}
		return fmt.Sprintf("%x", hash.Sum(nil))
	}
	want := sum("bash", "-c", text)
	if got := sum("", "exec", text); got != want {
		t.Error("the stream differs")
	}
	id := string(h.Last("main").CommandID)
	if got := sum("", "output", id); got != want {
		t.Error("the tape differs")
	}
	for i, pid := range []int{keeper, daemon} {
		if grown := resident(t, pid) - before[i]; grown > 32<<20 {
			t.Errorf("%s grew by %d MB", []string{"keeper", "daemon"}[i], grown>>20)
		} else {
			t.Logf("%s grew by %.1f MB", []string{"keeper", "daemon"}[i], float64(grown)/(1<<20))
		}
	}
	h.Want("main", "echo $KEEP", "kept\n")
}

func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	bounded(t, 60<<20)
}

func TestSoakBoundedMemory(t *testing.T) {
	soak(t)
	bounded(t, 1<<30)
}
