package conch

import "time"

// A RunStatus is how a run of the auto-responder stands.
type RunStatus string

const (
	RunRunning  RunStatus = "running"
	RunAnswered RunStatus = "answered"
	RunFailed   RunStatus = "failed"  // Reason says how; its messages stay in their inbox
	RunRefused  RunStatus = "refused" // the command was not run, by a rule that Reason names
	RunLost     RunStatus = "lost"    // the daemon died meanwhile, and nobody saw its end
)

// ResponderRequest switches an agent's responder on or off.
type ResponderRequest struct {
	Agent string `json:"agent,omitempty"`
	On    bool   `json:"on"`
}

// ResponderStatus is what `responder status --json` prints.
type ResponderStatus struct {
	Agent   string     `json:"agent"`
	On      bool       `json:"on"`
	Since   *time.Time `json:"since"`   // mail that came before is not answered
	Command string     `json:"command"` // empty: none is configured
	Mail    string     `json:"mail"`    // unclaimed or all
	AfterS  float64    `json:"after_s"`
	// Sandbox says what runs are kept in, or why they are not.
	Sandbox string `json:"sandbox"`
	// Ready says why it would not run: no command, or no sandbox. Empty: it would.
	NotReady string          `json:"not_ready"`
	Pool     int             `json:"pool"`
	Running  int             `json:"running"`
	Waiting  int             `json:"waiting"` // messages that are its to answer, now or when their time comes
	Budget   ResponderBudget `json:"budget"`
	Totals   ResponderTotals `json:"totals"`
	Runs     []ResponderRun  `json:"runs"` // the last, newest first
}

// ResponderBudget is what it may do in any 24 hours. Zero limits are none.
type ResponderBudget struct {
	PerDay  int `json:"per_day"`
	PerPeer int `json:"per_peer"`
	Used    int `json:"used"` // by all agents of the home
	// Over is how many messages wait because of it.
	Over int `json:"over"`
}

// ResponderTotals is what it did for an agent, ever.
type ResponderTotals struct {
	Runs     int     `json:"runs"`
	Answered int     `json:"answered"` // runs
	Failed   int     `json:"failed"`   // and lost
	Refused  int     `json:"refused"`
	Seconds  float64 `json:"seconds"`
	BytesIn  int64   `json:"bytes_in"`
	BytesOut int64   `json:"bytes_out"`
}

// A ResponderRun is one run of the command, or a message for which it was not run.
type ResponderRun struct {
	Run       int64      `json:"run"`
	Status    RunStatus  `json:"status"`
	Reason    string     `json:"reason"`
	From      string     `json:"from"` // agent/label
	To        string     `json:"to"`
	Messages  []string   `json:"messages"`
	Session   string     `json:"session"`    // where it ran, closed since
	CommandID CommandID  `json:"command_id"` // conch output gives what it wrote
	ExitCode  *int       `json:"exit_code"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Seconds   float64    `json:"seconds"`
	BytesIn   int64      `json:"bytes_in"`
	BytesOut  int64      `json:"bytes_out"`
}
