package host

import (
	"context"
	"io"

	"github.com/conchsh/conch"
)

// Imported names the session that holds an imported log.
type Imported struct {
	Agent       string `json:"agent"`
	Label       string `json:"label"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
}

// Import keeps a labelled log as a closed session. No label: the daemon
// chooses one.
func (h *Host) Import(ctx context.Context, agent, label string, log io.Reader) (Imported, error) {
	if err := h.fillAgent(&agent); err != nil {
		return Imported{}, err
	}
	if err := conch.CheckAgent(agent); err != nil {
		return Imported{}, err
	}
	if label != "" {
		if err := conch.CheckLabel(label); err != nil {
			return Imported{}, err
		}
	}
	if err := h.needAgent(agent); err != nil {
		return Imported{}, err
	}
	im, err := h.Store.Import(ctx, agent, label, log)
	if err != nil {
		return Imported{}, err
	}
	return Imported{agent, im.Spec.Label, im.Stdout, im.Stderr}, nil
}
