package main

import (
	"github.com/spf13/cobra"

	"github.com/conchsh/conch/client"
)

func newClose(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "close LABEL",
		GroupID: groupSession,
		Short:   "End a session and every process of it",
		Long: `End a session for good, every process of it included, background ones too. Its
output is kept until pruned; a later exec on the label makes a new session.`,
		Example:           "  conch close build",
		Args:              aLabel,
		ValidArgsFunction: a.completeLabel,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := a.client(client.Options{}).Close(cmd.Context(), args[0])
			return gone("closed", args[0], g, err)
		},
	}
}
