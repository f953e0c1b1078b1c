package keeper

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/route"
)

// limits are what a session may use; each has an error that names it. The
// daemon reads the user's configuration and hands them over as plain numbers.
type limits struct {
	queue     int
	processes int // in the background
	tapeBytes int64
	result    int64         // bytes a stream in one result
	rate      int           // commands a second; 0: any number
	commands  int           // sessions that run something at once, all together; 0: any number
	idle      time.Duration // until the shell is let go; 0: never
}

// The variables that carry them.
const (
	queueVariable    = "CONCH_QUEUE_LIMIT"
	processVariable  = "CONCH_PROCESS_LIMIT"
	tapeVariable     = "CONCH_TAPE_LIMIT"
	resultVariable   = "CONCH_RESULT_LIMIT"
	rateVariable     = "CONCH_COMMAND_RATE"
	commandsVariable = "CONCH_COMMAND_LIMIT"
	idleVariable     = "CONCH_IDLE_RELEASE"
)

// ours reports whether a variable is meant for the keeper and not for the shell.
func ours(name string) bool {
	switch name {
	case fault.Variable, queueVariable, processVariable, tapeVariable, resultVariable, rateVariable, commandsVariable, idleVariable:
		return true
	}
	return false
}

// shellEnv is the environment the daemon gave us, less what is meant for us.
func shellEnv() []string {
	var out []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !ours(name) {
			out = append(out, kv)
		}
	}
	return out
}

func readLimits() limits {
	get := func(name string, def, least int64) int64 {
		if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil && n >= least {
			return n
		}
		return def
	}
	return limits{
		queue:     int(get(queueVariable, 1000, 0)),
		processes: int(get(processVariable, 500, 0)),
		tapeBytes: get(tapeVariable, 4<<30, 1),
		result:    get(resultVariable, 64<<20, 1),
		rate:      int(get(rateVariable, 0, 0)),
		commands:  int(get(commandsVariable, 0, 0)),
		idle:      time.Duration(get(idleVariable, 0, 0)),
	}
}

// raise is the part of a hint that says how a limit is set.
func raise(key, variable string) string {
	return key + " in config.toml (" + variable + ") sets the limit; conch new --limit " + key + "=N for one session"
}

// admit refuses what would wait for itself, and what is over a limit.
func (k *Keeper) admit(c *command) error {
	if err := k.askedByItself(c.peer); err != nil {
		return err
	}
	if k.cur != nil && len(k.queue) >= k.limits.queue {
		if k.limits.queue == 0 {
			return conch.Errorf(conch.SessionBusy, "session %s is running %s and takes no queue", k.spec.Label, k.cur.id).Retry()
		}
		return conch.Errorf(conch.QueueFull, "session %s has %d commands waiting, which is its limit", k.spec.Label, len(k.queue)).
			Hint("conch interrupt -s %s ends what runs; %s", k.spec.Label, raise("queue_limit", queueVariable)).Retry()
	}
	if !k.meter.take(time.Now(), k.limits.rate) {
		return conch.Errorf(conch.LimitReached, "session %s has taken %d commands within a second, which is its limit", k.spec.Label, k.limits.rate).
			Hint("wait a moment; %s", raise("command_rate", rateVariable)).Retry()
	}
	if !k.takeSlot() {
		return conch.Errorf(conch.LimitReached, "%d sessions are running commands, which is the limit for all together; this one was not run", k.limits.commands).
			Hint("conch sessions shows which; command_limit in config.toml (%s) sets the limit", commandsVariable).Retry()
	}
	return nil
}

// checkResult applies the limit on what one result may carry.
func (k *Keeper) checkResult(q *conch.ExecRequest) error {
	if q.MaxOutput > k.limits.result {
		return conch.Errorf(conch.TooLarge, "max_output is %d; the limit is %d bytes a stream", q.MaxOutput, k.limits.result).
			Hint("conch output COMMAND_ID gives the whole stream, however large; %s", raise("result_limit", resultVariable))
	}
	if q.MaxOutput == 0 {
		q.MaxOutput = min(route.DefResult, k.limits.result)
	}
	return nil
}

// A meter counts commands: as many at once as a second may have, and then as
// they become allowed again.
type meter struct {
	left float64
	at   time.Time
}

func (m *meter) take(now time.Time, rate int) bool {
	if rate <= 0 {
		return true
	}
	if m.at.IsZero() {
		m.left = float64(rate)
	} else {
		m.left = min(float64(rate), m.left+now.Sub(m.at).Seconds()*float64(rate))
	}
	m.at = now
	if m.left < 1 {
		return false
	}
	m.left--
	return true
}

// slots is a file of the home, as long as there may be sessions that run
// something: each of them has a byte of it locked. The kernel lets the lock go
// when a keeper dies, so nothing has to be counted back, and no daemon is
// needed. The lock belongs to the process, and the shells it forks do not
// inherit it.
type slots struct {
	f    *os.File
	n    int64
	held int64 // the byte, -1: none
}

func openSlots(home string, n int) (*slots, error) {
	f, err := os.OpenFile(filepath.Join(home, "slots"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &slots{f: f, n: int64(n), held: -1}, nil
}

func (s *slots) lock(kind int16, i int64) error {
	for {
		err := unix.FcntlFlock(s.f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: kind, Start: i, Len: 1})
		if err != unix.EINTR {
			return err
		}
	}
}

// take locks a byte that nobody has. A session that runs keeps the one it has.
func (s *slots) take() bool {
	if s.held >= 0 {
		return true
	}
	first := int64(os.Getpid()) % s.n // so that not all begin at the same one
	for i := range s.n {
		at := (first + i) % s.n
		if s.lock(unix.F_WRLCK, at) == nil {
			s.held = at
			return true
		}
	}
	return false
}

func (s *slots) give() {
	if s.held >= 0 {
		s.lock(unix.F_UNLCK, s.held)
		s.held = -1
	}
}

// takeSlot makes this one of the sessions that run something, until its queue
// is empty: commands that wait in it go on without asking again.
func (k *Keeper) takeSlot() bool { return k.slots == nil || k.slots.take() }

// restSlot gives it back when nothing is left to run.
func (k *Keeper) restSlot() {
	if k.slots != nil && k.cur == nil && k.closing == nil && len(k.queue) == 0 {
		k.slots.give()
	}
}

// cgroup opens the group the daemon made for the session's processes, 0: it
// has none. The caller closes it.
func (k *Keeper) cgroup() (int, error) {
	path, err := os.ReadFile(filepath.Join(k.dir, "cgroup"))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err == nil {
		var fd int
		if fd, err = openDir(strings.TrimSpace(string(path))); err == nil {
			return fd, nil
		}
	}
	return 0, conch.Errorf(conch.ShellFailed, "the limits of session %s cannot be kept: %v", k.spec.Label, err).
		Hint("conch close %s and a new session make the group again", k.spec.Label)
}

func openDir(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
