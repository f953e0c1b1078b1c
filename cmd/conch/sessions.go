package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newSessions(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "sessions [--json]",
		GroupID: groupSession,
		Short:   "List the open sessions",
		Long: `List the open sessions of all agents, or with --agent of one. busy: it runs a command,
or its client is at work. attached: a terminal shows it. idle: a client holds it. away:
nobody holds it; mail to it is held, and a command finds its shell as it was. asleep:
away, and its shell was let go, to come back with its state. mailbox: it has no shell.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client(client.Options{})
			if err := a.checkAgent(cmd.Context(), c); err != nil {
				return err
			}
			list, err := c.Sessions(cmd.Context())
			if err != nil {
				return err
			}
			if a.agent != "" {
				list = slices.DeleteFunc(list, func(s conch.SessionInfo) bool { return s.Agent != a.agent })
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			if len(list) == 0 {
				fmt.Println("no sessions")
				return nil
			}
			rows := make([][]string, len(list))
			for i, s := range list {
				rows[i] = []string{
					s.Agent, s.Label, doing(s), pid(s.ShellPID), clock(s.StartedAt), clock(s.LastActive), s.Cwd,
				}
			}
			return table(os.Stdout, []string{"AGENT", "LABEL", "STATE", "SHELL", "STARTED", "ACTIVE", "CWD"}, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// doing is a session's state in a word or two. Who is not live is neither busy
// nor idle.
func doing(s conch.SessionInfo) string {
	state := "away"
	switch {
	case s.Live && s.Busy:
		state = "busy"
	case s.Attached > 0:
		state = "attached"
	case s.Live:
		state = "idle"
	case s.ID != "" && s.KeeperPID == 0:
		state = "asleep"
	}
	if s.ID == "" {
		state = "mailbox, " + state
	}
	if s.Mail > 0 {
		state += ", " + plural(s.Mail, "message", "messages")
	}
	if s.Queue > 0 {
		state += fmt.Sprintf(", %d queued", s.Queue)
	}
	return state
}

func pid(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
