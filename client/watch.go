package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// WatchOptions say where a Watch begins. The zero value: at the beginning.
type WatchOptions struct {
	After uint64 // behind the event with this number
	Live  bool   // with what happens next, where After is 0
}

// A SessionEvent is an event of one of a session's commands.
type SessionEvent struct {
	Event
	CommandID conch.CommandID
	Command   string // its text; with Started
}

// A Watch follows all of a session: every command, whoever started it, and late
// output of background processes. It is for one goroutine, save Close. Like a
// Stream it goes on by itself when it is cut.
type Watch struct {
	c       *Client
	ctx     context.Context // of all its connections: Next has none of its own
	session string
	opt     WatchOptions
	id      string // the session's
	dec     *tape.Decoder
	starts  map[uint32]int64
	cuts    int
	done    bool

	mu     sync.Mutex // guards what follows
	body   io.ReadCloser
	closed bool
}

// Watch follows a session. Of a closed one it tells what there was. A beginning
// that has fallen off the tape is conch.OutputGone, from Next; its hint names
// where to begin instead.
func (c *Client) Watch(ctx context.Context, session string, o WatchOptions) (*Watch, error) {
	w := &Watch{c: c, ctx: ctx, session: session, opt: o, starts: map[uint32]int64{}}
	if err := w.connect(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Watch) connect() error {
	q := url.Values{}
	if w.opt.After > 0 {
		q.Set("after", strconv.FormatUint(w.opt.After, 10))
	} else if w.opt.Live {
		q.Set("live", "1")
	}
	u, err := w.c.sessionURL(w.session, "/events", q)
	if err != nil {
		return err
	}
	resp, err := w.c.do(w.ctx, call{method: http.MethodGet, url: u, accept: tapeType})
	if err != nil {
		return err
	}
	id := resp.Header.Get("Conch-Session-Id")
	// The label may be another session's by now: this one has told all.
	w.done = resp.StatusCode == http.StatusNoContent || w.id != "" && id != w.id
	w.id = id
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		resp.Body.Close()
		return os.ErrClosed
	}
	w.body, w.dec = resp.Body, tape.NewDecoder(resp.Body)
	return nil
}

// Next waits for the next event. It gives io.EOF when the session is closed and
// all was told.
func (w *Watch) Next() (SessionEvent, error) {
	for !w.done {
		f, err := w.dec.Next()
		if err != nil {
			if err := w.resume(); err != nil {
				return SessionEvent{}, err
			}
			continue
		}
		e := SessionEvent{CommandID: conch.NewCommandID(w.id, f.Command)}
		e.Seq, e.Data = f.Seq, f.Data
		if start := w.starts[f.Command]; start > 0 {
			e.T = max(0, time.Duration(f.Time-start))
		}
		switch f.Kind {
		case tape.Start:
			w.starts[f.Command] = f.Time
			e.Kind, e.Command, e.T, e.Data = Started, history.TextOf(f), 0, nil
		case tape.Stdout:
			e.Kind = Stdout
		case tape.Stderr:
			e.Kind = Stderr
		case tape.Exit:
			r, err := exitOf(f)
			if err != nil {
				return SessionEvent{}, err
			}
			e.Kind, e.Result, e.Data = Exited, r, nil
		case tape.Note:
			if err := noteOf(f); err != nil {
				w.done = true
				return SessionEvent{}, err
			}
			continue
		default:
			continue
		}
		w.opt.After, w.cuts = f.Seq, 0
		return e, nil
	}
	return SessionEvent{}, io.EOF
}

// resume goes on after a cut. The end of a session is one too: what is asked for
// then is the rest of its tape.
func (w *Watch) resume() error {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	w.cuts++
	if closed || w.cuts > maxCuts {
		return io.ErrUnexpectedEOF
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.body.Close()
	return again(w.ctx, w.connect)
}

// Close stops watching.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.body.Close()
}
