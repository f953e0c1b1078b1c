package seal

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/conchsh/conch/internal/agent"
)

// An Epoch numbers the devices of an agent: the time in milliseconds when one
// was made, and 20 random bits, since a backup can be restored more than once.
// A later device has a higher one. It fits a signed 64-bit column.
type Epoch uint64

const epochRandom = 20

// newEpoch is later than after, also when the clock is not.
func newEpoch(now time.Time, after Epoch) Epoch {
	var b [4]byte
	rand.Read(b[:]) // never fails
	ms := max(uint64(max(now.UnixMilli(), 0)), uint64(after>>epochRandom)+1)
	return Epoch(ms<<epochRandom | uint64(binary.BigEndian.Uint32(b[:])>>(32-epochRandom)))
}

// Time is when the device was made, by its own clock.
func (e Epoch) Time() time.Time { return time.UnixMilli(int64(e >> epochRandom)).UTC() }

func (e Epoch) String() string { return fmt.Sprintf("%016x", uint64(e)) }

// A Device is one store of an agent, as its identity vouches for it. One that is
// not zero has been verified.
type Device struct {
	public ed25519.PublicKey
	epoch  Epoch
	olm    [32]byte // the Olm account's Curve25519 key
	sign   [32]byte // its Ed25519 key, which vouches for the next device only
	before Epoch    // the device that was retired for this one; 0: none
	proof  [64]byte // that device's signature
	sig    [64]byte // the identity's
}

const (
	deviceVersion = 1
	deviceLen     = 1 + 32 + 8 + 32 + 32 + 8 + 64 + 64
)

// IsZero reports whether there is no device.
func (d Device) IsZero() bool { return d.public == nil }

// Address is the agent's.
func (d Device) Address() string { return agent.Address(d.public) }

// Epoch tells the agent's devices apart.
func (d Device) Epoch() Epoch { return d.epoch }

// keys is what the device before signs, and what a safety number covers.
func (d Device) keys() []byte {
	var w writer
	w.u8(deviceVersion)
	w.raw(d.public)
	w.u64(uint64(d.epoch))
	w.raw(d.olm[:])
	w.raw(d.sign[:])
	return w.b
}

func (d Device) signed() []byte {
	w := writer{d.keys()}
	w.u64(uint64(d.before))
	w.raw(d.proof[:])
	return w.b
}

// Encode gives the form that ParseDevice reads: what a caller pins.
func (d Device) Encode() []byte { return append(d.signed(), d.sig[:]...) }

// ParseDevice reads a device and verifies it against the agent's address.
func ParseDevice(data []byte, address string) (Device, error) {
	public, err := parseAddress(address)
	if err != nil {
		return Device{}, err
	}
	d, err := readDevice(data)
	if err != nil {
		return Device{}, err
	}
	return d, d.verify(public)
}

func readDevice(data []byte) (Device, error) {
	r := reader{b: data}
	if err := r.version("device", deviceVersion); err != nil {
		return Device{}, err
	}
	d := Device{public: make([]byte, ed25519.PublicKeySize)}
	r.fill(d.public)
	d.epoch = Epoch(r.u64())
	r.fill(d.olm[:])
	r.fill(d.sign[:])
	d.before = Epoch(r.u64())
	r.fill(d.proof[:])
	r.fill(d.sig[:])
	if err := r.end("device"); err != nil {
		return Device{}, err
	}
	return d, nil
}

func (d Device) verify(public ed25519.PublicKey) error {
	switch {
	case d.epoch == 0 || d.epoch>>63 != 0 || d.before >= d.epoch:
		return fmt.Errorf("device: epoch %s: %w", d.epoch, ErrMalformed)
	case !bytes.Equal(d.public, public) || !verify(public, signDevice, d.signed(), d.sig[:]):
		return fmt.Errorf("device: %w", ErrForged)
	case weakX25519(d.olm[:]) || smallOrder(d.sign[:]):
		return fmt.Errorf("device: %w", ErrWeakKey)
	}
	return nil
}

func (d Device) same(o Device) bool { return d.epoch == o.epoch && d.olm == o.olm && d.sign == o.sign }

// follows reports whether the known device vouches for d.
func (d Device) follows(known Device) bool {
	return d.before == known.epoch && ed25519.Verify(known.sign[:], append([]byte(signSuccessor), d.keys()...), d.proof[:])
}

// A Change is what a device is to the one that is known of its agent.
type Change uint8

const (
	Same Change = iota
	First
	// Successor: later, and the known device signed it before it retired. Who
	// made it had that store, or a backup of it, and the identity.
	Successor
	// Changed: later, with the identity's signature alone. A store that was
	// made anew, a key used in a second home, or a stolen key file: for a human
	// to accept.
	Changed
	// Earlier: of a time before the known one. Its mail is late, not wrong.
	Earlier
	// Fork: same epoch, other keys.
	Fork
	// Another: of another agent.
	Another
)

func (c Change) String() string {
	switch c {
	case Same:
		return "same"
	case First:
		return "first"
	case Successor:
		return "successor"
	case Changed:
		return "changed"
	case Earlier:
		return "earlier"
	case Fork:
		return "fork"
	}
	return "another"
}

// Compare says what d is to the device that is known, or pinned.
func (d Device) Compare(known Device) Change {
	switch {
	case known.IsZero():
		return First
	case !bytes.Equal(d.public, known.public):
		return Another
	case d.epoch > known.epoch && d.follows(known):
		return Successor
	case d.epoch > known.epoch:
		return Changed
	case d.epoch < known.epoch:
		return Earlier
	case !d.same(known):
		return Fork
	}
	return Same
}

// safetyRounds makes each guess at a device with the same digits cost as much
// as that many hashes.
const safetyRounds = 5200

// SafetyNumber gives 60 digits for two people to compare, in groups of five. It
// is the same from both sides. Who has one half of it, 30 digits of one device,
// fits it to no other.
func SafetyNumber(a, b Device) string {
	x, y := a.digits(), b.digits()
	if cmp.Compare(x, y) > 0 {
		x, y = y, x
	}
	all := x + y
	var groups []string
	for ; all != ""; all = all[5:] {
		groups = append(groups, all[:5])
	}
	return strings.Join(groups, " ")
}

func (d Device) digits() string {
	what := append([]byte("conch safety number v1\x00"), d.keys()...)
	sum := sha512.Sum512(what)
	for range safetyRounds {
		sum = sha512.Sum512(append(sum[:], what...))
	}
	var s strings.Builder
	for i := 0; i < 30; i += 5 {
		// 8 bytes a group, so that no digit is likelier than another.
		fmt.Fprintf(&s, "%05d", binary.BigEndian.Uint64(sum[i/5*8:])%100000)
	}
	return s.String()
}

func parseAddress(address string) (ed25519.PublicKey, error) {
	public, err := agent.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if smallOrder(public) {
		return nil, fmt.Errorf("address %s: %w", address, ErrWeakKey)
	}
	return public, nil
}
