package main

import (
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/envelope"
)

// maxEnvelope is what envelope decode and encode read. Mail has its own,
// smaller limit; this one keeps a wrong pipe from filling the memory.
const maxEnvelope = 16 << 20

func newEnvelope() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "envelope",
		GroupID: groupMail,
		Short:   "Read or write a message's body",
		Long:    "Read or write the body of a message, the format that agents exchange inside the encryption. No daemon is needed.",
		Args:    noVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEnvelopeDecode(), newEnvelopeEncode())
	return cmd
}

func newEnvelopeDecode() *cobra.Command {
	return &cobra.Command{
		Use:   "decode < BODY",
		Short: "Print what a body says, as JSON",
		Long: `Print what the body on stdin says, as one JSON value. A body that is neither an
envelope nor a legacy reply is plain text, as it is: there is no wrong body.`,
		Example: "  printf 'hello' | conch envelope decode",
		Args:    words(),
		RunE: func(*cobra.Command, []string) error {
			body, err := readBody()
			if err != nil {
				return err
			}
			return printJSON(os.Stdout, envelope.Decode(string(body)))
		},
	}
}

func newEnvelopeEncode() *cobra.Command {
	return &cobra.Command{
		Use:   "encode < DESCRIPTION",
		Short: "Write the body that a JSON description asks for",
		Long: `Write the body of a message that the JSON object on stdin describes, and nothing
after it. Its names, all optional, are those that decode prints (text,
messageId, fromSession, toSession, inReplyTo, role, auto) and of the sender
agentAddress, harnessSessionId and cwd; "envelope": false asks for the legacy
form. Without them fromSession is $CONCH_SESSION, else claude:1, and
harnessSessionId is $CLAUDE_CODE_SESSION_ID.`,
		Example: `  echo '{"text": "hi", "toSession": "claude:2"}' | conch envelope encode`,
		Args:    words(),
		RunE: func(*cobra.Command, []string) error {
			data, err := readBody()
			if err != nil {
				return err
			}
			d, err := envelope.ParseDescription(data)
			if err != nil {
				return err
			}
			if d.FromSession == "" {
				d.FromSession = os.Getenv("CONCH_SESSION")
			}
			if d.HarnessSession == "" {
				d.HarnessSession = client.HarnessSession()
			}
			body, err := d.Encode(time.Now())
			if err != nil {
				return err
			}
			_, err = io.WriteString(os.Stdout, body)
			return written(err)
		},
	}
}

// readBody reads all of stdin, up to the limit.
func readBody() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(os.Stdin, maxEnvelope+1))
	if err != nil {
		return nil, conch.Errorf(conch.InvalidRequest, "cannot read stdin: %v", err)
	}
	if len(data) > maxEnvelope {
		return nil, conch.Errorf(conch.TooLarge, "stdin has more than %d bytes, the limit of a body here", maxEnvelope)
	}
	return data, nil
}
