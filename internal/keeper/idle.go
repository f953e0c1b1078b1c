package keeper

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/sock"
)

// A session that nobody has used for long lets its processes go: its shell and
// this keeper. Its state is in the checkpoint and its output on the tape, so the
// next command brings it back, and says that it was restored.

// idleLook is the longest wait between two looks at a session that was idle long
// enough but for a process or a client.
const idleLook = 10 * time.Minute

// controls are the connections of daemons, and the socket they come to.
type controls struct {
	mu    sync.Mutex // guards all that follows
	l     *net.UnixListener
	conns map[*net.UnixConn]bool
	wg    sync.WaitGroup // those who read them
}

func (c *controls) add(ctl *net.UnixConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[*net.UnixConn]bool{}
	}
	c.conns[ctl] = true
	c.wg.Add(1)
}

func (c *controls) remove(ctl *net.UnixConn) {
	ctl.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, ctl)
	c.wg.Done()
}

// close stops listening.
func (c *controls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.l != nil {
		c.l.Close()
	}
}

// hush makes sure that no connection can be handed to this process any more: no
// daemon can connect, and those that are connected get an error instead. What
// was handed over before is received, and has its own goroutine when this returns.
func (c *controls) hush() {
	c.mu.Lock()
	c.l.Close()
	for ctl := range c.conns {
		ctl.CloseRead()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// idle reports whether nothing of the session needs this process.
func (k *Keeper) idle() bool {
	if k.cur != nil || k.closing != nil || k.ckpt != nil || len(k.queue) > 0 || k.blocked || k.stopping != nil || k.clients.Load() > 0 {
		return false
	}
	if k.state != nil {
		if _, lost := k.state.Names(); len(lost) > 0 {
			return false // an open descriptor, a readonly variable: it would not all come back
		}
	}
	for _, id := range proc.Tree(os.Getpid()) {
		if (k.sh == nil || id.PID != k.sh.PID) && !k.dying[id.PID] {
			return false
		}
	}
	return true
}

// idleDue is when to look whether the session is idle; zero: never.
func (k *Keeper) idleDue() time.Time {
	if k.limits.idle <= 0 || k.cur != nil || k.stopping != nil || k.releasing {
		return time.Time{}
	}
	at := k.lastActive.Add(k.limits.idle)
	if at.Before(k.idleAgain) {
		at = k.idleAgain
	}
	return at
}

// whenIdle lets the session go if it is idle, and looks again later if it is not.
func (k *Keeper) whenIdle(now time.Time) {
	k.idleAgain = now.Add(min(k.limits.idle, idleLook))
	if !k.idle() {
		return
	}
	k.releasing = true
	go k.release() // ends at once, or with the process
}

// release ends the keeper of an idle session, unless a client turns out to have
// been on its way.
func (k *Keeper) release() {
	k.controls.hush()
	k.do(func() {
		if k.idle() {
			k.log.Info("session is idle; letting its shell go", "session", k.spec.ID, "after", k.limits.idle.String())
			k.shutdown(func(proc.Report) {})
			return
		}
		// The daemon finds the socket again by itself.
		l, err := sock.Listen(k.socket)
		if err != nil {
			k.log.Error("cannot listen again", "err", err)
			k.shutdown(func(proc.Report) {})
			return
		}
		k.releasing = false
		go k.serve(l)
	})
}
