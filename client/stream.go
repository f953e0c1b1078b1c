package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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
	T    time.Duration // since the command's start
	// Data is the output, exactly as written. It is valid until the next call
	// of Next.
	Data []byte
	// Result comes with Exited. Its streams are empty: they were the events.
	Result *conch.Result
}

// A Stream follows one command live. It is for one goroutine, save Interrupt,
// Stdin and Close, which may be called from others.
type Stream struct {
	c       *Client
	session string
	id      conch.CommandID
	body    io.ReadCloser
	dec     *tape.Decoder
	start   int64
	done    bool
}

// Stream runs a command in a session's shell and follows it. It returns as soon
// as the session has accepted the command, be it into the queue.
func (c *Client) Stream(ctx context.Context, session string, req conch.ExecRequest) (*Stream, error) {
	u, err := c.startURL(session, "/exec")
	if err != nil {
		return nil, err
	}
	k := call{method: http.MethodPost, url: u, body: encodeExec(req), accept: "application/vnd.conch.tape"}
	resp, err := c.do(ctx, k)
	if err != nil {
		return nil, err
	}
	return &Stream{
		c: c, session: session, body: resp.Body, dec: tape.NewDecoder(resp.Body),
		id: conch.CommandID(resp.Header.Get("Conch-Command-Id")),
	}, nil
}

// ID is the command's id.
func (s *Stream) ID() conch.CommandID { return s.id }

// Next waits for the next event. After Exited it gives io.EOF. A stream that
// was cut gives io.ErrUnexpectedEOF: Client.Result says what became of the
// command.
func (s *Stream) Next() (Event, error) {
	for !s.done {
		f, err := s.dec.Next()
		if err != nil {
			return Event{}, s.cut(err)
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
			r := new(conch.Result)
			if err := json.Unmarshal(f.Data, r); err != nil {
				return Event{}, conch.Errorf(conch.Internal, "unreadable result of %s: %v", s.id, err)
			}
			e.Kind, e.Data, e.Result = Exited, nil, whole(r)
		case tape.Note:
			// What stops a command between the queue and its start comes
			// after the response's header has gone out.
			var b conch.ErrorBody
			if json.Unmarshal(f.Data, &b) == nil && b.Error.Code != "" {
				s.done = true
				return Event{}, b.Err()
			}
			continue
		default:
			continue
		}
		return e, nil
	}
	return Event{}, io.EOF
}

// cut names the ways a stream can end early.
func (s *Stream) cut(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return io.ErrUnexpectedEOF
}

// Close stops following. The command goes on.
func (s *Stream) Close() error { return s.body.Close() }

// Interrupt ends the command this stream follows; the stream goes on to its
// exit event.
func (s *Stream) Interrupt(ctx context.Context) (*Interrupted, error) {
	return s.c.Interrupt(ctx, s.session, s.id)
}

// Stdin writes to the command's stdin, which OpenStdin in the request left open.
func (s *Stream) Stdin(ctx context.Context) io.WriteCloser {
	return s.c.Stdin(ctx, s.session, s.id)
}
