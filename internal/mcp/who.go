package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/conchsh/conch"
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
		fmt.Fprintf(&b, "%s", name(&s))
		switch {
		case s.Busy:
			fmt.Fprintf(&b, " · busy with %s: %s", s.Running, oneLine(s.Command, 100))
		default:
			b.WriteString(" · idle")
		}
		if s.Queue > 0 {
			fmt.Fprintf(&b, " · %d queued", s.Queue)
		}
		fmt.Fprintf(&b, " · cwd %s\n", oneLine(s.Cwd, 200))
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
	self := c.s.current()
	w, err := c.s.client.WhoAmI(ctx, self.agent+"/"+self.label)
	if err != nil {
		return reply{}, err
	}
	var labels []string
	for _, s := range w.Sessions {
		labels = append(labels, s.Label)
	}
	text := fmt.Sprintf("you are %s/%s\naddress %s\nopen sessions of %s: %s\ndaemon %d (%s)\n", self.agent, self.label, w.Address,
		self.agent, words(labels), w.Daemon.PID, w.Daemon.Mode)
	if self.note != "" {
		text += "note: " + self.note + "\n"
	}
	return reply{identity{w, self.note}, text}, nil
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
	w := c.wish()
	w.agent, w.label, w.strict = in.Agent, in.Label, in.Label != ""
	w.remember = in.Remember == nil || *in.Remember
	if w.agent == "" {
		var err error
		if w.agent, err = c.s.agent(); err != nil {
			return reply{}, err
		}
	}
	if err := conch.CheckAgent(w.agent); err != nil {
		return reply{}, err
	}
	if w.label != "" {
		if err := conch.CheckLabel(w.label); err != nil {
			return reply{}, err
		}
	}
	c.s.claiming.Lock()
	defer c.s.claiming.Unlock()
	old := c.s.current()
	if old != nil && old.agent == w.agent && (old.label == w.label || w.label == "") {
		return c.identity(ctx)
	}
	self, err := c.claim(ctx, w)
	if err != nil {
		return reply{}, err
	}
	if w.remember && w.session != "" && in.Agent != "" {
		if _, err := c.s.client.Assign(ctx, in.Agent, conch.Assignment{Scope: conch.ScopeSession, Key: w.session}); err != nil {
			self.release(true)
			return reply{}, err
		}
	}
	c.s.become(self)
	if old != nil {
		if err := old.release(w.remember); err != nil {
			return reply{}, err
		}
	}
	return c.identity(ctx)
}
