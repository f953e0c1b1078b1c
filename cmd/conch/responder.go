package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newResponder(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "responder [status|on|off] [--json]",
		GroupID: groupMail,
		Short:   "Answer mail that nobody takes, with a command",
		Long: `Say what the agent's auto-responder is, did and cost, or switch it on or off. It is
off unless switched on. Mail that comes from then on, and that no session fetches
in time, is given to the command of responder.command in config.toml, in a sandboxed
session of its own: framed messages on stdin, the reply on stdout. docs/CONFIG.md has
its limits. What fails is listed here, and its messages stay in their inbox.`,
		Example: "  conch responder on\n  conch responder status --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			word := "status"
			if len(args) == 1 {
				word = args[0]
			}
			c := a.client(client.Options{})
			var st *conch.ResponderStatus
			var err error
			switch word {
			case "status":
				st, err = c.Responder(cmd.Context())
			case "on", "off":
				st, err = c.SetResponder(cmd.Context(), word == "on")
			default:
				return conch.Errorf(conch.InvalidRequest, "there is no responder %q", word).Hint("status, on or off")
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, st)
			}
			return printResponder(st)
		},
		ValidArgs: []string{"status", "on", "off"},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func printResponder(st *conch.ResponderStatus) error {
	state := "off"
	if st.On {
		state = "on since " + clock(*st.Since)
	}
	limit := func(n int) string {
		if n == 0 {
			return "any number"
		}
		return strconv.Itoa(n)
	}
	which := "all mail"
	if st.Mail != "all" {
		which = fmt.Sprintf("mail that nobody takes within %v", time.Duration(st.AfterS*float64(time.Second)))
	}
	rows := [][]string{
		{"responder", state},
		{"command", st.Command},
		{"for", which},
		{"sandbox", st.Sandbox},
		{"now", fmt.Sprintf("%d running of %d at most, %d waiting, %d of them over budget", st.Running, st.Pool, st.Waiting, st.Budget.Over)},
		{"budget", fmt.Sprintf("%d runs in 24 h of %s; %s for one agent", st.Budget.Used, limit(st.Budget.PerDay), limit(st.Budget.PerPeer))},
		{"so far", fmt.Sprintf("%d runs: %d answered, %d failed; %d refused; %.1f s, %d bytes in, %d out", st.Totals.Runs, st.Totals.Answered, st.Totals.Failed, st.Totals.Refused, st.Totals.Seconds, st.Totals.BytesIn, st.Totals.BytesOut)},
	}
	if st.NotReady != "" {
		rows = append(rows, []string{"not ready", st.NotReady})
	}
	if err := table(os.Stdout, nil, rows); err != nil || len(st.Runs) == 0 {
		return err
	}
	rows = nil
	for _, r := range st.Runs {
		rows = append(rows, []string{strconv.FormatInt(r.Run, 10), string(r.Status), clock(r.StartedAt), fmt.Sprintf("%.1fs", r.Seconds), r.From, r.To, string(r.CommandID), r.Reason})
	}
	if _, err := fmt.Println(); err != nil {
		return written(err)
	}
	return table(os.Stdout, []string{"RUN", "STATUS", "AT", "TOOK", "FROM", "TO", "COMMAND", "REASON"}, rows)
}
