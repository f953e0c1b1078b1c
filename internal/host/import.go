package host

import (
	"context"
	"io"

	"github.com/conchsh/conch"
)

// Import keeps a labelled log as a closed session. No label: the daemon
// chooses one.
func (h *Host) Import(ctx context.Context, agent, label string, log io.Reader) (conch.Imported, error) {
	if err := h.FillAgent(&agent); err != nil {
		return conch.Imported{}, err
	}
	if err := conch.CheckAgent(agent); err != nil {
		return conch.Imported{}, err
	}
	if label != "" {
		if err := conch.CheckLabel(label); err != nil {
			return conch.Imported{}, err
		}
	}
	if err := h.needAgent(agent); err != nil {
		return conch.Imported{}, err
	}
	im, err := h.Store.Import(ctx, agent, label, log)
	if err != nil {
		return conch.Imported{}, err
	}
	return conch.Imported{Agent: agent, Label: im.Spec.Label, StdoutBytes: im.Stdout, StderrBytes: im.Stderr, UnlabelledBytes: im.Unlabelled}, nil
}
