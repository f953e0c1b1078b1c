package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

// listed is the result of the tool sessions.
type listed struct {
	You       string              `json:"you"` // agent/label
	Sessions  []conch.SessionInfo `json:"sessions"`
	Processes []conch.Process     `json:"processes"`
	// Ended counts processes that have ended and are left out.
	Ended int `json:"ended_left_out"`
}

// lastEnded is how many ended processes are listed.
const lastEnded = 10

// sessions lists what is open and what runs.
func sessions(ctx context.Context, c *call, _ noArguments) (reply, error) {
	own, err := c.own(ctx)
	if err != nil {
		return reply{}, err
	}
	out := listed{You: own.name, Processes: []conch.Process{}}
	if out.Sessions, err = c.s.client.Sessions(ctx); err != nil {
		return reply{}, err
	}
	list, err := c.s.client.Processes(ctx)
	if err != nil {
		return reply{}, err
	}
	for _, p := range list {
		if p.Status.Ended() {
			out.Ended++
		}
	}
	skip := out.Ended - lastEnded
	out.Ended = max(0, skip)
	for _, p := range list {
		if p.Status.Ended() {
			if skip--; skip >= 0 {
				continue
			}
		}
		out.Processes = append(out.Processes, p)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "you are %s\n", own.name)
	seen := false
	for _, s := range out.Sessions {
		seen = seen || name(&s) == own.name
		b.WriteString(name(&s) + sessionState(&s, own.name))
	}
	if !seen {
		fmt.Fprintf(&b, "%s · your shell starts with your first command\n", own.name)
	}
	if len(out.Processes) > 0 {
		b.WriteString("processes:\n")
		for _, p := range out.Processes {
			b.WriteString(processLine(&p) + "\n")
		}
	}
	if out.Ended > 0 {
		fmt.Fprintf(&b, "(%d that ended earlier are left out)\n", out.Ended)
	}
	return reply{out, b.String()}, nil
}

// sessionState is a session's line after its name.
func sessionState(s *conch.SessionInfo, own string) string {
	var b strings.Builder
	switch {
	case s.Running != "":
		fmt.Fprintf(&b, " · busy with %s: %s", s.Running, frame.OneLine(s.Command, 100))
	case s.Busy:
		b.WriteString(" · busy")
	case s.Live:
		b.WriteString(" · here, idle")
	default:
		b.WriteString(" · away, idle")
	}
	if s.Queue > 0 {
		fmt.Fprintf(&b, " · %d queued", s.Queue)
	}
	if s.Mail > 0 {
		fmt.Fprintf(&b, " · %s not done with", messages(s.Mail))
	}
	switch {
	case s.ID != "":
		fmt.Fprintf(&b, " · cwd %s", frame.OneLine(s.Cwd, 200))
	case name(s) == own:
		b.WriteString(" · your shell starts with your first command")
	default:
		b.WriteString(" · no shell yet")
	}
	b.WriteByte('\n')
	return b.String()
}

// identity is the result of whoami and use.
type identity struct {
	*conch.WhoAmI
	Note string `json:"note,omitempty"` // what was asked for and could not be had
}

// whoami says who the caller is.
func whoami(ctx context.Context, c *call, _ noArguments) (reply, error) {
	if _, err := c.own(ctx); err != nil {
		return reply{}, err
	}
	return c.identity(ctx)
}

func (c *call) identity(ctx context.Context) (reply, error) {
	me := c.s.current()
	if me == nil {
		return reply{}, conch.Errorf(conch.NotRunning, "the server is leaving")
	}
	w, err := c.s.client.WhoAmI(ctx, me.name())
	if err != nil {
		return reply{}, err
	}
	var labels []string
	for _, s := range w.Sessions {
		labels = append(labels, s.Label)
	}
	text := fmt.Sprintf("you are %s/%s\naddress %s\nopen sessions of %s: %s\ndaemon %d (%s)\n", me.Agent, me.Label, w.Address,
		me.Agent, words(labels), w.Daemon.PID, w.Daemon.Mode)
	if me.note != "" {
		text += "note: " + me.note + "\n"
	}
	return reply{identity{w, me.note}, text}, nil
}

type useIn struct {
	Agent    string `json:"agent,omitempty"`
	Label    string `json:"label,omitempty"`
	Remember *bool  `json:"remember,omitempty" jsonschema:"keep it over restarts of this harness session; default true"`
}

// use takes another label, or another agent, for the caller's own.
func use(ctx context.Context, c *call, in useIn) (reply, error) {
	if in.Agent == "" && in.Label == "" {
		return reply{}, conch.Errorf(conch.InvalidRequest, "neither agent nor label is given").Hint("whoami says what you use now")
	}
	r := conch.PresenceRequest{Agent: in.Agent, Label: in.Label, Claim: true, Only: in.Label != "", Harness: c.harness()}
	if in.Remember == nil || *in.Remember {
		r.HarnessSession = c.s.o.HarnessSession
	}
	if r.Agent == "" {
		var err error
		if r.Agent, err = c.s.agent(); err != nil {
			return reply{}, err
		}
	}
	if err := conch.CheckAgent(r.Agent); err != nil {
		return reply{}, err
	}
	if r.Label != "" {
		if err := conch.CheckLabel(r.Label); err != nil {
			return reply{}, err
		}
	}
	if err := c.change(ctx, in, r); err != nil {
		return reply{}, err
	}
	return c.identity(ctx)
}

// change claims what use asks for and gives up what the caller had.
func (c *call) change(ctx context.Context, in useIn, r conch.PresenceRequest) error {
	c.s.claiming.Lock()
	defer c.s.claiming.Unlock()
	if c.s.left.Err() != nil {
		return conch.Errorf(conch.NotRunning, "the server is leaving")
	}
	old := c.s.current()
	if old != nil && old.here() && old.Agent == r.Agent && (old.Label == r.Label || r.Label == "") {
		if r.HarnessSession != "" && old.HarnessSession == "" {
			return conch.Errorf(conch.InvalidRequest, "you have %s already, without remember", old.name()).
				Hint("use another label first, and then this one")
		}
		return nil
	}
	if r.Label == "" && old != nil && !c.s.may("mail") {
		r.Label = old.Label
	}
	me, err := c.s.claim(ctx, c.s.client, r)
	if err != nil {
		return err
	}
	if r.HarnessSession != "" && in.Agent != "" {
		if _, err := c.s.client.Assign(ctx, in.Agent, conch.Assignment{Scope: conch.ScopeSession, Key: r.HarnessSession}); err != nil {
			me.end()
			return err
		}
	}
	c.s.become(me)
	return nil
}
