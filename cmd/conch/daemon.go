package main

import (
	"context"
	"flag"
	"io"
	"os"
	"syscall"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/daemon"
	"github.com/conchsh/conch/internal/mcp"
	"github.com/conchsh/conch/internal/proc"
)

// daemonMain is the hidden verb `daemon`, by which clients start the daemon in
// the background. `up --foreground` runs the same daemon in the open.
func daemonMain(args []string) int {
	fs := flag.NewFlagSet("conch daemon", flag.ContinueOnError)
	auto := fs.Bool("auto", false, "leave when idle: a client started this daemon for itself")
	readyFD := fs.Int("ready-fd", -1, "descriptor on which to say that the daemon serves, or why not")
	idle := fs.Duration("idle-exit", 0, "how long is idle (0: the daemon's default)")
	noConfig := fs.Bool("no-config", false, "do not read config.toml")
	if err := fs.Parse(args); err != nil {
		return statusFailed
	}
	proc.Detach(*readyFD)
	var w io.WriteCloser = nopWriter{}
	if *readyFD >= 0 {
		// Inherited without close-on-exec: a keeper that got it too would
		// keep the client waiting.
		syscall.CloseOnExec(*readyFD)
		w = os.NewFile(uintptr(*readyFD), "ready")
	}
	told := false
	err := serve(context.Background(), daemon.Options{AutoStarted: *auto, IdleExit: *idle, NoConfig: *noConfig, Ready: func() {
		told = true
		client.Ready(w, nil)
	}})
	if err != nil {
		if !told {
			client.Ready(w, err)
		}
		return fail(os.Stderr, err)
	}
	return 0
}

// serve runs the daemon until it is told to leave, by a request or a signal.
func serve(ctx context.Context, o daemon.Options) error {
	var err error
	if o.Home, err = client.Home(o.Home); err != nil {
		return err
	}
	if o.Exe, err = os.Executable(); err != nil {
		return conch.Errorf(conch.Internal, "cannot find my own executable: %v", err)
	}
	o.Version, o.Tools = version, overHTTP
	return daemon.Run(ctx, o)
}

// overHTTP gives the daemon its tools for those who come over the network.
func overHTTP(o daemon.ToolOptions) daemon.ToolServer {
	home, _ := os.UserHomeDir() // without one sessions start where the daemon is
	return mcp.NewHTTP(mcp.HTTPOptions{
		Version: version, Agent: o.Agent, Caller: o.Caller, Fail: o.Fail, Client: client.Options{Home: o.Home, Cwd: home},
	})
}

type nopWriter struct{}

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) Close() error                { return nil }
