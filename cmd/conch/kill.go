package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newKill(a *app) *cobra.Command {
	var signal string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "kill [--signal SIG] ID",
		GroupID: groupProcess,
		Short:   "End a process and all that it started",
		Long: `End a process and all that it started, also what left its process group, and
return when they are seen gone: TERM first, KILL after 5 s. With --signal send
only that, to all of them; KILL is seen through as well.`,
		Example:           "  conch kill web\n  conch kill --signal HUP web",
		Args:              words("ID"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("signal") && signal == "" {
				return conch.Errorf(conch.InvalidRequest, "--signal is given and empty")
			}
			c := a.client(client.Options{})
			id, err := a.processID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			var k *conch.Killed
			if signal == "" {
				k, err = c.Kill(cmd.Context(), id)
			} else {
				k, err = c.Signal(cmd.Context(), id, signal)
			}
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(os.Stdout, k); err != nil {
					return err
				}
			}
			ending := signal == "" || strings.TrimPrefix(strings.ToUpper(signal), "SIG") == "KILL"
			if ending && !k.Verified {
				return conch.Errorf(conch.Internal, "%s of %s are still there after KILL", plural(k.Process.Processes, "process", "processes"), id).
					Hint("they may be stuck in the kernel, or run as another user; conch ps counts them")
			}
			if !asJSON && isTerminal(os.Stdout) {
				fmt.Printf("%s: %s\n", id, fate(k.Process))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&signal, "signal", "", "send this signal (a name such as HUP, or a number) and nothing more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what it took as JSON")
	return cmd
}
