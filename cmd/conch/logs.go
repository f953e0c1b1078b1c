package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newLogs(a *app) *cobra.Command {
	var (
		o              client.LogOptions
		stdout, stderr bool
		asJSON         bool
		most           int64
	)
	cmd := &cobra.Command{
		Use:     "logs [flags] ID",
		GroupID: groupProcess,
		Short:   "Write what a process has written",
		Long: `Write what a process has written, exactly: its stdout to stdout and its stderr to
stderr, or the one stream asked for to stdout. ID is a process id or name.

With --json one page of it, with the cursor that --since takes to go on from.`,
		Example: `  conch logs web
  conch logs -f --stderr web
  conch logs -n 20 web
  conch logs --grep 'ERROR|WARN' web
  conch logs --json --since 417 web`,
		Args:              words("ID"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case stdout && stderr:
				return conch.Errorf(conch.InvalidRequest, "--stdout and --stderr exclude each other").Hint("without either, each stream goes to its own")
			case asJSON && o.Follow:
				return conch.Errorf(conch.InvalidRequest, "--json is a page of what there is and cannot follow")
			case o.Tail < 0:
				return conch.Errorf(conch.InvalidRequest, "-n %d is not a number of lines", o.Tail)
			case cmd.Flags().Changed("tail") && o.Tail == 0:
				o.Tail = -1
			}
			switch {
			case stdout:
				o.Stream = client.Stdout
			case stderr:
				o.Stream = client.Stderr
			}
			c := a.client(client.Options{})
			id, err := a.processID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				page, err := c.LogPage(cmd.Context(), id, o, most)
				if err != nil {
					return err
				}
				return printJSON(os.Stdout, page)
			}
			l, err := c.Logs(cmd.Context(), id, o)
			if err != nil {
				return err
			}
			defer l.Close()
			return writeLogs(l, o.Stream != 0)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&o.Follow, "follow", "f", false, "go on until the process ends")
	fl.BoolVar(&stdout, "stdout", false, "only its stdout")
	fl.BoolVar(&stderr, "stderr", false, "only its stderr, to stdout")
	fl.Uint64Var(&o.Since, "since", 0, "only what follows `CURSOR`")
	fl.IntVarP(&o.Tail, "tail", "n", 0, "only the last `N` lines")
	fl.StringVar(&o.Grep, "grep", "", "only lines that match the regular expression `RE`")
	fl.BoolVar(&asJSON, "json", false, "print a page of it as JSON")
	fl.Int64Var(&most, "max-output", 1<<20, "with --json, about `N` bytes a page")
	return cmd
}

// writeLogs brings events to our own streams, or all to stdout.
func writeLogs(l *client.Logs, one bool) error {
	for {
		e, err := l.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return conch.Errorf(conch.Internal, "the daemon's answer was cut").Hint("what was written is not all; try again")
		}
		if err != nil {
			return err
		}
		if r := e.Result; r != nil && r.ExitCode == nil && r.Signal == nil {
			say(os.Stderr, "how the process ended was lost: its keeper died", "what it wrote until then is above")
		}
		w := os.Stdout
		if e.Kind == client.Stderr && !one {
			w = os.Stderr
		}
		if _, err := w.Write(e.Data); err != nil {
			return written(err)
		}
	}
}
