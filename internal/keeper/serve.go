package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/sock"
)

// The keeper serves HTTP/1.1 on blocking sockets, a goroutine and so a thread per
// connection, instead of through net/http's server: a reader that blocks in the kernel
// is woken by the writer directly, where one behind the runtime's poller waits for a
// second thread to wake. Between two wakes of a small command nothing else costs as
// much. Handlers are ordinary http.Handlers; requests are parsed by net/http.

const (
	maxHeader = 64 << 10
	// drainLimit is how much of a body nobody read is read before the
	// connection is given up instead.
	drainLimit = 256 << 10
)

// A wire is a client's connection.
type wire struct {
	fd   int
	head []byte
	left int // header bytes still allowed; negative: no limit
	peer int // pid at the other end, 0 unknown
	// served: a request has been answered on it
	served bool
}

func (w *wire) Read(p []byte) (int, error) {
	if w.left >= 0 {
		if w.left == 0 {
			return 0, errHeader
		}
		p = p[:min(len(p), w.left)]
	}
	var n int
	if len(w.head) > 0 {
		n = copy(p, w.head)
		w.head = w.head[n:]
	} else {
		for {
			var err error
			n, err = unix.Read(w.fd, p)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return 0, err
			}
			break
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	if w.left >= 0 {
		w.left -= n
	}
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(w.fd, p[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

var errHeader = errors.New("request header is too long")

// serveConn serves one connection until either side is through with it.
func (k *Keeper) serveConn(c *sock.Conn, h http.Handler) {
	pid, _, err := sock.PeerCred(c.Unix())
	if err != nil {
		pid = 0
	}
	fd, head, err := c.Detach()
	if err != nil {
		return
	}
	w := &wire{fd: fd, head: head, peer: pid}
	defer unix.Close(fd)
	br := bufio.NewReaderSize(w, 16<<10)
	bw := bufio.NewWriterSize(w, 16<<10)
	for {
		w.left = maxHeader
		req, err := http.ReadRequest(br)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return
			}
			e := conch.Errorf(conch.InvalidRequest, "not an HTTP request: %v", err)
			if errors.Is(err, errHeader) {
				e = conch.Errorf(conch.TooLarge, "the request's header is longer than %d bytes", maxHeader)
			}
			resp := &response{bw: bw, header: http.Header{}, close: true}
			sendError(resp, e)
			resp.finish()
			return
		}
		w.left = -1
		if !k.serveOne(w, br, bw, req, h) {
			return
		}
	}
}

// serveOne answers one request and reports whether another may follow.
func (k *Keeper) serveOne(w *wire, br *bufio.Reader, bw *bufio.Writer, req *http.Request, h http.Handler) (again bool) {
	body := req.Body
	if req.Header.Get("Expect") == "100-continue" {
		body = &expected{ReadCloser: body, bw: bw}
	}
	req.Body = body
	req = req.WithContext(context.WithValue(context.Background(), wireKey{}, w))
	resp := &response{wire: w, bw: bw, header: http.Header{}, req: req, close: req.Close}
	defer func() {
		if p := recover(); p != nil {
			again = false
			if p != http.ErrAbortHandler {
				k.log.Error("handler", "panic", p)
			}
		}
	}()
	h.ServeHTTP(resp, req)
	if n, _ := io.CopyN(io.Discard, body, drainLimit); n == drainLimit {
		resp.close = true
	}
	w.served = true
	return resp.finish() == nil && !resp.close
}

type wireKey struct{}

// expected sends the go-ahead that a client waits for when the body is wanted.
type expected struct {
	io.ReadCloser
	bw   *bufio.Writer
	once sync.Once
}

func (e *expected) Read(p []byte) (int, error) {
	e.once.Do(func() {
		e.bw.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
		e.bw.Flush()
	})
	return e.ReadCloser.Read(p)
}

// A response is one answer on its way out.
type response struct {
	wire    *wire
	bw      *bufio.Writer
	header  http.Header
	req     *http.Request
	status  int
	chunked bool
	length  int64 // -1: not known
	wrote   int64
	close   bool
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	r.status = status
	r.length = -1
	if s := r.header.Get("Content-Length"); s != "" {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			r.length = n
		}
	}
	if r.header.Get("Connection") == "close" {
		r.close = true
	}
	if r.length < 0 {
		if r.req != nil && r.req.ProtoAtLeast(1, 1) {
			r.chunked = true
			r.header["Transfer-Encoding"] = []string{"chunked"}
		} else {
			r.close = true
		}
	}
	if r.close {
		r.header["Connection"] = []string{"close"}
	}
	fmt.Fprintf(r.bw, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	// All of them are our own words: nothing to clean, no order to keep.
	for name, values := range r.header {
		for _, v := range values {
			r.bw.WriteString(name)
			r.bw.WriteString(": ")
			r.bw.WriteString(v)
			r.bw.WriteString("\r\n")
		}
	}
	r.bw.WriteString("\r\n")
}

func (r *response) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.wrote += int64(len(p))
	if r.length >= 0 && r.wrote > r.length {
		return 0, http.ErrContentLength
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !r.chunked {
		return r.bw.Write(p)
	}
	fmt.Fprintf(r.bw, "%x\r\n", len(p))
	n, err := r.bw.Write(p)
	if err == nil {
		_, err = r.bw.WriteString("\r\n")
	}
	return n, err
}

// sendFile sends part of a file, at once and without bringing it into this process.
func (r *response) sendFile(f *os.File, off, n int64) error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.chunked {
		fmt.Fprintf(r.bw, "%x\r\n", n)
	}
	if err := r.bw.Flush(); err != nil {
		return err
	}
	for n > 0 {
		sent, err := sendfile(r.wire.fd, int(f.Fd()), &off, int(n))
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err == nil && sent == 0 {
			err = io.ErrUnexpectedEOF // the range was cut from under us
		}
		if err != nil {
			// The promised bytes cannot come any more.
			panic(http.ErrAbortHandler)
		}
		n -= int64(sent)
	}
	if r.chunked {
		if _, err := r.bw.WriteString("\r\n"); err != nil {
			return err
		}
	}
	return r.bw.Flush()
}

// FlushError is found by http.ResponseController.
func (r *response) FlushError() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.bw.Flush()
}

func (r *response) finish() error {
	if r.status == 0 {
		r.header["Content-Length"] = []string{"0"}
		r.WriteHeader(http.StatusOK)
	}
	if r.chunked {
		r.bw.WriteString("0\r\n\r\n")
	}
	if r.length >= 0 && r.wrote < r.length {
		r.close = true
	}
	return r.bw.Flush()
}

// peer is the process at the other end of a request's connection, 0 if unknown.
func peer(r *http.Request) int {
	if w, ok := r.Context().Value(wireKey{}).(*wire); ok {
		return w.peer
	}
	return 0
}

// gone reports whether the client has closed its end already.
func gone(r *http.Request) bool {
	w, ok := r.Context().Value(wireKey{}).(*wire)
	if !ok || w.served {
		return false // only the first request may have waited for its keeper
	}
	fds := []unix.PollFd{{Fd: int32(w.fd)}}
	n, _ := unix.Poll(fds, 0)
	return n > 0 && fds[0].Revents&unix.POLLHUP != 0
}

// present gives a context that ends when the client has gone. The loop watches its
// socket; stop must be called.
func (k *Keeper) present(r *http.Request) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	w, ok := r.Context().Value(wireKey{}).(*wire)
	if !ok {
		return ctx, cancel
	}
	h := &hangup{fd: w.fd, gone: cancel}
	if !k.do(func() { k.hangups = append(k.hangups, h); k.changed() }) {
		cancel()
		return ctx, cancel
	}
	return ctx, func() {
		cancel()
		k.do(func() { k.forgetHangup(h) })
	}
}

// A hangup is a client that may leave while it waits.
type hangup struct {
	fd   int
	gone func()
}

func (k *Keeper) forgetHangup(h *hangup) {
	for i, o := range k.hangups {
		if o == h {
			// A new slice: the loop may be walking the old one.
			k.hangups = append(k.hangups[:i:i], k.hangups[i+1:]...)
			k.changed()
			return
		}
	}
}

// patience is how long a request waits before it is worth watching whether its client
// still does.
const patience = time.Second
