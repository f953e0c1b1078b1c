package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch"
)

// sandboxVariable is set in sandboxed sessions. The daemon's socket is not there, and
// another daemon must not be started in its place.
const sandboxVariable = "CONCH_SANDBOX"

// startLimit bounds the search for a daemon, starting one included.
const startLimit = 10 * time.Second

// Home makes a state directory's path absolute. Empty stands for $CONCH_HOME,
// else conch in the XDG state directory.
func Home(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("CONCH_HOME")
	}
	if dir == "" {
		// The XDG specification has relative values ignored.
		if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
			dir = filepath.Join(state, "conch")
		}
	}
	if dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", conch.Errorf(conch.HomeUnusable, "no home directory: %v", err).Hint("set CONCH_HOME")
		}
		dir = filepath.Join(user, ".local", "state", "conch")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", conch.Errorf(conch.HomeUnusable, "%s cannot be made absolute: %v", dir, err).
			Hint("set CONCH_HOME to an absolute path")
	}
	return abs, nil
}

// Start makes sure that a daemon runs which leaves only when told to, and says
// whether it had to be started.
func (c *Client) Start(ctx context.Context) (started bool, err error) {
	conn, started, err := c.reach(ctx, true, false)
	if err != nil {
		return false, err
	}
	conn.Close()
	return started, nil
}

// dial is the transport's: whatever the host, there is one socket.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, _, err := c.reach(ctx, !c.o.NoStart, true)
	return conn, err
}

// errNoDaemon is internal to this file: nobody listens.
var errNoDaemon = errors.New("no daemon listens")

// reach connects to the daemon, starting one if need be and allowed. auto marks
// a daemon that nobody asked for: it leaves when idle.
func (c *Client) reach(ctx context.Context, mayStart, auto bool) (net.Conn, bool, error) {
	conn, err := c.connect(ctx)
	if !errors.Is(err, errNoDaemon) {
		return conn, false, err
	}
	if os.Getenv(sandboxVariable) != "" {
		return nil, false, conch.Errorf(conch.PermissionDenied, "this is a sandboxed session: conch is out of its reach").
			Hint("run it from outside of the session")
	}
	if !mayStart || c.o.Socket != "" {
		e := conch.Errorf(conch.NotRunning, "the daemon is not running").Hint("conch up starts it")
		if c.o.Socket != "" {
			e = conch.Errorf(conch.NotRunning, "nobody listens at %s", c.o.Socket)
		}
		return nil, false, e
	}

	home, err := c.Home()
	if err != nil {
		return nil, false, err
	}
	late := conch.Errorf(conch.NotRunning, "the daemon was not ready within %v", startLimit).
		Hint("%s may say why", logPath(home))
	limited, cancel := context.WithTimeoutCause(ctx, startLimit, late)
	defer cancel()

	unlock, err := lockStart(limited, home)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		// Another client may have started it while this one waited.
		conn, err := c.connect(limited)
		if !errors.Is(err, errNoDaemon) {
			return conn, false, err
		}
		err = c.spawn(limited, home, auto)
		if err == nil {
			conn, err = c.connect(limited)
			return conn, true, err
		}
		if !errors.Is(err, conch.AlreadyRunning) {
			return nil, false, err
		}
		// Somebody owns the home and does not listen: a daemon that is
		// leaving, or one that a service manager is starting. Neither tells
		// when it is through, hence a pause; clients starting daemons do not
		// come here, the lock above has them in line.
		select {
		case <-time.After(pause):
		case <-limited.Done():
			return nil, false, context.Cause(limited)
		}
	}
}

func logPath(home string) string { return filepath.Join(home, "daemon.log") }

// daemonFile is what a daemon that listens leaves in daemon.json.
type daemonFile struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket"`
}

// connect dials the daemon there is, or fails with errNoDaemon.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	path := c.o.Socket
	if path == "" {
		home, err := c.Home()
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(filepath.Join(home, "daemon.json"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil, errNoDaemon
		}
		if err != nil {
			return nil, conch.Errorf(conch.HomeUnusable, "cannot look for the daemon: %v", err).
				Hint("CONCH_HOME must be a directory of yours")
		}
		var f daemonFile
		if json.Unmarshal(data, &f) != nil || f.Socket == "" {
			return nil, errNoDaemon
		}
		path = f.Socket
	}
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
			return nil, errNoDaemon
		case errors.Is(err, os.ErrPermission):
			return nil, conch.Errorf(conch.PermissionDenied, "the daemon's socket %s is not yours", path).
				Hint("each user has a daemon of their own; check CONCH_HOME")
		case errors.Is(err, syscall.EAGAIN):
			// The listener's backlog is full. The kernel offers no way to be
			// woken for a unix socket's backlog.
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		default:
			return nil, conch.Errorf(conch.NotRunning, "cannot reach the daemon: %v", err).Hint("conch doctor may say more")
		}
	}
}

// lockStart makes clients that found no daemon start one in turn, so that all
// but the first find it running instead of racing theirs against it.
func lockStart(ctx context.Context, home string) (unlock func(), err error) {
	unusable := func(err error) error {
		return conch.Errorf(conch.HomeUnusable, "conch's home cannot be used: %v", err).
			Hint("CONCH_HOME must be a directory you can write to")
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, unusable(err)
	}
	f, err := os.OpenFile(filepath.Join(home, "start.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	if err := flock(ctx, f, syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// flock waits for a lock on f as long as ctx allows; f is closed on failure.
func flock(ctx context.Context, f *os.File, how int) error {
	got := make(chan error, 1)
	// Ends when the lock is had, which is at the latest when its holder dies;
	// the system call cannot be cancelled. Closing f then gives the lock back.
	go func() {
		var err error
		for {
			if err = syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
				break
			}
		}
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return conch.Errorf(conch.HomeUnusable, "cannot lock %s: %v", f.Name(), err).
				Hint("conch's home must be on a local file system")
		}
		return nil
	case <-ctx.Done():
		// Ends with the goroutine above.
		go func() { <-got; f.Close() }()
		return context.Cause(ctx)
	}
}

// spawn runs `conch daemon` detached from this process and returns when it
// serves, or with the reason it gave for not serving.
func (c *Client) spawn(ctx context.Context, home string, auto bool) error {
	exe, err := c.executable()
	if err != nil {
		return err
	}
	logFile, err := os.OpenFile(logPath(home), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return conch.Errorf(conch.HomeUnusable, "cannot open the daemon's log: %v", err).
			Hint("CONCH_HOME must be a directory you can write to")
	}
	defer logFile.Close()
	ready, childEnd, err := os.Pipe()
	if err != nil {
		return conch.Errorf(conch.Internal, "cannot start the daemon: %v", err)
	}
	defer ready.Close()

	args := []string{"conch", "daemon", "--ready-fd=3"}
	if auto {
		args = append(args, "--auto")
	}
	if c.noConfig {
		args = append(args, "--no-config")
	}
	cmd := &exec.Cmd{
		Path:       exe,
		Args:       args,
		Env:        daemonEnv(os.Environ(), home),
		Dir:        "/",
		Stdout:     logFile,
		Stderr:     logFile,
		ExtraFiles: []*os.File{childEnd},
		// A session of its own: a Ctrl-C or a hang-up of this terminal, or a
		// signal to this process's group, is not meant for the daemon.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	childEnd.Close()
	if err != nil {
		return conch.Errorf(conch.NotRunning, "cannot start the daemon: %v", err)
	}
	// Ends with the daemon, or with this process; it reaps a daemon that
	// leaves while a long-lived client goes on.
	go cmd.Wait()

	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(ready).ReadBytes('\n')
	if string(line) == "ready\n" {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var b conch.ErrorBody
	if json.Unmarshal(line, &b) == nil && b.Error.Code != "" {
		return b.Err()
	}
	e := conch.Errorf(conch.NotRunning, "the daemon ended while starting")
	if err != nil && err != io.EOF {
		e = conch.Errorf(conch.NotRunning, "the daemon's start could not be watched: %v", err)
	}
	return e.Hint("%s may say why", logPath(home))
}

// Ready tells the client that started this process as its daemon that it
// serves (err nil) or why it does not. The daemon's side of spawn.
func Ready(w io.WriteCloser, err error) {
	if err == nil {
		fmt.Fprintln(w, "ready")
	} else {
		json.NewEncoder(w).Encode(conch.AsError(err).Body())
	}
	w.Close()
}

// executable is the conch to start. A program that embeds this package is not
// conch, and running it again with a verb it does not know could do anything.
func (c *Client) executable() (string, error) {
	if c.o.Exe != "" {
		return c.o.Exe, nil
	}
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "conch" {
		return self, nil
	}
	exe, err := exec.LookPath("conch")
	if err != nil {
		return "", conch.Errorf(conch.NotRunning, "the daemon is not running and no conch is on PATH to start it").
			Hint("start it with conch up, or set Options.Exe")
	}
	return filepath.Abs(exe)
}

// daemonEnv is the environment for a daemon: the caller's, less what says that
// the caller itself is inside a session.
func daemonEnv(env []string, home string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "CONCH_HOME", "CONCH_SESSION", "CONCH_AGENT", "CLAUDE_CODE_SESSION_ID":
		default:
			out = append(out, kv)
		}
	}
	return append(out, "CONCH_HOME="+home)
}
