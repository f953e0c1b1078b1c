package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/sock"
)

// home is one state directory with, most of the time, a daemon.
type home struct {
	r    *run
	path string
	c    *client.Client
}

// newHome names a home; nothing is started yet.
func (r *run) newHome(name string) *home {
	h := &home{r: r, path: filepath.Join(r.dir, name)}
	h.c = h.client()
	r.homes = append(r.homes, h)
	return h
}

// client is a new client of the home's daemon, without connections.
func (h *home) client() *client.Client {
	return client.New(client.Options{Home: h.path, Agent: conch.DefaultAgent, Cwd: h.r.dir, Exe: h.r.Exe})
}

// shared is the home that most parts use, with its daemon up and the login
// environment captured.
func (r *run) shared(ctx context.Context) (*home, error) {
	if r.main != nil {
		return r.main, nil
	}
	h := r.newHome("home")
	if _, err := h.c.Start(ctx); err != nil {
		return nil, err
	}
	if err := h.exec(ctx, h.c, "first", "true", ""); err != nil {
		return nil, err
	}
	if _, err := h.c.Close(ctx, "first"); err != nil {
		return nil, err
	}
	r.main = h
	return h, nil
}

// exec runs a command and insists on what it prints and on success.
func (h *home) exec(ctx context.Context, c *client.Client, session, text, want string) error {
	res, err := c.Exec(ctx, session, conch.ExecRequest{Command: text})
	if err != nil {
		return err
	}
	if res.ExitCode == nil || *res.ExitCode != 0 || res.Stdout != want {
		return conch.Errorf(conch.Internal, "%q gave %q, exit code %v", text, res.Stdout, res.ExitCode)
	}
	return nil
}

// cli is a conch command line on this home.
func (h *home) cli(ctx context.Context, args ...string) *exec.Cmd {
	cmd := command(ctx, h.r.Exe, args...)
	cmd.Args[0] = "conch"
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CONCH_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "CONCH_HOME="+h.path)
	return cmd
}

// close closes the home's sessions, stops its daemon and removes what both
// left. Where that fails the home stays, for the user to look at.
func (h *home) close() error {
	if _, err := os.Stat(h.path); err != nil {
		return nil // never started, or closed already
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute,
		conch.Errorf(conch.Internal, "the benchmark's sessions do not end"))
	defer cancel()
	// A daemon that died, or one that was starting when a Ctrl-C came, is
	// started again: sessions outlive a daemon, and only a daemon can say that
	// there are none.
	_, err := h.c.Start(ctx)
	var st *conch.StatusInfo
	if err == nil {
		st, err = h.c.Status(ctx)
	}
	h.c.CloseIdle()
	if err == nil {
		err = h.c.Shutdown(ctx, true)
	}
	if err == nil {
		err = gone(st.DaemonPID)
	}
	if err != nil {
		return conch.Errorf(conch.Internal, "the benchmark could not close its sessions: %v", err).
			Hint("CONCH_HOME=%s conch down --all closes them; then remove %s", h.path, h.r.dir)
	}
	return errors.Join(os.RemoveAll(h.path), os.RemoveAll(sock.MemoryPath(h.path)))
}

// close removes all that the run made.
func (r *run) close() error {
	var errs []error
	for _, h := range r.homes {
		errs = append(errs, h.close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(r.dir)
}

// gone returns when a process that was told to end has ended. Being nobody's
// child, or one that somebody else waits for, it can only be looked for again.
func gone(pid int) error {
	if pid == 0 {
		return nil
	}
	for pause := time.Millisecond; syscall.Kill(pid, 0) == nil; pause *= 2 {
		if pause > 4*time.Second {
			return conch.Errorf(conch.Internal, "process %d does not end", pid)
		}
		time.Sleep(pause)
	}
	return nil
}
