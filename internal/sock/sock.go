// Package sock is conch's local transport: unix sockets only the owner may
// use, and client connections that travel from the daemon to a keeper as
// descriptors.
//
// The daemon does not proxy. It looks at the first line of a request without
// consuming it (Listener), and when that names a session it sends the
// connection itself to the session's keeper (Passer, Receive). The keeper then
// serves the request as if it had accepted the connection, so a stream that is
// under way does not notice the daemon's death.
//
// Every descriptor made here is close-on-exec: a shell must never inherit one.
package sock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxPath is the longest socket path used. The kernels' limits are 107 bytes
// (Linux) and 103 (macOS); staying below both keeps a home movable.
const MaxPath = 100

// dialLimit bounds the question "does anybody listen here". A connect on a
// unix socket answers at once unless the backlog is full, and a full backlog
// means that somebody does.
const dialLimit = time.Second

// Listen makes a socket at path that only its owner may connect to. A socket
// that is already there is removed only when a connect proves that nobody
// listens on it; anything that is not a socket is left alone. Closing the
// listener removes the socket.
//
// Two callers racing for one path are not kept apart here: the caller holds
// the lock that makes it the only one.
func Listen(path string) (*net.UnixListener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("socket path %q has %d bytes, more than %d", path, len(path), MaxPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		// Linux gives the file the socket's own mode, so it is never wider
		// than 0600, not even between bind and the chmod below. A umask
		// would do the same and race with every other thread.
		var err error
		if cerr := rc.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		if errors.Is(err, unix.EINVAL) { // macOS cannot
			return nil
		}
		return err
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, dialLimit)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("somebody listens on %s: %w", path, unix.EADDRINUSE)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("cannot tell whether somebody listens on %s: %w", path, err)
}

// Dial connects to a socket of ours.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// Pair makes two connected sockets. The daemon talks to a keeper by passing
// one of them to it like any client's connection.
func Pair() (a, b *net.UnixConn, err error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if a, err = fileConn(fds[0]); err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	if b, err = fileConn(fds[1]); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// fileConn makes a connection of fd, which it takes over.
func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close() // FileConn works on a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor is a %T, not a unix socket", c)
	}
	return u, nil
}
