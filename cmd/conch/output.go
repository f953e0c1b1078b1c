package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newOutput(a *app) *cobra.Command {
	var stderr bool
	cmd := &cobra.Command{
		Use:     "output COMMAND_ID [--stderr]",
		GroupID: groupRun,
		Short:   "Write what a command wrote, whole",
		Example: "  conch output k3f5x2ab-17\n  conch output k3f5x2ab-17 --stderr",
		Args:    words("COMMAND_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			stream := client.Stdout
			if stderr {
				stream = client.Stderr
			}
			out, err := a.client(client.Options{}).Output(cmd.Context(), conch.CommandID(args[0]), stream, false)
			if err != nil {
				return err
			}
			defer out.Close()
			return copyOut(os.Stdout, out)
		},
	}
	cmd.Flags().BoolVar(&stderr, "stderr", false, "its stderr instead of its stdout")
	return cmd
}

// copyOut copies all of r, telling apart which side failed.
func copyOut(w io.Writer, r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return written(err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return conch.Errorf(conch.Internal, "the daemon's answer was cut: %v", err).Hint("what was written is not all; try again")
		}
	}
}
