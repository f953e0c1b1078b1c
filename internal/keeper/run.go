package keeper

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
)

type unixWaitStatus = syscall.WaitStatus

// watchFirst and watchNext are when the watchdog looks at a running command. A
// wedged driver is thus found within watchFirst + watchNext, a stopped one at once.
const (
	watchFirst = time.Second
	watchNext  = 1500 * time.Millisecond
)

// trimAfter is how long a session is idle before its keeper gives memory back.
const trimAfter = 3 * time.Second

// spare is a pair of FIFOs made ahead of need.
type spare struct{ out, err *stream }

// intact reports whether both FIFOs are still where the shell will look for them.
func (sp *spare) intact() bool { return shell.Linked(sp.out.fd) && shell.Linked(sp.err.fd) }

func (k *Keeper) dropSpare() {
	if k.spare != nil {
		unix.Close(k.spare.out.fd)
		unix.Close(k.spare.err.fd)
		k.spare = nil
	}
}

// makeStreams makes the next command's FIFOs and opens their read ends, so that the
// shell's opening of the write ends never waits.
func (k *Keeper) makeStreams() (*spare, error) {
	sp := &spare{}
	for _, s := range []struct {
		name string
		kind tape.Kind
		dst  **stream
	}{{"o", tape.Stdout, &sp.out}, {"e", tape.Stderr, &sp.err}} {
		path := filepath.Join(k.runDir, s.name)
		fd, err := openFIFO(path, k.clean)
		if os.IsNotExist(err) {
			// The run directory was taken away (a logout, a cleaner).
			if _, err = k.makeRunDir(); err == nil {
				fd, err = openFIFO(path, false)
			}
		}
		if err != nil {
			return nil, storageError(err)
		}
		*s.dst = &stream{fd: fd, kind: s.kind, path: path}
	}
	return sp, nil
}

// openFIFO makes a FIFO, or takes the one that is there if reuse says that nobody
// holds it any more, and opens its read end.
func openFIFO(path string, reuse bool) (int, error) {
	if reuse {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			return fd, nil
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return -1, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return -1, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// start runs c now. It either leaves it in k.cur or finishes it.
func (k *Keeper) start(c *command) {
	k.lastActive = time.Now()
	for name := range c.req.Env {
		if k.state.Readonly()[name] {
			if k.attended == c {
				k.attended = nil
			}
			k.refuse(c, conch.Errorf(conch.InvalidEnv, "%s is readonly in session %s and cannot be set for a command", name, k.spec.Label).
				Hint("leave it out; nothing was run"))
			return
		}
	}
	c.status = conch.StatusRunning
	started := time.Now()
	begin := history.Start{Command: c.req.Command, CommandID: c.id, Session: k.spec.Label, Cwd: c.req.Cwd, Merge: c.req.Merge, TTY: c.tty}
	payload, _ := json.Marshal(begin)
	fault.Point("keeper.before-start")
	// On the tape before it runs: if we die, it is known to have been running.
	at, err := k.record(tape.Frame{Time: started.UnixNano(), Command: c.n, Kind: tape.Start, Data: payload})
	if err != nil {
		if k.attended == c {
			k.attended = nil
		}
		k.refuse(c, storageError(err))
		return
	}
	c.entry = k.index.Open(c.n, begin, started.UTC(), at, k.tape.End())
	k.cur = c
	close(c.began)
	if c.req.TimeoutMS > 0 {
		c.deadline = started.Add(time.Duration(c.req.TimeoutMS) * time.Millisecond)
	}
	k.launch(c)
}

// launch hands the current command to the shell; again after a shell that would
// not take it.
func (k *Keeper) launch(c *command) {
	c.attempt++
	if k.sh != nil && !k.sh.Intact() || k.spare != nil && !k.spare.intact() {
		k.log.Warn("run files were taken away; starting the shell again", "dir", k.runDir)
		k.killShell()
		k.dropSpare()
		c.report = *k.deathReport(true)
	}
	if err := k.ensureShell(c); err != nil {
		k.fail(c, err)
		return
	}
	sp := k.spare
	if c.tty {
		sp = k.att.streams()
	} else if k.spare = nil; sp == nil {
		var err error
		if sp, err = k.makeStreams(); err != nil {
			k.fail(c, err)
			return
		}
	}
	c.out, c.err = sp.out, sp.err
	if !c.tty {
		k.clean = false
	}
	c.out.cmd, c.err.cmd = c, c
	if k.attended == nil && !c.tty {
		k.streams = append(k.streams[:len(k.streams):len(k.streams)], c.out, c.err)
	}
	if k.attended == nil || c.attempt > 1 {
		k.changed()
	}
	if k.ready {
		k.sh.Forget() // a report that comes twice is not the next command's
		if k.trapped {
			// What its traps said after the last command is not this one's.
			k.readNoise(k.sh.OutFD(), 0)
			k.readNoise(k.sh.ErrFD(), 1)
		}
		k.noise = [2][]byte{}
	} // else the mark that ends its starting may be among it

	run := shell.Command{Text: c.req.Command, Stdin: os.DevNull, Stdout: c.out.path, Stderr: c.err.path, Last: k.last, Env: c.req.Env,
		History: k.historyFor(c)}
	if c.req.Merge {
		run.Stderr = ""
	}
	if c.tty {
		run.Stdin, run.Stderr = c.out.path, ""
		run.Both = true
	}
	if c.step != nil {
		if err := k.att.setMode(c.step, k.sh); err != nil {
			k.log.Warn("terminal", "err", err)
		}
	}
	if k.state != nil {
		if c.step == nil {
			run.DebugTrap = k.debugTrap
		}
		run.Rearm = !k.armed
	}
	if c.req.Cwd != "" {
		run.Cwd, run.Back = c.req.Cwd, k.cwd
		if fd, path, err := holdCwd(k.sh.PID); err == nil {
			c.backFD, run.BackFD = fd, path
		}
		if k.state != nil {
			run.OldPwd = k.state.OldPwd()
		}
	}
	if c.stdin != nil {
		if c.attempt > 1 {
			c.stdin.release()
			dropped := c.stdin.dropped
			c.stdin = newStdin(c.req)
			c.stdin.dropped = dropped
		}
		path, err := c.stdin.open(k)
		if err != nil {
			k.fail(c, err)
			return
		}
		run.Stdin = path
	}
	if err := proc.SetMark(k.sh.PID, proc.MakeMark(k.mark, c.n)); err != nil {
		k.log.Warn("cannot mark processes", "err", err)
	}
	c.watch = time.Now().Add(watchFirst)
	c.outside = false
	c.ticks = ticks()
	if err := k.sh.Run(run); err != nil {
		// The shell is going; its death is handled where it is reaped. What
		// is left is a run directory that cannot be written.
		if err != syscall.EPIPE && !isPipeError(err) {
			k.fail(c, storageError(err))
		}
	}
	fault.Point("keeper.after-run")
}

// A stream flows once it has brought this much, and as long as its reads follow each
// other this closely. Then small writes are left to gather for a moment: a frame for
// each would cost more than its bytes.
const (
	flowBytes = 256 << 10
	flowGap   = time.Millisecond
)

// readStream takes what a stream has ready, once.
func (k *Keeper) readStream(s *stream, events int16) {
	if s.fd < 0 {
		return
	}
	buf := k.buf
	if s.wide {
		if k.wideBuf == nil {
			k.wideBuf = make([]byte, widePipe)
		}
		buf = k.wideBuf
	}
	n, err := unix.Read(s.fd, buf)
	switch {
	case n > 0:
		k.take(s, buf[:n])
		if s.bytes < flowBytes || s.fd < 0 {
			return
		}
		if !s.wide {
			s.wide = true
			setPipeSize(s.fd, widePipe) // allowed to fail: there is a limit per user
		}
		now := time.Now()
		k.settle = now.Sub(s.last) < flowGap && n < widePipe/2
		s.last = now
	case n == 0 && events&unix.POLLHUP != 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR:
		s.seen, s.ended = true, true
		k.closeStream(s)
		k.settle = s.cmd == k.cur
	}
}

// widePipe is the size of a pipe that flows, and of the buffer to empty it.
const widePipe = 1 << 20

// take records bytes of a stream.
func (k *Keeper) take(s *stream, b []byte) {
	s.seen = true
	if s.tty {
		k.takeTyped(s, b)
		return
	}
	c := s.cmd
	if c == nil {
		return // a spare that no command has: nobody but a stranger can have written
	}
	if c.failed != nil {
		return // the tape is full: nothing more can be kept, and the caller is told
	}
	if err := k.append(tape.Frame{Time: time.Now().UnixNano(), Command: c.n, Kind: s.kind, Data: b}); err != nil {
		k.log.Error("tape", "err", err)
		if c == k.cur {
			c.failed = storageError(err)
			k.endCommand(c, byStorage)
		} else {
			if c.proc != nil {
				c.failed = storageError(err) // who follows it is told
			}
			k.closeStream(s) // late output of a finished command: its writers get SIGPIPE
		}
		return
	}
	s.bytes += int64(len(b))
	if s.kind == tape.Stdout {
		k.count.Stdout.Add(int64(len(b)))
	} else {
		k.count.Stderr.Add(int64(len(b)))
	}
	if c.proc != nil {
		c.proc.lastOut = time.Now()
		return
	}
	if room := headSize - len(s.head); room > 0 && c.status == conch.StatusRunning {
		s.head = append(s.head, b[:min(room, len(b))]...)
	}
}

func (k *Keeper) closeStream(s *stream) {
	if s.fd < 0 || s.tty { // the session's terminal is closed by the session's end
		return
	}
	unix.Close(s.fd)
	s.fd = -1
	for i, t := range k.streams {
		if t == s {
			// A new slice: the loop may be walking the old one.
			k.streams = append(append(make([]*stream, 0, len(k.streams)), k.streams[:i]...), k.streams[i+1:]...)
			k.changed()
			break
		}
	}
}

// drain takes exactly what is in the pipe now. Reading on until it would block
// has no end when a background process keeps writing.
func (k *Keeper) drain(s *stream) {
	if s.fd < 0 {
		return
	}
	if s.tty {
		k.emptyTerminal(s)
		return
	}
	left, err := unread(s.fd)
	if err != nil {
		left = 0
	}
	for left > 0 {
		n, err := unix.Read(s.fd, k.buf[:min(len(k.buf), left)])
		if n <= 0 || err != nil && err != unix.EINTR {
			break
		}
		left -= n
		k.take(s, k.buf[:n])
	}
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	if n, _ := unix.Poll(p, 0); n > 0 && p[0].Revents&unix.POLLHUP != 0 && p[0].Revents&unix.POLLIN == 0 {
		s.seen, s.ended = true, true
		k.closeStream(s)
	}
}

// opened reports whether the shell opened the stream at all. A stream without
// bytes and without hang-up is either held by a background process or was never
// opened; opening and closing the write end ourselves tells which.
func (k *Keeper) opened(s *stream) bool {
	if s.seen {
		return true
	}
	fd, err := unix.Open(s.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // cannot tell: believe the shell
	}
	unix.Close(fd)
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p, 0)
	// Bytes that came since it was drained say that somebody had it open.
	return !(n > 0 && p[0].Revents&unix.POLLHUP != 0 && p[0].Revents&unix.POLLIN == 0)
}

// onEnd is the shell's word that a command has ended.
func (k *Keeper) onEnd(end shell.End) {
	if !k.ready {
		k.ready = true
		// A command may follow so closely that its EXIT trap has spoken by now.
		for i, fd := range []int{k.sh.OutFD(), k.sh.ErrFD()} {
			k.readNoise(fd, i)
			k.noise[i] = shell.AfterStart(k.noise[i])
		}
		return
	}
	c := k.cur
	if c == nil || c.end != nil {
		return
	}
	k.drain(c.out)
	k.drain(c.err)
	if c.ending == nil && end.Status != 0 && !k.opened(c.out) && k.spoke() {
		// Something keeps the shell from redirecting (set -r, ulimit -n), and
		// it has said so: the command has not run. (That nobody has the
		// stream open is not enough: a background process may just have let
		// go of it.)
		k.notRun(c, "the shell cannot open the command's output")
		return
	}
	fault.Point("keeper.after-end")
	c.end = &end
	if c.ending != nil && !c.ending.gone {
		return // its other processes are still being ended
	}
	k.finishWith(c, end)
}

// spoke reports whether the shell has said something of its own on stderr.
func (k *Keeper) spoke() bool {
	k.readNoise(k.sh.ErrFD(), 1)
	return len(k.noise[1]) > 0
}

// notRun starts the shell again and the command once more.
func (k *Keeper) notRun(c *command, reason string) {
	k.log.Warn("command did not run", "command", c.id, "reason", reason)
	k.closeStream(c.out)
	k.closeStream(c.err)
	noise := string(k.noise[1])
	k.killShell()
	if c.attempt >= 2 {
		k.fail(c, conch.Errorf(conch.ShellFailed, "the shell did not run the command: %s", reason).
			Hint("it said: %.300q; conch reset %s starts a clean one", noise, k.spec.Label))
		return
	}
	k.launch(c)
}

// finishWith makes the result of a command whose end the shell reported.
func (k *Keeper) finishWith(c *command, end shell.End) {
	if c.step != nil {
		k.stepDone(c)
		return
	}
	status := end.Status
	k.last = status
	// A shell that died after its report, while the command's other processes
	// were being ended, starts again where the checkpoint stands.
	if c.req.Cwd == "" && k.sh != nil {
		k.cwd = k.logicalCwd(end.Pwd)
	}
	r := k.newResult(c)
	switch {
	case c.ending == nil:
		r.ExitCode = &status
	case c.ending.why == byInterrupt:
		code := 130
		r.ExitCode, k.last = &code, code
	}
	k.finish(c, r)
}

// logicalCwd believes $PWD if it leads to where the shell really is.
func (k *Keeper) logicalCwd(pwd string) string {
	physical := k.sh.Cwd()
	if physical == "" || pwd == physical {
		return pwd
	}
	var a, b unix.Stat_t
	if filepath.IsAbs(pwd) && k.statPath(pwd, &a) == nil && statCwd(k.sh.PID, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino {
		return pwd
	}
	return physical
}

// newResult fills in what every result has.
func (k *Keeper) newResult(c *command) *conch.Result {
	now := time.Now()
	r := &conch.Result{
		Session: k.spec.Label, CommandID: c.id, Cwd: k.cwd, Encoding: "utf-8",
		StartedAt: c.entry.Started, DurationMS: float64(now.Sub(c.entry.Started)) / float64(time.Millisecond),
		Shell: c.report,
	}
	if c.out != nil {
		r.StdoutBytes, r.StderrBytes = c.out.bytes, c.err.bytes
	}
	if k.pending != nil && c.step == nil {
		r.Shell = mergeReports(*k.pending, r.Shell)
		k.pending = nil
	}
	if r.Shell.Restored == nil {
		r.Shell.Restored = []string{}
	}
	if r.Shell.Lost == nil {
		r.Shell.Lost = []string{}
	}
	if e := c.ending; e != nil {
		r.TimedOut = e.why == byTimeout
		r.Interrupted = e.why == byInterrupt || e.why == byReset
		rep := e.report
		r.Ended = &rep
	}
	return r
}

func mergeReports(a, b conch.ShellReport) conch.ShellReport {
	if b.Restarted {
		return b
	}
	return a
}

// finish completes a command: its state is saved, its result goes on the tape and is
// given out, in this order. Nothing is given out that is not recorded, and nothing is
// recorded as done whose state would be lost with the shell.
func (k *Keeper) finish(c *command, r *conch.Result) {
	if c.step != nil {
		k.stepDone(c)
		return
	}
	r.Background = k.background(c)
	c.result = r
	c.status = conch.StatusDone
	if k.cur == c {
		k.cur = nil
	}
	k.closing = c
	if c.stdin != nil {
		c.stdin.release()
	}
	for _, s := range []*stream{c.out, c.err} {
		// With --merge nobody ever opens the second one.
		if s != nil && s.fd >= 0 && !k.opened(s) {
			s.ended = true
			k.closeStream(s)
		}
	}
	if k.sh != nil && !k.blocked {
		if c.ending != nil {
			k.restoreIntTrap()
		}
		if c.ending != nil || c.backFD > 0 || k.state == nil || !k.judge.Quiet(c.req.Command) {
			k.takeCheckpoint(c.n)
		} else if k.state.Last != k.last {
			k.state.Last = k.last
		}
	}
	k.afterCheckpoint(func() { k.giveOut(c) })
}

// giveOut records a command's result and lets go of those who wait for it.
func (k *Keeper) giveOut(c *command) {
	if k.closing == c {
		k.closing = nil
	}
	r := c.result
	if c.out != nil {
		r.StdoutBytes, r.StderrBytes = c.out.bytes, c.err.bytes // some may have come meanwhile
	}
	if c.unsaved {
		// What it changed went with the shell; all before it is there.
		r.Shell = *k.deathReport(true)
		r.Shell.Lost = append(r.Shell.Lost, "variables")
		k.pending = nil
	}
	ex := &history.Exit{Result: *r}
	b, _ := json.Marshal(ex)
	fault.Point("keeper.before-exit")
	now := time.Now()
	if at, err := k.record(tape.Frame{Time: now.UnixNano(), Command: c.n, Kind: tape.Exit, Data: b}); err == nil {
		k.index.Close(c.entry, ex, now.UTC(), at, k.tape.End())
	} else if c.failed == nil {
		c.failed = storageError(err)
	}
	fault.Point("keeper.after-exit")
	if e := c.ending; e != nil {
		for _, ch := range e.notified {
			ch <- e.report
		}
	}
	if c.backFD > 0 {
		unix.Close(c.backFD)
	}
	if k.attended == c {
		k.leave() // what background processes still write is the loop's
	}
	k.clearUp() // an earlier one's, if nobody came to it
	k.after = c
	if c.tty {
		k.typedDone(c)
	}
	close(c.done)
}

// clearUp gets the session ready for the next command, after the result of the last
// one has been given out: nobody waits for this.
func (k *Keeper) clearUp() {
	c := k.after
	if c == nil {
		return
	}
	k.after = nil
	k.account(c)
	k.lastActive = time.Now()
	k.trimAt = k.lastActive.Add(trimAfter)
	k.index.Forget(k.tape.Oldest())
	if k.sh == nil && c.dead != nil && !k.blocked {
		// The next command should find a shell, and people see one.
		if err := k.ensureShell(&command{}); err != nil {
			k.log.Warn("restart shell", "err", err)
		}
	}
	if k.spare == nil && !k.blocked {
		// Both hung up, so nobody has them open: they serve again.
		k.clean = c.out != nil && c.out.fd < 0 && c.err.fd < 0 && c.out.ended && c.err.ended
		k.spare, _ = k.makeStreams() // tried again, and reported, at the next start
	}
}

// fail ends a command that conch could not run or record.
func (k *Keeper) fail(c *command, err error) {
	if c.failed == nil {
		c.failed = err
	}
	if c.out != nil {
		k.closeStream(c.out)
		k.closeStream(c.err)
	}
	k.finish(c, k.newResult(c))
}

// refuse ends a command that never started.
func (k *Keeper) refuse(c *command, err error) {
	c.failed = err
	c.status = conch.StatusDone
	close(c.began)
	close(c.done)
	k.account(c)
}

// background counts the command's processes that still run.
func (k *Keeper) background(c *command) int {
	if k.watch[1] == nil || k.watch[0] == nil && k.sh != nil {
		return len(k.processes(c))
	}
	shellPID := 0
	if k.sh != nil {
		shellPID = k.sh.PID
		ours := append(k.processPIDs(), shellPID)
		if k.box != nil {
			ours = append(ours, k.box.PID)
		}
		if !k.watch[0].Any() && !k.watch[1].Any(ours...) && (k.watch[2] == nil || !k.watch[2].Any()) {
			return 0
		}
	}
	return len(k.processes(c))
}

// processes finds what a command started and is still there, the shell itself excepted.
func (k *Keeper) processes(c *command) []proc.ID {
	return k.finder(c)()
}

// finder gives a function that finds a command's processes, for use without the lock.
// They carry its mark. One that took its mark off, which `ulimit -R` can do, counts as
// the command's if it is younger.
func (k *Keeper) finder(c *command) func() []proc.ID {
	sh, dying := 0, maps.Clone(k.dying)
	if k.sh != nil {
		sh = k.sh.PID
	}
	m := proc.MakeMark(k.mark, c.n)
	since := c.ticks
	return func() []proc.ID {
		var out []proc.ID
		for _, id := range k.tree() {
			if id.PID == sh || dying[id.PID] {
				continue
			}
			got, ok := proc.MarkOf(id.PID)
			if got == m && ok || !ok && since > 0 && id.Start >= since {
				out = append(out, id)
			}
		}
		return out
	}
}

// now in clock ticks since the machine's start, as processes' ages are given.
func ticks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(clockBoot, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano()) / (1e9 / 100)
}
