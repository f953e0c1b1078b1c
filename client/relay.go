package client

import (
	"context"
	"net/http"
	"time"

	"github.com/conchsh/conch"
)

// Relay describes the home's way to other homes.
func (c *Client) Relay(ctx context.Context) (*conch.RelayStatus, error) {
	var s conch.RelayStatus
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/relay", nil)}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// RelayListen opens the home's own relay to other machines at host:port; empty
// closes it to them.
func (c *Client) RelayListen(ctx context.Context, address string) (*conch.RelayStatus, error) {
	return c.changeRelay(ctx, "listen", conch.RelayListenRequest{Address: address})
}

// RelayInvite makes a text that lets one other home in, once. It is good for
// expires (0: an hour). addresses are what the other is to dial; none: where the
// relay listens.
func (c *Client) RelayInvite(ctx context.Context, expires time.Duration, addresses ...string) (*conch.RelayInvite, error) {
	var i conch.RelayInvite
	req := conch.RelayInviteRequest{ExpiresS: int((expires + time.Second - 1) / time.Second), Addresses: addresses}
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/relay/invite", nil), body: req}, &i); err != nil {
		return nil, err
	}
	return &i, nil
}

// RelayJoin has the home use another relay: that of an invitation, or a NATS
// cluster, whose addresses have commas between, with the contents of a
// credentials file.
func (c *Client) RelayJoin(ctx context.Context, invite, creds string) (*conch.RelayStatus, error) {
	return c.changeRelay(ctx, "join", conch.RelayJoinRequest{Invite: invite, Creds: creds})
}

// RelayLeave goes back to the home's own relay.
func (c *Client) RelayLeave(ctx context.Context) (*conch.RelayStatus, error) {
	return c.changeRelay(ctx, "leave", nil)
}

// RelayRemove shuts out a home that was let in.
func (c *Client) RelayRemove(ctx context.Context, id string) (*conch.RelayStatus, error) {
	return c.changeRelay(ctx, "remove", conch.RelayRemoveRequest{ID: id})
}

func (c *Client) changeRelay(ctx context.Context, what string, body any) (*conch.RelayStatus, error) {
	var s conch.RelayStatus
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/relay/"+what, nil), body: body}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}
