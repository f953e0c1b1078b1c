package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/session"
)

// Run starts a process in a session and, if the request says so, sees to it that
// somebody is told of its end.
func (h *Host) Run(ctx context.Context, s *session.Session, query, contentType string, body []byte) (conch.Process, error) {
	if bytes.Contains(body, []byte("notify")) {
		var q conch.RunRequest
		if json.Unmarshal(body, &q) == nil { // the keeper says what is wrong with it
			if err := h.checkNotice(ctx, s.Agent(), q); err != nil {
				return conch.Process{}, err
			}
		}
	}
	p, err := s.Run(ctx, query, contentType, body)
	if err == nil && p.Notify != "" {
		h.notices.add(p)
	}
	return p, err
}

// checkNotice refuses, before anything runs, what could not be told to anybody.
func (h *Host) checkNotice(ctx context.Context, agent string, q conch.RunRequest) error {
	if q.NotifyLog != "" {
		if q.Notify == "" {
			return conch.Errorf(conch.InvalidRequest, "notify_log needs notify: who is to be told")
		}
		if _, err := logs.Compile(q.NotifyLog); err != nil {
			return err
		}
	}
	if q.Notify == "" {
		return nil
	}
	return h.Mail.Reaches(ctx, agent, q.Notify)
}

// notices are the processes whose end somebody is to be told of, on their way to
// Tell.
type notices struct {
	mu   sync.Mutex
	list []conch.Process
	wake chan struct{}
}

func (n *notices) add(p conch.Process) {
	n.mu.Lock()
	n.list = append(n.list, p)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default: // it is being woken
	}
}

func (n *notices) take() []conch.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// Tell sends word of processes until ctx ends. What began under an earlier daemon, or
// ended while there was none, is found in the sessions' records; a message that was
// sent before is not sent again, since its id is the process's.
func (h *Host) Tell(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	list, err := h.Processes(ctx)
	if err != nil && ctx.Err() == nil && h.Log != nil {
		h.Log.Warn("notices", "err", err)
	}
	for {
		for _, p := range list {
			if p.Notify != "" {
				wg.Go(func() { h.tell(ctx, p) }) // ends with the process, or with ctx
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-h.notices.wake:
			list = h.notices.take()
		}
	}
}

// tell follows one process to its end.
func (h *Host) tell(ctx context.Context, p conch.Process) {
	who := string(p.ProcessID)
	if p.Name != "" {
		who = p.Name + " (" + who + ")"
	}
	if p.NotifyLog != "" {
		r, err := h.waitFor(ctx, p.ProcessID, conch.WaitRequest{Log: p.NotifyLog, Exit: true})
		if err != nil {
			h.untold(ctx, p, err)
			return
		}
		if r.Reason == conch.WaitLog {
			h.untold(ctx, p, h.notify(ctx, p, "log", fmt.Sprintf("process %s in session %s wrote: %s", who, p.Session, r.Match.Line)))
		}
	}
	r, err := h.waitFor(ctx, p.ProcessID, conch.WaitRequest{Exit: true})
	if err == nil {
		err = h.notify(ctx, p, "exit", fmt.Sprintf("process %s in session %s %s; conch logs %s has what it wrote. Its command: %.200s",
			who, p.Session, outcome(r.Process), p.ProcessID, p.Command))
	}
	h.untold(ctx, p, err)
}

// untold logs a message that could not be sent and will not be.
func (h *Host) untold(ctx context.Context, p conch.Process, err error) {
	if err != nil && ctx.Err() == nil && h.Log != nil {
		h.Log.Warn("nobody was told of a process", "op", "notice", "process", p.ProcessID, "err", err)
	}
}

// outcome says how a process ended.
func outcome(p conch.Process) string {
	took := ""
	if p.EndedAt != nil {
		took = " after " + p.EndedAt.Sub(p.StartedAt).Round(time.Millisecond).String()
	}
	switch {
	case p.Signal != nil:
		return "was ended by " + *p.Signal + took
	case p.ExitCode != nil:
		return fmt.Sprintf("ended with status %d%s", *p.ExitCode, took)
	}
	return "was lost: nobody saw how it ended"
}

// notify puts the message where it belongs. A full disk may pass; nothing else is
// tried again.
func (h *Host) notify(ctx context.Context, p conch.Process, event, text string) error {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		_, err := h.Mail.Send(ctx, conch.SendRequest{Agent: p.Agent, Session: p.Session, To: p.Notify,
			ID: string(p.ProcessID) + "." + event, Text: text, Auto: true})
		if !errors.Is(err, conch.StorageFull) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitFor waits for a process wherever it is: with its keeper, or on the record of a
// session that sleeps or is closed.
func (h *Host) waitFor(ctx context.Context, id conch.ProcessID, q conch.WaitRequest) (conch.WaitResult, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		open, closed, n, err := h.Command(id)
		if err != nil {
			return conch.WaitResult{}, err
		}
		if open != nil {
			if r, err := open.Wait(ctx, id, q); err == nil || errors.Is(err, conch.ProcessNotFound) {
				return r, err
			}
			closed = open.Past()
		}
		p, err := closed.Process(n)
		if err == nil && p.Status.Ended() {
			return past(closed, p, n, q)
		}
		if err != nil && !errors.Is(err, conch.ProcessNotFound) && ctx.Err() == nil {
			return conch.WaitResult{}, err
		}
		select { // its keeper has just died, and the sweep is to come
		case <-time.After(pause):
		case <-ctx.Done():
			return conch.WaitResult{}, ctx.Err()
		}
	}
}

func past(a *session.Archive, p conch.Process, n uint32, q conch.WaitRequest) (conch.WaitResult, error) {
	m, err := logs.CheckWait(&q)
	if err != nil {
		return conch.WaitResult{}, err
	}
	next, end, err := a.Frames(n)
	if err != nil {
		return conch.WaitResult{}, err
	}
	defer end()
	r, err := logs.Past(q, m, next)
	r.Process = p
	return r, err
}
