package tape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func open1(t testing.TB, dir string, o Options) *Tape {
	t.Helper()
	tp, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tp.Close() })
	return tp
}

func add(t testing.TB, tp *Tape, k Kind, data string) Cursor {
	t.Helper()
	c, err := tp.Append(Frame{Kind: k, Command: 7, Time: 1, Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reader is closed at the end of the test.
func reader(t testing.TB, tp *Tape, from Cursor) *Reader {
	r := tp.NewReader(from)
	t.Cleanup(func() { r.Close() })
	return r
}

// rest reads to the end and returns copies.
func rest(t testing.TB, r *Reader) []Frame {
	t.Helper()
	var out []Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", len(out), err)
		}
		f.Data = bytes.Clone(f.Data)
		out = append(out, f)
	}
}

func closeAll(t testing.TB, cs ...io.Closer) {
	t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func readDir(t testing.TB, dir string) []Frame {
	t.Helper()
	r, err := OpenReader(dir, Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return rest(t, r)
}

func TestAppendRead(t *testing.T) {
	dir := t.TempDir()
	tp := open1(t, dir, Options{})
	if tp.End() != tp.Oldest() {
		t.Fatalf("an empty tape goes from %v to %v", tp.Oldest(), tp.End())
	}
	in := []Frame{
		{Kind: Start, Command: 1, Data: []byte(`{}`)},
		{Kind: Stdout, Command: 1, Data: []byte("a\x00\xff")},
		{Kind: Stderr, Command: 1},
	}
	c, err := tp.Append(in...)
	if err != nil || c != tp.Oldest() {
		t.Fatal(c, err)
	}
	if in[0].Seq != 1 || in[2].Seq != 3 || in[1].Time == 0 {
		t.Fatalf("seq and time not set: %+v", in)
	}
	second := Cursor{c.Segment, c.Offset + HeaderSize + 2}
	r := reader(t, tp, Cursor{})
	defer r.Close()
	for i, want := range in {
		if i == 1 && r.Cursor() != second {
			t.Fatalf("second frame at %v, want %v", r.Cursor(), second)
		}
		got, err := r.Next()
		if err != nil || got.Seq != want.Seq || got.Time != want.Time || got.Kind != want.Kind ||
			got.Command != want.Command || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("frame %d: %+v, %v", i, got, err)
		}
	}
	for range 2 {
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
	}
	if r.Cursor() != tp.End() {
		t.Fatalf("reader at %v, end %v", r.Cursor(), tp.End())
	}
	add(t, tp, Exit, "more")
	if f, err := r.Next(); err != nil || f.Seq != 4 || string(f.Data) != "more" {
		t.Fatal(f, err)
	}
	closeAll(t, tp)
	if _, err := tp.Append(Frame{Kind: Note}); err != ErrClosed {
		t.Fatal(err)
	}

	tp = open1(t, dir, Options{})
	add(t, tp, Note, "again")
	all := rest(t, reader(t, tp, Cursor{}))
	if len(all) != 5 || all[4].Seq != 5 {
		t.Fatalf("%+v", all)
	}
	if got := rest(t, reader(t, tp, second)); len(got) != 4 || got[0].Seq != 2 {
		t.Fatalf("%+v", got)
	}
}

func TestRefused(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{})
	if _, err := tp.Append(Frame{Kind: Stdout, Data: make([]byte, MaxData+1)}); err != ErrTooLarge {
		t.Fatal(err)
	}
	if _, err := tp.Append(Frame{}); err == nil {
		t.Fatal("a frame without a kind was taken")
	}
	add(t, tp, Stdout, string(make([]byte, MaxData)))
	if got := rest(t, reader(t, tp, Cursor{})); len(got) != 1 || len(got[0].Data) != MaxData {
		t.Fatal("the largest frame did not come back")
	}
	for _, c := range []Cursor{{9, 32}, {1, 1 << 40}} {
		r := reader(t, tp, c)
		if _, err := r.Next(); !errors.Is(err, ErrCursor) {
			t.Fatalf("%v: %v", c, err)
		}
	}
	r := reader(t, tp, Cursor{1, 33})
	if _, err := r.Next(); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestCursor(t *testing.T) {
	c := Cursor{2, 1048576}
	if got, err := ParseCursor(c.String()); err != nil || got != c || c.String() != "2.1048576" {
		t.Fatal(got, err)
	}
	if got, err := ParseCursor(""); err != nil || !got.IsZero() {
		t.Fatal(got, err)
	}
	for _, bad := range []string{".", "1", "1.", ".1", "-1.2", "1.-2", "01.2", "1.+2", "1.2.3", "4294967296.1", "1.2 "} {
		if _, err := ParseCursor(bad); !errors.Is(err, ErrCursor) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if !(Cursor{1, 9}).Less(Cursor{2, 3}) || !(Cursor{2, 3}).Less(Cursor{2, 4}) || c.Less(c) {
		t.Fatal("Less")
	}
}

func TestDropLeavesGap(t *testing.T) {
	dir := t.TempDir()
	o := Options{MaxBytes: 4000, SegmentBytes: 1000}
	tp := open1(t, dir, o)
	stalled := reader(t, tp, Cursor{}) // reads three frames of the first segment, then nothing
	var early Cursor
	var total int64
	for i := range 200 {
		c := add(t, tp, Stdout, fmt.Sprintf("line %d", i))
		total += HeaderSize + int64(len(fmt.Sprintf("line %d", i)))
		if i == 3 {
			early = c
		}
		if i == 5 {
			for range 3 {
				if _, err := stalled.Next(); err != nil {
					t.Fatal(err)
				}
			}
			// Nothing may be left in the buffer, or the reader rightly goes on with it.
			stalled.buf = stalled.buf[:0]
		}
		if tp.Size() > o.MaxBytes {
			t.Fatalf("%d bytes", tp.Size())
		}
	}
	check := func(name string, frames []Frame, firstSeq uint64, bytesGone int64) {
		t.Helper()
		var g GapInfo
		if frames[0].Kind != Gap {
			t.Fatalf("%s: first is %v", name, frames[0].Kind)
		}
		if err := json.Unmarshal(frames[0].Data, &g); err != nil {
			t.Fatal(err)
		}
		if g.FirstSeq != firstSeq || g.LastSeq != frames[1].Seq-1 || g.Frames != g.LastSeq-g.FirstSeq+1 || frames[0].Seq != g.LastSeq {
			t.Fatalf("%s: %+v before seq %d", name, g, frames[1].Seq)
		}
		here := int64(0)
		for i, f := range frames[1:] {
			here += HeaderSize + int64(len(f.Data))
			if f.Kind != Stdout || f.Seq != frames[1].Seq+uint64(i) {
				t.Fatalf("%s: %+v", name, f)
			}
		}
		if frames[len(frames)-1].Seq != 200 || g.Bytes+here+bytesGone != total {
			t.Fatalf("%s: %d + %d + %d bytes, want %d", name, g.Bytes, here, bytesGone, total)
		}
	}
	three := int64(3 * (HeaderSize + len("line 0")))
	check("zero", rest(t, reader(t, tp, Cursor{})), 1, 0)
	check("stalled", rest(t, stalled), 4, three)
	check("early", rest(t, reader(t, tp, early)), 1, three) // first_seq is the segment's
	if got := rest(t, reader(t, tp, tp.Oldest())); got[0].Kind != Stdout {
		t.Fatal("Oldest tells of a gap")
	}

	// The gap is still there for a new writer, a plain reader, headers and raw bytes.
	closeAll(t, tp)
	check("directory", readDir(t, dir), 1, 0)
	tp = open1(t, dir, o)
	check("reopened", rest(t, reader(t, tp, Cursor{})), 1, 0)
	check("reopened early", rest(t, reader(t, tp, early)), 1, three)
	r := reader(t, tp, Cursor{})
	if f, n, err := r.NextHeader(); err != nil || f.Kind != Gap || n == 0 {
		t.Fatal(f, n, err)
	}
	r = reader(t, tp, Cursor{})
	b, err := r.NextRaw(nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := NewDecoder(bytes.NewReader(b)).Next(); err != nil || f.Kind != Gap {
		t.Fatal(f, err)
	}
	if r.Cursor() != tp.Oldest() {
		t.Fatalf("after the gap at %v", r.Cursor())
	}
}

// The segment goes while a reader stands inside a frame of it, whichever way it
// reads.
func TestDropUnderReader(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(*Reader) (Kind, error)
	}{
		{"Next", func(r *Reader) (Kind, error) { f, err := r.Next(); return f.Kind, err }},
		{"NextHeader", func(r *Reader) (Kind, error) { f, _, err := r.NextHeader(); return f.Kind, err }},
		{"NextRaw", func(r *Reader) (Kind, error) {
			b, err := r.NextRaw(nil, 0)
			if err != nil {
				return 0, err
			}
			f, _, _ := parseHeader(b)
			return f.Kind, nil
		}},
	} {
		for _, buffered := range []int{0, HeaderSize} {
			t.Run(fmt.Sprint(tc.name, buffered), func(t *testing.T) {
				tp := open1(t, t.TempDir(), Options{MaxBytes: 2000})
				c := add(t, tp, Stdout, "0123456789")
				r := reader(t, tp, c)
				if _, err := tc.next(r); err != nil {
					t.Fatal(err)
				}
				add(t, tp, Stdout, "0123456789")
				if err := r.ready(); err != nil {
					t.Fatal(err)
				}
				b, err := r.fill(HeaderSize, 0)
				if err != nil {
					t.Fatal(err)
				}
				r.buf = b[:buffered]
				for tp.Oldest().Segment == 1 {
					add(t, tp, Stderr, "0123456789")
				}
				want := []Kind{Gap, Stderr}
				if tc.name == "NextHeader" && buffered > 0 {
					want = []Kind{Stdout, Gap, Stderr} // it had all it needs
				}
				for _, w := range want {
					if k, err := tc.next(r); err != nil || k != w {
						t.Fatalf("%v, %v; want %v", k, err, w)
					}
				}
			})
		}
	}
}

// A cursor at the very end of a dropped segment has lost nothing of it.
func TestNoGapAtSegmentBorder(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{MaxBytes: 400, SegmentBytes: 100})
	end1 := Cursor{1, segmentHeader + 2*(HeaderSize+10)}
	for range 7 {
		add(t, tp, Stdout, "0123456789")
	}
	if tp.Oldest().Segment != 2 {
		t.Fatalf("oldest is %v, the test wants 2", tp.Oldest())
	}
	if got := rest(t, reader(t, tp, end1)); got[0].Kind != Stdout || got[0].Seq != 3 {
		t.Fatalf("%+v", got[0])
	}
}

func TestStubsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	tp := open1(t, dir, Options{MaxBytes: 300, SegmentBytes: 60})
	n := keptStubs + 40
	for range n {
		add(t, tp, Stdout, "0123456789012345678901234567")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tape"))
	if err != nil || len(files) > keptStubs+6 {
		t.Fatal(len(files), err)
	}
	for _, c := range []Cursor{{}, {1, segmentHeader}} {
		got := rest(t, reader(t, tp, c))
		var g GapInfo
		if err := json.Unmarshal(got[0].Data, &g); err != nil {
			t.Fatal(err)
		}
		if g.FirstSeq != 1 || g.Bytes != int64(n-len(got)+1)*60 || got[len(got)-1].Seq != uint64(n) {
			t.Fatalf("%+v then %d frames", g, len(got)-1)
		}
	}
}

func TestNextRawAndHeader(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{SegmentBytes: 1 << 20})
	rng := rand.New(rand.NewPCG(1, 2))
	var want []Frame
	for i := range 600 {
		size := rng.IntN(300)
		if i%50 == 0 {
			size = 100 << 10
		}
		f := Frame{Kind: Stdout + Kind(i%2), Command: uint32(rng.IntN(3)), Data: make([]byte, size)}
		for i := range f.Data {
			f.Data[i] = byte(rng.Uint32())
		}
		fs := []Frame{f}
		if _, err := tp.Append(fs...); err != nil {
			t.Fatal(err)
		}
		want = append(want, fs...)
	}
	equal := func(got, want []Frame) bool {
		return slices.EqualFunc(got, want, func(a, b Frame) bool {
			return a.Seq == b.Seq && a.Time == b.Time && a.Command == b.Command && a.Kind == b.Kind && bytes.Equal(a.Data, b.Data)
		})
	}
	for _, tc := range []struct {
		name string
		keep func(Frame) bool
	}{
		{"all", nil},
		{"one command", func(f Frame) bool { return f.Command == 1 }},
		{"none", func(Frame) bool { return false }},
	} {
		var kept []Frame
		for _, f := range want {
			if tc.keep == nil || tc.keep(f) {
				kept = append(kept, f)
			}
		}
		for _, max := range []int{0, 1000, 64 << 10, 1 << 30} {
			r, seen := reader(t, tp, Cursor{}), 0
			keep := tc.keep
			if keep != nil {
				keep = func(f Frame) bool { seen++; return tc.keep(f) }
			}
			var all []byte
			for {
				b, err := r.NextRaw(keep, max)
				if err == io.EOF {
					break
				} else if err != nil || len(b) == 0 {
					t.Fatal(len(b), err)
				}
				all = append(all, b...)
			}
			if keep != nil && seen != len(want) {
				t.Fatalf("%s: keep saw %d of %d frames", tc.name, seen, len(want))
			}
			if r.Cursor() != tp.End() {
				t.Fatalf("%s: at %v, end %v", tc.name, r.Cursor(), tp.End())
			}
			d := NewDecoder(bytes.NewReader(all))
			var got []Frame
			for {
				f, err := d.Next()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				f.Data = bytes.Clone(f.Data)
				got = append(got, f)
			}
			if !equal(got, kept) {
				t.Fatalf("%s, max %d: %d frames, want %d", tc.name, max, len(got), len(kept))
			}
		}
	}

	r := reader(t, tp, Cursor{})
	for i, w := range want {
		c := r.Cursor()
		f, n, err := r.NextHeader()
		if err != nil || f.Seq != w.Seq || f.Command != w.Command || f.Kind != w.Kind || n != len(w.Data) || f.Data != nil {
			t.Fatalf("header %d: %+v %d %v", i, f, n, err)
		}
		if i%97 == 0 { // an index made of these cursors leads to the frames
			g, err := reader(t, tp, c).Next()
			if err != nil || g.Seq != w.Seq || !bytes.Equal(g.Data, w.Data) {
				t.Fatalf("at %v: %v %v", c, g.Seq, err)
			}
		}
	}
	if _, _, err := r.NextHeader(); err != io.EOF || r.Cursor() != tp.End() {
		t.Fatal(err)
	}
}

func TestWait(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{})
	end := tp.End()
	if err := tp.Wait(context.Background(), Cursor{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tp.Wait(ctx, end); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := tp.Wait(context.Background(), end); err != nil {
				t.Error(err)
			}
		})
	}
	add(t, tp, Stdout, "x")
	wg.Wait()
	end = tp.End()
	wg.Go(func() {
		if err := tp.Wait(context.Background(), end); err != ErrClosed {
			t.Error(err)
		}
	})
	closeAll(t, tp, tp)
	wg.Wait()
	if err := tp.Wait(context.Background(), Cursor{}); err != nil {
		t.Fatal("what is there must be read before the closing is told:", err)
	}
}

// Followers beside a writer see every frame, in order, whole, or are told which
// they missed.
func TestFollow(t *testing.T) {
	for _, o := range []Options{{SegmentBytes: 10_000}, {SegmentBytes: 5_000, MaxBytes: 20_000}} {
		t.Run(fmt.Sprint(o.MaxBytes), func(t *testing.T) {
			tp := open1(t, t.TempDir(), o)
			const frames = 5000
			var wg sync.WaitGroup
			for way := range 3 {
				wg.Go(func() { // ends with the last frame, or with the closing of the tape
					if err := follow(tp, way, frames, o.MaxBytes > 0); err != nil {
						t.Errorf("way %d: %v", way, err)
						tp.Close()
					}
				})
			}
			for i := 0; i < frames; i += 2 {
				a := bytes.Repeat([]byte{byte(i)}, i%100)
				b := bytes.Repeat([]byte{byte(i + 1)}, (i+1)%100)
				if _, err := tp.Append(Frame{Kind: Stdout, Data: a}, Frame{Kind: Stderr, Data: b}); err != nil {
					t.Fatal(err)
				}
				if i%1000 == 0 {
					if err := tp.Sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
			wg.Wait()
		})
	}
}

func follow(tp *Tape, way int, frames uint64, gaps bool) error {
	r := tp.NewReader(Cursor{})
	defer r.Close()
	next := uint64(1)
	see := func(f Frame, n int) error {
		if f.Kind == Gap && gaps {
			if f.Seq < next {
				return fmt.Errorf("gap to %d, at %d", f.Seq, next)
			}
			next = f.Seq + 1
			return nil
		}
		i := int(f.Seq - 1)
		if f.Seq != next || n != i%100 || f.Data != nil && !bytes.Equal(f.Data, bytes.Repeat([]byte{byte(i)}, i%100)) {
			return fmt.Errorf("want frame %d, got %+v with %d bytes", next, f, n)
		}
		next++
		return nil
	}
	for next <= frames {
		var err error
		var f Frame
		switch way {
		case 0:
			if f, err = r.Next(); err == nil {
				err = see(f, len(f.Data))
			}
		case 1:
			var n int
			if f, n, err = r.NextHeader(); err == nil {
				err = see(f, n)
			}
		case 2:
			var b []byte
			if b, err = r.NextRaw(nil, 4096); err == nil {
				for d := NewDecoder(bytes.NewReader(b)); err == nil; {
					if f, err = d.Next(); err == nil {
						err = see(f, len(f.Data))
					} else if err == io.EOF {
						err = nil
						break
					}
				}
			}
		}
		if err == io.EOF {
			err = tp.Wait(context.Background(), r.Cursor())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAppendersDoNotMix(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{SegmentBytes: 4096})
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := range 200 {
				if _, err := tp.Append(Frame{Kind: Stdout, Command: uint32(c), Data: []byte{byte(i)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var next [4]byte
	for i, f := range rest(t, reader(t, tp, Cursor{})) {
		if f.Seq != uint64(i+1) || f.Data[0] != next[f.Command] {
			t.Fatalf("%+v", f)
		}
		next[f.Command]++
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{})
	data := make([]byte, 1000)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := tp.Append(Frame{Kind: Stdout, Data: data}); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Fatalf("%v allocations an append", n)
	}
}

func TestKindString(t *testing.T) {
	if got := fmt.Sprint(Stdout, Stderr, Start, Exit, Gap, Note, Stdin, Kind(99)); got != "stdout stderr start exit gap note stdin kind 99" {
		t.Fatal(got)
	}
}

func TestOpenReaderNeedsDirectory(t *testing.T) {
	if _, err := OpenReader(filepath.Join(t.TempDir(), "none"), Cursor{}); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got := readDir(t, t.TempDir()); len(got) != 0 {
		t.Fatal(got)
	}
}
