package keeper

import (
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	ended chan struct{} // closed when nobody accepts from l any more
	conns map[*net.UnixConn]bool
	used  bool           // a daemon has connected
	wg    sync.WaitGroup // those who read conns
}

// listen makes l the socket; whoever accepts from it calls the function when through.
func (c *controls) listen(l *net.UnixListener) (ended func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	c.l, c.ended = l, done
	return func() { close(done) }
}

func (c *controls) add(ctl *net.UnixConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[*net.UnixConn]bool{}
	}
	c.conns[ctl], c.used = true, true
	c.wg.Add(1)
}

func (c *controls) remove(ctl *net.UnixConn) {
	ctl.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, ctl)
	c.wg.Done()
}

// known reports whether a daemon has ever connected. Before that somebody is about
// to, who started this process to hand something to it.
func (c *controls) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
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
func (c *controls) hush(path string, take func(*net.UnixConn)) {
	c.mu.Lock()
	l, ended := c.l, c.ended
	c.mu.Unlock()
	// First nobody finds the socket. Then those who found it before are
	// accepted, also the ones that wait in the backlog, and may have sent
	// something already: closing the socket would throw that away.
	os.Remove(path)
	for _, ctl := range backlog(l) {
		take(ctl)
	}
	l.Close()
	<-ended
	c.mu.Lock()
	for ctl := range c.conns {
		ctl.CloseRead()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// backlog accepts what waits in front of a socket, and waits for nothing.
func backlog(l *net.UnixListener) []*net.UnixConn {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil
	}
	var list []*net.UnixConn
	raw.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Accept(int(fd))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			unix.CloseOnExec(n)
			f := os.NewFile(uintptr(n), "control")
			c, err := net.FileConn(f)
			f.Close()
			if u, ok := c.(*net.UnixConn); err == nil && ok {
				list = append(list, u)
			}
		}
	})
	return list
}

// idle reports whether nothing of the session needs this process.
func (k *Keeper) idle() bool {
	if k.cur != nil || k.closing != nil || k.ckpt != nil || len(k.queue) > 0 || k.blocked || k.stopping != nil || k.clients.Load() > int64(len(k.watchers)) || !k.controls.known() {
		return false
	}
	if k.state != nil {
		if _, lost := k.state.Names(); len(lost) > 0 {
			return false // an open descriptor, a readonly variable: it would not all come back
		}
	}
	for _, id := range k.tree() {
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
	k.controls.hush(k.socket, k.control(k.handler()))
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
