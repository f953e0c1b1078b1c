package seal

import (
	"bytes"
	"crypto/hpke"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/conchsh/conch/internal/agent"
	"golang.org/x/crypto/chacha20poly1305"
	"maunium.net/go/mautrix/crypto/goolm/account"
	olmcrypto "maunium.net/go/mautrix/crypto/goolm/crypto"
)

const (
	// OneTimeKeys is how many a relay should have to hand out.
	OneTimeKeys = 100
	// maxOneTimeKeys bounds those that were handed out and never used.
	maxOneTimeKeys = 3 * OneTimeKeys

	// RotateAfter is the age at which Rotate makes new prekeys.
	RotateAfter = 7 * 24 * time.Hour
	// KeepPrekeys is how long the old ones open letters after that.
	KeepPrekeys = 30 * 24 * time.Hour
	// Clocks jump: so many prekeys are kept whatever they say, and no more
	// than the other number.
	minPrekeys, maxPrekeys = 5, 32

	accountVersion = 1
)

// An Account is the secret half of an agent's device.
type Account struct {
	id      Identity
	state   []byte // the key that states are encrypted with
	device  Device
	serial  uint64
	olm     *account.Account
	prekeys []prekey // newest first; the first is the current one
}

// A prekey is an HPKE key and the Olm fallback key of the same week.
type prekey struct {
	id       PrekeyID
	seed     [32]byte // of the HPKE key
	fallback [32]byte
	created  time.Time
	replaced time.Time // zero for the current one
	// Of a device that was retired: it opens the outer layer, so that senders
	// can be asked to write again, and begins no session.
	retired bool
}

// NewAccount makes the first device of an identity, with prekeys and no one-time
// keys.
func NewAccount(id Identity, now time.Time) (*Account, error) {
	a, err := emptyAccount(id)
	if err != nil {
		return nil, err
	}
	return a, a.renew(now, 0)
}

func emptyAccount(id Identity) (*Account, error) {
	key, err := id.Derive("seal state v1", chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	if smallOrder(id.Public()) {
		return nil, fmt.Errorf("identity: %w", ErrWeakKey)
	}
	return &Account{id: id, state: key}, nil
}

// renew makes the account a new device.
func (a *Account) renew(now time.Time, after Epoch) error {
	olm, err := account.NewAccount()
	if err != nil {
		return err
	}
	d := Device{public: slices.Clone(a.id.Public()), epoch: newEpoch(now, max(after, a.device.epoch))}
	copy(d.olm[:], olm.IdKeys.Curve25519.PublicKey)
	copy(d.sign[:], olm.IdKeys.Ed25519.PublicKey)
	if a.olm != nil {
		proof, err := a.olm.IdKeys.Ed25519.Sign(append([]byte(signSuccessor), d.keys()...))
		if err != nil {
			return err
		}
		d.before = a.device.epoch
		copy(d.proof[:], proof)
	}
	if d.sig, err = a.sign(signDevice, d.signed()); err != nil {
		return err
	}
	a.olm, a.device = olm, d
	for i := range a.prekeys {
		a.prekeys[i].retired = true
	}
	return a.replacePrekey(now)
}

// Retire makes the account a new device of the same identity, for a store that
// was restored from a backup: what its ratchets have sent since is not known.
// The old device signs the new one. Conversations loaded after it have no session,
// and one-time keys at the relay are of no use any more. Peers learn of it from
// the next bundle or letter.
//
// after is the latest epoch that others may know, as that of the agent's bundle in
// the relay's directory, or 0: the new one is later, whatever the clock says.
func (a *Account) Retire(now time.Time, after Epoch) error { return a.renew(now, after) }

func (a *Account) sign(purpose string, message []byte) (out [64]byte, err error) {
	sig, err := a.id.SignFor(purpose, message)
	if err != nil {
		return out, err
	}
	copy(out[:], sig)
	return out, nil
}

// Address is the agent's.
func (a *Account) Address() string { return agent.Address(a.id.Public()) }

// Device is the public half, vouched for by the identity.
func (a *Account) Device() Device { return a.device }

// Epoch is the device's.
func (a *Account) Epoch() Epoch { return a.device.epoch }

// Bundle gives what is published. It is the same until Rotate or Retire.
func (a *Account) Bundle() (*Bundle, error) {
	p := a.prekeys[0]
	private, err := p.hpke()
	if err != nil {
		return nil, err
	}
	fallback, err := p.olm()
	if err != nil {
		return nil, err
	}
	b := &Bundle{device: a.device, serial: a.serial, created: p.created, expires: p.created.Add(KeepPrekeys)}
	copy(b.fallback[:], fallback.PublicKey)
	copy(b.prekey[:], private.PublicKey().Bytes())
	b.sig, err = a.sign(signBundle, b.signed())
	return b, err
}

// Rotate replaces prekey and fallback key when they are a week old, or of the
// future, and forgets those that were replaced 30 days ago. If it reports true
// there is a new bundle to publish, once the account is stored.
func (a *Account) Rotate(now time.Time) (bool, error) {
	now = milli(uint64(max(now.UnixMilli(), 0)))
	age := now.Sub(a.prekeys[0].created)
	if age < RotateAfter && age > -24*time.Hour {
		return false, nil
	}
	return true, a.replacePrekey(now)
}

func (a *Account) replacePrekey(now time.Time) error {
	now = milli(uint64(max(now.UnixMilli(), 0)))
	p := prekey{created: now}
	rand.Read(p.seed[:]) // never fails
	rand.Read(p.fallback[:])
	private, err := p.hpke()
	if err != nil {
		return err
	}
	p.id = prekeyID(private.PublicKey().Bytes())
	if len(a.prekeys) > 0 {
		a.prekeys[0].replaced = now
	}
	a.prekeys = slices.Insert(a.prekeys, 0, p)
	a.serial = max(a.serial+1, uint64(now.UnixMilli()))
	for len(a.prekeys) > minPrekeys {
		last := a.prekeys[len(a.prekeys)-1]
		if len(a.prekeys) <= maxPrekeys && now.Sub(last.replaced) < KeepPrekeys {
			break
		}
		a.prekeys = a.prekeys[:len(a.prekeys)-1]
	}
	return nil
}

func (p *prekey) hpke() (hpke.PrivateKey, error) {
	return hpke.MLKEM768X25519().NewPrivateKey(p.seed[:])
}

func (p *prekey) olm() (olmcrypto.Curve25519KeyPair, error) {
	return olmcrypto.Curve25519GenerateFromPrivate(p.fallback[:])
}

// Refill makes one-time keys for a relay that has so many left. They are given
// by Unpublished, once the account is stored.
func (a *Account) Refill(left int) error {
	n := OneTimeKeys - max(left, 0)
	for _, k := range a.olm.OTKeys {
		if !k.Published {
			n--
		}
	}
	if n <= 0 {
		return nil
	}
	more := account.Account{NextOneTimeKeyID: a.olm.NextOneTimeKeyID}
	if err := more.GenOneTimeKeys(uint(n)); err != nil {
		return err
	}
	a.olm.NextOneTimeKeyID = more.NextOneTimeKeyID
	// Newest first. goolm itself would forget all but 100, of which some are
	// with peers whose first letter is under way.
	a.olm.OTKeys = append(more.OTKeys, a.olm.OTKeys...)
	if len(a.olm.OTKeys) > maxOneTimeKeys {
		a.olm.OTKeys = a.olm.OTKeys[:maxOneTimeKeys]
	}
	return nil
}

// Unpublished gives the one-time keys that no relay is known to have.
func (a *Account) Unpublished() ([]OneTimeKey, error) {
	var list []OneTimeKey
	for _, k := range slices.Backward(a.olm.OTKeys) {
		if k.Published {
			continue
		}
		out := OneTimeKey{epoch: a.device.epoch, id: k.ID, key: [32]byte(k.Key.PublicKey)}
		var err error
		if out.sig, err = a.sign(signOneTime, out.signed()); err != nil {
			return nil, err
		}
		list = append(list, out)
	}
	return list, nil
}

// MarkPublished notes that a relay has these.
func (a *Account) MarkPublished(keys []OneTimeKey) {
	for i := range a.olm.OTKeys {
		own := &a.olm.OTKeys[i]
		if slices.ContainsFunc(keys, func(k OneTimeKey) bool { return bytes.Equal(k.key[:], own.Key.PublicKey) }) {
			own.Published = true
		}
	}
}

// findKey looks for the private half that a first letter names, and says
// whether it is used up by it.
func (a *Account) findKey(public []byte) (key *olmcrypto.OneTimeKey, once bool, err error) {
	for i := range a.olm.OTKeys {
		if bytes.Equal(a.olm.OTKeys[i].Key.PublicKey, public) {
			return &a.olm.OTKeys[i], true, nil
		}
	}
	for i := range a.prekeys {
		if a.prekeys[i].retired {
			continue
		}
		pair, err := a.prekeys[i].olm()
		if err != nil {
			return nil, false, err
		}
		if bytes.Equal(pair.PublicKey, public) {
			return &olmcrypto.OneTimeKey{Key: pair}, false, nil
		}
	}
	return nil, false, nil
}

func (a *Account) removeKey(public []byte) {
	a.olm.OTKeys = slices.DeleteFunc(a.olm.OTKeys, func(k olmcrypto.OneTimeKey) bool { return bytes.Equal(k.Key.PublicKey, public) })
}

// State gives the account for the store.
func (a *Account) State() ([]byte, error) {
	var w writer
	w.raw(a.device.Encode())
	w.u64(a.serial)
	w.bytes(a.olm.PickleLibOlm())
	w.u8(uint8(len(a.prekeys)))
	for _, p := range a.prekeys {
		w.raw(p.id[:])
		w.raw(p.seed[:])
		w.raw(p.fallback[:])
		w.u64(uint64(p.created.UnixMilli()))
		w.u64(uint64(max(p.replaced.UnixMilli(), 0)))
		w.bool(p.retired)
	}
	return a.lock(accountVersion, "account", nil, w.b), nil
}

// LoadAccount reads what State gave.
func LoadAccount(id Identity, state []byte) (*Account, error) {
	a, err := emptyAccount(id)
	if err != nil {
		return nil, err
	}
	plain, err := a.unlock(accountVersion, "account", nil, state)
	if err != nil {
		return nil, err
	}
	r := reader{b: plain}
	device := r.raw(deviceLen)
	a.serial = r.u64()
	pickle := r.bytes()
	n := int(r.u8())
	for range n {
		var p prekey
		r.fill(p.id[:])
		r.fill(p.seed[:])
		r.fill(p.fallback[:])
		p.created = milli(r.u64())
		if ms := r.u64(); ms > 0 {
			p.replaced = milli(ms)
		}
		p.retired = r.bool()
		a.prekeys = append(a.prekeys, p)
	}
	if r.end("account") != nil || n == 0 {
		return nil, fmt.Errorf("account: %w", ErrState)
	}
	if a.device, err = readDevice(device); err != nil {
		return nil, fmt.Errorf("account: %w: %w", ErrState, err)
	}
	a.olm = &account.Account{}
	if err := a.olm.UnpickleLibOlm(pickle); err != nil {
		return nil, fmt.Errorf("account: %w: %w", ErrState, err)
	}
	return a, nil
}

// lock encrypts a state. What it is, and of whom, is bound to it.
func (a *Account) lock(version uint8, what string, peer, plain []byte) []byte {
	aead, err := chacha20poly1305.NewX(a.state)
	if err != nil {
		panic(err) // the key's length is a constant
	}
	out := make([]byte, 1+chacha20poly1305.NonceSizeX, 1+chacha20poly1305.NonceSizeX+len(plain)+aead.Overhead())
	out[0] = version
	rand.Read(out[1:]) // never fails
	return aead.Seal(out, out[1:], plain, stateOf(version, what, a.id.Public(), peer))
}

func (a *Account) unlock(version uint8, what string, peer, state []byte) ([]byte, error) {
	r := reader{b: state}
	if err := r.version(what, version); err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(a.state)
	if err != nil {
		panic(err) // as above
	}
	nonce := r.raw(chacha20poly1305.NonceSizeX)
	if r.bad {
		return nil, fmt.Errorf("%s: %w", what, ErrState)
	}
	plain, err := aead.Open(nil, nonce, r.b, stateOf(state[0], what, a.id.Public(), peer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, ErrState)
	}
	return plain, nil
}

func stateOf(version uint8, what string, own, peer []byte) []byte {
	var w writer
	w.text("conch seal state")
	w.u8(version)
	w.text(what)
	w.bytes(own)
	w.bytes(peer)
	return w.b
}
