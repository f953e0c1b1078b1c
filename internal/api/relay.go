package api

import (
	"net/http"
	"time"

	"github.com/conchsh/conch"
)

func (s *server) relay(r *http.Request) (any, error) { return s.h.RelayStatus(r.Context()), nil }

func (s *server) relayListen(r *http.Request) (any, error) {
	var req conch.RelayListenRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.Relay.Listen(r.Context(), req.Address)
}

func (s *server) relayInvite(r *http.Request) (any, error) {
	var req conch.RelayInviteRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.Relay.Invite(r.Context(), time.Duration(req.ExpiresS)*time.Second, req.Addresses)
}

func (s *server) relayJoin(r *http.Request) (any, error) {
	var req conch.RelayJoinRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.Relay.Join(r.Context(), req.Invite, []byte(req.Creds))
}

func (s *server) relayLeave(r *http.Request) (any, error) {
	if err := local(r, &struct{}{}); err != nil {
		return nil, err
	}
	return s.h.Relay.Leave(r.Context())
}

func (s *server) relayRemove(r *http.Request) (any, error) {
	var req conch.RelayRemoveRequest
	if err := local(r, &req); err != nil {
		return nil, err
	}
	return s.h.Relay.Remove(r.Context(), req.ID)
}
