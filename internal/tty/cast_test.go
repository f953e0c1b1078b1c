package tty

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// frames plays a list of frames.
func frames(list ...tape.Frame) func() (tape.Frame, error) {
	return func() (tape.Frame, error) {
		if len(list) == 0 {
			return tape.Frame{}, io.EOF
		}
		f := list[0]
		list = list[1:]
		return f, nil
	}
}

func frame(ms int64, n uint32, kind tape.Kind, data any) tape.Frame {
	b, ok := data.(string)
	if !ok {
		j, _ := json.Marshal(data)
		b = string(j)
	}
	return tape.Frame{Time: 1e15 + ms*1e6, Command: n, Kind: kind, Data: []byte(b)}
}

func events(t *testing.T, cast []byte) (r *CastReader, list []CastEvent) {
	t.Helper()
	r, err := NewCastReader(bytes.NewReader(cast))
	if err != nil {
		t.Fatalf("%v: %s", err, cast)
	}
	for {
		e, err := r.Next()
		if err == io.EOF {
			return r, list
		}
		if err != nil {
			t.Fatalf("%v: %s", err, cast)
		}
		list = append(list, e)
	}
}

func TestCastProcess(t *testing.T) {
	code := 3
	var b bytes.Buffer
	err := CastProcess(&b, frames(
		frame(0, 1, tape.Start, history.Start{Command: "vim\nmore", Process: &history.Process{Terminal: &conch.TerminalSize{Cols: 100, Rows: 30}}}),
		frame(100, 1, tape.Stdout, "a\xe6\xbc"), // cut in the middle of a character
		frame(250, 1, tape.Stdout, "\xa2b\xff\n"),
		frame(300, 1, tape.Resize, conch.TerminalSize{Cols: 90, Rows: 20}),
		frame(200, 1, tape.Stdout, "clock went back"),
		frame(400, 1, tape.Stdout, "\xe6"),
		frame(500, 1, tape.Exit, history.Exit{Result: conch.Result{ExitCode: &code}}),
	))
	if err != nil {
		t.Fatal(err)
	}
	r, got := events(t, b.Bytes())
	want := []CastEvent{
		{100 * time.Millisecond, "o", "a"}, {250 * time.Millisecond, "o", "漢b\ufffd\n"}, {300 * time.Millisecond, "r", "90x20"},
		{300 * time.Millisecond, "o", "clock went back"}, {500 * time.Millisecond, "o", "\ufffd"}, {500 * time.Millisecond, "m", "exit 3"},
	}
	if len(got) != len(want) || r.Width != 100 || r.Height != 30 {
		t.Fatalf("%dx%d %+v", r.Width, r.Height, got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	var h CastHeader
	if err := json.Unmarshal(bytes.SplitN(b.Bytes(), []byte("\n"), 2)[0], &h); err != nil || h.Version != 2 || h.Title != "vim" || h.Timestamp != 1e6 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestCastSession(t *testing.T) {
	var b bytes.Buffer
	err := CastSession(&b, frames(
		frame(0, 1, tape.Start, history.Start{Command: "printf x"}),
		frame(10, 1, tape.Stdout, "x"),
		frame(20, 1, tape.Exit, history.Exit{}),
		frame(30, 2, tape.Start, history.Start{Command: "server", Process: &history.Process{}}),
		frame(40, 2, tape.Stdout, "of the background\n"),
		frame(50, 3, tape.Start, history.Start{Command: "echo a\necho b"}),
		frame(60, 3, tape.Stderr, "a\nb\n"),
	), "me/main")
	if err != nil {
		t.Fatal(err)
	}
	_, got := events(t, b.Bytes())
	var text strings.Builder
	for _, e := range got {
		if e.Kind == "o" {
			text.WriteString(e.Data)
		}
	}
	if want := "\x1b[1m$\x1b[0m printf x\r\nx\r\n\x1b[1m$\x1b[0m echo a\r\necho b\r\na\r\nb\r\n"; text.String() != want {
		t.Errorf("%q, want %q", text.String(), want)
	}
	b.Reset()
	if err := CastSession(&b, frames(), "me/empty"); err != nil {
		t.Fatal(err)
	}
	if _, got := events(t, b.Bytes()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestCastReader(t *testing.T) {
	// Version 3 counts from the event before, and has comments.
	_, got := events(t, []byte("{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n# a comment\n[0.5,\"o\",\"a\"]\n[0.25, \"o\", \"b\"]\n[1, \"x\", \"0\"]"))
	if len(got) != 3 || got[1].At != 750*time.Millisecond || got[2].Kind != "x" {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "x", "{}", `{"version":1}`, `[1,2,3]`} {
		if _, err := NewCastReader(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken for a recording", bad)
		}
	}
	for _, bad := range []string{"x", "[]", `[1,"o"]`, `["1","o","a"]`, `[-1,"o","a"]`, `[1e300,"o","a"]`, `[1,"o",{}]`, `{"a":1}`} {
		r, err := NewCastReader(strings.NewReader(`{"version":2,"width":80,"height":24}` + "\n" + bad))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := r.Next(); err == nil {
			t.Errorf("%q is taken for an event: %+v", bad, e)
		}
	}
}

func FuzzCast(f *testing.F) {
	f.Add([]byte("{\"version\":2,\"width\":80,\"height\":24}\n[1.5,\"o\",\"x\"]\n"))
	f.Add([]byte("{\"version\":3,\"term\":{}}\n#\n[0,\"r\",\"1x1\"]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewCastReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		for last := time.Duration(0); ; {
			e, err := r.Next()
			if err != nil {
				return
			}
			if e.At < last {
				t.Fatalf("time goes back: %v after %v", e.At, last)
			}
			last = e.At
		}
	})
}
