package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newLog(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "log",
		GroupID: groupSession,
		Short:   "Export or import a session's output",
		Args:    noVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLogExport(a), newLogImport(a))
	return cmd
}

func newLogExport(a *app) *cobra.Command {
	var session, file, process string
	var labelled, cast bool
	cmd := &cobra.Command{
		Use:   "export [-s LABEL] [--labelled | --asciicast [--process ID]] [-o FILE]",
		Short: "Write a session's output as a labelled log or a recording",
		Long: `Write all output of a session, each line behind \x01\x01\x01 (stdout) or
\x02\x02\x02 (stderr). log import gives both streams back exactly.

With --asciicast write a recording instead, with its timing: the commands of a
session, or one process (--process), such as run --tty starts. conch replay plays
it, and so do other players of asciicast 2.`,
		Example: `  conch log export -s build > build.log
  conch log export --asciicast -s build -o build.cast
  conch log export --asciicast --process ed -o ed.cast`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client(client.Options{})
			if cast && cmd.Flags().Changed("labelled") && labelled {
				return conch.Errorf(conch.InvalidRequest, "--labelled and --asciicast are two forms").Hint("give one of them")
			}
			if process != "" && (!cast || session != "") {
				return conch.Errorf(conch.InvalidRequest, "--process goes with --asciicast and without -s").Hint("conch logs writes what a process has written")
			}
			var log io.ReadCloser
			var err error
			switch {
			case process != "":
				var id conch.ProcessID
				if id, err = a.processID(cmd.Context(), c, process); err == nil {
					log, err = c.ProcessCast(cmd.Context(), id)
				}
			case cast:
				log, err = c.ExportCast(cmd.Context(), session)
			default:
				log, err = c.ExportLog(cmd.Context(), session)
			}
			if err != nil {
				return err
			}
			defer log.Close()
			var lines lineCount
			body := io.TeeReader(log, &lines)
			if file == "" || file == "-" {
				err = copyOut(os.Stdout, body)
			} else {
				err = exportTo(file, body)
			}
			if err == nil && cast && process == "" && lines < 2 {
				say(os.Stderr, "the recording is empty: the session has run no command", "--process ID records what conch run started")
			}
			return err
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().BoolVar(&labelled, "labelled", true, "as a labelled log")
	cmd.Flags().BoolVar(&cast, "asciicast", false, "as a recording")
	cmd.Flags().StringVar(&process, "process", "", "with --asciicast, the process `ID`")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE` instead of stdout")
	return cmd
}

// A lineCount counts the lines written to it. A recording's first is its header.
type lineCount int

func (n *lineCount) Write(b []byte) (int, error) {
	*n += lineCount(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

// exportTo fills a file, which is there whole or with an error to go by.
func exportTo(file string, log io.Reader) error {
	f, err := os.Create(file)
	if err != nil {
		return conch.Errorf(conch.InvalidRequest, "cannot write the log: %v", err).Hint("-o names a file in a directory you can write")
	}
	err = copyOut(f, log)
	if e := f.Close(); err == nil {
		err = written(e)
	}
	return err
}

func newLogImport(a *app) *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "import FILE [-s LABEL]",
		Short: "Keep a labelled log as a closed session",
		Long: `Read a labelled log (-: stdin) and keep it as a closed session, whose label is
printed. log export gives it back.`,
		Example: "  conch log import build.log\n  conch log export -s imported:1",
		Args:    words("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := os.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return conch.Errorf(conch.InvalidRequest, "cannot read the log: %v", err).Hint("FILE is what conch log export wrote; - is stdin")
				}
				defer f.Close()
				in = f
			}
			i, err := a.client(client.Options{}).ImportLog(cmd.Context(), session, in)
			if err != nil {
				return err
			}
			fmt.Println(i.Label)
			if i.UnlabelledBytes > 0 {
				fmt.Fprintf(os.Stderr, "conch: %d bytes stand on lines without a label: they are kept on the tape, and are in neither stream\n", i.UnlabelledBytes)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&session, "session", "s", "", "`LABEL` to keep it under (default: the lowest free imported:<n>)")
	return cmd
}
