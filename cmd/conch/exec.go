package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// execFlags are the flags of exec.
type execFlags struct {
	session      string
	timeout      duration
	queueTimeout duration
	cwd          string
	env          []string
	stdin        bool
	merge        bool
	maxOutput    int64
	json, jsonl  bool
	file         string
	noCreate     bool
}

func newExec(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:     "exec [flags] 'COMMAND' | -f FILE | -- PROGRAM ARG...",
		GroupID: groupRun,
		Short:   "Run a command in a session's shell",
		Long: `Run a command in a session's shell and write its output, live and exact, to
stdout and stderr. One argument is shell text; several are a program and its
arguments. The session is made if the label is new.

Ctrl-C interrupts the command, a second Ctrl-C leaves it running and returns.
Exit status: the command's own; 124 timed out; 125 conch failed; 130 interrupted.`,
		Example: `  conch exec 'cd src && make 2>&1 | tail'
  conch exec -s build -t 10m make test
  conch exec -e MODE=fast --cwd /tmp 'echo $MODE $PWD'
  conch exec --json 'git status --short'
  tar c . | conch exec -i 'tar t'
  conch exec -f script.sh`,
		Args: func(cmd *cobra.Command, args []string) error { return f.check(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), a, args) },
	}
	a.sessionFlag(cmd, &f.session)
	fl := cmd.Flags()
	fl.VarP(&f.timeout, "timeout", "t", "end the command after this time, from its start (30s, 2m, or seconds)")
	fl.Var(&f.queueTimeout, "queue-timeout", "give up if the session is still busy after this time")
	fl.StringVar(&f.cwd, "cwd", "", "directory for this command only")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` for this command only (repeatable)")
	fl.BoolVarP(&f.stdin, "stdin", "i", false, "give the command this process's stdin (default: none)")
	fl.BoolVar(&f.merge, "merge", false, "send stderr into stdout, in exact order")
	fl.Int64Var(&f.maxOutput, "max-output", defaultOutput, "with --json, keep `N` bytes of each stream: first and last half")
	fl.BoolVar(&f.json, "json", false, "print the result as one JSON value")
	fl.BoolVar(&f.jsonl, "jsonl", false, "print events as they come, one JSON value a line")
	fl.StringVarP(&f.file, "file", "f", "", "read the command's text from `FILE` (-: stdin)")
	fl.BoolVar(&f.noCreate, "no-create", false, "fail if there is no such session")
	return cmd
}

// check refuses what cannot be meant.
func (f *execFlags) check(cmd *cobra.Command, args []string) error {
	fromFile := cmd.Flags().Changed("file")
	wrong := func(format string, a ...any) error {
		return conch.Errorf(conch.InvalidRequest, format, a...).Hint("conch exec --help")
	}
	switch {
	case fromFile && len(args) > 0:
		return wrong("the command is given twice, by -f and as %q", args[0])
	case !fromFile && len(args) == 0:
		return wrong("no command given")
	case fromFile && f.file == "":
		return wrong("-f needs a file")
	case f.file == "-" && f.stdin:
		return wrong("-i and -f - both read stdin")
	case f.json && f.jsonl:
		return wrong("--json and --jsonl exclude each other")
	case f.maxOutput < 1:
		return wrong("--max-output %d is not a positive number of bytes", f.maxOutput)
	case cmd.Flags().Changed("cwd") && f.cwd == "":
		return wrong("--cwd is empty")
	}
	return nil
}

// request is what the flags and words ask for.
func (f *execFlags) request(args []string) (conch.ExecRequest, error) {
	req := conch.ExecRequest{
		TimeoutMS: f.timeout.ms(), QueueTimeoutMS: f.queueTimeout.ms(),
		OpenStdin: f.stdin, Merge: f.merge, MaxOutput: asked(f.maxOutput),
	}
	var err error
	switch {
	case f.file == "-":
		var text []byte
		text, err = io.ReadAll(os.Stdin)
		req.Command = string(text)
	case f.file != "":
		var text []byte
		text, err = os.ReadFile(f.file)
		req.Command = string(text)
	case len(args) == 1:
		req.Command = args[0]
	default:
		req.Command = quoteArgv(args)
	}
	if err != nil {
		return req, conch.Errorf(conch.InvalidRequest, "cannot read the command: %v", err).Hint("-f names a file of shell text; - is stdin")
	}
	if req.Env, err = parseEnv(f.env); err != nil {
		return req, err
	}
	req.Cwd, err = absolute(f.cwd)
	return req, err
}

// outcome is how following a command ended.
type outcome struct {
	result *conch.Result
	err    error
}

// run starts the command and follows it. Following is a goroutine of its own,
// which ends with the command or with this process: a second Ctrl-C must work
// while a write to a full pipe blocks.
func (f *execFlags) run(ctx context.Context, a *app, args []string) error {
	req, err := f.request(args)
	if err != nil {
		return err
	}
	// A job that a script put in the background has INT ignored, and keeps it so.
	ints := make(chan os.Signal, 2)
	if !signal.Ignored(os.Interrupt) {
		signal.Notify(ints, os.Interrupt)
	}
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT)

	fo := follower{c: a.client(client.Options{NoCreate: f.noCreate}), f: f}
	accepted := make(chan *client.Stream, 1)
	ended := make(chan outcome, 1)
	asking, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() {
		r, err := fo.follow(asking, req, accepted)
		ended <- outcome{r, err}
	}()

	var stream *client.Stream
	for pressed := 0; ; {
		select {
		case stream = <-accepted:
			if pressed > 0 { // given up, but just taken
				interrupt(ctx, stream)
			}
		case <-ints:
			pressed++
			switch {
			case pressed == 1 && stream != nil:
				go interrupt(ctx, stream)
			case pressed == 1:
				// Nobody has taken the command yet, and nobody takes one
				// whose client has gone.
				giveUp()
			case pressed > 1 && stream != nil:
				say(os.Stderr, fmt.Sprintf("left %s running", stream.ID()), "conch output "+string(stream.ID()))
				return exitStatus(statusInterrupted)
			case pressed > 1:
				say(os.Stderr, "left before the session answered", "conch history shows whether it took the command")
				return exitStatus(statusInterrupted)
			}
		case <-quits:
			// Go would print its goroutines and exit with 2, which could be
			// the command's.
			return exitStatus(128 + int(syscall.SIGQUIT))
		case o := <-ended:
			if o.err != nil && asking.Err() != nil {
				return exitStatus(statusInterrupted)
			}
			if o.err != nil {
				return o.err
			}
			return f.finish(o.result)
		}
	}
}

// interrupt ends the command for a Ctrl-C; its end shows in the stream.
func interrupt(ctx context.Context, s *client.Stream) {
	if _, err := s.Interrupt(ctx); err != nil {
		say(os.Stderr, "cannot interrupt: "+err.Error(), "Ctrl-C again leaves the command running")
	}
}

// finish prints what is still to print and turns the result into a status.
func (f *execFlags) finish(r *conch.Result) error {
	if f.json {
		if err := printJSON(os.Stdout, r); err != nil {
			return err
		}
	}
	// Remarks are for people: stderr may be a file that must hold the
	// command's bytes and no others.
	remark := func(message, hint string) {
		if isTerminal(os.Stderr) {
			say(os.Stderr, message, hint)
		}
	}
	if r.Shell.Restarted && !f.json && !f.jsonl {
		remark("the shell was started again", shellHint(r.Shell))
	}
	if r.Ended != nil && !r.Ended.Verified {
		remark("some processes of the command could not be ended", "conch doctor")
	}
	status := statusOf(r)
	if status == statusTimedOut && r.TimedOut {
		remark("timed out", "")
	}
	if status == statusFailed && r.ExitCode == nil {
		// conch failed to see it through, which is never left unsaid.
		say(os.Stderr, fmt.Sprintf("the exit status of %s was lost: nobody saw it", r.CommandID),
			"conch output "+string(r.CommandID)+" has what it wrote")
	}
	if status == 0 {
		return nil
	}
	return exitStatus(status)
}

// statusOf is the exit status that stands for a result.
func statusOf(r *conch.Result) int {
	switch {
	case r.TimedOut:
		return statusTimedOut
	case r.Interrupted:
		return statusInterrupted
	case r.ExitCode == nil:
		return statusFailed
	}
	return *r.ExitCode
}

// shellHint says what a new shell has and has not of the old one.
func shellHint(s conch.ShellReport) string {
	var parts []string
	if len(s.Restored) > 0 {
		parts = append(parts, "restored: "+strings.Join(s.Restored, ", "))
	}
	if len(s.Lost) > 0 {
		parts = append(parts, "lost: "+strings.Join(s.Lost, ", "))
	}
	return strings.Join(parts, "; ")
}

// brokenPipe says that nobody reads our output any more.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// defaultOutput is what a result holds of each stream if nobody says otherwise. It is
// not asked for: a session may have a lower limit, and then that is what it gives.
const defaultOutput = 1 << 20

func asked(maxOutput int64) int64 {
	if maxOutput == defaultOutput {
		return 0
	}
	return maxOutput
}
