package conchtest

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// A watched is one event of /v1/events.
type watched struct {
	id, name, data string
}

// watching listens to everything, from behind an event if after names one.
func (h *Home) watching(after string) (next func() watched, stop func()) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://conch/v1/events", nil)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := h.web().Do(req)
	if err != nil {
		h.T.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next = func() watched {
		h.T.Helper()
		var e watched
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "id":
				e.id = value
			case name == "event":
				e.name = value
			case name == "data":
				e.data = value
			case lines.Text() == "" && e.name != "":
				return e
			}
		}
		h.T.Fatalf("the stream ended: %v", lines.Err())
		return e
	}
	return next, func() { cancel(); resp.Body.Close() }
}

// change waits for a session's change that ok accepts.
func (h *Home) change(next func() watched, ok func(conch.SessionChange) bool) watched {
	h.T.Helper()
	for {
		e := next()
		var c conch.SessionChange
		if e.name == "session" {
			if err := json.Unmarshal([]byte(e.data), &c); err != nil {
				h.T.Fatal(err)
			}
			if ok(c) {
				return e
			}
		}
	}
}

func TestWatchTellsOfEverything(t *testing.T) {
	h := New(t)
	h.OK("exec", "-s", "old", "true")
	next, stop := h.watching("")
	defer stop()
	if e := next(); e.name != "watching" || e.data != `{"resumed":false}` {
		t.Fatalf("first: %+v", e)
	}
	h.Exec("old", "sleep 0.2; exit 3")
	h.change(next, func(c conch.SessionChange) bool {
		return c.Session.Label == "old" && c.Session.Busy && len(c.Commands) == 1 && c.Commands[0].Status == conch.StatusRunning
	})
	h.change(next, func(c conch.SessionChange) bool {
		return c.Session.Label == "old" && len(c.Commands) == 1 && c.Commands[0].Restarted && *c.Commands[0].ExitCode == 3
	})
	h.OK("exec", "-s", "new", "true")
	h.change(next, func(c conch.SessionChange) bool { return c.Session.Label == "new" && c.Missed })
	id := strings.TrimSpace(h.OK("run", "-s", "new", "sleep 1000"))
	h.change(next, func(c conch.SessionChange) bool {
		return len(c.Processes) == 1 && string(c.Processes[0].ProcessID) == id && c.Session.Processes == 1
	})
	h.OK("kill", id)
	h.change(next, func(c conch.SessionChange) bool {
		return len(c.Processes) == 1 && c.Processes[0].Status == conch.ProcessKilled
	})
	h.OK("send", "new", "hello", "-s", "old")
	for held, counted := false, false; !held || !counted; { // in either order
		e := next()
		held = held || e.name == "mail" && strings.Contains(e.data, `"held"`)
		counted = counted || e.name == "session" && strings.Contains(e.data, `"label":"new"`) && strings.Contains(e.data, `"mail":1`)
	}
	h.OK("ack", "-s", "new", strings.TrimSpace(h.peek("new")))
	h.OK("close", "new")
	for e := next(); e.name != "closed"; e = next() {
	}
}

func (h *Home) peek(label string) string {
	h.T.Helper()
	var list []conch.InboxEntry
	h.JSON(&list, "inbox", "-s", label, "--peek", "--json")
	if len(list) != 1 {
		h.T.Fatalf("%d messages", len(list))
	}
	return list[0].ID
}

// A listener that was cut off goes on where it was; after a daemon's death it is told
// that it must look anew.
func TestWatchGoesOn(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	next, stop := h.watching("")
	at := next().id
	h.OK("exec", "true")
	h.change(next, func(c conch.SessionChange) bool { return len(c.Commands) == 1 })
	stop()
	h.Exec("main", "exit 7") // while nobody listens
	next, stop = h.watching(at)
	if e := next(); e.name != "watching" || e.data != `{"resumed":true}` || e.id != at {
		t.Fatalf("first: %+v", e)
	}
	h.change(next, func(c conch.SessionChange) bool { return len(c.Commands) == 1 && *c.Commands[0].ExitCode == 0 })
	last := h.change(next, func(c conch.SessionChange) bool { return len(c.Commands) == 1 && *c.Commands[0].ExitCode == 7 })
	stop()
	Kill(t, h.Daemon())
	h.OK("exec", "true")
	next, stop = h.watching(last.id)
	defer stop()
	if e := next(); e.name != "watching" || e.data != `{"resumed":false}` {
		t.Fatalf("after the daemon's death: %+v", e)
	}
	h.Exec("main", "exit 9")
	h.change(next, func(c conch.SessionChange) bool { return len(c.Commands) == 1 && *c.Commands[0].ExitCode == 9 })
}

// Thousands of commands in a moment are told in bounded words, and the reader is told
// that there was more.
func TestWatchIsBounded(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	next, stop := h.watching("")
	defer stop()
	next()
	c := h.web()
	for i := 0; i < 600; i++ {
		resp, err := c.Post("http://conch/v1/sessions/me/main/exec", "application/json", strings.NewReader(`{"command":"true"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	h.OK("exec", ": the last")
	seen := 0
	h.change(next, func(c conch.SessionChange) bool {
		seen++
		if len(c.Commands) > 200 {
			t.Errorf("%d commands in one word", len(c.Commands))
		}
		return len(c.Commands) > 0 && c.Commands[len(c.Commands)-1].Command == ": the last"
	})
	if seen > 100 {
		t.Errorf("%d words for 600 commands", seen)
	}
}

// Being watched keeps no session awake, and its falling asleep is told.
func TestWatchedSessionSleeps(t *testing.T) {
	h := New(t).With("CONCH_IDLE_RELEASE=300ms")
	h.OK("exec", "-s", "tired", "true")
	next, stop := h.watching("")
	defer stop()
	next()
	h.change(next, func(c conch.SessionChange) bool { return c.Session.Label == "tired" && c.Session.KeeperPID == 0 })
	h.OK("exec", "-s", "tired", "true")
	h.change(next, func(c conch.SessionChange) bool { return c.Session.Label == "tired" && c.Session.KeeperPID != 0 })
	h.change(next, func(c conch.SessionChange) bool { return c.Session.Label == "tired" && c.Session.KeeperPID == 0 })
}
