package sock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A message on a control connection is the byte 'H', the length of the head
// (4 bytes, little-endian), and the head: bytes of the client's that were read
// before it was decided where they belong. The client's descriptor rides on
// the first byte.
const (
	tagHandover = 'H'
	prefixLen   = 5
	// MaxHead bounds the head. The daemon's header limit and its read buffer
	// are far below.
	MaxHead = 4 << 20
)

// passLimit is how long a keeper may leave its control connection unread
// before it counts as not serving. Its buffer holds dozens of handovers.
const passLimit = 10 * time.Second

// ErrBroken is returned once a handover was cut in the middle: what is on the
// connection can no longer be told apart, so it must be made anew.
var ErrBroken = errors.New("control connection is broken")

// Pass sends the descriptor fd, and the bytes already read from it, over ctl.
// The caller keeps fd and closes it. One call at a time per connection: see
// Passer.
func Pass(ctl *net.UnixConn, fd int, head []byte) error {
	if len(head) > MaxHead {
		return fmt.Errorf("head of %d bytes is more than %d", len(head), MaxHead)
	}
	msg := make([]byte, prefixLen, prefixLen+len(head))
	msg[0] = tagHandover
	binary.LittleEndian.PutUint32(msg[1:], uint32(len(head)))
	msg = append(msg, head...)
	n, _, err := ctl.WriteMsgUnix(msg, unix.UnixRights(fd), nil)
	if err != nil {
		return err
	}
	// A stream socket takes what fits; the descriptor went with the first byte.
	if _, err := ctl.Write(msg[n:]); err != nil && n < len(msg) {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// A Passer is a control connection that many goroutines share.
type Passer struct {
	mu     sync.Mutex // one message at a time, bytes of two must not mix
	ctl    *net.UnixConn
	broken bool
}

// NewPasser makes a Passer of a connection to a keeper's control socket. The
// caller stays its owner: it closes it, and reads it to learn of the keeper's
// death.
func NewPasser(ctl *net.UnixConn) *Passer { return &Passer{ctl: ctl} }

// Pass hands c over, with the bytes already read from it. After nil the keeper
// has it and the caller closes its own copy; after an error nothing was handed
// over and c is still the caller's to answer.
func (p *Passer) Pass(c syscall.Conn, head []byte) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return ErrBroken
	}
	if err := p.ctl.SetWriteDeadline(time.Now().Add(passLimit)); err != nil {
		return err
	}
	// Control, unlike File or Fd, keeps the descriptor non-blocking.
	var perr error
	if err := rc.Control(func(fd uintptr) { perr = Pass(p.ctl, int(fd), head) }); err != nil {
		return err
	}
	if errors.Is(perr, ErrBroken) {
		p.broken = true
	}
	return perr
}

// Receive waits for the next handover on ctl. io.EOF means that the other side
// is gone. Any other error leaves the connection unusable. Only one goroutine
// may receive on a connection.
func Receive(ctl *net.UnixConn) (*Conn, error) {
	var (
		prefix [prefixLen]byte
		oob    = make([]byte, unix.CmsgSpace(4*4))
		fds    []int
	)
	drop := func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	// Never ask for more than the prefix: a longer read could run into the
	// next message and take its descriptor along.
	for got := 0; got < prefixLen; {
		n, oobn, flags, _, err := ctl.ReadMsgUnix(prefix[got:], oob)
		if oobn > 0 {
			more, perr := parseRights(oob[:oobn])
			fds = append(fds, more...)
			if err == nil {
				err = perr
			}
		}
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			err = errors.New("handover: descriptors were cut off")
		}
		if (err == nil && n == 0) || errors.Is(err, io.EOF) {
			if err = io.EOF; got > 0 {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			drop()
			return nil, err
		}
		got += n
	}
	size := binary.LittleEndian.Uint32(prefix[1:])
	if prefix[0] != tagHandover || len(fds) != 1 || size > MaxHead {
		drop()
		return nil, fmt.Errorf("handover: tag %#x, %d descriptors, head of %d bytes", prefix[0], len(fds), size)
	}
	head := make([]byte, size)
	if _, err := io.ReadFull(ctl, head); err != nil {
		drop()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	u, err := fileConn(fds[0])
	if err != nil {
		return nil, err
	}
	return &Conn{u: u, head: head}, nil
}

func parseRights(oob []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		some, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // credentials or the like
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

// A Conn is a connection that was handed over: reading gives the head, then
// what the client sends.
type Conn struct {
	u *net.UnixConn

	mu   sync.Mutex
	head []byte
}

// NewConn puts bytes that were already read from c in front of it again.
func NewConn(c *net.UnixConn, head []byte) *Conn { return &Conn{u: c, head: head} }

// Unix is the socket itself, for PeerCred.
func (c *Conn) Unix() *net.UnixConn { return c.u }

func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if len(c.head) > 0 {
		n := copy(p, c.head)
		if c.head = c.head[n:]; len(c.head) == 0 {
			c.head = nil
		}
		c.mu.Unlock()
		return n, nil
	}
	c.mu.Unlock()
	return c.u.Read(p)
}

func (c *Conn) Write(p []byte) (int, error)           { return c.u.Write(p) }
func (c *Conn) Close() error                          { return c.u.Close() }
func (c *Conn) CloseWrite() error                     { return c.u.CloseWrite() }
func (c *Conn) LocalAddr() net.Addr                   { return c.u.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr                  { return c.u.RemoteAddr() }
func (c *Conn) SetDeadline(t time.Time) error         { return c.u.SetDeadline(t) }
func (c *Conn) SetReadDeadline(t time.Time) error     { return c.u.SetReadDeadline(t) }
func (c *Conn) SetWriteDeadline(t time.Time) error    { return c.u.SetWriteDeadline(t) }
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.u.SyscallConn() }
func (c *Conn) File() (*os.File, error)               { return c.u.File() }

// Detach gives up the connection's place in the runtime's poller: the descriptor, in
// blocking mode and the caller's to close, and the bytes that come before what it
// gives. A thread that blocks in read is woken by the writer itself, on its own
// processor; one that waits in epoll is not, and that is most of what a small
// request costs.
func (c *Conn) Detach() (fd int, head []byte, err error) {
	defer c.u.Close()
	raw, err := c.u.SyscallConn()
	if err != nil {
		return -1, nil, err
	}
	cerr := raw.Control(func(s uintptr) {
		if fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	})
	if cerr != nil {
		return -1, nil, cerr
	}
	return fd, c.head, err
}
