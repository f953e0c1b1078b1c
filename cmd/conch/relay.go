package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newRelay(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "relay",
		GroupID: groupMail,
		Short:   "Share one relay between machines",
		Long: `The relay holds sealed mail between homes. A home has one: its own, inside its
daemon, which listens nowhere until it is told to; another home's, by an invitation;
or a NATS cluster.`,
		Example: `  conch relay listen 192.0.2.7:4222     here: let other machines connect
  conch relay invite                    here: a text for one other home
  conch relay join -                    there: paste it
  conch relay join tls://a:4222,tls://b:4222,tls://c:4222 --creds team.creds`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRelayStatus(a), newRelayListen(a), newRelayInvite(a), newRelayJoin(a), newRelayLeave(a), newRelayRemove(a))
	return cmd
}

// relayVerb makes a verb whose answer is the relay's state.
func relayVerb(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) (*conch.RelayStatus, error)) *cobra.Command {
	var asJSON bool
	cmd.Use += " [--json]"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := do(cmd, args)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(os.Stdout, s)
		}
		return printRelay(s)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func printRelay(s *conch.RelayStatus) error {
	line := relayLine(s.RelayInfo)
	if s.Mode == conch.RelayEmbedded && !s.Running {
		line += " (starts when it is needed)"
	}
	rows := [][]string{{"relay", line}}
	if s.Error != nil {
		rows = append(rows, []string{"error", *s.Error})
	}
	if s.Listen != nil {
		rows = append(rows, []string{"listens on", *s.Listen})
	}
	if s.Fingerprint != nil {
		rows = append(rows, []string{"fingerprint", *s.Fingerprint})
	}
	if s.Mode == conch.RelayCluster {
		rows = append(rows, []string{"copies", strconv.Itoa(s.Replicas)})
	}
	if s.Running {
		rows = append(rows, []string{"mailboxes", fmt.Sprintf("%d with %d messages, %d bytes on disk", s.Mailboxes, s.Messages, s.Bytes)})
	}
	for _, h := range s.Homes {
		rows = append(rows, []string{"home " + h.ID, strings.TrimSpace(fmt.Sprintf("since %s, agents: %s", h.JoinedAt.Local().Format(time.DateTime), strings.Join(h.Agents, ", ")))})
	}
	for _, g := range s.Agents {
		state := "connected"
		switch {
		case g.Error != nil:
			state = "not connected: " + *g.Error
		case !g.Connected:
			state = "connecting"
		}
		rows = append(rows, []string{"agent " + g.Address, state})
	}
	return table(os.Stdout, nil, rows)
}

func newRelayStatus(a *app) *cobra.Command {
	return relayVerb(&cobra.Command{
		Use:   "status",
		Short: "Say which relay this home uses, and who is there",
		Args:  words(),
	}, func(cmd *cobra.Command, _ []string) (*conch.RelayStatus, error) {
		return a.client(client.Options{}).Relay(cmd.Context())
	})
}

func newRelayListen(a *app) *cobra.Command {
	return relayVerb(&cobra.Command{
		Use:   "listen ADDR",
		Short: "Open this home's relay to other machines, or close it (off)",
		Long: `Have this home's relay take connections at ADDR, HOST:PORT, by TLS 1.3 with a
certificate of its own. Only homes that were invited get in. It is kept over restarts
of the daemon. "off" closes it; homes that joined stay known.`,
		Example: "  conch relay listen 0.0.0.0:4222\n  conch relay listen off",
		Args:    words("ADDR"),
	}, func(cmd *cobra.Command, args []string) (*conch.RelayStatus, error) {
		addr := args[0]
		switch addr {
		case "":
			return nil, conch.Errorf(conch.InvalidRequest, "ADDR is empty").Hint("off closes the relay to others")
		case "off":
			addr = ""
		}
		return a.client(client.Options{}).RelayListen(cmd.Context(), addr)
	})
}

func newRelayInvite(a *app) *cobra.Command {
	var asJSON bool
	var expires time.Duration
	var addresses []string
	cmd := &cobra.Command{
		Use:   "invite [--expires D] [--address HOST:PORT]... [--json]",
		Short: "Print a text that lets one other home in, once",
		Long: `Print an invitation: where this home's relay is, what its certificate is, and a
secret that lets one home in, once. Whoever has the text can use it: pass it on
as you would a password. With --address it names what the other is to dial, as
behind a router; else where the relay listens.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("expires") && expires < time.Second {
				return conch.Errorf(conch.InvalidRequest, "an invitation is good for a second or more")
			}
			i, err := a.client(client.Options{}).RelayInvite(cmd.Context(), expires, addresses...)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, i)
			}
			_, err = fmt.Println(i.Invite)
			return written(err)
		},
	}
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is good, as `D`, such as 24h (default 1h)")
	cmd.Flags().StringArrayVar(&addresses, "address", nil, "`HOST:PORT` for the other to dial; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newRelayJoin(a *app) *cobra.Command {
	var creds string
	cmd := relayVerb(&cobra.Command{
		Use:   "join INVITE [--creds FILE]",
		Short: "Use another home's relay, or a NATS cluster",
		Long: `Have this home's agents use the relay of an invitation (- reads it from stdin, which
keeps it out of the process list), or a NATS cluster: the addresses of its servers,
with commas between, and a credentials file if it needs one. A cluster of three or
more servers keeps three copies of every mailbox. Who has credentials that reach the
whole account can remove mailboxes, though not read mail: see docs/ARCHITECTURE.md.`,
		Args: words("INVITE"),
	}, func(cmd *cobra.Command, args []string) (*conch.RelayStatus, error) {
		invite, err := secretWord(args[0])
		if err != nil {
			return nil, err
		}
		var data []byte
		if creds != "" {
			if data, err = readLimited(creds); err != nil {
				return nil, err
			}
		}
		return a.client(client.Options{}).RelayJoin(cmd.Context(), invite, string(data))
	})
	cmd.Flags().StringVar(&creds, "creds", "", "`FILE` with the credentials of a NATS user")
	return cmd
}

func newRelayLeave(a *app) *cobra.Command {
	return relayVerb(&cobra.Command{
		Use:   "leave",
		Short: "Go back to this home's own relay",
		Long:  "Go back to this home's own relay. Mail that was not fetched from the other stays there until it expires.",
		Args:  words(),
	}, func(cmd *cobra.Command, _ []string) (*conch.RelayStatus, error) {
		return a.client(client.Options{}).RelayLeave(cmd.Context())
	})
}

func newRelayRemove(a *app) *cobra.Command {
	return relayVerb(&cobra.Command{
		Use:   "remove ID",
		Short: "Shut out a home that was let in",
		Long:  "Shut out a home that was let in, by its id in `conch relay status`. Its agents are cut off; what lies in their mailboxes stays until it expires.",
		Args:  words("ID"),
	}, func(cmd *cobra.Command, args []string) (*conch.RelayStatus, error) {
		return a.client(client.Options{}).RelayRemove(cmd.Context(), args[0])
	})
}

// maxSecret bounds what is read where a secret is expected.
const maxSecret = 64 << 10

// secretWord is an argument, or what stdin holds for "-".
func secretWord(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxSecret))
	return strings.TrimSpace(string(b)), err
}

// readLimited reads a small file of the user's.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, conch.Errorf(conch.InvalidRequest, "%v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(b) > maxSecret {
		err = conch.Errorf(conch.TooLarge, "%s has more than %d bytes", path, maxSecret).Hint("credentials are small")
	}
	return b, err
}
