package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAssign(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	for _, name := range []string{"amy", "bob", "carl", "dora"} {
		made(t, s, name, "")
	}
	work := filepath.Join(t.TempDir(), "work")
	deep := filepath.Join(work, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	work, _ = filepath.EvalSymlinks(work)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(work, link); err != nil {
		t.Fatal(err)
	}
	check := func(harness, dir, name string, by conch.Scope) {
		t.Helper()
		for _, s := range []*Store{s, open(t, home)} { // kept over restarts
			a, err := s.Assignments()
			if err != nil {
				t.Fatal(err)
			}
			if n, b := a.Resolve(harness, dir); n != name || b != by {
				t.Errorf("harness %q in %q: %s by %s, want %s by %s", harness, dir, n, b, name, by)
			}
		}
	}
	assign := func(name string, scope conch.Scope, key string) {
		t.Helper()
		if err := s.Assign(name, conch.Assignment{Scope: scope, Key: key}); err != nil {
			t.Error(err)
		}
	}
	check("h1", work, "me", conch.ScopeDefault)
	assign("amy", conch.ScopeGlobal, "")
	check("h1", work, "amy", conch.ScopeGlobal)
	assign("bob", conch.ScopeProject, link) // through a link, or not: one directory
	check("h1", work, "bob", conch.ScopeProject)
	check("", link, "bob", conch.ScopeProject)
	check("", deep, "bob", conch.ScopeProject)
	check("", work+"x", "amy", conch.ScopeGlobal) // a longer name is no directory below
	check("", filepath.Dir(work), "amy", conch.ScopeGlobal)
	assign("carl", conch.ScopeProject, filepath.Join(work, "a"))
	check("", deep, "carl", conch.ScopeProject) // the longest wins
	check("", work, "bob", conch.ScopeProject)
	assign("dora", conch.ScopeSession, "h1")
	check("h1", deep, "dora", conch.ScopeSession)
	check("h2", deep, "carl", conch.ScopeProject)
	check("", "", "amy", conch.ScopeGlobal)
	check("", filepath.Join(work, "gone"), "bob", conch.ScopeProject)
	assign("bob", conch.ScopeSession, "h1") // replaced
	check("h1", deep, "bob", conch.ScopeSession)

	a, _ := s.Assignments()
	if got := fmt.Sprint(a.To("bob")); got != fmt.Sprintf("[{project %s} {session h1}]", work) {
		t.Errorf("bob: %s", got)
	}
	if got := a.To("me"); got == nil || len(got) != 0 {
		t.Errorf("me: %v", got)
	}
	if fi, err := os.Stat(AssignmentsPath(home)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	for _, u := range []struct {
		to    conch.Assignment
		found bool
	}{
		{conch.Assignment{Scope: conch.ScopeSession, Key: "h1"}, true}, {conch.Assignment{Scope: conch.ScopeSession, Key: "h1"}, false},
		{conch.Assignment{Scope: conch.ScopeProject, Key: work}, true}, {conch.Assignment{Scope: conch.ScopeProject, Key: deep}, false},
		{conch.Assignment{Scope: conch.ScopeGlobal}, true}, {conch.Assignment{Scope: conch.ScopeGlobal}, false},
	} {
		if found, err := s.Unassign(u.to); err != nil || found != u.found {
			t.Errorf("unassign %v: %v, %v", u.to, found, err)
		}
	}
	check("h1", work, "me", conch.ScopeDefault)
	check("h1", deep, "carl", conch.ScopeProject)
}

func TestAssignRefuses(t *testing.T) {
	s := open(t, t.TempDir())
	made(t, s, "bob", "")
	want(t, s.Assign("eve", conch.Assignment{Scope: conch.ScopeGlobal}), conch.AgentNotFound, "bob")
	for _, to := range []conch.Assignment{
		{}, {Scope: "planet"}, {Scope: conch.ScopeNamed}, {Scope: conch.ScopeGlobal, Key: "x"},
		{Scope: conch.ScopeProject}, {Scope: conch.ScopeProject, Key: "a/b"}, {Scope: conch.ScopeProject, Key: "/a\x00b"}, {Scope: conch.ScopeProject, Key: "/\xff"},
		{Scope: conch.ScopeSession}, {Scope: conch.ScopeSession, Key: "a\nb"}, {Scope: conch.ScopeSession, Key: strings.Repeat("x", 257)}, {Scope: conch.ScopeSession, Key: "\xff"},
	} {
		want(t, s.Assign("bob", to), conch.InvalidRequest)
		_, err := s.Unassign(to)
		want(t, err, conch.InvalidRequest)
	}
	a := &Assignments{}
	for i := range maxAssigned {
		if _, err := a.set(conch.Assignment{Scope: conch.ScopeSession, Key: fmt.Sprint(i)}, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.set(conch.Assignment{Scope: conch.ScopeSession, Key: "more"}, "bob")
	want(t, err, conch.TooLarge, "1000")
	if _, err := a.set(conch.Assignment{Scope: conch.ScopeSession, Key: "7"}, "amy"); err != nil {
		t.Errorf("changing one: %v", err)
	}
}

// What the assignments say is not guessed when they cannot be read, and not
// overwritten.
func TestDamagedAssignments(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `{"version":9}`, `{"version":1,"global":"../x"}`, `{"version":1,"projects":{"/":7}}`, `{"version":1,"sessions":{"h":""}}`} {
		home := t.TempDir()
		s := open(t, home)
		made(t, s, "bob", "")
		if err := os.WriteFile(AssignmentsPath(home), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.Assignments()
		want(t, err, conch.HomeUnusable, "agents.json", "--agent")
		want(t, s.Assign("bob", conch.Assignment{Scope: conch.ScopeGlobal}), conch.HomeUnusable)
		if b, _ := os.ReadFile(AssignmentsPath(home)); string(b) != text {
			t.Errorf("%q became %q", text, b)
		}
	}
}

func TestConcurrentAssignments(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	made(t, s, "bob", "")
	var wg sync.WaitGroup
	const n = 40
	for i := range n {
		wg.Go(func() {
			if err := s.Assign("bob", conch.Assignment{Scope: conch.ScopeSession, Key: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
			if _, err := ReadAssignments(home); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	a, err := s.Assignments()
	if err != nil || len(a.Sessions) != n {
		t.Errorf("%d of %d, %v", len(a.Sessions), n, err)
	}
}

func FuzzAssignments(f *testing.F) {
	f.Add(`{"version":1,"global":"bob","projects":{"/a":"amy"},"sessions":{"h":"me"}}`, "h", "/a/b")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, harness, cwd string) {
		home := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		os.MkdirAll(home, 0o700)
		if err := os.WriteFile(AssignmentsPath(home), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := ReadAssignments(home)
		if err != nil {
			if !errors.Is(err, conch.HomeUnusable) {
				t.Error(err)
			}
			return
		}
		if name, _ := a.Resolve(harness, cwd); conch.CheckAgent(name) != nil {
			t.Errorf("resolved to %q", name)
		}
	})
}
