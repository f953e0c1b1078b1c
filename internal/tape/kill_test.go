package tape

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const killEnv = "TAPE_TEST_WRITE_TO"

// TestMain is the writer that TestKilledWriter kills, when it is told to be.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		fmt.Fprintln(os.Stderr, writeForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver prints the number of each frame once it is on the tape.
func writeForEver(dir string) error {
	tp, err := Open(dir, Options{SegmentBytes: 1 << 20})
	if err != nil {
		return err
	}
	fs := make([]Frame, 1)
	for i := 0; ; i++ {
		fs[0] = Frame{Kind: Stdout, Data: bytes.Repeat([]byte{byte(i)}, i%3*100_000)}
		if _, err := tp.Append(fs...); err != nil {
			return err
		}
		if _, err := fmt.Println(fs[0].Seq); err != nil {
			return err
		}
	}
}

// What was appended before the writer was killed is there, and the next writer
// goes on after it.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, told := bufio.NewScanner(out), uint64(0)
		for n := 0; lines.Scan(); n++ {
			if v, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
				told = v
			}
			if n == 50+7*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait() // killed
		if told == 0 || stderr.Len() > 0 {
			t.Fatalf("the writer came to %d: %s", told, stderr.String())
		}
		if got := readDir(t, dir); uint64(len(got)) < told {
			t.Fatalf("round %d: %d frames, the writer was told of %d", round, len(got), told)
		} else if last := got[len(got)-1].Seq; last != uint64(len(got)) {
			t.Fatalf("round %d: %d frames, the last is number %d", round, len(got), last)
		}
	}
}
