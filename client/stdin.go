package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/conchsh/conch"
)

// Stdin gives a writer to the stdin of a command that was started with
// OpenStdin. Each Write returns when the session has taken the bytes, and fails
// with conch.StdinClosed once the command cannot read any more; Close lets the
// command see the end of its input.
func (c *Client) Stdin(ctx context.Context, session string, id conch.CommandID) io.WriteCloser {
	return &stdin{c: c, ctx: ctx, session: session, id: id}
}

// stdin keeps a context because io.WriteCloser has no place for one; it is the
// context of every write.
type stdin struct {
	c       *Client
	ctx     context.Context
	session string
	id      conch.CommandID

	mu     sync.Mutex // guards what follows; writes go out one at a time
	offset int64      // makes a write that is sent again the same write
	closed bool
}

func (w *stdin) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, conch.Errorf(conch.StdinClosed, "stdin of %s is closed", w.id)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.post(p, url.Values{}); err != nil {
		return 0, err
	}
	w.offset += int64(len(p))
	return len(p), nil
}

func (w *stdin) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.post([]byte{}, url.Values{"close": {"1"}})
}

func (w *stdin) post(p []byte, q url.Values) error {
	q.Set("offset", strconv.FormatInt(w.offset, 10))
	u, err := w.c.sessionURL(w.session, "/commands/"+string(w.id)+"/stdin", q)
	if err != nil {
		return err
	}
	return w.c.json(w.ctx, call{method: http.MethodPost, url: u, body: p}, nil)
}
