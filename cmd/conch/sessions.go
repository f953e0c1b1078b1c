package main

import (
	"errors"
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
		Long:    "List the open sessions of all agents, or with --agent of one.",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.agent != "" {
				if err := conch.CheckAgent(a.agent); err != nil {
					return err
				}
			}
			c := a.client(client.Options{})
			list, err := c.Sessions(cmd.Context())
			if err != nil {
				return err
			}
			if a.agent != "" {
				// That there is such an agent, and not only no session of it.
				if _, err := c.WhoAmI(cmd.Context(), conch.DefaultLabel); errors.Is(err, conch.AgentNotFound) {
					return err
				}
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

// doing is a session's state in a word or two.
func doing(s conch.SessionInfo) string {
	state := "idle"
	switch {
	case s.KeeperPID == 0:
		state = "asleep"
	case s.Busy:
		state = "busy"
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
