package mail

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conchsh/conch"
)

// The processes of one harness session that come at once, its hooks among them, are one
// session; those of others are not.
func TestOneHarnessSessionRaced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const sessions, processes = 5, 6
	var mu sync.Mutex
	labels := map[string][]string{}
	var wg sync.WaitGroup
	for s := range sessions {
		session := fmt.Sprintf("s%d", s)
		for i := range processes {
			wg.Go(func() {
				var label string
				if i%3 == 0 {
					a, err := o.Hook(t.Context(), conch.HookRequest{Event: conch.HookStart, Agent: "me", Harness: "claude", HarnessSession: session})
					if err != nil {
						t.Error(err)
					}
					label = a.Label
				} else {
					p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", HarnessSession: session})
					if err != nil {
						t.Error(err)
						return
					}
					label = p.Label
				}
				mu.Lock()
				defer mu.Unlock()
				labels[session] = append(labels[session], label)
			})
		}
	}
	wg.Wait()
	var all []string
	for session, list := range labels {
		if slices.Sort(list); len(slices.Compact(list)) != 1 {
			t.Errorf("%s is %v", session, list)
		}
		all = append(all, list[0])
	}
	if slices.Sort(all); strings.Join(all, " ") != "claude:1 claude:2 claude:3 claude:4 claude:5" {
		t.Errorf("%v", all)
	}
}

// Two hooks of one kind at once tell of a message once.
func TestHooksRaced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", HarnessSession: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := o.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: p.Label, Text: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	told := 0
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			a, err := o.Hook(t.Context(), conch.HookRequest{Event: conch.HookStop, Agent: "me", HarnessSession: "s"})
			if err != nil || a.Waiting != 5 || a.New != len(a.Messages) {
				t.Errorf("%+v %v", a, err)
			}
			mu.Lock()
			defer mu.Unlock()
			told += a.New
		})
	}
	wg.Wait()
	if told != 5 {
		t.Errorf("told of %d messages, want 5", told)
	}
}

// A database that cannot be used leaves labels, which are not another's.
func TestClaimWithoutDatabase(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	if err := os.WriteFile(o.o.Path, []byte(strings.Repeat("rubbish", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	o.o.Labels = func(string) []string { return []string{"claude:2"} }
	claim := func(session string) *Presence {
		t.Helper()
		p, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Claim: true, Harness: "claude", HarnessSession: session})
		if err != nil {
			t.Fatal(err)
		}
		if p.MailError == "" {
			t.Error("nothing is said of mail")
		}
		return p
	}
	a, b, again := claim("a"), claim("b"), claim("a")
	if a.Label != "claude:1" || b.Label != "claude:3" || again.Label != "claude:1" {
		t.Errorf("%s %s %s", a.Label, b.Label, again.Label)
	}
	// Joining needs to know what there is.
	if _, err := o.Present(t.Context(), conch.PresenceRequest{Agent: "me", Label: "claude:1"}); err == nil {
		t.Error("joined without looking")
	}
}
