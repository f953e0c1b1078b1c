package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

// A target is a session a tool works in.
type target struct {
	client *client.Client
	name   string // agent/label
	own    bool
}

// target finds the session an argument names. Only the caller's own, and new:LABEL,
// are made. The call's turn there has come.
func (c *call) target(ctx context.Context, session string) (target, error) {
	own, err := c.own(ctx)
	if err != nil {
		return target{}, err
	}
	if session == "" {
		return own, c.turn(ctx, own.name)
	}
	name, make := strings.CutPrefix(session, "new:")
	agent, label, both := strings.Cut(name, "/")
	if !both {
		label = name
		if agent, err = c.s.agent(); err != nil {
			return target{}, err
		}
	}
	cl := c.s.client
	if agent, label, err = cl.Resolve(agent + "/" + label); err != nil {
		return target{}, err
	}
	t := target{cl, agent + "/" + label, agent+"/"+label == own.name}
	if err := c.turn(ctx, t.name); err != nil {
		return target{}, err
	}
	if t.own && !make {
		return own, nil
	}
	if make {
		if _, err := cl.New(ctx, t.name, client.NewSession{}); err != nil {
			return target{}, err
		}
	}
	return t, nil
}

// A thing is what an id names.
type thing struct {
	process *conch.Process
	command *conch.HistoryEntry
	session *conch.SessionInfo // of a command: where it runs, if that is known
}

// find tells what an id means: a process by id or name, a command by id, a session by
// label or agent/label. A call that changes something has its turn there then.
func (c *call) find(ctx context.Context, id string) (thing, error) {
	t, err := c.lookUp(ctx, id)
	if err == nil && !c.reads {
		err = c.turn(ctx, t.place())
	} else {
		c.ticket.leave()
	}
	return t, err
}

func (c *call) lookUp(ctx context.Context, id string) (thing, error) {
	cl := c.s.client
	if id == "" {
		return thing{}, conch.Errorf(conch.InvalidRequest, "id is empty").Hint("an id of shell_exec or shell_start, a process's name, or a session's label")
	}
	if _, _, err := conch.CommandID(id).Split(); err == nil {
		return findID(ctx, cl, conch.CommandID(id))
	}
	if err := c.alone(ctx); err != nil {
		return thing{}, err
	}
	// Its agent is known, and its own processes, once it has a session.
	own, err := c.own(ctx)
	if err != nil {
		return thing{}, err
	}
	var t thing
	agent, label, both := strings.Cut(id, "/")
	if !both {
		agent, _, _ = strings.Cut(own.name, "/")
		label = id
		if t.process, err = c.named(ctx, own, agent, id); err != nil {
			return thing{}, err
		}
	}
	list, err := cl.Sessions(ctx)
	if err != nil {
		return thing{}, err
	}
	var labels []string
	for i, s := range list {
		if s.Agent == agent && s.Label == label {
			t.session = &list[i]
		}
		labels = append(labels, s.Label)
	}
	switch {
	case t.process != nil && t.session != nil && !t.process.Status.Ended():
		return thing{}, conch.Errorf(conch.InvalidRequest, "%q is a session and a process (%s)", id, t.process.ProcessID).
			Hint("say %s for the process, %s/%s for the session", t.process.ProcessID, agent, label)
	case t.session != nil:
		return thing{session: t.session}, nil
	case t.process != nil:
		return t, nil
	}
	return thing{}, conch.Errorf(conch.ProcessNotFound, "%q is no process, command or session", frame.OneLine(id, 80)).
		Hint("sessions: %s", strings.Join(labels, ", "))
}

// findID looks an id up, of which a process's and a command's look alike.
func findID(ctx context.Context, cl *client.Client, id conch.CommandID) (thing, error) {
	p, err := cl.Process(ctx, id)
	if err == nil {
		return thing{process: p}, nil
	}
	if !errors.Is(err, conch.ProcessNotFound) {
		return thing{}, err
	}
	h, err := cl.Command(ctx, id)
	if err != nil {
		return thing{}, err
	}
	t := thing{command: h}
	session, _, _ := id.Split()
	list, err := cl.Sessions(ctx)
	if err != nil {
		return thing{}, err
	}
	for i, s := range list {
		if s.ID == session {
			t.session = &list[i]
		}
	}
	return t, nil
}

// named is the process of a name: in the caller's own session before others, running
// before ended. nil: there is none.
func (c *call) named(ctx context.Context, own target, agent, name string) (*conch.Process, error) {
	list, err := c.s.client.Processes(ctx)
	if err != nil {
		return nil, err
	}
	var best *conch.Process
	rank := func(p *conch.Process) (r int) {
		if !p.Status.Ended() {
			r += 2
		}
		if p.Agent+"/"+p.Session == own.name {
			r++
		}
		return r
	}
	for i := range list {
		p := &list[i]
		if p.Name != name || p.Agent != agent {
			continue
		}
		if best != nil && rank(p) == rank(best) && rank(p) == 2 {
			return nil, conch.Errorf(conch.InvalidRequest, "two processes named %s run, %s in %s and %s in %s",
				name, best.ProcessID, best.Session, p.ProcessID, p.Session).Hint("say which by its id")
		}
		if best == nil || rank(p) >= rank(best) {
			best = p
		}
	}
	return best, nil
}

// name is agent/label.
func name(s *conch.SessionInfo) string { return fmt.Sprintf("%s/%s", s.Agent, s.Label) }
