package tape

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A disk that is really full: appends fail, nothing half-written stays, and
// when there is room again the tape goes on. Dropping the oldest segment works
// on the full disk.
func TestDiskFull(t *testing.T) {
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system (TestFailedWrite covers the rest): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, 0); err != nil {
			t.Error(err)
		}
	})
	dir, ballast := filepath.Join(mnt, "tape"), filepath.Join(mnt, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	tp := open1(t, dir, Options{SegmentBytes: 200_000})
	chunk := make([]byte, 9999)
	fill := func(tp *Tape) (n int) {
		t.Helper()
		for {
			if _, err := tp.Append(Frame{Kind: Stdout, Data: chunk}); errors.Is(err, syscall.ENOSPC) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	n := fill(tp)
	if n < 50 || fill(tp) != 0 {
		t.Fatalf("%d appends until full", n)
	}
	if got := readDir(t, dir); len(got) != n {
		t.Fatalf("%d frames of %d", len(got), n)
	}
	// The partial write is gone, so a smaller one may still fit.
	small := 0
	for {
		if _, err := tp.Append(Frame{Kind: Stderr, Data: chunk[:1]}); err != nil {
			break
		}
		small++
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	more := fill(tp)
	if more == 0 {
		t.Fatal("no room after the ballast went")
	}
	all := n + small + more
	if got := rest(t, reader(t, tp, Cursor{})); len(got) != all || got[all-1].Seq != uint64(all) {
		t.Fatalf("%d frames, want %d", len(got), all)
	}
	closeAll(t, tp)

	// Full, and over its limit: the oldest goes, the newest fits.
	tp = open1(t, dir, Options{SegmentBytes: 200_000, MaxBytes: 800_000})
	for range 50 {
		if _, err := tp.Append(Frame{Kind: Stdout, Data: chunk}); err != nil {
			t.Fatal(err)
		}
	}
	got := rest(t, reader(t, tp, Cursor{}))
	if got[0].Kind != Gap || got[len(got)-1].Seq != uint64(all+50) || tp.Size() > 800_000 {
		t.Fatalf("%v, to %d, %d bytes", got[0].Kind, got[len(got)-1].Seq, tp.Size())
	}
	closeAll(t, tp)
}
