package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// transport speaks HTTP/1.1 on the caller's own goroutine: request out, response
// in. net/http's transport hands both to goroutines of its own, which costs a small
// command as much as the rest of the way. It also never sends a request twice: a
// command must not run again because a connection broke.
type transport struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex         // guards idle
	idle map[string][]*conn // by host, the last used last
}

const (
	maxIdle = 16
	// Output arrives in chunks of this order.
	readBuffer = 64 << 10
)

// A conn is a blocking socket: whoever waits for an answer on it is woken by the
// one who writes it, not by way of the runtime's poller.
type conn struct {
	*os.File
	br *bufio.Reader
}

func newConn(nc net.Conn) (*conn, error) {
	defer nc.Close()
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	f, err := u.File() // a copy in blocking mode
	if err != nil {
		return nil, err
	}
	return &conn{f, bufio.NewReaderSize(f, readBuffer)}, nil
}

// control runs f on the descriptor, unless it is closed.
func (c *conn) control(f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// cut ends whatever waits on the connection.
func (c *conn) cut() { c.control(func(fd int) { unix.Shutdown(fd, unix.SHUT_RDWR) }) }

// Close may be called while another goroutine waits on the connection.
func (c *conn) Close() error {
	c.cut()
	return c.File.Close()
}

// alive reports whether an idle connection still has its other end, without waiting
// and without taking anything. Anything to read can only be the end, or a fault.
func (c *conn) alive() bool {
	alive := false
	c.control(func(fd int) {
		var b [1]byte
		_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = err == unix.EAGAIN
	})
	return alive && c.br.Buffered() == 0
}

func (t *transport) get(ctx context.Context, host string) (*conn, error) {
	for {
		t.mu.Lock()
		list := t.idle[host]
		if len(list) == 0 {
			t.mu.Unlock()
			break
		}
		c := list[len(list)-1]
		t.idle[host] = list[:len(list)-1]
		t.mu.Unlock()
		if c.alive() {
			return c, nil
		}
		c.Close()
	}
	nc, err := t.dial(ctx, "unix", host)
	if err != nil {
		return nil, err
	}
	return newConn(nc)
}

func (t *transport) put(host string, c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		t.idle = map[string][]*conn{}
	}
	if len(t.idle[host]) >= maxIdle {
		c.Close()
		return
	}
	t.idle[host] = append(t.idle[host], c)
}

// CloseIdleConnections gives up what no call is using.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.idle {
		for _, c := range list {
			c.Close()
		}
	}
	t.idle = nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c, err := t.get(ctx, req.URL.Host)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.cut)
	fail := func(err error) (*http.Response, error) {
		stop()
		c.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	bw := bufio.NewWriterSize(c, 4<<10)
	werr := req.Write(bw)
	if werr == nil {
		werr = bw.Flush()
	}
	if werr != nil {
		// If it was the body that could not be read, the server still waits
		// for the rest of it, and would for ever.
		c.control(func(fd int) { unix.Shutdown(fd, unix.SHUT_WR) })
	}
	// A server that refuses a long body answers before it has read it all.
	resp, err := http.ReadResponse(c.br, req)
	if err != nil {
		if werr != nil {
			err = werr
		}
		return fail(err)
	}
	resp.Body = &body{t: t, c: c, host: req.URL.Host, rc: resp.Body, stop: stop, keep: werr == nil && !resp.Close && !req.Close, ctx: ctx}
	if resp.ContentLength == 0 {
		resp.Body.(*body).finish(true)
	}
	return resp, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// body gives its connection back when it has been read to the end.
type body struct {
	t    *transport
	c    *conn
	host string
	rc   io.ReadCloser
	stop func() bool
	keep bool
	done atomic.Bool     // the connection is back in the pool, or closed
	ctx  context.Context // the request's, to name the cause of a failed read
}

func (b *body) Read(p []byte) (int, error) {
	if b.done.Load() {
		return 0, io.EOF
	}
	n, err := b.rc.Read(p)
	if err == nil {
		return n, nil
	}
	b.finish(err == io.EOF)
	if err != io.EOF && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

func (b *body) finish(whole bool) {
	if b.done.Swap(true) {
		return
	}
	if b.stop() && whole && b.keep {
		b.t.put(b.host, b.c)
		return
	}
	b.c.Close() // ends a Read that waits
}

// Close may be called while another goroutine reads.
func (b *body) Close() error {
	b.finish(false)
	return nil
}
