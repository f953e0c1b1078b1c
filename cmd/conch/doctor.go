package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON, deep bool
	cmd := &cobra.Command{
		Use:     "doctor [--deep] [--json]",
		GroupID: groupDaemon,
		Short:   "Look for what keeps conch from working well",
		Long: `Look for what keeps conch from working well, and say what to do about it. Works
with a daemon, without one, and with one that does not answer; starts none. Exit
status 1 if something was found.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := examine(cmd.Context(), a.client(client.Options{NoStart: true}), deep)
			well := true
			rows := make([][]string, 0, 2*len(checks))
			for _, c := range checks {
				mark := "ok"
				if !c.OK {
					mark, well = "FAIL", false
				}
				rows = append(rows, []string{mark, c.Name, c.Detail})
				if c.Hint != "" {
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
	cmd.Flags().BoolVar(&deep, "deep", false, "read every byte of every tape")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// examine looks from this side first: whether there is a daemon to ask. Where none
// answers, it looks by itself.
func examine(ctx context.Context, c *client.Client, deep bool) []client.Check {
	failed := func(name string, err error) client.Check {
		e := conch.AsError(err)
		return client.Check{Name: name, Detail: e.Message, Hint: e.HintText}
	}
	home, err := c.Home()
	if err != nil {
		return []client.Check{failed("home", err)}
	}
	checks := []client.Check{{Name: "client", OK: true, Detail: "conch " + version + ", home " + home}}
	v, err := c.Ping(ctx)
	switch {
	case err == nil && v.Version != version:
		checks = append(checks, client.Check{Name: "daemon", Detail: "conch " + v.Version, Hint: "client and daemon differ: conch down, then conch up; sessions go on"})
	case err == nil:
		checks = append(checks, client.Check{Name: "daemon", OK: true, Detail: "conch " + v.Version})
	case errors.Is(err, conch.NotRunning):
		checks = append(checks, client.Check{Name: "daemon", OK: true, Detail: "not running; the next command starts it"})
	default:
		checks = append(checks, failed("daemon", err))
	}
	if err == nil {
		more, derr := c.Doctor(ctx, deep)
		if derr == nil {
			return append(checks, more...)
		}
		checks = append(checks, failed("doctor", derr))
	}
	exe, err := os.Executable()
	if err != nil {
		exe = "" // nothing is tried with it then
	}
	for _, k := range doctor.Examine(ctx, doctor.Options{Home: home, Version: version, Exe: exe, Deep: deep}) {
		checks = append(checks, client.Check(k))
	}
	return checks
}
