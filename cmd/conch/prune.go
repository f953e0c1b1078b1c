package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch/client"
)

func newPrune(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "prune",
		GroupID: groupSession,
		Short:   "Remove what closed sessions left on disk",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.client(client.Options{}).Prune(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Printf("removed %s (%s)\n", plural(p.Removed, "closed session", "closed sessions"), size(p.Bytes))
			return nil
		},
	}
}
