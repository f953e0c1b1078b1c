package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func none(string) (string, bool) { return "", false }

func write(t *testing.T, text string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

// Every default can be read, and is written as it is read.
func TestDefaults(t *testing.T) {
	c, err := Load(t.TempDir(), none)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, k := range Keys() {
		v := c.Get(k.Name)
		if again, err := k.Parse(k.Format(v)); err != nil || again != v {
			t.Errorf("%s: %d is written %q, which reads as %d (%v)", k.Name, v, k.Format(v), again, err)
		}
		if seen[k.Variable()] {
			t.Errorf("two keys are called %s", k.Variable())
		}
		seen[k.Variable()] = true
	}
	if c.Time(IdleRelease) != 24*time.Hour || c.Get(TapeLimit) != 4<<30 {
		t.Errorf("idle_release %v, tape_limit %d", c.Time(IdleRelease), c.Get(TapeLimit))
	}
}

func TestLayers(t *testing.T) {
	home := write(t, "# mine\nqueue_limit = 5\ntape_limit = \"1 GiB\"\nprune_after = 'off'\nsession_cpu = 1.5\nidle_release = \"7d\"\n")
	c, err := Load(home, func(n string) (string, bool) {
		if n == "CONCH_QUEUE_LIMIT" {
			return "9", true
		}
		return "", n == "CONCH_TAPE_LIMIT" // set and empty: as if it were not
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{QueueLimit: 9, TapeLimit: 1 << 30, PruneAfter: 0, SessionCPU: 1500, IdleRelease: int64(7 * 24 * time.Hour), SessionLimit: 2000} {
		if got := c.Get(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	for name, want := range map[string]string{QueueLimit: "CONCH_QUEUE_LIMIT", TapeLimit: "line 3", SessionLimit: "default"} {
		if got := c.Source(name); !strings.HasSuffix(got, want) {
			t.Errorf("%s comes from %q, want %q", name, got, want)
		}
	}
	s, err := c.With(map[string]string{TapeLimit: "2MiB"})
	if err != nil || s.Get(TapeLimit) != 2<<20 || s.Get(QueueLimit) != 9 || c.Get(TapeLimit) != 1<<30 {
		t.Errorf("session: %v %d %d, all: %d", err, s.Get(TapeLimit), s.Get(QueueLimit), c.Get(TapeLimit))
	}
	keeper := strings.Join(s.Keeper(), " ")
	if !strings.Contains(keeper, "CONCH_TAPE_LIMIT=2097152") || strings.Contains(keeper, "PRUNE") {
		t.Errorf("the keeper is told %s", keeper)
	}
}

// Everything that is wrong is named, with its line.
func TestFaults(t *testing.T) {
	for text, want := range map[string][]string{
		"que_limit = 3\n":                    {"line 1", `"que_limit"`, "did you mean queue_limit?"},
		"\n\ntape_limit = \"lots\"\n":        {"line 3", "tape_limit", "not a size", "4GiB"},
		"queue_limit = -1\n":                 {"line 1", "less than nothing"},
		"tape_limit = 0\n":                   {"cannot be switched off"},
		"idle_release = 5\n":                 {"unit", "24h"},
		"queue_limit = [1]\n":                {"line 1", "not a value"},
		"queue_limit = \n":                   {"line 1"},
		"queue_limit = 1\nqueue_limit = 2\n": {"line 2"},
		"a = 1\nb = 2\n":                     {"line 1", "line 2", "; and "},
		"[relay]\nurl = 'x'\n":               {`"relay"`, "line 1"},
		"session_cpu = 'x'\n":                {"processors"},
	} {
		_, err := Load(write(t, text), none)
		if !errors.Is(err, conch.InvalidConfig) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v; want %q", text, err, w)
			}
		}
		if conch.AsError(err).HintText == "" {
			t.Errorf("%q: no hint", text)
		}
	}
	_, err := Load(t.TempDir(), func(n string) (string, bool) { return "x", n == "CONCH_SESSION_PIDS" })
	if !errors.Is(err, conch.InvalidConfig) || !strings.Contains(err.Error(), "CONCH_SESSION_PIDS") {
		t.Error(err)
	}
}

func TestSessionValues(t *testing.T) {
	for name, value := range map[string]string{"nonsense": "1", SessionLimit: "5", QueueLimit: "x", TapeLimit: "0"} {
		if _, err := (Config{}).With(map[string]string{name: value}); !errors.Is(err, conch.InvalidRequest) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "4GiB", "1.5K", "30d", "24h", "off", "-1", "1e300", "NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range Keys() {
			v, err := k.Parse(text)
			if err != nil {
				continue
			}
			if again, err := k.Parse(k.Format(v)); v < 0 || err != nil || again != v {
				t.Errorf("%s %q: %d, %q, %d, %v", k.Name, text, v, k.Format(v), again, err)
			}
		}
	})
}

// The responder's keys are in a table of their own.
func TestTable(t *testing.T) {
	home := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(home, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) (string, bool) { return "", false }
	write("queue_limit = 5\n[responder]\ncommand = 'cat -n'\nnetwork = true\nallow_unsandboxed = false\npool = 7\nafter = 'off'\n")
	c, err := Load(home, none)
	if err != nil {
		t.Fatal(err)
	}
	if c.Text(ResponderCommand) != "cat -n" || c.Get(ResponderNetwork) != 1 || c.Get(ResponderUnsandboxed) != 0 || c.Get(ResponderPool) != 7 || c.Time(ResponderAfter) != 0 || c.Get(QueueLimit) != 5 {
		t.Errorf("%+v", c)
	}
	if c, err = Load(home, func(k string) (string, bool) { return "off", k == "CONCH_RESPONDER_NETWORK" }); err != nil || c.Get(ResponderNetwork) != 0 {
		t.Errorf("by variable: %v, %v", c.Get(ResponderNetwork), err)
	}
	for text, want := range map[string]string{
		"[responder]\npol = 3\n":             "line 2",
		"[responder]\n\nnetwork = 'maybe'\n": "neither on nor off",
		"[other]\nx = 1\n":                   "other",
		"responder = 3\n":                    "responder",
		"[responder]\npool = 'off'\n":        "cannot be switched off",
	} {
		write(text)
		if _, err := Load(home, none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
