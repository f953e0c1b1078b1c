package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/hook"
	"github.com/conchsh/conch/internal/mcp"
)

func newHook(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "hook EVENT",
		GroupID: groupMail,
		Short:   "Answer a hook of Claude Code",
		Long: `Read what Claude Code says to a hook on stdin, and print what its model should be
told. The plugin has it called; it is not for a terminal.

  SessionStart      who the session is, how many messages wait, how to use conch
  UserPromptSubmit  the messages that wait, framed and cut, each once
  Stop              has a model that wants to stop read what came, once a message
  SessionEnd        what was fetched and not done with can be fetched again at once

Messages are offered by this, and not fetched. A daemon is started by SessionStart
alone, and only where there is mail. Whatever fails, nothing is printed and the exit
status is 0: a broken mailbox must not break the agent. daemon.log says what it was.`,
		Example: `  echo '{"session_id":"x","stop_hook_active":false}' | conch hook Stop`,
		Args:    words("EVENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isTerminal(os.Stdin) {
				return conch.Errorf(conch.InvalidRequest, "a hook reads what Claude Code says, and stdin is a terminal").
					Hint("the plugin has it called; conch inbox shows a session's messages")
			}
			if out, err := answerHook(cmd.Context(), a.agent, args[0]); err != nil {
				recordHook(args[0], err)
			} else {
				os.Stdout.Write(out) // a harness that has gone needs no answer
			}
			return nil
		},
	}
}

// answerHook is hook.Answer, from which nothing gets out but an error.
func answerHook(ctx context.Context, agent, event string) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	// The session is chosen as the server of the same harness chooses it.
	o := mcp.Options{Client: client.Options{Agent: agent}}
	fromEnvironment(&o)
	o.Client.Exe, _ = os.Executable() // without one the client looks on PATH
	pid, _ := strconv.Atoi(os.Getenv("CLAUDE_PID"))
	return hook.Answer(ctx, hook.Options{Event: event, In: os.Stdin, Client: o.Client, Session: o.Session, HarnessPID: pid})
}

// recordHook writes a failure into the daemon's log, if there is a home to have one.
func recordHook(event string, err error) {
	home, herr := client.Home("")
	if herr != nil {
		return
	}
	f, ferr := os.OpenFile(filepath.Join(home, "daemon.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if ferr != nil {
		return // there is nobody left to tell
	}
	defer f.Close()
	slog.New(slog.NewTextHandler(f, nil)).Warn("hook", "event", event, "err", err)
}
