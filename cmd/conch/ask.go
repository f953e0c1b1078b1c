package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newAsk(a *app) *cobra.Command {
	var m message
	timeout := duration(60 * time.Second)
	cmd := &cobra.Command{
		Use:     "ask TO TEXT [-t 60s] [--role user|agent] [--json]",
		GroupID: groupMail,
		Short:   "Send a message and wait for its answer",
		Long: `Send a message and wait for the reply to it from the session that was asked. When
the time is up the exit status is 124; a reply that comes later is in the inbox
(conch await --reply-to ID waits on). When nobody is left to answer, because the
message expired or was refused, it ends with status 125. -t 0 waits for ever.`,
		Example: "  conch ask bob/claude:1 'which port?' -t 2m",
		Args:    words("TO", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := m.request(cmd, args[1])
			if err != nil {
				return err
			}
			req.To = args[0]
			if req.ID == "" {
				req.ID = conch.NewMessageID() // known here, for when the wait is cut
			}
			c := a.client(client.Options{})
			agent, label, err := c.Resolve(m.session)
			if err != nil {
				return err
			}
			on := "conch await --reply-to " + req.ID + " -s " + agent + "/" + label + " waits on"
			ctx := cmd.Context()
			if !signal.Ignored(os.Interrupt) { // as in a job that a script put in the background
				var stop context.CancelFunc
				ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
				defer stop()
			}
			asked, err := c.Ask(ctx, m.session, req, time.Duration(timeout))
			if err != nil && ctx.Err() != nil {
				say(os.Stderr, "interrupted before the answer to "+req.ID, on)
				return exitStatus(statusInterrupted)
			}
			if err != nil {
				return err
			}
			switch {
			case m.json:
				err = printJSON(os.Stdout, asked)
			case asked.Reply != nil:
				err = printEntry(os.Stdout, *asked.Reply)
			case asked.TimedOut:
				say(os.Stderr, "no answer to "+asked.Sent.ID+" yet", on)
			}
			if err == nil && asked.Reply == nil && !asked.TimedOut {
				return conch.Errorf(conch.MessageRefused, "nobody will answer %s: it is %s, %s", asked.Sent.ID, asked.Sent.Status, asked.Sent.Reason).
					Hint("conch receipts %s says what became of it; ask again for another try", asked.Sent.ID)
			}
			if err == nil && asked.TimedOut {
				return exitStatus(statusTimedOut)
			}
			return err
		},
	}
	m.flags(a, cmd)
	cmd.Flags().VarP(&timeout, "timeout", "t", "how long to wait for the answer; 0: for ever")
	cmd.Flags().StringVar(&m.policy, "policy", "", "to an agent: primary, broadcast or drop (default: the agent's)")
	return cmd
}

func newAwait(a *app) *cobra.Command {
	var session, from, replyTo string
	var asJSON bool
	timeout := duration(60 * time.Second)
	cmd := &cobra.Command{
		Use:     "await [--from TO] [--reply-to ID] [-t 60s] [-s LABEL] [--json]",
		GroupID: groupMail,
		Short:   "Wait for the next message",
		Long: `Give the next message of a session's inbox, at once if there is one, else when it
comes. It is leased as by inbox. Exit status 124 when the time is up; with --json
that prints null. -t 0 waits for ever.`,
		Example: "  conch await\n  conch await --from bob -t 5m\n  conch await --reply-to 068k3n2 --json",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"from", "reply-to"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return conch.Errorf(conch.InvalidRequest, "--%s is given and empty", name)
				}
			}
			e, err := a.client(client.Options{}).Await(cmd.Context(), session, from, replyTo, time.Duration(timeout))
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				err = printJSON(os.Stdout, e)
			case e != nil:
				err = printEntry(os.Stdout, *e)
			}
			if err == nil && e == nil {
				return exitStatus(statusTimedOut)
			}
			return err
		},
	}
	a.sessionFlag(cmd, &session)
	fl := cmd.Flags()
	fl.StringVar(&from, "from", "", "only from this agent or session (`TO` as for send)")
	fl.StringVar(&replyTo, "reply-to", "", "only replies to message `ID`")
	fl.VarP(&timeout, "timeout", "t", "how long to wait; 0: for ever")
	fl.BoolVar(&asJSON, "json", false, "print one JSON value, null when the time is up")
	return cmd
}
