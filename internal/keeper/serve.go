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
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/sock"
)

// The keeper serves HTTP/1.1 on blocking sockets, a goroutine and so a thread per
// connection, instead of through net/http's server: a reader that blocks in the kernel
// is woken by the writer directly, where one behind the runtime's poller waits for a
// second thread to wake. Between two wakes of a small command nothing else costs as
// much. Handlers are ordinary http.Handlers; requests are parsed by net/http.

const (
	// drainLimit is how much of a body nobody read is read before the
	// connection is given up instead.
	drainLimit = 256 << 10
	// wordsTime is what answers get at the session's end.
	wordsTime = 300 * time.Millisecond
)

// A wire is a client's connection. Its socket wakes a read now and then, so that one
// who waits too long for a client can be told from one who may.
type wire struct {
	fd   int
	head []byte
	left int // header bytes still allowed; negative: no limit
	peer int // pid at the other end, 0 unknown
	// served: a request has been answered on it
	served bool
	// limit is when what is being read must have come.
	limit time.Time
	idle  bool // no byte of a request has come yet
	taken func(n int32)
	// over, where there is one, ends the waiting for a body nobody wants any more.
	over <-chan struct{}
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
			if err == unix.EINTR || err == unix.EAGAIN && !w.late() {
				continue
			}
			if err == unix.EAGAIN {
				return 0, route.ErrSlow
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
	if w.idle {
		w.begun()
	} else if w.late() { // one byte at a time is not in time either
		return 0, route.ErrSlow
	}
	if w.left >= 0 {
		w.left -= n
	}
	return n, nil
}

// begun takes note of a request's first byte, idled of there being none. Between the
// two a request is in our hands, and the keeper's end waits for its answer.
func (w *wire) begun() {
	w.idle = false
	w.limit = time.Now().Add(route.HeaderTime)
	w.taken(1)
}

func (w *wire) idled() {
	if !w.idle {
		w.idle = true
		w.taken(-1)
	}
}

func (w *wire) late() bool {
	if w.over != nil {
		select {
		case <-w.over:
			return true
		default:
			return false
		}
	}
	return time.Now().After(w.limit)
}

// glance is how often a read that waits looks at the time.
func glance(fd int, d time.Duration) {
	tv := unix.NsecToTimeval(int64(d))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv) // if not, it waits for ever, as it may
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
	w := &wire{fd: fd, head: head, peer: pid, idle: true, taken: func(int32) {}}
	defer unix.Close(fd)
	glance(fd, route.HeaderTime)
	br := bufio.NewReaderSize(w, 16<<10)
	bw := bufio.NewWriterSize(w, 16<<10)
	if k.conns.Add(1) > route.KeeperConns {
		defer k.conns.Add(-1)
		k.decline(w, bw, conch.Errorf(conch.TooManyClients, "session %s has %d connections, which is its limit", k.spec.Label, route.KeeperConns).
			Hint("close some; the command was not taken").Retry())
		return
	}
	defer k.conns.Add(-1)
	w.taken = func(n int32) {
		k.answering.Add(n)
		if n < 0 {
			select {
			case k.answered <- struct{}{}:
			default:
			}
		}
	}
	defer w.idled()
	for {
		w.idled()
		w.left = route.MaxHeader
		w.limit = time.Now().Add(route.IdleTime)
		if br.Buffered() > 0 {
			w.begun()
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), w.idle:
				return
			case errors.Is(err, route.ErrSlow):
				err = route.Slow()
			case errors.Is(err, errHeader):
				err = conch.Errorf(conch.HeaderTooLarge, "the request's header is longer than %d bytes", route.MaxHeader)
			default:
				err = conch.Errorf(conch.InvalidRequest, "not an HTTP request: %v", err)
			}
			k.decline(w, bw, err)
			return
		}
		if req.ProtoMajor != 1 {
			k.decline(w, bw, conch.Errorf(conch.Unsupported, "%s is not spoken here", req.Proto).Hint("conch speaks HTTP/1.1"))
			return
		}
		w.left = -1
		w.limit = time.Now().Add(route.BodyTime)
		if !k.serveOne(w, br, bw, req, h) {
			return
		}
	}
}

// decline answers what is no request, and lets the client read it: a socket that is
// closed over unread bytes shows it a reset instead.
func (k *Keeper) decline(w *wire, bw *bufio.Writer, err error) {
	resp := &response{wire: w, bw: bw, header: http.Header{}, close: true}
	k.identify(resp.header)
	sendError(resp, err)
	resp.finish()
	w.drain()
}

// lastWords lets requests be answered when the session has ended, within reason: who
// does not read keeps nobody.
func (k *Keeper) lastWords() {
	t := time.NewTimer(wordsTime)
	defer t.Stop()
	for k.answering.Load() > 0 {
		select {
		case <-k.answered:
		case <-t.C:
			return
		}
	}
}

// drain ends our side and reads what the client still sends, for a moment.
func (w *wire) drain() {
	unix.Shutdown(w.fd, unix.SHUT_WR)
	glance(w.fd, time.Second)
	w.left, w.idle, w.limit = -1, false, time.Now().Add(time.Second)
	io.CopyN(io.Discard, w, drainLimit)
}

// serveOne answers one request and reports whether another may follow.
func (k *Keeper) serveOne(w *wire, br *bufio.Reader, bw *bufio.Writer, req *http.Request, h http.Handler) (again bool) {
	body := &upload{ReadCloser: req.Body, whole: req.ContentLength == 0}
	if req.Header.Get("Expect") == "100-continue" {
		body.ready = bw
	}
	req.Body = body
	req = req.WithContext(context.WithValue(context.Background(), wireKey{}, w))
	resp := &response{wire: w, bw: bw, header: http.Header{}, req: req, body: body, close: req.Close}
	defer func() {
		if p := recover(); p != nil {
			again = false
			if p != http.ErrAbortHandler {
				k.log.Error("handler", "panic", p)
			}
		}
	}()
	h.ServeHTTP(resp, req)
	w.served = true
	if resp.finish() != nil {
		return false
	}
	if !body.whole { // and the answer has said that the connection ends
		w.drain()
		return false
	}
	return !resp.close
}

type wireKey struct{}

// An upload is a request's body. It knows whether all of it was read, and sends the
// go-ahead that some clients wait for when it is wanted.
type upload struct {
	io.ReadCloser
	whole bool
	ready *bufio.Writer // for the go-ahead; nil: sent, or not awaited
}

func (u *upload) Read(p []byte) (int, error) {
	if u.ready != nil {
		u.ready.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
		u.ready.Flush()
		u.ready = nil
	}
	n, err := u.ReadCloser.Read(p)
	u.whole = u.whole || err == io.EOF
	return n, err
}

// A response is one answer on its way out.
type response struct {
	wire    *wire
	bw      *bufio.Writer
	header  http.Header
	req     *http.Request
	body    *upload // of req; nil: there is none to be read
	status  int
	mute    bool // the status or the method allows no body
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
	if r.header.Get("Connection") == "close" || r.body != nil && !r.body.whole {
		r.close = true
	}
	r.mute = status == http.StatusNoContent || r.req != nil && r.req.Method == http.MethodHead
	if r.length < 0 && !r.mute {
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
	if len(p) == 0 || r.mute {
		return len(p), nil
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
	if r.length >= 0 && r.wrote < r.length && !r.mute {
		r.close = true
	}
	return r.bw.Flush()
}

// patient lets a request's body come as slowly as it likes until over is closed. Call
// the function it gives when the body has been read.
func patient(r *http.Request, over <-chan struct{}) func() {
	w, ok := r.Context().Value(wireKey{}).(*wire)
	if !ok {
		return func() {}
	}
	w.over = over
	return func() { w.over, w.limit = nil, time.Now().Add(route.BodyTime) }
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
