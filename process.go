package conch

import (
	"strings"
	"time"
)

// A ProcessID names a process for ever and everywhere. A process is a command
// that runs beside the session's shell instead of in it, and is numbered with the
// session's commands: what can be asked of a command by its id (its output, its
// events) can be asked of a process.
type ProcessID = CommandID

// ProcessStatus is where a process stands. The moves are starting → running →
// exited, killed or failed.
type ProcessStatus string

const (
	ProcessStarting ProcessStatus = "starting"
	ProcessRunning  ProcessStatus = "running"
	ProcessExited   ProcessStatus = "exited" // with an exit code
	ProcessKilled   ProcessStatus = "killed" // by a signal
	ProcessFailed   ProcessStatus = "failed" // nobody saw how it ended: its keeper died
)

// Ended reports whether the process will not run any more.
func (s ProcessStatus) Ended() bool { return s != ProcessStarting && s != ProcessRunning }

// CheckProcessName refuses what cannot be the name of a process, or could be
// taken for an id.
func CheckProcessName(s string) error {
	_, _, id := CommandID(s).cut()
	if !of(letters+digits+"_.:-", s, 64) || id || strings.Trim(s, ".") == "" {
		return Errorf(InvalidRequest, "%q is not a process name", s).
			Hint("a name is 1 to 64 characters of A-Z a-z 0-9 _ . : - and does not look like an id")
	}
	return nil
}

// A RunRequest starts a command in the background, in the session's current state
// (directory, variables, functions, options), which it does not change.
type RunRequest struct {
	Command string `json:"command"`
	// Name is a handle for people. No two processes that run in a session
	// have the same.
	Name string `json:"name,omitempty"`
	// Cwd and Env are instead of, and on top of, the session's.
	Cwd string            `json:"cwd,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// NoStdin gives it an empty stdin instead of one that can be written to.
	NoStdin bool `json:"no_stdin,omitempty"`
	// TTY runs it on a terminal of its own, of this size. What it writes, also
	// to stderr, is its stdout then.
	TTY  bool `json:"tty,omitempty"`
	Cols int  `json:"cols,omitempty"`
	Rows int  `json:"rows,omitempty"`
	// Notify is the address of a mailbox: a label, or agent/label. A message is
	// put there when the process ends, and with NotifyLog, a regular expression,
	// when its output first matches.
	Notify    string `json:"notify,omitempty"`
	NotifyLog string `json:"notify_log,omitempty"`
}

// A Process is one background command, as `ps --json` lists it.
type Process struct {
	ProcessID ProcessID     `json:"process_id"`
	Name      string        `json:"name"`
	Agent     string        `json:"agent"`
	Session   string        `json:"session"`
	Command   string        `json:"command"`
	Status    ProcessStatus `json:"status"`
	PID       int           `json:"pid"`
	ExitCode  *int          `json:"exit_code"`
	Signal    *string       `json:"signal"`
	StartedAt time.Time     `json:"started_at"`
	EndedAt   *time.Time    `json:"ended_at"`
	Cwd       string        `json:"cwd"` // where it started
	TTY       bool          `json:"tty"` // it has a terminal of its own
	// Processes counts those of its tree that are there, also after its own end.
	Processes   int   `json:"processes"`
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// CPUMS is the processor time used, PeakMemory the most memory any one of
	// its processes had, in bytes; of a small and short one 0, for not known.
	// While it runs: as of now, of what is there.
	CPUMS      float64 `json:"cpu_ms"`
	PeakMemory int64   `json:"peak_memory_bytes"`
	// Memory is what all of its processes have in memory now; 0 when it has ended.
	Memory int64 `json:"memory_bytes"`
	// Error says what could not be kept of it, such as output on a full disk.
	Error string `json:"error,omitempty"`
	// Notify is who is told of its end, NotifyLog what else they are told of.
	Notify    string `json:"notify,omitempty"`
	NotifyLog string `json:"notify_log,omitempty"`
}

// Conditions a wait can end by.
const (
	WaitExit    = "exit"    // the process ended, which was waited for
	WaitLog     = "log"     // the expression matched
	WaitPort    = "port"    // the port takes connections
	WaitHTTP    = "http"    // the address answered as wished
	WaitIdle    = "idle"    // it wrote nothing for the time
	WaitEnded   = "ended"   // the process ended before what was waited for
	WaitTimeout = "timeout" // nothing of it until the deadline
)

// A WaitRequest waits for the first of several things. With none of them it waits
// for the end of the process.
type WaitRequest struct {
	Exit bool `json:"exit,omitempty"`
	// Log is a regular expression (RE2; ^ and $ are a line's), looked for in
	// all that was written so far and then in what comes. Stream is stdout,
	// stderr, or empty for either.
	Log    string `json:"log,omitempty"`
	Stream string `json:"stream,omitempty"`
	// Port is on this machine. A listener that was there before the process
	// and does not belong to it does not count.
	Port int `json:"port,omitempty"`
	// HTTP is an address to GET; HTTPStatus what it must answer, 0 for
	// anything below 400.
	HTTP       string `json:"http,omitempty"`
	HTTPStatus int    `json:"http_status,omitempty"`
	IdleMS     int64  `json:"idle_ms,omitempty"`
	TimeoutMS  int64  `json:"timeout_ms,omitempty"`
}

// A WaitResult says which of them happened.
type WaitResult struct {
	Reason  string  `json:"reason"`
	Match   *Match  `json:"match,omitempty"`
	Detail  string  `json:"detail,omitempty"` // in words, what was last seen
	Elapsed float64 `json:"elapsed_ms"`
	Process Process `json:"process"`
}

// A Match is where a log expression was found.
type Match struct {
	Stream string `json:"stream"`
	Offset int64  `json:"offset"` // of the match, in its stream
	Text   string `json:"text"`   // what matched
	Line   string `json:"line"`   // the line it begins in
	Cursor uint64 `json:"cursor"` // of the output that completed it
}

// LogPage is a piece of a process's output, as `logs --json` prints it.
type LogPage struct {
	ProcessID ProcessID     `json:"process_id"`
	Status    ProcessStatus `json:"status"`
	Stdout    string        `json:"stdout"`
	Stderr    string        `json:"stderr"`
	Encoding  string        `json:"encoding"`
	// Cursor is given as since to go on; More says that there is more now.
	Cursor uint64 `json:"cursor"`
	More   bool   `json:"more"`
	// Error says what of it could not be kept.
	Error string `json:"error,omitempty"`
}

// Killed is what ending or signalling a process took.
type Killed struct {
	Ended
	Process Process `json:"process"`
}
