package host

import (
	"context"

	"github.com/conchsh/conch"
)

// Shutdown makes the daemon leave. With all it closes every session first;
// without, they run on and the next daemon finds them. When a session cannot
// be closed the daemon stays and says why.
func (h *Host) Shutdown(ctx context.Context, all bool) (conch.Gone, error) {
	e := conch.Gone{OK: true, Verified: true}
	if all {
		h.Store.Hold(true)
		var err error
		if e, err = h.closeAll(ctx); err != nil {
			h.Store.Hold(false)
			return e, err
		}
	}
	h.Store.Hold(true)
	h.Leave()
	return e, nil
}
