package main

import (
	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newKeys(a *app) *cobra.Command {
	var literal bool
	cmd := &cobra.Command{
		Use:     "keys ID|LABEL TEXT",
		GroupID: groupProcess,
		Short:   "Type into a program on a terminal",
		Long: `Type TEXT into a process that was started with run --tty. Names of keys stand in
angle brackets; a newline is Enter; all else is typed as it is.

  <Enter> <Tab> <Esc> <Space> <BS> <Del> <Insert>
  <Up> <Down> <Left> <Right> <Home> <End> <PageUp> <PageDown> <F1> ... <F12>
  <C-c> Ctrl, <M-x> Alt, <S-Tab> Shift, <C-Left> <C-M-a> and so on
  <lt> a "<" where a name could be meant

A name that is no key is an error, and then nothing is typed. A terminal that
edits lines itself (cat, read) takes at most 4095 bytes a line.`,
		Example: `  conch keys ed 'ihello<Esc>:wq<Enter>'
  conch keys top q
  conch keys --literal repl 'a <b> c'`,
		Args:              words("ID|LABEL", "TEXT"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client(client.Options{})
			id, err := a.terminalID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if literal {
				return c.Keys(cmd.Context(), id, conch.KeysRequest{Text: args[1]})
			}
			return c.Keys(cmd.Context(), id, conch.KeysRequest{Keys: args[1]})
		},
	}
	cmd.Flags().BoolVar(&literal, "literal", false, "type all of TEXT as it is: no names, a newline is Ctrl-J")
	return cmd
}
