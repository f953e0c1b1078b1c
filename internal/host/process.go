package host

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Processes lists the background processes of all open sessions, oldest first, those of
// a keeper that does not answer as they are on record.
func (h *Host) Processes(ctx context.Context) ([]conch.Process, error) {
	var mu sync.Mutex
	out := []conch.Process{}
	err := h.each(ctx, func(ctx context.Context, s *session.Session) error {
		list, err := s.Processes(ctx)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, list...)
		return err
	})
	slices.SortStableFunc(out, func(a, b conch.Process) int { return a.StartedAt.Compare(b.StartedAt) })
	return out, err
}

// forgetProcesses takes the ended processes of all sessions off their lists.
func (h *Host) forgetProcesses(ctx context.Context) (n int, err error) {
	var mu sync.Mutex
	err = h.each(ctx, func(ctx context.Context, s *session.Session) error {
		k, err := s.ForgetProcesses(ctx)
		mu.Lock()
		defer mu.Unlock()
		n += k
		return err
	})
	return n, err
}

// each asks all keepers, many at a time, and gives the first error.
func (h *Host) each(ctx context.Context, ask func(context.Context, *session.Session) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
		sem   = make(chan struct{}, 32)
	)
	for _, s := range h.Store.Sessions() {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			ctx, cancel := context.WithTimeout(ctx, 2*askLimit)
			defer cancel()
			err := ask(ctx, s)
			// A keeper that ends in the middle of the question leaves a record,
			// which is asked next; what was closed or removed meanwhile has none.
			var known *conch.Error
			for try := 0; try < 3 && err != nil && !errors.As(err, &known) && ctx.Err() == nil; try++ {
				err = ask(ctx, s)
			}
			if err == nil || errors.Is(err, conch.SessionClosed) || errors.Is(err, conch.OutputGone) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = conch.Errorf(conch.NotRunning, "session %s does not answer: %v", s.Label(), err).
					Hint("conch doctor looks at its keeper").Retry()
			}
		})
	}
	wg.Wait()
	return first
}
