package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newStdin(a *app) *cobra.Command {
	var end bool
	var text string
	var offset int64
	cmd := &cobra.Command{
		Use:     "stdin ID [--close] [--text TEXT]",
		GroupID: groupProcess,
		Short:   "Write to a process's stdin",
		Long: `Write our stdin to a process's stdin as it comes. With --text write that instead;
with --close let the process see the end of its input afterwards (with --close
alone and a terminal as our stdin, nothing else is written).

--offset says where the bytes belong in all that is written: what the process
has had already is skipped, so that the same call twice writes once.`,
		Example:           "  echo yes | conch stdin setup\n  conch stdin --text $'y\\n' setup\n  conch stdin --close cat",
		Args:              words("ID"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			if offset < -1 {
				return conch.Errorf(conch.InvalidRequest, "--offset %d is not a place in the input", offset)
			}
			c := a.client(client.Options{})
			id, err := a.processID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("text") {
				_, err := c.WriteStdin(cmd.Context(), id, []byte(text), offset, end)
				return err
			}
			if end && isTerminal(os.Stdin) {
				_, err := c.WriteStdin(cmd.Context(), id, nil, -1, true)
				return err
			}
			buf := make([]byte, 256<<10)
			for {
				n, rerr := os.Stdin.Read(buf)
				if n > 0 {
					if _, err := c.WriteStdin(cmd.Context(), id, buf[:n], offset, false); err != nil {
						return err
					}
					if offset >= 0 {
						offset += int64(n)
					}
				}
				if rerr == io.EOF {
					break
				}
				if rerr != nil {
					return conch.Errorf(conch.Internal, "cannot read stdin: %v", rerr)
				}
			}
			if end {
				_, err := c.WriteStdin(cmd.Context(), id, nil, -1, true)
				return err
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&end, "close", false, "end its input")
	cmd.Flags().StringVar(&text, "text", "", "write `TEXT` instead of our stdin")
	cmd.Flags().Int64Var(&offset, "offset", -1, "where the bytes belong, counted from the start of all input")
	return cmd
}
