package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Close ends a session for good, with every process in it.
func (h *Host) Close(ctx context.Context, agent, label string) (conch.Gone, error) {
	if err := h.checkName(agent, label); err != nil {
		return conch.Gone{}, err
	}
	s, err := h.Store.Lookup(agent, label)
	if errors.Is(err, conch.SessionNotFound) && !h.agentHere(agent) {
		err = h.noAgent(agent)
	}
	if err != nil {
		return conch.Gone{}, err
	}
	e, err := s.Close(ctx)
	if errors.Is(err, conch.SessionClosed) {
		// Somebody else closed it meanwhile: it is as was asked.
		return conch.Gone{OK: true, Verified: true}, nil
	}
	return conch.Gone{OK: err == nil, Processes: e.Processes, Verified: e.Verified}, err
}

// StopAll ends every session's processes and leaves the sessions open, for a
// daemon after which nothing may run.
func (h *Host) StopAll(ctx context.Context) (conch.Gone, error) {
	h.Store.Hold(true)
	return h.endAll(ctx, func(s *session.Session) (session.Ended, error) { return s.Stop(ctx) })
}

// closeAll closes every session.
func (h *Host) closeAll(ctx context.Context) (conch.Gone, error) {
	return h.endAll(ctx, func(s *session.Session) (session.Ended, error) { return s.Close(ctx) })
}

// endAll ends every session in one of the two ways, several at a time, and what runs in
// those that cannot be read. One that fails keeps no other from its end.
func (h *Host) endAll(ctx context.Context, end func(*session.Session) (session.Ended, error)) (conch.Gone, error) {
	total := conch.Gone{OK: true, Verified: true}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs []*conch.Error
		sem  = make(chan struct{}, 8)
	)
	each := func(s *session.Session, what string, end func(*session.Session) (session.Ended, error), done func(session.Ended)) {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			e, err := end(s)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, conch.SessionClosed) {
				return
			}
			if err != nil {
				failed := *conch.AsError(err)
				failed.Message = what + " could not be ended: " + failed.Message
				errs = append(errs, &failed)
			}
			total.Processes += e.Processes
			total.Verified = total.Verified && e.Verified
			if done != nil {
				done(e)
			}
		})
	}
	for _, s := range h.Store.Sessions() {
		each(s, "session "+s.Label(), end, nil)
	}
	for _, s := range h.Store.Unreadable() {
		stop := func(s *session.Session) (session.Ended, error) { return s.Stop(ctx) }
		each(s, s.Dir(), stop, func(e session.Ended) {
			if e.Processes > 0 {
				total.Unreadable = append(total.Unreadable, s.Dir())
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		total.OK = false
		first := errs[0] // it has its kind and hint; the others are alike
		if more := len(errs) - 1; more > 0 {
			first.Message += fmt.Sprintf(" (nor could %d others)", more)
		}
		return total, first
	}
	return total, nil
}
