package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/conchsh/conch"
)

// History lists a session's commands, oldest first: the last limit of them, or
// with limit 0 all.
func (c *Client) History(ctx context.Context, session string, limit int) ([]conch.HistoryEntry, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	u, err := c.sessionURL(session, "/history", q)
	if err != nil {
		return nil, err
	}
	list := []conch.HistoryEntry{}
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &list); err != nil {
		return nil, err
	}
	return list, nil
}

// Command is one command as History lists it, by its id alone.
func (c *Client) Command(ctx context.Context, id conch.CommandID) (*conch.HistoryEntry, error) {
	u, err := commandURL(id, "", nil)
	if err != nil {
		return nil, err
	}
	var h conch.HistoryEntry
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &h); err != nil {
		return nil, err
	}
	return &h, nil
}
