package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxLine is what one message may take.
	maxLine = 32 << 20
	// drain is how long calls under way may take to be answered once the client
	// has closed our input. A client that pipes its requests in closes it at once
	// and still reads the answers.
	drain = 2 * time.Second
)

// stdio is the SDK's transport on two streams with three additions. A line that is no
// message is answered with an error, where the SDK would end the connection. Calls get
// a ticket that says in which order they came. And the end of the input waits for the
// answers that are still owed.
type stdio struct {
	in  io.ReadCloser
	out *lockedWriter
	// gone is called before the SDK sees the end of the input and ends what runs:
	// the calls must know that nobody cancelled them.
	gone  func()
	order *order
}

func (t *stdio) Connect(ctx context.Context) (sdk.Connection, error) {
	w := t.out
	r, feed := io.Pipe()
	// Ends with the input, or with the process: a read of stdin cannot be broken off.
	go filter(t.in, feed, w)
	conn, err := (&sdk.IOTransport{Reader: r, Writer: w, MaxLineLength: -1}).Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &counted{Connection: conn, gone: t.gone, order: t.order, change: make(chan struct{})}, nil
}

// lockedWriter keeps lines whole: the SDK writes each with one call.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

func (w *lockedWriter) Close() error { return nil }

// notify writes a notification that the SDK does not know.
func (t *stdio) notify(method string, params any) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	if err != nil {
		return err
	}
	_, err = t.out.Write(append(b, '\n'))
	return err
}

// filter passes on the lines that are messages.
func filter(in io.Reader, feed *io.PipeWriter, out io.Writer) {
	br := bufio.NewReaderSize(in, 64<<10)
	for {
		line, long, err := readLine(br)
		line = bytes.TrimSpace(line)
		switch {
		case long:
			refuse(out, jsonrpc.CodeInvalidRequest, "a message is limited to 32 MiB; give a command's input in pieces, by a file")
		case len(line) == 0:
		case !json.Valid(line):
			refuse(out, jsonrpc.CodeParseError, "this line is not JSON; a message is one line")
		default:
			if !isMessage(line) {
				refuse(out, jsonrpc.CodeInvalidRequest, "this line is not a JSON-RPC 2.0 message")
				break
			}
			if _, werr := feed.Write(append(line, '\n')); werr != nil {
				return
			}
		}
		if err != nil {
			feed.CloseWithError(err)
			return
		}
	}
}

// readLine reads to the next newline, and over what is longer than the limit.
func readLine(br *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := br.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// isMessage asks the SDK, for each message where there are several: the older
// revisions know batches.
func isMessage(line []byte) bool {
	if line[0] != '[' {
		_, err := jsonrpc.DecodeMessage(line)
		return err == nil
	}
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil || len(batch) == 0 {
		return false
	}
	for _, m := range batch {
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			return false
		}
	}
	return true
}

// refuse answers what has no id that could be known.
func refuse(out io.Writer, code int, message string) {
	b, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": message},
	})
	if err == nil {
		out.Write(append(b, '\n'))
	}
}

// counted knows how many calls are not answered yet.
type counted struct {
	sdk.Connection
	gone  func()
	order *order

	mu     sync.Mutex // guards what follows
	owed   map[jsonrpc.ID]bool
	change chan struct{} // closed, and made anew, when owed shrinks
}

func (c *counted) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		c.settle(ctx)
		c.gone()
		return nil, err
	}
	r, ok := msg.(*jsonrpc.Request)
	if !ok {
		return msg, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == "notifications/cancelled":
		// Nobody waits for that answer any more.
		var p struct {
			RequestID any `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &p) == nil {
			if id, err := jsonrpc.MakeID(p.RequestID); err == nil {
				delete(c.owed, id)
				c.order.drop(id)
			}
		}
	case r.IsCall() && r.Method != "subscriptions/listen": // which is answered only when it ends
		if c.owed == nil {
			c.owed = map[jsonrpc.ID]bool{}
		}
		c.owed[r.ID] = true
		c.order.note(r)
	}
	return msg, nil
}

func (c *counted) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if r, ok := msg.(*jsonrpc.Response); ok {
		c.order.drop(r.ID) // of a call that no tool got to see
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.owed, r.ID)
		close(c.change)
		c.change = make(chan struct{})
	}
	return err
}

// settle waits until every call is answered, for a while.
func (c *counted) settle(ctx context.Context) {
	limit := time.NewTimer(drain)
	defer limit.Stop()
	for {
		c.mu.Lock()
		left, change := len(c.owed), c.change
		c.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-change:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
