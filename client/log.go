package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/conchsh/conch"
)

// ExportLog reads a session's whole output as a labelled log. The latest closed
// session of the label is read where none is open.
func (c *Client) ExportLog(ctx context.Context, session string) (io.ReadCloser, error) {
	u, err := c.sessionURL(session, "/log", url.Values{"format": {"labelled"}})
	if err != nil {
		return nil, err
	}
	return c.open(ctx, call{method: http.MethodGet, url: u})
}

// ExportCast reads a session's commands and their output as a recording (asciicast,
// version 2). The latest closed session of the label is read where none is open.
func (c *Client) ExportCast(ctx context.Context, session string) (io.ReadCloser, error) {
	u, err := c.sessionURL(session, "/log", url.Values{"format": {"asciicast"}})
	if err != nil {
		return nil, err
	}
	return c.open(ctx, call{method: http.MethodGet, url: u})
}

// ProcessCast reads the recording of a process, as far as it has come.
func (c *Client) ProcessCast(ctx context.Context, id conch.ProcessID) (io.ReadCloser, error) {
	u, err := processURL(id, "/cast", nil)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, call{method: http.MethodGet, url: u})
}

// Imported names the session that holds an imported log.
type Imported = conch.Imported

// ImportLog keeps a labelled log as a closed session, from which ExportLog
// gives it back. An empty label lets the daemon choose the lowest free
// imported:<n>.
func (c *Client) ImportLog(ctx context.Context, label string, log io.Reader) (*Imported, error) {
	if label == "" {
		// Resolve needs some label to find the agent; this one is not sent.
		agent, _, err := c.Resolve(conch.DefaultLabel)
		if err != nil {
			return nil, err
		}
		return c.importLog(ctx, url.Values{"agent": {agent}}, log)
	}
	agent, label, err := c.Resolve(label)
	if err != nil {
		return nil, err
	}
	return c.importLog(ctx, url.Values{"agent": {agent}, "label": {label}}, log)
}

func (c *Client) importLog(ctx context.Context, q url.Values, log io.Reader) (*Imported, error) {
	var i Imported
	if err := c.upload(ctx, daemonURL("/import", q), "log", log, &i); err != nil {
		return nil, err
	}
	return &i, nil
}

// upload sends what may be larger than memory, named what in an error. It is sent
// as it is read and cannot be sent twice, unlike what do sends.
func (c *Client) upload(ctx context.Context, url, what string, from io.Reader, into any) error {
	k := call{method: http.MethodPost, url: url}
	source := &source{r: from}
	req, err := http.NewRequestWithContext(ctx, k.method, k.url, source)
	if err != nil {
		return conch.Errorf(conch.InvalidRequest, "%v", err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.send(req, k)
	if source.err != nil && ctx.Err() == nil {
		if err == nil {
			resp.Body.Close()
		}
		return conch.Errorf(conch.InvalidRequest, "cannot read the %s: %v", what, source.err).Hint("nothing was kept")
	}
	if err != nil {
		return c.explain(ctx, k, err)
	}
	defer resp.Body.Close()
	if err := decode(resp.Body, into); err != nil {
		return c.explain(ctx, k, err)
	}
	return nil
}

// source remembers why it could not be read, which the transport does not tell
// apart from what happens on the connection.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
