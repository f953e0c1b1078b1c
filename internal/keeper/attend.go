package keeper

import (
	"net/http"

	"golang.org/x/sys/unix"
)

// A command whose client waits for the whole result is attended: the request's own
// thread polls the shell's report and the command's streams, so that from request to
// response no work changes threads. Whatever else the session has to watch stays
// with the loop, and so does the command when its client leaves early. The two never
// poll the same descriptor; Keeper.attended says whose they are.

// attend waits for c, which has just started, on this thread. It reports false if the
// client has gone; the command goes on with the loop.
func (k *Keeper) attend(r *http.Request, c *command) bool {
	w, _ := r.Context().Value(wireKey{}).(*wire)
	var fds [6]unix.PollFd
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settle = true // most commands are over in a moment: one wake, for their end
	for k.attended == c {
		sh := k.sh
		brief := k.settle
		k.settle = false
		fds = [6]unix.PollFd{{Fd: int32(k.kickR), Events: unix.POLLIN}, {Fd: int32(w.fd)}, {Fd: -1}, {Fd: -1}, {Fd: -1}, {Fd: -1}}
		ckpt := k.ckpt
		if ckpt != nil {
			if brief = ckpt.gathers(); !brief {
				fds[5] = unix.PollFd{Fd: int32(ckpt.fd), Events: unix.POLLIN}
			}
		}
		if sh != nil {
			fds[2] = unix.PollFd{Fd: int32(sh.StatusFD()), Events: unix.POLLIN}
		}
		out, errs := c.out, c.err
		if !brief {
			fds[3] = unix.PollFd{Fd: int32(out.fd), Events: unix.POLLIN}
			fds[4] = unix.PollFd{Fd: int32(errs.fd), Events: unix.POLLIN}
		}
		k.kicked = k.polls
		k.asleep = true
		k.mu.Unlock()
		err := pollFor(fds[:], brief)
		k.mu.Lock()
		k.asleep = false
		if err != nil && err != unix.EINTR {
			k.log.Error("poll", "err", err)
		}
		if fds[0].Revents != 0 {
			var b [8]byte
			unix.Read(k.kickR, b[:])
		}
		if fds[3].Revents != 0 {
			k.readStream(out, fds[3].Revents)
		}
		if fds[4].Revents != 0 {
			k.readStream(errs, fds[4].Revents)
		}
		if fds[2].Revents != 0 {
			k.readStatus(sh)
		}
		if fds[5].Revents != 0 && k.ckpt == ckpt {
			k.readCheckpoint()
		}
		if fds[1].Revents != 0 && k.attended == c {
			k.leave()
			k.stir()
			return false
		}
		k.stir()
	}
	return true
}

// leave gives the attended command to the loop.
func (k *Keeper) leave() {
	c := k.attended
	if c == nil {
		return
	}
	k.attended = nil
	if k.asleep {
		unix.Write(k.kickW, []byte{0})
	}
	// A command that ended with all it started leaves the loop nothing to do: the
	// request's thread clears up when the answer is on its way.
	quiet := k.cur == nil && k.ckpt == nil && k.stopping == nil && len(k.queue) == 0 && !k.att.holds()
	for _, s := range []*stream{c.out, c.err} {
		if s != nil && s.fd >= 0 {
			k.streams = append(k.streams[:len(k.streams):len(k.streams)], s)
			quiet = false
		}
	}
	if !quiet {
		k.changed()
	}
}

// stir wakes those whose descriptors have changed since they went to sleep, and sets
// the alarm. It ends every step that is not the sleeper's own.
func (k *Keeper) stir() {
	k.alarm.set(k.nextDue())
	b := [1]byte{}
	if k.polled != k.polls {
		k.polled = k.polls
		unix.Write(k.wakeW, b[:])
	}
	if k.attended != nil && k.asleep && k.kicked != k.polls {
		k.kicked = k.polls
		unix.Write(k.kickW, b[:])
	}
	if len(k.watchers) > 0 {
		k.tellWatchers()
	}
}

// changed takes note that what must be polled is not what is polled.
func (k *Keeper) changed() { k.polls++ }
