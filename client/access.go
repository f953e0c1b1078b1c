package client

import (
	"context"
	"net/http"

	"github.com/conchsh/conch"
)

// NewToken makes a token, which lets programs in over the network. Its secret is
// in the answer, and nowhere else ever again.
func (c *Client) NewToken(ctx context.Context, req conch.NewTokenRequest) (*conch.NewToken, error) {
	var t conch.NewToken
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/tokens", nil), body: req}, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Tokens lists the tokens there are, those that have expired too, and the browsers'
// logins to the page.
func (c *Client) Tokens(ctx context.Context) ([]conch.TokenInfo, error) {
	var list []conch.TokenInfo
	err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/tokens", nil)}, &list)
	return list, err
}

// RevokeToken takes a token back, or ends a login. What is open under it ends.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	if err := conch.CheckLabel(name); err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodPost, url: daemonURL("/tokens/"+name+"/revoke", nil)}, nil)
}

// Listen has the daemon serve the network until it leaves.
func (c *Client) Listen(ctx context.Context, address string) (*conch.ListenInfo, error) {
	var info conch.ListenInfo
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/listen", nil), body: conch.ListenRequest{Address: address}}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Page has the daemon serve the web page, and gives an address that lets one browser in.
func (c *Client) Page(ctx context.Context, req conch.PageRequest) (*conch.PageLink, error) {
	var link conch.PageLink
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/page", nil), body: req}, &link); err != nil {
		return nil, err
	}
	return &link, nil
}

// LogOut shuts out all browsers that are logged in to the page, and says how many.
func (c *Client) LogOut(ctx context.Context) (int, error) {
	var out conch.LoggedOut
	err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/page/logout", nil)}, &out)
	return out.LoggedOut, err
}
