package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/conchsh/conch"
)

const (
	// ackWait is when a message that was handed out is handed out again though
	// its reader did not open the mailbox anew, which does it at once.
	ackWait = 2 * time.Minute
	// fetchWait is how long a fetch may wait for the first message.
	fetchWait = 10 * time.Second
	// trimPause is how often acknowledged messages are removed.
	trimPause = time.Second
)

// A box is what this hub knows of a mailbox: who has filled it how far, of what
// it took itself. Limits of count and size as a whole are the stream's own.
type box struct {
	mu      sync.Mutex
	filled  map[string]int64 // bytes by sender
	entries []entry          // oldest first
	acked   uint64
	trimmed uint64
	reading bool // a fetch is under way here
}

type entry struct {
	seq  uint64
	from string
	size int64
}

func (h *hub) box(address string) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boxes[address]
	if b == nil {
		b = &box{filled: map[string]int64{}}
		h.boxes[address] = b
	}
	return b
}

func (b *box) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.reading
	b.reading = true
	return !was
}

func (b *box) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
}

// take reserves room for a message; done says whether it was kept, and where.
func (b *box) take(from string, size, most int64) (done func(seq uint64, kept bool), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filled[from] > 0 && b.filled[from]+size > most {
		return nil, false
	}
	b.filled[from] += size
	return func(seq uint64, kept bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !kept || seq <= b.acked {
			b.free(from, size)
			return
		}
		b.entries = append(b.entries, entry{seq, from, size})
	}, true
}

func (b *box) free(from string, size int64) {
	if b.filled[from] -= size; b.filled[from] <= 0 {
		delete(b.filled, from)
	}
}

// read notes that everything up to seq was acknowledged.
func (b *box) read(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked = max(b.acked, seq)
	// Entries are in the order of acknowledgements from the stream, which may
	// differ a little from that of their numbers.
	kept := b.entries[:0]
	for _, e := range b.entries {
		if e.seq <= b.acked {
			b.free(e.from, e.size)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries = kept
}

// send puts a message into another's mailbox. It runs in the order of requests
// and does not wait: the answer is given when the stream has answered.
func (h *hub) send(q *request) {
	fail := func(err error) {
		defer h.leave(q.who)
		q.fail(err)
	}
	var r sendRequest
	if err := q.meta(&r); err != nil {
		fail(err)
		return
	}
	switch {
	case !isAddress(r.To):
		fail(conch.Errorf(conch.MailboxNotFound, "%.64q is no address", r.To))
		return
	case !safeToken(r.ID, 128):
		fail(conch.Errorf(conch.InvalidRequest, "a message's id has 1 to 128 letters, digits, - and _"))
		return
	case len(q.Data()) > MaxMessage:
		fail(conch.Errorf(conch.TooLarge, "the message has %d bytes; the relay takes %d", len(q.Data()), MaxMessage))
		return
	}
	done, ok := h.box(r.To).take(q.who, int64(len(q.Data())), h.limits.senderBytes)
	if !ok {
		fail(h.senderQuota())
		return
	}
	m := nats.NewMsg(mailSubject + r.To + "." + q.who)
	// The sender is part of the id, so that nobody can use up another's.
	m.Header.Set(jetstream.MsgIDHeader, q.who+":"+r.ID)
	if s := int64(r.TTL / time.Second); s > 0 && r.TTL < MessageAge {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(s, 10))
	}
	m.Data = q.Data()
	f, err := h.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	if err != nil {
		done(0, false)
		fail(err)
		return
	}
	go func() { // ends with the stream's answer, or workLimit; h.wg counts it
		defer h.leave(q.who)
		select {
		case ack := <-f.Ok():
			done(ack.Sequence, !ack.Duplicate)
			q.respond(sendAnswer{ack.Duplicate}, nil)
		case err := <-f.Err():
			done(0, false)
			q.fail(h.refusal(r.To, err))
		case <-h.ctx.Done():
			done(0, false)
		}
	}()
}

func (h *hub) senderQuota() error {
	return conch.Errorf(conch.QuotaReached, "this sender has as much waiting in that mailbox as the relay allows (%d messages, %d MiB)", h.limits.senderMsgs, h.limits.senderBytes>>20).
		Hint("nothing was kept of this one; it can be sent when the recipient has fetched some").Retry()
}

// refusal says why a stream did not take a message.
func (h *hub) refusal(to string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "per subject"):
		return h.senderQuota()
	case strings.Contains(text, "maximum messages exceeded"), strings.Contains(text, "maximum bytes exceeded"):
		return conch.Errorf(conch.MailboxFull, "the mailbox is full (%d messages or %d MiB)", h.limits.msgs, h.limits.bytes>>20).
			Hint("what is in it was kept; this can be sent when the recipient has fetched some").Retry()
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		// A stream without a leader answers no more than one that is not there.
		ctx, cancel := context.WithTimeout(h.ctx, workLimit)
		defer cancel()
		if _, err := h.js.Stream(ctx, mailStream+to); errors.Is(err, jetstream.ErrStreamNotFound) {
			return conch.Errorf(conch.MailboxNotFound, "nobody has the mailbox %s at this relay", to).
				Hint("the other home has to join the same relay, and connect once")
		}
	}
	return err
}

// fetch hands out what the mailbox has, or waits for the first message. Who left
// a fetch unfinished, or does not know, opens the mailbox again first.
func (h *hub) fetch(q *request) {
	var r fetchRequest
	if err := q.meta(&r); err != nil {
		q.fail(err)
		return
	}
	// One at a time: what it carries is held for who does not read it.
	b := h.box(q.who)
	if !b.enter() {
		q.fail(conch.Errorf(conch.RelayUnreachable, "the mailbox is being read").Hint("it is tried again").Retry())
		return
	}
	wait := min(max(r.Wait, 0), fetchWait)
	err := h.pull(q, wait)
	b.leave() // before the answer: the next fetch follows it at once
	if err != nil {
		q.fail(err)
		return
	}
	q.respond(delivery{End: true}, nil)
}

// pull asks the mailbox's consumer for what it has, or will have within wait,
// and passes it on. The server ends that with a status once it has given
// something and has no more.
func (h *hub) pull(q *request, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(h.ctx, wait+workLimit)
	defer cancel()
	sub, err := h.back.SubscribeSync(h.back.NewInbox())
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	// No limit in bytes: where a status overtakes messages, as it does in a
	// cluster, the count of those it says it is ahead of is wrong for sizes that a
	// sender can choose.
	body := fmt.Appendf(nil, `{"batch":%d,"no_wait":true,"expires":%d}`, MaxBatch, wait)
	next := "$JS.API.CONSUMER.MSG.NEXT." + mailStream + q.who + "." + mailOwner
	if err := h.back.PublishMsg(&nats.Msg{Subject: next, Reply: sub.Subject, Data: body}); err != nil {
		return err
	}
	for got, want := 0, MaxBatch; got < want; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err // a server that died says nothing
		}
		if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
			if status != "404" && status != "408" {
				return fmt.Errorf("the mailbox of %s cannot be read now: %s %s", q.who, status, m.Header.Get("Description"))
			}
			want = got
			if left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
				want = MaxBatch - left
			}
			continue
		}
		got++
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		_, from, _ := strings.Cut(strings.TrimPrefix(m.Subject, mailSubject), ".")
		_, id, _ := strings.Cut(m.Header.Get(jetstream.MsgIDHeader), ":")
		q.respond(delivery{
			From: from, ID: id, Seq: meta.Sequence.Stream, Consumer: meta.Sequence.Consumer,
			Time: meta.Timestamp, Deliveries: meta.NumDelivered,
		}, m.Data)
	}
	return nil
}

// ack takes the agent's word that it has everything up to a message, and waits
// until the consumer knows.
func (h *hub) ack(ctx context.Context, q *request) (any, []byte, error) {
	var r ackRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	// The agent gives numbers; the names are not its to choose.
	subject := fmt.Sprintf("$JS.ACK.%s%s.%s.%d.%d.%d.%d.0", mailStream, q.who, mailOwner, r.Deliveries, r.Seq, r.Consumer, time.Now().UnixNano())
	if _, err := h.back.RequestWithContext(ctx, subject, []byte("+ACK")); err != nil {
		return nil, nil, err
	}
	h.box(q.who).read(r.Seq)
	return nil, nil, nil
}

// trimmer removes what was acknowledged. Streams keep it otherwise: only with
// limits retention does a restarted server still know the ids of what it holds.
func (h *hub) trimmer() {
	t := time.NewTicker(trimPause)
	defer t.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-t.C:
		}
		h.mu.Lock()
		var dirty []string
		for address, b := range h.boxes {
			b.mu.Lock()
			if b.acked > b.trimmed {
				dirty = append(dirty, address)
			}
			b.mu.Unlock()
		}
		h.mu.Unlock()
		for _, address := range dirty {
			h.trim(address)
		}
	}
}

func (h *hub) trim(address string) {
	ctx, cancel := context.WithTimeout(h.ctx, workLimit)
	defer cancel()
	b := h.box(address)
	b.mu.Lock()
	upto := b.acked
	b.mu.Unlock()
	s, err := h.js.Stream(ctx, mailStream+address)
	if err == nil {
		// What the consumer says counts: numbers in requests are anybody's.
		var c jetstream.Consumer
		if c, err = s.Consumer(ctx, mailOwner); err == nil {
			if floor := c.CachedInfo().AckFloor.Stream; floor > 0 {
				err = s.Purge(ctx, jetstream.WithPurgeSequence(floor+1))
			}
		}
	}
	if err != nil {
		if h.ctx.Err() == nil {
			h.warn("remove acknowledged mail", "mailbox", address, "err", err)
		}
		return
	}
	b.mu.Lock()
	b.trimmed = max(b.trimmed, upto)
	b.mu.Unlock()
}
