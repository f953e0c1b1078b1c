package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/proc"
)

func newWait(a *app) *cobra.Command {
	var (
		q             conch.WaitRequest
		idle, timeout duration
		asJSON        bool
	)
	cmd := &cobra.Command{
		Use:     "wait ID [--exit] [--log RE] [--port P] [--http URL] [--idle D] [-t D]",
		GroupID: groupProcess,
		Short:   "Wait for something to happen to a process",
		Long: `Wait for the first of: the end of a process, a regular expression in its output
(in what it has written so far, too), a port that takes connections, an HTTP
address that answers, a time without output. Without any: for its end.

Exit status: 0 what was waited for came (with --exit, the process's own status);
1 the process ended first; 124 the time was up; 125 conch failed.`,
		Example: `  conch wait web --log 'listening on .*' -t 30s
  conch wait web --port 8000
  conch wait web --http http://127.0.0.1:8000/health
  conch wait build --exit`,
		Args:              words("ID"),
		ValidArgsFunction: a.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, zero := range map[string]bool{"port": q.Port == 0, "log": q.Log == "", "http": q.HTTP == "", "idle": idle == 0} {
				if cmd.Flags().Changed(name) && zero {
					return conch.Errorf(conch.InvalidRequest, "--%s is given and empty", name)
				}
			}
			q.IdleMS, q.TimeoutMS = idle.ms(), timeout.ms()
			if cmd.Flags().Changed("timeout") && q.TimeoutMS == 0 {
				q.TimeoutMS = 1 // whether it is so now
			}
			c := a.client(client.Options{})
			id, err := a.processID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			r, err := c.Wait(cmd.Context(), id, q)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(os.Stdout, r)
			} else {
				err = sayWaited(r)
			}
			if err != nil {
				return err
			}
			if s := waitStatus(r); s != 0 {
				return exitStatus(s)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&q.Exit, "exit", false, "its end")
	fl.StringVar(&q.Log, "log", "", "output that matches the regular expression `RE`")
	fl.StringVar(&q.Stream, "stream", "", "with --log, only in stdout or stderr")
	fl.IntVar(&q.Port, "port", 0, "a connection to port `P` of this machine")
	fl.StringVar(&q.HTTP, "http", "", "an answer below 400 from `URL`")
	fl.IntVar(&q.HTTPStatus, "http-status", 0, "with --http, exactly this answer")
	fl.Var(&idle, "idle", "no output for this time")
	fl.VarP(&timeout, "timeout", "t", "give up after this time (30s, 2m, or seconds)")
	fl.BoolVar(&asJSON, "json", false, "print what happened as JSON")
	return cmd
}

// waitStatus is the exit status that stands for what happened.
func waitStatus(r *conch.WaitResult) int {
	switch r.Reason {
	case conch.WaitTimeout:
		return statusTimedOut
	case conch.WaitEnded:
		return statusEndedFirst
	case conch.WaitExit:
		switch p := r.Process; {
		case p.ExitCode != nil:
			return *p.ExitCode
		case p.Signal != nil:
			if sig, err := proc.ParseSignal(*p.Signal); err == nil {
				return 128 + int(sig) // as shells say it
			}
		}
		return statusFailed // nobody saw how it ended
	}
	return 0
}

// sayWaited tells people what happened: the line that matched on stdout, trouble on
// stderr, nothing where the exit status says it all.
func sayWaited(r *conch.WaitResult) error {
	if r.Process.Error != "" {
		say(os.Stderr, r.Process.Error, "free space; what was written until then is kept")
	}
	switch r.Reason {
	case conch.WaitLog:
		_, err := fmt.Println(harmless(r.Match.Line))
		return written(err)
	case conch.WaitTimeout:
		say(os.Stderr, "the time was up", r.Detail)
	case conch.WaitEnded:
		say(os.Stderr, fmt.Sprintf("process %s ended first: %s", r.Process.ProcessID, fate(r.Process)),
			"conch logs "+string(r.Process.ProcessID)+" shows what it wrote")
	case conch.WaitExit:
		if r.Process.ExitCode == nil && r.Process.Signal == nil {
			say(os.Stderr, fmt.Sprintf("how %s ended was lost: nobody saw it", r.Process.ProcessID), "its keeper died; its log is kept")
		}
	}
	return nil
}
