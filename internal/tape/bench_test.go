package tape

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkAppend prints how its time compares with bare appends of the same
// size to a file beside it, without a sync.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir, data := b.TempDir(), make([]byte, size)
			tp := open1(b, filepath.Join(dir, "tape"), Options{MaxBytes: 1 << 30})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tp.Append(Frame{Kind: Stdout, Data: data}); err != nil {
					b.Fatal(err)
				}
			}
			took := b.Elapsed()
			closeAll(b, tp)
			f, err := os.Create(filepath.Join(dir, "plain"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			began := time.Now()
			for i, off := 0, int64(0); i < b.N; i, off = i+1, off+int64(size) {
				if off > 1<<30 { // as large as the tape may be
					off = 0
					if err := f.Truncate(0); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := f.WriteAt(data, off); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took)/float64(time.Since(began)), "x-write")
		})
	}
}

// BenchmarkRead reads a tape of 64 MiB over and over; SetBytes counts its bytes.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		tp := open1(b, b.TempDir(), Options{})
		fs := make([]Frame, 64)
		for i := range fs {
			fs[i] = Frame{Kind: Stdout, Data: make([]byte, size)}
		}
		for tp.Size() < 64<<20 {
			if _, err := tp.Append(fs...); err != nil {
				b.Fatal(err)
			}
		}
		run := func(name string, next func(r *Reader) error) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(tp.Size())
				for b.Loop() {
					r := tp.NewReader(Cursor{})
					var err error
					for err == nil {
						err = next(r)
					}
					if err != io.EOF {
						b.Fatal(err)
					}
					r.Close()
				}
			})
		}
		run("Next", func(r *Reader) error { _, err := r.Next(); return err })
		run("NextRaw", func(r *Reader) error { _, err := r.NextRaw(nil, 256<<10); return err })
		run("NextHeader", func(r *Reader) error { _, _, err := r.NextHeader(); return err })
	}
}

// BenchmarkOpen opens a tape of 256 MiB whose last segment is full.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	tp := open1(b, dir, Options{})
	data := make([]byte, 64<<10)
	for tp.Size() < 256<<20-1<<20 {
		if _, err := tp.Append(Frame{Kind: Stdout, Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	closeAll(b, tp)
	for b.Loop() {
		closeAll(b, open1(b, dir, Options{}))
	}
}
