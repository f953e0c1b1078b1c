package mcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func take(t *testing.T, home string, w wish) *claim {
	t.Helper()
	w.agent, w.harness = "me", "h"
	if w.open == nil {
		w.open = func(string) bool { return false }
	}
	c, err := takeLabel(home, w)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTakeLabel(t *testing.T) {
	home := t.TempDir()
	is := func(c *claim, want string) *claim {
		t.Helper()
		if c.label != want {
			t.Errorf("got %s, want %s", c.label, want)
		}
		return c
	}
	a := is(take(t, home, wish{session: "a", remember: true}), "h:1")
	nameless := is(take(t, home, wish{remember: true}), "h:2")
	b := is(take(t, home, wish{session: "b", remember: true}), "h:3")
	is(take(t, home, wish{session: "a", remember: true}), "h:1").release(false)
	// One that nobody waits for is the next one's; another waits.
	nameless.release(false)
	a.release(false)
	is(take(t, home, wish{remember: true}), "h:2").release(false)
	is(take(t, home, wish{session: "c", remember: true}), "h:2").release(false)
	is(take(t, home, wish{session: "d"}), "h:4").release(false)
	// It does not wait for ever, and begins to when it was last used.
	path := filepath.Join(home, "labels", "me", "h:1")
	old := owner{Harness: "h", Session: "a", UsedAt: time.Now().Add(-keepFor - time.Hour)}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.write(f); err != nil {
		t.Fatal(err)
	}
	a = is(take(t, home, wish{session: "a", remember: true}), "h:1")
	a.owner.UsedAt = old.UsedAt
	if err := old.write(f); err != nil { // as if it had been claimed long ago
		t.Fatal(err)
	}
	a.release(false)
	is(take(t, home, wish{session: "e", remember: true}), "h:4").release(false)
	if err := old.write(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// Not with somebody's shell in it, though.
	is(take(t, home, wish{session: "f", remember: true, open: func(l string) bool { return l == "h:1" }}), "h:5").release(false)
	is(take(t, home, wish{session: "g", remember: true}), "h:1").release(false)
	// Asked for: had unless somebody uses it. A broken file is nobody's.
	if _, err := takeLabel(home, wish{agent: "me", harness: "h", session: "x", label: "h:3", strict: true}); !errors.Is(err, conch.LabelTaken) {
		t.Errorf("a label in use: %v", err)
	}
	c := take(t, home, wish{session: "x", label: "h:3", remember: true})
	if c.note == "" || c.label != "h:6" {
		t.Errorf("%s, %q", c.label, c.note)
	}
	b.release(true)
	is(take(t, home, wish{session: "x", label: "h:3"}), "h:3").release(false)
	if err := os.WriteFile(path, []byte(`{"harness`), 0o600); err != nil {
		t.Fatal(err)
	}
	is(take(t, home, wish{session: "y", remember: true}), "h:1").release(false)
	if _, err := takeLabel(filepath.Join(path, "no"), wish{agent: "me", harness: "h"}); !errors.Is(err, conch.HomeUnusable) {
		t.Errorf("no home: %v", err)
	}
}

// Locks are per open file, so goroutines race as processes do.
func TestTakeLabelRaced(t *testing.T) {
	home := t.TempDir()
	const n = 40
	for round := range 5 {
		var wg sync.WaitGroup
		got := make(chan *claim, n)
		for i := range n {
			wg.Go(func() { got <- take(t, home, wish{session: fmt.Sprint(i), remember: true}) })
		}
		wg.Wait()
		close(got)
		seen := map[string]bool{}
		for c := range got {
			if seen[c.label] {
				t.Errorf("round %d: %s twice", round, c.label)
			}
			seen[c.label] = true
			c.release(false)
		}
		for i := range n {
			if l := fmt.Sprintf("h:%d", i+1); !seen[l] {
				t.Errorf("round %d: nobody has %s", round, l)
			}
		}
	}
}
