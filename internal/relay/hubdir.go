package relay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/conchsh/conch"
)

// The directory: a stream that keeps the last record of each subject, written by
// hubs alone, by compare and set.

func bundleOf(address string) string { return dirSubject + "bundle." + address }
func poolOf(address string) string   { return dirSubject + "keys." + address }
func markOf(address string) string   { return dirSubject + "mark." + address }
func namesOf(address string) string  { return dirSubject + "names." + address }
func handleOf(name string) string    { return dirSubject + "handle." + name }

type (
	bundleRecord struct {
		Serial uint64 `json:"serial"`
		Bundle []byte `json:"bundle"`
	}
	// poolRecord is an agent's one-time keys. Handing one out and forgetting it
	// is one write; which ones were handed out stays known, so that a repeated
	// upload brings none back.
	poolRecord struct {
		Keys []OneTimeKey `json:"keys"`
		Gone [][]byte     `json:"gone"` // the newest last
	}
	namesRecord struct {
		Names []string `json:"names"`
	}
	handleRecord struct {
		Address   string `json:"address"`
		Statement []byte `json:"statement"`
	}
)

// maxGone is how many handed-out keys stay known: more than are ever uploaded
// again.
const maxGone = 10 * MaxOneTimeKeys

func keyHash(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:8]
}

func (p *poolRecord) gone(id string) bool {
	hash := keyHash(id)
	return slices.ContainsFunc(p.Gone, func(g []byte) bool { return string(g) == string(hash) })
}

func (p *poolRecord) forget(id string) {
	if p.Gone = append(p.Gone, keyHash(id)); len(p.Gone) > maxGone {
		p.Gone = p.Gone[len(p.Gone)-maxGone:]
	}
}

func (h *hub) putBundle(ctx context.Context, q *request) (any, []byte, error) {
	var r bundleRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if n := len(q.Data()); n == 0 || n > MaxBundle {
		return nil, nil, conch.Errorf(conch.TooLarge, "the bundle has %d bytes; the relay takes 1 to %d", n, MaxBundle)
	}
	err := change(ctx, h, bundleOf(q.who), func(b *bundleRecord) (bool, error) {
		if r.Serial < b.Serial {
			return false, conch.Errorf(conch.GenerationStale, "the directory has bundle %d of this agent, newer than %d", b.Serial, r.Serial).
				Hint("nothing was changed; another daemon has this key, or this home was restored from a backup")
		}
		if r.Serial == b.Serial && b.Bundle != nil && string(b.Bundle) == string(q.Data()) {
			return false, nil
		}
		b.Serial, b.Bundle = r.Serial, q.Data()
		return true, nil
	})
	return nil, nil, err
}

func (h *hub) getBundle(ctx context.Context, q *request) (any, []byte, error) {
	var r addressRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	b, err := h.bundle(ctx, r.Address)
	return claimAnswer{Serial: b.Serial}, b.Bundle, err
}

func (h *hub) bundle(ctx context.Context, address string) (b bundleRecord, err error) {
	if isAddress(address) {
		_, err = h.load(ctx, bundleOf(address), &b)
	}
	if err == nil && b.Bundle == nil {
		err = conch.Errorf(conch.MailboxNotFound, "nobody of the address %.64s is known at this relay", address).
			Hint("the other home has to join the same relay, and connect once")
	}
	return b, err
}

func (h *hub) keys(ctx context.Context, q *request) (any, []byte, error) {
	var r keysRequest
	if err := json.Unmarshal(q.Data(), &r); err != nil {
		return nil, nil, conch.Errorf(conch.InvalidRequest, "the relay cannot read these keys")
	}
	for _, k := range r.Keys {
		if len(k.ID) == 0 || len(k.ID) > 64 || len(k.Data) == 0 || len(k.Data) > MaxOneTimeKey {
			return nil, nil, conch.Errorf(conch.TooLarge, "a one-time key has an id of 1 to 64 bytes and 1 to %d bytes", MaxOneTimeKey)
		}
	}
	count := 0
	err := change(ctx, h, poolOf(q.who), func(p *poolRecord) (bool, error) {
		before := len(p.Keys)
		if r.Drop {
			for _, k := range p.Keys {
				p.forget(k.ID)
			}
			p.Keys = nil
		}
		changed := r.Drop && before > 0
		for _, k := range r.Keys {
			known := slices.ContainsFunc(p.Keys, func(o OneTimeKey) bool { return o.ID == k.ID })
			if !known && !p.gone(k.ID) && len(p.Keys) < MaxOneTimeKeys {
				p.Keys, changed = append(p.Keys, k), true
			}
		}
		count = len(p.Keys)
		return changed, nil
	})
	return keysAnswer{count}, nil, err
}

// How many one-time keys an agent may take: of one other, and of all. It is
// counted by each hub for itself, from its start.
const (
	claimsPerPeer = 5
	claimsInAll   = 100
	claimWindow   = time.Hour
	maxBuckets    = 100_000
)

// A bucket counts what was done in a window of time.
type bucket struct {
	since time.Time
	n     int
}

// allow counts one claim, unless there were too many. An agent that is over gets
// bundles all the same: their fallback key cannot be used up.
func (h *hub) allow(who, peer string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.claims) > maxBuckets {
		for k, b := range h.claims {
			if now.Sub(b.since) > claimWindow {
				delete(h.claims, k)
			}
		}
		if len(h.claims) > maxBuckets {
			return false
		}
	}
	get := func(key string) *bucket {
		b := h.claims[key]
		if b == nil || now.Sub(b.since) > claimWindow {
			b = &bucket{since: now}
			h.claims[key] = b
		}
		return b
	}
	one, all := get(who+" "+peer), get(who)
	if one.n >= claimsPerPeer || all.n >= claimsInAll {
		return false
	}
	one.n++
	all.n++
	return true
}

func (h *hub) claim(ctx context.Context, q *request) (any, []byte, error) {
	var r addressRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	b, err := h.bundle(ctx, r.Address)
	if err != nil {
		return nil, nil, err
	}
	out := claimAnswer{Serial: b.Serial}
	if !h.allow(q.who, r.Address, time.Now()) {
		out.Limited = true
		return out, b.Bundle, nil
	}
	err = change(ctx, h, poolOf(r.Address), func(p *poolRecord) (bool, error) {
		out.Key = nil
		if len(p.Keys) == 0 {
			return false, nil
		}
		k := p.Keys[0]
		out.Key = &k
		p.Keys = p.Keys[1:]
		p.forget(k.ID)
		return true, nil
	})
	return out, b.Bundle, err
}

func (h *hub) mark(ctx context.Context, q *request) (any, []byte, error) {
	var r Mark
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if len(r.Store) > 64 {
		return nil, nil, conch.Errorf(conch.InvalidRequest, "a store's name has at most 64 bytes")
	}
	var kept Mark
	err := change(ctx, h, markOf(q.who), func(m *Mark) (bool, error) {
		old := *m
		switch {
		case r == old:
			kept = old
			return false, nil
		case r.Generation < old.Generation, r.Generation == old.Generation && (r.Store != old.Store || r.Sent < old.Sent):
			kept = old
			return false, errStale
		}
		*m, kept = r, r
		return true, nil
	})
	if errors.Is(err, errStale) {
		// Not an answer of the error kind: the relay's mark must travel with it.
		return markAnswer{Mark: kept, Stale: true}, nil, nil
	}
	return markAnswer{Mark: kept}, nil, err
}

var errStale = errors.New("the relay's mark is ahead")

type markAnswer struct {
	Mark
	Stale bool `json:"stale,omitempty"`
}

func (h *hub) takeHandle(ctx context.Context, q *request) (any, []byte, error) {
	var r handleRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if err := conch.CheckAgent(r.Name); err != nil {
		return nil, nil, err
	}
	if len(q.Data()) > MaxBundle {
		return nil, nil, conch.Errorf(conch.TooLarge, "the statement has more than %d bytes", MaxBundle)
	}
	// Counted first: a crash in between leaves a name that is counted and free,
	// and the same call again takes it.
	err := change(ctx, h, namesOf(q.who), func(n *namesRecord) (bool, error) {
		if slices.Contains(n.Names, r.Name) {
			return false, nil
		}
		if len(n.Names) >= MaxHandles {
			return false, conch.Errorf(conch.QuotaReached, "this agent has taken %d names, the limit", MaxHandles)
		}
		n.Names = append(n.Names, r.Name)
		return true, nil
	})
	if err != nil {
		return nil, nil, err
	}
	taken := conch.Errorf(conch.NameTaken, "the name %s is another's at this relay", r.Name).Hint("choose another")
	err = change(ctx, h, handleOf(r.Name), func(v *handleRecord) (bool, error) {
		if v.Address != "" && v.Address != q.who {
			return false, taken
		}
		if v.Address == q.who && string(v.Statement) == string(q.Data()) {
			return false, nil
		}
		v.Address, v.Statement = q.who, q.Data()
		return true, nil
	})
	if errors.Is(err, taken) {
		if err := change(ctx, h, namesOf(q.who), func(n *namesRecord) (bool, error) {
			n.Names = slices.DeleteFunc(n.Names, func(s string) bool { return s == r.Name })
			return true, nil
		}); err != nil {
			h.warn("give back a name", "err", err)
		}
	}
	return nil, nil, err
}

func (h *hub) findHandle(ctx context.Context, q *request) (any, []byte, error) {
	var r handleRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	var v handleRecord
	if conch.CheckAgent(r.Name) == nil {
		if _, err := h.load(ctx, handleOf(r.Name), &v); err != nil {
			return nil, nil, err
		}
	}
	if v.Address == "" {
		return nil, nil, conch.Errorf(conch.MailboxNotFound, "nobody has taken the name %.64q at this relay", r.Name)
	}
	return handleAnswer{v.Address}, v.Statement, nil
}

// Blobs. A chunk is one message on a subject of its own, which takes one and no
// second.

const lastHeader = "Conch-Last"

func blobOf(owner, id string) string { return blobSubject + owner + "." + id }

func (r chunkRequest) check(owner string) error {
	if !isAddress(owner) || len(r.ID) < 32 || !safeToken(r.ID, 64) || r.N < 0 || r.N > MaxBlob/BlobChunk {
		return conch.Errorf(conch.InvalidRequest, "a blob has an id of 32 to 64 letters and digits, and at most %d MiB", MaxBlob>>20)
	}
	return nil
}

func (h *hub) putChunk(ctx context.Context, q *request) (any, []byte, error) {
	var r chunkRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if err := r.check(q.who); err != nil {
		return nil, nil, err
	}
	if len(q.Data()) > BlobChunk {
		return nil, nil, conch.Errorf(conch.TooLarge, "a chunk has at most %d bytes", BlobChunk)
	}
	s, err := h.js.Stream(ctx, blobStream)
	if err != nil {
		return nil, nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(blobSubject+q.who+".>"))
	if err != nil {
		return nil, nil, err
	}
	subject := chunkOf(q.who, r)
	_, there := info.State.Subjects[subject]
	if !there && len(info.State.Subjects) >= maxOwnerChunks {
		return nil, nil, conch.Errorf(conch.QuotaReached, "this agent's blobs have %d MiB at the relay, the limit", maxOwnerChunks*BlobChunk>>20).
			Hint("they go after %d days, or when they are dropped", int(BlobAge.Hours()/24)).Retry()
	}
	m := newMsg(subject, nil, q.Data())
	if r.Last {
		m.Header.Set(lastHeader, "1")
	}
	if !there {
		_, err = h.js.PublishMsg(ctx, m)
		if err == nil {
			return nil, nil, nil
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) {
			return nil, nil, err
		}
		if err := h.refusal(q.who, err); errors.Is(err, conch.MailboxFull) {
			return nil, nil, conch.Errorf(conch.MailboxFull, "the relay has %d GiB of blobs, its limit", maxBlobsBytes>>30).Hint("nothing was kept of this one").Retry()
		} else if !errors.Is(err, conch.QuotaReached) {
			return nil, nil, err
		}
	}
	old, err := s.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return nil, nil, err
	}
	if string(old.Data) != string(q.Data()) || (old.Header.Get(lastHeader) != "") != r.Last {
		return nil, nil, conch.Errorf(conch.MessageConflict, "another blob has this id").Hint("what is there was kept")
	}
	return nil, nil, nil
}

func (h *hub) readChunk(ctx context.Context, q *request) (any, []byte, error) {
	var r chunkRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if err := r.check(r.Owner); err != nil {
		return nil, nil, err
	}
	s, err := h.js.Stream(ctx, blobStream)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, chunkOf(r.Owner, r))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil, conch.Errorf(conch.BlobNotFound, "the relay does not have this blob, or not all of it").
			Hint("it goes after %d days; the sender can send it again", int(BlobAge.Hours()/24))
	}
	if err != nil {
		return nil, nil, err
	}
	return chunkRequest{ID: r.ID, N: r.N, Last: m.Header.Get(lastHeader) != ""}, m.Data, nil
}

func (h *hub) dropBlob(ctx context.Context, q *request) (any, []byte, error) {
	var r chunkRequest
	if err := q.meta(&r); err != nil {
		return nil, nil, err
	}
	if err := r.check(q.who); err != nil {
		return nil, nil, err
	}
	s, err := h.js.Stream(ctx, blobStream)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, s.Purge(ctx, jetstream.WithPurgeSubject(blobOf(q.who, r.ID)+".*"))
}

func chunkOf(owner string, r chunkRequest) string {
	return blobOf(owner, r.ID) + "." + strconv.Itoa(r.N)
}
