package keeper

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
)

// do runs f as one step of the session: between two rounds of the loop, alone. The
// loop is woken afterwards, since f may have given it something to wait for. It
// reports false, without running f, when the session has ended.
func (k *Keeper) do(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exiting {
		return false
	}
	f()
	k.advance()
	k.stir()
	return true
}

// loop waits for what the session's processes and time bring, until it ends. It
// holds the lock all the while, except when it sleeps.
func (k *Keeper) loop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		k.advance()
		k.polled = k.polls
		k.stir()
		if k.stopping != nil && k.cur == nil && len(k.queue) == 0 {
			k.exiting = true
			k.stopping()
			return
		}
		fds := k.pollBuf[:0]
		fds = append(fds, unix.PollFd{Fd: int32(k.wakeR), Events: unix.POLLIN}, unix.PollFd{Fd: int32(k.alarm.fd), Events: unix.POLLIN})
		if k.sh != nil {
			// An idle shell has nothing to report. Not to wait for it spares
			// the loop a wake with every attended command.
			status := int32(-1)
			if k.attended == nil && k.reports() {
				status = int32(k.sh.StatusFD())
			}
			fds = append(fds, unix.PollFd{Fd: status, Events: unix.POLLIN},
				unix.PollFd{Fd: k.noiseFD(0), Events: unix.POLLIN},
				unix.PollFd{Fd: k.noiseFD(1), Events: unix.POLLIN})
		}
		base := len(fds)
		// A command's streams hang up one after the other just before its end
		// is reported: give that a moment, for one wake instead of three.
		streams, patient := k.streams, k.settle && k.attended == nil
		if patient {
			k.settle, streams = false, nil
		}
		for _, s := range streams {
			fds = append(fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
		}
		away, hangups := len(fds), k.hangups
		for _, h := range hangups {
			fds = append(fds, unix.PollFd{Fd: int32(h.fd)}) // the end is always told
		}
		ck, ckpt := len(fds), k.ckpt
		if k.attended != nil {
			ckpt = nil // the attendant's
		} else if ckpt != nil && ckpt.gathers() {
			ckpt, patient = nil, true
		}
		if ckpt != nil {
			fds = append(fds, unix.PollFd{Fd: int32(k.ckpt.fd), Events: unix.POLLIN})
		}
		k.pollBuf = fds
		sh := k.sh
		k.mu.Unlock()
		err := pollFor(fds, patient)
		k.mu.Lock()
		if err != nil && err != unix.EINTR {
			k.log.Error("poll", "err", err)
		}
		if fds[0].Revents != 0 {
			var b [8]byte
			unix.Read(k.wakeR, b[:])
		}
		if fds[1].Revents != 0 {
			k.alarm.clear()
		}
		// Output first: whatever was written before the shell reported its
		// end is in the pipes by the time the report is.
		for i, s := range streams {
			if fds[base+i].Revents != 0 {
				k.readStream(s, fds[base+i].Revents) // checks that s is still open
			}
		}
		if sh != nil && sh == k.sh {
			if fds[3].Revents != 0 {
				k.readNoise(sh.OutFD(), 0)
			}
			if fds[4].Revents != 0 {
				k.readNoise(sh.ErrFD(), 1)
			}
			if fds[2].Revents != 0 {
				k.readStatus(sh)
			}
		}
		for i, h := range hangups {
			if fds[away+i].Revents != 0 {
				h.gone()
				k.forgetHangup(h)
			}
		}
		if ckpt != nil && k.ckpt == ckpt && fds[ck].Revents != 0 {
			k.readCheckpoint()
		}
		k.onTime(time.Now())
	}
}

// reports reports whether the shell owes a word: that it is ready, or that its
// command has ended.
func (k *Keeper) reports() bool { return !k.ready || k.cur != nil }

// readStatus takes the reports of a shell, as long as it is the shell.
func (k *Keeper) readStatus(sh *shell.Shell) {
	for k.sh == sh && k.reports() {
		end, ok := sh.ReadStatus()
		if !ok {
			return
		}
		k.onEnd(end)
	}
}

// nextDue is when the next thing is due that time alone decides.
func (k *Keeper) nextDue() time.Time {
	next := time.Time{}
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if c := k.cur; c != nil {
		sooner(c.deadline)
		sooner(c.watch)
		if c.ending != nil {
			sooner(c.ending.next)
		}
	}
	for _, c := range k.queue {
		sooner(c.queueLimit)
	}
	if k.ckpt != nil {
		sooner(k.ckpt.limit)
	}
	if k.dirty {
		sooner(k.syncAt)
	}
	sooner(k.trimAt)
	sooner(k.idleDue())
	return next
}

// onTime does what is due.
func (k *Keeper) onTime(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if k.dirty && due(k.syncAt) {
		k.dirty = false
		go func() { // a slow disk must not hold up the session; ends with the sync
			if err := k.tape.Sync(); err != nil {
				k.log.Warn("sync tape", "err", err)
			}
		}()
	}
	if due(k.trimAt) {
		k.trimAt = time.Time{}
		if k.cur == nil && len(k.streams) <= 2 {
			k.wideBuf = nil
			go trim() // ends at once
		}
	}
	if due(k.idleDue()) {
		k.whenIdle(now)
	}
	if k.ckpt != nil && due(k.ckpt.limit) {
		k.checkpointStuck()
	}
	for _, c := range k.queue {
		if due(c.queueLimit) {
			k.queueTimeout(c)
			break // the queue has changed
		}
	}
	c := k.cur
	if c == nil {
		return
	}
	if due(c.deadline) && c.ending == nil {
		k.endCommand(c, byTimeout)
	}
	if c.ending != nil && due(c.ending.next) {
		k.endHarder(c)
	}
	if k.cur == c && due(c.watch) {
		k.watchdog(c, now)
	}
}

// advance starts the next command if nothing stands in the way.
func (k *Keeper) advance() {
	k.clearUp()
	for k.cur == nil && k.ckpt == nil && !k.blocked {
		k.dropTerminal()
		if k.att.holds() {
			k.humanNext()
			k.clearUp()
			continue
		}
		if len(k.queue) == 0 {
			break
		}
		c := k.queue[0]
		k.queue = k.queue[1:]
		k.start(c)
		k.clearUp()
	}
	k.restSlot()
}

// reap collects dead children: the shell, and orphans that came to us.
func (k *Keeper) reap() {
	proc.Reap(func(pid int, ws unixWaitStatus, used syscall.Rusage) {
		for _, p := range k.procs {
			if p.self.PID == pid {
				if !ws.Stopped() {
					k.reaped(p, ws, used)
				}
				return
			}
		}
		if k.box != nil && pid == k.box.PID && !ws.Stopped() {
			k.log.Warn("the sandbox is gone, and all in it", "status", int(ws))
			k.box.PID = 0 // it is not ours to signal any more
			k.closeBox()
			return
		}
		if k.sh == nil || pid != k.sh.PID {
			if !ws.Stopped() {
				delete(k.dying, pid)
			}
			return
		}
		if ws.Stopped() {
			k.shellStopped()
			return
		}
		if ws.Exited() || ws.Signaled() {
			k.onShellDeath(ws)
		}
	})
}

// readNoise takes what the shell wrote outside of commands. It is kept, within
// limits, because an EXIT trap's words end up there.
func (k *Keeper) readNoise(fd, i int) {
	n, err := unix.Read(fd, k.buf)
	if n == 0 && err == nil {
		k.noiseEnd[i] = true // `exec prog`: the shell is prog now
	}
	if n <= 0 {
		return
	}
	if len(k.noise[i])+n <= 64<<10 {
		k.noise[i] = append(k.noise[i], k.buf[:n]...)
	}
}

// noiseFD is the sink to poll, or -1 (which poll skips) once it has ended.
func (k *Keeper) noiseFD(i int) int32 {
	if k.noiseEnd[i] {
		return -1
	}
	return int32([2]int{k.sh.OutFD(), k.sh.ErrFD()}[i])
}

// kinds of the two noises, in order.
var noiseKinds = [2]tape.Kind{tape.Stdout, tape.Stderr}
