package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

const (
	execTimeout  = 120 * time.Second
	queueTimeout = 30 * time.Second
	// maxOutput is what a result holds of each stream unless asked otherwise. Some
	// clients show a model the structured result instead of the text, so this is
	// what a call may cost it.
	maxOutput = 16_000
	// interruptLimit is the ladder's 7 s and some.
	interruptLimit = 20 * time.Second
)

type execIn struct {
	Command   string            `json:"command" jsonschema:"bash text"`
	Session   string            `json:"session,omitempty" jsonschema:"label; default your own; new:LABEL makes one"`
	TimeoutS  *float64          `json:"timeout_s,omitempty" jsonschema:"default 120; 0 for none"`
	Cwd       string            `json:"cwd,omitempty" jsonschema:"for this command only"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"for this command only"`
	Stdin     *string           `json:"stdin,omitempty"`
	MaxOutput int64             `json:"max_output,omitempty" jsonschema:"bytes per stream, first and last half; default 16000"`
}

// shellExec runs a command to its end.
func shellExec(ctx context.Context, c *call, in execIn) (reply, error) {
	req := conch.ExecRequest{
		Command: in.Command, Cwd: in.Cwd, Env: in.Env,
		TimeoutMS: execTimeout.Milliseconds(), QueueTimeoutMS: queueTimeout.Milliseconds(), MaxOutput: maxOutput,
	}
	var err error
	if in.TimeoutS != nil {
		if req.TimeoutMS, err = millis("timeout_s", *in.TimeoutS); err != nil {
			return reply{}, err
		}
	}
	for name := range in.Env {
		if err := conch.CheckEnvName(name); err != nil {
			return reply{}, err
		}
	}
	if in.Stdin != nil {
		req.Stdin = []byte(*in.Stdin)
	}
	switch {
	case in.MaxOutput < 0 || in.MaxOutput > 4<<20:
		return reply{}, conch.Errorf(conch.InvalidRequest, "max_output is 1 to %d bytes", 4<<20).Hint("shell_output reads more, page by page")
	case in.MaxOutput > 0:
		req.MaxOutput = in.MaxOutput
	}
	t, err := c.target(ctx, in.Session)
	if err != nil {
		return reply{}, err
	}
	r, err := c.run(ctx, t, req)
	if err != nil {
		return reply{}, err
	}
	return reply{r, execText(r, req.TimeoutMS)}, nil
}

// millis reads a time in seconds.
func millis(name string, s float64) (int64, error) {
	if !(s >= 0 && s <= 1e9) {
		return 0, conch.Errorf(conch.InvalidRequest, "%s must be a number of seconds, not %v", name, s).Hint("0.5 is half a second")
	}
	ms := int64(s * 1000)
	if s > 0 && ms == 0 {
		ms = 1
	}
	return ms, nil
}

// outcome is how following a command ended.
type outcome struct {
	result *conch.Result
	err    error
}

// run runs a command and waits for its result. The request is not bound to ctx: a call
// that is cancelled must end the command and not just lose it, and a client that has
// gone must not.
func (c *call) run(ctx context.Context, t target, req conch.ExecRequest) (*conch.Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	accepted := make(chan conch.CommandID, 1)
	ended := make(chan outcome, 1)
	progress := c.progress(asking)
	go func() { // ends with the command, or with asking
		r, err := follow(asking, t, req, accepted, progress)
		ended <- outcome{r, err}
	}()
	var id conch.CommandID
	for {
		select {
		case id = <-accepted:
			c.ticket.leave()
		case o := <-ended:
			progress.close()
			return o.result, o.err
		case <-c.s.left.Done():
			if !cancelled(ctx) {
				return nil, leftRunning(id)
			}
			return c.interrupt(ctx, t, id, accepted, ended, giveUp)
		case <-ctx.Done():
			if !cancelled(ctx) {
				return nil, leftRunning(id)
			}
			return c.interrupt(ctx, t, id, accepted, ended, giveUp)
		}
	}
}

// cancelled tells a call that its client cancelled from one whose client has gone: the
// SDK ends both, and gives what it read last as the second's cause.
func cancelled(ctx context.Context) bool { return context.Cause(ctx) == context.Canceled }

// interrupt ends a command whose call was cancelled, and gives its last result.
func (c *call) interrupt(ctx context.Context, t target, id conch.CommandID, accepted chan conch.CommandID, ended chan outcome, giveUp func()) (*conch.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptLimit)
	defer cancel()
	if id == "" {
		// The request may be with the session already. Breaking it off here would
		// leave a command that nobody knows the id of; the id comes soon.
		select {
		case id = <-accepted:
		case o := <-ended:
			select {
			case id = <-accepted:
			default:
				return o.result, o.err // it was refused
			}
		case <-ctx.Done():
			giveUp()
			return nil, conch.Errorf(conch.Internal, "cancelled, and session %s does not say whether it took the command", t.name).
				Hint("the tool sessions shows whether it runs")
		}
	}
	if _, err := t.client.Interrupt(ctx, t.name, id); err != nil {
		return nil, err
	}
	return t.client.Result(ctx, id, maxOutput)
}

func leftRunning(id conch.CommandID) error {
	if id == "" {
		return conch.Errorf(conch.Internal, "the server is leaving; the command may not have been taken")
	}
	return conch.Errorf(conch.Internal, "the server is leaving; %s runs on", id).Hint("shell_output %s", id)
}

// follow starts the command and reads its events as long as somebody wants to see
// them. The result is the session's own, cut to size there.
func follow(ctx context.Context, t target, req conch.ExecRequest, accepted chan<- conch.CommandID, p *progress) (*conch.Result, error) {
	s, err := t.client.Stream(ctx, t.name, req)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	accepted <- s.ID()
	for {
		e, err := s.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // the keeper died; the record says what became of the command
		}
		if err != nil {
			return nil, err
		}
		// What stops a command before its start has come through the stream, so the
		// rest of it is only for watching.
		if e.Kind == client.Exited || e.Kind == client.Started && p == nil {
			break
		}
		p.add(e.Data)
	}
	s.Close()
	return t.client.Result(ctx, s.ID(), req.MaxOutput)
}

// execText is a result as a model reads it: how it ended first.
func execText(r *conch.Result, timeoutMS int64) string {
	var head strings.Builder
	switch {
	case r.TimedOut:
		fmt.Fprintf(&head, "timed out after %v", time.Duration(timeoutMS)*time.Millisecond)
	case r.Interrupted:
		head.WriteString("interrupted")
	case r.ExitCode == nil:
		head.WriteString("exit unknown: the session's keeper died and nobody saw the command's end")
	default:
		fmt.Fprintf(&head, "exit %d", *r.ExitCode)
	}
	if r.Signal != nil {
		fmt.Fprintf(&head, " (%s)", *r.Signal)
	}
	fmt.Fprintf(&head, " · %v · cwd %s · session %s · id %s\n", took(r.DurationMS), frame.OneLine(r.Cwd, 200), r.Session, r.CommandID)
	if e := r.Ended; e != nil {
		if e.Verified {
			fmt.Fprintf(&head, "note: all its processes are gone (%d, the last by %s); the shell and its state are kept\n", e.Processes, e.Signal)
		} else {
			fmt.Fprintf(&head, "note: some of its processes could not be seen gone (%d, %s)\n", e.Processes, e.Signal)
		}
	}
	if r.Shell.Restarted {
		fmt.Fprintf(&head, "note: the shell was started again, in the state before this command; restored: %s; lost: %s\n",
			words(r.Shell.Restored), words(r.Shell.Lost))
	}
	if r.Background > 0 {
		fmt.Fprintf(&head, "note: %d of its processes run on in the background\n", r.Background)
	}
	if r.StdoutBytes == 0 && r.StderrBytes == 0 {
		head.WriteString("(no output)\n")
	}
	out, errs := decode(r.Encoding, r.Stdout, r.Stderr)
	rest := func(o *conch.Omitted, cursor, stream string) string {
		if o == nil {
			return ""
		}
		return fmt.Sprintf(`shell_output {"id":%q,"stream":%q,"cursor":"%s"} reads on`, r.CommandID, stream, fmt.Sprintf(cursor, o.Offset))
	}
	return render(head.String(),
		section{"stdout", out, r.StdoutBytes, r.StdoutOmitted, rest(r.StdoutOmitted, "%d,0", "stdout")},
		section{"stderr", errs, r.StderrBytes, r.StderrOmitted, rest(r.StderrOmitted, "0,%d", "stderr")})
}

func words(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// took is a duration to three figures or so.
func took(ms float64) time.Duration {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}
