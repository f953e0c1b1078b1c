package logfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// However much is written, two files of the limit are the most, lines are whole,
// and the last ones are there.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l, err := Open(path, 1000)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	l.Moved = func(*os.File) { moved++ }
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				fmt.Fprintf(l, "writer %d line %03d\n", g, i)
			}
		})
	}
	wg.Wait()
	fmt.Fprintln(l, "the last line")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, p := range []string{path + ".1", path} {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 1000 {
			t.Errorf("%s has %d bytes", p, len(b))
		}
		all += string(b)
	}
	if !strings.HasSuffix(all, "the last line\n") || moved == 0 {
		t.Errorf("moved %d times; ends %q", moved, all[max(0, len(all)-40):])
	}
	for line := range strings.Lines(all) {
		if line != "the last line\n" && (len(line) != len("writer 0 line 000\n") || !strings.HasPrefix(line, "writer ")) {
			t.Errorf("torn line %q", line)
		}
	}
	// It goes on where it was.
	if l, err = Open(path, 1000); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(l, "more")
	l.Close()
	if b, _ := os.ReadFile(path); !strings.HasSuffix(string(b), "more\n") || strings.Count(string(b), "\n") < 2 {
		t.Errorf("%q", b)
	}
	if _, err := l.Write([]byte("x")); err == nil {
		t.Error("written to a closed log")
	}
}
