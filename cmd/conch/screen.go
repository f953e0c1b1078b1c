package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newScreen(a *app) *cobra.Command {
	var (
		q               conch.ScreenRequest
		stable, timeout duration
		size            string
		asJSON          bool
	)
	cmd := &cobra.Command{
		Use:     "screen ID|LABEL [--contains RE] [--wait-stable D] [-t D]",
		GroupID: groupProcess,
		Short:   "Show what a program on a terminal shows",
		Long: `Print the screen of a process that was started with run --tty, as text. A session's
label means the one such process that runs there, else the session's own terminal,
to which people attach. With --contains wait until the
screen's text matches, with --wait-stable until the program has written nothing
for a time, with both for both. Of a process that has ended it is the last screen.

Exit status: 0 the screen is as wished; 1 the process ended first; 124 the time
was up. The screen is printed in any case.`,
		Example: `  id=$(conch run --tty 'vim notes.txt')
  conch screen $id --wait-stable 200ms
  conch screen $id --contains 'written$' -t 5s --json`,
		Args:              words("ID|LABEL"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, zero := range map[string]bool{"contains": q.Contains == "", "wait-stable": stable == 0, "size": size == ""} {
				if cmd.Flags().Changed(name) && zero {
					return conch.Errorf(conch.InvalidRequest, "--%s is given and empty", name)
				}
			}
			q.StableMS, q.TimeoutMS = stable.ms(), timeout.ms()
			if cmd.Flags().Changed("timeout") && q.TimeoutMS == 0 {
				q.TimeoutMS = 1 // whether it is so now
			}
			c := a.client(client.Options{})
			id, err := a.terminalID(cmd.Context(), c, args[0])
			own := errors.Is(err, conch.NoTerminal) && size == "" // the session's own, if it has one
			if err != nil && !own {
				return err
			}
			if size != "" {
				s, err := parseSize(size)
				if err != nil {
					return err
				}
				if err := c.Resize(cmd.Context(), id, s); err != nil {
					return err
				}
			}
			var s *conch.Screen
			if own {
				s, err = c.SessionScreen(cmd.Context(), args[0], q)
			} else {
				s, err = c.Screen(cmd.Context(), id, q)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(os.Stdout, s)
			} else {
				_, err = fmt.Println(s.Text)
				err = written(err)
			}
			if err != nil {
				return err
			}
			switch s.Reason {
			case conch.ScreenEnded:
				return exitStatus(statusEndedFirst)
			case conch.ScreenTimeout:
				return exitStatus(statusTimedOut)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&q.Contains, "contains", "", "wait until the text matches the regular expression `RE`")
	fl.Var(&stable, "wait-stable", "wait until nothing was written for this time")
	fl.VarP(&timeout, "timeout", "t", "give up waiting after this time (30s, 2m, or seconds)")
	fl.StringVar(&size, "size", "", "give the terminal another size first, `COLSxROWS`")
	fl.BoolVar(&asJSON, "json", false, "print text, cursor, size, title and more as JSON")
	return cmd
}

// terminalID is what a word names: a process, or a session in which one process with a
// terminal runs.
func (a *app) terminalID(ctx context.Context, c *client.Client, word string) (conch.ProcessID, error) {
	id, err := a.processID(ctx, c, word)
	if !errors.Is(err, conch.ProcessNotFound) {
		return id, err
	}
	agent, label, bad := c.Resolve(word)
	if bad != nil {
		return "", err
	}
	list, lerr := c.Processes(ctx)
	if lerr != nil {
		return "", lerr
	}
	var found []string
	for _, p := range list {
		if p.TTY && !p.Status.Ended() && p.Agent == agent && p.Session == label {
			found = append(found, string(p.ProcessID))
		}
	}
	switch len(found) {
	case 0:
		return "", conch.Errorf(conch.NoTerminal, "%s is no process, and no session that runs one on a terminal", word).
			Hint("conch run --tty starts one; conch ps lists processes")
	case 1:
		return conch.ProcessID(found[0]), nil
	}
	return "", conch.Errorf(conch.InvalidRequest, "session %s runs %d processes on terminals: %s", label, len(found), strings.Join(found, ", ")).
		Hint("say which by its id")
}

// parseSize reads 80x24.
func parseSize(s string) (conch.TerminalSize, error) {
	c, r, ok := strings.Cut(s, "x")
	cols, err1 := strconv.Atoi(c)
	rows, err2 := strconv.Atoi(r)
	if !ok || err1 != nil || err2 != nil || cols <= 0 || rows <= 0 {
		return conch.TerminalSize{}, conch.Errorf(conch.InvalidRequest, "%q is not a size", s).Hint("a size is COLSxROWS: 80x24")
	}
	return conch.TerminalSize{Cols: cols, Rows: rows}, nil
}
