package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
)

// HarnessSession is the id that the harness around this process has for its
// session, or "".
func HarnessSession() string { return os.Getenv("CLAUDE_CODE_SESSION_ID") }

// Agent gives the agent that bare labels mean, and what decided it: Options or
// $CONCH_AGENT, else an assignment to the harness session, to the directory it
// is in (Options.Cwd, else this process's) or one above, or globally, else the default. Assignments are
// read from the home; a client that was given only a Socket knows none.
func (c *Client) Agent() (name string, by conch.Scope, err error) {
	if c.o.Agent != "" {
		return c.o.Agent, conch.ScopeNamed, nil
	}
	if env := os.Getenv("CONCH_AGENT"); env != "" {
		return env, conch.ScopeNamed, nil
	}
	if c.o.Socket != "" && c.o.Home == "" {
		return conch.DefaultAgent, conch.ScopeDefault, nil
	}
	a, err := c.assignments()
	if err != nil {
		return "", "", err
	}
	dir := ""
	if len(a.Projects) > 0 {
		dir = c.startDir()
	}
	name, by = a.Resolve(HarnessSession(), dir)
	return name, by, nil
}

// assigned is what was last read of the assignments, and of which file.
type assigned struct {
	mu   sync.Mutex
	file os.FileInfo
	a    *agent.Assignments
}

var unassigned agent.Assignments

// assignments looks at the file every time, and reads it when it is another.
// It is only ever replaced as a whole.
func (c *Client) assignments() (*agent.Assignments, error) {
	home, err := c.Home()
	if err != nil {
		return nil, err
	}
	fi, err := os.Stat(agent.AssignmentsPath(home))
	if os.IsNotExist(err) {
		return &unassigned, nil
	}
	c.assigned.mu.Lock()
	defer c.assigned.mu.Unlock()
	last := c.assigned.file
	if err == nil && last != nil && os.SameFile(fi, last) && fi.ModTime().Equal(last.ModTime()) && fi.Size() == last.Size() {
		return c.assigned.a, nil
	}
	a, rerr := agent.ReadAssignments(home)
	if rerr != nil {
		return nil, rerr
	}
	c.assigned.file, c.assigned.a = fi, a // fi is nil where stat failed: read again
	return a, nil
}

// Agents lists all agents. Active is the one that this client works as.
func (c *Client) Agents(ctx context.Context) ([]conch.AgentInfo, error) {
	name, _, err := c.Agent()
	if err != nil {
		return nil, err
	}
	list := []conch.AgentInfo{}
	k := call{method: http.MethodGet, url: daemonURL("/agents", url.Values{"agent": {name}})}
	if err := c.json(ctx, k, &list); err != nil {
		return nil, err
	}
	return list, nil
}

// NewAgent makes an agent with a key of its own, sealed if there is a
// passphrase. conch.AgentExists if there is one of that name.
func (c *Client) NewAgent(ctx context.Context, name, passphrase string) (*conch.AgentInfo, error) {
	return c.agentCall(ctx, "", conch.NewAgentRequest{Name: name, Passphrase: passphrase})
}

// ReplaceAgent is NewAgent for a name that has sessions or mail and whose key is
// lost: they are a new identity's from then on. A key that is there stays.
func (c *Client) ReplaceAgent(ctx context.Context, name, passphrase string) (*conch.AgentInfo, error) {
	return c.agentCall(ctx, "", conch.NewAgentRequest{Name: name, Passphrase: passphrase, Replace: true})
}

// UnlockAgent opens an agent's sealed key for as long as the daemon runs, or
// until LockAgent.
func (c *Client) UnlockAgent(ctx context.Context, name, passphrase string) (*conch.AgentInfo, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	return c.agentCall(ctx, "/"+name+"/unlock", conch.PassphraseRequest{Passphrase: passphrase})
}

// LockAgent has the daemon forget a key that it was told the passphrase of.
func (c *Client) LockAgent(ctx context.Context, name string) (*conch.AgentInfo, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	return c.agentCall(ctx, "/"+name+"/lock", struct{}{})
}

// UseAgent makes an agent the one that works wherever nothing else is assigned.
func (c *Client) UseAgent(ctx context.Context, name string) (*conch.AgentInfo, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	return c.agentCall(ctx, "/"+name+"/use", struct{}{})
}

// Assign has an agent work in a harness session, in a project directory
// (absolute) or everywhere, until Unassign.
func (c *Client) Assign(ctx context.Context, name string, to conch.Assignment) (*conch.AgentInfo, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	return c.agentCall(ctx, "/"+name+"/assign", to)
}

// Unassign takes an assignment back and says whether there was one.
func (c *Client) Unassign(ctx context.Context, to conch.Assignment) (removed bool, err error) {
	var r conch.Unassigned
	err = c.json(ctx, call{method: http.MethodPost, url: daemonURL("/agents/unassign", nil), body: to}, &r)
	return r.Removed, err
}

// ExportAgent gives an agent's key as the bytes of a file, which whoever has
// them can work as the agent with. A passphrase seals the copy.
func (c *Client) ExportAgent(ctx context.Context, name, passphrase string) ([]byte, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	var key json.RawMessage
	k := call{method: http.MethodPost, url: daemonURL("/agents/"+name+"/export", nil), body: conch.PassphraseRequest{Passphrase: passphrase}}
	if err := c.json(ctx, k, &key); err != nil {
		return nil, err
	}
	return append(key, '\n'), nil
}

// ImportAgent keeps a key that ExportAgent gave. An empty name leaves it its own.
func (c *Client) ImportAgent(ctx context.Context, key []byte, name string) (*conch.AgentInfo, error) {
	if !json.Valid(key) {
		return nil, conch.Errorf(conch.InvalidKey, "not a usable key file: it is damaged, or something else").
			Hint("conch agent export writes such files; nothing was changed")
	}
	return c.agentCall(ctx, "/import", conch.ImportAgentRequest{Name: name, Key: key})
}

func (c *Client) agentCall(ctx context.Context, path string, body any) (*conch.AgentInfo, error) {
	var info conch.AgentInfo
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/agents"+path, nil), body: body}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// WhoAmI says which agent this client works as, and which session a name (as
// for Exec) means.
func (c *Client) WhoAmI(ctx context.Context, session string) (*conch.WhoAmI, error) {
	name, label, err := c.Resolve(session)
	if err != nil {
		return nil, err
	}
	by := conch.ScopeNamed // in front of the label, unless it is this one
	if mine, how, err := c.Agent(); err == nil && mine == name {
		by = how
	}
	var w conch.WhoAmI
	k := call{method: http.MethodGet, url: daemonURL("/whoami", url.Values{"agent": {name}, "label": {label}})}
	if err := c.json(ctx, k, &w); err != nil {
		return nil, err
	}
	w.ChosenBy = by
	return &w, nil
}
