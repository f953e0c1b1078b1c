package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newInbox(a *app) *cobra.Command {
	var session string
	var peek, asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:     "inbox [-s LABEL] [--peek] [-n N] [--json]",
		GroupID: groupMail,
		Short:   "Fetch a session's messages",
		Long: `Fetch the messages that wait for a session, oldest first. They are leased for
120 s and come again after that, marked as repeated, until ack or reply is done with
them. --peek shows all, leased ones too, and leases nothing.`,
		Example: "  conch inbox\n  conch inbox -s build --json\n  conch inbox --peek",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return conch.Errorf(conch.InvalidRequest, "-n %d is not a number of messages", limit)
			}
			c := a.client(client.Options{})
			var page conch.InboxPage
			var err error
			if peek {
				page.Messages, err = c.Peek(cmd.Context(), session, limit)
			} else {
				page, err = c.InboxPage(cmd.Context(), session, limit)
			}
			if err != nil {
				return err
			}
			list := page.Messages
			if page.More && limit == 0 {
				defer fmt.Fprintf(os.Stderr, "conch: these are %d messages, and more wait: fetch again for the next\n", len(list))
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			if len(list) == 0 {
				fmt.Println("no messages")
			}
			for _, e := range list {
				if err := printEntry(os.Stdout, e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.sessionFlag(cmd, &session)
	fl := cmd.Flags()
	fl.BoolVar(&peek, "peek", false, "show all and lease nothing")
	fl.IntVarP(&limit, "limit", "n", 0, "at most `N`")
	fl.BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// printEntry shows a message: a line about it, and its text behind bars, so
// that no line of it can be taken for one of ours.
func printEntry(w io.Writer, e conch.InboxEntry) error {
	from := e.From
	if e.Contact != "" {
		from = e.Contact
	}
	if e.FromSession != nil {
		from += "/" + *e.FromSession
	}
	var notes []string
	if e.Role == "user" {
		notes = append(notes, "user")
	}
	if e.Auto {
		notes = append(notes, "auto")
	}
	if e.Repeat {
		notes = append(notes, "repeat")
	}
	if e.InReplyTo != nil {
		notes = append(notes, "reply to "+*e.InReplyTo)
	}
	if e.LeasedUntil != nil {
		notes = append(notes, "leased until "+clock(*e.LeasedUntil))
	}
	if e.Authority != conch.AuthorityOwn {
		word := "not verified"
		if e.Verified {
			word = "verified"
		}
		notes = append(notes, "of another home, "+word+", authority "+string(e.Authority))
	}
	head := fmt.Sprintf("%s from %s at %s", e.ID, from, clock(e.SentAt))
	if len(notes) > 0 {
		head += " (" + strings.Join(notes, ", ") + ")"
	}
	var b strings.Builder
	b.WriteString(harmless(head) + "\n")
	for line := range strings.Lines(e.Text) {
		b.WriteString("| " + strings.Map(calm, strings.TrimSuffix(line, "\n")) + "\n")
	}
	for _, f := range e.Attachments {
		how := ""
		if !f.Here {
			how = ", not here yet"
		}
		b.WriteString(harmless(fmt.Sprintf("+ attachment %d: %s, %s%s", f.N, f.Name, size(f.Size), how)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return written(err)
}

// calm is harmless for a text that keeps its tabs and spaces.
func calm(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	if unicode.IsSpace(r) {
		return ' '
	}
	return '·'
}

func newAck(a *app) *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:     "ack ID... [-s LABEL]",
		GroupID: groupMail,
		Short:   "Be done with messages",
		Long:    "Say that messages of this session's inbox are done with. They do not come again. All of them or, with an error, none.",
		Example: "  conch ack 068k3n2",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return conch.Errorf(conch.InvalidRequest, "ID is missing").Hint("%s", usage(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.client(client.Options{}).Ack(cmd.Context(), session, args...)
		},
	}
	a.sessionFlag(cmd, &session)
	return cmd
}
