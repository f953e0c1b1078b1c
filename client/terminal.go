package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// Screen gives what a process that has a terminal shows: at once, or when it is as the
// request wishes. Of one that has ended it is what was shown last.
func (c *Client) Screen(ctx context.Context, id conch.ProcessID, req conch.ScreenRequest) (*conch.Screen, error) {
	u, err := processURL(id, "/screen", screenQuery(req))
	if err != nil {
		return nil, err
	}
	return c.screen(ctx, u)
}

// SessionScreen gives what a session's own terminal shows, to which people attach.
func (c *Client) SessionScreen(ctx context.Context, session string, req conch.ScreenRequest) (*conch.Screen, error) {
	u, err := c.sessionURL(session, "/screen", screenQuery(req))
	if err != nil {
		return nil, err
	}
	return c.screen(ctx, u)
}

func (c *Client) screen(ctx context.Context, u string) (*conch.Screen, error) {
	var s conch.Screen
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// Keys types into a process that has a terminal.
func (c *Client) Keys(ctx context.Context, id conch.ProcessID, req conch.KeysRequest) error {
	if !utf8.ValidString(req.Text) || !utf8.ValidString(req.Keys) {
		return conch.Errorf(conch.InvalidRequest, "what is typed must be UTF-8").Hint("WriteStdin and conch stdin write any bytes; nothing was typed")
	}
	return c.toTerminal(ctx, id, "/keys", req)
}

// Resize gives the terminal of a process another size.
func (c *Client) Resize(ctx context.Context, id conch.ProcessID, size conch.TerminalSize) error {
	return c.toTerminal(ctx, id, "/resize", size)
}

func (c *Client) toTerminal(ctx context.Context, id conch.ProcessID, path string, body any) error {
	u, err := processURL(id, path, nil)
	if err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodPost, url: u, body: body}, nil)
}

func screenQuery(req conch.ScreenRequest) url.Values {
	q := url.Values{}
	if req.Contains != "" {
		q.Set("contains", req.Contains)
	}
	for name, v := range map[string]int64{"stable_ms": req.StableMS, "timeout_ms": req.TimeoutMS} {
		if v != 0 {
			q.Set(name, strconv.FormatInt(v, 10))
		}
	}
	return q
}
