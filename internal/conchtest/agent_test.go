package conchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conchsh/conch"
)

// Fifty processes make one agent: one does, the others are told.
func TestRacingAgents(t *testing.T) {
	t.Parallel()
	h := New(t)
	const n = 50
	outs := make([]Out, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { outs[i] = h.Conch("agent", "new", "bob") })
	}
	wg.Wait()
	address := ""
	for _, o := range outs {
		switch {
		case o.Status == 0 && address == "":
			address = strings.TrimSpace(o.Stdout)
		case o.Status != 125 || !strings.Contains(o.Stderr, "agent bob exists already"):
			t.Errorf("%v", o)
		}
	}
	var w conch.WhoAmI
	h.JSON(&w, "whoami", "--agent", "bob", "--json")
	if address == "" || w.Address != address {
		t.Errorf("made %q, there is %q", address, w.Address)
	}
}

// However many first uses there are at once, me is made once.
func TestRacingFirstUse(t *testing.T) {
	t.Parallel()
	h := New(t)
	const n = 20
	got := make([]conch.WhoAmI, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if i%2 == 0 {
				h.JSON(&got[i], "whoami", "--json")
			} else if o := h.Conch("exec", "-s", fmt.Sprintf("s:%d", i), "true"); o.Status != 0 {
				t.Errorf("%v", o)
			}
		})
	}
	wg.Wait()
	for i := 2; i < n; i += 2 {
		if got[i].Address != got[0].Address || got[0].Address == "" {
			t.Errorf("%q and %q", got[i].Address, got[0].Address)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(h.Path, "keys", "*")); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

// A session and an agent that want one name at the same moment: one gets it.
func TestRacingLabelAndAgent(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.OK("up")
	for i := range 10 {
		name := fmt.Sprintf("x%d", i)
		outs := make([]Out, 4)
		var wg sync.WaitGroup
		for j := range outs {
			wg.Go(func() {
				if j%2 == 0 {
					outs[j] = h.Conch("agent", "new", name)
				} else {
					outs[j] = h.Conch("new", name)
				}
			})
		}
		wg.Wait()
		won := ""
		for j, o := range outs {
			switch {
			case o.Status == 0 && won == "":
				won = []string{"agent", "session"}[j%2]
			case o.Status == 0:
				t.Errorf("%s: %s won already, and %v", name, won, o)
			case !strings.Contains(o.Stderr, "exists already") && !strings.Contains(o.Stderr, "cannot be a"):
				t.Errorf("%s: %v", name, o)
			}
		}
		if isAgent := h.Conch("whoami", "--agent", name).Status == 0; isAgent != (won == "agent") || (h.Session(name).Label != "") == isAgent {
			t.Errorf("%s: %q won", name, won)
		}
	}
}

// A daemon that is killed at any step of making an agent leaves one or none,
// and nothing beside it.
func TestDaemonKilledMakingAnAgent(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"agent.written", "agent.named", "agent.assign-written"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			h := New(t)
			h.OK("agent", "new", "amy")
			h.OK("agent", "use", "amy")
			h.OK("down")
			armed := h.With("CONCH_FAULT=" + point)
			args := []string{"agent", "new", "bob"}
			if point == "agent.assign-written" {
				h.OK("agent", "new", "bob")
				h.OK("down")
				args = []string{"agent", "use", "bob"}
			}
			if o := armed.Conch(args...); o.Status != 125 {
				t.Fatalf("not killed: %v", o)
			}
			var list []conch.AgentInfo
			h.JSON(&list, "agent", "ls", "--json")
			names, active := "", ""
			for _, a := range list {
				names += a.Name + " "
				if a.Error != "" || a.Address == "" {
					t.Errorf("%+v", a)
				}
				if a.Active {
					active = a.Name
				}
			}
			want := map[string]string{"agent.written": "amy me ", "agent.named": "amy bob me ", "agent.assign-written": "amy bob me "}[point]
			if names != want || active != "amy" {
				t.Errorf("agents %s, active %s; want %s and amy", names, active, want)
			}
			for _, dir := range []string{h.Path, filepath.Join(h.Path, "keys")} {
				if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
			// The name is as free or as taken as it looks.
			if o := h.Conch("agent", "new", "bob"); (o.Status == 0) != (point == "agent.written") {
				t.Errorf("%v", o)
			}
		})
	}
}

// No log of the daemon or of a keeper, and no output, holds a key or a
// passphrase.
func TestNoSecretAnywhere(t *testing.T) {
	t.Parallel()
	h := New(t)
	const passphrase = "correct horse battery"
	for _, name := range []string{"amy", "bob"} {
		if o := h.Feed(strings.NewReader(passphrase+"\n"), "agent", "new", name, "--passphrase"); o.Status != 0 {
			t.Fatalf("%v", o)
		}
	}
	h.Feed(strings.NewReader(passphrase+"\n"), "agent", "unlock", "amy")
	h.Feed(strings.NewReader(passphrase+"x\n"), "agent", "unlock", "bob")
	h.OK("agent", "export", "--agent", "me", "me.key")
	key, err := os.ReadFile(filepath.Join(h.Work, "me.key"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(key), `"seed": "`)
	seed, _, ok := strings.Cut(rest, `"`)
	if !ok || len(seed) < 40 {
		t.Fatalf("no seed in the export")
	}
	shown := h.OK("agent", "ls") + h.OK("agent", "ls", "--json") + h.OK("whoami", "--json") + h.Conch("doctor").Stdout +
		h.Conch("agent", "import", "me.key").Stderr + h.OK("exec", "env")
	err = filepath.WalkDir(h.Path, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".key") {
			return err
		}
		b, err := os.ReadFile(path)
		shown += string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{passphrase, seed} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q shows", secret)
		}
	}
}
