package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/conchsh/conch"
)

const (
	// ticketKey is where a call's ticket is in its _meta, on the way through the SDK.
	ticketKey = "conch.sh/ticket"
	// inputGrace is how long a process may take to read before others go first.
	inputGrace = 500 * time.Millisecond
)

// An order is that in which calls came. The SDK runs them side by side, so each gets a
// ticket where messages are read, and waits by it for those that came before and
// concern the same session: until they have been taken, not until they have ended.
type order struct {
	mu      sync.Mutex // guards what follows
	last    int64
	waiting []*ticket     // not yet taken or given up, as they came
	change  chan struct{} // closed, and made anew, when waiting or a ticket's place changes
}

// A ticket is one call's. A nil ticket waits for nobody: the calls of HTTP have no order.
type ticket struct {
	o     *order
	id    jsonrpc.ID
	n     int64
	place string // what it concerns; "" until that is known
}

func newOrder() *order { return &order{change: make(chan struct{})} }

// note gives a call its ticket. What cannot be read is the SDK's to refuse.
func (o *order) note(r *jsonrpc.Request) {
	var params, meta map[string]json.RawMessage
	if r.Method != "tools/call" || !r.IsCall() || json.Unmarshal(r.Params, &params) != nil || params == nil {
		return
	}
	if raw, ok := params["_meta"]; ok && json.Unmarshal(raw, &meta) != nil {
		return
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	meta[ticketKey] = json.RawMessage(strconv.Quote(strconv.FormatInt(o.last+1, 10)))
	var err error
	if params["_meta"], err = json.Marshal(meta); err != nil {
		return
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return
	}
	r.Params = raw
	o.last++
	o.waiting = append(o.waiting, &ticket{o: o, id: r.ID, n: o.last})
}

// ticket finds the ticket of a call by its _meta.
func (o *order) ticket(meta map[string]any) *ticket {
	text, _ := meta[ticketKey].(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.waiting {
		if t.n == n {
			return t
		}
	}
	return nil // cancelled
}

// drop gives up the ticket of a call that was answered or cancelled.
func (o *order) drop(id jsonrpc.ID) {
	o.leave(func(t *ticket) bool { return t.id == id })
}

func (o *order) leave(which func(*ticket) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.waiting)
	if o.waiting = slices.DeleteFunc(o.waiting, which); len(o.waiting) < n {
		o.wake()
	}
}

// wake has all who wait look again. mu is held.
func (o *order) wake() {
	close(o.change)
	o.change = make(chan struct{})
}

// leave says that the call has been taken, or will not be.
func (t *ticket) leave() {
	if t != nil {
		t.o.leave(func(one *ticket) bool { return one == t })
	}
}

// move says what the call concerns.
func (t *ticket) move(place string) {
	if t == nil {
		return
	}
	t.o.mu.Lock()
	defer t.o.mu.Unlock()
	t.place = place
	t.o.wake()
}

// wait returns when no call that came before is in the way.
func (t *ticket) wait(ctx context.Context, left context.Context, inTheWay func(*ticket) bool) error {
	if t == nil {
		return nil
	}
	for {
		t.o.mu.Lock()
		mine := slices.Index(t.o.waiting, t)
		free := mine < 0 || !slices.ContainsFunc(t.o.waiting[:mine], inTheWay)
		change := t.o.change
		t.o.mu.Unlock()
		// A call that was cancelled must not run because it has lost its place.
		if ctx.Err() == nil && left.Err() == nil && free {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return conch.Errorf(conch.Internal, "the call was cancelled before its turn; nothing was done")
		case <-left.Done():
			return conch.Errorf(conch.Internal, "the server is leaving; nothing was done")
		}
	}
}

// inputPlace is the place of those that wait for a process to read.
const inputPlace = "input "

// begin waits until it is known what each call before concerns: a call that changes
// who the caller is keeps that to itself until it is done.
func (c *call) begin(ctx context.Context) error {
	return c.ticket.wait(ctx, c.s.left, func(t *ticket) bool { return t.place == "" })
}

// alone waits until each call before has been taken: a name may be one that it gives.
func (c *call) alone(ctx context.Context) error {
	return c.ticket.wait(ctx, c.s.left, func(t *ticket) bool { return !strings.HasPrefix(t.place, inputPlace) })
}

// turn says which session the call concerns, and waits for those before it there.
func (c *call) turn(ctx context.Context, place string) error {
	c.ticket.move(place)
	return c.ticket.wait(ctx, c.s.left, func(t *ticket) bool { return t.place == place })
}

// inputTurn is the turn of a call that writes to a process, within its session's. A
// process that does not read must not hold up those behind, of which one may end it:
// after a while only those that write to it too wait. stop is called when it is done.
func (c *call) inputTurn(ctx context.Context, id conch.ProcessID) (stop func() bool, err error) {
	place := inputPlace + string(id)
	stop = time.AfterFunc(inputGrace, func() { c.ticket.move(place) }).Stop
	return stop, c.ticket.wait(ctx, c.s.left, func(t *ticket) bool { return t.place == place })
}

// mailbox is the caller's own session, once the call's turn with its mail has come.
func (c *call) mailbox(ctx context.Context) (target, error) {
	own, err := c.own(ctx)
	if err == nil {
		err = c.turn(ctx, "mail "+own.name)
	}
	return own, err
}

// place is where a thing is: agent/label, or what is known of that.
func (t thing) place() string {
	switch {
	case t.process != nil:
		return t.process.Agent + "/" + t.process.Session
	case t.session != nil:
		return name(t.session)
	}
	session, _, _ := t.command.CommandID.Split()
	return session
}
