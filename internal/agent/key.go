package agent

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/conchsh/conch"
)

// A Key is an agent's secret. However it is printed, only its address shows.
type Key struct {
	private ed25519.PrivateKey
	address string
}

func newKey() (*Key, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, err
	}
	return keyFromSeed(seed), nil
}

func keyFromSeed(seed []byte) *Key {
	k := &Key{private: ed25519.NewKeyFromSeed(seed)}
	k.address = Address(k.Public())
	return k
}

// Sign signs with Ed25519.
func (k *Key) Sign(message []byte) []byte { return ed25519.Sign(k.private, message) }

// SignFor signs with Ed25519ctx (RFC 8032), which is good for one purpose
// alone: whoever can have the key sign bytes of his choice elsewhere, as the
// nonce of a log-in is, gets nothing that counts here.
func (k *Key) SignFor(purpose string, message []byte) ([]byte, error) {
	return k.private.Sign(nil, message, &ed25519.Options{Context: purpose})
}

// Public is the public half.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// Address is the public half as people pass it on.
func (k *Key) Address() string { return k.address }

// Derive gives n secret bytes that belong to this key and a purpose. Other
// keys are made from these, never from the seed itself, so that what goes
// wrong with one of them stays with it.
func (k *Key) Derive(purpose string, n int) ([]byte, error) {
	return hkdf.Key(sha256.New, k.private.Seed(), nil, "conch agent v1 "+purpose, n)
}

// Format keeps the secret out of everything that prints.
func (k *Key) Format(w fmt.State, _ rune) { io.WriteString(w, "key of "+k.address) }

// MarshalText keeps it out of what is encoded.
func (k *Key) MarshalText() ([]byte, error) { return []byte(k.address), nil }

// Address is the base58 form of a public key.
func Address(public ed25519.PublicKey) string { return encode58(public) }

// ParseAddress gives the public key of an address.
func ParseAddress(s string) (ed25519.PublicKey, error) {
	b, ok := decode58(s)
	if !ok || len(b) != ed25519.PublicKeySize {
		return nil, conch.Errorf(conch.InvalidAgent, "%.60q is not an agent's address", s).
			Hint("an address is 32 to 44 characters of base58")
	}
	return b, nil
}

// alphabet58 leaves out 0, O, I and l.
const alphabet58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// encode58 writes bytes as a number in base 58. A leading zero byte is a
// leading 1.
func encode58(b []byte) string {
	var digits []byte // least significant first
	zeros := 0
	for _, c := range b {
		if c == 0 && len(digits) == 0 {
			zeros++
			continue
		}
		carry := int(c)
		for i := range digits {
			carry += int(digits[i]) << 8
			digits[i] = byte(carry % 58)
			carry /= 58
		}
		for ; carry > 0; carry /= 58 {
			digits = append(digits, byte(carry%58))
		}
	}
	out := make([]byte, zeros+len(digits))
	for i := range zeros {
		out[i] = alphabet58[0]
	}
	for i, d := range digits {
		out[len(out)-1-i] = alphabet58[d]
	}
	return string(out)
}

// decode58 is the reverse. What is longer than any address is not read.
func decode58(s string) ([]byte, bool) {
	if len(s) > 64 {
		return nil, false
	}
	var num []byte // least significant first
	zeros := 0
	for i := range len(s) {
		v := strings.IndexByte(alphabet58, s[i])
		if v < 0 {
			return nil, false
		}
		if v == 0 && len(num) == 0 {
			zeros++
			continue
		}
		carry := v
		for j := range num {
			carry += int(num[j]) * 58
			num[j] = byte(carry)
			carry >>= 8
		}
		for ; carry > 0; carry >>= 8 {
			num = append(num, byte(carry))
		}
	}
	out := make([]byte, zeros+len(num))
	for i, d := range num {
		out[len(out)-1-i] = d
	}
	return out, true
}
