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
		Short:   "Remove what closed sessions left on disk, and ended processes from the lists",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.client(client.Options{}).Prune(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Printf("removed %s (%s)", plural(p.Removed, "closed session", "closed sessions"), size(p.Bytes))
			if p.Processes > 0 {
				fmt.Printf(", forgot %s", plural(p.Processes, "ended process", "ended processes"))
			}
			fmt.Println()
			return nil
		},
	}
}
