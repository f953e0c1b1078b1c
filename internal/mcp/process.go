package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

type startIn struct {
	Command string `json:"command" jsonschema:"bash text"`
	Session string `json:"session,omitempty" jsonschema:"label; default your own; new:LABEL makes one"`
	Name    string `json:"name,omitempty" jsonschema:"to call it by instead of its id"`
	Notify  string `json:"notify,omitempty" jsonschema:"session label that gets a message when it ends"`
	TTY     bool   `json:"tty,omitempty" jsonschema:"on a terminal, for full-screen and interactive programs: shell_screen shows it"`
}

// shellStart starts a process.
func shellStart(ctx context.Context, c *call, in startIn) (reply, error) {
	if in.Name != "" {
		if err := conch.CheckProcessName(in.Name); err != nil {
			return reply{}, err
		}
	}
	t, err := c.target(ctx, in.Session)
	if err != nil {
		return reply{}, err
	}
	p, err := t.client.Run(ctx, t.name, conch.RunRequest{Command: in.Command, Name: in.Name, Notify: in.Notify, TTY: in.TTY})
	if err != nil {
		return reply{}, err
	}
	next := "shell_wait for a port, a log line or its end; shell_output reads what it writes"
	if in.TTY {
		next = "shell_screen shows what is on its terminal; shell_input types text and keys"
	}
	return reply{p, fmt.Sprintf("started %s\nnext: %s\n", processLine(p), next)}, nil
}

// processLine is a process in one line.
func processLine(p *conch.Process) string {
	var b strings.Builder
	b.WriteString(string(p.ProcessID))
	if p.Name != "" {
		b.WriteString(" (" + p.Name + ")")
	}
	switch {
	case p.ExitCode != nil:
		fmt.Fprintf(&b, " exited %d", *p.ExitCode)
	case p.Signal != nil:
		fmt.Fprintf(&b, " killed by %s", *p.Signal)
	case p.Status == conch.ProcessFailed:
		b.WriteString(" failed: nobody saw how it ended")
	default:
		fmt.Fprintf(&b, " %s, pid %d", p.Status, p.PID)
	}
	fmt.Fprintf(&b, " · session %s · %s", p.Session, frame.OneLine(p.Command, 120))
	return b.String()
}

// commandLine is a command in one line.
func commandLine(h *conch.HistoryEntry) string {
	state := string(h.Status)
	switch {
	case h.TimedOut:
		state = "timed out"
	case h.Interrupted:
		state = "interrupted"
	case h.ExitCode != nil:
		state = fmt.Sprintf("exit %d", *h.ExitCode)
	case h.Status == conch.StatusLost:
		state = "lost: nobody saw how it ended"
	}
	return fmt.Sprintf("%s %s · session %s · %s", h.CommandID, state, h.Session, frame.OneLine(h.Command, 120))
}

type waitIn struct {
	ID       string   `json:"id" jsonschema:"process id or name, or command id"`
	Exit     bool     `json:"exit,omitempty" jsonschema:"its end (also when other conditions are given)"`
	Log      string   `json:"log,omitempty" jsonschema:"regular expression (RE2), in all output so far and to come"`
	Port     int      `json:"port,omitempty" jsonschema:"local TCP port that it listens on"`
	HTTP     string   `json:"http,omitempty" jsonschema:"URL that answers below 400"`
	IdleS    float64  `json:"idle_s,omitempty" jsonschema:"no output for so long"`
	TimeoutS *float64 `json:"timeout_s,omitempty" jsonschema:"default 120"`
}

// shellWait waits in one request. Cancelling it ends the waiting only.
func shellWait(ctx context.Context, c *call, in waitIn) (reply, error) {
	limit := execTimeout.Milliseconds()
	var err error
	if in.TimeoutS != nil {
		if limit, err = millis("timeout_s", *in.TimeoutS); err != nil {
			return reply{}, err
		}
	}
	idle, err := millis("idle_s", in.IdleS)
	if err != nil {
		return reply{}, err
	}
	th, err := c.find(ctx, in.ID)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := c.leaving(ctx)
	defer cancel()
	switch {
	case th.command != nil:
		if in.Log != "" || in.Port != 0 || in.HTTP != "" || idle != 0 {
			return reply{}, conch.Errorf(conch.InvalidRequest, "of a command only the end can be waited for").Hint("start it with shell_start to wait for logs, ports or silence")
		}
		return waitCommand(ctx, c, th.command, limit)
	case th.process == nil:
		return reply{}, conch.Errorf(conch.InvalidRequest, "%s is a session; a process or a command can be waited for", in.ID).Hint("the tool sessions lists them")
	}
	if limit == 0 {
		limit = 1 // looks once
	}
	p := c.progress(ctx)
	if p != nil {
		go c.watchLog(ctx, th.process.ProcessID, p) // ends with ctx, or the process
	}
	w, err := c.s.client.Wait(ctx, th.process.ProcessID, conch.WaitRequest{
		Exit: in.Exit, Log: in.Log, Port: in.Port, HTTP: in.HTTP, IdleMS: idle, TimeoutMS: limit,
	})
	cancel()
	p.close()
	if err != nil {
		return reply{}, err
	}
	text := waitText(w, in)
	if w.Reason != conch.WaitLog {
		tail, terr := c.s.client.LogPage(context.WithoutCancel(ctx), w.Process.ProcessID, client.LogOptions{Tail: 20}, 4000)
		if terr == nil {
			o, e := decode(tail.Encoding, tail.Stdout, tail.Stderr)
			text = render(text, section{name: "last lines of stdout", data: o}, section{name: "last lines of stderr", data: e})
		}
	}
	return reply{w, text}, nil
}

// leaving is a context that also ends when the client has gone: a wait is for nobody
// then.
func (c *call) leaving(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.s.left, cancel)
	return ctx, func() { stop(); cancel() }
}

// watchLog shows a process's new output while it is waited for.
func (c *call) watchLog(ctx context.Context, id conch.ProcessID, p *progress) {
	l, err := c.s.client.Logs(ctx, id, client.LogOptions{Tail: 1, Follow: true})
	if err != nil {
		return // what is wrong, the wait says
	}
	defer l.Close()
	for {
		e, err := l.Next()
		if err != nil || e.Kind == client.Exited {
			return
		}
		p.add(e.Data)
	}
}

func waitText(w *conch.WaitResult, in waitIn) string {
	var what string
	switch w.Reason {
	case conch.WaitExit, conch.WaitEnded:
		what = "it ended"
		if w.Reason == conch.WaitEnded {
			what = "it ended before what was waited for"
		}
	case conch.WaitLog:
		what = fmt.Sprintf("found on %s: %s", w.Match.Stream, frame.OneLine(w.Match.Line, 500))
	case conch.WaitPort:
		what = fmt.Sprintf("port %d takes connections", in.Port)
	case conch.WaitHTTP:
		what = fmt.Sprintf("%s answers", frame.OneLine(in.HTTP, 200))
	case conch.WaitIdle:
		what = "no output for the time given"
	case conch.WaitTimeout:
		what = "not within the time given; it goes on"
	}
	text := fmt.Sprintf("%s: %s, after %v\n%s\n", w.Reason, what, took(w.Elapsed), processLine(&w.Process))
	if w.Detail != "" {
		text += "last seen: " + frame.OneLine(w.Detail, 300) + "\n"
	}
	return text
}

// waitCommand waits for the end of a command that another call, or another client,
// started.
func waitCommand(ctx context.Context, c *call, h *conch.HistoryEntry, limit int64) (reply, error) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, time.Duration(max(limit, 1))*time.Millisecond)
	defer cancel()
	r, err := c.s.client.Result(limited, h.CommandID, maxOutput)
	switch {
	case err == nil:
		return reply{r, execText(r, limit)}, nil
	case limited.Err() != nil && ctx.Err() == nil:
		out := struct {
			Reason  string              `json:"reason"`
			Elapsed float64             `json:"elapsed_ms"`
			Command *conch.HistoryEntry `json:"command"`
		}{conch.WaitTimeout, float64(time.Since(begun)) / 1e6, h}
		return reply{out, fmt.Sprintf("timeout: not within the time given; it goes on\n%s\n", commandLine(h))}, nil
	}
	return reply{}, err
}

type signalIn struct {
	ID     string `json:"id" jsonschema:"process id or name, command id, or session label"`
	Signal string `json:"signal,omitempty" jsonschema:"INT, TERM, KILL, HUP, ...; left out: end it, TERM first, then KILL, and see it gone"`
}

// shellSignal signals a process, or ends a command.
func shellSignal(ctx context.Context, c *call, in signalIn) (reply, error) {
	th, err := c.find(ctx, in.ID)
	if err != nil {
		return reply{}, err
	}
	signal := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(in.Signal)), "SIG")
	if th.process != nil {
		var k *conch.Killed
		if signal == "" {
			k, err = c.s.client.Kill(ctx, th.process.ProcessID)
		} else {
			k, err = c.s.client.Signal(ctx, th.process.ProcessID, signal)
		}
		if err != nil {
			return reply{}, err
		}
		text := "sent " + signal
		if signal == "" {
			text = "ended"
			if !k.Verified {
				text = "not all of it could be seen gone"
			}
		}
		return reply{k, fmt.Sprintf("%s: %s\n", text, processLine(&k.Process))}, nil
	}
	// A command runs in the shell: its rest must not run either, which a bare signal
	// does not ensure. So each of these means the same ladder.
	switch signal {
	case "", "INT", "TERM", "KILL", "QUIT", "HUP":
	default:
		return reply{}, conch.Errorf(conch.Unsupported, "a command in a shell can be ended, not signalled with %s", frame.OneLine(in.Signal, 20)).
			Hint("INT ends it; a process of shell_start takes any signal")
	}
	if th.session == nil {
		return reply{}, conch.Errorf(conch.SessionClosed, "the session of %s is closed and nothing of it runs", in.ID)
	}
	var id conch.CommandID
	if th.command != nil {
		id = th.command.CommandID
	}
	r, err := c.s.client.Interrupt(ctx, name(th.session), id)
	if err != nil {
		return reply{}, err
	}
	text := "nothing was running"
	if r.Interrupted {
		text = fmt.Sprintf("interrupted %s", r.CommandID)
		if r.Ended != nil && r.Ended.Signal != "" {
			text += fmt.Sprintf(" with %s (%d processes, all gone: %t)", r.Ended.Signal, r.Ended.Processes, r.Ended.Verified)
		}
		text += "; the shell and its state are kept"
	}
	return reply{r, text + "\n"}, nil
}
