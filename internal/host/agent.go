package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/doctor"
	"github.com/conchsh/conch/internal/session"
)

// agentHere reports whether a name is an agent's, that of the one that is made
// on first use included.
func (h *Host) agentHere(name string) bool {
	return name == conch.DefaultAgent || h.Agents.Known(name)
}

// noAgent is the error for a name that is no agent's.
func (h *Host) noAgent(name string) error {
	_, err := h.Agents.Get(name)
	return err
}

// needAgent makes sure that an agent is there before something is made for it.
// The default one is made now if it must be.
func (h *Host) needAgent(name string) error {
	if h.Agents.Known(name) {
		return nil
	}
	if err := h.keyLost(name); err != nil {
		return err
	}
	if name != conch.DefaultAgent && !h.Agents.Known(name) {
		return h.noAgent(name)
	}
	_, err := h.Agents.New(name, nil, h.vacant)
	if errors.Is(err, conch.AgentExists) {
		return nil // made meanwhile
	}
	return err
}

// NeedSender makes sure that the agent in whose name a message is sent has a key.
func (h *Host) NeedSender(name string) error {
	if name != conch.DefaultAgent {
		return nil // mail looks whether it is there
	}
	return h.needAgent(name)
}

// keyLost is the error for a name that has been somebody, with sessions or sent
// mail, and has no key now: made anew it would silently be somebody else.
func (h *Host) keyLost(name string) error {
	lost := slices.ContainsFunc(h.Store.Sessions(), func(s *session.Session) bool { return s.Agent() == name })
	if !lost {
		senders, err := h.Mail.Senders(context.Background())
		if err != nil {
			return err
		}
		lost = slices.Contains(senders, name)
	}
	// Once more: a key comes before what is made for its agent, and may have
	// been made by another call since the caller looked.
	if !lost || h.Agents.Known(name) {
		return nil
	}
	return conch.Errorf(conch.AgentNotFound, "the key of agent %s is missing, and it has sessions or mail", name).
		Hint("conch agent import FILE brings it back from an export; conch agent new %s --replace makes another identity of the name", name)
}

// vacant refuses an agent's name that is a session's label: an address must
// mean one thing.
func (h *Host) vacant(name string) error {
	owner, ok := h.Store.HasLabel(name)
	if !ok {
		if err := h.uncontacted(name); err != nil {
			return err
		}
		return h.unlabelled(name)
	}
	return conch.Errorf(conch.LabelTaken, "%q is the label of a session of agent %s and cannot be an agent's name", name, owner).
		Hint("choose another name, or end the session: conch close --agent %s %s", owner, name)
}

// FillAgent gives a request that names no agent the one that works everywhere.
func (h *Host) FillAgent(name *string) error {
	if *name != "" {
		return nil
	}
	a, err := h.Agents.Assignments()
	if err != nil {
		return err
	}
	*name, _ = a.Resolve("", "")
	return nil
}

// A Caller says where a request comes from, for deciding which agent it means:
// the one named, else the one assigned to the harness session, to the directory
// or one above it, or globally, else the default.
type Caller struct {
	Agent   string // named by the caller; "": not
	Harness string // the harness's id of its session
	Dir     string // where the caller is
}

func (h *Host) resolve(c Caller) (string, conch.Scope, error) {
	if c.Agent != "" {
		return c.Agent, conch.ScopeNamed, nil
	}
	a, err := h.Agents.Assignments()
	if err != nil {
		return "", "", err
	}
	name, by := a.Resolve(c.Harness, c.Dir)
	return name, by, nil
}

// ListAgents gives all agents, and which of them the caller works as.
func (h *Host) ListAgents(c Caller) ([]conch.AgentInfo, error) {
	lost := h.needAgent(conch.DefaultAgent)
	if lost != nil && !errors.Is(lost, conch.AgentNotFound) {
		return nil, lost
	}
	active, _, err := h.resolve(c)
	if err != nil {
		return nil, err
	}
	a, err := h.Agents.Assignments()
	if err != nil {
		return nil, err
	}
	list := []conch.AgentInfo{}
	if lost != nil {
		list = append(list, h.agentInfo(agent.Info{Name: conch.DefaultAgent, Err: lost}, a, active))
	}
	for _, info := range h.Agents.List() {
		list = append(list, h.agentInfo(info, a, active))
	}
	return list, nil
}

func (h *Host) agentInfo(info agent.Info, a *agent.Assignments, active string) conch.AgentInfo {
	out := conch.AgentInfo{
		Name: info.Name, Address: info.Address, Active: info.Name == active,
		Protected: info.Protected, Locked: h.Agents.Locked(info), CreatedAt: info.CreatedAt, Assigned: a.To(info.Name),
	}
	if info.Err != nil {
		out.Error = info.Err.Error()
	}
	return out
}

// describe is one agent after something was done with it. Active says whether
// it is the one that works everywhere.
func (h *Host) describe(name string) (conch.AgentInfo, error) {
	info, err := h.Agents.Get(name)
	if err != nil {
		return conch.AgentInfo{}, err
	}
	a, err := h.Agents.Assignments()
	if err != nil {
		return conch.AgentInfo{}, err
	}
	active, _ := a.Resolve("", "")
	return h.agentInfo(info, a, active), nil
}

// NewAgent makes an agent. A passphrase seals its key.
func (h *Host) NewAgent(r conch.NewAgentRequest) (conch.AgentInfo, error) {
	if conch.CheckAgent(r.Name) == nil && !r.Replace && !h.Agents.Known(r.Name) {
		if err := h.keyLost(r.Name); err != nil {
			return conch.AgentInfo{}, err
		}
	}
	if _, err := h.Agents.New(r.Name, []byte(r.Passphrase), h.vacant); err != nil {
		return conch.AgentInfo{}, err
	}
	h.Post.Start()
	return h.describe(r.Name)
}

// ImportAgent keeps a key that ExportAgent gave.
func (h *Host) ImportAgent(key []byte, name string) (conch.AgentInfo, error) {
	info, err := h.Agents.Import(key, name, h.vacant)
	if err != nil {
		return conch.AgentInfo{}, err
	}
	h.Post.Start()
	return h.describe(info.Name)
}

// ExportAgent gives an agent's key as a file's bytes, secret and all.
func (h *Host) ExportAgent(name, passphrase string) ([]byte, error) {
	if err := conch.CheckAgent(name); err != nil {
		return nil, err
	}
	if err := h.needAgent(name); err != nil {
		return nil, err
	}
	return h.Agents.Export(name, []byte(passphrase))
}

// UnlockAgent opens a sealed key for as long as the daemon runs.
func (h *Host) UnlockAgent(name, passphrase string) (conch.AgentInfo, error) {
	if err := h.Agents.Unlock(name, []byte(passphrase)); err != nil {
		return conch.AgentInfo{}, err
	}
	h.Post.Start()
	return h.describe(name)
}

// LockAgent forgets a key that was unlocked, and closes the agent's connection to
// its relay: its mail waits there.
func (h *Host) LockAgent(name string) (conch.AgentInfo, error) {
	h.Agents.Lock(name)
	info, err := h.describe(name)
	if err == nil && info.Locked {
		h.Post.Shut(name)
	}
	return info, err
}

// Assign has an agent work somewhere, until Unassign.
func (h *Host) Assign(name string, to conch.Assignment) (conch.AgentInfo, error) {
	if err := conch.CheckAgent(name); err != nil {
		return conch.AgentInfo{}, err
	}
	if err := h.needAgent(name); err != nil {
		return conch.AgentInfo{}, err
	}
	if err := h.Agents.Assign(name, to); err != nil {
		return conch.AgentInfo{}, err
	}
	return h.describe(name)
}

// Unassigned says whether there was something to take back.
type Unassigned = conch.Unassigned

// Unassign takes an assignment back.
func (h *Host) Unassign(to conch.Assignment) (Unassigned, error) {
	removed, err := h.Agents.Unassign(to)
	return Unassigned{Removed: removed}, err
}

// WhoAmI says which agent and session a caller is here.
func (h *Host) WhoAmI(ctx context.Context, c Caller, label string) (conch.WhoAmI, error) {
	name, by, err := h.resolve(c)
	if err != nil {
		return conch.WhoAmI{}, err
	}
	if label == "" {
		label = conch.DefaultLabel
	}
	if err := h.checkName(name, label); err != nil {
		return conch.WhoAmI{}, err
	}
	if err := h.needAgent(name); err != nil {
		return conch.WhoAmI{}, err
	}
	info, err := h.Agents.Get(name)
	if err == nil {
		err = info.Err
	}
	if err != nil {
		return conch.WhoAmI{}, err
	}
	mode := "up"
	switch {
	case h.Auto:
		mode = "auto"
	case h.Inside:
		mode = "standalone"
	}
	return conch.WhoAmI{
		Agent: name, Address: info.Address, Label: label, ChosenBy: by,
		Sessions: slices.DeleteFunc(h.Sessions(ctx), func(s conch.SessionInfo) bool { return s.Agent != name }),
		Daemon:   conch.DaemonInfo{PID: os.Getpid(), Mode: mode},
		Relay:    h.RelayInfo(),
	}, nil
}

// checkAgents is the doctor's look at keys and assignments.
func (h *Host) checkAgents() doctor.Check {
	list := h.Agents.List()
	for _, info := range list {
		if info.Err != nil {
			return doctor.Bad("agents", conch.AsError(info.Err).HintText, "agent %s: %v", info.Name, info.Err)
		}
	}
	a, err := h.Agents.Assignments()
	if err != nil {
		return doctor.Bad("agents", conch.AsError(err).HintText, "%v", err)
	}
	for name := range a.Names() {
		if !h.agentHere(name) {
			return doctor.Bad("agents", "conch agent import brings it back; conch agent unassign takes the assignment back",
				"agent %s is assigned and not here", name)
		}
	}
	somebody, err := h.Mail.Senders(context.Background())
	if err != nil {
		return doctor.Bad("agents", conch.AsError(err).HintText, "%v", err)
	}
	for _, s := range h.Store.Sessions() {
		somebody = append(somebody, s.Agent())
	}
	for _, name := range somebody {
		if _, err := os.Lstat(h.Agents.KeyFile(name)); errors.Is(err, fs.ErrNotExist) {
			return doctor.Bad("agents", fmt.Sprintf("conch agent import FILE brings it back from an export; conch agent new %s --replace, once the daemon was stopped, makes another identity of the name", name),
				"the key of agent %s is missing, and it has sessions or mail", name)
		}
	}
	return doctor.Good("agents", "%d", len(list))
}
