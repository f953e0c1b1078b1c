// Package seal is the end-to-end encryption of mail between agents. It does no
// I/O and keeps nothing between calls: keys and ratchets are values that a
// caller loads, uses and stores again, in one transaction with what it does
// because of them.
//
// # Layers
//
// An agent is its Ed25519 identity; its address is that key. The identity only
// signs, each signature for one purpose (Ed25519ctx). It vouches for a Device,
// the Olm identity key of one store, numbered by an Epoch; for a Bundle, which
// adds the prekeys that others need to write first; and for one-time keys.
//
// A message is encrypted twice. Inside is Olm (goolm): a triple Diffie-Hellman
// to begin with, then the Double Ratchet, so a stolen key opens neither what was
// read before nor, after an answer, what comes later. Around it is HPKE with
// MLKEM768-X25519 to the recipient's prekey of the week, so that what is recorded
// today does not open to who breaks X25519 later. HPKE authenticates nobody: what
// counts is the Olm layer, whose plaintext begins with the SHA-256 of the header
// and the body. The two are compared before anything is given out. That also
// makes up for Olm's MAC of 8 bytes.
//
// Statements (retry requests, contact requests and their answers) must work
// without a ratchet. They are signed by the identity and travel in the same HPKE
// layer; from outside they look like any letter. They can be shown to others as
// proof, which mail cannot, and they are as secret as the prekey is.
//
// The composition is our own and has not been audited.
//
// # What a relay sees
//
// Of a letter: the mailbox that it is for, a version, the id of the recipient's
// prekey (the same for all who write in that week), its size in a few classes,
// when it came, and who was logged in to bring it. Not: sender, labels, message
// id, kind, sequence, whether it is the first of a conversation. Digest is a name
// for a letter's bytes that tells no more than they do.
// Of a bundle: all of it, since bundles are public.
//
// # Using it
//
// Sending: load Account and Conversation; if the conversation is not Ready,
// Learn a bundle and Start with a one-time key, or with none, which takes the
// bundle's fallback key; Seal; store the conversation's State and the letter in
// one commit; only then send the letter, and always those bytes. A letter that
// left before the commit could be followed, after a crash, by another under the
// same message key. The same holds for keys: commit the private halves, publish,
// then MarkPublished.
//
// Receiving: Unwrap shows the header that a letter claims. Load the conversation
// with that sender; Open; look at Opened.Header, which is proved now; store the
// conversation's State, the account's if Opened.KeyUsed, and the message in one
// commit. An Open that fails has changed nothing.
//
// Duplicates are the caller's to know, for ever, by (peer, epoch, lane, sequence)
// of opened headers: Olm refuses a letter twice, but one that began with a fallback
// key opens again once its session is forgotten. The same sequence under another
// id is a peer that went back to an old store and does not know it.
//
// A letter that cannot be opened is answered with a Retry if CanRetry says so. Its
// sender then starts a new session, not too often, and seals the message, if it
// still has it, again under the same id and sequence, its attempt one higher. A
// forged letter can cause a Retry too: the agent that it pretends to be from has
// nothing of that id, and loses one session by it.
//
// A letter whose prekey is gone (ErrPrekey) names nobody who could be asked. Its
// sender seals again what has no receipt when Bundle.Expires has passed, and when
// it learns of a later device of the peer's.
//
// # Devices and changed keys
//
// An address is a key, so the key of an address never changes: what is not signed
// by it is forged (ErrForged), and no decision of a human makes it good. What can
// change is the Device under it. A store that was restored from a backup must not
// go on with its ratchets, which would use message keys a second time: it calls
// Retire and is a new device, of a later epoch. So is a second home to which a
// key was copied, by its owner or by a thief.
//
// Device.Compare tells these apart. A caller pins the device it first met (trust
// on first use). Successor: the pinned device signed the new one as it retired, so
// it is the same store, or a backup of it; the caller goes on, pins it, and says
// so. Changed, which is what "a changed key" means: the identity alone vouches for
// it. Its letters are opened and stored, nothing is lost, but held until a human
// has accepted the device. Earlier: mail that was under way when the peer restored
// its store; it opens, and is never answered on. Fork: two devices of one epoch,
// which no honest store makes; refused. In each case the safety number is another.
//
// What a handle or name points to is not known here. If it points to another
// address than it did, that is another agent.
//
// SafetyNumber covers both addresses and both devices. Equal numbers mean that
// nobody is between the two, and that neither side writes to another store than
// the one whose number was read out.
//
// # Keys and their lives
//
// Prekey and fallback key: one pair of them a week, kept 30 days after the next
// came, and at least the last 5 whatever a clock said. One-time keys: 100 at the
// relay, each used once; a key goes with the letter that used it. Sessions: 5 a
// peer. Sent is on the one where something was opened, or that was started, last
// (the Sesame rule); a chain of 1,000 letters without an answer wants a new one,
// since Olm keeps 40 skipped keys and jumps over at most 2,000.
//
// States are encrypted under a key derived from the identity, and begin with a
// version. None of the types is safe for concurrent use.
package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
)

// Limits of what is sealed.
const (
	// MaxBody is for a text of 1 MiB of which JSON writes each byte as six, and
	// what stands around it.
	MaxBody = 8 << 20
	// MaxSealed is the longest letter that MaxBody can make.
	MaxSealed = 9<<20 + 2<<10
)

// What can be wrong with a letter, a key or a state. Nothing was changed when one
// of them is returned.
var (
	// ErrMalformed: these bytes are none of ours, or were altered on the way.
	ErrMalformed = errors.New("malformed")
	// ErrVersion: written by a later version of conch.
	ErrVersion = errors.New("of a version that is not known here")
	// ErrTooLarge: over a limit, which the error names.
	ErrTooLarge = errors.New("too large")
	// ErrNotForMe: sealed for another agent.
	ErrNotForMe = errors.New("sealed for another agent")
	// ErrPrekey: sealed to a prekey that is not, or no longer, here. Who sent it
	// cannot be known.
	ErrPrekey = errors.New("sealed to a prekey that is gone")
	// ErrEpoch: sealed for a device that this store was before it was restored.
	ErrEpoch = errors.New("sealed for a device that was retired")
	// ErrSession: belongs to a session that is not here.
	ErrSession = errors.New("of a session that is not known here")
	// ErrOneTimeKey: begins a session with a one-time key that is not here, or
	// that another letter used.
	ErrOneTimeKey = errors.New("begins with a one-time key that is gone")
	// ErrReplay: its message key was used. It was opened before; or it comes
	// after more later ones than skipped keys are kept for.
	ErrReplay = errors.New("opened before, or too late to open")
	// ErrHeader: opened, and its header is not the one that the sender sealed.
	ErrHeader = errors.New("its header is not what the sender sealed")
	// ErrForged: not from who it says, or this side's session is not in step.
	ErrForged = errors.New("not from the agent that it names")
	// ErrFork: a second device of the same epoch.
	ErrFork = errors.New("two devices of one agent have the same epoch")
	// ErrStale: a statement from too long ago, or from the future.
	ErrStale = errors.New("a statement of another time")
	// ErrState: a stored state that does not decrypt or decode.
	ErrState = errors.New("damaged state, or another identity's")
	// ErrNotReady: Seal has no session, or its chain is full; or no bundle.
	ErrNotReady = errors.New("no session to seal with")
	// ErrWeakKey: a public key of small order, with which nothing is secret.
	ErrWeakKey = errors.New("a weak public key")
)

// CanRetry reports whether a letter that failed to open with err may come right
// when its sender seals it again. ErrReplay counts only for a caller that has no
// record of the message.
func CanRetry(err error) bool { _, ok := reasonOf(err); return ok }

// An Identity is an agent's Ed25519 key. *agent.Key is one.
type Identity interface {
	Public() ed25519.PublicKey
	// SignFor signs with Ed25519ctx, the purpose being its context.
	SignFor(purpose string, message []byte) ([]byte, error)
	// Derive gives n secret bytes that belong to the key and the purpose.
	Derive(purpose string, n int) ([]byte, error)
}

// Digest names a letter by its bytes: for a relay's own look for duplicates, and
// for the recipient's before it opens anything.
func Digest(sealed []byte) string {
	sum := sha256.Sum256(append([]byte("conch seal v1 digest\x00"), sealed...))
	return hex.EncodeToString(sum[:16])
}

// The purposes of signatures. No two statements share one.
const (
	signDevice    = "conch seal v1 device"
	signBundle    = "conch seal v1 bundle"
	signOneTime   = "conch seal v1 one-time key"
	signStatement = "conch seal v1 statement"
	// Before what an Olm account's Ed25519 key signs, which is this alone.
	signSuccessor = "conch seal v1 successor\x00"
)

func verify(address ed25519.PublicKey, purpose string, message, sig []byte) bool {
	return !smallOrder(address) &&
		ed25519.VerifyWithOptions(address, message, sig, &ed25519.Options{Context: purpose}) == nil
}

// smallOrder reports whether an Ed25519 key is one of the few points for which
// anybody can make signatures. The y coordinates are all those whose point
// vanishes when multiplied by 8, in every form that is accepted.
func smallOrder(k ed25519.PublicKey) bool {
	y := slices.Clone(k)
	y[31] &= 0x7f
	switch hex.EncodeToString(y) {
	case "0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f":
		return true
	}
	return false
}
