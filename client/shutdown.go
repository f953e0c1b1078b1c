package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/sock"
)

// Shutdown stops the daemon, of whatever version, and returns when its process
// has ended. Sessions go on; with all they are closed first. Where none runs it
// fails with conch.NotRunning and starts none, except that with all it does,
// unless NoStart is set, in a home that has had sessions: they outlive a daemon
// that was killed, and it takes one to close them. It fails with conch.Damaged when all is
// ended and a session's record could not be read, and so not be closed.
func (c *Client) Shutdown(ctx context.Context, all bool) error {
	quiet := c.o
	quiet.NoStart = true
	err := New(quiet).shutdown(ctx, all)
	if errors.Is(err, conch.NotRunning) && all && !c.o.NoStart && c.used() {
		closer := New(c.o)
		closer.noConfig = true // it may be what keeps daemons from starting
		return closer.shutdown(ctx, true)
	}
	return err
}

// shutdown is Shutdown by a client that nobody else uses.
func (c *Client) shutdown(ctx context.Context, all bool) error {
	defer c.CloseIdle()
	// Before it is told to leave: then its pid is surely its own.
	daemon, err := c.daemon(ctx)
	if err != nil {
		return err
	}
	k := call{method: http.MethodPost, url: daemonURL("/shutdown", nil), body: conch.ShutdownRequest{All: all}, anyVersion: true}
	var gone conch.Gone
	if err := c.json(ctx, k, &gone); err != nil {
		return err
	}
	if err := c.awaitEnd(ctx, daemon); err != nil || len(gone.Unreadable) == 0 {
		return err
	}
	return conch.Errorf(conch.Damaged, "stopped, and all that ran was ended, but not every session could be closed: spec.json cannot be read in %s", strings.Join(gone.Unreadable, ", ")).
		Hint("its files were kept: put spec.json back from a backup, or remove the directory; conch doctor says what is wrong with it")
}

// awaitEnd returns when a daemon that was told to leave is gone.
func (c *Client) awaitEnd(ctx context.Context, daemon proc.ID) error {
	if c.o.Socket == "" {
		if err := c.waitGone(ctx); err != nil {
			return err
		}
	}
	// Its lock is the last thing a daemon gives back, and then it only has to
	// end. Whoever counts processes, or removes the home, is not to see it.
	if daemon.PID == 0 {
		return nil
	}
	return proc.Await(ctx, daemon)
}

// daemon is the process that listens. The zero ID: it cannot be seen from here,
// being in another container, or is this one.
func (c *Client) daemon(ctx context.Context) (proc.ID, error) {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return proc.ID{}, err
	}
	defer conn.Close()
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return proc.ID{}, nil
	}
	// The kernel's word, in the numbers of our own container.
	pid, _, err := sock.PeerCred(u)
	if err != nil || pid <= 0 || pid == os.Getpid() {
		return proc.ID{}, nil
	}
	id, err := proc.Lookup(pid)
	if err != nil {
		return proc.ID{}, nil // it has gone since
	}
	return id, nil
}

// used says whether conch's home has had sessions.
func (c *Client) used() bool {
	home, err := c.Home()
	if err != nil || c.o.Socket != "" {
		return false
	}
	_, err = os.Stat(filepath.Join(home, "sessions"))
	return err == nil
}

// waitGone returns when no daemon owns the home, which is when the next can
// start: the lock is the last thing a daemon gives back.
func (c *Client) waitGone(ctx context.Context) error {
	home, err := c.Home()
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(home, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return conch.Errorf(conch.HomeUnusable, "cannot see whether the daemon has left: %v", err)
	}
	if err := flock(ctx, f, syscall.LOCK_SH); err != nil {
		if ctx.Err() != nil {
			return conch.Errorf(conch.AlreadyRunning, "the daemon was told to leave and has not left yet").
				Hint("%s may say why", logPath(home))
		}
		return err
	}
	return f.Close()
}
