package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/daemon"
)

func newUp(a *app) *cobra.Command {
	var foreground bool
	cmd := &cobra.Command{
		Use:     "up [--foreground]",
		GroupID: groupDaemon,
		Short:   "Start the daemon",
		Long: `Start the daemon in the background and return when it serves. Other verbs start
it by themselves; one that was started so leaves when nothing is left to do.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if foreground {
				return serve(cmd.Context(), daemon.Options{Ready: func() {
					fmt.Fprintln(os.Stderr, "conch: serving; Ctrl-C stops the daemon and leaves sessions running")
				}})
			}
			c := a.client(client.Options{})
			started, err := c.Start(cmd.Context())
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if started {
				fmt.Printf("started (pid %d, home %s)\n", s.DaemonPID, harmless(s.Home))
			} else {
				fmt.Printf("already running (pid %d, home %s)\n", s.DaemonPID, harmless(s.Home))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&foreground, "foreground", false, "run the daemon in this process")
	return cmd
}
