// Package host is what this machine's daemon can do, one method per verb. The
// surfaces (HTTP today) decode, call one of these, and encode; nothing else
// decides anything.
//
// Who may call is settled before: the socket lets in only the owner, package gate
// those who have a token or are the page. Running
// commands is not here: a session's requests are served by its keeper, which
// Open finds or starts and the surface hands the connection to.
package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/post"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/responder"
	"github.com/conchsh/conch/internal/session"
)

// Options are what a Host stands on.
type Options struct {
	Store   *session.Store
	Agents  *agent.Store
	Home    string
	Socket  string
	Version string
	Config  config.Config
	// Auto says that the daemon was started by a client's need and leaves by
	// itself.
	Auto bool
	// Inside says that the daemon is part of an agent's server, and leaves with it.
	Inside bool
	// Leave makes the daemon shut down, soon and gracefully. Leaving has then ended.
	Leave   func()
	Leaving context.Context
	// Gate is who else may come in.
	Gate *gate.Gate
	Log  *slog.Logger // nil: nothing is logged
}

// A Host answers for one home. Its methods are safe for concurrent use.
type Host struct {
	Options
	// Mail is the post office. It is opened by the first call that needs it.
	Mail *mail.Mail
	// Relay is the way to other homes, and Post what goes it.
	Relay   *relay.Relay
	Post    *post.Post
	started time.Time
	meter   meter
	notices notices

	responder *responder.Responder
	boxed     struct { // what trying a sandbox gave
		once sync.Once
		how  string
		err  error
	}
	watch *watch
}

// New makes a Host. It starts nothing.
func New(o Options) *Host {
	h := &Host{Options: o, started: time.Now(), notices: notices{wake: make(chan struct{}, 1)}, watch: newWatch()}
	o.Store.Retired = h.meter.retire
	o.Store.OnChange(h.watch.stir)
	h.Mail = h.newMail()
	h.Relay = relay.New(relay.Options{Dir: filepath.Join(o.Home, "relay"), Log: o.Log})
	h.responder = h.newResponder()
	h.Post = h.newPost()
	return h
}

func (h *Host) checkName(agent, label string) error {
	if err := conch.CheckAgent(agent); err != nil {
		return err
	}
	return conch.CheckLabel(label)
}

// Open gives the session of a label with its keeper running, for the caller to
// hand a request to. With fresh, a new label gets such a session.
func (h *Host) Open(ctx context.Context, agent, label string, fresh *session.NewSpec) (*session.Session, error) {
	if err := h.checkName(agent, label); err != nil {
		return nil, err
	}
	for {
		s, err := h.Store.Lookup(agent, label)
		switch {
		case err == nil:
			_, err = s.Keeper(ctx)
		case errors.Is(err, conch.SessionNotFound) && !h.agentHere(agent):
			return nil, h.noAgent(agent)
		case fresh != nil && errors.Is(err, conch.SessionNotFound):
			if s, err = h.create(ctx, agent, label, *fresh); err == nil {
				return s, nil
			}
		}
		// Closed while we waited for it: what is there now counts.
		if err == nil || !errors.Is(err, conch.SessionClosed) || ctx.Err() != nil {
			return s, err
		}
	}
}

func (h *Host) create(ctx context.Context, agent, label string, n session.NewSpec) (*session.Session, error) {
	if err := checkCwd(n.Cwd); err != nil {
		return nil, err
	}
	if err := h.needAgent(agent); err != nil {
		return nil, err
	}
	if err := h.uncontacted(label); err != nil {
		return nil, err
	}
	n.Agent, n.Label = agent, label
	return h.Store.Obtain(ctx, n)
}

// checkCwd refuses what a session cannot start in. Empty means the user's home.
func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	if !filepath.IsAbs(cwd) {
		return conch.Errorf(conch.InvalidRequest, "directory %q is not absolute", cwd)
	}
	fi, err := os.Stat(cwd)
	if err != nil {
		return conch.Errorf(conch.InvalidRequest, "cannot start in %s: %v", cwd, err).
			Hint("--cwd names a directory that exists")
	}
	if !fi.IsDir() {
		return conch.Errorf(conch.InvalidRequest, "cannot start in %s: it is not a directory", cwd)
	}
	return nil
}
