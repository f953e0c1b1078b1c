package host

import (
	"context"
	"errors"
	"sync"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Ended is what closing sessions took.
type Ended struct {
	OK bool `json:"ok"`
	session.Ended
}

// Close ends a session for good, with every process in it.
func (h *Host) Close(ctx context.Context, agent, label string) (Ended, error) {
	if err := h.checkName(agent, label); err != nil {
		return Ended{}, err
	}
	s, err := h.Store.Lookup(agent, label)
	if errors.Is(err, conch.SessionNotFound) && !h.agentHere(agent) {
		err = h.noAgent(agent)
	}
	if err != nil {
		return Ended{}, err
	}
	e, err := s.Close(ctx)
	if errors.Is(err, conch.SessionClosed) {
		// Somebody else closed it meanwhile: it is as was asked.
		return Ended{OK: true, Ended: session.Ended{Verified: true}}, nil
	}
	return Ended{OK: err == nil, Ended: e}, err
}

// closeAll closes every session, several at a time.
func (h *Host) closeAll(ctx context.Context) (Ended, error) {
	total := Ended{OK: true, Ended: session.Ended{Verified: true}}
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
			e, err := s.Close(ctx)
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
