package gate

import (
	"net"
	"sync"
	"time"
)

// The limits of a port. Connections above them are closed at once.
const (
	maxConns     = 512
	maxConnsFrom = 128 // one address
	// maxFailures of one address within a minute are logged and told apart; further
	// ones are not logged, and told to wait. Guessing 256 bits is hopeless anyway:
	// this keeps the log short.
	maxFailures = 20
	maxWatched  = 10_000
)

// A limitListener counts connections.
type limitListener struct {
	net.Listener

	mu   sync.Mutex // guards what follows
	all  int
	from map[string]int
}

func limited(l net.Listener) net.Listener {
	return &limitListener{Listener: l, from: map[string]int{}}
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := addressOf(c)
		l.mu.Lock()
		full := l.all >= maxConns || l.from[ip] >= maxConnsFrom
		if !full {
			l.all++
			l.from[ip]++
		}
		l.mu.Unlock()
		if !full {
			return &counted{Conn: c, release: sync.OnceFunc(func() { l.release(ip) })}, nil
		}
		c.Close()
	}
}

func (l *limitListener) release(ip string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[ip]--; l.from[ip] == 0 {
		delete(l.from, ip)
	}
}

type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}

// failures counts, per address and minute.
type failures struct {
	mu   sync.Mutex // guards what follows
	from time.Time
	n    map[string]int
}

// count notes a failure, and says how many there were.
func (f *failures) count(ip string, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil || now.Sub(f.from) > time.Minute || len(f.n) > maxWatched {
		f.n, f.from = map[string]int{}, now
	}
	f.n[ip]++
	return f.n[ip]
}

func addressOf(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}
