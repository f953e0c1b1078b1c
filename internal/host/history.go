package host

import (
	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Archive gives the most recently closed session of a label that has no open
// one.
func (h *Host) Archive(agent, label string) (*session.Archive, error) {
	if err := h.checkName(agent, label); err != nil {
		return nil, err
	}
	_, err := h.Store.Lookup(agent, label)
	if err == nil {
		return nil, conch.Errorf(conch.SessionNotFound, "session %s is open", label)
	}
	if a, ok := h.Store.Archived(agent, label); ok {
		return a, nil
	}
	return nil, err
}

// Command finds where a command's record is: in an open session, to whose
// keeper the request belongs, or in a closed one.
func (h *Host) Command(id conch.CommandID) (open *session.Session, closed *session.Archive, n uint32, err error) {
	sid, n, err := id.Split()
	if err != nil {
		return nil, nil, 0, err
	}
	if s := h.Store.ByID(sid); s != nil {
		return s, nil, n, nil
	}
	if a, ok := h.Store.ArchivedByID(sid); ok {
		return nil, a, n, nil
	}
	return nil, nil, 0, conch.Errorf(conch.CommandNotFound, "no command %s", id).
		Hint("its session was pruned or never was; conch history lists commands")
}
