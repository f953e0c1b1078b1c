package tape

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Damage anywhere is found by a deep look, at head and tail by a quick one.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if rep, err := Check(filepath.Join(dir, "none"), true); err != nil || rep.Frames != 0 {
		t.Errorf("%+v %v", rep, err)
	}
	tp, err := Open(dir, Options{SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		if _, err := tp.Append(Frame{Kind: Stdout, Command: 1, Data: []byte(strings.Repeat("x", 300))}); err != nil {
			t.Fatal(err)
		}
	}
	for _, deep := range []bool{false, true} { // while it is open
		if rep, err := Check(dir, deep); err != nil || len(rep.Damaged) > 0 || rep.Torn != 0 || deep && rep.Frames != 60 {
			t.Errorf("deep %v: %+v %v", deep, rep, err)
		}
	}
	tp.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "*.tape"))
	if len(files) < 4 {
		t.Fatalf("%d segments", len(files))
	}
	change := func(path string, off int64) func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := append([]byte(nil), b...)
		c[off] ^= 0x40
		os.WriteFile(path, c, 0o600)
		return func() { os.WriteFile(path, b, 0o600) }
	}
	last := files[len(files)-1]
	for _, c := range []struct {
		name, path  string
		off         int64
		quick, deep bool // finds damage
	}{
		{"first frame", files[0], segmentHeader + HeaderSize + 5, true, true},
		{"middle", files[1], segmentHeader + 700, false, true},
		{"a segment's header", files[2], 3, true, true},
	} {
		mend := change(c.path, c.off)
		for _, deep := range []bool{false, true} {
			rep, err := Check(dir, deep)
			if want := deep && c.deep || !deep && c.quick; err != nil || (len(rep.Damaged) > 0) != want {
				t.Errorf("%s, deep %v: %+v %v", c.name, deep, rep, err)
			}
		}
		mend()
	}
	f, _ := os.OpenFile(last, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("torn")
	f.Close()
	for _, deep := range []bool{false, true} {
		if rep, err := Check(dir, deep); err != nil || rep.Torn != 4 || len(rep.Damaged) != 0 {
			t.Errorf("torn, deep %v: %+v %v", deep, rep, err)
		}
	}
}
