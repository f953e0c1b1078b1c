package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newReset(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "reset LABEL",
		GroupID:           groupSession,
		Short:             "End a session's shell and start a clean one",
		Example:           "  conch reset build",
		Args:              aLabel,
		ValidArgsFunction: a.completeLabel,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := a.client(client.Options{}).Reset(cmd.Context(), args[0])
			return gone("reset", args[0], g, err)
		},
	}
}

// gone says what was ended with a session.
func gone(done, label string, g *client.Gone, err error) error {
	if err != nil {
		return err
	}
	if !g.Verified {
		return notGone(label)
	}
	fmt.Printf("%s %s (%s ended)\n", done, label, plural(g.Processes, "process", "processes"))
	return nil
}

// aLabel is words("LABEL") that refuses the empty word, which elsewhere stands
// for the default session: what ends a session wants it named.
func aLabel(cmd *cobra.Command, args []string) error {
	if err := words("LABEL")(cmd, args); err != nil {
		return err
	}
	if args[0] == "" {
		return conch.CheckLabel("")
	}
	return nil
}
