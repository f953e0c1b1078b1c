package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// lookAgain is how often a daemon that has gone is looked for.
const lookAgain = 500 * time.Millisecond

// self is who the caller is: a presence with the daemon, which makes the session live
// for mail, and who listens for its mail. The daemon's death ends the presence and not
// the claim: it is taken up again as soon as there is a daemon.
type self struct {
	conch.PresenceRequest // as claimed; Agent and Label are those it has

	note string // what was asked for and could not be had
	stop context.CancelFunc

	mu   sync.Mutex // guards what follows
	held *client.Presence
	seq  int64 // the last mail event heard of
	mail waiting
}

// mute is why there is no mail; empty: there is.
func (m *self) mute() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		return "" // nobody misses it
	}
	return m.held.MailError
}

func (m *self) name() string { return m.Agent + "/" + m.Label }

// here reports whether the daemon knows of us.
func (m *self) here() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		return true // it is only a name
	}
	select {
	case <-m.held.Done():
		return false
	default:
		return true
	}
}

func (m *self) take(p *client.Presence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Close()
	m.held = p
	m.mail.stale = true
}

// end gives the label back. Its harness session may have it again.
func (m *self) end() {
	m.stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		m.held.Close()
	}
}

// own is the caller's own session, whose label is claimed when it is first needed.
func (c *call) own(ctx context.Context) (target, error) {
	me, err := c.s.own(ctx, c.s.client, c.harness())
	if err != nil {
		return target{}, err
	}
	return target{c.s.maker, me.name(), true}, nil
}

// own claims the label, or claims it again from a daemon that does not know of it.
func (s *Server) own(ctx context.Context, by *client.Client, harness string) (*self, error) {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	if s.left.Err() != nil { // nobody would give it back
		return nil, conch.Errorf(conch.NotRunning, "the server is leaving")
	}
	me := s.current()
	if me == nil {
		agent, err := s.agent()
		if err != nil {
			return nil, err
		}
		r := conch.PresenceRequest{Agent: agent, Label: s.o.Session, Claim: true, Harness: harness, HarnessSession: s.o.HarnessSession}
		if me, err = s.claim(ctx, by, r); err != nil {
			return nil, err
		}
		s.become(me)
		return me, nil
	}
	if me.here() {
		return me, nil
	}
	err := s.again(ctx, by, me)
	if err == nil {
		return me, nil
	}
	if !errors.Is(err, conch.LabelTaken) {
		return nil, err
	}
	// While there was no daemon, another has come for it.
	lost := me.Label
	if me, err = s.claim(ctx, by, me.PresenceRequest); err != nil {
		return nil, err
	}
	me.note = fmt.Sprintf("%s was yours until its daemon ended, and another session has it now", lost)
	s.become(me)
	return me, nil
}

// again claims the label that me has.
func (s *Server) again(ctx context.Context, by *client.Client, me *self) error {
	r := me.PresenceRequest
	r.Only = true
	p, err := by.Present(ctx, r)
	if err == nil {
		me.take(p)
	}
	return err
}

// claim takes a label. Who may not have mail only uses its name: a session that is
// live gets mail, which would then wait for nobody.
func (s *Server) claim(ctx context.Context, by *client.Client, r conch.PresenceRequest) (*self, error) {
	if !s.may("mail") {
		if r.Label == "" {
			r.Label = s.o.Session
		}
		return &self{PresenceRequest: r, stop: func() {}}, nil
	}
	if s.wire != nil {
		r.HarnessPID = os.Getppid()
	}
	p, err := by.Present(ctx, r)
	if err != nil {
		return nil, err
	}
	me := &self{PresenceRequest: r, held: p, seq: p.Seq, mail: waiting{stale: true}}
	if r.Label != "" && p.Label != r.Label {
		me.note = fmt.Sprintf("%s was asked for, which another session uses", r.Label)
	}
	me.Label = p.Label
	listening, stop := context.WithCancel(s.left)
	me.stop = stop
	s.listeners.Go(func() { s.listen(listening, me) }) // ends with the claim
	return me, nil
}

// release gives the label back and waits for who listened for its mail. The server has
// left, so that nobody claims after it.
func (s *Server) release() {
	s.claiming.Lock()
	s.become(nil)
	s.claiming.Unlock()
	s.listeners.Wait()
}

func (s *Server) current() *self {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self
}

// become makes another label the caller's own, and gives up the one before.
func (s *Server) become(me *self) {
	s.mu.Lock()
	old := s.self
	s.self = me
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
}

// arrive is called when a client has shaken hands. If a daemon runs, its session is
// live from now on, so that mail finds it before it has called a tool; none is started.
func (s *Server) arrive(ctx context.Context, req *sdk.InitializedRequest) {
	s.mu.Lock()
	s.greeted = true
	s.mu.Unlock()
	var info *sdk.Implementation
	if p := req.Session.InitializeParams(); p != nil {
		info = p.ClientInfo
	}
	s.own(ctx, s.quiet, s.harness(info)) // where it fails the first tool does it, and tells
}

// harness is what the caller is called in labels.
func (c *call) harness() string {
	if c.req == nil {
		return c.s.harness(nil)
	}
	return c.s.harness(c.req.ClientInfo())
}

// harness takes what the client calls itself now, or did before.
func (s *Server) harness(info *sdk.Implementation) string {
	if s.o.Harness != "" {
		return s.o.Harness
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if info != nil {
		if name := harnessName(info.Name); name != "" {
			s.named = name
		}
	}
	if s.named == "" {
		return "agent"
	}
	return s.named
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
