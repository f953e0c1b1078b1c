package relay

import (
	"context"
	"crypto/ed25519"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/conchsh/conch"
)

const (
	// MaxBatch is how many messages Consume hands over at once, at most.
	MaxBatch = 32
	// callLimit is how long an answer is waited for where the caller's context
	// has no nearer end. It is longer than the hub's own limit.
	callLimit = workLimit + 2*time.Second
	// Pauses between tries to connect, and to have a message taken.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// A Link is the state of an agent's connection.
type Link struct {
	// Relay names what the agent is connected to, or tries to be: another value
	// is another relay, with another directory.
	Relay     string
	Connected bool
	// Err is why it is not connected, nil before the first try.
	Err error
	// Bundle is the serial number of the bundle that the directory has of this
	// agent (0: none) and Keys how many one-time keys: what there is to
	// publish after a connection was made. Only while Connected.
	Bundle uint64
	Keys   int
}

// An Agent is one identity at the home's relay.
type Agent struct {
	relay   *Relay
	id      Identity
	observe func(Link)
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}

	consuming sync.Mutex

	mu   sync.Mutex
	link Link
	// conn is nil while there is none; up is closed when there is one, and lost
	// when that one is gone.
	conn   *nats.Conn
	up     chan struct{}
	lost   context.Context
	drop   context.CancelCauseFunc
	failed int // requests that were not answered, in a row
}

// login makes the key by which an agent is known to one relay, and the proof
// that it is the agent's.
//
// It is not the identity key itself, although that is of the right kind: a
// login signs bytes that the server chooses, and a hostile one could choose
// bytes that mean something. Nor is it the same at two relays: one could log
// in at the other by passing its challenge on.
func login(id Identity, relay string) (nkeys.KeyPair, enrolRequest, error) {
	seed, err := id.Derive("relay login "+relay, ed25519.SeedSize)
	if err != nil {
		return nil, enrolRequest{}, err
	}
	kp, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, seed)
	if err != nil {
		return nil, enrolRequest{}, err
	}
	public, err := kp.PublicKey()
	if err != nil {
		return nil, enrolRequest{}, err
	}
	return kp, enrolRequest{id.Address(), public, id.Sign(proofText(relay, id.Address(), public))}, nil
}

// run connects, again and again, until the agent is closed.
func (a *Agent) run() {
	defer close(a.done)
	pause := firstPause
	for a.ctx.Err() == nil {
		t := a.relay.target()
		began := time.Now()
		link, nc, err := a.connect(t)
		if err == nil {
			lost, drop := context.WithCancelCause(a.ctx)
			nc.SetClosedHandler(func(c *nats.Conn) { drop(unreachable("the connection to the relay was lost")) })
			if nc.IsClosed() {
				drop(unreachable("the connection to the relay was lost"))
			}
			a.set(link, nc, lost, drop)
			select {
			case <-lost.Done():
			case <-t.changed:
				drop(unreachable("the home changed its relay"))
			}
			err = context.Cause(lost)
			a.set(Link{Relay: link.Relay, Err: err}, nil, nil, nil)
			nc.Close()
			if time.Since(began) > pause { // it held longer than it was waited for
				pause = firstPause
			}
		} else {
			a.set(Link{Relay: link.Relay, Err: err}, nil, nil, nil)
		}
		select {
		case <-a.ctx.Done():
		case <-t.changed:
			pause = firstPause
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, lastPause)
		}
	}
}

// connect makes one connection and opens the mailbox.
func (a *Agent) connect(t *target) (Link, *nats.Conn, error) {
	link := Link{Relay: t.name()}
	ctx, cancel := context.WithTimeoutCause(a.ctx, callLimit, unreachable("the relay did not answer in time"))
	defer cancel()
	nc, name, err := a.relay.dial(ctx, t, a.id)
	if name != "" {
		link.Relay = name
	}
	if err != nil {
		return link, nil, err
	}
	var open openAnswer
	if _, err := call(ctx, nc, hubSubject+a.Address()+"."+verbOpen, nil, nil, &open); err != nil {
		nc.Close()
		return link, nil, err
	}
	link.Connected, link.Bundle, link.Keys = true, open.Serial, open.Keys
	return link, nc, nil
}

// set changes the state and tells of it.
func (a *Agent) set(l Link, nc *nats.Conn, lost context.Context, drop context.CancelCauseFunc) {
	a.mu.Lock()
	same := a.link.Connected == l.Connected && a.link.Relay == l.Relay && errors.Is(a.link.Err, l.Err) && !l.Connected
	if nc != nil {
		close(a.up)
	} else if a.conn != nil {
		a.up = make(chan struct{})
	}
	a.link, a.conn, a.lost, a.drop, a.failed = l, nc, lost, drop, 0
	a.mu.Unlock()
	if a.observe != nil && !same {
		a.observe(l)
	}
}

// Address is the mailbox's name.
func (a *Agent) Address() string { return a.id.Address() }

// Link is the state of the connection now.
func (a *Agent) Link() Link {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link
}

// Close ends the connection and waits. What runs on it ends with an error.
func (a *Agent) Close() {
	a.stop()
	<-a.done
	a.relay.forget(a)
}

func unreachable(text string) error {
	return conch.Errorf(conch.RelayUnreachable, "%s", text).Hint("it is tried again by itself").Retry()
}

// current gives the connection, and a context that ends with it or with ctx.
func (a *Agent) current(ctx context.Context) (*nats.Conn, context.Context, context.CancelFunc, error) {
	a.mu.Lock()
	nc, lost, why := a.conn, a.lost, a.link.Err
	a.mu.Unlock()
	if nc == nil {
		if why == nil {
			why = unreachable("the relay is not connected yet")
		}
		return nil, nil, nil, why
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, unreachable("the relay did not answer in time"))
	ctx, drop := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lost, func() { drop(context.Cause(lost)) })
	return nc, ctx, func() { stop(); drop(nil); cancel() }, nil
}

// ask has the hub do something.
func (a *Agent) ask(ctx context.Context, verb string, meta any, data []byte, out any) ([]byte, error) {
	nc, ctx, cancel, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	b, err := call(ctx, nc, hubSubject+a.Address()+"."+verb, meta, data, out)
	a.judge(nc, err)
	return b, err
}

// maxFailed is how often a relay may not answer before its connection is given
// up: a server that is cut off from its cluster keeps its clients.
const maxFailed = 3

func (a *Agent) judge(nc *nats.Conn, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if nc != a.conn {
		return
	}
	if !errors.Is(err, conch.RelayUnreachable) {
		a.failed = 0
	} else if a.failed++; a.failed == maxFailed {
		a.drop(unreachable("the relay did not answer several times"))
	}
}

// call is a request and its one answer.
func call(ctx context.Context, nc *nats.Conn, subject string, meta any, data []byte, out any) ([]byte, error) {
	if meta == nil {
		meta = struct{}{}
	}
	m, err := nc.RequestMsgWithContext(ctx, newMsg(subject, meta, data))
	if err != nil {
		return nil, callError(ctx, err)
	}
	if err := readMsg(m, out); err != nil {
		return nil, err
	}
	return m.Data, nil
}

func callError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrMaxPayload):
		return conch.Errorf(conch.TooLarge, "the relay takes no message of that size")
	case errors.Is(err, nats.ErrNoResponders):
		return unreachable("the relay's hub is away")
	}
	return unreachable(err.Error())
}

// Publish puts data into the mailbox of an address. When it returns nil the
// relay has it on disk. Duplicate says that the relay has had this id within
// DedupeWindow and kept the first. An id is the sender's own (1 to 128 letters,
// digits, - and _): another's is another message. A message that is not fetched
// within ttl (0: MessageAge) may be dropped by the relay. Messages to one address
// arrive in the order in which calls began to send them, if all were kept.
func (a *Agent) Publish(ctx context.Context, to, id string, data []byte, ttl time.Duration) (duplicate bool, err error) {
	if len(data) > MaxMessage {
		return false, conch.Errorf(conch.TooLarge, "the message has %d bytes; the relay takes %d", len(data), MaxMessage)
	}
	var r sendAnswer
	_, err = a.ask(ctx, verbSend, sendRequest{to, id, ttl}, data, &r)
	return r.Duplicate, err
}

// A Message is what came into the agent's own mailbox.
type Message struct {
	// From is the address that the relay let publish it: the relay's word, not
	// proof.
	From string
	ID   string // as it was published
	Data []byte
	// Seq is its place in the mailbox, and Time when it came, by the relay's
	// clock. A relay that lost its disk begins again at 1.
	Seq  uint64
	Time time.Time
	// Deliveries counts how often it was handed out, this time included.
	Deliveries int

	consumer uint64
}

// A Taker is given messages and says how many of them, from the first on, it has
// safely.
type Taker func(ctx context.Context, batch []Message) (taken int, err error)

// Consume hands the mailbox's messages to take, oldest first, up to MaxBatch at
// once as they are there, until ctx ends or the Agent is closed. What take has
// is acknowledged, and the relay's word for that is waited for. The others are
// handed to it again after a pause, from the first on, so order is kept; err
// is logged with that. One Consume runs per Agent.
//
// A message may come again whatever take said: recipients know what they have.
func (a *Agent) Consume(ctx context.Context, take Taker) error {
	if !a.consuming.TryLock() {
		return conch.Errorf(conch.AlreadyRunning, "the mailbox of %s is being read", a.Address())
	}
	defer a.consuming.Unlock()
	pause := firstPause
	fresh := true // nothing of the mailbox is in hand, and no fetch waits
	for {
		a.mu.Lock()
		up := a.up
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.ctx.Done():
			return conch.Errorf(conch.NotRunning, "the agent's connection was closed")
		case <-up:
		}
		var n int
		var err error
		if fresh {
			_, err = a.ask(ctx, verbOpen, nil, nil, nil)
		}
		if err == nil {
			n, err = a.batch(ctx, take)
		}
		if fresh = err != nil; !fresh {
			pause = firstPause
			continue
		}
		if ctx.Err() == nil && a.ctx.Err() == nil && !errors.Is(err, conch.RelayUnreachable) {
			a.relay.warn("read a mailbox", "address", a.Address(), "err", err)
		}
		if n > 0 {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-a.ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}

// batch fetches what there is and has all of it taken.
func (a *Agent) batch(ctx context.Context, take Taker) (taken int, err error) {
	nc, lctx, cancel, err := a.current(ctx)
	if err != nil {
		return 0, err
	}
	list, err := a.fetch(lctx, nc)
	cancel()
	a.judge(nc, err)
	pause := firstPause
	for len(list) > 0 {
		n, err := take(ctx, list)
		if n = min(max(n, 0), len(list)); n > 0 {
			if err := a.ack(ctx, nc, list[n-1]); err != nil {
				return taken, err // it comes again
			}
			taken, list, pause = taken+n, list[n:], firstPause
		}
		if err != nil && ctx.Err() == nil {
			a.relay.warn("messages were not taken; they are offered again", "address", a.Address(), "err", err)
		}
		if len(list) == 0 || n > 0 && err == nil {
			continue
		}
		// They are held here, and not given back: given back they might come
		// again after later ones.
		select {
		case <-ctx.Done():
			return taken, context.Cause(ctx)
		case <-a.ctx.Done():
			return taken, unreachable("the agent's connection was closed")
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
	return taken, err
}

// ack says that everything up to a message is safe. Only the connection that it
// came on may: another has it handed out anew, under other numbers.
func (a *Agent) ack(ctx context.Context, from *nats.Conn, m Message) error {
	nc, ctx, cancel, err := a.current(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if nc != from {
		return unreachable("the connection was lost before the messages were acknowledged")
	}
	_, err = call(ctx, nc, hubSubject+a.Address()+"."+verbAck, ackRequest{m.Seq, m.consumer, uint64(m.Deliveries)}, nil, nil)
	return err
}

// fetch asks for what the mailbox has, or gets. What came before an error is
// given with it.
func (a *Agent) fetch(ctx context.Context, nc *nats.Conn) (list []Message, err error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, unreachable(err.Error())
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	q := newMsg(hubSubject+a.Address()+"."+verbFetch, fetchRequest{Wait: fetchWait}, nil)
	q.Reply = sub.Subject
	if err := nc.PublishMsg(q); err != nil {
		return nil, unreachable(err.Error())
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return list, callError(ctx, err)
		}
		if m.Header.Get("Status") == "503" {
			return list, unreachable("the relay's hub is away")
		}
		var d delivery
		if err := readMsg(m, &d); err != nil {
			return list, err
		}
		if d.End {
			return list, nil
		}
		list = append(list, Message{
			From: d.From, ID: d.ID, Data: m.Data, Seq: d.Seq, Time: d.Time, Deliveries: int(d.Deliveries), consumer: d.Consumer,
		})
	}
}
