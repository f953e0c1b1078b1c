package client

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// Run starts a command in the background, in the current state of a session's shell,
// and returns when it is on record. It goes on without this client, and without the
// daemon.
func (c *Client) Run(ctx context.Context, session string, req conch.RunRequest) (*conch.Process, error) {
	u, err := c.startURL(session, "/run")
	if err != nil {
		return nil, err
	}
	// By way of the daemon, which has a part in it, and not on a connection that the
	// session's keeper has.
	if _, path, ok := strings.Cut(u, ".conch/v1"); ok {
		u = daemonURL(path, nil)
	}
	var p conch.Process
	if err := c.json(ctx, call{method: http.MethodPost, url: u, body: encodeRun(req)}, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

func encodeRun(req conch.RunRequest) conch.RunBody {
	e := encodeExec(conch.ExecRequest{Command: req.Command, Cwd: req.Cwd, Env: req.Env})
	req.Command, req.Cwd, req.Env = e.Command, e.Cwd, e.Env
	return conch.RunBody{RunRequest: req, Encoding: e.Encoding}
}

// Processes lists the background processes of all open sessions, oldest first.
func (c *Client) Processes(ctx context.Context) ([]conch.Process, error) {
	var out []conch.Process
	err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/processes", nil)}, &out)
	return out, err
}

// Process describes one process.
func (c *Client) Process(ctx context.Context, id conch.ProcessID) (*conch.Process, error) {
	u, err := processURL(id, "", nil)
	if err != nil {
		return nil, err
	}
	var p conch.Process
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// Wait waits for the first of several things to happen to a process, in one request.
func (c *Client) Wait(ctx context.Context, id conch.ProcessID, req conch.WaitRequest) (*conch.WaitResult, error) {
	u, err := processURL(id, "/wait", nil)
	if err != nil {
		return nil, err
	}
	if req.TimeoutMS > 0 {
		// A keeper that is stopped answers nobody; its deadline is kept here then.
		late := conch.Errorf(conch.Unresponsive, "the session's keeper does not answer").Hint("conch doctor looks at it").Retry()
		limit, cancel := context.WithTimeoutCause(ctx, time.Duration(req.TimeoutMS)*time.Millisecond+waitGrace, late)
		defer cancel()
		ctx = limit
	}
	begun := time.Now()
	again := func() any { // for what is left of the time
		left := req
		if req.TimeoutMS > 0 {
			left.TimeoutMS = max(1, req.TimeoutMS-time.Since(begun).Milliseconds())
		}
		return left
	}
	var r conch.WaitResult
	if err := c.json(ctx, call{method: http.MethodPost, url: u, body: req, again: again}, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// waitGrace is how long after its own deadline an answer may come.
const waitGrace = 5 * time.Second

// Kill ends a process and all that it started, and returns when they are seen gone:
// asked by TERM first, by KILL after 5 s. A process that has ended already is no error.
func (c *Client) Kill(ctx context.Context, id conch.ProcessID) (*conch.Killed, error) {
	return c.signal(ctx, id, "")
}

// Signal sends a signal, by name or number, to a process and all that it started.
func (c *Client) Signal(ctx context.Context, id conch.ProcessID, signal string) (*conch.Killed, error) {
	if signal == "" {
		return nil, conch.Errorf(conch.InvalidRequest, "no signal given")
	}
	return c.signal(ctx, id, signal)
}

func (c *Client) signal(ctx context.Context, id conch.ProcessID, signal string) (*conch.Killed, error) {
	u, err := processURL(id, "/signal", nil)
	if err != nil {
		return nil, err
	}
	var k conch.Killed
	if err := c.json(ctx, call{method: http.MethodPost, url: u, body: conch.SignalRequest{Signal: signal}}, &k); err != nil {
		return nil, err
	}
	return &k, nil
}

// WriteStdin writes to a process's stdin and gives how many bytes it has taken in all.
// offset is where the data belongs, so that the same call twice is one write; -1 is the
// end of what was written so far. With end the process then sees the end of its input.
func (c *Client) WriteStdin(ctx context.Context, id conch.ProcessID, data []byte, offset int64, end bool) (int64, error) {
	q := url.Values{}
	if offset >= 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	if end {
		q.Set("close", "1")
	}
	u, err := processURL(id, "/stdin", q)
	if err != nil {
		return 0, err
	}
	var out conch.StdinOffset
	if data == nil {
		data = []byte{}
	}
	err = c.json(ctx, call{method: http.MethodPost, url: u, body: data}, &out)
	return out.Offset, err
}

// LogOptions say which output of a process is wanted. The zero value is all of it.
type LogOptions struct {
	Stream EventKind // Stdout, Stderr, or 0 for both
	Since  uint64    // only what follows this cursor
	Tail   int       // only the last lines; -1: none of what is there
	Grep   string    // only lines that match (RE2)
	Follow bool      // go on until the process ends
}

func (o LogOptions) query() url.Values {
	q := url.Values{}
	if o.Stream != 0 {
		q.Set("stream", o.Stream.String())
	}
	if o.Since > 0 {
		q.Set("since", strconv.FormatUint(o.Since, 10))
	}
	if o.Tail != 0 {
		q.Set("tail", strconv.Itoa(max(0, o.Tail)))
	}
	if o.Grep != "" {
		q.Set("grep", o.Grep)
	}
	if o.Follow {
		q.Set("follow", "1")
	}
	return q
}

// Logs is the output of a process as events, in the order of arrival. One that follows
// ends with Exited.
func (c *Client) Logs(ctx context.Context, id conch.ProcessID, o LogOptions) (*Logs, error) {
	u, err := processURL(id, "/logs", o.query())
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, call{method: http.MethodGet, url: u, accept: "application/vnd.conch.tape"})
	if err != nil {
		return nil, err
	}
	return &Logs{c: c, ctx: ctx, id: id, o: o, body: resp.Body, dec: tape.NewDecoder(resp.Body)}, nil
}

// LogPage is a piece of a process's output of at most about max bytes (0: 1 MiB), with
// the cursor to go on from.
func (c *Client) LogPage(ctx context.Context, id conch.ProcessID, o LogOptions, max int64) (*conch.LogPage, error) {
	q := o.query()
	q.Del("follow")
	if max > 0 {
		q.Set("max_output", strconv.FormatInt(max, 10))
	}
	u, err := processURL(id, "/logs", q)
	if err != nil {
		return nil, err
	}
	var p conch.LogPage
	if err := c.json(ctx, call{method: http.MethodGet, url: u, accept: "application/json"}, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// Logs reads a process's output. It is for one goroutine.
type Logs struct {
	c    *Client
	ctx  context.Context // of every request it makes
	id   conch.ProcessID
	o    LogOptions
	body io.ReadCloser
	dec  *tape.Decoder
	done bool
}

// Next gives the next event, and io.EOF after the last. A connection that is cut while
// it follows is made again, and goes on where it was.
func (l *Logs) Next() (Event, error) {
	for cuts := 0; !l.done; {
		f, err := l.dec.Next()
		if err == io.EOF && !l.o.Follow {
			break
		}
		if err != nil {
			if l.ctx.Err() != nil {
				return Event{}, context.Cause(l.ctx)
			}
			if cuts++; cuts > 5 {
				return Event{}, io.ErrUnexpectedEOF
			}
			if err := l.again(); err != nil {
				return Event{}, err
			}
			continue
		}
		l.o.Since = max(l.o.Since, f.Seq)
		e := Event{Seq: f.Seq, Data: f.Data}
		switch f.Kind {
		case tape.Stdout:
			e.Kind = Stdout
		case tape.Stderr:
			e.Kind = Stderr
		case tape.Exit:
			l.done = true
			r, err := exitOf(f)
			if err != nil {
				return Event{}, err
			}
			e.Kind, e.Data, e.Result = Exited, nil, r
		case tape.Note:
			if err := noteOf(f); err != nil {
				l.done = true
				return Event{}, err
			}
			continue
		default:
			continue
		}
		return e, nil
	}
	l.done = true
	return Event{}, io.EOF
}

// again asks for what follows the last event.
func (l *Logs) again() error {
	l.body.Close()
	l.o.Tail = 0 // the last lines have been given
	return again(l.ctx, func() error {
		n, err := l.c.Logs(l.ctx, l.id, l.o)
		if err == nil {
			l.body, l.dec = n.body, n.dec
		}
		return err
	})
}

// Close stops reading. The process goes on.
func (l *Logs) Close() error { return l.body.Close() }

// Text is a page's streams as bytes.
func Text(p *conch.LogPage) (stdout, stderr []byte, err error) {
	if p.Encoding != "base64" {
		return []byte(p.Stdout), []byte(p.Stderr), nil
	}
	if stdout, err = base64.StdEncoding.DecodeString(p.Stdout); err == nil {
		stderr, err = base64.StdEncoding.DecodeString(p.Stderr)
	}
	return stdout, stderr, err
}

func processURL(id conch.ProcessID, path string, q url.Values) (string, error) {
	if _, _, err := id.Split(); err != nil {
		return "", conch.Errorf(conch.ProcessNotFound, "%q is not a process id", string(id)).Hint("conch ps lists them")
	}
	return daemonURL("/processes/"+string(id)+path, q), nil
}
