package host

import (
	"context"

	"github.com/conchsh/conch"
)

// Prune removes the records of closed sessions, and takes the ended processes of open
// ones off their lists.
func (h *Host) Prune(ctx context.Context) (conch.Pruned, error) {
	var p conch.Pruned
	var err error
	if p.Removed, p.Bytes, err = h.Store.Prune(); err != nil {
		return p, conch.Errorf(conch.Internal, "%d removed, then: %v", p.Removed, err)
	}
	p.Processes, err = h.forgetProcesses(ctx)
	return p, err
}
