package main

import (
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
	var session, file string
	cmd := &cobra.Command{
		Use:   "export [-s LABEL] [--labelled] [-o FILE]",
		Short: "Write a session's output as a labelled log",
		Long: `Write all output of a session, each line behind \x01\x01\x01 (stdout) or
\x02\x02\x02 (stderr). log import gives both streams back exactly.`,
		Example: "  conch log export -s build > build.log\n  conch log export -s build -o build.log",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := a.client(client.Options{}).ExportLog(cmd.Context(), session)
			if err != nil {
				return err
			}
			defer log.Close()
			if file == "" || file == "-" {
				return copyOut(os.Stdout, log)
			}
			return exportTo(file, log)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().Bool("labelled", true, "in the labelled form, the only one there is")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE` instead of stdout")
	return cmd
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
			return nil
		},
	}
	cmd.Flags().StringVarP(&session, "session", "s", "", "`LABEL` to keep it under (default: the lowest free imported:<n>)")
	return cmd
}
