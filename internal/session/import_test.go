package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tape"
)

// labelled makes a log of two random streams.
func labelled(t *testing.T, n int) (log, stdout, stderr []byte) {
	t.Helper()
	tp, err := tape.Open(t.TempDir(), tape.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Close()
	alphabet := "ab\n\x00\x01\x02\x03\xff"
	for range n {
		data := make([]byte, 1+rand.IntN(40))
		for i := range data {
			data[i] = alphabet[rand.IntN(len(alphabet))]
		}
		kind := tape.Stdout
		if rand.IntN(2) == 0 {
			kind = tape.Stderr
			stderr = append(stderr, data...)
		} else {
			stdout = append(stdout, data...)
		}
		if _, err := tp.Append(tape.Frame{Kind: kind, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	r := tp.NewReader(tape.Cursor{})
	defer r.Close()
	var b bytes.Buffer
	if err := tape.WriteLabelled(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), stdout, stderr
}

// kept lists what a home has of sessions, whole or not.
func kept(t *testing.T, home string) []string {
	t.Helper()
	ents, err := os.ReadDir(filepath.Join(home, "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range ents {
		names = append(names, e.Name())
	}
	return names
}

func TestImportGivesBackBothStreams(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	log, stdout, stderr := labelled(t, 30_000)
	im, err := st.Import(t.Context(), "me", "", iotest.HalfReader(bytes.NewReader(log)))
	if err != nil {
		t.Fatal(err)
	}
	if im.Spec.Label != "imported:1" || im.Stdout != int64(len(stdout)) || im.Stderr != int64(len(stderr)) {
		t.Errorf("%q, %d and %d bytes, want %d and %d", im.Spec.Label, im.Stdout, im.Stderr, len(stdout), len(stderr))
	}
	check := func(st *session.Store) {
		t.Helper()
		a, ok := st.Archived("me", "imported:1")
		if !ok {
			t.Fatal("no such session")
		}
		var b bytes.Buffer
		if err := a.Log(&b); err != nil || !bytes.Equal(b.Bytes(), log) {
			t.Errorf("the log came back changed (%v): %d bytes of %d", err, b.Len(), len(log))
		}
		for kind, want := range map[tape.Kind][]byte{tape.Stdout: stdout, tape.Stderr: stderr} {
			out, err := a.Output(1, kind)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(out)
			out.Close()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v came back changed (%v): %d bytes of %d", kind, err, len(got), len(want))
			}
		}
		h, err := a.History(0)
		if err != nil || len(h) != 1 {
			t.Fatal(h, err)
		}
		// Nothing that was not seen: a log has no exit code and no signal.
		if e := h[0]; e.Status != conch.StatusDone || e.ExitCode != nil || e.Signal != nil || e.TimedOut || e.Interrupted ||
			e.Command != "log import" || e.StdoutBytes != im.Stdout || e.StderrBytes != im.Stderr {
			t.Errorf("%+v", e)
		}
		if r, err := a.Result(1, 0); err != nil || r.ExitCode != nil || r.Shell.Restarted || r.Cwd != "" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	check(st)
	st.Close()
	check(open(t, home))
}

func TestImportLabels(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	obtain(t, st, "open")
	obtain(t, st, "imported:2")
	s := obtain(t, st, "closed")
	if _, err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := kept(t, home)
	for _, label := range []string{"open", "closed"} {
		if _, err := st.Import(t.Context(), "me", label, strings.NewReader("")); !errors.Is(err, conch.LabelTaken) {
			t.Errorf("%s: %v", label, err)
		}
	}
	if after := kept(t, home); !slices.Equal(after, before) {
		t.Errorf("left: %q, before %q", after, before)
	}
	for _, want := range []string{"imported:1", "imported:3"} {
		if im, err := st.Import(t.Context(), "me", "", strings.NewReader("")); err != nil || im.Spec.Label != want {
			t.Errorf("%+v, %v, want %s", im, err, want)
		}
	}
	// Labels are an agent's own.
	if im, err := st.Import(t.Context(), "you", "", strings.NewReader("")); err != nil || im.Spec.Label != "imported:1" {
		t.Errorf("%+v, %v", im, err)
	}
	if _, err := st.Import(t.Context(), "you", "open", strings.NewReader("")); err != nil {
		t.Error(err)
	}
}

func TestImportsAtOnce(t *testing.T) {
	st := open(t, newHome(t))
	const n = 20
	var wg sync.WaitGroup
	labels := make([]string, n)
	named := make([]error, n)
	for i := range n {
		wg.Go(func() {
			text := fmt.Sprintf("\x01\x01\x01%d\n", i)
			im, err := st.Import(t.Context(), "me", "", iotest.OneByteReader(strings.NewReader(text)))
			if err != nil {
				t.Error(err)
				return
			}
			labels[i] = im.Spec.Label
			a, ok := st.Archived("me", im.Spec.Label)
			var b bytes.Buffer
			if !ok || a.Log(&b) != nil || b.String() != text {
				t.Errorf("%s: %q, want %q", im.Spec.Label, b.String(), text)
			}
			_, named[i] = st.Import(t.Context(), "me", "one", strings.NewReader(text))
		})
	}
	wg.Wait()
	slices.Sort(labels)
	if got := slices.Compact(labels); len(got) != n {
		t.Errorf("%d labels for %d imports: %q", len(got), n, got)
	}
	got := 0
	for _, err := range named {
		if err == nil {
			got++
		} else if !errors.Is(err, conch.LabelTaken) {
			t.Error(err)
		}
	}
	if got != 1 {
		t.Errorf("%d imports got one label", got)
	}
}

func TestInterruptedImportLeavesNothing(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	long := strings.NewReader(strings.Repeat("\x01\x01\x01line\n\x02\x02\x02line\n", 100_000))
	_, err := st.Import(t.Context(), "me", "x", io.MultiReader(long, iotest.ErrReader(io.ErrUnexpectedEOF)))
	if !errors.Is(err, conch.InvalidRequest) {
		t.Errorf("%v", err)
	}
	if left := kept(t, home); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// The label is free again.
	if _, err := st.Import(t.Context(), "me", "x", strings.NewReader("")); err != nil {
		t.Error(err)
	}
	// What a daemon that died left behind goes at the next start.
	if err := os.MkdirAll(filepath.Join(home, "sessions", ".import-aaaaaaaa", "tape"), 0o700); err != nil {
		t.Fatal(err)
	}
	st.Close()
	open(t, home)
	if left := kept(t, home); len(left) != 1 || strings.HasPrefix(left[0], ".") {
		t.Errorf("left: %q", left)
	}
}
