package sock

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// silentLimit is how long a fresh connection may say nothing, unless
	// Listener.Silence says otherwise.
	silentLimit = 10 * time.Second
	// peekSize is what is looked at of a request's first line: enough for
	// every method and session path; a query may be longer and is not needed.
	peekSize = 4096
	// acceptPause is the wait after a failed accept (no descriptors left):
	// the connection stays in the backlog meanwhile.
	acceptPause = 50 * time.Millisecond
)

// A Listener sorts fresh connections by their first request line before an
// http.Server sees them. The line is peeked at, not read: who gets the
// connection, gets all of it.
//
// Connections of other users are answered with Refusal and closed. Silent
// ones are dropped after 10 s. Nothing a client does or leaves undone holds
// up the others: each is looked at by its own goroutine, which ends with the
// decision, the limit, or Close.
type Listener struct {
	l     *net.UnixListener
	route func(reqLine string, c *net.UnixConn) bool
	// Refusal is sent to a peer of another user: a whole HTTP response. Set
	// it before the first Accept.
	Refusal []byte
	// Sandboxed is sent to a peer in a sandbox, in the same way.
	Sandboxed []byte
	// Limit bounds the connections that are being decided on or were given
	// out; 0: none. Those above it are answered with Crowded.
	Limit   int
	Crowded []byte
	// Silence replaces the 10 s.
	Silence time.Duration
	// Rewrite is given what is written to a connection with one Write, and may
	// change it.
	Rewrite func(p []byte) []byte

	ready chan *net.UnixConn
	done  chan struct{}
	wg    sync.WaitGroup
	stop  sync.Once
	uid   int

	mu       sync.Mutex
	started  bool
	err      error // why accepting ended
	deciding map[*net.UnixConn]bool
	held     int // deciding, or given out and not closed
}

// NewListener sorts what l accepts. route is asked with the first request line
// (without its end; cut at 4 KiB, see ParseLine) and says true when it took
// the connection, which is then its own to close. It may block: only that
// connection waits.
func NewListener(l *net.UnixListener, route func(reqLine string, c *net.UnixConn) bool) *Listener {
	return &Listener{
		l: l, route: route, uid: os.Getuid(),
		ready: make(chan *net.UnixConn), done: make(chan struct{}),
		deciding: map[*net.UnixConn]bool{},
	}
}

// Accept gives the next connection that route did not take.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin()
	select {
	case c := <-l.ready:
		return &given{UnixConn: c, l: l}, nil
	case <-l.done:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return nil, l.err
		}
		return nil, net.ErrClosed
	}
}

// begin starts the loop at the first Accept, unless Close came before.
func (l *Listener) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return
	default:
	}
	if !l.started {
		l.started = true
		l.wg.Add(1)
		go l.loop()
	}
}

// Addr is the socket's address.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close stops accepting, removes the socket, closes connections nobody has
// taken yet, and waits for route to return where it is being asked.
func (l *Listener) Close() error {
	err := l.l.Close()
	l.end(nil)
	l.wg.Wait()
	return err
}

func (l *Listener) end(err error) {
	l.stop.Do(func() {
		l.mu.Lock()
		l.err = err
		close(l.done)
		for c := range l.deciding {
			c.SetReadDeadline(time.Unix(1, 0))
		}
		l.mu.Unlock()
	})
}

// loop ends when the listener is closed.
func (l *Listener) loop() {
	defer l.wg.Done()
	for {
		c, err := l.l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				l.end(nil)
				return
			}
			if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) &&
				!errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ENOMEM) &&
				!errors.Is(err, unix.ECONNABORTED) {
				l.end(err)
				return
			}
			select {
			case <-time.After(acceptPause):
			case <-l.done:
				return
			}
			continue
		}
		l.wg.Add(1)
		go l.decide(c, l.hold()) // counted here: goroutines do not start in order
	}
}

func (l *Listener) decide(c *net.UnixConn, crowded bool) {
	defer l.wg.Done()
	if !l.enter(c) {
		c.Close()
		l.release()
		return
	}
	if crowded {
		l.leave(c)
		refuse(c, l.Crowded)
		l.release()
		return
	}
	pid, uid, err := PeerCred(c)
	stranger := err != nil || uid != l.uid
	if stranger || Confined(pid) {
		l.leave(c)
		if stranger {
			refuse(c, l.Refusal)
		} else {
			refuse(c, l.Sandboxed)
		}
		l.release()
		return
	}
	line, err := peekLine(c)
	l.leave(c)
	if err != nil {
		c.Close()
		l.release()
		return
	}
	if l.route != nil && l.route(line, c) {
		l.release()
		return
	}
	select {
	case l.ready <- c:
	case <-l.done:
		c.Close()
		l.release()
	}
}

// hold counts a connection and says whether that is one too many.
func (l *Listener) hold() (crowded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held++
	return l.Limit > 0 && l.held > l.Limit
}

func (l *Listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held--
}

// given is a connection that Accept gave out; it counts until it is closed.
type given struct {
	*net.UnixConn
	l    *Listener
	once sync.Once
}

func (g *given) Close() error {
	g.once.Do(g.l.release)
	return g.UnixConn.Close()
}

func (g *given) Write(p []byte) (int, error) {
	if g.l.Rewrite == nil {
		return g.UnixConn.Write(p)
	}
	if _, err := g.UnixConn.Write(g.l.Rewrite(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unix is the socket of a connection that Accept gave out, nil if it has none.
func Unix(c net.Conn) *net.UnixConn {
	switch c := c.(type) {
	case *net.UnixConn:
		return c
	case *given:
		return c.UnixConn
	}
	return nil
}

// enter makes c known to end, which cuts its waiting short, and sets the limit
// under the same lock so that it cannot undo that.
func (l *Listener) enter(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return false
	default:
	}
	limit := l.Silence
	if limit == 0 {
		limit = silentLimit
	}
	c.SetReadDeadline(time.Now().Add(limit))
	l.deciding[c] = true
	return true
}

func (l *Listener) leave(c *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.deciding, c)
	c.SetReadDeadline(time.Time{})
}

// refuse answers and lets the peer read it: closing with its request unread
// would show it a reset instead.
func refuse(c *net.UnixConn, answer []byte) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	c.Write(answer)
	c.CloseWrite()
	buf := make([]byte, 4096)
	for total := 0; total < 1<<20; {
		n, err := c.Read(buf)
		total += n
		if err != nil {
			return
		}
	}
}

// peekLine waits for a first line, at most peekSize bytes of it.
func peekLine(c *net.UnixConn) (string, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	buf := make([]byte, peekSize)
	var line string
	var perr error
	err = rc.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		for err == unix.EINTR {
			n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}
		switch {
		case err == unix.EAGAIN:
			return false
		case err != nil:
			perr = os.NewSyscallError("recvfrom", err)
			return true
		case n == 0:
			perr = net.ErrClosed
			return true
		}
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			n = i
		} else if n < len(buf) {
			if hungUp(int(fd)) {
				perr = net.ErrClosed
				return true
			}
			// Part of a line. The runtime's poller is edge-triggered, so
			// this waits for more bytes and does not spin on these.
			return false
		}
		line = strings.TrimSuffix(string(buf[:n]), "\r")
		return true
	})
	if err == nil {
		err = perr
	}
	return line, err
}

// hungUp reports whether the peer has closed. Peeking does not tell while
// there are bytes to peek at.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always reported
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// ParseLine gives the method and the path, without query, of a request line
// as a Listener hands it out. ok is false when the path is not all there.
func ParseLine(line string) (method, path string, ok bool) {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || method == "" {
		return "", "", false
	}
	end := strings.IndexAny(rest, " ?")
	if end < 0 || !strings.HasPrefix(rest, "/") {
		return "", "", false
	}
	return method, rest[:end], true
}
