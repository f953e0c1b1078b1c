package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newRun(a *app) *cobra.Command {
	var (
		session, name, cwd, size     string
		notify, notifyLog            string
		env                          []string
		noStdin, noCreate, json, tty bool
	)
	cmd := &cobra.Command{
		Use:     "run [flags] 'COMMAND' | -- PROGRAM ARG...",
		GroupID: groupProcess,
		Short:   "Start a command in the background",
		Long: `Start a command in the background, in the current state of a session's shell
(directory, variables, functions, options), which it does not change. Prints the
process id at once. The process goes on without this command and without the
daemon; it ends by itself, by conch kill, or with its session.

Its output is kept: conch logs. Its stdin can be written to: conch stdin.

With --tty it has a terminal of its own, as full-screen programs need: conch
screen shows it, conch keys types into it.`,
		Example: `  id=$(conch run 'npm run dev')
  conch run --name web 'python3 -m http.server 8000'
  conch wait web --port 8000 -t 30s
  conch kill web
  conch run --tty --name ed 'vim notes.txt'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return conch.Errorf(conch.InvalidRequest, "no command given").Hint("conch run --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req := conch.RunRequest{Command: args[0], Name: name, NoStdin: noStdin, TTY: tty, Notify: notify, NotifyLog: notifyLog}
			if len(args) > 1 {
				req.Command = quoteArgv(args)
			}
			var err error
			if size != "" {
				s, err := parseSize(size)
				if err != nil {
					return err
				}
				req.Cols, req.Rows = s.Cols, s.Rows
			}
			if req.Env, err = parseEnv(env); err != nil {
				return err
			}
			if req.Cwd, err = absolute(cwd); err != nil {
				return err
			}
			p, err := a.client(client.Options{NoCreate: noCreate}).Run(cmd.Context(), session, req)
			if err != nil {
				return err
			}
			if json {
				return printJSON(os.Stdout, p)
			}
			_, err = fmt.Println(p.ProcessID)
			return written(err)
		},
	}
	a.sessionFlag(cmd, &session)
	fl := cmd.Flags()
	fl.StringVar(&name, "name", "", "a `NAME` to call it by instead of its id")
	fl.StringVar(&notify, "notify", "", "send a message to `LABEL` when it ends")
	fl.StringVar(&notifyLog, "notify-log", "", "with --notify, also when its output first matches the regular expression `RE`")
	fl.StringVar(&cwd, "cwd", "", "start in this directory instead of the session's")
	fl.StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE` for it (repeatable)")
	fl.BoolVar(&noStdin, "no-stdin", false, "give it an empty stdin instead of one conch stdin writes to")
	fl.BoolVar(&tty, "tty", false, "give it a terminal of its own")
	fl.StringVar(&size, "size", "", "with --tty, the terminal's `COLSxROWS` (default 80x24)")
	fl.BoolVar(&noCreate, "no-create", false, "fail if there is no such session")
	fl.BoolVar(&json, "json", false, "print the process as JSON")
	return cmd
}

// processID is what a word names: an id, or a process's name. Of several with the name
// the one that runs is meant, else the last.
func (a *app) processID(ctx context.Context, c *client.Client, word string) (conch.ProcessID, error) {
	if _, _, err := conch.ProcessID(word).Split(); err == nil {
		return conch.ProcessID(word), nil
	}
	if err := conch.CheckProcessName(word); err != nil {
		return "", conch.Errorf(conch.ProcessNotFound, "%q is neither a process id nor a name", word).Hint("conch ps lists them")
	}
	if err := a.checkAgent(ctx, c); err != nil {
		return "", err
	}
	list, err := c.Processes(ctx)
	if err != nil {
		return "", err
	}
	var last, running *conch.Process
	for i, p := range list {
		if p.Name != word || a.agent != "" && p.Agent != a.agent {
			continue
		}
		last = &list[i]
		if p.Status.Ended() {
			continue
		}
		if running != nil {
			return "", conch.Errorf(conch.InvalidRequest, "two processes named %s run, %s in %s and %s in %s",
				word, running.ProcessID, running.Session, p.ProcessID, p.Session).Hint("say which by its id")
		}
		running = &list[i]
	}
	switch {
	case running != nil:
		return running.ProcessID, nil
	case last != nil:
		return last.ProcessID, nil
	}
	return "", conch.Errorf(conch.ProcessNotFound, "no process is named %s", word).Hint("conch ps lists them")
}

// completeProcess offers ids and names of processes; it starts no daemon.
func (a *app) completeProcess(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := a.client(client.Options{NoStart: true}).Processes(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, p := range list {
		if p.Name != "" {
			out = append(out, p.Name)
		}
		out = append(out, string(p.ProcessID)+"\t"+firstLine(p.Command))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
