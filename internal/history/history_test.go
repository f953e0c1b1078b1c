package history

import (
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

func frame(n uint32, k tape.Kind, v any) tape.Frame {
	b, ok := v.([]byte)
	if !ok {
		b, _ = json.Marshal(v)
	}
	return tape.Frame{Time: time.Now().UnixNano(), Command: n, Kind: k, Data: b}
}

// TestScan builds the list from a tape alone: interleaved, late and unfinished.
func TestScan(t *testing.T) {
	tp, err := tape.Open(t.TempDir(), tape.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Close()
	zero := 0
	long := strings.Repeat("x", keepText+1)
	for _, f := range []tape.Frame{
		frame(1, tape.Start, Start{Command: "one"}),
		frame(1, tape.Stdout, []byte("abc")),
		frame(1, tape.Exit, Exit{Result: conch.Result{ExitCode: &zero}}),
		frame(2, tape.Start, Start{Command: long}),
		frame(1, tape.Stderr, []byte("late")),
		frame(2, tape.Stdout, make([]byte, 100_000)),
	} {
		if _, err := tp.Append(f); err != nil {
			t.Fatal(err)
		}
	}
	r := tp.NewReader(tp.Oldest())
	defer r.Close()
	x, err := Scan(r, "abcdefgh", "main")
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Entries()) != 2 || x.Last() != 2 || len(x.Running()) != 1 || x.Running()[0].N != 2 {
		t.Fatalf("entries %+v", x.Entries())
	}
	one := x.Describe(x.Get(1), nil)
	if one.CommandID != "abcdefgh-1" || one.Status != conch.StatusDone || *one.ExitCode != 0 || one.StdoutBytes != 3 || one.StderrBytes != 4 || one.Command != "one" {
		t.Errorf("%+v", one)
	}
	two := x.Describe(x.Get(2), func(e *Entry) string {
		r := tp.NewReader(e.From)
		defer r.Close()
		return Text(r)
	})
	if two.Status != conch.StatusRunning || two.ExitCode != nil || two.StdoutBytes != 100_000 || two.Command != long || two.EndedAt != nil {
		t.Errorf("%+v", two)
	}
	// Nobody saw its end: that is what the next keeper writes.
	if _, err := tp.Append(LostExit(x, x.Get(2))); err != nil {
		t.Fatal(err)
	}
	r2 := tp.NewReader(tp.Oldest())
	defer r2.Close()
	if x, err = Scan(r2, "abcdefgh", "main"); err != nil || len(x.Running()) != 0 {
		t.Fatal(err, x.Running())
	}
	if h := x.Describe(x.Get(2), nil); h.Status != conch.StatusLost || h.ExitCode != nil {
		t.Errorf("%+v", h)
	}
}

// A command costs an index little, however much its end says.
func TestIndexIsSmall(t *testing.T) {
	const n = 20_000
	zero, cwd := 0, strings.Repeat("/dir", 50)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := New("aaaaaaaa", "main")
	for i := range uint32(n) {
		e := x.Open(i+1, Start{Command: "make -j8 test"}, time.Unix(0, 1), tape.Cursor{}, tape.Cursor{})
		id := conch.NewCommandID("aaaaaaaa", i+1)
		x.Close(e, &Exit{Result: conch.Result{ExitCode: &zero, CommandID: id, Cwd: cwd + strconv.Itoa(int(i)), Shell: conch.ShellReport{Restored: []string{"cwd"}}}}, time.Unix(0, 2), tape.Cursor{}, tape.Cursor{})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes a command", each)
	if each > 360 {
		t.Errorf("a command takes %d bytes", each)
	}
	if d := x.Describe(x.Get(n), nil); d.ExitCode == nil || *d.ExitCode != 0 {
		t.Errorf("%+v", d)
	}
	runtime.KeepAlive(x)
}
