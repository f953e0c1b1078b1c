package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/conchsh/conch"
)

// Output reads what a command wrote to one of its streams, whole. It ends where
// the output ends at the time; with follow, when the command is done.
func (c *Client) Output(ctx context.Context, id conch.CommandID, stream EventKind, follow bool) (io.ReadCloser, error) {
	if stream != Stdout && stream != Stderr {
		return nil, conch.Errorf(conch.InvalidRequest, "%s is not an output stream", stream)
	}
	q := url.Values{"stream": {stream.String()}}
	if follow {
		q.Set("follow", "1")
	}
	u, err := commandURL(id, "/output", q)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, call{method: http.MethodGet, url: u})
}
