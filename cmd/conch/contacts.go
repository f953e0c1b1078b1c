package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newContacts(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "contacts",
		GroupID: groupMail,
		Short:   "Say which agents of other homes may write to you, and what their word counts for",
		Long: `Agents of other homes are known by their address. Who is no contact gets nothing
in; to send to a stranger asks it to be one, and the message waits for the answer.
Without a verb this lists the agent's contacts. Agents of one home need no contact.

To accept, to raise an authority, and to confirm a safety number is for a person:
these want a terminal, and refuse in a session of conch's.`,
		Example: `  conch contacts add bob 7Np41oeYqPefeNQEHSv1UDhYrehxin3NStELsSKCT4K2
  conch contacts accept 7Np41oeYqPefeNQEHSv1UDhYrehxin3NStELsSKCT4K2 --name bob
  conch contacts verify bob
  conch contacts authority bob ask`,
		Args: noVerb,
	}
	var asJSON bool
	list := func(cmd *cobra.Command, _ []string) error { return a.listContacts(cmd, asJSON) }
	cmd.RunE = list
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	ls := &cobra.Command{Use: "ls [--json]", Short: "List contacts, those who wait for an answer first", Args: words(), RunE: list}
	ls.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	cmd.AddCommand(ls, newContactsAdd(a), newContactsAccept(a), newContactsBlock(a), newContactsVerify(a), newContactsReset(a), newContactsAuthority(a))
	return cmd
}

func (a *app) listContacts(cmd *cobra.Command, asJSON bool) error {
	list, err := a.client(client.Options{}).Contacts(cmd.Context(), "")
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(os.Stdout, list)
	}
	if len(list) == 0 {
		fmt.Println("no contacts")
		return nil
	}
	var rows [][]string
	for _, c := range list {
		verified, note := "no", c.Text
		if c.Verified {
			verified = "yes"
		}
		if c.Pending > 0 {
			note = plural(c.Pending, "message waits", "messages wait")
		}
		if c.Note != "" {
			note = c.Note
		}
		if c.Held != "" {
			note = "held: " + c.Held
		}
		rows = append(rows, []string{c.Name, c.Address, string(c.State), string(c.Authority), verified, clock(c.Since), note})
	}
	return table(os.Stdout, []string{"NAME", "ADDRESS", "STATE", "AUTHORITY", "VERIFIED", "SINCE", "NOTE"}, rows)
}

func printContact(c *conch.Contact, asJSON bool) error {
	if asJSON {
		return printJSON(os.Stdout, c)
	}
	name := c.Address
	if c.Name != "" {
		name = c.Name + " " + name
	}
	_, err := fmt.Println(harmless(fmt.Sprintf("%s %s, authority %s", name, c.State, c.Authority)))
	return written(err)
}

func newContactsAdd(a *app) *cobra.Command {
	var r conch.ContactRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add NAME ADDRESS [--text TEXT] [--json]",
		Short: "Ask an agent to be a contact, under a name of yours",
		Long:  "Ask an agent of another home to be a contact. NAME is yours for it: it may stand wherever its address may. For an agent that is a contact this gives it the name.",
		Args:  words("NAME", "ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name, r.Peer = args[0], args[1]
			c, err := a.client(client.Options{}).AddContact(cmd.Context(), "", r)
			if err != nil {
				return err
			}
			return printContact(c, asJSON)
		},
	}
	cmd.Flags().StringVar(&r.Text, "text", "", "what the other is told, at most 500 characters")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// person refuses what a person has to decide when nobody can be at a terminal.
// The daemon looks for itself; this says so sooner, and says what is missing.
func person() error {
	const hint = "a person runs this in a terminal of their own; the page (conch ui) does it too"
	if !isTerminal(os.Stdin) {
		return conch.Errorf(conch.NotHuman, "this is for a person to decide, and there is no terminal").Hint(hint)
	}
	for _, v := range []string{"CONCH_SESSION", "CLAUDE_CODE_SESSION_ID"} {
		if os.Getenv(v) != "" {
			return conch.Errorf(conch.NotHuman, "this is for a person to decide, and $%s says that an agent works here", v).Hint(hint)
		}
	}
	return nil
}

func newContactsAccept(a *app) *cobra.Command {
	var r conch.ContactRequest
	var authority string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "accept PEER [--name NAME] [--authority inform|ask|act] [--json]",
		Short: "Let a contact in that asked, that was blocked, or whose keys changed",
		Long: `Accept a contact: one that asked, one that was blocked, or one whose keys changed and
whose mail is held for that reason. PEER is its address, or your name for it. Only a
person can do this, at a terminal.`,
		Args: words("PEER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := person(); err != nil {
				return err
			}
			r.Peer, r.Authority = args[0], conch.Authority(authority)
			cl := a.client(client.Options{})
			c, err := cl.AcceptContact(cmd.Context(), "", r)
			if err == nil && r.Name != "" {
				c, err = cl.AddContact(cmd.Context(), "", conch.ContactRequest{Peer: c.Address, Name: r.Name})
			}
			if err != nil {
				return err
			}
			return printContact(c, asJSON)
		},
	}
	cmd.Flags().StringVar(&r.Name, "name", "", "your `NAME` for it")
	cmd.Flags().StringVar(&authority, "authority", "", "what its word counts for: inform (default), ask or act")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newContactsBlock(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "block PEER [--json]",
		Short: "Keep an agent out, and tell it",
		Args:  words("PEER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(client.Options{}).BlockContact(cmd.Context(), "", args[0])
			if err != nil {
				return err
			}
			return printContact(c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newContactsVerify(a *app) *cobra.Command {
	var confirm, asJSON bool
	cmd := &cobra.Command{
		Use:   "verify PEER [--confirm] [--json]",
		Short: "Show the safety number that you and a contact have in common",
		Long: `Show a number of 60 digits. If the other side sees the same for you, nobody stands
between: compare it by voice or in person, never by mail. --confirm notes that you did,
and only a person at a terminal can.`,
		Args: words("PEER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if confirm {
				if err := person(); err != nil {
					return err
				}
			}
			v, err := a.client(client.Options{}).VerifyContact(cmd.Context(), "", args[0], confirm)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, v)
			}
			fmt.Println(v.Number)
			if !v.Contact.Verified {
				say(os.Stderr, "not verified", "compare the number with the other side, then: conch contacts verify "+args[0]+" --confirm")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "the numbers were compared and are the same")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newContactsReset(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reset PEER [--json]",
		Short: "Begin new ratchets with a contact, when nothing gets through any more",
		Args:  words("PEER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(client.Options{}).ResetContact(cmd.Context(), "", args[0])
			if err != nil {
				return err
			}
			return printContact(c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newContactsAuthority(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "authority PEER inform|ask|act [--json]",
		Short: "Say what a contact's word counts for",
		Long: `inform: what it writes is to be known, not to be followed. ask: it may ask for
answers. act: it may ask for work to be done. Whoever shows its messages says so with
them. To raise it is for a person, at a terminal.`,
		Args: words("PEER", "AUTHORITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(client.Options{}).SetAuthority(cmd.Context(), "", args[0], conch.Authority(args[1]))
			if err != nil {
				return err
			}
			return printContact(c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newMailQuarantine(a *app) *cobra.Command {
	var clear, asJSON bool
	cmd := &cobra.Command{
		Use:   "quarantine [--clear] [--json]",
		Short: "List letters from other homes that could not be opened or taken",
		Args:  words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client(client.Options{})
			if clear {
				return c.ClearQuarantine(cmd.Context())
			}
			list, err := c.Quarantine(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			if len(list) == 0 {
				fmt.Println("nothing")
				return nil
			}
			var rows [][]string
			for _, q := range list {
				asked := ""
				if q.Asked {
					asked = "asked for again"
				}
				rows = append(rows, []string{clock(q.At), q.From, q.ID, size(q.Bytes), asked, q.Reason})
			}
			return table(os.Stdout, []string{"AT", "FROM", "ID", "SIZE", "", "REASON"}, rows)
		},
	}
	cmd.Flags().BoolVar(&clear, "clear", false, "throw them away")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func newMailSave(a *app) *cobra.Command {
	var session, out string
	var n int
	cmd := &cobra.Command{
		Use:   "save ID [--attachment N] [-o PATH] [-s LABEL]",
		Short: "Write a file that came with a message",
		Long: `Write an attachment to a new file: PATH, or its own name in the current directory. A
file that is there is never overwritten. What its sender calls it has been reduced to
a plain name.`,
		Args: words("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client(client.Options{})
			if out == "" {
				name, err := attachmentName(cmd, c, session, args[0], n)
				if err != nil {
					return err
				}
				out = name
			}
			r, err := c.Attachment(cmd.Context(), session, args[0], n)
			if err != nil {
				return err
			}
			defer r.Close()
			return saveNew(out, r)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().IntVar(&n, "attachment", 1, "which one, by `N`umber")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `PATH` (-: stdout)")
	return cmd
}

// attachmentName looks up what a file is called.
func attachmentName(cmd *cobra.Command, c *client.Client, session, id string, n int) (string, error) {
	list, err := c.Peek(cmd.Context(), session, 0)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if e.ID == id && n >= 1 && n <= len(e.Attachments) {
			return e.Attachments[n-1].Name, nil
		}
	}
	return "", conch.Errorf(conch.InvalidRequest, "the inbox has no attachment %d of a message %s by whose name to save it", n, id).Hint("-o PATH says where to")
}

// saveNew writes a file that is not there yet, whole or not at all.
func saveNew(path string, r io.Reader) error {
	if path == "-" {
		_, err := io.Copy(os.Stdout, r)
		return written(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return conch.Errorf(conch.InvalidRequest, "%v; nothing was written", err).Hint("-o PATH names another file")
	}
	n, err := io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(path)
		return conch.Errorf(conch.StorageFull, "cannot write %s: %v; nothing was kept", path, err)
	}
	_, err = fmt.Printf("%s %s\n", harmless(path), size(n))
	return written(err)
}
