package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

const (
	assignFile    = "agents.json"
	assignVersion = 1
	// Every command that names no agent reads the file.
	maxAssigned   = 1000
	maxAssignFile = 8 << 20
	maxHarness    = 256
)

// Assignments say which agent works where. The zero value assigns nothing.
type Assignments struct {
	Version  int               `json:"version"`
	Global   string            `json:"global,omitempty"`
	Projects map[string]string `json:"projects,omitempty"` // directory → agent
	Sessions map[string]string `json:"sessions,omitempty"` // harness session id → agent
}

// AssignmentsPath is where the assignments of a home are. Clients look there.
func AssignmentsPath(home string) string { return filepath.Join(home, assignFile) }

// ReadAssignments reads a home's assignments. That there are none is no error;
// that they cannot be read is one, since what they say is not known.
func ReadAssignments(home string) (*Assignments, error) {
	path := AssignmentsPath(home)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return new(Assignments), nil
	}
	damaged := func(what any) error {
		return conch.Errorf(conch.HomeUnusable, "%s: %v", path, what).
			Hint("name the agent with --agent; removing the file forgets which agent works where, and nothing else")
	}
	if err != nil {
		return nil, damaged(err)
	}
	var a Assignments
	if len(data) > maxAssignFile || json.Unmarshal(data, &a) != nil {
		return nil, damaged("is damaged")
	}
	if a.Version != assignVersion {
		return nil, damaged("was written by another version of conch")
	}
	for name := range a.Names() {
		if conch.CheckAgent(name) != nil {
			return nil, damaged("is damaged: an agent's name is none")
		}
	}
	return &a, nil
}

// Names gives every name there is an assignment to.
func (a *Assignments) Names() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if a.Global != "" && !yield(a.Global) {
			return
		}
		for _, m := range []map[string]string{a.Projects, a.Sessions} {
			for _, name := range m {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// Resolve gives the agent of a caller that named none, and what decided it: the
// harness session it runs in, else the directory it is in (the longest assigned
// one that it is or is under), else the global choice, else the default.
func (a *Assignments) Resolve(harness, dir string) (name string, by conch.Scope) {
	if name := a.Sessions[harness]; name != "" && harness != "" {
		return name, conch.ScopeSession
	}
	if dir != "" && len(a.Projects) > 0 {
		for d := realPath(dir); ; d = filepath.Dir(d) {
			if name := a.Projects[d]; name != "" {
				return name, conch.ScopeProject
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	if a.Global != "" {
		return a.Global, conch.ScopeGlobal
	}
	return conch.DefaultAgent, conch.ScopeDefault
}

// realPath is a directory without symbolic links, so that every way to it
// means the same one. Of one that is gone its name must do.
func realPath(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

// To gives what is assigned to an agent, in a fixed order.
func (a *Assignments) To(name string) []conch.Assignment {
	list := []conch.Assignment{}
	if a.Global == name {
		list = append(list, conch.Assignment{Scope: conch.ScopeGlobal})
	}
	for _, m := range []struct {
		scope conch.Scope
		by    map[string]string
	}{{conch.ScopeProject, a.Projects}, {conch.ScopeSession, a.Sessions}} {
		for _, key := range slices.Sorted(maps.Keys(m.by)) {
			if m.by[key] == name {
				list = append(list, conch.Assignment{Scope: m.scope, Key: key})
			}
		}
	}
	return list
}

// set makes one assignment; an empty name takes it back. It says whether
// something changed.
func (a *Assignments) set(to conch.Assignment, name string) (changed bool, err error) {
	switch to.Scope {
	case conch.ScopeGlobal:
		if to.Key != "" {
			return false, conch.Errorf(conch.InvalidRequest, "a global assignment has no key")
		}
		changed = a.Global != name
		a.Global = name
		return changed, nil
	case conch.ScopeProject:
		if !filepath.IsAbs(to.Key) || strings.ContainsRune(to.Key, 0) || !utf8.ValidString(to.Key) {
			return false, conch.Errorf(conch.InvalidRequest, "project %q is not an absolute path in UTF-8", to.Key)
		}
		return set(&a.Projects, realPath(to.Key), name)
	case conch.ScopeSession:
		if to.Key == "" || len(to.Key) > maxHarness || !utf8.ValidString(to.Key) || strings.ContainsFunc(to.Key, unicode.IsControl) {
			return false, conch.Errorf(conch.InvalidRequest, "%.60q is not a harness session's id", to.Key).
				Hint("an id is up to %d bytes of printable text", maxHarness)
		}
		return set(&a.Sessions, to.Key, name)
	}
	return false, conch.Errorf(conch.InvalidRequest, "%q is nothing an agent can be assigned to", string(to.Scope)).
		Hint("global, project or session")
}

func set(m *map[string]string, key, name string) (changed bool, err error) {
	if (*m)[key] == name {
		return false, nil
	}
	if name == "" {
		delete(*m, key)
		return true, nil
	}
	if _, there := (*m)[key]; !there && len(*m) >= maxAssigned {
		return false, conch.Errorf(conch.TooLarge, "there are %d assignments of this kind, which is the limit", maxAssigned).
			Hint("conch agent unassign takes one back; conch agent ls --json lists them")
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = name
	return true, nil
}

// Assignments reads what is assigned now.
func (s *Store) Assignments() (*Assignments, error) { return ReadAssignments(s.home) }

// Assign has an agent work for a harness session, a project or everywhere, from
// now on and after restarts. Another's assignment is replaced.
func (s *Store) Assign(name string, to conch.Assignment) error {
	if _, err := s.Get(name); err != nil {
		return err
	}
	_, err := s.assign(to, name)
	return err
}

// Unassign takes an assignment back, and says whether there was one.
func (s *Store) Unassign(to conch.Assignment) (bool, error) { return s.assign(to, "") }

func (s *Store) assign(to conch.Assignment, name string) (bool, error) {
	s.making.Lock()
	defer s.making.Unlock()
	a, err := ReadAssignments(s.home)
	if err != nil {
		return false, err
	}
	changed, err := a.set(to, name)
	if err != nil || !changed {
		return false, err
	}
	a.Version = assignVersion
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return false, err
	}
	return true, storageError(writeFile(AssignmentsPath(s.home), append(data, '\n'), replace))
}
