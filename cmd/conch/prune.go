package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/config"
)

func newPrune(a *app) *cobra.Command {
	var o client.PruneOptions
	var older string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "prune [--older-than D] [--keep N] [--json]",
		GroupID: groupSession,
		Short:   "Remove what closed sessions left on disk, and ended processes from the lists",
		Long: `Remove the tapes and records of closed sessions: all of them, or those that were
closed some time ago, or all but the last; and take ended processes of open sessions
off their lists. The daemon does so by itself with sessions that are old or take
much room (prune_after and prune_size in config.toml).`,
		Example: "  conch prune --older-than 7d --keep 20",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if older != "" {
				var err error
				if o.OlderThan, err = config.ParseDuration(older); err != nil || o.OlderThan < 0 {
					return conch.Errorf(conch.InvalidRequest, "--older-than %q is not a duration", older).Hint("such as 12h or 30d")
				}
			}
			if o.Keep < 0 {
				return conch.Errorf(conch.InvalidRequest, "--keep %d is less than nothing", o.Keep)
			}
			p, err := a.client(client.Options{}).Prune(cmd.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, p)
			}
			fmt.Printf("removed %s (%s)", plural(p.Removed, "closed session", "closed sessions"), size(p.Bytes))
			if p.Processes > 0 {
				fmt.Printf(", forgot %s", plural(p.Processes, "ended process", "ended processes"))
			}
			fmt.Println()
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&older, "older-than", "", "only those closed at least `D` ago (12h, 30d)")
	fl.IntVar(&o.Keep, "keep", 0, "keep the `N` that were closed last")
	fl.BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}
