package host

import (
	"context"

	"github.com/conchsh/conch"
)

// Pruned says what Prune removed.
type Pruned struct {
	Removed   int   `json:"removed"`
	Bytes     int64 `json:"bytes"`
	Processes int   `json:"processes"` // ended ones that are not listed any more
}

// Prune removes the records of closed sessions, and takes the ended processes of open
// ones off their lists.
func (h *Host) Prune(ctx context.Context) (Pruned, error) {
	var p Pruned
	var err error
	if p.Removed, p.Bytes, err = h.Store.Prune(); err != nil {
		return p, conch.Errorf(conch.Internal, "%d removed, then: %v", p.Removed, err)
	}
	p.Processes, err = h.forgetProcesses(ctx)
	return p, err
}
