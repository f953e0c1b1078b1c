package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newDown(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "down [--all]",
		GroupID: groupDaemon,
		Short:   "Stop the daemon; sessions go on",
		Long: `Stop the daemon, of whatever version, and return when it is gone. Sessions and
what they run go on, and the next daemon finds them; --all closes them first.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if !all {
				// Closing sessions takes as long as their processes take to
				// end; leaving alone does not.
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 15*time.Second,
					conch.Errorf(conch.AlreadyRunning, "the daemon does not leave").Hint("daemon.log in conch's home may say why"))
				defer cancel()
			}
			err := a.client(client.Options{}).Shutdown(ctx, all)
			if errors.Is(err, conch.NotRunning) {
				fmt.Println("not running")
				return nil
			}
			if err != nil {
				return err
			}
			if all {
				fmt.Println("stopped; all sessions are closed")
			} else {
				fmt.Println("stopped; sessions go on")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "close every session first")
	return cmd
}
