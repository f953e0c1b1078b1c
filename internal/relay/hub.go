package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/conchsh/conch"
)

// A hub does for agents what they may not do themselves: it is the only one who
// touches streams. Agents ask it on front, in whose account there is no
// JetStream at all; it works on back. In a cluster of somebody's own the two are
// one connection, and any number of hubs share the work in a queue group.
//
// Why not let agents have the few JetStream subjects they need: the server
// answers to whatever subject a request names, with its own rights. Seen with
// 2.15.2: an agent that was allowed nothing but to fetch and acknowledge its own
// mail emptied another's mailbox by an acknowledgement whose answer was to go to
// $JS.API.STREAM.PURGE.THEIRS, and put messages into it in a third's name. So a
// hub answers only to the inbox of who asks.
type hub struct {
	front, back *nats.Conn
	js          jetstream.JetStream
	replicas    int
	limits      *limits
	log         quietLog
	service     micro.Service

	// ctx ends with the hub, and with it all that is under way.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	boxes  map[string]*box
	busy   map[string]int // requests under way, by who asks
	claims map[string]*bucket
}

const (
	dirStream  = "conch-dir"
	blobStream = "conch-blobs"
	mailStream = "conch-mail-" // and the address
	mailOwner  = "owner"       // the consumer of a mailbox

	mailSubject = "conch.mail." // recipient.sender
	dirSubject  = "conch.dir."
	blobSubject = "conch.blob." // owner.id.n

	maxMailboxes  = 2000
	maxDirBytes   = 256 << 20
	maxBlobsBytes = 4 << 30
	// maxOwnerChunks is how much of blobs one agent may have: 512 MiB.
	maxOwnerChunks = 1024

	// maxBusy is how many requests of one agent are under way at once.
	maxBusy = 512
	// workLimit ends what a request may take.
	workLimit = 10 * time.Second
)

// limits are what a mailbox holds, and what of it one sender may have filled.
type limits struct {
	bytes, msgs, senderBytes, senderMsgs int64
}

func defaultLimits() *limits { return &limits{256 << 20, 100_000, 32 << 20, 4096} }

// newHub opens the streams and begins to serve.
func newHub(ctx context.Context, front, back *nats.Conn, replicas int, o Options) (*hub, error) {
	js, err := jetstream.New(back, jetstream.WithPublishAsyncMaxPending(8192),
		jetstream.WithPublishAsyncTimeout(workLimit), jetstream.WithDefaultTimeout(workLimit))
	if err != nil {
		return nil, err
	}
	h := &hub{
		front: front, back: back, js: js, replicas: replicas, log: quietLog{log: o.Log}, limits: o.limits,
		boxes: map[string]*box{}, busy: map[string]int{}, claims: map[string]*bucket{},
	}
	if h.limits == nil {
		h.limits = defaultLimits()
	}
	for _, c := range []jetstream.StreamConfig{h.dirConfig(), h.blobConfig()} {
		if err := h.ensure(ctx, c); err != nil {
			return nil, err
		}
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.service, err = micro.AddService(front, micro.Config{
		Name: "conch-hub", Version: "1.0.0", Description: "mailboxes and key directory of conch",
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) { h.warn("hub", "subject", e.Subject, "err", e.Description) },
	})
	if err != nil {
		h.stop()
		return nil, err
	}
	// send is not handed to a goroutine of its own: what one agent sends to
	// another must not change its order on the way.
	verbs := []struct {
		name string
		do   func(*request)
	}{
		{verbSend, h.send},
		{verbFetch, h.spawn(h.fetch)},
		{verbOpen, h.spawn(answer(h.open))},
		{verbAck, h.spawn(answer(h.ack))},
		{verbBundle, h.spawn(answer(h.putBundle))},
		{verbGet, h.spawn(answer(h.getBundle))},
		{verbKeys, h.spawn(answer(h.keys))},
		{verbClaim, h.spawn(answer(h.claim))},
		{verbMark, h.spawn(answer(h.mark))},
		{verbPut, h.spawn(answer(h.putChunk))},
		{verbRead, h.spawn(answer(h.readChunk))},
		{verbDrop, h.spawn(answer(h.dropBlob))},
		{verbHandle, h.spawn(answer(h.takeHandle))},
		{verbResolve, h.spawn(answer(h.findHandle))},
	}
	for _, v := range verbs {
		if err := h.service.AddEndpoint(v.name, micro.HandlerFunc(h.serve(v.do)), micro.WithEndpointSubject(hubSubject+"*."+v.name)); err != nil {
			h.close()
			return nil, err
		}
	}
	h.wg.Go(h.trimmer) // ends with h.ctx
	return h, front.Flush()
}

// close stops serving and waits. The connections are the caller's.
func (h *hub) close() {
	h.service.Stop()
	h.mu.Lock()
	h.stop() // under the lock: from here on nothing enters
	h.mu.Unlock()
	h.wg.Wait()
}

func (h *hub) warn(text string, args ...any) { h.log.write(slog.LevelWarn, text, args...) }

// roam has a hub of a cluster go to another server when the one it is connected
// to is cut off from the others: that one keeps its clients and can do nothing.
func (h *hub) roam() {
	t := time.NewTicker(healthPause)
	defer t.Stop()
	failed := 0
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(h.ctx, healthPause)
		_, err := h.js.AccountInfo(ctx)
		cancel()
		if failed++; err == nil {
			failed = 0
		}
		if failed >= 2 && h.ctx.Err() == nil && h.back.IsConnected() {
			failed = 0
			h.warn("the server is of no use; trying another", "server", h.back.ConnectedUrl(), "err", err)
			h.back.ForceReconnect()
		}
	}
}

// A request is one of an agent's, whose address the server vouches for.
type request struct {
	h     *hub
	who   string
	reply string
	micro.Request
}

// serve checks where a request comes from and where its answer is to go.
func (h *hub) serve(do func(*request)) func(micro.Request) {
	return func(m micro.Request) {
		q := &request{h: h, Request: m, reply: m.Reply()}
		q.who, _, _ = strings.Cut(strings.TrimPrefix(m.Subject(), hubSubject), ".")
		// Anywhere else the hub's rights would be lent to whoever asks.
		if !isAddress(q.who) || !strings.HasPrefix(q.reply, inboxPrefix(q.who)+".") {
			h.warn("request without an answer of its own", "subject", m.Subject())
			return
		}
		if !h.enter(q.who) {
			q.fail(conch.Errorf(conch.QuotaReached, "%d requests of this agent are under way", maxBusy).Hint("wait for some to end").Retry())
			return
		}
		do(q)
	}
}

func (h *hub) enter(who string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil || h.busy[who] >= maxBusy {
		return false
	}
	h.busy[who]++
	h.wg.Add(1)
	return true
}

func (h *hub) leave(who string) {
	defer h.wg.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[who]--; h.busy[who] == 0 {
		delete(h.busy, who)
	}
}

// spawn runs a verb in a goroutine of its own, which ends with it or with h.ctx.
func (h *hub) spawn(do func(*request)) func(*request) {
	return func(q *request) {
		go func() {
			defer h.leave(q.who)
			do(q)
		}()
	}
}

// answer makes a handler of a function that gives one answer.
func answer(do func(context.Context, *request) (any, []byte, error)) func(*request) {
	return func(q *request) {
		ctx, cancel := context.WithTimeout(q.h.ctx, workLimit)
		defer cancel()
		meta, data, err := do(ctx, q)
		if err != nil {
			q.fail(err)
			return
		}
		q.respond(meta, data)
	}
}

func (q *request) respond(meta any, data []byte) {
	if meta == nil {
		meta = struct{}{}
	}
	if err := q.h.front.PublishMsg(newMsg(q.reply, meta, data)); err != nil {
		q.h.warn("answer", "err", err)
	}
}

func (q *request) fail(err error) {
	var e *conch.Error
	if !errors.As(err, &e) {
		if q.h.ctx.Err() != nil {
			return // the hub is closing; who asked will see the connection end
		}
		q.h.warn("request failed", "subject", q.Subject(), "err", err)
		err = q.h.trouble(err)
	}
	if err := q.h.front.PublishMsg(errorMsg(q.reply, err)); err != nil {
		q.h.warn("answer", "err", err)
	}
}

// trouble is JetStream's error as one of ours: nothing can be said of what was
// done, and the same again is safe.
func (h *hub) trouble(err error) error {
	e := conch.Errorf(conch.RelayUnreachable, "the relay cannot do this now: %v", err).Hint("it is tried again").Retry()
	var api *jetstream.APIError
	if errors.As(err, &api) && strings.Contains(api.Description, "no space left") {
		e = conch.Errorf(conch.MailboxFull, "the relay's disk is full").Hint("nothing was kept; free space where the relay runs").Retry()
	}
	return e
}

// meta reads what a request says beside its bytes.
func (q *request) meta(v any) error {
	if json.Unmarshal([]byte(q.Headers().Get(metaHeader)), v) != nil {
		return conch.Errorf(conch.InvalidRequest, "the relay cannot read this request").Hint("it may be of another version of conch")
	}
	return nil
}

// ensure makes a stream, or has one that is there take this hub's limits.
func (h *hub) ensure(ctx context.Context, c jetstream.StreamConfig) error {
	s, err := h.js.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = h.js.CreateStream(ctx, c)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another hub's, just now
		}
		return err
	}
	if err != nil {
		return err
	}
	if now := s.CachedInfo().Config; now.Replicas < c.Replicas || now.MaxBytes != c.MaxBytes || now.MaxMsgsPerSubject != c.MaxMsgsPerSubject || now.MaxMsgSize != c.MaxMsgSize {
		_, err = h.js.UpdateStream(ctx, c)
	}
	return err
}

func (h *hub) dirConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: dirStream, Subjects: []string{dirSubject + ">"}, Storage: jetstream.FileStorage, Replicas: h.replicas,
		MaxMsgsPerSubject: 1, MaxBytes: maxDirBytes, MaxMsgSize: 512 << 10, Discard: jetstream.DiscardOld,
		// The least there can be: compare and set needs none.
		Duplicates: 100 * time.Millisecond,
	}
}

func (h *hub) blobConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: blobStream, Subjects: []string{blobSubject + ">"}, Storage: jetstream.FileStorage, Replicas: h.replicas,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxBytes: maxBlobsBytes, MaxMsgSize: BlobChunk + 1024, MaxAge: BlobAge, Duplicates: 100 * time.Millisecond,
	}
}

func (h *hub) mailConfig(address string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: mailStream + address, Subjects: []string{mailSubject + address + ".*"}, Storage: jetstream.FileStorage, Replicas: h.replicas,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxBytes: h.limits.bytes, MaxMsgs: h.limits.msgs, MaxMsgsPerSubject: h.limits.senderMsgs, MaxMsgSize: MaxMessage + 1024, MaxAge: MessageAge,
		Duplicates: DedupeWindow, AllowMsgTTL: true, MaxConsumers: 1, DenyDelete: true,
	}
}

// open makes the mailbox of who asks, and has what was handed out and never
// acknowledged handed out again at once: who opens has none of it in hand. A
// fetch that still waits goes too, or it would take the next message to nobody.
func (h *hub) open(ctx context.Context, q *request) (any, []byte, error) {
	cfg := h.mailConfig(q.who)
	s, err := h.js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		var info *jetstream.AccountInfo
		if info, err = h.js.AccountInfo(ctx); err == nil && info.Streams >= maxMailboxes {
			return nil, nil, conch.Errorf(conch.LimitReached, "the relay has %d mailboxes, its limit", info.Streams).Hint("join another relay")
		}
		if err == nil {
			s, err = h.js.CreateStream(ctx, cfg)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	consumer := jetstream.ConsumerConfig{
		Durable: mailOwner, AckPolicy: jetstream.AckAllPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 2 * MaxBatch,
		DeliverPolicy: jetstream.DeliverAllPolicy, MaxWaiting: 8,
	}
	c, err := s.Consumer(ctx, mailOwner)
	if err == nil {
		if info := c.CachedInfo(); info.NumAckPending > 0 || info.NumWaiting > 0 {
			if err := s.DeleteConsumer(ctx, mailOwner); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil, nil, err
			}
			consumer.DeliverPolicy, consumer.OptStartSeq = jetstream.DeliverByStartSequencePolicy, info.AckFloor.Stream+1
			_, err = s.CreateConsumer(ctx, consumer)
		}
	} else if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = s.CreateConsumer(ctx, consumer)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return nil, nil, err
	}
	var b bundleRecord
	if _, err := h.load(ctx, bundleOf(q.who), &b); err != nil {
		return nil, nil, err
	}
	var p poolRecord
	if _, err := h.load(ctx, poolOf(q.who), &p); err != nil {
		return nil, nil, err
	}
	return openAnswer{b.Serial, len(p.Keys)}, nil, nil
}

// load reads the last record of a subject into v, and gives its revision: 0 if
// there is none.
func (h *hub) load(ctx context.Context, subject string, v any) (uint64, error) {
	s, err := h.js.Stream(ctx, dirStream)
	if err != nil {
		return 0, err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(m.Data, v); err != nil {
		return 0, fmt.Errorf("%s: %w", subject, err)
	}
	return m.Sequence, nil
}

// errMoved says that somebody else wrote first.
var errMoved = errors.New("the record has changed")

// save writes a record if its revision is still rev.
func (h *hub) save(ctx context.Context, subject string, rev uint64, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = h.js.Publish(ctx, subject, b, jetstream.WithExpectLastSequencePerSubject(rev))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errMoved
	}
	return err
}

// change reads a record, has edit change it, and writes it, again if another was
// faster. edit returns false to leave it as it is.
func change[T any](ctx context.Context, h *hub, subject string, edit func(*T) (bool, error)) error {
	for {
		var v T
		rev, err := h.load(ctx, subject, &v)
		if err != nil {
			return err
		}
		write, err := edit(&v)
		if err != nil || !write {
			return err
		}
		if err = h.save(ctx, subject, rev, v); !errors.Is(err, errMoved) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
