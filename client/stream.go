package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// EventKind is what an Event tells.
type EventKind uint8

// A stream is one Started, any number of Stdout and Stderr, and one Exited.
const (
	Started EventKind = iota + 1
	Stdout
	Stderr
	Exited
)

func (k EventKind) String() string {
	switch k {
	case Started:
		return "start"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Exited:
		return "exit"
	}
	return "unknown"
}

// An Event is one step of a running command.
type Event struct {
	Kind EventKind
	Seq  uint64        // order of arrival at the session
	T    time.Duration // since the command's start; 0 where that is not in the stream
	// Data is the output, exactly as written. It is valid until the next call
	// of Next.
	Data []byte
	// Result comes with Exited. Its streams are empty: they were the events.
	Result *conch.Result
}

// A Stream follows one command live. It is for one goroutine, save Interrupt,
// Stdin and Close, which may be called from others.
//
// A stream whose connection is cut, or whose session's keeper dies, goes on by
// itself where it was: every event comes once. A command whose keeper died is
// lost: it has an Exited event with no exit code.
type Stream struct {
	c       *Client
	ctx     context.Context // of all its connections: Next has none of its own
	session string          // where it is known
	id      conch.CommandID
	dec     *tape.Decoder
	start   int64
	seq     uint64 // of the last event
	cuts    int    // since it
	done    bool

	mu     sync.Mutex // guards what follows
	body   io.ReadCloser
	closed bool
}

// Stream runs a command in a session's shell and follows it. It returns as soon
// as the session has accepted the command, be it into the queue. ctx is the
// stream's for its whole life; cancelling it abandons the stream, not the command.
func (c *Client) Stream(ctx context.Context, session string, req conch.ExecRequest) (*Stream, error) {
	u, err := c.startURL(session, "/exec")
	if err != nil {
		return nil, err
	}
	k := call{method: http.MethodPost, url: u, body: encodeExec(req), accept: tapeType}
	resp, err := c.do(ctx, k)
	if err != nil {
		return nil, err
	}
	return &Stream{
		c: c, ctx: ctx, session: session, body: resp.Body, dec: tape.NewDecoder(resp.Body),
		id: conch.CommandID(resp.Header.Get("Conch-Command-Id")),
	}, nil
}

// Follow follows a command that somebody has started, from its start on, or from
// behind the event with the number after. One whose exit came before that has
// nothing left to tell: Next gives io.EOF at once.
func (c *Client) Follow(ctx context.Context, id conch.CommandID, after uint64) (*Stream, error) {
	if _, _, err := id.Split(); err != nil {
		return nil, err
	}
	s := &Stream{c: c, ctx: ctx, id: id, seq: after}
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

const tapeType = "application/vnd.conch.tape"

// ID is the command's id.
func (s *Stream) ID() conch.CommandID { return s.id }

// Next waits for the next event. After Exited it gives io.EOF. A stream that was
// cut and could not go on gives io.ErrUnexpectedEOF or the reason: Client.Result
// says what became of the command, and Follow goes on later.
func (s *Stream) Next() (Event, error) {
	for !s.done {
		f, err := s.dec.Next()
		if err != nil {
			if err := s.resume(err); err != nil {
				return Event{}, err
			}
			continue
		}
		e := Event{Seq: f.Seq, T: max(0, time.Duration(f.Time-s.start)), Data: f.Data}
		switch f.Kind {
		case tape.Start:
			s.start, e.T, e.Kind, e.Data = f.Time, 0, Started, nil
		case tape.Stdout:
			e.Kind = Stdout
		case tape.Stderr:
			e.Kind = Stderr
		case tape.Exit:
			s.done = true
			r, err := exitOf(f)
			if err != nil {
				return Event{}, err
			}
			e.Kind, e.Data, e.Result = Exited, nil, r
		case tape.Note:
			// What stops a command between the queue and its start comes
			// after the response's header has gone out.
			if err := noteOf(f); err != nil {
				s.done = true
				return Event{}, err
			}
			continue
		default:
			continue
		}
		s.seq, s.cuts = max(s.seq, f.Seq), 0
		if s.start == 0 {
			e.T = 0 // it began before what was asked for
		}
		return e, nil
	}
	return Event{}, io.EOF
}

func exitOf(f tape.Frame) (*conch.Result, error) {
	r := new(conch.Result)
	if err := json.Unmarshal(f.Data, r); err != nil {
		return nil, conch.Errorf(conch.Internal, "unreadable result: %v", err)
	}
	return whole(r), nil
}

// noteOf is the error a note tells, nil if it tells none.
func noteOf(f tape.Frame) error {
	var b conch.ErrorBody
	if json.Unmarshal(f.Data, &b) == nil && b.Error.Code != "" {
		return b.Err()
	}
	return nil
}

// connect asks for what comes after the last event.
func (s *Stream) connect() error {
	q := url.Values{}
	if s.seq > 0 {
		q.Set("after", strconv.FormatUint(s.seq, 10))
	}
	u, err := commandURL(s.id, "/events", q)
	if err != nil {
		return err
	}
	resp, err := s.c.do(s.ctx, call{method: http.MethodGet, url: u, accept: tapeType})
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusNoContent {
		s.done = true
	}
	if s.session == "" {
		s.session = resp.Header.Get("Conch-Session")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		resp.Body.Close()
		return os.ErrClosed
	}
	s.body, s.dec = resp.Body, tape.NewDecoder(resp.Body)
	return nil
}

// resume goes on after a cut, or says why not.
func (s *Stream) resume(err error) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	s.cuts++
	if closed || s.id == "" || s.cuts > maxCuts {
		return io.ErrUnexpectedEOF
	}
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	s.body.Close()
	return again(s.ctx, s.connect)
}

const (
	// resumeLimit is how long a stream that was cut tries to go on.
	resumeLimit = 10 * time.Second
	// maxCuts is how often it may be cut without having brought anything: a
	// damaged tape would cut it for ever.
	maxCuts = 5
)

// again connects after a cut. A daemon or keeper that is being started again is
// waited for; an answer that says no is taken.
func again(ctx context.Context, connect func() error) error {
	limited, cancel := context.WithTimeout(ctx, resumeLimit)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := connect()
		if err == nil {
			return nil
		}
		e := conch.AsError(err)
		if ctx.Err() != nil || !e.Retryable && e.Kind != conch.NotRunning {
			return err
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return io.ErrUnexpectedEOF
		}
	}
}

// Close stops following. The command goes on.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.body.Close()
}

// Interrupt ends the command this stream follows; the stream goes on to its
// exit event.
func (s *Stream) Interrupt(ctx context.Context) (*Interrupted, error) {
	return s.c.Interrupt(ctx, s.session, s.id)
}

// Stdin writes to the command's stdin, which OpenStdin in the request left open.
// It ends with the connection of the one who started the command.
func (s *Stream) Stdin(ctx context.Context) io.WriteCloser {
	return s.c.Stdin(ctx, s.session, s.id)
}
