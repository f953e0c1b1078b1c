package frame

import (
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

func TestWhoItIsFor(t *testing.T) {
	for label, want := range map[string]string{"": "\nto the agent as a whole · role user", "build": "\nto build · role user"} {
		e := conch.InboxEntry{ID: "m1", From: "me", ToSession: label, Role: "user", Text: "hi"}
		if got := New(e.Text).Message(&e); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
