package keeper

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
)

// A process is a command that runs beside the shell, in a bash of its own begun from
// the session's state. What it shares with commands is its number, its record, its
// streams and its stdin; it is never in the queue and never the current one.
//
//	running ──reaped──▶ exited or killed
//	   └──keeper dies──▶ failed (written by the next keeper, or by the sweep)
type process struct {
	*command
	name    string
	self    proc.ID
	gate    *os.File // the process waits for a byte on it, and dies of its end
	lastOut time.Time
	tty     *terminal // nil: it has none
	// The kernel counts the forking keeper's memory into a child's peak: what is not
	// above this says nothing.
	floor int64
}

// keepEnded is how many ended processes of a session stay listed.
const keepEnded = 1000

// termLadder ends a process that was told to go: asked first.
var termLadder = []proc.Step{
	{Signal: syscall.SIGTERM, Wait: 5 * time.Second},
	{Signal: syscall.SIGKILL, Wait: 5 * time.Second},
}

// postRun starts a process and answers when it is on record.
func (k *Keeper) postRun(w http.ResponseWriter, r *http.Request) {
	q, err := decodeRun(w, r)
	if err != nil {
		sendError(w, err)
		return
	}
	if q.Notify != "" && r.Header.Get(route.ByDaemon) == "" {
		sendError(w, conch.Errorf(conch.InvalidRequest, "nobody would be told of its end: this connection goes past the daemon").
			Hint("start it on a connection that has asked nothing of the session yet"))
		return
	}
	if gone(r) {
		return
	}
	var p *process
	started := make(chan struct{})
	ok := k.do(func() {
		// The state of a command that has just ended may still be on its way.
		k.afterCheckpoint(func() { p, err = k.spawn(q); close(started) })
	})
	if !ok {
		sendError(w, k.closedError())
		return
	}
	<-started
	if err != nil {
		sendError(w, err)
		return
	}
	// On disk before it runs: whatever happens to the machine, it is known.
	fault.Point("keeper.before-process")
	if err := k.tape.Sync(); err != nil {
		k.log.Warn("sync tape", "err", err)
	}
	p.release()
	fault.Point("keeper.after-process")
	var out conch.Process
	k.do(func() { out = k.describeProcess(p.entry) })
	sendJSON(w, out)
}

func decodeRun(w http.ResponseWriter, r *http.Request) (conch.RunRequest, error) {
	var body conch.RunBody
	if err := route.Decode(w, r, route.MaxExecBody, false, &body); err != nil {
		return body.RunRequest, err
	}
	q := body.RunRequest
	if err := decodeText(body.Encoding, &q.Command, &q.Cwd, q.Env); err != nil {
		return q, err
	}
	if q.Name != "" {
		if err := conch.CheckProcessName(q.Name); err != nil {
			return q, err
		}
	}
	if err := checkTerminal(&q); err != nil {
		return q, err
	}
	return q, checkExec(&conch.ExecRequest{Command: q.Command, Cwd: q.Cwd, Env: q.Env})
}

// spawn forks the process. It waits, before anything of the user's has run, for
// release.
func (k *Keeper) spawn(q conch.RunRequest) (*process, error) {
	if k.blocked {
		return nil, conch.Errorf(conch.SessionBusy, "session %s is being reset or closed", k.spec.Label).Retry()
	}
	if len(k.procs) >= k.limits.processes {
		return nil, conch.Errorf(conch.LimitReached, "session %s has %d processes running, which is its limit", k.spec.Label, len(k.procs)).
			Hint("conch kill ends one; %s", raise("process_limit", processVariable)).Retry()
	}
	for _, p := range k.procs {
		if q.Name != "" && p.name == q.Name {
			return nil, conch.Errorf(conch.NameTaken, "session %s already runs a process named %s (%s)", k.spec.Label, q.Name, p.id).
				Hint("conch kill %s ends it", p.id)
		}
	}
	for name := range q.Env {
		if k.state.Readonly()[name] {
			return nil, conch.Errorf(conch.InvalidEnv, "%s is readonly in session %s and cannot be set for a process", name, k.spec.Label)
		}
	}
	cwd := q.Cwd
	if cwd == "" {
		cwd = k.cwd
	} else if !filepath.IsAbs(cwd) {
		cwd = filepath.Join(k.cwd, cwd)
	}
	if err := k.needBox(); err != nil {
		return nil, err
	}
	if err := k.checkDir(cwd); err != nil && q.Cwd == "" {
		// In another directory it would do to that what was meant for this.
		return nil, conch.Errorf(conch.InvalidRequest, "the session's directory is gone: %v", err).
			Hint("--cwd DIR starts it elsewhere; conch exec -s %s 'cd DIR' moves the session", k.spec.Label)
	} else if err != nil {
		return nil, conch.Errorf(conch.InvalidRequest, "cannot start there: %v", err)
	}

	c := &command{n: k.next, req: conch.ExecRequest{Command: q.Command, Cwd: q.Cwd, Env: q.Env, OpenStdin: !q.NoStdin},
		queuedAt: time.Now(), status: conch.StatusRunning, began: make(chan struct{}), done: make(chan struct{})}
	c.id = conch.NewCommandID(k.spec.ID, c.n)
	close(c.began)
	p := &process{command: c, name: q.Name}
	c.proc = p
	prog := shell.Program{Text: q.Command, Cwd: cwd, Env: shellEnv(), State: k.state, Extra: q.Env}
	if k.spec.RC {
		if home := os.Getenv("HOME"); home != "" {
			prog.RC = filepath.Join(home, ".bashrc")
		}
	}
	if q.TTY {
		if err := k.openTerminal(p, q, &prog); err != nil {
			return nil, err
		}
	}
	if err := k.fork(p, prog); err != nil {
		if p.tty != nil {
			p.tty.pty.Close()
		}
		return nil, err
	}
	k.next++
	begin := history.Start{Command: q.Command, CommandID: c.id, Session: k.spec.Label, Cwd: q.Cwd,
		Process: &history.Process{Name: q.Name, PID: p.self.PID, Cwd: cwd, Notify: q.Notify, NotifyLog: q.NotifyLog}}
	if q.TTY {
		begin.Process.Terminal = &conch.TerminalSize{Cols: q.Cols, Rows: q.Rows}
	}
	payload, _ := json.Marshal(begin)
	started := time.Now()
	at, err := k.record(tape.Frame{Time: started.UnixNano(), Command: c.n, Kind: tape.Start, Data: payload})
	if err != nil {
		p.gate.Close() // nothing has run, and nothing will
		unix.Close(c.out.fd)
		if p.tty != nil {
			p.tty.pty.CloseSlave()
		} else {
			unix.Close(c.err.fd)
		}
		if c.stdin != nil {
			c.stdin.file.Close()
		}
		return nil, storageError(err)
	}
	c.entry = k.index.Open(c.n, begin, started.UTC(), at, k.tape.End())
	p.lastOut = started
	k.procs[c.n] = p
	k.streams = append(k.streams[:len(k.streams):len(k.streams)], c.out)
	if p.tty != nil {
		go k.followScreen(p, *c.entry) // ends with the process
	} else {
		k.streams = append(k.streams, c.err)
	}
	k.lastActive = started
	k.forgetEnded(keepEnded)
	k.changed()
	return p, nil
}

// fork makes the process, its streams and its stdin.
func (k *Keeper) fork(p *process, prog shell.Program) (err error) {
	argv, env, script := prog.Launch()
	var fds []int // to be closed if it fails; those of the child in any case
	defer func() {
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}()
	pair := func() (r, w int, err error) {
		if r, w, err = pipe(); err == nil {
			fds = append(fds, r, w)
		}
		return r, w, err
	}
	var outR, outW, errR, errW, inR, inW int
	if p.tty == nil {
		if outR, outW, err = pair(); err != nil {
			return err
		}
		if errR, errW, err = pair(); err != nil {
			return err
		}
	}
	gateR, gateW, err := pair()
	if err != nil {
		return err
	}
	scr, err := k.scriptFile(script)
	if err != nil {
		return storageError(err)
	}
	defer scr.Close()
	switch {
	case p.tty != nil:
		slave := p.tty.pty.Slave
		inR, outW, errW = slave, slave, slave
	case p.req.OpenStdin:
		inR, inW, err = pair()
	default:
		inR, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		fds = append(fds, inR)
	}
	if err != nil {
		return err
	}
	for _, fd := range []int{inR, outW, errW, gateR} { // our own ends never block
		if err := unix.SetNonblock(fd, false); err != nil {
			return err
		}
	}
	group, err := k.cgroup()
	if err != nil {
		return err
	}
	if group > 0 {
		defer unix.Close(group)
	}
	attr := shell.Attributes(group)
	attr.Setctty = p.tty != nil // its stdin is
	mark := proc.MakeMark(k.mark, p.n)
	_, p.floor, _ = proc.Usage(os.Getpid())
	var pid int
	k.onFirstThread(func() {
		// A child has its parent's mark from its first instant; one put on
		// afterwards might come after its own children. The first thread forks
		// nothing else meanwhile.
		if err := proc.SetMark(os.Getpid(), mark); err != nil {
			k.log.Warn("cannot mark processes", "err", err)
		}
		pid, err = k.forkExec(k.bash, argv, &syscall.ProcAttr{
			Dir: prog.Cwd, Env: env, Files: []uintptr{uintptr(inR), uintptr(outW), uintptr(errW), scr.Fd(), uintptr(gateR)},
			Sys: attr,
		})
		_ = proc.SetMark(os.Getpid(), 0)
	})
	if err != nil {
		return conch.Errorf(conch.ShellFailed, "the process could not be started: %v", err).Retry()
	}
	unix.Close(gateR)
	if p.tty == nil {
		for _, fd := range []int{inR, outW, errW} {
			unix.Close(fd)
		}
	}
	if k.sh != nil {
		proc.CopyLimits(k.sh.PID, pid) // what `ulimit` in the session says
	}
	p.self, _ = proc.Lookup(pid)
	p.self.PID = pid
	p.gate = os.NewFile(uintptr(gateW), "gate")
	if p.tty != nil {
		p.useTerminal()
		p.stdin.count = &k.count.Stdin
		return nil
	}
	p.out = &stream{fd: outR, kind: tape.Stdout, cmd: p.command}
	p.err = &stream{fd: errR, kind: tape.Stderr, cmd: p.command}
	if p.req.OpenStdin {
		p.stdin = pipeStdin(os.NewFile(uintptr(inW), "stdin"))
		p.stdin.count = &k.count.Stdin
	}
	return nil
}

// scriptFile is a file without a name that holds a process's first script.
func (k *Keeper) scriptFile(script []byte) (*os.File, error) {
	if _, err := os.Stat(k.runDir); err != nil { // taken away, as some systems do at logout
		if _, err := k.makeRunDir(); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(k.runDir, "p")
	os.Remove(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(path)
	defer f.Close()
	if _, err = f.Write(script); err != nil {
		return nil, err
	}
	return os.Open(path) // its reader cannot write to it
}

// release lets the process begin.
func (p *process) release() {
	p.gate.Write([]byte("\n"))
	p.gate.Close()
}

// reaped is the end of a process: what it wrote is in its pipes, and is taken before
// the end goes on the tape.
func (k *Keeper) reaped(p *process, ws syscall.WaitStatus, used syscall.Rusage) {
	if p.tty != nil {
		k.drainTerminal(p)
	} else {
		k.drain(p.out)
		k.drain(p.err)
	}
	res := conch.Result{Session: k.spec.Label, CommandID: p.id, Cwd: p.entry.Process.Cwd, Encoding: "utf-8",
		StartedAt: p.entry.Started, DurationMS: float64(time.Since(p.entry.Started)) / 1e6,
		StdoutBytes: p.out.bytes, StderrBytes: p.err.bytes,
		Shell: conch.ShellReport{Restored: []string{}, Lost: []string{}}}
	if ws.Signaled() {
		name := proc.SignalName(ws.Signal())
		res.Signal = &name // and no exit code: the kernel gave none
	} else {
		code := ws.ExitStatus()
		res.ExitCode = &code
	}
	ex := &history.Exit{Result: res, Error: errorText(p.failed), Used: &history.Used{
		CPUMS: float64(used.Utime.Nano()+used.Stime.Nano()) / 1e6, PeakMemory: p.peakOf(used)}}
	b, _ := json.Marshal(ex)
	now := time.Now()
	fault.Point("keeper.before-process-exit")
	at, err := k.record(tape.Frame{Time: now.UnixNano(), Command: p.n, Kind: tape.Exit, Data: b})
	if err != nil {
		k.log.Error("tape", "err", err)
		if p.failed == nil {
			p.failed = storageError(err)
		}
	}
	k.index.Close(p.entry, ex, now.UTC(), at, k.tape.End())
	p.status, p.result = conch.StatusDone, &ex.Result
	if p.stdin != nil {
		p.stdin.shut()
		k.inputs[p.n] = p.stdin
	}
	delete(k.procs, p.n)
	k.lastActive = now
	k.trimAt = now.Add(trimAfter)
	close(p.done)
	k.accountProcess(p, ex)
	k.forgetEnded(keepEnded)
}

// peakOf is the most memory of an ended process, 0 if that cannot be told.
func (p *process) peakOf(used syscall.Rusage) int64 {
	if m := peakMemory(used); m > p.floor+p.floor/8 {
		return m
	}
	return 0
}

// errorText is what the record says of output that could not be kept.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return "its output is not whole: " + err.Error()
}

// forgetEnded takes the oldest ended processes off the list, so that at most keep stay.
// Their output stays on the tape.
func (k *Keeper) forgetEnded(keep int) (forgotten int) {
	if len(k.index.Processes()) <= keep {
		return 0
	}
	// One that left something running can still be ended by its id.
	busy := map[uint32]bool{}
	for _, id := range k.tree() {
		if m, ok := proc.MarkOf(id.PID); ok {
			busy[m.Command()] = true
		}
	}
	var ended []uint32
	for _, e := range k.index.Processes() {
		if e.Exit != nil && !busy[e.N] {
			ended = append(ended, e.N)
		}
	}
	if len(ended) <= keep {
		return 0
	}
	ended = ended[:len(ended)-keep]
	for _, n := range ended {
		delete(k.inputs, n)
	}
	b, _ := json.Marshal(history.Forgotten{Processes: ended})
	if err := k.append(tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Note, Data: b}); err != nil {
		k.log.Warn("tape", "err", err)
		return 0
	}
	return len(ended)
}

// treeOf finds the processes with any of the given marks.
func (k *Keeper) treeOf(ns ...uint32) []proc.ID {
	marks := make([]proc.Mark, len(ns))
	for i, n := range ns {
		marks[i] = proc.MakeMark(k.mark, n)
	}
	var out []proc.ID
	for _, id := range k.tree() {
		if m, ok := proc.MarkOf(id.PID); ok && slices.Contains(marks, m) {
			out = append(out, id)
		}
	}
	return out
}

// processPIDs are the running processes' own pids.
func (k *Keeper) processPIDs() []int {
	if len(k.procs) == 0 {
		return nil
	}
	var out []int
	for _, p := range k.procs {
		out = append(out, p.self.PID)
	}
	return out
}

// processNumbers are the running processes' numbers.
func (k *Keeper) processNumbers() []uint32 { return slices.Collect(maps.Keys(k.procs)) }

// describeProcess is a process as it stands now.
func (k *Keeper) describeProcess(e *history.Entry) conch.Process {
	return k.describeLive(e, k.treeOf(e.N))
}

func (k *Keeper) describeLive(e *history.Entry, tree []proc.ID) conch.Process {
	d := k.index.DescribeProcess(e, k.spec.Agent, k.longText)
	d.Processes = len(tree)
	if e.Exit == nil {
		for _, id := range tree {
			cpu, peak, now := proc.Usage(id.PID)
			d.CPUMS += float64(cpu) / 1e6
			d.Memory += now
			d.PeakMemory = max(d.PeakMemory, peak)
		}
	}
	return d
}

// findProcess looks a process up by its id; live is nil when it has ended.
func (k *Keeper) findProcess(id conch.ProcessID) (e history.Entry, live *process, err error) {
	n, err := k.find(id)
	if err != nil {
		return e, nil, err
	}
	ok := k.do(func() {
		p := k.index.Get(n)
		if p == nil || p.Process == nil {
			err = conch.Errorf(conch.ProcessNotFound, "no process %s in session %s", id, k.spec.Label).Hint("conch ps lists them")
			return
		}
		e, live = *p, k.procs[n]
	})
	if !ok {
		err = k.closedError()
	}
	return e, live, err
}

func (k *Keeper) getProcesses(w http.ResponseWriter, r *http.Request) {
	list := []conch.Process{}
	ok := k.do(func() {
		trees := map[uint32][]proc.ID{}
		for _, id := range k.tree() {
			if m, ok := proc.MarkOf(id.PID); ok && m.Session() == proc.MakeMark(k.mark, 0).Session() {
				trees[m.Command()] = append(trees[m.Command()], id)
			}
		}
		for _, e := range k.index.Processes() {
			list = append(list, k.describeLive(e, trees[e.N]))
		}
	})
	if !ok {
		sendError(w, k.closedError())
		return
	}
	sendJSON(w, list)
}

func (k *Keeper) getProcess(w http.ResponseWriter, r *http.Request) {
	e, _, err := k.findProcess(conch.ProcessID(r.PathValue("id")))
	if err != nil {
		sendError(w, err)
		return
	}
	k.sendProcess(w, e.N)
}

func (k *Keeper) sendProcess(w http.ResponseWriter, n uint32) {
	d, err := k.process(n)
	if err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, d)
}

// process describes a process as of now.
func (k *Keeper) process(n uint32) (d conch.Process, err error) {
	ok := k.do(func() {
		if e := k.index.Get(n); e != nil && e.Process != nil {
			d = k.describeProcess(e)
		} else {
			err = conch.Errorf(conch.ProcessNotFound, "process %s is not listed any more", conch.NewCommandID(k.spec.ID, n))
		}
	})
	if !ok {
		err = k.closedError()
	}
	return d, err
}

// postForget takes ended processes off the list.
func (k *Keeper) postForget(w http.ResponseWriter, r *http.Request) {
	n := 0
	if !k.do(func() { n = k.forgetEnded(0) }) {
		sendError(w, k.closedError())
		return
	}
	sendJSON(w, conch.Forgotten{Processes: n})
}

// postSignal ends a process and all it started, or sends one signal to them.
func (k *Keeper) postSignal(w http.ResponseWriter, r *http.Request) {
	var body conch.SignalRequest
	if err := route.Decode(w, r, route.MaxBody, true, &body); err != nil {
		sendError(w, err)
		return
	}
	e, live, err := k.findProcess(conch.ProcessID(r.PathValue("id")))
	if err != nil {
		sendError(w, err)
		return
	}
	find := func() []proc.ID { return k.treeOf(e.N) }
	var out conch.Killed
	switch sig, serr := proc.ParseSignal(body.Signal); {
	case body.Signal == "":
		out.Ended = ended(proc.End(context.Background(), find, termLadder))
	case serr != nil:
		err = conch.Errorf(conch.InvalidRequest, "%v", serr).Hint("signals are names such as TERM or SIGUSR1, or numbers")
	case sig == syscall.SIGKILL:
		out.Ended = ended(proc.End(context.Background(), find, []proc.Step{{Signal: sig, Wait: 5 * time.Second}}))
	default:
		out.Ended, err = k.signal(find, sig)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	if out.Verified && live != nil {
		<-live.done // it is gone, so its end is on its way
	}
	if out.Process, err = k.process(e.N); err != nil {
		sendError(w, err)
		return
	}
	if body.Signal != "" && out.Ended.Processes == 0 {
		sendError(w, conch.Errorf(conch.ProcessEnded, "process %s has ended and left nothing to signal", out.Process.ProcessID).
			Hint("conch ps shows how it ended"))
		return
	}
	sendJSON(w, out)
}

func ended(rep proc.Report) conch.Ended {
	return conch.Ended{Signal: rep.Signal, Processes: rep.Processes, Verified: rep.Verified}
}

// signal sends one signal to every process of a tree, those that are forked meanwhile
// included.
func (k *Keeper) signal(find func() []proc.ID, sig syscall.Signal) (conch.Ended, error) {
	out := conch.Ended{Signal: proc.SignalName(sig)}
	had := map[proc.ID]bool{}
	for more := true; more; {
		more = false
		for _, id := range find() {
			if had[id] {
				continue
			}
			had[id] = true
			if err := proc.Signal(id, sig); err == nil {
				out.Processes++
				more = true
			} else if err == syscall.EPERM {
				return out, conch.Errorf(conch.PermissionDenied, "process %d may not be signalled: it runs as another user", id.PID)
			}
		}
		if sig == 0 {
			break
		}
	}
	return out, nil
}
