package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conchsh/conch/internal/cgroup"
	"github.com/conchsh/conch/internal/config"
)

// groupFile names the control group of a session that has one. It is written
// before the keeper starts, which reads it, and goes after the group.
const groupFile = "cgroup"

// groupLimit is how long the processes of a killed group may take to go.
const groupLimit = 5 * time.Second

// limit gets ready what limits the session, its control group included, and
// gives what its keeper is to be told. Under turn.
func (s *Session) limit() ([]string, error) {
	c, err := s.st.config.With(s.spec.Limits)
	if err != nil {
		return nil, err
	}
	l := cgroup.Limits{Memory: c.Get(config.SessionMemory), CPU: c.Get(config.SessionCPU), Pids: c.Get(config.SessionPids)}
	if !l.Any() {
		return c.Keeper(), nil
	}
	self, err := cgroup.Self()
	if err != nil {
		return nil, err
	}
	parent, err := cgroup.Find(cgroup.Mount, self, l)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, cgroup.Prefix+s.spec.ID)
	// Its name first: whoever finds the session after a crash finds the group.
	if err := os.WriteFile(filepath.Join(s.dir, groupFile), []byte(dir+"\n"), 0o600); err != nil {
		return nil, err
	}
	if _, err := cgroup.Make(parent, filepath.Base(dir), l); err != nil {
		return nil, err
	}
	return c.Keeper(), nil
}

// removeGroup kills whatever is left in the session's control group, if it has
// one, and takes the group away. Under turn, with the keeper dead.
func (s *Session) removeGroup(ctx context.Context) error {
	path := filepath.Join(s.dir, groupFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, groupLimit)
	defer cancel()
	if err := cgroup.Remove(ctx, strings.TrimSpace(string(b))); err != nil {
		return err
	}
	return remove(path)
}
