package tape

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/iotest"
)

// written makes a tape of two segments and returns the directory and the last
// segment: its path, its bytes, and where its frames end.
func written(t testing.TB) (dir, path string, last []byte, ends []int) {
	t.Helper()
	dir = t.TempDir()
	tp := open1(t, dir, Options{SegmentBytes: 300})
	for i := range 13 {
		add(t, tp, Stdout+Kind(i%2), fmt.Sprint("frame ", i))
	}
	num := tp.End().Segment
	closeAll(t, tp)
	path = segmentPath(dir, num)
	last, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for off := segmentHeader; off < len(last); {
		off += HeaderSize + int(binary.LittleEndian.Uint32(last[off+4:]))
		ends = append(ends, off)
	}
	if num != 2 || len(ends) != 6 {
		t.Fatalf("%d segments, %d frames in the last: not what the tests want", num, len(ends))
	}
	return dir, path, last, ends
}

const sealed = 7 // frames of the first segment of written

// reopen checks that a directory left by a crash, whose last segment has whole
// frames, reads and opens as exactly these and goes on.
func reopen(t testing.TB, dir string, whole int) {
	t.Helper()
	check := func(how string, got []Frame, extra int) {
		t.Helper()
		if len(got) != sealed+whole+extra {
			t.Fatalf("%s: %d frames, want %d", how, len(got), sealed+whole+extra)
		}
		for i, f := range got[:sealed+whole] {
			if f.Seq != uint64(i+1) || string(f.Data) != fmt.Sprint("frame ", i) {
				t.Fatalf("%s: frame %d is %+v", how, i, f)
			}
		}
	}
	check("read only", readDir(t, dir), 0)
	tp := open1(t, dir, Options{SegmentBytes: 300})
	defer tp.Close()
	check("opened", rest(t, reader(t, tp, Cursor{})), 0)
	fs := []Frame{{Kind: Exit, Data: []byte("after")}}
	if _, err := tp.Append(fs...); err != nil {
		t.Fatal(err)
	}
	if fs[0].Seq != uint64(sealed+whole+1) {
		t.Fatalf("goes on with %d", fs[0].Seq)
	}
	check("appended", rest(t, reader(t, tp, Cursor{})), 1)
	closeAll(t, tp)
	check("closed", readDir(t, dir), 1)
}

func TestTornAtEveryByte(t *testing.T) {
	dir, path, last, ends := written(t)
	for n := 0; n <= len(last); n++ {
		whole := 0
		for _, e := range ends {
			if e <= n {
				whole++
			}
		}
		for _, tail := range [][]byte{nil, make([]byte, 100), bytes.Repeat([]byte{0xff}, 40)} {
			if n < segmentHeader && tail != nil {
				continue // TestDamagedLastHeader
			}
			if err := os.WriteFile(path, append(last[:n:n], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			reopen(t, dir, whole)
			if fi, err := os.Stat(path); err == nil && n >= segmentHeader && fi.Size() != int64(max(segmentHeader, append([]int{0}, ends...)[whole]))+HeaderSize+5 {
				t.Fatalf("cut at %d: %d bytes afterwards", n, fi.Size())
			}
			for _, p := range []string{segmentPath(dir, 3), path} { // put it back
				if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			restoreFirst(t, dir)
		}
	}
}

// restoreFirst removes what reopen appended to the first segment where the
// second died at birth.
func restoreFirst(t testing.TB, dir string) {
	t.Helper()
	r, err := OpenReader(dir, Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range sealed {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(segmentPath(dir, 1), r.Cursor().Offset); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedLastHeader(t *testing.T) {
	dir, path, last, ends := written(t)
	bad := slices.Clone(last)
	clear(bad[:segmentHeader])
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	reopen(t, dir, len(ends))
	now, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(now[:segmentHeader], last[:segmentHeader]) {
		t.Fatalf("header %x was %x, %v", now[:segmentHeader], last[:segmentHeader], err)
	}
	if err := os.WriteFile(path, make([]byte, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	reopen(t, dir, 0)
}

func TestNewerFormatIsRefused(t *testing.T) {
	dir, path, last, _ := written(t)
	h := bytes.Clone(last)
	h[4] = 2
	binary.LittleEndian.PutUint32(h[28:], crc32.Checksum(h[:28], castagnoli()))
	if err := os.WriteFile(path, h, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil {
		t.Fatal("opened")
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, h) {
		t.Fatal("changed", err)
	}
}

func TestDamageInTheMiddle(t *testing.T) {
	dir, _, _, _ := written(t)
	path := segmentPath(dir, 1)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	third := segmentHeader + 2*(HeaderSize+len("frame 0"))
	b[third+HeaderSize] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	tp := open1(t, dir, Options{})
	ro, err := OpenReader(dir, Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Reader{ro, reader(t, tp, Cursor{})} {
		for range 2 {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			_, err := r.Next()
			var ce *CorruptError
			if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ce) || ce.Cursor != (Cursor{1, int64(third)}) {
				t.Fatal(err)
			}
		}
		r.Skip()
		got := rest(t, r)
		if len(got) != 7 || got[0].Kind != Gap || got[1].Seq != sealed+1 ||
			string(got[0].Data) != `{"bytes":195,"frames":5,"first_seq":3,"last_seq":7}` {
			t.Fatalf("%d frames, first %v %s", len(got), got[0].Kind, got[0].Data)
		}
		closeAll(t, r)
		if _, err := r.Next(); err != os.ErrClosed {
			t.Fatal(err)
		}
	}
	raw := reader(t, tp, Cursor{})
	if b, err := raw.NextRaw(nil, 1<<20); err != nil || len(b) != third-segmentHeader {
		t.Fatal(len(b), err)
	}
	if _, err := raw.NextRaw(nil, 1<<20); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	// Headers alone do not show it.
	r := reader(t, tp, Cursor{})
	n := 0
	for ; ; n++ {
		if _, _, err := r.NextHeader(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != sealed+6 {
		t.Fatal(n)
	}
}

// NextHeader knows damage by the numbers in the headers.
func TestDamagedHeaders(t *testing.T) {
	for name, damage := range map[string]func(frame []byte){
		"length": func(b []byte) { b[7] = 0xff },
		"long":   func(b []byte) { b[5] = 0xff },
		"kind":   func(b []byte) { b[28] = 0 },
		"seq":    func(b []byte) { b[8]++ },
	} {
		t.Run(name, func(t *testing.T) {
			dir, path, last, ends := written(t)
			tp := open1(t, dir, Options{})
			damage(last[ends[0]:])
			if err := os.WriteFile(path, last, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, next := range []func(*Reader) error{
				func(r *Reader) error { _, _, err := r.NextHeader(); return err },
				func(r *Reader) error { _, err := r.Next(); return err },
			} {
				r := reader(t, tp, Cursor{2, segmentHeader})
				if err := next(r); err != nil {
					t.Fatal(err)
				}
				r.Skip() // nothing to skip
				if err := next(r); !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				r.Skip()
				if err := next(r); err != io.EOF || r.Cursor() != tp.End() {
					t.Fatal(err)
				}
			}
			add(t, tp, Exit, "after")
			if got := rest(t, reader(t, tp, Cursor{2, int64(len(last))})); len(got) != 1 {
				t.Fatal(got)
			}
		})
	}
}

func TestMissingSegment(t *testing.T) {
	dir := t.TempDir()
	tp := open1(t, dir, Options{SegmentBytes: 100})
	for range 9 {
		add(t, tp, Stdout, "0123456789")
	}
	closeAll(t, tp)
	if err := os.Remove(segmentPath(dir, 2)); err != nil {
		t.Fatal(err)
	}
	tp = open1(t, dir, Options{SegmentBytes: 100})
	for _, got := range [][]Frame{readDir(t, dir), rest(t, reader(t, tp, Cursor{}))} {
		if len(got) != 8 || got[2].Kind != Gap || string(got[2].Data) != `{"bytes":84,"frames":2,"first_seq":3,"last_seq":4}` {
			t.Fatalf("%d %v %s", len(got), got[2].Kind, got[2].Data)
		}
	}
}

// A write that fails half way leaves no trace, wherever it fails.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	tp := open1(t, dir, Options{SegmentBytes: 400})
	var want []string
	for i := range 60 {
		data := fmt.Sprint("frame ", i)
		before := tp.End()
		tp.writeAt = func(f *os.File, b []byte, off int64) (int, error) {
			n, err := f.WriteAt(b[:i%len(b)], off)
			if err != nil {
				t.Fatal(err)
			}
			return n, syscall.ENOSPC
		}
		fs := []Frame{{Kind: Stdout, Data: []byte(data)}, {Kind: Stderr, Data: []byte("not")}}
		if _, err := tp.Append(fs...); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if tp.End() != before {
			t.Fatalf("end moved from %v to %v", before, tp.End())
		}
		if got := readDir(t, dir); len(got) != len(want) {
			t.Fatalf("%d frames after failure %d", len(got), i)
		}
		if fi, err := os.Stat(segmentPath(dir, before.Segment)); err != nil || fi.Size() != before.Offset {
			t.Fatal("the rest of the write is still there", err)
		}
		tp.writeAt = (*os.File).WriteAt
		if _, err := tp.Append(fs[0]); err != nil {
			t.Fatal(err)
		}
		want = append(want, data)
	}
	closeAll(t, tp)
	for i, f := range readDir(t, dir) {
		if f.Seq != uint64(i+1) || string(f.Data) != want[i] {
			t.Fatalf("%+v", f)
		}
	}
}

// The new segment could be made, but nothing fits into it: followers must not
// see this as output, and not spin.
func TestFailedWriteAfterRoll(t *testing.T) {
	dir := t.TempDir()
	tp := open1(t, dir, Options{SegmentBytes: 100})
	add(t, tp, Stdout, "0123456789")
	add(t, tp, Stdout, "0123456789")
	r := reader(t, tp, Cursor{})
	rest(t, r)
	tp.writeAt = func(f *os.File, b []byte, off int64) (int, error) {
		if off == 0 {
			return f.WriteAt(b, off)
		}
		return 0, syscall.ENOSPC
	}
	for range 3 {
		if _, err := tp.Append(Frame{Kind: Stdout, Data: []byte("x")}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if got := rest(t, r); len(got) != 0 || r.Cursor() != tp.End() {
			t.Fatalf("%v at %v, end %v", got, r.Cursor(), tp.End())
		}
	}
	closeAll(t, tp)
	tp = open1(t, dir, Options{SegmentBytes: 100})
	add(t, tp, Stdout, "x")
	if got := rest(t, reader(t, tp, Cursor{})); len(got) != 3 || got[2].Seq != 3 {
		t.Fatal(got)
	}
}

// A length in a header is not believed before the bytes are there.
func TestDecoderLyingLength(t *testing.T) {
	h := AppendFrame(nil, Frame{Kind: Stdout, Data: make([]byte, MaxData)})[:100]
	d := NewDecoder(bytes.NewReader(h))
	if _, err := d.Next(); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if len(d.buf) > 128<<10 {
		t.Fatalf("%d bytes of buffer for 100 bytes", len(d.buf))
	}
	boom := errors.New("boom")
	d = NewDecoder(io.MultiReader(bytes.NewReader(h), iotest.ErrReader(boom)))
	if _, err := d.Next(); err != boom {
		t.Fatal(err)
	}
	d = NewDecoder(idle{})
	if _, err := d.Next(); err != io.ErrNoProgress {
		t.Fatal(err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func FuzzDecoder(f *testing.F) {
	two := AppendFrame(AppendFrame(nil, Frame{Seq: 1, Kind: Stdout, Data: []byte("data")}), Frame{Seq: 2, Kind: Exit})
	f.Add(two)
	f.Add(two[:40])
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, in []byte) {
		off := 0
		d := NewDecoder(bytes.NewReader(in))
		e := NewDecoder(iotest.OneByteReader(bytes.NewReader(in)))
		for {
			fr, err := d.Next()
			fr2, err2 := e.Next()
			if fmt.Sprint(err) != fmt.Sprint(err2) || fr.Seq != fr2.Seq || !bytes.Equal(fr.Data, fr2.Data) {
				t.Fatalf("%v %v, byte by byte %v %v", fr, err, fr2, err2)
			}
			if err != nil {
				if err == io.EOF && d.offset != int64(len(in)) {
					t.Fatal("EOF before the end")
				}
				if err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				if _, err3 := d.Next(); err3 != err {
					t.Fatalf("%v, then %v", err, err3)
				}
				break
			}
			again := AppendFrame(nil, fr)
			was := in[off : off+len(again)]
			off += len(again)
			// Flags, reserved bytes and with them the checksum are not kept.
			if !bytes.Equal(again[4:29], was[4:29]) || !bytes.Equal(again[HeaderSize:], was[HeaderSize:]) {
				t.Fatalf("%x became %x", was, again)
			}
		}
	})
}

// FuzzTorn puts anything after, or in the place of, a part of the last segment:
// the frames before it must be kept, the tape must open and go on, and reading
// without opening must agree with it.
func FuzzTorn(f *testing.F) {
	f.Add(uint16(100), []byte("garbage"))
	f.Add(uint16(32), AppendFrame(nil, Frame{Seq: sealed + 1, Kind: Stdout, Data: []byte("frame 7")}))
	f.Add(uint16(0), []byte("ctap"))
	f.Add(uint16(71), AppendFrame(nil, Frame{Seq: 99, Kind: Stdout}))
	f.Fuzz(func(t *testing.T, at uint16, garbage []byte) {
		dir, path, last, ends := written(t)
		n := int(at) % (len(last) + 1)
		torn := append(last[:n:n], garbage...)
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, e := range ends {
			if e <= n {
				whole++
			}
		}
		seen := readDir(t, dir)
		tp, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer tp.Close()
		got := rest(t, reader(t, tp, Cursor{}))
		if len(got) < sealed+whole || len(got) != len(seen) {
			t.Fatalf("%d frames, %d without opening, %d were whole", len(got), len(seen), sealed+whole)
		}
		add(t, tp, Exit, "after")
		got = rest(t, reader(t, tp, Cursor{}))
		for i, f := range got {
			if f.Seq != uint64(i+1) {
				t.Fatalf("frame %d has seq %d", i, f.Seq)
			}
		}
		if len(got) != len(seen)+1 {
			t.Fatalf("%d frames, then %d", len(seen), len(got))
		}
	})
}

func TestTapeFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tape")
	open1(t, dir, Options{})
	for p, want := range map[string]os.FileMode{dir: 0o700, segmentPath(dir, 1): 0o600} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != want {
			t.Fatal(p, fi.Mode(), err)
		}
	}
}
