package conch

import "encoding/json"

// What the HTTP API asks and answers beyond the nouns of conch.go. Handlers, the
// client and the served description share these types, so that they cannot differ.

// NewRequest asks for a session. Agent defaults to me, Cwd to the parent's
// current directory or, without a parent, the user's home.
type NewRequest struct {
	Label string            `json:"label"`
	Agent string            `json:"agent,omitempty"`
	Cwd   string            `json:"cwd,omitempty"`
	Env   map[string]string `json:"env,omitempty"` // added to the login environment
	// Parent is the label of a session of the same agent.
	Parent     string            `json:"parent,omitempty"`
	InheritEnv bool              `json:"inherit_env,omitempty"` // take the parent's environment too
	RC         bool              `json:"rc,omitempty"`          // load the user's rc file
	Limits     map[string]string `json:"limits,omitempty"`
	// Sandbox keeps all that runs in the session to its starting directory;
	// SandboxAllow are absolute paths that it may read besides.
	Sandbox      bool     `json:"sandbox,omitempty"`
	SandboxAllow []string `json:"sandbox_allow,omitempty"`
}

// Gone says what was ended with a session or its shell.
type Gone struct {
	OK        bool `json:"ok"`
	Processes int  `json:"processes"`
	Verified  bool `json:"verified"` // all were seen gone
	// Unreadable are directories of sessions whose spec.json cannot be read: what ran in
	// them was ended, their files are as they were.
	Unreadable []string `json:"unreadable,omitempty"`
}

// InterruptRequest says what to end; without an id whatever runs.
type InterruptRequest struct {
	CommandID CommandID `json:"command_id,omitempty"`
}

// Interrupted says what an interrupt did.
type Interrupted struct {
	Interrupted bool      `json:"interrupted"` // false: nothing was running
	CommandID   CommandID `json:"command_id,omitempty"`
	Ended       *Ended    `json:"ended,omitempty"`
}

// ExecBody is an ExecRequest on the wire. JSON cannot carry every byte an
// argument can: where Encoding is base64, command, cwd and the values of env
// are so encoded.
type ExecBody struct {
	ExecRequest
	Encoding string `json:"encoding,omitempty"`
}

// StdinOffset is how many bytes a command's stdin has taken so far.
type StdinOffset struct {
	Offset int64 `json:"offset"`
}

// Environment is the exported variables of a session's shell.
type Environment struct {
	Env map[string]string `json:"env"`
}

// PruneRequest says which closed sessions to remove: all of them, unless it
// says less.
type PruneRequest struct {
	OlderThanMS int64 `json:"older_than_ms,omitempty"` // closed at least this long ago
	Keep        int   `json:"keep,omitempty"`          // but not the N closed last
}

// Pruned says what a prune removed.
type Pruned struct {
	Removed   int   `json:"removed"`
	Bytes     int64 `json:"bytes"`
	Processes int   `json:"processes"` // ended ones that are not listed any more
}

// Imported names the session that holds an imported log.
type Imported struct {
	Agent       string `json:"agent"`
	Label       string `json:"label"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	// UnlabelledBytes is what lines without a label have: kept, and in neither stream.
	UnlabelledBytes int64 `json:"unlabelled_bytes"`
}

// VersionInfo says what a daemon is.
type VersionInfo struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

// A Check is one thing the doctor looked at.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// Checkup is the doctor's answer.
type Checkup struct {
	Checks []Check `json:"checks"`
}

// ShutdownRequest says whether sessions are closed before the daemon leaves.
type ShutdownRequest struct {
	All bool `json:"all,omitempty"`
}

// RunBody is a RunRequest on the wire; see ExecBody.
type RunBody struct {
	RunRequest
	Encoding string `json:"encoding,omitempty"`
}

// SignalRequest says what to send to a process and all that it started; without a
// signal they are ended, by TERM first.
type SignalRequest struct {
	Signal string `json:"signal,omitempty"`
}

// Forgotten is how many ended processes were taken off the list.
type Forgotten struct {
	Processes int `json:"processes"`
}

// NewAgentRequest asks for an agent, whose key is sealed with the passphrase if
// there is one.
type NewAgentRequest struct {
	Name       string `json:"name"`
	Passphrase string `json:"passphrase,omitempty"`
	// Replace makes a new identity of a name that has sessions or mail and
	// whose key is lost.
	Replace bool `json:"replace,omitempty"`
}

// ImportAgentRequest keeps an exported key, under its own name or another.
type ImportAgentRequest struct {
	Name string          `json:"name,omitempty"`
	Key  json.RawMessage `json:"key"`
}

// PassphraseRequest carries a passphrase.
type PassphraseRequest struct {
	Passphrase string `json:"passphrase,omitempty"`
}

// Unassigned says whether there was an assignment to take back.
type Unassigned struct {
	Removed bool `json:"removed"`
}
