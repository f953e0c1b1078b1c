package host

import "github.com/conchsh/conch"

// Pruned says what Prune removed.
type Pruned struct {
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"`
}

// Prune removes the records of closed sessions.
func (h *Host) Prune() (Pruned, error) {
	n, bytes, err := h.Store.Prune()
	if err != nil {
		return Pruned{n, bytes}, conch.Errorf(conch.Internal, "%d removed, then: %v", n, err)
	}
	return Pruned{n, bytes}, nil
}
