package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor [--json]",
		GroupID: groupDaemon,
		Short:   "Look for what keeps conch from working well",
		Long:    "Look for what keeps conch from working well. Exit status 1 if something was found.",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := examine(cmd.Context(), a.client(client.Options{}))
			well := true
			rows := make([][]string, 0, 2*len(checks))
			for _, c := range checks {
				mark := "ok"
				if !c.OK {
					mark, well = "FAIL", false
				}
				rows = append(rows, []string{mark, c.Name, c.Detail})
				if !c.OK && c.Hint != "" {
					rows = append(rows, []string{"", "", "→ " + c.Hint})
				}
			}
			var err error
			if asJSON {
				err = printJSON(os.Stdout, struct {
					Checks []client.Check `json:"checks"`
				}{checks})
			} else {
				err = table(os.Stdout, nil, rows)
			}
			if err == nil && !well {
				err = exitStatus(statusUnwell)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// examine looks from this side first: whether there is a daemon to ask.
func examine(ctx context.Context, c *client.Client) []client.Check {
	failed := func(name string, err error) client.Check {
		e := conch.AsError(err)
		return client.Check{Name: name, Detail: e.Message, Hint: e.HintText}
	}
	home, err := c.Home()
	if err != nil {
		return []client.Check{failed("home", err)}
	}
	checks := []client.Check{{Name: "client", OK: true, Detail: "conch " + version + ", home " + home}}
	v, err := c.Version(ctx)
	if err != nil {
		return append(checks, failed("daemon", err))
	}
	daemon := client.Check{Name: "daemon", OK: v.Version == version, Detail: "conch " + v.Version}
	if !daemon.OK {
		daemon.Hint = "client and daemon differ: conch down, then conch up"
	}
	checks = append(checks, daemon)
	more, err := c.Doctor(ctx)
	if err != nil {
		return append(checks, failed("doctor", err))
	}
	return append(checks, more...)
}
