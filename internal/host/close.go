package host

import (
	"context"
	"errors"
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
	return h.endAll(func(s *session.Session) (session.Ended, error) { return s.Stop(ctx) })
}

// closeAll closes every session.
func (h *Host) closeAll(ctx context.Context) (conch.Gone, error) {
	return h.endAll(func(s *session.Session) (session.Ended, error) { return s.Close(ctx) })
}

// endAll ends every session in one of the two ways, several at a time.
func (h *Host) endAll(end func(*session.Session) (session.Ended, error)) (conch.Gone, error) {
	total := conch.Gone{OK: true, Verified: true}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs []error
		sem  = make(chan struct{}, 8)
	)
	for _, s := range h.Store.Sessions() {
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
				errs = append(errs, err)
			}
			total.Processes += e.Processes
			total.Verified = total.Verified && e.Verified
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		total.OK = false
		return total, errs[0] // it has its kind and hint; the others are alike or in the log
	}
	return total, nil
}
