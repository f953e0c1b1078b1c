package host

import (
	"context"
	"sync"
	"time"

	"github.com/conchsh/conch"
)

// askLimit is what each keeper gets to describe its session in a list.
const askLimit = time.Second

// Sessions lists all open sessions. A keeper that does not answer in time is
// listed with what is known of it.
func (h *Host) Sessions(ctx context.Context) []conch.SessionInfo {
	list := h.Store.Sessions()
	out := make([]conch.SessionInfo, len(list))
	var wg sync.WaitGroup
	sem := make(chan struct{}, 32)
	for i, s := range list {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			out[i], _ = s.Info(ctx)
		})
	}
	wg.Wait()
	return join(out, h.boxes(ctx))
}
