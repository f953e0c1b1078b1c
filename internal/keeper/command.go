package keeper

import (
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
)

// A command is one run in the shell, from the moment it is accepted. Its fields
// belong to the loop until done is closed; after that they do not change.
//
//	queued ──start──▶ running ──finish──▶ done
//	   └───────────interrupted, refused──────▲
type command struct {
	n        uint32
	id       conch.CommandID
	req      conch.ExecRequest
	queuedAt time.Time
	peer     int // pid of the client, 0 unknown

	status   conch.Status
	entry    *history.Entry // once started
	out, err *stream
	stdin    *stdin
	proc     *process // set: it runs in the background
	tty      bool     // it runs on the session's terminal
	step     *step    // set: it is no command but our own doing on the terminal
	attempt  int
	ticks    uint64 // when it began, see ticks
	report   conch.ShellReport

	queueLimit time.Time // zero: none
	deadline   time.Time // zero: none
	watch      time.Time // next look of the watchdog
	outside    bool      // it stood outside at the last look

	backFD  int                 // the directory to go back to after a command with its own
	ending  *ending             // set once something decided that it must end
	end     *shell.End          // the shell's report, kept while ending is under way
	dead    *syscall.WaitStatus // how its shell ended, if it did
	unsaved bool                // its shell died before its state was saved
	wedged  bool                // nobody saw how it ended

	// What the command leaves behind, valid after done.
	result *conch.Result
	failed error         // it could not be run or not be recorded
	began  chan struct{} // closed when it starts, or is done without starting
	done   chan struct{}
}

// A stream is one of a command's two outputs. It outlives the command while
// background processes hold its other end.
type stream struct {
	fd    int
	kind  tape.Kind
	cmd   *command
	path  string
	bytes int64
	head  []byte // the first bytes, so that small results need no reading back
	wide  bool   // the pipe was widened
	last  time.Time
	ended bool // its last writer has gone
	seen  bool // somebody wrote to it or closed it: it had been opened
	tty   bool // the session's terminal, which outlives every command
}

// headSize is what is kept of each stream in memory.
const headSize = 32 << 10

// An ending is the state of getting rid of a command.
type ending struct {
	why      why
	gone     bool // its processes were seen gone
	report   conch.Ended
	next     time.Time // when to try something harder on the shell itself
	hard     int       // how hard it was tried
	notified []chan conch.Ended
}

type why int

const (
	byTimeout why = iota + 1
	byInterrupt
	byStorage
	byReset
	byDetach
)
