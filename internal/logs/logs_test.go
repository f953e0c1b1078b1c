package logs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// frames cuts text into pieces, as a keeper's reads would.
func frames(text string, sizes func() int) []tape.Frame {
	var out []tape.Frame
	for seq := uint64(1); len(text) > 0; seq++ {
		n := min(max(1, sizes()), len(text))
		out = append(out, tape.Frame{Seq: seq, Kind: tape.Stdout, Data: []byte(text[:n])})
		text = text[n:]
	}
	return out
}

func run(f Filter, in []tape.Frame) string {
	var b bytes.Buffer
	emit := func(fr tape.Frame) error { b.Write(fr.Data); return nil }
	for _, fr := range in {
		f.Add(fr, emit)
	}
	f.End(emit)
	return b.String()
}

func TestFilter(t *testing.T) {
	text := "one\ntwo\n\nthree\nfour"
	for i := range 200 {
		in := frames(text, func() int { return 1 + rand.IntN(5) })
		for want, f := range map[string]Filter{
			text:                   {},
			"three\nfour":          {Tail: 2},
			"\nthree\nfour":        {Tail: 3},
			"four":                 {Tail: 1},
			"one\ntwo\nfour":       {Grep: regexp.MustCompile("o")},
			"two\nfour":            {Grep: regexp.MustCompile("o"), Tail: 2},
			"\n":                   {Grep: regexp.MustCompile("^$")},
			"":                     {Stream: tape.Stderr},
			text[len(in[0].Data):]: {After: 1},
		} {
			if got := run(f, in); got != want {
				t.Fatalf("round %d, %+v: %q, want %q", i, f, got, want)
			}
		}
	}
}

// Both streams keep their own lines and the order of the lines' ends.
func TestFilterStreams(t *testing.T) {
	in := []tape.Frame{
		{Seq: 1, Kind: tape.Stdout, Data: []byte("out ")},
		{Seq: 2, Kind: tape.Stderr, Data: []byte("err\n")},
		{Seq: 3, Kind: tape.Stdout, Data: []byte("put\nmore")},
		{Seq: 4, Kind: tape.Exit, Data: []byte("{}")},
	}
	if got := run(Filter{Grep: regexp.MustCompile(".")}, in); got != "err\nout put\nmore" {
		t.Errorf("%q", got)
	}
	if got := run(Filter{Tail: 1}, in); got != "more" {
		t.Errorf("%q", got)
	}
}

// Following goes on after the last lines.
func TestFilterFollow(t *testing.T) {
	var b strings.Builder
	emit := func(fr tape.Frame) error { b.Write(fr.Data); return nil }
	f := Filter{Tail: 1}
	f.Add(tape.Frame{Seq: 1, Kind: tape.Stdout, Data: []byte("a\nb\nc")}, emit)
	f.Now(emit)
	f.Add(tape.Frame{Seq: 2, Kind: tape.Stdout, Data: []byte("d\ne")}, emit)
	f.End(emit)
	if b.String() != "cd\ne" {
		t.Errorf("%q", b.String())
	}
}

func TestFilterLongLine(t *testing.T) {
	long := strings.Repeat("x", 3<<20) + "ERROR"
	text := "first\n" + long + "\nlast\n"
	in := frames(text, func() int { return 700_000 })
	for want, f := range map[string]Filter{
		"last\n":          {Tail: 1},
		long + "\nlast\n": {Tail: 2},
		long + "\n":       {Grep: regexp.MustCompile("ERROR")},
		"":                {Grep: regexp.MustCompile("^ERROR")},
	} {
		if got := run(f, in); got != want {
			t.Errorf("%+v: %d bytes, want %d", f, len(got), len(want))
		}
	}
	// More than can be held is an error, never half a line.
	over := Filter{Tail: 1}
	var err error
	for i := range uint64(MaxLine>>20 + 1) {
		err = errors.Join(err, over.Add(tape.Frame{Seq: i + 1, Kind: tape.Stdout, Data: bytes.Repeat([]byte("x"), 1<<20)}, func(tape.Frame) error { return nil }))
	}
	if !errors.Is(err, conch.TooLarge) {
		t.Error(err)
	}
}

// search gives the place of the first match, as the matcher finds it.
func search(t *testing.T, expr string, in []tape.Frame) (int64, string, bool) {
	t.Helper()
	m, err := NewMatcher(expr, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fr := range in {
		if got, ok := m.Add(fr); ok {
			return got.Offset, got.Text, true
		}
	}
	if got, ok := m.End(tape.Frame{}); ok {
		return got.Offset, got.Text, true
	}
	return 0, "", false
}

// However the text is cut, the matcher finds what the expression finds in the whole.
func TestMatcherLikeWhole(t *testing.T) {
	text := "starting\nwarning: 1\nlistening on port 8080\nready\nready to go\n"
	for _, expr := range []string{"port [0-9]+", "^ready$", "go", "(?s)warning.*8080", "warning: 1\nlist", "[^x]*on", "nothing", "^$", `\Astart`, "y\\b", "READY|ready"} {
		whole := regexp.MustCompile("(?m:" + expr + ")").FindStringIndex(text)
		for range 300 {
			in := frames(text, func() int { return 1 + rand.IntN(12) })
			at, found, ok := search(t, expr, in)
			if ok != (whole != nil) {
				t.Fatalf("%q: found %v, want %v", expr, ok, whole)
			}
			// A pattern that runs over lines may be found before it is as long
			// as it can get; it begins at the same place all the same.
			if ok && (int(at) != whole[0] || !strings.HasPrefix(text[whole[0]:whole[1]], found)) {
				t.Fatalf("%q: %q at %d, want %q at %d", expr, found, at, text[whole[0]:whole[1]], whole[0])
			}
		}
	}
}

// A number that is half there is not taken for the whole, and a prompt need not end.
func TestMatcherPending(t *testing.T) {
	m, err := NewMatcher("port [0-9]+", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Add(tape.Frame{Seq: 1, Kind: tape.Stdout, Data: []byte("port 80")}); ok || !m.Pending() || m.Settle().Text != "port 80" {
		t.Error("half of it was taken at once, or not at all")
	}
	got, ok := m.Add(tape.Frame{Seq: 2, Kind: tape.Stdout, Data: []byte("80\n")})
	if !ok || got.Text != "port 8080" || got.Offset != 0 || got.Cursor != 2 || got.Line != "port 8080" {
		t.Errorf("%+v", got)
	}
	m, _ = NewMatcher("ready$", 0)
	m.Add(tape.Frame{Seq: 1, Kind: tape.Stdout, Data: []byte("ready")})
	if m.Pending() {
		t.Error("the end of what is there was taken for the end of the line")
	}
	m, _ = NewMatcher("x", tape.Stderr)
	if _, ok := m.Add(tape.Frame{Seq: 1, Kind: tape.Stdout, Data: []byte("x\n")}); ok {
		t.Error("the other stream was looked at")
	}
}

// A line without end costs bounded memory.
func TestMatcherBounded(t *testing.T) {
	m, _ := NewMatcher("(?s)needle", 0)
	chunk := bytes.Repeat([]byte("hay"), 100_000)
	for i := range 50 {
		m.Add(tape.Frame{Seq: uint64(i + 1), Kind: tape.Stdout, Data: chunk})
		if n := len(m.windows[tape.Stdout].buf); n > 2*matchWindow {
			t.Fatalf("%d bytes are kept", n)
		}
	}
	got, ok := m.Add(tape.Frame{Seq: 99, Kind: tape.Stdout, Data: []byte("needle\n")})
	if !ok || got.Offset != 50*300_000 {
		t.Errorf("%v %+v", ok, got)
	}
}

func TestBadExpression(t *testing.T) {
	if _, err := NewMatcher("(", 0); err == nil || strings.Contains(err.Error(), "(?m") {
		t.Error(err)
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add("a+b", "aaab\naab", uint8(2))
	f.Add("(?s)x.y", "x\ny", uint8(1))
	f.Fuzz(func(t *testing.T, expr, text string, size uint8) {
		m, err := NewMatcher(expr, 0)
		if err != nil || len(text) > 10_000 {
			return
		}
		whole := regexp.MustCompile("(?m:"+expr+")").FindStringIndex(text) != nil
		_, _, ok := search(t, expr, frames(text, func() int { return int(size) }))
		// Lines are tried one by one: an empty match at the very end of the text is
		// the one thing that depends on whether a line begins there.
		if ok != whole && !m.re.MatchString("") {
			t.Errorf("%q in %q by %d: %v, whole %v", expr, text, size, ok, whole)
		}
	})
}

func ExampleFilter() {
	f := Filter{Tail: 1}
	show := func(fr tape.Frame) error { fmt.Printf("%s", fr.Data); return nil }
	f.Add(tape.Frame{Seq: 1, Kind: tape.Stdout, Data: []byte("first\nsecond\n")}, show)
	f.End(show)
	// Output: second
}
