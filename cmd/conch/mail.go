package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newReceipts(a *app) *cobra.Command {
	var session string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "receipts ID [-s LABEL] [--json]",
		GroupID: groupMail,
		Short:   "Say what became of a message",
		Long: `List what happened to a message: queued, sent (on the relay, to another home), held (its session is away), stored (in the
inbox), offered (pushed), seen (fetched), done (acknowledged or answered), or refused,
expired, failed with the reason. A message to several sessions is as far as the one
that is least far.`,
		Args: words("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.client(client.Options{}).Receipts(cmd.Context(), session, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, r)
			}
			var rows [][]string
			for _, h := range r.History {
				rows = append(rows, []string{string(h.Status), clock(h.At), h.Session, h.Reason})
			}
			if err := table(os.Stdout, []string{"STATUS", "AT", "SESSION", "REASON"}, rows); err != nil || len(r.Recipients) < 2 || r.Reason == "" {
				return err
			}
			_, err = fmt.Printf("%s: %s\n", r.Status, r.Reason)
			return written(err)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newMail(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "mail",
		GroupID: groupMail,
		Short:   "Search mail, read threads, save attachments, say who gets what",
		Args:    noVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMailSearch(a), newMailThread(a), newMailPolicy(a), newMailPriority(a), newMailSave(a), newMailQuarantine(a))
	return cmd
}

func newMailSearch(a *app) *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "search TEXT [-n N] [--json]",
		Short: "Find the agent's messages that have all these words, newest first",
		Args:  words("TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return conch.Errorf(conch.InvalidRequest, "-n %d is not a number of messages", limit)
			}
			list, err := a.client(client.Options{}).Search(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return printFound(list, asJSON)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` (default 100)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func newMailThread(a *app) *cobra.Command {
	var session string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "thread ID [-s LABEL] [--json]",
		Short: "List the messages of the chain of replies that ID belongs to",
		Args:  words("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.client(client.Options{}).Thread(cmd.Context(), session, args[0])
			if err != nil {
				return err
			}
			return printFound(list, asJSON)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func printFound(list []conch.FoundMessage, asJSON bool) error {
	if asJSON {
		return printJSON(os.Stdout, list)
	}
	if len(list) == 0 {
		fmt.Println("no messages")
		return nil
	}
	var rows [][]string
	for _, f := range list {
		to := f.To
		if f.ToSession != "" {
			to += "/" + f.ToSession
		}
		rows = append(rows, []string{f.ID, clock(f.SentAt), f.From + "/" + f.FromSession, to, string(f.Status), fit(firstLine(f.Text), 85)})
	}
	return table(os.Stdout, []string{"ID", "SENT", "FROM", "TO", "STATUS", "TEXT"}, rows)
}

func newMailPolicy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "policy [primary|broadcast|drop]",
		Short: "Say, or set, who gets mail to the agent that names no session",
		Long: `primary: the live session of the highest priority, then of the lowest label. broadcast:
every live session, and those that appear before it expires. drop: nobody; it is refused.
Mail that is held is looked at again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return words("POLICY")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client(client.Options{})
			if len(args) == 1 {
				return c.SetPolicy(cmd.Context(), conch.Policy(args[0]))
			}
			p, err := c.Policy(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Println(p)
			return written(err)
		},
	}
}

func newMailPriority(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "priority LABEL N",
		Short: "Set a session's priority: the highest that is live is the agent's primary",
		Args:  words("LABEL", "N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil {
				return conch.Errorf(conch.InvalidRequest, "%.40q is not a priority", args[1]).Hint("a whole number; 0 is the default")
			}
			return a.client(client.Options{}).SetPriority(cmd.Context(), args[0], int(n))
		},
	}
}
