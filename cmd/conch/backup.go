package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/backup"
)

func newBackup(a *app) *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:     "backup FILE [--force] [--json]",
		GroupID: groupDaemon,
		Short:   "Write everything conch keeps into one file",
		Long: `Write the home (configuration, keys, mail, sessions with their tapes and state) into
one tar archive, compressed if its name ends in gz. Sessions run on meanwhile;
what is being run is in it as far as it has come. The file holds keys and all
output: it is readable by you alone, and should stay so.`,
		Example: "  conch backup ~/conch-$(date +%F).tar.gz",
		Args:    words("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := a.homeFor(args[0])
			if err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			s, err := backup.Write(path, backup.Options{Home: home, Version: version, Sources: a.backupSources(cmd.Context(), home)}, force)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, s)
			}
			fmt.Printf("%s: %s, %d closed (%s)\n", harmless(path), plural(s.Open, "open session", "open sessions"), s.Closed, size(s.Bytes))
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// backupSources are what somebody writes to and that has its own way to be copied:
// the mail, by whoever has it open.
func (a *app) backupSources(ctx context.Context, home string) []backup.Source {
	const name = "conch.db"
	if _, err := os.Stat(filepath.Join(home, name)); err != nil {
		return nil
	}
	return []backup.Source{{Name: name, Write: func(w io.Writer) error {
		db, err := a.client(client.Options{Home: home}).MailSnapshot(ctx)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = io.Copy(w, db)
		return err
	}}}
}

func newRestore(a *app) *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:     "restore FILE [--force] [--json]",
		GroupID: groupDaemon,
		Short:   "Make conch's home what a backup holds",
		Long: `Make conch's home what a backup holds. The whole file is checked before anything
is changed. A home that is not empty is refused, unless --force moves it aside; one
that is in use is refused (conch down --all). Sessions come back with their state;
their shells start with the next command.`,
		Args: words("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := a.homeFor(args[0])
			if err != nil {
				return err
			}
			s, err := backup.Restore(args[0], home, force)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, s)
			}
			fmt.Printf("restored %s, %d closed, of %s\n", plural(s.Open, "open session", "open sessions"), s.Closed, s.At.Format("2006-01-02 15:04:05 MST"))
			if s.Aside != "" {
				fmt.Printf("what was there before is in %s\n", harmless(s.Aside))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "move a home that is not empty aside")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

// homeFor is conch's home, by its one name, for a verb that works on its files.
func (a *app) homeFor(file string) (string, error) {
	if file == "" {
		return "", conch.Errorf(conch.InvalidRequest, "FILE is empty")
	}
	home, err := a.client(client.Options{NoStart: true}).Home()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	return home, nil
}
