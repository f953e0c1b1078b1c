package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"filippo.io/edwards25519"
	"maunium.net/go/mautrix/crypto/goolm/session"
)

// Every bit of a letter counts, first letters and later ones.
func TestBitFlips(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	first, second := amy.seal("first"), amy.seal("second")
	flip := func(sealed []byte) {
		t.Helper()
		before := bob.snapshot()
		for i := range sealed {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1 << (i % 8)
			if o, err := bob.try(bad); err == nil {
				t.Fatalf("opened %q with byte %d changed", o.Body, i)
			}
		}
		for _, n := range []int{0, 1, clearLen, contentAt - 1, contentAt, len(sealed) - 1} {
			if _, err := bob.try(sealed[:n]); err == nil {
				t.Fatalf("opened %d of %d bytes", n, len(sealed))
			}
		}
		if _, err := bob.try(append(bytes.Clone(sealed), 0)); err == nil {
			t.Fatal("opened with a byte more")
		}
		if bob.snapshot() != before {
			t.Fatal("the state changed")
		}
	}
	flip(first)
	bob.open(first, "first")
	flip(second)
	bob.open(second, "second")
}

// rewrap is what anybody can do who has bob's bundle: an outer layer of his own
// around an inner one.
func rewrap(t *testing.T, to *side, l *Letter, header []byte) []byte {
	t.Helper()
	d, err := readDevice(l.device)
	if err != nil {
		t.Fatal(err)
	}
	out, err := wrap(to.bundle(), header, d, l.form, l.payload)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The outer layer authenticates nobody, so the inner one has to notice.
func TestHeaderIsBound(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	l, err := bob.a.Unwrap(amy.seal("pay 1"))
	bob.ok(err)
	for _, change := range []func(h *Header){
		func(h *Header) { h.Kind = Control },
		func(h *Header) { h.ID = "m2" },
		func(h *Header) { h.Lane++ },
		func(h *Header) { h.Sequence++ },
		func(h *Header) { h.Attempt++ },
		func(h *Header) { h.Created = h.Created.Add(time.Millisecond) },
		func(h *Header) { h.FromLabel = "main" },
		func(h *Header) { h.ToLabel = "" },
	} {
		h := l.Header
		change(&h)
		header, err := h.encode()
		bob.ok(err)
		bob.fails(rewrap(t, bob, l, header), ErrHeader)
	}
	eve := newSide(t, "eve")
	for _, c := range []struct {
		change func(h *Header)
		want   error
	}{
		{func(h *Header) { h.From = eve.a.Address() }, ErrForged},
		{func(h *Header) { h.FromEpoch++ }, ErrForged},
		{func(h *Header) { h.ToEpoch++ }, ErrEpoch},
		{func(h *Header) { h.To = eve.a.Address() }, ErrNotForMe},
		{func(h *Header) { h.Prekey[0]++ }, ErrHeader},
	} {
		h := l.Header
		c.change(&h)
		header, err := h.encode()
		bob.ok(err)
		bob.fails(rewrap(t, bob, l, header), c.want)
	}
	// Under an outer layer of anybody's the letter itself is still amy's.
	bob.open(rewrap(t, bob, l, l.header), "pay 1")
}

func TestForgedSender(t *testing.T) {
	amy, bob := pair(t)
	eve := newSide(t, "eve")
	eve.meet(bob)
	eve.start(bob, bob.claim())
	l, err := bob.a.Unwrap(eve.seal("it is me, amy"))
	bob.ok(err)

	// In amy's name with eve's device, and with amy's, which is public.
	h := l.Header
	h.From, h.FromEpoch = amy.a.Address(), amy.a.Epoch()
	header, err := h.encode()
	bob.ok(err)
	bob.fails(rewrap(t, bob, l, header), ErrForged)
	l.device = amy.a.Device().Encode()
	bob.fails(rewrap(t, bob, l, header), ErrForged)

	// A device that eve signed for amy's address.
	d := amy.a.Device()
	d.olm = eve.a.device.olm
	d.sig, err = eve.a.sign(signDevice, d.signed())
	bob.ok(err)
	l.device = d.Encode()
	bob.fails(rewrap(t, bob, l, header), ErrForged)

	// A session of eve's named as amy's.
	amy.start(bob, bob.claim())
	first := amy.seal("hello")
	bob.open(first, "hello")
	own, err := bob.a.Unwrap(amy.seal("next"))
	bob.ok(err)
	stolen := *own
	stolen.payload = append(bytes.Clone(own.payload[:16]), l.payload[16:]...)
	bob.fails(rewrap(t, bob, &stolen, own.header), ErrForged)
	stolen.form = formOlm
	bob.fails(rewrap(t, bob, &stolen, own.header), ErrForged)
	// And amy's session by another number.
	stolen = *own
	stolen.payload = append(make([]byte, 16), own.payload[16:]...)
	bob.fails(rewrap(t, bob, &stolen, own.header), ErrOneTimeKey)
	bob.open(rewrap(t, bob, own, own.header), "next")
}

func TestWrongRecipient(t *testing.T) {
	amy, bob := pair(t)
	eve := newSide(t, "eve")
	eve.meet(amy)
	amy.start(bob, bob.claim())
	letter := amy.seal("for bob")
	eve.fails(letter, ErrPrekey)
	// Bob hands it on: eve gets it unwrapped and wrapped for her.
	l, err := bob.a.Unwrap(letter)
	bob.ok(err)
	eve.fails(rewrap(t, eve, l, l.header), ErrHeader) // bob's prekey is in the header
	h := l.Header
	h.Prekey, h.To, h.ToEpoch = eve.bundle().PrekeyID(), eve.a.Address(), eve.a.Epoch()
	header, err := h.encode()
	bob.ok(err)
	eve.fails(rewrap(t, eve, l, header), ErrOneTimeKey)
}

// What comes from a version to come says so, and what is malformed too.
func TestVersions(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	letter := amy.seal("x")
	bob.fails(append([]byte{letterVersion + 1}, letter[1:]...), ErrVersion)
	bob.fails(append([]byte{0}, letter[1:]...), ErrMalformed)
	bob.fails(append(bytes.Clone(letter), make([]byte, MaxSealed)...), ErrTooLarge)
	b := bob.bundle().Encode()
	if _, err := ParseBundle(append([]byte{bundleVersion + 1}, b[1:]...), bob.a.Address()); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if _, err := ParseBundle(append(b, 0), bob.a.Address()); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	for _, h := range []Header{
		{Kind: 0, ID: "x", Created: noon},
		{Kind: lastKind + 1, ID: "x", Created: noon},
		{Kind: Mail, ID: "", Created: noon},
		{Kind: Mail, ID: strings.Repeat("x", 129), Created: noon},
		{Kind: Mail, ID: "x", Created: noon, ToLabel: "../x"},
		{Kind: Mail, ID: "x", Created: noon, FromLabel: strings.Repeat("x", 33)},
		{Kind: Mail, ID: "x"},
		{Kind: Mail, ID: "x", Created: noon, Sequence: 1 << 63},
	} {
		before := amy.snapshot()
		if _, err := amy.c.Seal(h, nil); !errors.Is(err, ErrMalformed) || amy.snapshot() != before {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if _, err := amy.c.Seal(amy.header(), make([]byte, MaxBody+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	big, err := amy.c.Seal(amy.header(), make([]byte, MaxBody))
	amy.ok(err)
	if len(big) > MaxSealed {
		t.Errorf("%d bytes", len(big))
	}
	bob.open(big, string(make([]byte, MaxBody)))
}

// Short letters are of one size, whatever they are.
func TestSizes(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	first := amy.seal("")
	bob.open(first, "")
	bob.ok(func() error { _, err := bob.c.Learn(amy.bundle()); return err }())
	h := bob.header()
	h.ID, h.FromLabel = strings.Repeat("i", 128), strings.Repeat("l", 32)
	later, err := bob.c.Seal(h, []byte("short"))
	bob.ok(err)
	statement, err := amy.a.Statement(bob.bundle(), Header{Kind: RetryKind, ID: "x", Created: noon}, Retry{ID: "m1", Reason: ReasonEpoch}.Encode())
	amy.ok(err)
	if len(first) != len(later) || len(first) != len(statement) {
		t.Errorf("%d, %d, %d bytes", len(first), len(later), len(statement))
	}
	last := 0
	for n := 1; n < 1<<22; n += 1 + n/50 {
		c := sizeClass(n)
		if c < n || c < last || sizeClass(c) != c || (n > wideClass && c > n+n/8) || (n > minClass && c >= 2*n) {
			t.Fatalf("%d bytes are of size %d", n, c)
		}
		last = c
	}
	// The relay's view: nothing of the header.
	for _, s := range [][]byte{[]byte("claude:1"), []byte("build"), amy.id.Public(), []byte(amy.a.Address()), amy.a.device.olm[:]} {
		if bytes.Contains(first, s) {
			t.Errorf("%q can be read", s)
		}
	}
}

// smallPoints are encodings of points that vanish when multiplied by 8.
func smallPoints(t *testing.T) (points [][]byte) {
	t.Helper()
	for range 200 {
		// A random point times the group's order has only its small part left.
		b := make([]byte, 32)
		rand.Read(b)
		p, err := new(edwards25519.Point).SetBytes(b)
		if err != nil {
			continue
		}
		one := make([]byte, 32)
		one[0] = 1
		minusOne := edwards25519.NewScalar().Negate(must(edwards25519.NewScalar().SetCanonicalBytes(one)))
		q := new(edwards25519.Point).ScalarMult(minusOne, p)
		q.Add(q, p) // (l-1)P + P
		points = append(points, q.Bytes())
	}
	return points
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestSmallOrderKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range smallPoints(t) {
		seen[hex.EncodeToString(p)] = true
		if !smallOrder(p) {
			t.Errorf("%x passes", p)
		}
	}
	if len(seen) != 8 {
		t.Errorf("found %d of the 8 points", len(seen))
	}
	if smallOrder(named("amy").Public()) {
		t.Error("a good key is refused")
	}
	// For the neutral point anybody can sign. It is refused as an address.
	neutral := ed25519.PublicKey(append([]byte{1}, make([]byte, 31)...))
	s := must(edwards25519.NewScalar().SetUniformBytes(bytes.Repeat([]byte{7}, 64)))
	sig := append(new(edwards25519.Point).ScalarBaseMult(s).Bytes(), s.Bytes()...)
	if !ed25519.Verify(neutral, []byte("anything"), sig) {
		t.Error("the attack does not work any more")
	}
	if verify(neutral, signDevice, []byte("anything"), sig) {
		t.Error("anybody's signature counts")
	}

	amy, bob := pair(t)
	_, err := amy.a.Conversation("11111111111111111111111111111111")
	if !errors.Is(err, ErrWeakKey) {
		t.Error(err)
	}
	for _, weak := range [][32]byte{{}, {1}} {
		d := bob.a.Device()
		d.olm = weak
		d.sig = must(bob.a.sign(signDevice, d.signed()))
		if _, err := ParseDevice(d.Encode(), bob.a.Address()); !errors.Is(err, ErrWeakKey) {
			t.Error(err)
		}
		b := bob.bundle()
		b.fallback = weak
		b.sig = must(bob.a.sign(signBundle, b.signed()))
		if _, err := ParseBundle(b.Encode(), bob.a.Address()); !errors.Is(err, ErrWeakKey) {
			t.Error(err)
		}
		b = bob.bundle()
		copy(b.prekey[prekeyLen-32:], weak[:])
		b.sig = must(bob.a.sign(signBundle, b.signed()))
		if _, err := ParseBundle(b.Encode(), bob.a.Address()); !errors.Is(err, ErrWeakKey) {
			t.Error(err)
		}
		k := *bob.claim()
		k.key = weak
		k.sig = must(bob.a.sign(signOneTime, k.signed()))
		if _, err := ParseOneTimeKey(k.Encode(), bob.a.Device()); !errors.Is(err, ErrWeakKey) {
			t.Error(err)
		}
	}

	// A first letter whose base key is weak.
	amy.start(bob, bob.claim())
	l, err := bob.a.Unwrap(amy.seal("x"))
	bob.ok(err)
	weak := make([]byte, 32)
	forged := *l
	base := []byte(amy.c.all[0].olm.AliceBaseKey)
	forged.payload = bytes.ReplaceAll(l.payload, base, weak)
	if bytes.Equal(forged.payload, l.payload) {
		t.Fatal("no base key found")
	}
	bob.fails(rewrap(t, bob, &forged, l.header), ErrForged)
}

func TestForgedBundle(t *testing.T) {
	amy, bob := pair(t)
	eve := newSide(t, "eve")
	good := bob.bundle().Encode()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := ParseBundle(bad, bob.a.Address()); err == nil {
			t.Fatalf("byte %d does not count", i)
		}
	}
	if _, err := ParseBundle(good, eve.a.Address()); !errors.Is(err, ErrForged) {
		t.Error(err)
	}
	// Bob's device with eve's prekey, signed by eve.
	b := eve.bundle()
	b.device = bob.a.Device()
	b.sig = must(eve.a.sign(signBundle, b.signed()))
	for _, who := range []*side{bob, eve} {
		if _, err := ParseBundle(b.Encode(), who.a.Address()); !errors.Is(err, ErrForged) {
			t.Error(err)
		}
	}
	if _, err := amy.c.Learn(eve.bundle()); !errors.Is(err, ErrForged) {
		t.Error(err)
	}
	k := bob.claim().Encode()
	for i := range k {
		bad := bytes.Clone(k)
		bad[i] ^= 0x10
		if _, err := ParseOneTimeKey(bad, bob.a.Device()); err == nil {
			t.Fatalf("byte %d of a one-time key does not count", i)
		}
	}
	// A signature for one purpose is none for another.
	d := bob.a.Device()
	if verify(bob.id.Public(), signBundle, d.signed(), d.sig[:]) || !verify(bob.id.Public(), signDevice, d.signed(), d.sig[:]) {
		t.Error("purposes are not apart")
	}
}

// A session that a letter began is not begun with a key it did not name.
func TestInnerIdentity(t *testing.T) {
	amy, bob := pair(t)
	eve := newSide(t, "eve")
	amy.start(bob, bob.claim())
	_ = amy.seal("x")
	// Eve begins a session with bob, and puts amy's device beside it.
	key := bob.claim()
	s, err := session.NewOutboundOlmSession(eve.a.olm.IdKeys.Curve25519, bob.a.device.olm[:], key.key[:])
	bob.ok(err)
	h := amy.header()
	header, err := amy.a.address(&h, bob.bundle())
	bob.ok(err)
	_, text, err := s.Encrypt(append(digest(header, []byte("x")), 'x'))
	bob.ok(err)
	raw, err := base64.RawStdEncoding.DecodeString(string(text))
	bob.ok(err)
	sid := sessionID(s)
	out, err := wrap(bob.bundle(), header, amy.a.Device(), formFirst, append(sid[:], raw...))
	bob.ok(err)
	bob.fails(out, ErrForged)
}

// The outer layer is bound to who it is for: the same prekey under another
// identity opens nothing.
func TestOuterInfo(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, nil)
	letter := amy.seal("x")
	private := must(bob.a.findPrekey(bob.bundle().PrekeyID()))
	for _, who := range []*side{amy, bob} {
		r, err := hpke.NewRecipient(letter[clearLen:clearLen+encapLen], private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), append([]byte(letterInfo), who.id.Public()...))
		bob.ok(err)
		_, err = r.Open(letter[:clearLen], letter[clearLen+encapLen:contentAt])
		if (err == nil) != (who == bob) {
			t.Error(who == bob, err)
		}
	}
}

func TestDevices(t *testing.T) {
	amy, bob := pair(t)
	pinned := bob.a.Device()
	if got, err := ParseDevice(pinned.Encode(), bob.a.Address()); err != nil || got.Compare(pinned) != Same || got.Compare(Device{}) != First {
		t.Fatal(err)
	}
	number := SafetyNumber(amy.a.Device(), pinned)
	if number != SafetyNumber(pinned, amy.a.Device()) || len(number) != 71 || strings.Count(number, " ") != 11 || strings.Trim(number, "0123456789 ") != "" {
		t.Errorf("%q", number)
	}
	bob.ok(bob.a.Retire(noon, 0))
	next := bob.a.Device()
	if c := next.Compare(pinned); c != Successor {
		t.Error(c)
	}
	if c := pinned.Compare(next); c != Earlier {
		t.Error(c)
	}
	if SafetyNumber(amy.a.Device(), next) == number {
		t.Error("the safety number is the same")
	}
	bob.ok(bob.a.Retire(noon, 0))
	if c := bob.a.Device().Compare(pinned); c != Changed {
		t.Error("two steps on:", c)
	}
	// The identity alone makes no successor, whatever it claims.
	thief := newSide(t, "bob")
	d := thief.a.Device()
	d.epoch, d.before = next.epoch, pinned.epoch
	d.proof = next.proof
	d.sig = must(thief.a.sign(signDevice, d.signed()))
	got, err := ParseDevice(d.Encode(), bob.a.Address())
	if err != nil || got.Compare(pinned) != Changed {
		t.Error(err, got.Compare(pinned))
	}
	if got.Compare(next) != Fork || got.Compare(amy.a.Device()) != Another {
		t.Error(got.Compare(next))
	}
	for _, c := range []Change{Same, First, Successor, Changed, Earlier, Fork, Another} {
		if strings.Contains(c.String(), "%") || c.String() == "" {
			t.Error(c)
		}
	}
	if !next.Epoch().Time().Equal(noon) && next.Epoch().Time().Sub(noon) > time.Second {
		t.Error(next.Epoch().Time())
	}
	if next.epoch>>63 != 0 {
		t.Error("an epoch that is no int64")
	}
}

// A peer goes back to its backup.
func TestRestored(t *testing.T) {
	amy, bob := pair(t)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("1"), "1")
	bob.ok(func() error { _, err := bob.c.Learn(amy.bundle()); return err }())
	amy.open(bob.seal("2"), "2")
	account, conversation := must(bob.a.State()), must(bob.c.State())
	underWay := bob.seal("sent after the backup, late")
	bob.open(amy.seal("3"), "3")
	amy.open(bob.seal("4"), "4")
	toOld := amy.seal("5")

	bob.restore(account, conversation)
	bob.ok(bob.a.Retire(noon.Add(time.Hour), 0))
	// Stored and loaded: the ratchets are gone, who the peer is stays.
	bob.restore(must(bob.a.State()), conversation)
	if len(bob.c.all) != 0 || bob.c.Device().IsZero() || bob.c.Ready() {
		t.Error("sessions of the retired device are there")
	}
	// What was sent to the old device is told from all else, and asked for again.
	bob.fails(toOld, ErrEpoch)
	l := must(bob.a.Unwrap(toOld))
	r, ok := bob.a.RetryOf(l, ErrEpoch)
	if !ok || r.ID != l.Header.ID || r.Bundle != bob.bundle().Hash() {
		t.Error(r, ok)
	}
	// Bob's first letter as a new device.
	bob.seq = 0
	bob.ok(bob.c.Start(amy.claim()))
	o := amy.open(bob.seal("6"), "6")
	if o.Change != Successor || o.Header.Sequence != 1 || o.Header.FromEpoch != bob.a.Epoch() {
		t.Errorf("%+v", o)
	}
	if amy.c.Ready() {
		t.Error("amy would seal to the old bundle")
	}
	// Late mail of the old device opens and does not turn amy back.
	if o := amy.open(underWay, "sent after the backup, late"); o.Change != Earlier {
		t.Error(o.Change)
	}
	if amy.c.Device().Compare(bob.a.Device()) != Same {
		t.Error("amy went back to the old device")
	}
	if change, err := amy.c.Learn(bob.bundle()); change != Same || err != nil {
		t.Error(change, err)
	}
	again, err := amy.c.Seal(Header{Kind: Mail, ID: r.ID, Sequence: r.Sequence, Attempt: 1, Created: noon}, []byte("5"))
	amy.ok(err)
	bob.open(again, "5")
}

func TestStatements(t *testing.T) {
	amy, bob := pair(t)
	body := Retry{ID: "m7", Epoch: bob.a.Epoch(), Lane: 1, Sequence: 7, Attempt: 2, Reason: ReasonSession, Bundle: amy.bundle().Hash()}
	seal := func(h Header, body []byte) *Letter {
		t.Helper()
		return must(bob.a.Unwrap(must(amy.a.Statement(bob.bundle(), h, body))))
	}
	h := Header{Kind: RetryKind, ID: "r1", Created: noon}
	l := seal(h, body.Encode())
	if !l.Statement {
		t.Fatal("no statement")
	}
	o, err := bob.a.OpenStatement(l, Device{}, noon.Add(24*time.Hour))
	if err != nil || o.Change != First || o.Header.From != amy.a.Address() {
		t.Fatal(o, err)
	}
	if got, err := ParseRetry(o.Body); err != nil || got != body {
		t.Error(got, err)
	}
	if o, err = bob.a.OpenStatement(l, amy.a.Device(), noon); err != nil || o.Change != Same {
		t.Error(o, err)
	}
	if _, err := bob.c.Open(l); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	for _, at := range []time.Duration{StatementAge + time.Minute, -StatementSkew - time.Minute} {
		if _, err := bob.a.OpenStatement(l, Device{}, noon.Add(at)); !errors.Is(err, ErrStale) {
			t.Error(at, err)
		}
	}
	// Another's header, another's device, another's body, a letter in its place.
	fails := func(l *Letter, header []byte, want error) {
		t.Helper()
		got, err := bob.a.Unwrap(rewrap(t, bob, l, header))
		bob.ok(err)
		if _, err := bob.a.OpenStatement(got, Device{}, noon); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	other := l.Header
	other.ID = "r2"
	fails(l, must(other.encode()), ErrForged)
	eve := newSide(t, "eve")
	bad := *l
	bad.device = eve.a.Device().Encode()
	fails(&bad, l.header, ErrForged)
	bad = *l
	bad.payload = append(bytes.Clone(l.payload), 'x')
	fails(&bad, l.header, ErrForged)
	bad.payload = l.payload[:63]
	fails(&bad, l.header, ErrMalformed)
	mail := l.Header
	mail.Kind = Mail
	fails(l, must(mail.encode()), ErrMalformed)
	if _, err := amy.a.Statement(bob.bundle(), Header{Kind: Mail, ID: "x", Created: noon}, nil); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if _, err := amy.a.Statement(bob.bundle(), h, make([]byte, MaxStatement+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if o, err := bob.a.OpenStatement(seal(h, make([]byte, MaxStatement)), Device{}, noon); err != nil || len(o.Body) != MaxStatement {
		t.Error(err)
	}
	amy.start(bob, nil)
	if _, err := bob.a.OpenStatement(must(bob.a.Unwrap(amy.seal("x"))), Device{}, noon); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	for i := range body.Encode() {
		if _, err := ParseRetry(body.Encode()[:i]); !errors.Is(err, ErrMalformed) {
			t.Error(i, err)
		}
	}
	for r := Reason(1); r <= lastReason; r++ {
		if strings.Contains(r.String(), fmt.Sprint(uint8(r))) {
			t.Error(r)
		}
	}
	if _, ok := bob.a.RetryOf(l, ErrPrekey); ok {
		t.Error("a retry for what has no sender")
	}
}
