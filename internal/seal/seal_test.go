package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch/internal/agent"
)

// An agent's key is an identity; here identities are made from names.
var _ Identity = (*agent.Key)(nil)

type identity struct{ private ed25519.PrivateKey }

func named(name string) identity {
	seed := sha256.Sum256([]byte("seal test " + name))
	return identity{ed25519.NewKeyFromSeed(seed[:])}
}

func (i identity) Public() ed25519.PublicKey { return i.private.Public().(ed25519.PublicKey) }

func (i identity) SignFor(purpose string, message []byte) ([]byte, error) {
	return i.private.Sign(nil, message, &ed25519.Options{Context: purpose})
}

func (i identity) Derive(purpose string, n int) ([]byte, error) {
	return hkdf.Key(sha256.New, i.private.Seed(), nil, purpose, n)
}

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// A tester is a test, a fuzzer, or a run of rapid's.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// A side is one agent in a talk between two.
type side struct {
	t    tester
	id   identity
	a    *Account
	c    *Conversation
	seq  uint64
	pool []OneTimeKey // at the relay
}

func newSide(t tester, name string) *side {
	t.Helper()
	s := &side{t: t, id: named(name)}
	a, err := NewAccount(s.id, noon)
	s.ok(err)
	s.a = a
	return s
}

func (s *side) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pair gives two agents that know each other's address.
func pair(t tester) (amy, bob *side) {
	t.Helper()
	amy, bob = newSide(t, "amy"), newSide(t, "bob")
	amy.meet(bob)
	bob.meet(amy)
	return amy, bob
}

func (s *side) meet(peer *side) {
	s.t.Helper()
	c, err := s.a.Conversation(peer.a.Address())
	s.ok(err)
	s.c = c
}

// bundle is the public one, by way of its bytes.
func (s *side) bundle() *Bundle {
	s.t.Helper()
	b, err := s.a.Bundle()
	s.ok(err)
	data := b.Encode()
	if len(data) != BundleLen {
		s.t.Fatalf("a bundle of %d bytes, not %d", len(data), BundleLen)
	}
	b, err = ParseBundle(data, s.a.Address())
	s.ok(err)
	return b
}

// claim takes a one-time key, as the relay hands them out.
func (s *side) claim() *OneTimeKey {
	s.t.Helper()
	if len(s.pool) == 0 {
		s.ok(s.a.Refill(0))
		keys, err := s.a.Unpublished()
		s.ok(err)
		s.a.MarkPublished(keys)
		s.pool = keys
	}
	data := s.pool[0].Encode()
	s.pool = s.pool[1:]
	k, err := ParseOneTimeKey(data, s.a.Device())
	s.ok(err)
	return k
}

// start has s begin a session with peer.
func (s *side) start(peer *side, key *OneTimeKey) {
	s.t.Helper()
	_, err := s.c.Learn(peer.bundle())
	s.ok(err)
	s.ok(s.c.Start(key))
}

func (s *side) header() Header {
	s.seq++
	return Header{Kind: Mail, ID: fmt.Sprintf("m%d", s.seq), Sequence: s.seq, Created: noon, FromLabel: "claude:1", ToLabel: "build"}
}

func (s *side) seal(text string) []byte {
	s.t.Helper()
	out, err := s.c.Seal(s.header(), []byte(text))
	s.ok(err)
	return out
}

func (s *side) try(sealed []byte) (*Opened, error) {
	l, err := s.a.Unwrap(sealed)
	if err != nil {
		return nil, err
	}
	return s.c.Open(l)
}

func (s *side) open(sealed []byte, want string) *Opened {
	s.t.Helper()
	o, err := s.try(sealed)
	s.ok(err)
	if string(o.Body) != want {
		s.t.Fatalf("opened %q, want %q", o.Body, want)
	}
	return o
}

// snapshot is what the store would have, decrypted, so that it can be compared.
func (s *side) snapshot() string {
	s.t.Helper()
	a, err := s.a.State()
	s.ok(err)
	c, err := s.c.State()
	s.ok(err)
	pa, err := s.a.unlock(accountVersion, "account", nil, a)
	s.ok(err)
	pc, err := s.a.unlock(conversationVersion, "conversation", s.c.peer, c)
	s.ok(err)
	return string(pa) + "\x00" + string(pc)
}

// reload goes through the store.
func (s *side) reload() {
	s.t.Helper()
	before := s.snapshot()
	sa, err := s.a.State()
	s.ok(err)
	sc, err := s.c.State()
	s.ok(err)
	s.restore(sa, sc)
	if s.snapshot() != before {
		s.t.Fatal("a state that is stored and loaded is another")
	}
}

func (s *side) restore(account, conversation []byte) {
	s.t.Helper()
	peer := s.c.Peer()
	a, err := LoadAccount(s.id, account)
	s.ok(err)
	c, err := a.LoadConversation(peer, conversation)
	s.ok(err)
	s.a, s.c = a, c
}

// fails asserts the error, and that nothing changed.
func (s *side) fails(sealed []byte, want error) {
	s.t.Helper()
	before := s.snapshot()
	o, err := s.try(sealed)
	if !errors.Is(err, want) {
		s.t.Fatalf("%v, %v; want %v", o, err, want)
	}
	if s.snapshot() != before {
		s.t.Fatal("what failed has changed the state")
	}
}

func TestTalk(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	o := bob.open(amy.seal("hello"), "hello")
	if o.Change != First || !o.KeyUsed || o.Device.Address() != amy.a.Address() {
		t.Errorf("%+v", o)
	}
	h := o.Header
	if h.From != amy.a.Address() || h.To != bob.a.Address() || h.FromLabel != "claude:1" || h.ToLabel != "build" || h.ID != "m1" ||
		h.Sequence != 1 || h.Kind != Mail || !h.Created.Equal(noon) || h.FromEpoch != amy.a.Epoch() || h.ToEpoch != bob.a.Epoch() {
		t.Errorf("%+v", h)
	}
	if o := bob.open(amy.seal("again"), "again"); o.Change != Same || o.KeyUsed {
		t.Errorf("%+v", o)
	}
	if bob.c.Ready() {
		t.Error("bob can seal, and has no bundle of amy's")
	}
	if _, err := bob.c.Seal(bob.header(), nil); !errors.Is(err, ErrNotReady) {
		t.Error(err)
	}
	if change, err := bob.c.Learn(amy.bundle()); change != Same || err != nil {
		t.Error(change, err)
	}
	for i := range 20 {
		amy.reload()
		bob.reload()
		text := fmt.Sprint("turn ", i)
		amy.open(bob.seal(text), text)
		bob.open(amy.seal(strings.Repeat(text, i)), strings.Repeat(text, i))
	}
	if len(amy.c.all) != 1 || len(bob.c.all) != 1 {
		t.Errorf("%d and %d sessions for one talk", len(amy.c.all), len(bob.c.all))
	}
}

// Both write first.
func TestCrossing(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	bob.start(amy, amy.claim())
	toBob, toAmy := amy.seal("a"), bob.seal("b")
	bob.open(toBob, "a")
	amy.open(toAmy, "b")
	for i := range 10 {
		toBob, toAmy = amy.seal(fmt.Sprint("a", i)), bob.seal(fmt.Sprint("b", i))
		amy.open(toAmy, fmt.Sprint("b", i))
		bob.open(toBob, fmt.Sprint("a", i))
	}
	// One after the other, they come to one session.
	bob.open(amy.seal("x"), "x")
	amy.open(bob.seal("y"), "y")
	if a, b := amy.c.current(), bob.c.current(); a.id != b.id {
		t.Error("they go on in two sessions")
	}
}

func TestOutOfOrder(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	var letters [][]byte
	for i := range 40 {
		letters = append(letters, amy.seal(fmt.Sprint(i)))
	}
	for i := len(letters) - 1; i >= 0; i-- {
		bob.reload()
		bob.open(letters[i], fmt.Sprint(i))
	}
	for _, l := range letters {
		bob.fails(l, ErrReplay)
	}
}

// Beyond what Olm keeps keys for, a late letter is refused and asked for again.
func TestTooLate(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	first := amy.seal("first")
	for i := range 60 {
		last := amy.seal(fmt.Sprint(i))
		if i == 59 {
			bob.open(last, "59")
		}
	}
	bob.fails(first, ErrReplay)
	l, err := bob.a.Unwrap(first)
	bob.ok(err)
	_, err = bob.c.Open(l)
	r, ok := bob.a.RetryOf(l, err)
	if !ok || !CanRetry(err) || r.ID != "m1" || r.Sequence != 1 || r.Reason != ReasonReplay {
		t.Fatal(r, ok)
	}
	amy.ok(amy.c.Start(bob.claim()))
	again, err := amy.c.Seal(Header{Kind: Mail, ID: r.ID, Sequence: r.Sequence, Attempt: r.Attempt + 1, Created: noon}, []byte("first"))
	amy.ok(err)
	if o := bob.open(again, "first"); o.Header.Attempt != 1 || o.Header.Sequence != 1 {
		t.Errorf("%+v", o.Header)
	}
}

func TestLongChain(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	var first, last []byte
	for i := range MaxUnanswered {
		last = amy.seal(fmt.Sprint(i))
		if i == 0 {
			first = last
		}
	}
	if amy.c.Ready() {
		t.Fatal("ready after 1,000 letters without an answer")
	}
	before := amy.snapshot()
	if _, err := amy.c.Seal(amy.header(), nil); !errors.Is(err, ErrNotReady) || amy.snapshot() != before {
		t.Fatal(err)
	}
	amy.reload() // the count is part of the state
	if amy.c.Ready() {
		t.Fatal("ready after a reload")
	}
	amy.ok(amy.c.Start(nil)) // without a relay: the fallback key of the bundle it has
	next := amy.seal("1000")
	bob.open(first, "0")
	bob.open(next, "1000")
	bob.open(last, "999")
	// An answer makes room.
	if _, err := bob.c.Learn(amy.bundle()); err != nil {
		t.Fatal(err)
	}
	amy.open(bob.seal("answer"), "answer")
	if !amy.c.Ready() {
		t.Error("not ready after an answer")
	}
}

// What a peer writes without having had anything is no answer.
func TestNoAnswer(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("x"), "x")
	must(bob.c.Learn(amy.bundle()))
	amy.open(bob.seal("x"), "x")
	for i := range MaxUnanswered {
		if i%100 == 0 {
			amy.open(bob.seal("deaf"), "deaf")
		}
		amy.seal("into the void")
	}
	if amy.c.Ready() {
		t.Error("letters that answer nothing made room")
	}
}

// One-time keys run out; the fallback key serves, also for many at once.
func TestDrained(t *testing.T) {
	bob := newSide(t, "bob")
	for i := range 4 {
		amy := newSide(t, fmt.Sprint("amy", i))
		amy.meet(bob)
		bob.meet(amy)
		amy.start(bob, nil)
		if o := bob.open(amy.seal("hi"), "hi"); o.KeyUsed {
			t.Error("a fallback key was used up")
		}
	}
}

// Two get the same one-time key from a relay that lies.
func TestOneTimeKeyTwice(t *testing.T) {
	amy, bob := pair(t)
	eve := newSide(t, "eve")
	eve.meet(bob)
	key := bob.claim()
	amy.start(bob, key)
	eve.start(bob, key)
	bob.open(amy.seal("mine"), "mine")
	bob.meet(eve)
	letter := eve.seal("late")
	bob.fails(letter, ErrOneTimeKey)
	if !CanRetry(ErrOneTimeKey) {
		t.Error("no retry")
	}
	eve.ok(eve.c.Start(bob.claim()))
	bob.open(eve.seal("late"), "late")
}

func TestOneTimeKeys(t *testing.T) {
	bob := newSide(t, "bob")
	bob.ok(bob.a.Refill(40))
	keys, err := bob.a.Unpublished()
	bob.ok(err)
	if len(keys) != 60 {
		t.Fatalf("%d keys for a relay that has 40", len(keys))
	}
	bob.ok(bob.a.Refill(40)) // not yet published: no more are needed
	if again, _ := bob.a.Unpublished(); len(again) != 60 || !bytes.Equal(again[0].Encode(), keys[0].Encode()) {
		t.Fatalf("%d", len(again))
	}
	bob.a.MarkPublished(keys[:10])
	if rest, _ := bob.a.Unpublished(); len(rest) != 50 || rest[0].ID() != keys[10].ID() {
		t.Fatalf("%d", len(rest))
	}
	bob.a.MarkPublished(keys)
	seen := map[string]bool{}
	for range 10 { // all are claimed, none is used
		bob.ok(bob.a.Refill(0))
		keys, err := bob.a.Unpublished()
		bob.ok(err)
		bob.a.MarkPublished(keys)
		for _, k := range keys {
			if seen[k.ID()] {
				t.Fatal("an id twice")
			}
			seen[k.ID()] = true
		}
	}
	if n := len(bob.a.olm.OTKeys); n != maxOneTimeKeys {
		t.Errorf("%d keys are kept", n)
	}
	other := newSide(t, "amy")
	if _, err := ParseOneTimeKey(keys[0].Encode(), other.a.Device()); !errors.Is(err, ErrForged) {
		t.Error(err)
	}
	bob.ok(bob.a.Retire(noon, 0))
	if _, err := ParseOneTimeKey(keys[0].Encode(), bob.a.Device()); !errors.Is(err, ErrForged) {
		t.Error("a key of the retired device:", err)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	old := amy.seal("old")
	for range 2 * maxSessions {
		amy.ok(amy.c.Start(bob.claim()))
		bob.open(amy.seal("x"), "x")
	}
	if len(amy.c.all) != maxSessions || len(bob.c.all) != maxSessions {
		t.Errorf("%d, %d", len(amy.c.all), len(bob.c.all))
	}
	bob.open(old, "old") // its one-time key was not used yet
	bob.ok(func() error { _, err := bob.c.Learn(amy.bundle()); return err }())
	amy.c.Reset()
	amy.fails(bob.seal("?"), ErrSession)
	if amy.c.Ready() {
		t.Error("ready after a reset")
	}
}

func TestRotate(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	first, now, old := amy.seal("first"), noon, bob.bundle()
	if turned, err := bob.a.Rotate(now.Add(RotateAfter - time.Second)); turned || err != nil {
		t.Fatal(turned, err)
	}
	for i := range 8 {
		now = now.Add(RotateAfter)
		turned, err := bob.a.Rotate(now)
		if !turned || err != nil {
			t.Fatal(turned, err)
		}
		b := bob.bundle()
		if b.Serial() <= old.Serial() || b.PrekeyID() == old.PrekeyID() || b.Hash() == old.Hash() || b.fallback == old.fallback {
			t.Fatal("the bundle is the same")
		}
		bob.reload()
		switch {
		case now.Before(old.Expires()):
			if _, err := bob.a.Unwrap(first); err != nil {
				t.Fatal("week", i, err)
			}
		case now.Sub(noon) > RotateAfter+KeepPrekeys+RotateAfter:
			bob.fails(first, ErrPrekey)
		}
	}
	if CanRetry(ErrPrekey) {
		t.Error("who could be asked?")
	}
	// Learning an older bundle changes nothing.
	if _, err := amy.c.Learn(bob.bundle()); err != nil {
		t.Fatal(err)
	}
	if _, err := amy.c.Learn(old); err != nil || amy.c.Bundle().Serial() == old.Serial() {
		t.Error("the relay's old bundle was taken")
	}
	amy.ok(amy.c.Start(nil))
	bob.open(amy.seal("now"), "now")
}

// A clock that jumps a year, there and back, costs no key that is in use.
func TestClockJump(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	letter := amy.seal("x")
	for _, at := range []time.Duration{365 * 24 * time.Hour, 0} {
		if turned, err := bob.a.Rotate(noon.Add(at)); !turned || err != nil {
			t.Fatal(turned, err)
		}
	}
	if turned, _ := bob.a.Rotate(noon); turned {
		t.Error("turned again at once")
	}
	bob.open(letter, "x")
	if e, f := newEpoch(noon, 0), newEpoch(noon.Add(-time.Hour), newEpoch(noon, 0)); f <= e {
		t.Error("an epoch went back with the clock")
	}
}

func TestStates(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("x"), "x")
	account, err := bob.a.State()
	bob.ok(err)
	conversation, err := bob.c.State()
	bob.ok(err)
	for _, secret := range [][]byte{bob.a.olm.IdKeys.Curve25519.PrivateKey, bob.a.prekeys[0].seed[:], bob.c.all[0].olm.Ratchet.RootKey} {
		if bytes.Contains(account, secret) || bytes.Contains(conversation, secret) {
			t.Error("a secret stands in a state")
		}
	}
	want := func(err, kind error) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%v, want %v", err, kind)
		}
	}
	_, err = LoadAccount(amy.id, account)
	want(err, ErrState)
	_, err = LoadAccount(bob.id, conversation)
	want(err, ErrState)
	_, err = bob.a.LoadConversation(bob.a.Address(), conversation)
	want(err, ErrState)
	_, err = LoadAccount(bob.id, nil)
	want(err, ErrMalformed)
	_, err = LoadAccount(bob.id, append([]byte{2}, account[1:]...))
	want(err, ErrVersion)
	for i := 1; i < len(account); i += 97 {
		bad := bytes.Clone(account)
		bad[i] ^= 1
		_, err = LoadAccount(bob.id, bad)
		want(err, ErrState)
		_, err = LoadAccount(bob.id, account[:i])
		want(err, ErrState)
	}
}

// The agents' own keys do all of this.
func TestAgentKey(t *testing.T) {
	store, err := agent.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.New("zoe", nil, nil); err != nil {
		t.Fatal(err)
	}
	key, err := store.Key("zoe")
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAccount(key, noon)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseBundle(b.Encode(), key.Address()); err != nil {
		t.Error(err)
	}
	// What the key signs for others, as a relay's nonce, is no statement of ours.
	copy(b.sig[:], key.Sign(b.signed()))
	if _, err := ParseBundle(b.Encode(), key.Address()); !errors.Is(err, ErrForged) {
		t.Error("a plain signature counts:", err)
	}
}
