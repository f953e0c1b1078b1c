package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/tape"
)

// do hands f to the loop. It reports false when the session has ended.
func (k *Keeper) do(f func()) bool {
	k.mu.Lock()
	if k.exiting {
		k.mu.Unlock()
		return false
	}
	first := len(k.posted) == 0
	k.posted = append(k.posted, f)
	k.mu.Unlock()
	if first {
		var b [1]byte
		unix.Write(k.wakeW, b[:]) // full means it is awake already
	}
	return true
}

// ask runs f on the loop and waits for it.
func (k *Keeper) ask(f func()) bool {
	done := make(chan struct{})
	if !k.do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// loop owns the session until it ends.
func (k *Keeper) loop() {
	for {
		k.advance()
		if k.stopping != nil && k.cur == nil && len(k.queue) == 0 {
			k.mu.Lock()
			k.exiting = true
			rest := k.posted
			k.posted = nil
			k.mu.Unlock()
			for _, f := range rest {
				f()
			}
			k.stopping()
			return
		}
		fds := k.pollBuf[:0]
		fds = append(fds, unix.PollFd{Fd: int32(k.wakeR), Events: unix.POLLIN})
		if k.sh != nil {
			fds = append(fds, unix.PollFd{Fd: int32(k.sh.StatusFD()), Events: unix.POLLIN},
				unix.PollFd{Fd: k.noiseFD(0), Events: unix.POLLIN},
				unix.PollFd{Fd: k.noiseFD(1), Events: unix.POLLIN})
		}
		base := len(fds)
		streams := k.streams
		for _, s := range streams {
			fds = append(fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
		}
		ck := len(fds)
		if k.ckpt != nil {
			fds = append(fds, unix.PollFd{Fd: int32(k.ckpt.fd), Events: unix.POLLIN})
		}
		k.pollBuf = fds
		if _, err := unix.Poll(fds, k.wait()); err != nil && err != unix.EINTR {
			k.log.Error("poll", "err", err)
		}
		sh := k.sh
		// Output first: whatever was written before the shell reported its
		// end is in the pipes by the time the report is.
		for i, s := range streams {
			if fds[base+i].Revents != 0 {
				k.readStream(s, fds[base+i].Revents)
			}
		}
		if sh != nil && base == 4 {
			if fds[2].Revents != 0 {
				k.readNoise(sh.OutFD(), 0)
			}
			if fds[3].Revents != 0 {
				k.readNoise(sh.ErrFD(), 1)
			}
			if fds[1].Revents != 0 {
				for k.sh == sh {
					end, ok := sh.ReadStatus()
					if !ok {
						break
					}
					k.onEnd(end)
				}
			}
		}
		if k.ckpt != nil && ck < len(fds) && fds[ck].Revents != 0 {
			k.readCheckpoint()
		}
		if fds[0].Revents != 0 {
			var b [64]byte
			unix.Read(k.wakeR, b[:])
			k.mu.Lock()
			work := k.posted
			k.posted = nil
			k.mu.Unlock()
			for _, f := range work {
				f()
			}
		}
		k.onTime(time.Now())
	}
}

// wait is how long poll may sleep: until the next thing that time alone decides.
func (k *Keeper) wait() int {
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
	if next.IsZero() {
		return -1
	}
	ms := time.Until(next).Milliseconds() + 1
	return int(min(max(ms, 0), 60_000))
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
	for k.cur == nil && k.ckpt == nil && len(k.queue) > 0 && !k.blocked {
		c := k.queue[0]
		k.queue = k.queue[1:]
		k.start(c)
	}
}

// reap collects dead children: the shell, and orphans that came to us.
func (k *Keeper) reap() {
	proc.Reap(func(pid int, ws unixWaitStatus) {
		if k.sh == nil || pid != k.sh.PID {
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
