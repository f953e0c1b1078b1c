package route

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every call says who may make it.
func TestEveryCallHasAScope(t *testing.T) {
	for _, r := range append(Daemon(), Session()...) {
		if r.Scope == 0 {
			t.Errorf("%s has no scope: scopeOf does not know it", r.Name)
		}
		if r.Method != http.MethodGet && r.Scope&ScopeRead != 0 {
			t.Errorf("%s is no GET and may be called with the scope read", r.Name)
		}
	}
}

func TestScopes(t *testing.T) {
	for _, c := range []struct{ has, needs, want string }{
		{"read", "read", "yes"}, {"read", "exec", ""}, {"read", "mail", ""}, {"read", "admin", ""},
		{"exec", "read", "yes"}, {"exec", "exec", "yes"}, {"exec", "mail", ""}, {"exec", "admin", ""},
		{"mail", "read", ""}, {"mail", "exec", ""}, {"mail", "mail", "yes"}, {"mail", "admin", ""},
		{"admin", "read", "yes"}, {"admin", "exec", "yes"}, {"admin", "mail", "yes"}, {"admin", "admin", "yes"},
	} {
		has, err := ParseScope([]string{c.has})
		needs, err2 := ParseScope([]string{c.needs})
		if err != nil || err2 != nil || has.Allows(needs) != (c.want == "yes") {
			t.Errorf("%s may %s: %v, %v %v", c.has, c.needs, has.Allows(needs), err, err2)
		}
	}
	for _, wrong := range [][]string{nil, {""}, {"root"}, {"read", "write"}, {"Read"}} {
		if s, err := ParseScope(wrong); err == nil {
			t.Errorf("%q is taken for %v", wrong, s)
		}
	}
	both, _ := ParseScope([]string{"mail", "exec"})
	if both.String() != "exec,mail" || !both.Allows(ScopeRead) || !both.Allows(ScopeMail) || both.Allows(ScopeAdmin) || both.Allows(0) {
		t.Errorf("exec,mail is %v", both)
	}
}

// Who only looks needs less, and who leaves a trace more.
func TestNeeds(t *testing.T) {
	byName := map[string]Route{}
	for _, r := range append(Daemon(), Session()...) {
		byName[r.Name] = r
	}
	for _, c := range []struct {
		name, query string
		want        Scope
	}{
		{"attach", "", ScopeExec}, {"attach", "read_only=1", ScopeRead}, {"attach", "read_only=true", ScopeRead}, {"attach", "read_only=0", ScopeExec},
		{"attach", "read_only=1&create=1", ScopeExec}, {"processAttach", "read_only=1", ScopeRead}, {"sessionProcessAttach", "read_only=1", ScopeRead},
		{"sessionProcessAttach", "", ScopeExec}, {"terminal", "", ScopeExec}, {"terminal", "read_only=1", ScopeRead}, {"processTerminal", "read_only=1", ScopeRead},
		{"mailEvents", "agent=me", ScopeRead | ScopeMail}, {"mailEvents", "agent=me&session=main", ScopeMail},
		{"exec", "read_only=1", ScopeExec},
	} {
		r := byName[c.name]
		if got := r.Needs(httptest.NewRequest("GET", "/?"+c.query, nil)); got != c.want || r.Name == "" {
			t.Errorf("%s?%s needs %v, want %v", c.name, c.query, got, c.want)
		}
	}
}
