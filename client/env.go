package client

import (
	"context"
	"net/http"

	"github.com/conchsh/conch"
)

// Env is the exported variables of a session's shell after its last command.
func (c *Client) Env(ctx context.Context, session string) (map[string]string, error) {
	u, err := c.sessionURL(session, "/env", nil)
	if err != nil {
		return nil, err
	}
	var e conch.Environment
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &e); err != nil {
		return nil, err
	}
	return e.Env, nil
}
