package tape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// piece is output of one stream; a sequence of them, neighbours of the same
// stream joined, is all a labelled log has to bring back.
type piece struct {
	kind Kind
	data string
}

func (p piece) String() string { return fmt.Sprintf("%v %q", p.kind, p.data) }

func join(ps []piece) []piece {
	var out []piece
	for _, p := range ps {
		if p.data == "" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].kind == p.kind {
			out[n-1].data += p.data
		} else {
			out = append(out, p)
		}
	}
	return out
}

func export(t testing.TB, ps []piece) []byte {
	t.Helper()
	tp := open1(t, t.TempDir(), Options{})
	defer tp.Close()
	frames := []Frame{{Kind: Start}}
	for _, p := range ps {
		frames = append(frames, Frame{Kind: p.kind, Data: []byte(p.data)})
	}
	if _, err := tp.Append(append(frames, Frame{Kind: Exit})...); err != nil {
		t.Fatal(err)
	}
	r := reader(t, tp, Cursor{})
	defer r.Close()
	var b bytes.Buffer
	if err := WriteLabelled(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func imported(t testing.TB, r io.Reader) []piece {
	t.Helper()
	var ps []piece
	for f, err := range ReadLabelled(r) {
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Data) > labelledChunk {
			t.Fatalf("a frame of %d bytes", len(f.Data))
		}
		ps = append(ps, piece{f.Kind, string(f.Data)})
	}
	return ps
}

func same(a, b []piece) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestLabelledForm(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []piece
		want string
	}{
		{"plain", []piece{{Stdout, "a\nb\n"}, {Stderr, "c\n"}, {Stdout, "\n"}},
			"\x01\x01\x01a\n\x01\x01\x01b\n\x02\x02\x02c\n\x01\x01\x01\n"},
		{"line in two frames", []piece{{Stdout, "a"}, {Stdout, "b\n"}}, "\x01\x01\x01ab\n"},
		{"unfinished", []piece{{Stdout, "a"}}, "\x01\x01\x01a\n\x03\x03\x03\n"},
		{"between", []piece{{Stdout, "ab"}, {Stderr, "x\n"}, {Stdout, "c\n"}},
			"\x01\x01\x01ab\n\x03\x03\x03\n\x02\x02\x02x\n\x01\x01\x01c\n"},
		{"an empty frame is no output", []piece{{Stdout, "a"}, {Stderr, ""}, {Stdout, "b\n"}}, "\x01\x01\x01ab\n"},
		{"markers as output", []piece{{Stdout, "\x03\x03\x03\n"}, {Stderr, "\x01\x01\x01\n"}},
			"\x01\x01\x01\x03\x03\x03\n\x02\x02\x02\x01\x01\x01\n"},
		{"the other stream's marker as output", []piece{{Stdout, "\x02\x02\x02a\n"}, {Stderr, "\x01\x01\x01\x02\x02\x02b\n"}, {Stdout, "\x01\x01\x01\x02\x02\x02c"}},
			"\x01\x01\x01\x02\x02\x02a\n\x02\x02\x02\x01\x01\x01\x02\x02\x02b\n\x01\x01\x01\x01\x01\x01\x02\x02\x02c\n\x03\x03\x03\n"},
		{"nothing", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := export(t, tc.in)
			if string(got) != tc.want {
				t.Errorf("written as %q, want %q", got, tc.want)
			}
			if back := join(imported(t, bytes.NewReader(got))); !same(back, join(tc.in)) {
				t.Errorf("read back as %v", back)
			}
		})
	}
}

func TestLabelledForeign(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []piece
	}{
		{"unfinished last line", "\x01\x01\x01a\n\x02\x02\x02b", []piece{{Stdout, "a\n"}, {Stderr, "b"}}},
		{"empty lines", "\x02\x02\x02\n\x01\x01\x01\n", []piece{{Stderr, "\n"}, {Stdout, "\n"}}},
		{"no marker", "\x01\x01\x01a\nwho\n\nme\n\x01\x01\x01b\n\x01\x01x",
			[]piece{{Stdout, "a\n"}, {Note, "who\n"}, {Note, "\n"}, {Note, "me\n"}, {Stdout, "b\n"}, {Note, "\x01\x01x"}}},
		{"unknown third marker", "\x01\x01\x01a\n\x03\x03\x03later\n\x01\x01\x01b\n", []piece{{Stdout, "a\nb\n"}}},
		{"a denial without its newline", "\x01\x01\x01a\n\x03\x03\x03", []piece{{Stdout, "a"}}},
		{"a gap", "\x01\x01\x01a\n\x03\x03\x03\n\x03\x03\x03gap {\"bytes\":5}\n\x01\x01\x01b\n",
			[]piece{{Stdout, "a"}, {Gap, `{"bytes":5}`}, {Stdout, "b\n"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tc.in), iotest.OneByteReader(strings.NewReader(tc.in))} {
				if got := imported(t, r); !same(got, tc.want) {
					t.Errorf("%v, want %v", got, tc.want)
				}
			}
		})
	}
}

func TestLabelledLongLines(t *testing.T) {
	long := strings.Repeat("x", 5*labelledChunk+1)
	in := []piece{{Stdout, long}, {Stderr, long + "\n" + long}, {Stdout, "\n" + long[:labelledChunk-3] + "\n"}, {Stdout, long[:labelledChunk-4] + "\n"}}
	if got := join(imported(t, bytes.NewReader(export(t, in)))); !same(got, join(in)) {
		t.Fatal("long lines came back changed")
	}
	// A long line behind no marker or the third one is read over in bounded memory.
	got := imported(t, strings.NewReader(long+"\n"+markOther+long+"\n"+markStdout+"a\n"))
	if n := len(got); got[n-1] != (piece{Stdout, "a\n"}) || join(got[:n-1])[0].data != long+"\n" {
		t.Fatal(len(got))
	}
}

func TestLabelledGapAndErrors(t *testing.T) {
	tp := open1(t, t.TempDir(), Options{MaxBytes: 1000})
	for range 100 {
		add(t, tp, Stdout, "unfinished")
	}
	var b bytes.Buffer
	if err := WriteLabelled(&b, reader(t, tp, Cursor{})); err != nil {
		t.Fatal(err)
	}
	got := join(imported(t, &b))
	if len(got) != 2 || got[0].kind != Gap || strings.Trim(got[1].data, "unfished") != "" {
		t.Fatalf("%v", got)
	}

	boom := errors.New("boom")
	var ps []piece
	var last error
	for f, err := range ReadLabelled(io.MultiReader(strings.NewReader("\x01\x01\x01ab"), iotest.ErrReader(boom))) {
		ps, last = append(ps, piece{f.Kind, string(f.Data)}), err
	}
	if last != boom || ps[0] != (piece{Stdout, "ab"}) {
		t.Fatal(ps, last)
	}
	for range ReadLabelled(strings.NewReader("\x01\x01\x01a\n\x02\x02\x02b\nnone\n\x03\x03\x03gap {}\n")) {
		break // must not be called again: range panics if it is
	}
	r := reader(t, tp, Cursor{})
	if err := WriteLabelled(brokenWriter{boom}, r); err != boom {
		t.Fatal(err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// FuzzLabelled turns its input into output on two streams, exports and imports
// it. The input's bytes are output; one that is 0 mod 16 ends a frame and
// changes the stream.
func FuzzLabelled(f *testing.F) {
	f.Add([]byte("ab\x10x\n\x20c\n"))
	f.Add([]byte("\x01\x01\x01\n\x10\x03\x03\x03\n\x10\n\x10\n"))
	f.Add([]byte("\x03\x03\x03gap {}\x20\x20\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var ps []piece
		k := Stdout
		for s := in; len(s) > 0; {
			n := bytes.IndexFunc(s, func(r rune) bool { return r%16 == 0 }) + 1
			if n == 0 {
				n = len(s)
			}
			ps = append(ps, piece{k, string(s[:n])})
			if n > 1 && s[n-2]%2 == 0 {
				ps[len(ps)-1].data = string(s[:n-1])
			}
			s, k = s[n:], Stdout+Stderr-k
		}
		log := export(t, ps)
		if got := join(imported(t, bytes.NewReader(log))); !same(got, join(ps)) {
			t.Fatalf("%v became %v by way of %q", join(ps), got, log)
		}
		// What a reader of the plain form sees is the output, but for the
		// newlines after unfinished lines.
		var plain, want strings.Builder
		for line := range strings.Lines(string(log)) {
			if rest, ok := strings.CutPrefix(line, markStdout); ok {
				plain.WriteString(rest)
			} else if rest, ok := strings.CutPrefix(line, markStderr); ok {
				plain.WriteString(rest)
			}
		}
		for _, p := range join(ps) {
			want.WriteString(p.data)
			if !strings.HasSuffix(p.data, "\n") {
				want.WriteString("\n")
			}
		}
		if plain.String() != want.String() {
			t.Fatalf("plain readers see %q, want %q", plain.String(), want.String())
		}
		// Any bytes can be read as a log.
		imported(t, bytes.NewReader(in))
	})
}
