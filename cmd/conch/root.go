package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// app is what the verbs share: the global flags, and where output goes.
type app struct {
	agent string
}

// client gives a client of the user's daemon. Its executable is this one.
func (a *app) client(o client.Options) *client.Client {
	o.Agent = a.agent
	o.Exe, _ = os.Executable() // without one the client looks on PATH
	return client.New(o)
}

// commandLine runs one command line and gives its exit status.
func commandLine(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	err := root.ExecuteContext(context.Background())
	if s, ok := err.(exitStatus); ok {
		return int(s)
	}
	if err != nil {
		return fail(os.Stderr, err)
	}
	return 0
}

// newRoot builds the tree of verbs.
func newRoot() *cobra.Command {
	a := new(app)
	root := &cobra.Command{
		Use:   "conch",
		Short: "shells that keep their state, for agents and for people",
		Long: `conch runs commands in shells that keep their state between calls: the working
directory, variables, functions, options. Output is exact, exit statuses are
real, and nothing is lost when a client, the daemon or the shell dies.

Exit status: the command's own; 124 timed out; 125 conch itself failed;
126 and 127 as in shells; 130 interrupted.`,
		Example: `  conch exec 'cd /tmp; x=1'         run in the session main, made on first use
  conch exec 'echo $PWD $x'         the same shell, its state as it was
  conch exec -s build -t 30s make   another session, with a time limit
  conch sessions                    what is open`,
		Args:               noVerb,
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
	}
	root.PersistentFlags().StringVar(&a.agent, "agent", "", "`NAME` of the agent to work as (default: $CONCH_AGENT, else as assigned, else me)")
	root.RegisterFlagCompletionFunc("agent", a.completeAgent)
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		// An unset variable in a script must not mean another session.
		for _, name := range []string{"session", "agent"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
				return conch.Errorf(conch.InvalidLabel, "--%s is given and empty", name).Hint("leave it out for the default")
			}
		}
		return a.agree(cmd, args)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return conch.Errorf(conch.InvalidRequest, "%s", plainly(err.Error())).Hint("%s --help", cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run commands:"},
		&cobra.Group{ID: groupProcess, Title: "Background processes:"},
		&cobra.Group{ID: groupSession, Title: "Sessions:"},
		&cobra.Group{ID: groupMail, Title: "Agents and messages:"},
		&cobra.Group{ID: groupDaemon, Title: "The daemon:"},
	)
	root.AddCommand(
		newExec(a), newInterrupt(a), newHistory(a), newOutput(a),
		newRun(a), newPs(a), newLogs(a), newWait(a), newKill(a), newStdin(a), newScreen(a), newKeys(a),
		newSend(a), newInbox(a), newAck(a), newReply(a), newAsk(a), newAwait(a), newReceipts(a), newMail(a), newContacts(a), newRelay(a), newResponder(a),
		newNew(a), newSessions(a), newReset(a), newClose(a), newAttach(a), newPrune(a), newLog(a), newReplay(),
		newAgent(a), newWhoami(a), newEnvelope(), newMCP(a), newHook(a),
		newUp(a), newDown(a), newStatus(a), newUI(a), newToken(a), newDoctor(a), newBackup(a), newRestore(a), newBench(), newVersion(),
	)
	return root
}

// agree refuses an --agent that is not the one in front of a session's label.
// One of them would be ignored, and mail would go out under the wrong name.
func (a *app) agree(cmd *cobra.Command, args []string) error {
	if a.agent == "" {
		return nil
	}
	what, session := "-s", ""
	if f := cmd.Flags().Lookup("session"); f != nil {
		if session = f.Value.String(); session == "" {
			what, session = "$CONCH_SESSION", os.Getenv("CONCH_SESSION")
		}
	} else if use := strings.Fields(cmd.Use); len(use) > 1 && use[1] == "LABEL" && len(args) > 0 {
		what, session = "LABEL", args[0]
	}
	if agent, _, both := strings.Cut(session, "/"); both && agent != a.agent {
		return conch.Errorf(conch.InvalidRequest, "--agent %s and %s %s name two agents", a.agent, what, session).
			Hint("leave out --agent, or the name in front of the label")
	}
	return nil
}

// plainly leaves out of a flag's error which of Go's functions had it.
func plainly(message string) string {
	before, after, ok := strings.Cut(message, ": strconv.")
	switch {
	case !ok:
		return message
	case strings.Contains(after, "out of range"):
		return before + ": out of range"
	case strings.HasPrefix(after, "ParseBool"):
		return before + ": not true or false"
	}
	return before + ": not a number"
}

// The groups of `conch help`.
const (
	groupRun     = "run"
	groupProcess = "process"
	groupSession = "session"
	groupMail    = "mail"
	groupDaemon  = "daemon"
)

// noVerb is for commands that only hold others.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return conch.Errorf(conch.InvalidRequest, "%s has no verb %q", cmd.CommandPath(), args[0]).
		Hint("%s --help lists them", cmd.CommandPath())
}

// usage is how a verb is called, with those it stands under.
func usage(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
}

// words checks the number of positional words against their names.
func words(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return conch.Errorf(conch.InvalidRequest, "%s is missing", names[len(args)]).Hint("%s", usage(cmd))
		}
		if len(args) > len(names) {
			return conch.Errorf(conch.InvalidRequest, "unexpected word %q", args[len(names)]).Hint("%s", usage(cmd))
		}
		return nil
	}
}

// sessionFlag adds -s.
func (a *app) sessionFlag(cmd *cobra.Command, session *string) {
	cmd.Flags().StringVarP(session, "session", "s", "", "session `LABEL` (default: $CONCH_SESSION or main)")
	cmd.RegisterFlagCompletionFunc("session", a.completeLabel)
}

// completeAgent offers the names of agents; it starts no daemon.
func (a *app) completeAgent(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := a.client(client.Options{NoStart: true}).Agents(cmd.Context())
	if err != nil || len(args) > 0 && cmd.ValidArgsFunction != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeLabel offers the labels of open sessions; it starts no daemon.
func (a *app) completeLabel(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := a.client(client.Options{NoStart: true}).Sessions(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var labels []string
	for _, s := range list {
		labels = append(labels, s.Label)
	}
	return labels, cobra.ShellCompDirectiveNoFileComp
}
