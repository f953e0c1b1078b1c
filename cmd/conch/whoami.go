package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newWhoami(a *app) *cobra.Command {
	var session string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "whoami [-s LABEL] [--json]",
		GroupID: groupMail,
		Short:   "Say which agent and session a call from here is",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := a.client(client.Options{}).WhoAmI(cmd.Context(), session)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, w)
			}
			var labels []string
			for _, s := range w.Sessions {
				labels = append(labels, s.Label)
			}
			if labels == nil {
				labels = []string{"none"}
			}
			return table(os.Stdout, nil, [][]string{
				{"agent", w.Agent + " (" + chosen(w.ChosenBy) + ")"},
				{"address", w.Address},
				{"label", w.Label},
				{"sessions", strings.Join(labels, ", ")},
				{"daemon", fmt.Sprintf("pid %d, %s", w.Daemon.PID, stays(w.Daemon.Mode))},
				{"relay", relayLine(w.Relay)},
			})
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// chosen says in words what decided on an agent.
func chosen(by conch.Scope) string {
	switch by {
	case conch.ScopeNamed:
		return "named"
	case conch.ScopeSession:
		return "assigned to this harness session"
	case conch.ScopeProject:
		return "assigned to this directory"
	case conch.ScopeGlobal:
		return "in use everywhere"
	}
	return "the default"
}

func stays(mode string) string {
	switch mode {
	case "auto":
		return "leaves when it is not needed"
	case "standalone":
		return "leaves with the agent it serves"
	}
	return "stays until conch down"
}
