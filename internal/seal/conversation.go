package seal

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/conchsh/conch/internal/agent"
	olmcrypto "maunium.net/go/mautrix/crypto/goolm/crypto"
	"maunium.net/go/mautrix/crypto/goolm/session"
	"maunium.net/go/mautrix/crypto/olm"
	"maunium.net/go/mautrix/id"
)

const (
	maxSessions = 5
	// MaxUnanswered is how many letters a session takes without an answer by
	// who has had one of them.
	MaxUnanswered = 1000

	conversationVersion = 1
)

// A Conversation is the Olm sessions between an account and one peer.
type Conversation struct {
	account *Account
	peer    ed25519.PublicKey
	device  Device  // the peer's latest, as far as known
	bundle  *Bundle // of that device; nil if none is known
	tick    uint64  // counts what makes a session the latest
	all     []*ratchet
}

// A ratchet is one Olm session.
type ratchet struct {
	id     [16]byte // the same on both sides
	with   Device   // its epoch and Olm key count
	latest uint64   // tick of its start, or of what was opened last
	olm    *session.OlmSession
}

// unanswered is how many letters its chain has. An answer of a peer that has had
// one of them ends the chain; what the peer sent before does not.
func (r *ratchet) unanswered() int {
	if chain := &r.olm.Ratchet.SenderChains; chain.IsSet {
		return int(chain.CKey.Index)
	}
	return 0
}

// Conversation gives an empty one.
func (a *Account) Conversation(peer string) (*Conversation, error) {
	public, err := parseAddress(peer)
	if err != nil {
		return nil, err
	}
	return &Conversation{account: a, peer: public}, nil
}

// Peer is the other agent's address.
func (c *Conversation) Peer() string { return agent.Address(c.peer) }

// Device is the peer's latest that has been seen, zero if none.
func (c *Conversation) Device() Device { return c.device }

// Bundle is the peer's latest that was learnt, nil if there is none of its
// latest device.
func (c *Conversation) Bundle() *Bundle { return c.bundle }

// Learn takes a bundle of the peer's. After First, Successor and Changed its
// device is the conversation's. An earlier device's bundle, or one that is
// older than the one known, changes nothing: a relay may give out old ones.
func (c *Conversation) Learn(b *Bundle) (Change, error) {
	change := b.device.Compare(c.device)
	switch {
	case !bytes.Equal(b.device.public, c.peer):
		return Another, fmt.Errorf("bundle: %w", ErrForged)
	case change == Fork:
		return change, ErrFork
	case change == Earlier:
		return change, nil
	case change == Same && c.bundle != nil && b.serial < c.bundle.serial:
		return change, nil
	}
	c.device, c.bundle = b.device, b
	return change, nil
}

// Start begins a session with the learnt bundle, with a one-time key of its
// device or, if that is nil, the fallback key. It is used from now on.
func (c *Conversation) Start(key *OneTimeKey) error {
	if c.bundle == nil {
		return fmt.Errorf("%w: no bundle of %s is known", ErrNotReady, c.Peer())
	}
	public := c.bundle.fallback
	if key != nil {
		if key.epoch != c.device.epoch {
			return fmt.Errorf("one-time key: %w", ErrForged)
		}
		public = key.key
	}
	s, err := session.NewOutboundOlmSession(c.account.olm.IdKeys.Curve25519, c.device.olm[:], public[:])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWeakKey, err)
	}
	c.add(&ratchet{id: sessionID(s), with: c.device, olm: s})
	return nil
}

// add makes a session the latest, and forgets the one that is least so.
func (c *Conversation) add(r *ratchet) {
	c.tick++
	r.latest = c.tick
	c.all = append(c.all, r)
	if len(c.all) > maxSessions {
		least := slices.MinFunc(c.all, func(a, b *ratchet) int {
			return cmp.Or(cmp.Compare(a.with.epoch, b.with.epoch), order(a, b))
		})
		c.all = slices.DeleteFunc(c.all, func(r *ratchet) bool { return r == least })
	}
}

// order puts the session to send on last. Ticks differ; ids decide all the same.
func order(a, b *ratchet) int {
	return cmp.Or(cmp.Compare(a.latest, b.latest), bytes.Compare(b.id[:], a.id[:]))
}

// Reset forgets every session, and the peer's device and bundle, so that the next
// that is learnt counts as the first. What the peer sends on the old sessions
// cannot be opened any more and has to be asked for again.
func (c *Conversation) Reset() { c.all, c.device, c.bundle = nil, Device{}, nil }

// current is the session to send on, nil if there is none.
func (c *Conversation) current() *ratchet {
	var best *ratchet
	for _, r := range c.all {
		if r.with.same(c.device) && (best == nil || order(r, best) > 0) {
			best = r
		}
	}
	return best
}

// Ready reports whether Seal can do its work.
func (c *Conversation) Ready() bool {
	r := c.current()
	return c.bundle != nil && r != nil && r.unanswered() < MaxUnanswered
}

// Seal encrypts a message on the current session. The letter must not leave
// before the conversation's state is stored.
func (c *Conversation) Seal(h Header, body []byte) ([]byte, error) {
	if !c.Ready() {
		return nil, ErrNotReady
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("%w: a body of %d bytes; the limit is %d", ErrTooLarge, len(body), MaxBody)
	}
	header, err := c.account.address(&h, c.bundle)
	if err != nil {
		return nil, err
	}
	r := c.current()
	next, err := r.clone()
	if err != nil {
		return nil, err
	}
	kind, text, err := next.Encrypt(append(digest(header, body), body...))
	if err != nil {
		return nil, err
	}
	message, err := base64.RawStdEncoding.DecodeString(string(text))
	if err != nil {
		return nil, err
	}
	form := uint8(formOlm)
	if kind == id.OlmMsgTypePreKey {
		form = formFirst
	}
	out, err := wrap(c.bundle, header, c.account.device, form, append(r.id[:], message...))
	if err != nil {
		return nil, err
	}
	r.olm = next
	return out, nil
}

// address fills in a header and encodes it.
func (a *Account) address(h *Header, to *Bundle) ([]byte, error) {
	h.From, h.To = a.Address(), to.device.Address()
	h.FromEpoch, h.ToEpoch = a.device.epoch, to.device.epoch
	h.Prekey = to.PrekeyID()
	return h.encode()
}

// Open decrypts a letter of the peer's. If it fails nothing has changed.
func (c *Conversation) Open(l *Letter) (*Opened, error) {
	switch {
	case l.Statement:
		return nil, fmt.Errorf("a statement is opened without a conversation: %w", ErrMalformed)
	case l.Header.From != c.Peer():
		return nil, fmt.Errorf("a letter from %s: %w", l.Header.From, ErrForged)
	case l.Header.ToEpoch != c.account.device.epoch:
		return nil, ErrEpoch
	}
	from, err := l.sender(c.device)
	if err != nil {
		return nil, err
	}
	change := from.Compare(c.device)
	if change == Fork {
		return nil, ErrFork
	}
	p := reader{b: l.payload}
	var sid [16]byte
	p.fill(sid[:])
	message := p.raw(len(p.b))
	if p.bad || len(message) == 0 {
		return nil, fmt.Errorf("letter: %w", ErrMalformed)
	}
	text := base64.RawStdEncoding.EncodeToString(message)
	kind := id.OlmMsgTypeMsg
	if l.form == formFirst {
		kind = id.OlmMsgTypePreKey
	}

	var used []byte // the one-time key that goes with it
	i := slices.IndexFunc(c.all, func(r *ratchet) bool { return r.id == sid })
	var next *session.OlmSession
	switch {
	case i >= 0:
		if !c.all[i].with.same(from) {
			return nil, ErrForged
		}
		if next, err = c.all[i].clone(); err != nil {
			return nil, err
		}
		if kind == id.OlmMsgTypePreKey {
			if same, err := next.MatchesInboundSession(text); err != nil || !same {
				return nil, ErrForged
			}
		}
	case kind == id.OlmMsgTypePreKey:
		if next, used, err = c.account.inbound(from, text, sid); err != nil {
			return nil, err
		}
	default:
		return nil, ErrSession
	}
	plain, err := next.Decrypt(text, kind)
	if err != nil {
		if errors.Is(err, olm.ErrMessageKeyNotFound) {
			return nil, ErrReplay
		}
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	}
	if len(plain) < digestLen {
		return nil, ErrHeader
	}
	body := plain[digestLen:]
	if subtle.ConstantTimeCompare(plain[:digestLen], digest(l.header, body)) != 1 {
		return nil, ErrHeader
	}

	if i < 0 {
		c.add(&ratchet{id: sid, with: from, olm: next})
	} else {
		r := c.all[i]
		c.tick++
		r.olm, r.latest = next, c.tick
	}
	if used != nil {
		c.account.removeKey(used)
	}
	if change == First || change == Successor || change == Changed {
		c.device, c.bundle = from, nil
	}
	return &Opened{Header: l.Header, Body: body, Device: from, Change: change, KeyUsed: used != nil}, nil
}

// inbound makes the session that a first letter begins.
func (a *Account) inbound(from Device, text string, sid [16]byte) (s *session.OlmSession, used []byte, err error) {
	identity := olmcrypto.Curve25519PublicKey(from.olm[:])
	var gone bool
	var failed error
	find := func(public olmcrypto.Curve25519PublicKey) *olmcrypto.OneTimeKey {
		key, once, err := a.findKey(public)
		if once {
			used = bytes.Clone(public)
		}
		gone, failed = key == nil, err
		return key
	}
	s, err = session.NewInboundOlmSession(&identity, []byte(text), find, a.olm.IdKeys.Curve25519)
	switch {
	case failed != nil:
		return nil, nil, failed
	case gone:
		return nil, nil, ErrOneTimeKey
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrForged, err)
	case sessionID(s) != sid:
		return nil, nil, fmt.Errorf("session: %w", ErrMalformed)
	}
	return s, used, nil
}

func sessionID(s *session.OlmSession) (sid [16]byte) {
	if b, err := base64.RawStdEncoding.DecodeString(string(s.ID())); err == nil {
		copy(sid[:], b)
	}
	return sid
}

// clone copies a session, so that what fails leaves the original as it was.
func (r *ratchet) clone() (*session.OlmSession, error) {
	return unpickle(r.olm.PickleLibOlm())
}

func unpickle(b []byte) (*session.OlmSession, error) {
	s := session.NewOlmSession()
	if err := s.UnpickleLibOlm(b); err != nil {
		return nil, fmt.Errorf("session: %w: %w", ErrState, err)
	}
	return s, nil
}

// State gives the conversation for the store.
func (c *Conversation) State() ([]byte, error) {
	var w writer
	w.u64(uint64(c.account.device.epoch))
	w.bool(!c.device.IsZero())
	if !c.device.IsZero() {
		w.raw(c.device.Encode())
	}
	w.bool(c.bundle != nil)
	if c.bundle != nil {
		w.raw(c.bundle.Encode())
	}
	w.u64(c.tick)
	w.u8(uint8(len(c.all)))
	for _, r := range c.all {
		w.raw(r.with.Encode())
		w.u64(r.latest)
		w.bytes(r.olm.PickleLibOlm())
	}
	return c.account.lock(conversationVersion, "conversation", c.peer, w.b), nil
}

// LoadConversation reads what State gave. Sessions of a device that the account
// was before Retire are left out.
func (a *Account) LoadConversation(peer string, state []byte) (*Conversation, error) {
	c, err := a.Conversation(peer)
	if err != nil {
		return nil, err
	}
	plain, err := a.unlock(conversationVersion, "conversation", c.peer, state)
	if err != nil {
		return nil, err
	}
	return c, c.read(plain)
}

func (c *Conversation) read(plain []byte) (err error) {
	r := reader{b: plain}
	own := Epoch(r.u64())
	if r.bool() {
		if c.device, err = readDevice(r.raw(deviceLen)); err != nil {
			return fmt.Errorf("conversation: %w: %w", ErrState, err)
		}
	}
	if r.bool() {
		// It was verified before it came here.
		if c.bundle, err = readBundle(r.raw(BundleLen)); err != nil {
			return fmt.Errorf("conversation: %w: %w", ErrState, err)
		}
	}
	c.tick = r.u64()
	for range r.u8() {
		one := &ratchet{}
		device := r.raw(deviceLen)
		one.latest = r.u64()
		pickle := r.bytes()
		if r.bad {
			break
		}
		if one.with, err = readDevice(device); err != nil {
			return fmt.Errorf("conversation: %w: %w", ErrState, err)
		}
		if one.olm, err = unpickle(pickle); err != nil {
			return err
		}
		one.id = sessionID(one.olm)
		c.all = append(c.all, one)
	}
	if r.end("conversation") != nil {
		return fmt.Errorf("conversation: %w", ErrState)
	}
	if own != c.account.device.epoch {
		c.all = nil
	}
	return nil
}
