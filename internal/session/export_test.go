package session

import (
	"testing"
	"time"
)

// SetLimits shortens what Close waits for, for one test.
func SetLimits(t *testing.T, d time.Duration) {
	s, e := shutdownLimit, deathLimit
	shutdownLimit, deathLimit = d, d
	t.Cleanup(func() { shutdownLimit, deathLimit = s, e })
}

// BreakControl cuts the control connection and leaves the keeper alone.
func BreakControl(s *Session) { s.link.Load().ctl.CloseRead() }

// Reserve begins to make a session and stops there.
func Reserve(t *testing.T, st *Store, label string) (s *Session, done func()) {
	t.Helper()
	s, made, err := st.reserve(NewSpec{Agent: "me", Label: label})
	if err != nil || !made {
		t.Fatal(made, err)
	}
	return s, s.release
}
