package seal

import (
	"crypto/hpke"
	"crypto/sha256"
	"fmt"
	"time"
)

// A Bundle is what others need to write to an agent: its device, the HPKE prekey
// of the week and the Olm fallback key, signed by the identity. One that was
// parsed has been verified.
type Bundle struct {
	device   Device
	serial   uint64
	created  time.Time
	expires  time.Time
	fallback [32]byte
	prekey   [prekeyLen]byte
	sig      [64]byte
}

const (
	bundleVersion = 1
	prekeyLen     = 1216
	// BundleLen is the length of every encoded bundle.
	BundleLen = 1 + deviceLen + 3*8 + 32 + prekeyLen + 64
	// OneTimeKeyLen is the length of every encoded one-time key.
	OneTimeKeyLen = 1 + 8 + 4 + 32 + 64
)

// Device is the agent's device.
func (b *Bundle) Device() Device { return b.device }

// Serial grows with every new bundle of an agent: it is its time in milliseconds,
// or one more than the last.
func (b *Bundle) Serial() uint64 { return b.serial }

// Created is when its prekey was made.
func (b *Bundle) Created() time.Time { return b.created }

// Expires is until when letters to its prekey will open at least. A letter that
// has no receipt by then is sealed again. The bundle of an agent that has been
// away is used all the same: a prekey is kept until it was replaced, and longer.
func (b *Bundle) Expires() time.Time { return b.expires }

// Hash names the bundle.
func (b *Bundle) Hash() [32]byte { return sha256.Sum256(b.Encode()) }

// PrekeyID is what letters carry in clear.
func (b *Bundle) PrekeyID() PrekeyID { return prekeyID(b.prekey[:]) }

// A PrekeyID names an HPKE public key by its hash, so that keys of a store and
// of its restored copy never share one.
type PrekeyID [8]byte

func prekeyID(public []byte) (id PrekeyID) {
	sum := sha256.Sum256(append([]byte("conch seal v1 prekey\x00"), public...))
	copy(id[:], sum[:])
	return id
}

func (b *Bundle) signed() []byte {
	var w writer
	w.u8(bundleVersion)
	w.raw(b.device.Encode())
	w.u64(b.serial)
	w.u64(uint64(b.created.UnixMilli()))
	w.u64(uint64(b.expires.UnixMilli()))
	w.raw(b.fallback[:])
	w.raw(b.prekey[:])
	return w.b
}

// Encode gives the form that ParseBundle reads.
func (b *Bundle) Encode() []byte { return append(b.signed(), b.sig[:]...) }

// ParseBundle reads a bundle and verifies it against the agent's address.
func ParseBundle(data []byte, address string) (*Bundle, error) {
	public, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	b, err := readBundle(data)
	if err != nil {
		return nil, err
	}
	if err := b.device.verify(public); err != nil {
		return nil, err
	}
	if !verify(public, signBundle, b.signed(), b.sig[:]) {
		return nil, fmt.Errorf("bundle: %w", ErrForged)
	}
	if weakX25519(b.fallback[:]) || weakX25519(b.prekey[prekeyLen-32:]) {
		return nil, fmt.Errorf("bundle: %w", ErrWeakKey)
	}
	if _, err := hpke.MLKEM768X25519().NewPublicKey(b.prekey[:]); err != nil {
		return nil, fmt.Errorf("bundle: prekey: %w", ErrMalformed)
	}
	return b, nil
}

func readBundle(data []byte) (*Bundle, error) {
	r := reader{b: data}
	if err := r.version("bundle", bundleVersion); err != nil {
		return nil, err
	}
	b := &Bundle{}
	device := r.raw(deviceLen)
	b.serial = r.u64()
	created, expires := r.u64(), r.u64()
	r.fill(b.fallback[:])
	r.fill(b.prekey[:])
	r.fill(b.sig[:])
	if err := r.end("bundle"); err != nil {
		return nil, err
	}
	if created > maxMilli || expires > maxMilli {
		return nil, fmt.Errorf("bundle: time: %w", ErrMalformed)
	}
	b.created, b.expires = milli(created), milli(expires)
	var err error
	b.device, err = readDevice(device)
	return b, err
}

// maxMilli is the year 9999: what no honest clock says, and JSON cannot write.
const maxMilli = 253402300799999

func milli(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// A OneTimeKey starts one session. One that was parsed has been verified.
type OneTimeKey struct {
	epoch Epoch
	id    uint32
	key   [32]byte
	sig   [64]byte
}

// ID names the key among all of its agent's, of earlier devices too.
func (k OneTimeKey) ID() string { return fmt.Sprintf("%s-%08x", k.epoch, k.id) }

func (k OneTimeKey) signed() []byte {
	var w writer
	w.u8(bundleVersion)
	w.u64(uint64(k.epoch))
	w.u32(k.id)
	w.raw(k.key[:])
	return w.b
}

// Encode gives the form that ParseOneTimeKey reads.
func (k OneTimeKey) Encode() []byte { return append(k.signed(), k.sig[:]...) }

// ParseOneTimeKey reads a one-time key and verifies that it is of the device.
func ParseOneTimeKey(data []byte, of Device) (*OneTimeKey, error) {
	r := reader{b: data}
	if err := r.version("one-time key", bundleVersion); err != nil {
		return nil, err
	}
	k := &OneTimeKey{epoch: Epoch(r.u64()), id: r.u32()}
	r.fill(k.key[:])
	r.fill(k.sig[:])
	if err := r.end("one-time key"); err != nil {
		return nil, err
	}
	if of.IsZero() || k.epoch != of.epoch || !verify(of.public, signOneTime, k.signed(), k.sig[:]) {
		return nil, fmt.Errorf("one-time key: %w", ErrForged)
	}
	if weakX25519(k.key[:]) {
		return nil, fmt.Errorf("one-time key: %w", ErrWeakKey)
	}
	return k, nil
}
