package client

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/conchsh/conch"
)

// assignTo replaces a home's assignments as the daemon does.
func assignTo(t *testing.T, home, text string) {
	t.Helper()
	tmp := filepath.Join(home, "new")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(home, "agents.json")); err != nil {
		t.Fatal(err)
	}
}

func TestResolveByAssignment(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONCH_AGENT", "")
	t.Setenv("CONCH_SESSION", "")
	t.Setenv("CLAUDE_CODE_SESSION_ID", "")
	c := New(Options{Home: home, Cwd: dir})
	check := func(want string, by conch.Scope) {
		t.Helper()
		name, got, err := c.Agent()
		if err != nil || name != want || got != by {
			t.Errorf("%s by %s, %v; want %s by %s", name, got, err, want, by)
		}
		if agent, label, err := c.Resolve(""); err != nil || agent != want || label != "main" {
			t.Errorf("%s/%s, %v", agent, label, err)
		}
	}
	check("me", conch.ScopeDefault)
	assignTo(t, home, `{"version":1,"global":"bob"}`) // seen by a client that lives on
	check("bob", conch.ScopeGlobal)
	assignTo(t, home, `{"version":1,"global":"amy"}`)
	check("amy", conch.ScopeGlobal)
	check("amy", conch.ScopeGlobal)
	assignTo(t, home, `{"version":1,"global":"amy","projects":{"`+dir+`":"carl"},"sessions":{"h":"dora"}}`)
	check("carl", conch.ScopeProject)
	t.Setenv("CLAUDE_CODE_SESSION_ID", "h")
	check("dora", conch.ScopeSession)
	t.Setenv("CONCH_AGENT", "eve")
	check("eve", conch.ScopeNamed)
	c.o.Agent = "fred"
	check("fred", conch.ScopeNamed)
	c.o.Agent = ""
	t.Setenv("CONCH_AGENT", "")
	t.Setenv("CONCH_SESSION", "gina/x")
	if agent, label, err := c.Resolve(""); err != nil || agent != "gina" || label != "x" {
		t.Errorf("%s/%s, %v", agent, label, err)
	}
	t.Setenv("CONCH_SESSION", "")

	// What cannot be read is not guessed, and is no matter to who names one.
	assignTo(t, home, `{"version":1,`)
	if _, _, err := c.Resolve("x"); !errors.Is(err, conch.HomeUnusable) {
		t.Errorf("damaged: %v", err)
	}
	if agent, _, err := c.Resolve("bob/x"); err != nil || agent != "bob" {
		t.Errorf("named: %s, %v", agent, err)
	}
	if name, _, err := New(Options{Socket: "/nowhere"}).Agent(); err != nil || name != "me" {
		t.Errorf("a socket alone: %s, %v", name, err)
	}
	if err := os.Remove(filepath.Join(home, "agents.json")); err != nil {
		t.Fatal(err)
	}
	check("me", conch.ScopeDefault)
}

func TestResolveConcurrently(t *testing.T) {
	home := t.TempDir()
	t.Setenv("CONCH_AGENT", "")
	t.Setenv("CLAUDE_CODE_SESSION_ID", "")
	assignTo(t, home, `{"version":1,"global":"bob"}`)
	c := New(Options{Home: home})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if name, _, err := c.Agent(); err != nil || name != "bob" && name != "amy" {
					t.Errorf("%s, %v", name, err)
				}
			}
		})
	}
	for i := range 50 {
		assignTo(t, home, `{"version":1,"global":"`+[]string{"amy", "bob"}[i%2]+`"}`)
	}
	wg.Wait()
}

// BenchmarkAgent is what naming no agent costs a call.
func BenchmarkAgent(b *testing.B) {
	b.Setenv("CONCH_AGENT", "")
	for name, text := range map[string]string{"unassigned": "", "assigned": `{"version":1,"global":"bob"}`} {
		b.Run(name, func(b *testing.B) {
			home := b.TempDir()
			if text != "" {
				if err := os.WriteFile(filepath.Join(home, "agents.json"), []byte(text), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			c := New(Options{Home: home})
			for b.Loop() {
				if _, _, err := c.Agent(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
