package tape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A byte that changes on the disk costs the frame it is in, and nothing behind it.
func TestFlippedByteIsMended(t *testing.T) {
	for at := 2; at <= 9; at++ {
		for _, size := range []int{0, 1, 10, 5000} {
			dir := t.TempDir()
			tp, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var offsets []int64
			for i := 1; i <= 10; i++ {
				c, err := tp.Append(Frame{Command: uint32(i), Kind: Stdout, Data: []byte(strings.Repeat("x", size) + fmt.Sprint(i))})
				if err != nil {
					t.Fatal(err)
				}
				offsets = append(offsets, c.Offset)
			}
			if err := tp.Close(); err != nil {
				t.Fatal(err)
			}
			path := segmentPath(dir, 1)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// In the data, in the length, and over two frames.
			for _, o := range []int64{offsets[at-1] + HeaderSize, offsets[at-1] + 5, offsets[at-2] + 9} {
				b[o] ^= 0x40
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if rep, err := Check(dir, true); err != nil || len(rep.Damaged) != 1 || rep.Torn != 0 {
				t.Errorf("%d: %+v, %v", at, rep, err)
			}
			if tp, err = Open(dir, Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := tp.Append(Frame{Command: 11, Kind: Stdout, Data: []byte("11")}); err != nil {
				t.Fatal(err)
			}
			var got []uint32
			gaps := 0
			r := tp.NewReader(Cursor{})
			for {
				f, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if f.Kind == Gap {
					gaps++
					continue
				}
				got = append(got, f.Command)
			}
			r.Close()
			if len(got) != 9 || got[8] != 11 || gaps != 2 {
				t.Errorf("%d, %d: %v and %d gaps", at, size, got, gaps)
			}
			if kept, _ := filepath.Glob(filepath.Join(dir, "damaged-*")); len(kept) != 1 {
				t.Errorf("%v", kept)
			}
			if rep, err := Check(dir, true); err != nil || len(rep.Damaged) != 0 || rep.Torn != 0 {
				t.Errorf("after: %+v, %v", rep, err)
			}
			tp.Close()
		}
	}
}

// What was meant for a tape does not go where a link leads.
func TestSegmentIsNoLink(t *testing.T) {
	dir := t.TempDir()
	tp, err := Open(filepath.Join(dir, "t"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	tp.Close()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := segmentPath(filepath.Join(dir, "t"), 1)
	if err := errors.Join(os.Remove(path), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	if tp, err := Open(filepath.Join(dir, "t"), Options{}); err == nil {
		tp.Close()
		t.Error("it was opened")
	}
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("%q", b)
	}
}
