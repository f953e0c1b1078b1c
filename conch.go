// Package conch holds the nouns every part of conch shares: labels, ids, a
// command and its result, a session and its state, and the kinds of error.
// It imports only the standard library and starts nothing.
//
// The structs with json tags are the product's contract (what `--json` prints
// and what the HTTP API carries); a field may be added, never renamed.
package conch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ProtocolVersion is spoken by clients, the daemon and keepers. A change that
// an older peer would misread raises it.
const ProtocolVersion = 1

// OldestProtocol is the oldest protocol that is still understood. Keepers outlive
// daemons: a new daemon finds those that older ones started, and what it asks of
// one must be in that one's protocol. A call that is younger than this is asked
// only of peers that have it, or its failure is expected (Session.Stats).
const OldestProtocol = 1

// Speaks reports whether this conch can talk to a peer of a protocol. A newer one
// says by its number that it would be misread.
func Speaks(protocol int) bool { return protocol >= OldestProtocol && protocol <= ProtocolVersion }

// DefaultLabel is the session used when neither -s nor $CONCH_SESSION names one.
const DefaultLabel = "main"

// DefaultAgent is the agent made on first use.
const DefaultAgent = "me"

// What names are made of. Regular expressions would say it shorter, and each keeper
// and each call would compile them all before it begins.
const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// of reports whether s has 1 to most bytes and all are in set.
func of(set, s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, set) == ""
}

// CheckLabel refuses anything that is not a session label. Labels are checked
// wherever they enter and never repaired.
func CheckLabel(s string) error {
	if !of(letters+digits+"_:-", s, 32) {
		return Errorf(InvalidLabel, "%q is not a session label", s).
			Hint("a label is 1 to 32 characters of A-Z a-z 0-9 _ : -")
	}
	return nil
}

// CheckAgent refuses anything that is not an agent name.
func CheckAgent(s string) error {
	if !of(lower+digits+"-", s, 32) || s[0] == '-' {
		return Errorf(InvalidAgent, "%q is not an agent name", s).
			Hint("a name is 1 to 32 characters of a-z 0-9 -, not starting with -")
	}
	return nil
}

// CheckEnvName refuses what cannot be the name of an environment variable.
func CheckEnvName(s string) error {
	if !of(letters+digits+"_", s, len(s)) || s[0] <= '9' {
		return Errorf(InvalidEnv, "%q is not an environment variable name", s).
			Hint("a name is letters, digits and _, not starting with a digit: -e NAME=VALUE")
	}
	return nil
}

// A CommandID names one command for ever and everywhere: the id of its session,
// a dash, and its number in that session. Ids are compared whole.
type CommandID string

// NewCommandID joins a session id and the command's number.
func NewCommandID(session string, n uint32) CommandID {
	return CommandID(fmt.Sprintf("%s-%d", session, n))
}

// cut gives the two halves of what looks like an id.
func (id CommandID) cut() (session, n string, ok bool) {
	session, n, ok = strings.Cut(string(id), "-")
	return session, n, ok && len(session) == 8 && of(lower+"234567", session, 8) && of(digits, n, 10) && n[0] != '0'
}

// Split gives the session id and number of an id, or an error for anything
// that NewCommandID did not make.
func (id CommandID) Split() (session string, n uint32, err error) {
	session, num, ok := id.cut()
	if !ok {
		return "", 0, Errorf(CommandNotFound, "%q is not a command id", string(id)).
			Hint("ids look like k3f5x2ab-17; conch history lists them")
	}
	v, err := strconv.ParseUint(num, 10, 32)
	if err != nil {
		return "", 0, Errorf(CommandNotFound, "%q is not a command id", string(id))
	}
	return session, uint32(v), nil
}

// Status is where a command stands. The moves are queued → running → done or
// lost, and queued → done (interrupted while waiting).
type Status string

const (
	StatusQueued  Status = "queued"
	StatusRunning Status = "running"
	StatusDone    Status = "done"
	StatusLost    Status = "lost"
)

// An ExecRequest asks a session to run one command in its shell.
type ExecRequest struct {
	Command string `json:"command"`
	// Timeout limits the command from its start, QueueTimeout the waiting
	// before it. Zero: no limit. Milliseconds.
	TimeoutMS      int64 `json:"timeout_ms,omitempty"`
	QueueTimeoutMS int64 `json:"queue_timeout_ms,omitempty"`
	// Cwd and Env apply to this command only.
	Cwd string            `json:"cwd,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// Stdin is given whole. OpenStdin keeps the command's stdin open for
	// POST …/commands/{id}/stdin instead.
	Stdin     []byte `json:"stdin,omitempty"`
	OpenStdin bool   `json:"open_stdin,omitempty"`
	// Merge sends stderr into stdout, in exact order.
	Merge bool `json:"merge,omitempty"`
	// MaxOutput limits the bytes of each stream in the result (not on the
	// tape): first and last half. 0: 1 MiB.
	MaxOutput int64 `json:"max_output,omitempty"`
}

// Omitted says which bytes of a stream a result leaves out.
type Omitted struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// ShellReport says what became of the shell during a command.
type ShellReport struct {
	Restarted bool     `json:"restarted"`
	Restored  []string `json:"restored"`
	Lost      []string `json:"lost"`
}

// A Result is what was observed of a command. ExitCode is nil where nobody saw one.
type Result struct {
	Session       string      `json:"session"`
	CommandID     CommandID   `json:"command_id"`
	ExitCode      *int        `json:"exit_code"`
	Signal        *string     `json:"signal"`
	Stdout        string      `json:"stdout"`
	Stderr        string      `json:"stderr"`
	Encoding      string      `json:"encoding"` // "utf-8" or "base64", for both streams
	StdoutBytes   int64       `json:"stdout_bytes"`
	StderrBytes   int64       `json:"stderr_bytes"`
	Truncated     bool        `json:"truncated"`
	TimedOut      bool        `json:"timed_out"`
	Interrupted   bool        `json:"interrupted"`
	StdoutOmitted *Omitted    `json:"stdout_omitted"`
	StderrOmitted *Omitted    `json:"stderr_omitted"`
	Background    int         `json:"background"`
	Shell         ShellReport `json:"shell"`
	Cwd           string      `json:"cwd"`
	DurationMS    float64     `json:"duration_ms"`
	StartedAt     time.Time   `json:"started_at"`
	// Ended says what it took to end a timed-out or interrupted command:
	// the last signal used, how many processes, and whether all were seen gone.
	Ended *Ended `json:"ended,omitempty"`
}

// Ended reports the signal ladder.
type Ended struct {
	Signal    string `json:"signal"`
	Processes int    `json:"processes"`
	Verified  bool   `json:"verified"`
}

// An Event is one line of `exec --jsonl` and one server-sent event. Exit events
// carry the fields of the result less the streams (see ExitEvent).
type Event struct {
	Type      string    `json:"type"` // start, stdout, stderr, exit
	Seq       uint64    `json:"seq"`
	T         float64   `json:"t"` // seconds since the command's start
	Data      string    `json:"data,omitempty"`
	Encoding  string    `json:"encoding,omitempty"`
	Session   string    `json:"session,omitempty"`
	CommandID CommandID `json:"command_id,omitempty"`
	Command   string    `json:"command,omitempty"` // of start, where all of a session is followed
}

// HistoryEntry is one command of a session, oldest first in lists.
type HistoryEntry struct {
	CommandID   CommandID  `json:"command_id"`
	Session     string     `json:"session"`
	Command     string     `json:"command"`
	Status      Status     `json:"status"`
	ExitCode    *int       `json:"exit_code"`
	Signal      *string    `json:"signal"`
	TimedOut    bool       `json:"timed_out"`
	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
	StdoutBytes int64      `json:"stdout_bytes"`
	StderrBytes int64      `json:"stderr_bytes"`
	Interrupted bool       `json:"interrupted"`
	Restarted   bool       `json:"restarted"` // the shell was replaced in the end
	// Position is the place in the queue, from 1; 0 when not queued.
	Position int `json:"position,omitempty"`
}

// SessionInfo is one session as `sessions --json` lists it.
type SessionInfo struct {
	Agent      string    `json:"agent"`
	Label      string    `json:"label"`
	Live       bool      `json:"live"`
	Busy       bool      `json:"busy"`
	Cwd        string    `json:"cwd"`
	ShellPID   int       `json:"shell_pid"`  // 0: not started
	KeeperPID  int       `json:"keeper_pid"` // 0: not running
	Queue      int       `json:"queue"`
	StartedAt  time.Time `json:"started_at"`
	LastActive time.Time `json:"last_active"`
	ID         string    `json:"id"`
	Running    CommandID `json:"running,omitempty"`
	Command    string    `json:"command,omitempty"` // what is running
	// LastCommand is what was run last and has ended, LastOutcome how: done (with
	// status 0), failed, timed_out, interrupted or lost. Empty: not known.
	LastCommand string `json:"last_command,omitempty"`
	LastOutcome string `json:"last_outcome,omitempty"`
	TapeBytes   int64  `json:"tape_bytes"`
	Processes   int    `json:"processes"` // running in the background
	Attached    int    `json:"attached"`  // people who hold the prompt
	Mail        int    `json:"mail"`      // messages in its inbox that nobody is done with
	Sandbox     bool   `json:"sandbox"`
}

// A SessionChange is what has changed in a session, with the session as it is now.
type SessionChange struct {
	Session SessionInfo `json:"session"`
	// Commands and Processes are those that began or ended; of a command's text the
	// first 1,000 bytes.
	Commands  []HistoryEntry `json:"commands"`
	Processes []Process      `json:"processes"`
	// Queue is what waits now, the first 100 of it.
	Queue []HistoryEntry `json:"queue"`
	// Forgotten are processes that are not listed any more.
	Forgotten []ProcessID `json:"forgotten"`
	// Missed says that more has changed than is told here.
	Missed bool `json:"missed"`
}

// Watching is the first event of a stream of all changes. A reader that went on
// from an event and is not Resumed has missed something: it looks at everything anew.
type Watching struct {
	Resumed bool `json:"resumed"`
}

// SessionGone names a session that is not listed any more.
type SessionGone struct {
	Agent string `json:"agent"`
	Label string `json:"label"`
}

// StatusInfo is what `status --json` prints.
type StatusInfo struct {
	Version   string    `json:"version"`
	DaemonPID int       `json:"daemon_pid"`
	Home      string    `json:"home"`
	UptimeS   float64   `json:"uptime_s"`
	Sessions  int       `json:"sessions"`
	Processes int       `json:"processes"`
	Relay     RelayInfo `json:"relay"`
	UIURL     *string   `json:"ui_url"`
	// Listen is where the network is served, null: nowhere.
	Listen *ListenInfo `json:"listen"`
	// ListenError is why it is not, although the configuration says where.
	ListenError string `json:"listen_error,omitempty"`
}

// RelayInfo is the relay's part of StatusInfo.
type RelayInfo struct {
	Mode      string  `json:"mode"`
	URL       *string `json:"url"`
	Connected bool    `json:"connected"`
}
