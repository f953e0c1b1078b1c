package host

import (
	"context"

	"github.com/conchsh/conch/internal/session"
)

// Shutdown makes the daemon leave. With all it closes every session first;
// without, they run on and the next daemon finds them. When a session cannot
// be closed the daemon stays and says why.
func (h *Host) Shutdown(ctx context.Context, all bool) (Ended, error) {
	e := Ended{OK: true, Ended: session.Ended{Verified: true}}
	if all {
		h.leaving.Store(true) // no new ones behind our back
		var err error
		if e, err = h.closeAll(ctx); err != nil {
			h.leaving.Store(false)
			return e, err
		}
	}
	h.leaving.Store(true)
	h.Leave()
	return e, nil
}
