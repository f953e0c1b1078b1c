package session_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

func TestPruneCounts(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	for _, text := range []string{"one", strings.Repeat("two\n", 50_000)} {
		if _, err := st.Import(t.Context(), "me", "", strings.NewReader("\x01\x01\x01"+text)); err != nil {
			t.Fatal(err)
		}
	}
	closed := obtain(t, st, "closed")
	if _, err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := obtain(t, st, "open")
	a, _ := st.Archived("me", "imported:1")
	want := int64(0)
	filepath.WalkDir(filepath.Join(home, "sessions"), func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == left.ID() {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			fi, err := d.Info()
			if err != nil {
				t.Error(err)
			}
			want += fi.Size()
		}
		return nil
	})
	if n, size, err := st.Prune(); n != 3 || size != want || err != nil || size < 200_000 {
		t.Errorf("%d sessions, %d bytes, %v; want 3 and %d", n, size, err, want)
	}
	if n, size, err := st.Prune(); n != 0 || size != 0 || err != nil {
		t.Errorf("again: %d sessions, %d bytes, %v", n, size, err)
	}
	if got := kept(t, home); len(got) != 1 || got[0] != left.ID() {
		t.Errorf("left: %q", got)
	}
	// Whoever was about to read is not told that there was nothing.
	var b bytes.Buffer
	if err := a.Log(&b); !errors.Is(err, conch.OutputGone) || b.Len() > 0 {
		t.Errorf("log of a pruned session: %q, %v", b.String(), err)
	}
	if _, ok := st.Archived("me", "imported:1"); ok {
		t.Error("a pruned session is still listed")
	}
	if im, err := st.Import(t.Context(), "me", "", strings.NewReader("")); err != nil || im.Spec.Label != "imported:1" {
		t.Errorf("the label is not free again: %+v, %v", im, err)
	}
}

// What is not there any more is no error; what cannot be removed stays.
func TestPruneOfWhatIsNotThere(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	ids := map[string]string{}
	for _, label := range []string{"gone", "stuck", "well"} {
		im, err := st.Import(t.Context(), "me", label, strings.NewReader("\x01\x01\x01x\n"))
		if err != nil {
			t.Fatal(err)
		}
		ids[label] = im.Spec.ID
	}
	if err := os.RemoveAll(filepath.Join(home, "sessions", ids["gone"])); err != nil {
		t.Fatal(err)
	}
	// Its place is taken by something that a directory cannot replace.
	place := filepath.Join(home, "sessions", ".removed-"+ids["stuck"])
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, _, err := st.Prune(); n != 1 || err == nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if _, ok := st.Archived("me", "stuck"); !ok {
		t.Error("what could not be removed is forgotten")
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	if n, _, err := st.Prune(); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
}

func TestLookupListsLabels(t *testing.T) {
	st := open(t, newHome(t))
	hint := func(agent string) string {
		_, err := st.Lookup(agent, "none")
		if !errors.Is(err, conch.SessionNotFound) {
			t.Fatal(err)
		}
		return conch.AsError(err).HintText
	}
	if got := hint("me"); !strings.Contains(got, "conch new none") {
		t.Error(got)
	}
	obtain(t, st, "b")
	obtain(t, st, "a")
	if got := hint("me"); !strings.Contains(got, "a, b") {
		t.Error(got)
	}
	// Another agent's are not this one's.
	if got := hint("you"); strings.Contains(got, "a, b") || !strings.Contains(got, "--agent you") {
		t.Error(got)
	}
}

// The oldest go first; the last stay; what is young stays.
func TestPruneBy(t *testing.T) {
	home := newHome(t)
	st := open(t, home)
	now := time.Now()
	for _, label := range []string{"a", "b", "c", "d"} { // in this order
		if _, err := st.Import(t.Context(), "me", label, strings.NewReader("\x01\x01\x01"+strings.Repeat("x", 10_000)+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		s := ""
		for _, label := range []string{"a", "b", "c", "d"} {
			if _, ok := st.Archived("me", label); ok {
				s += label
			}
		}
		return s
	}
	for _, c := range []struct {
		p    session.Policy
		at   time.Time
		n    int
		left string
	}{
		{session.Policy{OlderThan: time.Hour}, now, 0, "abcd"},
		{session.Policy{MaxBytes: 1 << 20}, now, 0, "abcd"},
		{session.Policy{MaxBytes: 35_000}, now, 1, "bcd"},
		{session.Policy{OlderThan: time.Hour, Keep: 2}, now.Add(2 * time.Hour), 1, "cd"},
		{session.Policy{Keep: 5}, now, 0, "cd"},
		{session.Policy{Keep: 1, MaxBytes: 1}, now, 1, "d"},
		{session.Policy{OlderThan: time.Hour}, now.Add(2 * time.Hour), 1, ""},
	} {
		n, bytes, err := st.PruneBy(c.p, c.at)
		if n != c.n || err != nil || left() != c.left || (bytes > 0) != (n > 0) {
			t.Errorf("%+v: %d removed, %d bytes, %v; left %q, want %d and %q", c.p, n, bytes, err, left(), c.n, c.left)
		}
	}
}
