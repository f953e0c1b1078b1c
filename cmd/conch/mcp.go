package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/daemon"
	"github.com/conchsh/conch/internal/mcp"
)

func newMCP(a *app) *cobra.Command {
	var session, handle, results string
	var standalone bool
	var setup installing
	cmd := &cobra.Command{
		Use:     "mcp [--install|--uninstall [PROGRAM...]]",
		GroupID: groupMail,
		Short:   "Serve an agent: the Model Context Protocol on stdin and stdout",
		Long: `Serve an agent: the Model Context Protocol on stdin and stdout, until stdin ends.
The agent's program starts this; it is not for a terminal.

The agent's own session is the label asked for, unless a live session has that;
else the one its harness session had before (--handle); else the lowest free
<program>:<n>, such as claude:1. It is live for mail as long as this runs.

With --standalone the daemon runs inside this process if none runs already. When
the process ends, so does every process of the sessions; the sessions stay, and
begin again in the state of their last command.

With --install it serves nobody: it writes itself into the configuration of Claude
Code, Codex, Gemini CLI, Cursor and VS Code, those named or those that are found. The
change is shown first and a person asked; --yes makes it without, and --uninstall
undoes it. All else in those files stays as it is, and a copy of them is kept.`,
		Example: `  conch mcp --install
  conch mcp --install claude codex --yes
  conch mcp --session build
  conch mcp --standalone`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if only, err := setup.wanted(); err != nil {
				return err
			} else if only {
				return setup.run(args)
			}
			if err := words()(cmd, args); err != nil {
				return err
			}
			o := mcp.Options{
				Version: version, Session: session, HarnessSession: handle, Results: results,
				In: os.Stdin, Out: os.Stdout, Client: client.Options{Agent: a.agent},
			}
			fromEnvironment(&o)
			if results != "" && results != mcp.ResultsText && results != mcp.ResultsBoth {
				return conch.Errorf(conch.InvalidRequest, "--results %s is neither text nor both", results).
					Hint("text for a program that would show its model JSON in place of it; both for one that reads the JSON itself")
			}
			if isTerminal(os.Stdin) {
				say(os.Stderr, "waiting for an agent's program to speak on stdin", "conch mcp --install tells programs of it; Ctrl-C leaves")
			}
			o.Client.Exe, _ = os.Executable() // without one the client looks on PATH
			return serveMCP(cmd.Context(), o, standalone)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&session, "session", "s", "", "the agent's own session `LABEL` (default: $CONCH_SESSION, or chosen)")
	fl.StringVar(&handle, "handle", "", "the harness's `NAME` for its session, by which it gets its label again (default: $CLAUDE_CODE_SESSION_ID)")
	fl.StringVar(&results, "results", "", "`text` alone, or both text and structured (default: both; text for Claude Code and Codex, which show a model one of them)")
	setup.flags(cmd)
	fl.BoolVar(&standalone, "standalone", false, "run the daemon in this process, and leave none behind")
	cmd.RegisterFlagCompletionFunc("session", a.completeLabel)
	return cmd
}

// fromEnvironment fills in what the flags left open.
func fromEnvironment(o *mcp.Options) {
	if o.Session == "" {
		o.Session = os.Getenv("CONCH_SESSION")
		if agent, label, both := strings.Cut(o.Session, "/"); both {
			o.Session = label
			if o.Client.Agent == "" {
				o.Client.Agent = agent
			}
		}
	}
	if client.HarnessSession() != "" {
		o.Harness = "claude"
	}
	if o.HarnessSession != "" {
		// By the same name agents are assigned to it.
		os.Setenv("CLAUDE_CODE_SESSION_ID", o.HarnessSession)
	}
	o.HarnessSession = client.HarnessSession()
}

// serveMCP serves until the client, a signal or the daemon inside ends it.
func serveMCP(ctx context.Context, o mcp.Options, standalone bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// A client that has gone shows as the end of its input as well; a write that
	// fails must not end us before we have put things in order.
	signal.Ignore(syscall.SIGPIPE)
	if !standalone {
		return mcp.Serve(ctx, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hosted{ctx: ctx, leave: cancel}
	o.Client.NoStart, o.Reach = true, h.reach
	h.probe = client.New(o.Client)
	err := mcp.Serve(ctx, o)
	cancel()
	if herr := h.wait(); err == nil {
		err = herr
	}
	return err
}

// hosted is a daemon inside this process, run when there is no other.
type hosted struct {
	ctx   context.Context // ends with the process's work, and then the daemon
	leave func()
	probe *client.Client // starts no daemon

	mu   sync.Mutex // guards what follows; held while a daemon starts
	done chan error // of the daemon inside; nil: none was run
}

// reach sees to it that a daemon answers.
func (h *hosted) reach(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done != nil {
		return nil
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if _, err := h.probe.Version(ctx); !errors.Is(err, conch.NotRunning) {
			return err
		}
		err := h.start()
		if !errors.Is(err, conch.AlreadyRunning) {
			return err
		}
		// Another daemon is starting or leaving, and does not tell when it is through.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.ctx.Done():
			return err
		}
	}
}

// start runs the daemon and returns when it serves, or with why not.
func (h *hosted) start() error {
	home, err := client.Home("")
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return conch.Errorf(conch.Internal, "cannot find my own executable: %v", err)
	}
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() { // ends with h.ctx, or when a client tells the daemon to leave
		done <- daemon.Run(h.ctx, daemon.Options{
			Home: home, Version: version, Exe: exe, EndSessions: true, Tools: overHTTP, Ready: func() { close(ready) },
		})
		select {
		case <-ready:
			// conch down is meant for the process it finds: this one.
			h.leave()
		default:
		}
	}()
	select {
	case <-ready:
		h.done = done
		return nil
	case err := <-done:
		return err
	}
}

// wait returns when the daemon inside, if any, has put everything in order.
func (h *hosted) wait() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil {
		return nil
	}
	return <-h.done
}
