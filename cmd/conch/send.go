package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// message is the flags that verbs which send have in common.
type message struct {
	session string
	req     conch.SendRequest
	expires duration
	policy  string
	json    bool
}

func (m *message) flags(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	a.sessionFlag(cmd, &m.session)
	fl.StringVar(&m.req.ID, "id", "", "the message's `ID`: sending again under it is the same message")
	fl.StringVar(&m.req.Role, "role", "", "who speaks: user or agent (default agent)")
	fl.Var(&m.expires, "expires", "give up when nobody fetched it in this time (default: never)")
	fl.BoolVar(&m.json, "json", false, "print one JSON value")
}

// request reads the text, from stdin if it is -.
func (m *message) request(cmd *cobra.Command, text string) (conch.SendRequest, error) {
	for _, name := range []string{"id", "role", "expires", "reply-to", "policy"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "") {
			return m.req, conch.Errorf(conch.InvalidRequest, "--%s is given and empty", name)
		}
	}
	m.req.Text, m.req.ExpiresMS, m.req.Policy = text, m.expires.ms(), conch.Policy(m.policy)
	if text == "-" {
		// One byte more than fits shows that it does not.
		b, err := io.ReadAll(io.LimitReader(os.Stdin, conch.MaxText+1))
		if err != nil {
			return m.req, conch.Errorf(conch.InvalidRequest, "cannot read the text: %v", err)
		}
		if len(b) > conch.MaxText {
			return m.req, conch.Errorf(conch.TooLarge, "the text has more than %d bytes (1 MiB); nothing was sent", conch.MaxText).
				Hint("send it as a file: conch send TO 'see the file' --attach FILE")
		}
		m.req.Text = string(b)
	}
	return m.req, nil
}

func newSend(a *app) *cobra.Command {
	var m message
	var files []string
	cmd := &cobra.Command{
		Use:     "send TO TEXT [--attach FILE] [--reply-to ID] [--role user|agent] [--expires 1h] [--policy P] [--id ID] [--json]",
		GroupID: groupMail,
		Short:   "Send a message to a session or an agent",
		Long: `Send a message. TO is a label, agent/label, an agent, a contact's name or an address,
these two with or without /label. A session that is away gets it when it is there
again; a label that nobody ever had is refused. To send to an agent of another home that
is no contact asks it to be one, and the message waits for the answer. TEXT - is read
from stdin. The message is on disk when this returns.`,
		Example: "  conch send build 'the API changed'\n  conch send bob/claude:1 - < notes.txt\n  conch send bob 'who has time?' --policy broadcast --expires 1h",
		Args:    words("TO", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := m.request(cmd, args[1])
			if err != nil {
				return err
			}
			req.To = args[0]
			c := a.client(client.Options{})
			for _, f := range files {
				id, err := upload(cmd, c, f)
				if err != nil {
					return err
				}
				req.Attachments = append(req.Attachments, id)
			}
			sent, err := c.Send(cmd.Context(), m.session, req)
			if err != nil {
				return err
			}
			return printSent(sent, m.json)
		},
	}
	m.flags(a, cmd)
	cmd.Flags().StringVar(&m.req.InReplyTo, "reply-to", "", "this answers message `ID`")
	cmd.Flags().StringVar(&m.policy, "policy", "", "to an agent: primary, broadcast or drop (default: the agent's)")
	cmd.Flags().StringArrayVar(&files, "attach", nil, "send `FILE` with it, at most 64 MiB (repeat for more)")
	return cmd
}

// upload gives a file to the daemon, for a message that is sent next.
func upload(cmd *cobra.Command, c *client.Client, path string) (string, error) {
	// A pipe that nobody writes to would keep it waiting.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", conch.Errorf(conch.InvalidRequest, "%v; nothing was sent", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return "", conch.Errorf(conch.InvalidRequest, "%v; nothing was sent", err)
	case fi.IsDir():
		return "", conch.Errorf(conch.InvalidRequest, "%s is a directory; nothing was sent", path).Hint("attach an archive of it")
	case !fi.Mode().IsRegular():
		return "", conch.Errorf(conch.InvalidRequest, "%s is no regular file; nothing was sent", path).Hint("copy what it gives into a file, and attach that")
	case fi.Size() > conch.MaxAttachment:
		return "", conch.Errorf(conch.TooLarge, "%s has %d bytes, more than the limit of %d (64 MiB); nothing was sent", path, fi.Size(), conch.MaxAttachment)
	}
	at, err := c.Upload(cmd.Context(), filepath.Base(path), f)
	if err != nil {
		return "", err
	}
	return at.ID, nil
}

func printSent(s *conch.SentMessage, asJSON bool) error {
	if asJSON {
		return printJSON(os.Stdout, s)
	}
	to := s.To
	if s.ToSession != nil {
		to += "/" + *s.ToSession
	}
	_, err := fmt.Printf("%s %s %s\n", s.ID, s.Status, to)
	return written(err)
}

func newReply(a *app) *cobra.Command {
	var m message
	cmd := &cobra.Command{
		Use:     "reply ID TEXT [-s LABEL] [--json]",
		GroupID: groupMail,
		Short:   "Answer a message, and be done with it",
		Long: `Answer a message of this session's inbox, to the session it came from. The message
is done with. TEXT - is read from stdin.`,
		Example: "  conch reply 068k3n2 'done'\n  make 2>&1 | conch reply 068k3n2 - -s build",
		Args:    words("ID", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := m.request(cmd, args[1])
			if err != nil {
				return err
			}
			sent, err := a.client(client.Options{}).Reply(cmd.Context(), m.session, args[0], req)
			if err != nil {
				return err
			}
			return printSent(sent, m.json)
		},
	}
	m.flags(a, cmd)
	return cmd
}
