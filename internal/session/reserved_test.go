package session_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// A reserved label makes no session, by whichever way; one that has a session
// already keeps it.
func TestReservedLabels(t *testing.T) {
	reserved := map[string]bool{}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	st, err := session.Open(session.Options{
		Home: newHome(t), Exe: exe, Login: map[string]string{"PATH": os.Getenv("PATH")},
		Reserved: func(label string) bool { return reserved[label] },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if _, ok := st.HasLabel("bob"); ok {
		t.Error("a label nobody has")
	}
	obtain(t, st, "bob")
	if agent, ok := st.HasLabel("bob"); !ok || agent != "me" {
		t.Errorf("bob is %q's", agent)
	}
	reserved["bob"], reserved["amy"] = true, true
	obtain(t, st, "bob")
	_, err1 := st.Obtain(t.Context(), session.NewSpec{Agent: "me", Label: "amy"})
	_, err2 := st.Create(t.Context(), session.NewSpec{Agent: "me", Label: "amy"})
	_, err3 := st.Import(t.Context(), "me", "amy", strings.NewReader(""))
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, conch.LabelTaken) || !strings.Contains(err.Error(), "amy") {
			t.Errorf("%v", err)
		}
	}
	if _, ok := st.HasLabel("amy"); ok {
		t.Error("a refused label is taken")
	}
	s, err := st.Lookup("me", "bob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Obtain(t.Context(), session.NewSpec{Agent: "me", Label: "bob"}); !errors.Is(err, conch.LabelTaken) {
		t.Errorf("after it was closed: %v", err)
	}
}
