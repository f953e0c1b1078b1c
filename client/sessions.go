package client

import (
	"context"
	"net/http"
	"time"

	"github.com/conchsh/conch"
)

// NewSession is what a session starts with.
type NewSession struct {
	// Cwd is the starting directory. Empty: the parent's current one, or
	// without a parent this client's (Options.Cwd).
	Cwd string
	Env map[string]string // added to the login environment
	// Parent is the label of a session of the same agent.
	Parent     string
	InheritEnv bool // take the parent's environment too
	RC         bool // load the user's rc file
	// Limits of its own, such as "tape_limit": "1GiB"; docs/CONFIG.md has the names.
	Limits map[string]string
	// Sandbox keeps what runs in the session to its directory, Cwd.
	Sandbox bool
	// SandboxAllow are files and directories that it may read besides.
	SandboxAllow []string
}

// New makes a session and starts its keeper. A label that is in use is
// conch.LabelTaken.
func (c *Client) New(ctx context.Context, session string, n NewSession) (*conch.SessionInfo, error) {
	agent, label, err := c.Resolve(session)
	if err != nil {
		return nil, err
	}
	if n.Parent != "" {
		if err := conch.CheckLabel(n.Parent); err != nil {
			return nil, err
		}
	} else if n.Cwd == "" {
		n.Cwd = c.startDir()
	}
	for name := range n.Env {
		if err := conch.CheckEnvName(name); err != nil {
			return nil, err
		}
	}
	body := conch.NewRequest{Agent: agent, Label: label, Cwd: n.Cwd, Env: n.Env, Parent: n.Parent, InheritEnv: n.InheritEnv, RC: n.RC, Limits: n.Limits,
		Sandbox: n.Sandbox, SandboxAllow: n.SandboxAllow}
	var info conch.SessionInfo
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/sessions", nil), body: body}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Sessions lists the open sessions of all agents.
func (c *Client) Sessions(ctx context.Context) ([]conch.SessionInfo, error) {
	list := []conch.SessionInfo{}
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/sessions", nil)}, &list); err != nil {
		return nil, err
	}
	return list, nil
}

// Session is one open session.
func (c *Client) Session(ctx context.Context, session string) (*conch.SessionInfo, error) {
	u, err := c.sessionURL(session, "", nil)
	if err != nil {
		return nil, err
	}
	var info conch.SessionInfo
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Gone says what was ended with a session or its shell.
type Gone = conch.Gone

// Reset ends a session's shell and all its processes and starts a clean shell
// under the same label.
func (c *Client) Reset(ctx context.Context, session string) (*Gone, error) {
	u, err := c.sessionURL(session, "/reset", nil)
	if err != nil {
		return nil, err
	}
	return c.end(ctx, u)
}

// Close ends a session for good, every process of it included. Its output is
// kept until pruned.
func (c *Client) Close(ctx context.Context, session string) (*Gone, error) {
	agent, label, err := c.Resolve(session)
	if err != nil {
		return nil, err
	}
	// To the daemon's host: a pooled connection of the session's own would
	// ask the keeper, which does not close itself.
	return c.end(ctx, daemonURL("/sessions/"+agent+"/"+label+"/close", nil))
}

func (c *Client) end(ctx context.Context, u string) (*Gone, error) {
	var g Gone
	if err := c.json(ctx, call{method: http.MethodPost, url: u}, &g); err != nil {
		return nil, err
	}
	return &g, nil
}

// Pruned says what Prune removed.
type Pruned = conch.Pruned

// PruneOptions say which closed sessions go; the zero value: all.
type PruneOptions struct {
	OlderThan time.Duration // those closed at least this long ago
	Keep      int           // but not the N closed last
}

// Prune removes what closed sessions left on disk, and takes ended processes off the
// lists of open ones.
func (c *Client) Prune(ctx context.Context, o PruneOptions) (*Pruned, error) {
	body := struct {
		OlderThanMS int64 `json:"older_than_ms,omitempty"`
		Keep        int   `json:"keep,omitempty"`
	}{o.OlderThan.Milliseconds(), o.Keep}
	var p Pruned
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/prune", nil), body: body}, &p); err != nil {
		return nil, err
	}
	return &p, nil
}
