package client

import (
	"context"
	"net/http"

	"github.com/conchsh/conch"
)

// Interrupted says what an interrupt did.
type Interrupted = conch.Interrupted

// Interrupt ends a command, running or queued, or with an empty id whatever the
// session runs. It returns when the command has ended.
func (c *Client) Interrupt(ctx context.Context, session string, id conch.CommandID) (*Interrupted, error) {
	u, err := c.sessionURL(session, "/interrupt", nil)
	if err != nil {
		return nil, err
	}
	var r Interrupted
	if err := c.json(ctx, call{method: http.MethodPost, url: u, body: conch.InterruptRequest{CommandID: id}}, &r); err != nil {
		return nil, err
	}
	return &r, nil
}
