// Package responder answers mail that nobody takes, with a command of the user's.
//
// For each agent whose responder is on, messages that no session fetched within a time
// (or all) are given to the command, framed, on stdin; its stdout goes back as a reply
// that is marked as automatic. What the command may do is the caller's to arrange (Run);
// what is answered, how often and by how many at a time is decided here:
//
//   - Mail that a program wrote on its own is never answered.
//   - A message carries how many responders stand between it and a person, and of which
//     agents. Beyond the hop limit, or if its own agent is among them, it is not answered.
//   - Of peers only those with the authority to ask are answered.
//   - Runs are limited per peer and in all, in any 24 hours.
//
// A run is on record before it begins. A failure is kept with its reason, and the
// messages stay where they were; they are not tried again. A run that the daemon's death
// cut short is tried once more. There is one reply to a message, whatever dies.
//
// Several messages of one session to one inbox that are due together are one run, and get
// the same reply.
package responder

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
	"github.com/conchsh/conch/internal/mail"
)

const (
	// maxBatch is how many messages one run may be for.
	maxBatch = 10
	// maxLook is how many messages of an agent are looked at in one round.
	maxLook = 1000
	// lookAgain is when a round comes without a cause: a budget may be free again.
	lookAgain = time.Minute
	// pause is between two looks that mail gave cause for.
	pause = 50 * time.Millisecond
	// grace is for how long beyond its time limit a run's messages are kept for it.
	grace = time.Minute
	// listed is how many runs a status shows.
	listed = 20
)

// Settings are what the user configured.
type Settings struct {
	Command   string
	All       bool // not only what nobody takes
	After     time.Duration
	Pool      int
	Time      time.Duration
	Reply     int64
	PerPeer   int // 0: no limit
	PerDay    int
	Hops      int
	Sandboxed func() (how string, err error) // whether runs can be kept in a sandbox
	Bare      bool                           // run without one where there is none
}

// A Job is what a run is to do.
type Job struct {
	Agent, Session string
	Dir            string // its own, empty; the runner makes and removes it
	Stdin          string
	Env            map[string]string
	Bare           bool // without a sandbox
}

// A Result is what the command did.
type Result struct {
	Stdout    []byte // at most Settings.Reply and one
	Bytes     int64  // that it wrote
	ExitCode  *int
	TimedOut  bool
	CommandID conch.CommandID
}

// Options are what a Responder stands on.
type Options struct {
	Settings
	Mail *mail.Mail
	Log  *slog.Logger
	// Run runs the command in a session of its own, to its end, and leaves nothing.
	Run func(context.Context, Job) (Result, error)
	// Clear ends what is left of a run that was cut short.
	Clear func(ctx context.Context, agent, session, dir string)
	// NewDir names a directory for a run; it makes none.
	NewDir func() string
	// Participant is an agent's name for all homes: its address, where it has one.
	Participant func(agent string) string
	// Authority is what a peer may expect of an agent: own, inform, ask or act.
	Authority func(agent, peer string) string
}

// A Responder answers for one home.
type Responder struct {
	o    Options
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	running int
	on      int // agents
	over    map[string]int
	wg      sync.WaitGroup
}

// New makes a Responder. Nothing happens before Serve.
func New(o Options) *Responder {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Responder{o: o, wake: make(chan struct{}, 1), over: map[string]int{}}
}

// Active reports whether mail may have to be answered: somebody counts on this process.
func (r *Responder) Active() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.on > 0
}

// Serve answers mail until ctx ends, and waits for its runs, which end then as well. What
// they were at is found by the next.
func (r *Responder) Serve(ctx context.Context) {
	defer r.wg.Wait()
	fresh := true
	for ctx.Err() == nil {
		changed := r.o.Mail.Changed() // before the look, so that nothing is missed
		next, err := r.round(ctx, &fresh)
		if err != nil && ctx.Err() == nil {
			r.o.Log.Warn("responder", "err", err)
		}
		if !r.Active() {
			changed = nil // whoever switches it on says so
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-changed:
			// Of a home in which much is written one look in a while is enough.
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		case <-t.C:
		}
		t.Stop()
	}
}

// stir has Serve look again.
func (r *Responder) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// round starts what is due and says when to come again.
func (r *Responder) round(ctx context.Context, fresh *bool) (time.Duration, error) {
	on, err := r.o.Mail.Responders(ctx)
	if err != nil {
		return lookAgain, err
	}
	r.mu.Lock()
	r.on = len(on)
	r.mu.Unlock()
	if *fresh && r.o.Mail.Used() {
		lost, err := r.o.Mail.Lost(ctx)
		if err != nil {
			return lookAgain, err
		}
		for _, l := range lost {
			r.o.Clear(ctx, l.Agent, l.Session, l.Dir)
		}
		*fresh = false
	}
	if len(on) == 0 {
		return time.Hour, nil
	}
	if why := r.NotReady(); why != "" {
		return time.Hour, nil // the status says so
	}
	next := lookAgain
	for agent := range on {
		d, err := r.look(ctx, agent)
		if err != nil {
			return lookAgain, err
		}
		next = min(next, d)
	}
	return next, nil
}

// NotReady says why nothing would be run.
func (r *Responder) NotReady() string {
	if r.o.Command == "" {
		return "responder.command is not set in config.toml"
	}
	if _, err := r.o.Sandboxed(); err != nil && !r.o.Bare {
		return err.Error()
	}
	return ""
}

// look starts what is due for one agent.
func (r *Responder) look(ctx context.Context, agent string) (time.Duration, error) {
	list, err := r.o.Mail.Questions(ctx, agent, maxLook)
	if err != nil {
		return 0, err
	}
	next, over := lookAgain, 0
	defer func() {
		r.mu.Lock()
		r.over[agent] = over
		r.mu.Unlock()
	}()
	if len(list) == 0 {
		return next, nil
	}
	all, peers, err := r.o.Mail.Spent(ctx)
	if err != nil {
		return 0, err
	}
	for len(list) > 0 {
		q := list[0]
		if left := r.wait(q); left > 0 {
			next = min(next, left)
			list = list[1:]
			continue
		}
		var batch []mail.Question
		batch, list = r.batch(list)
		run := &mail.Run{Agent: agent, Questions: batch, Dir: r.o.NewDir()}
		for _, b := range batch {
			run.Hops = max(run.Hops, b.Hops+1)
			for _, c := range b.Chain {
				if !slices.Contains(run.Chain, c) {
					run.Chain = append(run.Chain, c)
				}
			}
		}
		if why := r.refusal(agent, q); why != "" {
			if err := r.o.Mail.Refuse(ctx, run, why); err != nil {
				return 0, err
			}
			continue
		}
		run.Chain = append(run.Chain, r.o.Participant(agent))
		if r.o.PerDay > 0 && all >= r.o.PerDay || r.o.PerPeer > 0 && peers[q.Entry.From] >= r.o.PerPeer {
			over += len(batch)
			continue
		}
		if !r.take() {
			return next, nil // the next run's end looks again
		}
		ok, err := r.o.Mail.Begin(ctx, run, r.o.Time+grace)
		if err != nil || !ok {
			r.give()
			return next, err
		}
		all++
		peers[q.Entry.From]++
		r.wg.Go(func() { r.run(ctx, *run) }) // ends with the run, or with ctx
	}
	return next, nil
}

// wait is how much longer a message is left to a session.
func (r *Responder) wait(q mail.Question) time.Duration {
	if r.o.All {
		return 0
	}
	return time.Until(q.At.Add(r.o.After))
}

// batch takes the first message and those that go with it: due, of the same session,
// to the same inbox, with the same past.
func (r *Responder) batch(list []mail.Question) (batch, rest []mail.Question) {
	q := list[0]
	for _, l := range list {
		if len(batch) < maxBatch && l.From == q.From && l.Label == q.Label &&
			l.Hops == q.Hops && slices.Equal(l.Chain, q.Chain) && r.wait(l) <= 0 {
			batch = append(batch, l)
		} else {
			rest = append(rest, l)
		}
	}
	return batch, rest
}

// refusal says why a message must not be answered.
func (r *Responder) refusal(agent string, q mail.Question) string {
	if q.Hops >= r.o.Hops {
		return fmt.Sprintf("it came through %d responders; the limit is %d", q.Hops, r.o.Hops)
	}
	if slices.Contains(q.Chain, r.o.Participant(agent)) {
		return "it comes from a responder that this one set off: " + strings.Join(q.Chain, ", ")
	}
	switch a := r.o.Authority(agent, q.Entry.From); a {
	case "own", "ask", "act":
		return ""
	default:
		return fmt.Sprintf("%s has the authority %q, and may not ask", q.Entry.From, a)
	}
}

func (r *Responder) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running >= r.o.Pool {
		return false
	}
	r.running++
	return true
}

func (r *Responder) give() {
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
	r.stir()
}

// run is one run, from its record to its reply.
func (r *Responder) run(ctx context.Context, run mail.Run) {
	defer r.give()
	entries := make([]*conch.InboxEntry, len(run.Questions))
	texts := make([]string, len(run.Questions))
	for i := range run.Questions {
		entries[i] = &run.Questions[i].Entry
		texts[i] = entries[i].Text
	}
	f := frame.New(texts...)
	var stdin strings.Builder
	for _, e := range entries {
		stdin.WriteString(f.Message(e))
	}
	last := entries[len(entries)-1]
	_, err := r.o.Sandboxed()
	res, err := r.o.Run(ctx, Job{Agent: run.Agent, Session: run.Session, Dir: run.Dir, Stdin: stdin.String(), Bare: err != nil && r.o.Bare,
		Env: map[string]string{"CONCH_MESSAGE": last.ID, "CONCH_FROM": run.Questions[0].From}})
	if ctx.Err() != nil {
		return // the daemon leaves; the next one finds the record
	}
	o := mail.Outcome{CommandID: res.CommandID, ExitCode: res.ExitCode, Bytes: res.Bytes}
	o.Text = strings.TrimRight(string(res.Stdout), "\n")
	switch {
	case err != nil:
		o.Failed = err.Error()
	case res.TimedOut:
		o.Failed = fmt.Sprintf("it was ended after %v, the time limit", r.o.Time)
	case res.ExitCode == nil:
		o.Failed = "nobody saw how it ended"
	case *res.ExitCode != 0:
		o.Failed = fmt.Sprintf("it ended with status %d", *res.ExitCode)
	case res.Bytes > r.o.Reply:
		o.Failed = fmt.Sprintf("its reply has %d bytes; the limit is %d", res.Bytes, r.o.Reply)
	case strings.TrimSpace(o.Text) == "":
		o.Failed = "it wrote nothing to stdout"
	case !utf8.ValidString(o.Text):
		o.Failed = "its reply is not valid UTF-8"
	}
	if o.Failed != "" {
		o.Text = ""
		r.o.Log.Warn("responder", "run", run.N, "agent", run.Agent, "command", res.CommandID, "failed", o.Failed)
	}
	if err := r.o.Mail.Finish(ctx, run, o); err != nil && ctx.Err() == nil {
		r.o.Log.Error("responder", "run", run.N, "err", err)
	}
}

// Set switches an agent's responder on or off.
func (r *Responder) Set(ctx context.Context, agent string, on bool) error {
	if on {
		if why := r.NotReady(); why != "" {
			return conch.Errorf(conch.Unsupported, "the responder cannot run: %s", why).
				Hint("docs/CONFIG.md has its settings; the daemon reads them when it starts: conch down")
		}
	}
	if err := r.o.Mail.SetResponder(ctx, agent, on); err != nil {
		return err
	}
	r.stir()
	return nil
}

// Status says what an agent's responder is, did and cost.
func (r *Responder) Status(ctx context.Context, agent string) (st conch.ResponderStatus, err error) {
	st = conch.ResponderStatus{Agent: agent, Command: r.o.Command, Mail: "unclaimed", AfterS: r.o.After.Seconds(), NotReady: r.NotReady(), Pool: r.o.Pool,
		Budget: conch.ResponderBudget{PerDay: r.o.PerDay, PerPeer: r.o.PerPeer}, Runs: []conch.ResponderRun{}}
	if r.o.All {
		st.Mail, st.AfterS = "all", 0
	}
	if how, err := r.o.Sandboxed(); err == nil {
		st.Sandbox = how
	} else if r.o.Bare {
		st.Sandbox = "none, as allow_unsandboxed says: " + err.Error()
	} else {
		st.Sandbox = "none: " + err.Error()
	}
	if !r.o.Mail.Used() {
		return st, nil
	}
	on, err := r.o.Mail.Responders(ctx)
	if err != nil {
		return st, err
	}
	if since, ok := on[agent]; ok {
		st.On, st.Since = true, &since
		list, err := r.o.Mail.Questions(ctx, agent, maxLook)
		if err != nil {
			return st, err
		}
		st.Waiting = len(list)
	}
	if st.Budget.Used, _, err = r.o.Mail.Spent(ctx); err != nil {
		return st, err
	}
	st.Runs, st.Totals, err = r.o.Mail.Runs(ctx, agent, listed)
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Running, st.Budget.Over = r.running, r.over[agent]
	return st, err
}
