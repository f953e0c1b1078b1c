package client

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/conchsh/conch"
)

// Shutdown stops the daemon, of whatever version, and returns when it is gone.
// Sessions go on; with all they are closed first. Where none runs it fails with
// conch.NotRunning and starts none.
func (c *Client) Shutdown(ctx context.Context, all bool) error {
	quiet := c.o
	quiet.NoStart = true
	q := New(quiet)
	defer q.CloseIdle()
	body := struct {
		All bool `json:"all"`
	}{all}
	k := call{method: http.MethodPost, url: daemonURL("/shutdown", nil), body: body, anyVersion: true}
	if err := q.json(ctx, k, nil); err != nil {
		return err
	}
	if c.o.Socket != "" {
		return nil // no home to watch
	}
	return c.waitGone(ctx)
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
