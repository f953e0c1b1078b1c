package conch

import "time"

// A Scope is what an agent can be assigned to. ScopeNamed and ScopeDefault are
// no assignments: they say that a caller named its agent, or that nothing did.
type Scope string

const (
	ScopeGlobal  Scope = "global"
	ScopeProject Scope = "project"
	ScopeSession Scope = "session"
	ScopeNamed   Scope = "named"
	ScopeDefault Scope = "default"
)

// An Assignment is one place an agent works in.
type Assignment struct {
	Scope Scope `json:"scope"`
	// Key is the directory of a project, or the harness's id of a session.
	Key string `json:"key,omitempty"`
}

// AgentInfo is one agent as `agent ls --json` lists it. It never holds a secret.
type AgentInfo struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Active: verbs that name no agent, called from where this was asked, mean
	// this one.
	Active    bool         `json:"active"`
	Protected bool         `json:"protected"` // its key is sealed with a passphrase
	Locked    bool         `json:"locked"`    // and the daemon has not been told it
	CreatedAt time.Time    `json:"created_at"`
	Assigned  []Assignment `json:"assigned"`
	// Error says why its key cannot be used.
	Error string `json:"error,omitempty"`
}

// WhoAmI is what `whoami --json` prints.
type WhoAmI struct {
	Agent    string        `json:"agent"`
	Address  string        `json:"address"`
	Label    string        `json:"label"`
	Sessions []SessionInfo `json:"sessions"` // the agent's open ones
	Daemon   DaemonInfo    `json:"daemon"`
	Relay    RelayInfo     `json:"relay"`
	ChosenBy Scope         `json:"chosen_by"` // what decided that it is this agent
}

// DaemonInfo is the daemon's part of WhoAmI.
type DaemonInfo struct {
	PID int `json:"pid"`
	// Mode is auto for a daemon that a client started and that leaves when it
	// is not needed, up for one that stays until it is told to leave, and
	// standalone for one inside an agent's server, which leaves with it.
	Mode string `json:"mode"`
}
