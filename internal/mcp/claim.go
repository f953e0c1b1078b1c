package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch"
)

// A claim is a label that this server has for its caller. It is a file in
// $CONCH_HOME/labels/AGENT, named by the label, that says whose the label is, and a
// shared lock on it while somebody uses it: the kernel gives that back at death,
// whatever the death. Whoever looks at several files, or writes one, holds labels/lock.
//
// This is all that knows how a label is had. Presence (client.Present with Claim), which
// mail goes by, can take its place by taking that of takeLabel and release.
type claim struct {
	agent, label string
	note         string // what was asked for and could not be had
	file         *os.File
	owner        owner // as the file has it
}

// owner is what the file holds.
type owner struct {
	Harness string    `json:"harness"`
	Session string    `json:"harness_session"` // empty: of nobody who would come back
	UsedAt  time.Time `json:"used_at"`
}

// keepFor is how long a label waits for its harness session to come back.
const keepFor = 7 * 24 * time.Hour

// A wish is what somebody wants a label for.
type wish struct {
	agent    string
	label    string // asked for; empty: any
	strict   bool   // that label or none
	remember bool   // the harness session is to get it again
	harness  string
	session  string // the harness session
	// open says whether there is a session of the label now.
	open func(label string) bool
}

// takeLabel claims a label: the one asked for if nobody uses it, else the one this
// harness session had, else the lowest free <harness>:<n>.
func takeLabel(home string, w wish) (*claim, error) {
	dir := filepath.Join(home, "labels")
	if err := os.MkdirAll(filepath.Join(dir, w.agent), 0o700); err != nil {
		return nil, labelsError(err)
	}
	unlock, err := lockLabels(dir)
	if err != nil {
		return nil, labelsError(err)
	}
	defer unlock()
	note := ""
	if w.label != "" {
		c, err := w.take(dir, w.label, true)
		if c != nil || err != nil {
			return c, err
		}
		if w.strict {
			return nil, conch.Errorf(conch.LabelTaken, "another session uses the label %s", w.label).
				Hint("choose another label, or name it as session in a call to work in its shell")
		}
		note = fmt.Sprintf("%s was asked for, which another session uses", w.label)
	}
	c, err := w.mine(dir)
	for n := 1; c == nil && err == nil; n++ {
		c, err = w.take(dir, fmt.Sprintf("%s:%d", w.harness, n), false)
	}
	if err != nil {
		return nil, err
	}
	c.note = note
	return c, nil
}

// mine is the label this harness session had, the last if it had several. Another
// server of the same harness session may use it: it is the same session.
func (w wish) mine(dir string) (*claim, error) {
	if w.session == "" || w.label != "" && w.strict {
		return nil, nil
	}
	var label string
	var last time.Time
	list, err := os.ReadDir(filepath.Join(dir, w.agent))
	if err != nil {
		return nil, labelsError(err)
	}
	for _, e := range list {
		if conch.CheckLabel(e.Name()) != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, w.agent, e.Name()))
		if err != nil {
			return nil, labelsError(err)
		}
		var o owner
		if json.Unmarshal(b, &o) == nil && o.Session == w.session && (label == "" || o.UsedAt.After(last)) {
			label, last = e.Name(), o.UsedAt
		}
	}
	if label == "" {
		return nil, nil
	}
	return w.take(dir, label, true)
}

// take claims one label, or gives nil where it is another's. One that was asked for
// may be had as soon as nobody uses it; one that is only the next number must not be
// waiting for somebody either.
func (w wish) take(dir, label string, asked bool) (*claim, error) {
	if err := conch.CheckLabel(label); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, w.agent, label)
	_, err := os.Stat(path)
	known := err == nil
	if !known && !asked && w.open(label) {
		return nil, nil // the shell of somebody who does not go by claims
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, labelsError(err)
	}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	var o owner
	json.Unmarshal(b[:n], &o) // an unreadable owner is none
	same := o.Session != "" && o.Session == w.session
	waits := o.Session != "" && time.Since(o.UsedAt) < keepFor
	// A harness that has no name for its session goes on with the shell that the
	// last one left; one that has a name is new here, and begins with a new shell.
	if !same && !asked && (waits || w.session != "" && w.open(label)) {
		f.Close()
		return nil, nil
	}
	if !same {
		if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, nil
			}
			return nil, labelsError(err)
		}
	}
	// Between the two locks nobody can come: they hold labels/lock to look.
	err = flock(f, syscall.LOCK_SH)
	if err == nil {
		o = owner{Harness: w.harness, UsedAt: time.Now().UTC()}
		if w.remember {
			o.Session = w.session
		}
		err = o.write(f)
	}
	if err != nil {
		f.Close()
		return nil, labelsError(err)
	}
	return &claim{agent: w.agent, label: label, file: f, owner: o}, nil
}

// write replaces what the file holds. In place: a new file would not have the locks.
func (o owner) write(f *os.File) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(append(b, '\n'), 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(b)) + 1); err != nil {
		return err
	}
	return f.Sync()
}

// release gives the label back. Its harness session finds it again, for a week from
// now, unless it has taken another for good: then the label is nobody's.
func (c *claim) release(forGood bool) error {
	defer c.file.Close()
	unlock, err := lockLabels(filepath.Dir(filepath.Dir(c.file.Name())))
	if err != nil {
		return labelsError(err)
	}
	defer unlock()
	// Another server of the same session may have made it nobody's meanwhile.
	b := make([]byte, 4096)
	n, _ := c.file.ReadAt(b, 0)
	var now owner
	if json.Unmarshal(b[:n], &now) == nil && now.Session != c.owner.Session {
		return nil
	}
	c.owner.UsedAt = time.Now().UTC()
	if forGood {
		c.owner.Session = ""
	}
	if err := c.owner.write(c.file); err != nil {
		return labelsError(err)
	}
	return nil
}

// lockLabels is held by whoever looks at labels or changes one.
func lockLabels(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

func labelsError(err error) error {
	return conch.Errorf(conch.HomeUnusable, "labels cannot be kept: %v", err).Hint("CONCH_HOME must be a local directory you can write to")
}

// release gives the label back; the harness session may have it again.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.self != nil {
		s.self.release(false) // nobody is left to be told that it was not renewed
		s.self = nil
	}
}

// own is the caller's own session, whose label is claimed when it is first needed.
func (c *call) own(ctx context.Context) (target, error) {
	s := c.s
	s.claiming.Lock()
	defer s.claiming.Unlock()
	self := s.current()
	if self == nil {
		var err error
		w := c.wish()
		w.label, w.remember = s.o.Session, true
		if w.agent, err = s.agent(); err != nil {
			return target{}, err
		}
		if self, err = c.claim(ctx, w); err != nil {
			return target{}, err
		}
		s.become(self)
	}
	return target{s.maker, self.agent + "/" + self.label, true}, nil
}

func (s *Server) current() *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self
}

func (s *Server) become(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self = c
}

// wish begins a wish of this caller.
func (c *call) wish() wish {
	harness := c.s.o.Harness
	if harness == "" {
		if info := c.req.ClientInfo(); info != nil {
			harness = harnessName(info.Name)
		}
	}
	if harness == "" {
		harness = "agent"
	}
	return wish{harness: harness, session: c.s.o.HarnessSession}
}

// claim takes a label, knowing which sessions are open.
func (c *call) claim(ctx context.Context, w wish) (*claim, error) {
	agents, err := c.s.client.Agents(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range agents {
		names = append(names, a.Name)
	}
	switch {
	case !slices.Contains(names, w.agent):
		return nil, conch.Errorf(conch.AgentNotFound, "there is no agent %s", w.agent).
			Hint("agents: %s; conch agent new makes one", strings.Join(names, ", "))
	case slices.Contains(names, w.label):
		return nil, conch.Errorf(conch.LabelTaken, "%s is the name of an agent and cannot be a session's label", w.label).
			Hint("choose another label")
	}
	list, err := c.s.client.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	w.open = func(label string) bool {
		for _, s := range list {
			if s.Agent == w.agent && s.Label == label {
				return true
			}
		}
		return false
	}
	return takeLabel(c.s.home, w)
}

// harnessName makes a short name of what a client calls itself: claude of claude-code,
// codex of codex-mcp-client.
func harnessName(client string) string {
	words := strings.FieldsFunc(strings.ToLower(client), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	if len(words) == 0 {
		return ""
	}
	return words[0][:min(len(words[0]), 20)]
}
