package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/metrics"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/sandbox"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/tape"
)

// spec is the part of the session's spec.json that the keeper needs. The daemon
// writes it, before the keeper starts.
type spec struct {
	ID    string `json:"id"`
	Agent string `json:"agent"`
	Label string `json:"label"`
	Cwd   string `json:"cwd"`
	RC    bool   `json:"rc"`
	// Sandbox, where given, is around all of the session's processes.
	Sandbox *struct {
		Allow   []string `json:"allow"`
		Network bool     `json:"network"`
	} `json:"sandbox"`
	Created time.Time `json:"created_at"`
}

// record is keeper.json: how the daemon finds the keeper and what it left.
type record struct {
	PID      int    `json:"pid"`
	Start    uint64 `json:"start"`
	Boot     string `json:"boot"`
	Socket   string `json:"socket"`
	RunDir   string `json:"rundir"`
	Mark     uint32 `json:"mark"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

// A Keeper holds one session.
type Keeper struct {
	dir     string
	home    string
	version string
	spec    spec
	log     *slog.Logger
	lock    *os.File
	runDir  string
	bash    string
	mark    uint32 // the session's part of process marks
	limits  limits

	tape  *tape.Tape
	wakeR int // what wakes the loop
	wakeW int
	kickR int // what wakes the attendant
	kickW int
	forks chan func()  // run on the first thread; nil while that opens the session
	conns atomic.Int32 // of clients
	// Requests that are being answered, and a word when one has been.
	answering atomic.Int32
	answered  chan struct{}
	holder    atomic.Int64 // the sandbox's first process, 0: none

	mu         sync.Mutex  // guards all that follows; see do
	polls      uint64      // changes of what must be polled
	polled     uint64      // those the loop knows, or is being told
	kicked     uint64      // those the attendant knows, or is being told
	att        *attachment // nil: nobody ever attached
	attended   *command    // the running command, if its request's thread polls for it
	asleep     bool        // the attendant polls
	after      *command    // a finished command whose traces are still to be cleared up
	alarm      *alarm
	exiting    bool
	index      *history.Index
	next       uint32 // number of the next command
	queue      []*command
	cur        *command
	closing    *command // ended, its state being saved
	sh         *shell.Shell
	dying      map[int]bool // shells that were killed and may not be gone yet
	trapped    bool         // the state has traps, which may speak between commands
	ready      bool         // the shell has reported for the first time
	told       bool         // a result has told of the death of the shell already
	blocked    bool         // a reset or shutdown is under way
	state      *shell.State
	judge      shell.Judge
	ckpt       *checkpoint
	last       int                 // $? for the next command
	cwd        string              // logical directory after the last command
	procs      map[uint32]*process // those that run, by number
	inputs     map[uint32]*stdin   // of those that ended and are listed: what was written to them
	streams    []*stream
	hangups    []*hangup
	settle     bool // a stream of the running command has just ended
	spare      *spare
	clean      bool   // the last command's FIFOs can be used again
	debugTrap  string // what the state says, ready to use
	armed      bool
	noise      [2][]byte // what the shell wrote outside commands since the current one began
	noiseEnd   [2]bool
	watch      [3]*proc.ChildWatch // children of the shell, of this process, of the sandbox's first one
	box        *sandbox.Box        // nil: there is none
	pending    *conch.ShellReport
	lastActive time.Time
	histSynced int       // entries the shell's own history has
	failures   int       // shells in a row that died before doing anything
	trimAt     time.Time // when to give memory back, if nothing happens until then
	dirty      bool
	syncAt     time.Time
	stopping   func() // set: the session ends
	pollBuf    []unix.PollFd
	buf        []byte
	wideBuf    []byte // for streams that flow; given back when idle
	meter      meter
	slots      *slots    // nil: any number of sessions may run
	idleAgain  time.Time // not idle before
	releasing  bool      // being let go for idleness
	watchers   []*watcher
	sighted    sight  // what watchers were last woken for
	touched    uint64 // commands and processes that began, ended or were dropped

	controls controls
	clients  atomic.Int64 // connections of clients
	count    metrics.Session
	socket   string // where daemons connect
}

// NoOrder is what Main returns when it was not told of any session.
const NoOrder = -1

// Main is the process: it opens the session in dir, says so on standard output,
// and returns when the session has ended. It must run on the main thread.
//
// Without dir it waits for an order on standard input, and touches nothing before: it
// may be started when there is no session yet. If there comes none, there is nothing to
// do.
func Main(dir, version string) int {
	// A keeper is idle most of its life and there may be a thousand of them: trade a
	// little work for memory. But not so much that starting needs a collection, whose
	// own books take more than it would find.
	debug.SetGCPercent(75)
	proc.Detach()
	k := &Keeper{version: version, wakeR: -1, wakeW: -1, lastActive: time.Now(), buf: make([]byte, 64<<10), answered: make(chan struct{}, 1),
		dying: map[int]bool{}, procs: map[uint32]*process{}, inputs: map[uint32]*stdin{}}
	k.mu.Lock() // signals wait until there is a session
	k.takeSignals()
	shell := false
	if dir == "" {
		o, ok := await()
		if !ok {
			return NoOrder
		}
		dir, shell = o.Dir, o.Shell
	}
	k.dir, k.home, k.limits, k.log = dir, filepath.Dir(filepath.Dir(dir)), readLimits(), openLog(dir)
	ctl, err := k.open(shell)
	if err != nil {
		k.killShell()
		k.log.Error("keeper cannot start", "err", err)
		b, _ := json.Marshal(conch.AsError(err).Body())
		fmt.Fprintf(os.Stdout, "%s\n", b)
		return 1
	}
	k.forks = make(chan func())
	k.mu.Unlock()
	fmt.Fprintln(os.Stdout, "ready")
	os.Stdout.Close()
	go k.serve(ctl)
	ended := make(chan struct{})
	go func() { k.loop(); close(ended) }()
	// This thread forks: a process's children belong to the thread that made
	// them, and only the first one is sure to live as long as the process and
	// is where the kernel puts orphans.
	for {
		select {
		case f := <-k.forks:
			f()
		case <-ended:
			k.lastWords()
			k.controls.close()
			return 0
		}
	}
}

// An order says which session to keep. The daemon writes it, as one line of JSON.
type order struct {
	Dir string   `json:"dir"`
	Env []string `json:"env"` // for us and the shell; nothing else is
	// Shell: the session is new and a command comes next.
	Shell bool `json:"shell"`
}

// await takes the order, and the environment and the log that come with it. It reports
// false if there is none: who started this process has gone, or wants it no more.
func await() (o order, ok bool) {
	line, err := io.ReadAll(os.Stdin)
	if err != nil || !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &o) != nil {
		return o, false
	}
	os.Clearenv()
	for _, kv := range o.Env {
		name, value, _ := strings.Cut(kv, "=")
		os.Setenv(name, value)
	}
	if f, err := os.OpenFile(filepath.Join(o.Dir, "keeper.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		dupOnto(int(f.Fd()), 2)
		f.Close()
	}
	return o, true
}

// open makes the session's keeper of this process. A shell that is wanted is started
// as soon as it can be, so that bash gets ready while the rest is done. Under mu.
func (k *Keeper) open(shell bool) (*net.UnixListener, error) {
	b, err := os.ReadFile(filepath.Join(k.dir, "spec.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &k.spec); err != nil {
		return nil, fmt.Errorf("spec.json: %w", err)
	}
	if err := k.takeLock(); err != nil {
		return nil, err
	}
	if err := proc.Subreaper(); err != nil {
		k.log.Warn("orphans will not be seen", "err", err)
	}
	if k.bash, err = findBash(); err != nil {
		return nil, err
	}
	if k.runDir, err = k.makeRunDir(); err != nil {
		return nil, err
	}
	if err := k.openBox(); err != nil {
		return nil, err
	}
	if shell {
		k.cwd = k.spec.Cwd
		if err := k.ensureShell(&command{}); err != nil {
			k.log.Warn("start shell", "err", err) // the command that wants it tries again, and says
		}
	}
	if k.wakeR, k.wakeW, err = pipe(); err != nil {
		return nil, err
	}
	if k.kickR, k.kickW, err = pipe(); err != nil {
		return nil, err
	}
	if k.alarm, err = newAlarm(); err != nil {
		return nil, err
	}
	if err := k.openTape(); err != nil {
		return nil, err
	}
	k.loadState()
	if k.state != nil {
		k.learn(k.state)
		k.last, k.cwd = k.state.Last, k.state.Pwd
		// The shell of an earlier keeper is gone; the next result says so.
		k.pending = &conch.ShellReport{}
		k.pending.Restarted = true
		k.pending.Restored, k.pending.Lost = k.state.Names()
		k.state.Jobs = false // told
		if len(k.index.Entries()) > 0 {
			k.pending.Restored = append(k.pending.Restored, "history")
		}
		for _, e := range k.index.Entries() {
			// Completed, but its state could not be saved (a full disk).
			if e.N > k.state.Command && e.Status == conch.StatusDone && !k.judge.Quiet(k.text(e)) {
				k.pending.Lost = append(k.pending.Lost, "variables", "functions", "options")
				break
			}
		}
	} else {
		if k.sh == nil {
			k.cwd = k.spec.Cwd
		}
		for _, e := range k.index.Entries() {
			if e.Status == conch.StatusDone { // it left a state, which is gone or cannot be read
				k.pending = &conch.ShellReport{Restarted: true, Restored: []string{"history"},
					Lost: []string{"cwd", "variables", "functions", "aliases", "options", "traps", "umask"}}
				break
			}
		}
	}
	if k.limits.commands > 0 {
		if k.slots, err = openSlots(k.home, k.limits.commands); err != nil {
			return nil, storageError(err)
		}
	}
	path, err := sock.Path(k.home, k.spec.ID+".sock")
	if err != nil {
		return nil, err
	}
	k.socket = path
	l, err := sock.Listen(path)
	if err != nil {
		return nil, err
	}
	self := proc.Self()
	rec, _ := json.Marshal(record{PID: self.PID, Start: self.Start, Boot: proc.BootID(), Socket: path, RunDir: k.runDir,
		Mark: k.mark, Version: k.version, Protocol: conch.ProtocolVersion})
	tmp := filepath.Join(k.dir, "keeper.json.new")
	if err := os.WriteFile(tmp, rec, 0o600); err != nil {
		return nil, err
	}
	return l, os.Rename(tmp, filepath.Join(k.dir, "keeper.json"))
}

// takeLock proves to everyone, by a lock the kernel lets go at death, that this
// session has a living keeper.
func (k *Keeper) takeLock() error {
	f, err := os.OpenFile(filepath.Join(k.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return conch.Errorf(conch.AlreadyRunning, "session %s already has a keeper", k.spec.Label)
	}
	k.lock = f
	return nil
}

// takeSignals takes hold of every signal that the keeper's starter may have had
// ignored (nohup, a background job of a script): what is caught here is at its
// default in the shell, what is ignored would stay ignored in all it starts. To take
// one costs two threads a wake each, so those that nobody ignores are taken aside.
func (k *Keeper) takeSignals() {
	ch := make(chan os.Signal, 16)
	all := []os.Signal{syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE}
	for _, s := range all {
		if proc.Ignored(s.(syscall.Signal)) {
			signal.Notify(ch, s)
		}
	}
	go func() { // ends with the process
		signal.Notify(ch, all...)
		k.do(k.reap) // a shell that has died before
		for s := range ch {
			switch s {
			case syscall.SIGCHLD:
				k.do(k.reap)
			case syscall.SIGTERM:
				k.do(func() { k.shutdown(func(proc.Report) {}) })
			}
		}
	}()
}

// bashPaths are where bash is. On macOS the system's own is too old: 3.2.
func bashPaths() []string {
	if runtime.GOOS == "darwin" {
		return []string{"/opt/homebrew/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash", "/bin/bash"}
	}
	return []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash"}
}

// findBash looks in places of the system, never in the user's PATH.
func findBash() (string, error) {
	for _, p := range bashPaths() {
		if fi, err := os.Stat(p); err == nil && fi.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", conch.Errorf(conch.Unsupported, "no bash on this machine").Hint("install bash 4.4 or newer; conch looks for %s", strings.Join(bashPaths(), ", "))
}

// makeRunDir makes the private directory for FIFOs and the command file, in
// memory if it can be.
func (k *Keeper) makeRunDir() (string, error) {
	for tries := 0; ; tries++ {
		mem, err := sock.MemoryDir(k.home)
		dir := filepath.Join(mem, k.spec.ID)
		if err != nil {
			dir = filepath.Join(k.home, "run", k.spec.ID+".d")
		}
		err = os.Mkdir(dir, 0o700)
		if os.IsNotExist(err) && tries < 10 {
			continue // the last session of the home just took it away
		}
		if err != nil && !os.IsExist(err) {
			return "", err
		}
		return dir, nil
	}
}

func (k *Keeper) statePath() string { return filepath.Join(k.dir, "checkpoint") }

// openTape opens the record, indexes it, and closes what an earlier keeper left open.
func (k *Keeper) openTape() error {
	t, err := tape.Open(filepath.Join(k.dir, "tape"), tape.Options{MaxBytes: k.limits.tapeBytes})
	if err != nil {
		return storageError(err)
	}
	k.tape = t
	r := t.NewReader(t.Oldest())
	defer r.Close()
	if k.index, err = history.Scan(r, k.spec.ID, k.spec.Label); err != nil {
		k.log.Warn("tape", "err", err)
	}
	k.index.Touched = k.touch
	for _, e := range k.index.Running() {
		if err := k.append(history.LostExit(k.index, e)); err != nil {
			return storageError(err)
		}
	}
	k.next = k.index.Last() + 1
	// Every keeper of a session marks its processes alike, so that a sweep
	// after its death finds those of every life.
	k.mark = markOf(k.home, k.spec.ID)
	return nil
}

// loadState takes the last checkpoint that a recorded command left. One whose command
// was lost holds changes that nobody was told of; the one before it does not.
func (k *Keeper) loadState() {
	for _, path := range []string{k.statePath(), shell.Previous(k.statePath())} {
		st, err := shell.Load(path)
		if err != nil {
			k.log.Warn("checkpoint is unreadable", "err", err)
		}
		if st == nil {
			continue
		}
		if e := k.index.Get(st.Command); e != nil && e.Status == conch.StatusLost {
			continue
		}
		k.state = st
		return
	}
}

// markOf makes the 32 bits of a session's process marks from its home and its id:
// a home that was restored from another's backup has sessions with the same ids,
// and their processes are not to be taken for each other's.
func markOf(home, id string) uint32 {
	h := fnv.New32a()
	io.WriteString(h, home+"\x00"+id)
	return h.Sum32()
}

// append puts a frame on the tape and into the index.
func (k *Keeper) append(f tape.Frame) error {
	at, err := k.record(f)
	if err == nil {
		k.index.Add(f, len(f.Data), at, k.tape.End())
	}
	return err
}

// record puts a frame on the tape, to be synced within a second.
func (k *Keeper) record(f tape.Frame) (tape.Cursor, error) {
	at, err := k.tape.Append(f)
	if err == nil && !k.dirty {
		k.dirty = true
		k.syncAt = time.Now().Add(time.Second)
	}
	return at, err
}

// storageError says which limit was reached.
func storageError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return conch.Errorf(conch.StorageFull, "the disk under the session's tape is full").
			Hint("free space or run conch prune; what was recorded so far is kept").Retry()
	}
	return err
}

// serve takes control connections of daemons and serves the client connections
// that arrive over them. It ends when the listener is closed.
func (k *Keeper) serve(l *net.UnixListener) {
	ended := k.controls.listen(l)
	defer ended()
	control := k.control(k.handler())
	for {
		ctl, err := l.AcceptUnix()
		if err != nil {
			return
		}
		control(ctl)
	}
}

// control gives a function that takes over a daemon's connection.
func (k *Keeper) control(h http.Handler) func(*net.UnixConn) {
	return func(ctl *net.UnixConn) {
		if pid, uid, err := sock.PeerCred(ctl); err != nil || uid != os.Getuid() || sock.Confined(pid) {
			ctl.Close()
			return
		}
		k.controls.add(ctl)
		go func() { // ends with the daemon, or when the keeper lets go
			defer k.controls.remove(ctl)
			for {
				c, err := sock.Receive(ctl)
				if err != nil {
					if !errors.Is(err, io.EOF) {
						k.log.Warn("control connection", "err", err)
					}
					return
				}
				k.clients.Add(1)
				go func() { // ends with the connection
					defer k.clients.Add(-1)
					k.serveConn(c, h)
				}()
			}
		}()
	}
}
