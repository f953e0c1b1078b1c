package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// AttachOptions say how to come to a terminal.
type AttachOptions struct {
	ReadOnly bool
	// Size is that of the caller's terminal; the zero value leaves it as it is.
	Size conch.TerminalSize
}

// Attach comes to the terminal of a session, which is made if it is new: the same shell
// that commands run in. As long as somebody is there who may type, commands of others
// wait. Leaving (Close, or the end of ctx) ends nothing that runs.
func (c *Client) Attach(ctx context.Context, session string, o AttachOptions) (*Attachment, error) {
	q := o.query()
	if !c.o.NoCreate {
		q.Set("create", "1")
		if dir := c.startDir(); dir != "" {
			q.Set("cwd", dir)
		}
	}
	u, err := c.sessionURL(session, "/attach", q)
	if err != nil {
		return nil, err
	}
	stdin, err := c.sessionURL(session, "/attach/stdin", nil)
	if err != nil {
		return nil, err
	}
	resize, err := c.sessionURL(session, "/attach/resize", nil)
	if err != nil {
		return nil, err
	}
	return c.attach(ctx, u, stdin, resize)
}

// AttachProcess comes to the terminal of a process.
func (c *Client) AttachProcess(ctx context.Context, id conch.ProcessID, o AttachOptions) (*Attachment, error) {
	u, err := processURL(id, "/attach", o.query())
	if err != nil {
		return nil, err
	}
	stdin, _ := processURL(id, "/stdin", nil)
	resize, _ := processURL(id, "/resize", nil)
	return c.attach(ctx, u, stdin, resize)
}

func (o AttachOptions) query() url.Values {
	q := url.Values{}
	if o.ReadOnly {
		q.Set("read_only", "1")
	}
	if o.Size.Cols > 0 {
		q.Set("cols", strconv.Itoa(o.Size.Cols))
		q.Set("rows", strconv.Itoa(o.Size.Rows))
	}
	return q
}

func (c *Client) attach(ctx context.Context, u, stdin, resize string) (*Attachment, error) {
	resp, err := c.do(ctx, call{method: http.MethodGet, url: u, accept: "application/vnd.conch.tape"})
	if err != nil {
		return nil, err
	}
	return &Attachment{c: c, body: resp.Body, dec: tape.NewDecoder(resp.Body), stdin: stdin, resize: resize}, nil
}

// An Attachment is somebody at a terminal. Next is for one goroutine; Input and Resize
// are for another; Close is for any.
type Attachment struct {
	c             *Client
	body          io.ReadCloser
	dec           *tape.Decoder
	stdin, resize string
}

// An AttachEvent is what a terminal comes to show: Output for a real one of its size,
// or a new Size, or the end of the process with its Result.
type AttachEvent struct {
	Output []byte // valid until the next call of Next
	Size   *conch.TerminalSize
	Result *conch.Result
}

// Next gives the next event. The first two are the size and what draws the screen as it
// stands. io.EOF: one has been sent away from the prompt (Ctrl-D, exit).
// conch.SessionClosed: the session has ended.
func (a *Attachment) Next() (AttachEvent, error) {
	for {
		f, err := a.dec.Next()
		if err != nil {
			return AttachEvent{}, err
		}
		switch f.Kind {
		case tape.Stdout:
			return AttachEvent{Output: f.Data}, nil
		case tape.Resize:
			s := new(conch.TerminalSize)
			if err := json.Unmarshal(f.Data, s); err != nil {
				return AttachEvent{}, conch.Errorf(conch.Internal, "unreadable size: %v", err)
			}
			return AttachEvent{Size: s}, nil
		case tape.Note:
			return AttachEvent{}, conch.Errorf(conch.SessionClosed, "the session was closed by somebody else, or conch was stopped")
		case tape.Exit:
			r := new(conch.Result)
			if err := json.Unmarshal(f.Data, r); err != nil {
				return AttachEvent{}, conch.Errorf(conch.Internal, "unreadable end: %v", err)
			}
			return AttachEvent{Result: whole(r)}, nil
		}
	}
}

// Input types.
func (a *Attachment) Input(ctx context.Context, b []byte) error {
	return a.c.json(ctx, call{method: http.MethodPost, url: a.stdin, body: b}, nil)
}

// Resize gives the terminal another size, for all who see it.
func (a *Attachment) Resize(ctx context.Context, size conch.TerminalSize) error {
	return a.c.json(ctx, call{method: http.MethodPost, url: a.resize, body: size}, nil)
}

// Close leaves.
func (a *Attachment) Close() error { return a.body.Close() }

// Left reports whether an error of Next is an end and no failure.
func Left(err error) bool { return errors.Is(err, io.EOF) }
