package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newHistory(a *app) *cobra.Command {
	var session string
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:     "history [-s LABEL] [-n N] [--json]",
		GroupID: groupRun,
		Short:   "List a session's commands, oldest first",
		Example: "  conch history\n  conch history -s build -n 5\n  conch history --json",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return conch.Errorf(conch.InvalidRequest, "-n %d is not a number of commands", limit)
			}
			list, err := a.client(client.Options{}).History(cmd.Context(), session, limit)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			rows := make([][]string, len(list))
			for i, h := range list {
				rows[i] = []string{
					string(h.CommandID), ending(h), startTime(h), took(h),
					size(h.StdoutBytes), size(h.StderrBytes), fit(firstLine(h.Command), 75),
				}
			}
			return table(os.Stdout, []string{"ID", "STATUS", "STARTED", "TOOK", "STDOUT", "STDERR", "COMMAND"}, rows)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "only the last `N`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// ending is where a command stands, in a word or two.
func ending(h conch.HistoryEntry) string {
	switch {
	case h.Status == conch.StatusQueued && h.Position > 0:
		return fmt.Sprintf("queued %d", h.Position)
	case h.Status != conch.StatusDone:
		return string(h.Status)
	case h.TimedOut:
		return "timed out"
	case h.Interrupted:
		return "interrupted"
	case h.ExitCode != nil:
		return fmt.Sprintf("exit %d", *h.ExitCode)
	case h.Signal != nil:
		return *h.Signal
	}
	return "no status"
}

func startTime(h conch.HistoryEntry) string {
	if h.StartedAt == nil {
		return "-"
	}
	return clock(*h.StartedAt)
}

func took(h conch.HistoryEntry) string {
	if h.StartedAt == nil {
		return "-"
	}
	end := time.Now()
	if h.EndedAt != nil {
		end = *h.EndedAt
	} else if h.Status != conch.StatusRunning {
		return "-"
	}
	return short(end.Sub(*h.StartedAt))
}

// short is a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func firstLine(s string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more && strings.TrimSpace(rest) != "" {
		return line + " …"
	}
	return line
}
