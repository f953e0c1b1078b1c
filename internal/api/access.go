package api

import (
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/route"
)

func (s *server) access(r *http.Request) (any, error) {
	gr, ok := gate.From(r)
	decides := s.person(r) == nil
	if !ok {
		return conch.AccessInfo{Via: conch.ViaSocket, Scopes: route.ScopeAdmin.Names(), Decides: decides}, nil
	}
	info := conch.AccessInfo{Via: gr.Via, Name: gr.Name, Scopes: gr.Scope.Names(), Decides: decides}
	if !gr.Expires.IsZero() {
		info.ExpiresAt = &gr.Expires
	}
	return info, nil
}

func (s *server) tokens(*http.Request) (any, error) { return s.h.Gate.Tokens(), nil }

func (s *server) newToken(r *http.Request) (any, error) {
	var q conch.NewTokenRequest
	if err := s.outside(r, &q); err != nil {
		return nil, err
	}
	q.NoPerson = q.NoPerson || s.person(r) != nil
	return s.h.Gate.NewToken(q)
}

func (s *server) revokeToken(r *http.Request) (any, error) {
	return conch.Revoked{Revoked: true}, s.h.Gate.Revoke(r.PathValue("token"))
}

func (s *server) listen(r *http.Request) (any, error) {
	var q conch.ListenRequest
	if err := s.outside(r, &q); err != nil {
		return nil, err
	}
	return s.h.Gate.Listen(q.Address)
}

func (s *server) page(r *http.Request) (any, error) {
	var q conch.PageRequest
	if err := local(r, &q); err != nil {
		return nil, err
	}
	q.NoPerson = q.NoPerson || s.person(r) != nil
	return s.h.Gate.Link(q)
}

func (s *server) logOut(*http.Request) (any, error) { return s.h.Gate.LogOut() }
