package api

import (
	"encoding/json"
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
)

// caller reads from a request's query where it comes from.
func caller(r *http.Request) host.Caller {
	q := r.URL.Query()
	return host.Caller{Agent: q.Get("agent"), Harness: q.Get("harness"), Dir: q.Get("dir")}
}

func (s *server) agents(r *http.Request) (any, error) { return s.h.ListAgents(caller(r)) }

func (s *server) whoami(r *http.Request) (any, error) {
	return s.h.WhoAmI(r.Context(), caller(r), r.URL.Query().Get("label"))
}

func (s *server) newAgent(r *http.Request) (any, error) {
	var req conch.NewAgentRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.NewAgent(req)
}

func (s *server) importAgent(r *http.Request) (any, error) {
	var req conch.ImportAgentRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.ImportAgent(req.Key, req.Name)
}

func (s *server) exportAgent(r *http.Request) (any, error) {
	var req conch.PassphraseRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	key, err := s.h.ExportAgent(r.PathValue("name"), req.Passphrase)
	return json.RawMessage(key), err
}

func (s *server) unlockAgent(r *http.Request) (any, error) {
	var req conch.PassphraseRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.UnlockAgent(r.PathValue("name"), req.Passphrase)
}

func (s *server) lockAgent(r *http.Request) (any, error) {
	return s.h.LockAgent(r.PathValue("name"))
}

func (s *server) useAgent(r *http.Request) (any, error) {
	return s.h.Assign(r.PathValue("name"), conch.Assignment{Scope: conch.ScopeGlobal})
}

func (s *server) assignAgent(r *http.Request) (any, error) {
	var to conch.Assignment
	if err := decode(r, &to); err != nil {
		return nil, err
	}
	return s.h.Assign(r.PathValue("name"), to)
}

func (s *server) unassignAgent(r *http.Request) (any, error) {
	var to conch.Assignment
	if err := decode(r, &to); err != nil {
		return nil, err
	}
	return s.h.Unassign(to)
}

// local decodes a request that carries a secret or is answered with one. Such
// a request stays on this machine.
func local(r *http.Request, v any) error {
	if !gate.Local(r) {
		return conch.Errorf(conch.PermissionDenied, "keys, passphrases and tokens do not travel over a network").
			Hint("use the daemon's unix socket")
	}
	return decode(r, v)
}
