package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/config"
)

func newToken(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		GroupID: groupDaemon,
		Short:   "Let programs in over the network, and shut them out again",
		Long: `Let programs in over the network, and shut them out again. A token goes into the
header Authorization: Bearer TOKEN. What it may do is its scope:

  read   see sessions, processes, output and screens; look at mail without a trace
  exec   read, and run commands, type, signal, make and close sessions
  mail   be a session for mail: fetch, send, answer; and look at mail
  admin  all of these, and what the daemon itself is told

exec means everything that you can do on this machine: a command can read your files
and conch's own, and talk to the daemon as you do. Give it to whom you would give a
login. The daemon makes no token for a process that runs in a session of conch's, so
that no command asks for more by mistake or by being talked into it; one that is out
to harm you is not held back by that.

Several are given as exec,mail. What is for a person to decide an admin token can only
if a person made it, in a terminal. Keys, passphrases and tokens are had on the unix
socket only, whatever the scope.`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenNew(a), newTokenLs(a), newTokenRevoke(a))
	return cmd
}

func newTokenNew(a *app) *cobra.Command {
	var scope, expires string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "new NAME --scope SCOPE [--expires D] [--json]",
		Short:   "Make a token and show it, once",
		Example: "  conch token new ci --scope exec --expires 30d",
		Args:    words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := conch.NewTokenRequest{Name: args[0], NoPerson: person() != nil}
			if scope == "" {
				return conch.Errorf(conch.InvalidRequest, "--scope is missing").Hint("read, exec, mail or admin; conch help token says what each may do")
			}
			req.Scopes = strings.Split(scope, ",")
			if expires != "" {
				d, err := config.ParseDuration(expires)
				if err != nil || d < time.Millisecond {
					return conch.Errorf(conch.InvalidRequest, "--expires %s is not a time to live for", expires).Hint("such as 12h or 30d")
				}
				req.ExpiresMS = d.Milliseconds()
			}
			t, err := a.client(client.Options{}).NewToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, t)
			}
			if isTerminal(os.Stdout) {
				say(os.Stderr, "this is the token; it is not shown again", "")
			}
			_, err = fmt.Println(t.Token)
			return written(err)
		},
	}
	cmd.Flags().StringVar(&scope, "scope", "", "what it may do: `SCOPE` is read, exec, mail, admin, or several with commas")
	cmd.Flags().StringVar(&expires, "expires", "", "how long it is good for, `D` such as 12h or 30d (default: until it is revoked)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newTokenLs(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [--json]",
		Short: "List the tokens, and the browsers logged in to the page",
		Args:  words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client(client.Options{}).Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			var rows [][]string
			for _, t := range list {
				until := "-"
				if t.ExpiresAt != nil {
					until = clock(*t.ExpiresAt)
					if time.Now().After(*t.ExpiresAt) {
						until = "expired"
					}
				}
				rows = append(rows, []string{t.Name, t.Kind, strings.Join(t.Scopes, ","), clock(t.CreatedAt), until})
			}
			return table(os.Stdout, []string{"NAME", "KIND", "SCOPE", "MADE", "EXPIRES"}, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Take a token back, or shut a browser out; what is open under it ends",
		Args:  words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.client(client.Options{}).RevokeToken(cmd.Context(), args[0])
		},
	}
}
