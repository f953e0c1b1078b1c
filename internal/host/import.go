package host

import (
	"io"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Import keeps a labelled log as a closed session. Empty label: one of its own.
func (h *Host) Import(agent, label string, log io.Reader) (session.Imported, error) {
	if h.leaving.Load() {
		return session.Imported{}, errLeaving()
	}
	if agent == "" {
		agent = conch.DefaultAgent
	}
	if err := conch.CheckAgent(agent); err != nil {
		return session.Imported{}, err
	}
	if label != "" {
		if err := conch.CheckLabel(label); err != nil {
			return session.Imported{}, err
		}
	}
	return h.Store.Import(agent, label, log)
}
