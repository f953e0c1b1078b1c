package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newPs(a *app) *cobra.Command {
	var session string
	var running, asJSON bool
	cmd := &cobra.Command{
		Use:     "ps [-s LABEL] [--running] [--json]",
		GroupID: groupProcess,
		Short:   "List background processes",
		Long: `List the processes that conch run started in open sessions, oldest first, those
that have ended too. conch prune takes the ended ones off the list.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client(client.Options{})
			agent := a.agent
			if err := a.checkAgent(cmd.Context(), c); err != nil {
				return err
			}
			if session != "" {
				var err error
				if agent, session, err = c.Resolve(session); err != nil {
					return err
				}
			}
			list, err := c.Processes(cmd.Context())
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(p conch.Process) bool {
				return agent != "" && p.Agent != agent || session != "" && p.Session != session || running && p.Status.Ended() && p.Processes == 0
			})
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			if len(list) == 0 {
				fmt.Println("no processes")
				return nil
			}
			rows := make([][]string, len(list))
			for i, p := range list {
				name := p.Name
				if name == "" {
					name = "-"
				}
				rows[i] = []string{string(p.ProcessID), name, p.Session, fate(p), pid(p.PID), clock(p.StartedAt), ran(p),
					short(time.Duration(p.CPUMS * 1e6)), memory(p.PeakMemory), fit(firstLine(p.Command), 90)}
			}
			return table(os.Stdout, []string{"ID", "NAME", "SESSION", "STATUS", "PID", "STARTED", "RAN", "CPU", "MEMORY", "COMMAND"}, rows)
		},
	}
	a.sessionFlag(cmd, &session)
	cmd.Flags().Lookup("session").Usage = "only those of session `LABEL`"
	cmd.Flags().BoolVar(&running, "running", false, "only those that run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// fate is how a process stands, in a word or two.
func fate(p conch.Process) string {
	s := string(p.Status)
	switch {
	case p.Signal != nil:
		s = *p.Signal
	case p.ExitCode != nil:
		s = fmt.Sprintf("exit %d", *p.ExitCode)
	}
	if p.Error != "" {
		s += ", output lost"
	}
	if p.Status.Ended() && p.Processes > 0 {
		s += fmt.Sprintf(", %d left", p.Processes)
	}
	return s
}

// memory is a size that may not be known.
func memory(n int64) string {
	if n == 0 {
		return "-"
	}
	return size(n)
}

func ran(p conch.Process) string {
	end := time.Now()
	if p.EndedAt != nil {
		end = *p.EndedAt
	}
	return short(end.Sub(p.StartedAt))
}
