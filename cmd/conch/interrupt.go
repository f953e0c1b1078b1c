package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newInterrupt(a *app) *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:     "interrupt [-s LABEL]",
		GroupID: groupRun,
		Short:   "End what a session is running",
		Long: `End the command a session is running, all of its processes: INT, then TERM
after 2 s, KILL after 5 s more. The shell and its state stay.`,
		Example: "  conch interrupt\n  conch interrupt -s build",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.client(client.Options{NoCreate: true}).Interrupt(cmd.Context(), session, "")
			if err != nil {
				return err
			}
			if !r.Interrupted {
				fmt.Println("nothing is running")
				return nil
			}
			if r.Ended == nil {
				fmt.Printf("interrupted %s\n", r.CommandID)
				return nil
			}
			if !r.Ended.Verified {
				return notGone(string(r.CommandID))
			}
			fmt.Printf("interrupted %s with %s (%s)\n", r.CommandID, r.Ended.Signal,
				plural(r.Ended.Processes, "process", "processes"))
			return nil
		},
	}
	a.sessionFlag(cmd, &session)
	return cmd
}

// notGone is for processes that were not seen to end.
func notGone(of string) error {
	return conch.Errorf(conch.Internal, "not every process of %s could be seen to end", of).
		Hint("one may be stuck in the kernel; conch doctor")
}
