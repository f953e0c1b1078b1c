package seal

import (
	"bytes"
	"crypto/hpke"
	"crypto/sha256"
	"fmt"

	"github.com/conchsh/conch/internal/agent"
)

// A letter is
//
//	version (1) · prekey id (8) · HPKE encapsulation (1120)
//	the header, sealed with version and prekey id as associated data
//	the content, sealed with the header as associated data
//
// by one HPKE context, and its content
//
//	form (1) · sender's device · length (4) · payload · zeros to a size class
const (
	letterVersion = 1
	clearLen      = 1 + 8
	encapLen      = 1120
	tagLen        = 16
	contentAt     = clearLen + encapLen + headerLen + tagLen

	letterInfo = "conch seal v1 letter\x00"
)

// The forms of a payload.
const (
	formFirst     = 1 // session · Olm pre-key message
	formOlm       = 2 // session · Olm message
	formStatement = 3 // signature · body
)

// A Letter is a sealed message whose outer layer has been taken off. Its header
// is what it claims: anybody who has the recipient's bundle could have written
// it. Opening proves or refutes it.
type Letter struct {
	Header Header
	// Statement: opened by Account.OpenStatement, without a conversation.
	Statement bool

	header  []byte // as it was encoded
	device  []byte
	form    uint8
	payload []byte
}

// An Opened is a letter that is proved.
type Opened struct {
	Header Header
	Body   []byte
	// Device is the sender's, and Change what it is to the one known before.
	Device Device
	Change Change
	// KeyUsed: a one-time key of the account is gone with it. The account is
	// to be stored in the same commit.
	KeyUsed bool
}

// wrap seals header and content to a bundle's prekey.
func wrap(to *Bundle, header []byte, device Device, form uint8, payload []byte) ([]byte, error) {
	public, err := hpke.MLKEM768X25519().NewPublicKey(to.prekey[:])
	if err != nil {
		return nil, err
	}
	enc, sender, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), append([]byte(letterInfo), to.device.public...))
	if err != nil {
		return nil, err
	}
	var content writer
	content.u8(form)
	content.raw(device.Encode())
	content.bytes(payload)
	content.raw(make([]byte, sizeClass(len(content.b))-len(content.b)))

	id := to.PrekeyID()
	out := append([]byte{letterVersion}, id[:]...)
	sealedHeader, err := sender.Seal(out, header)
	if err != nil {
		return nil, err
	}
	sealedContent, err := sender.Seal(header, content.b)
	if err != nil {
		return nil, err
	}
	return append(append(append(out, enc...), sealedHeader...), sealedContent...), nil
}

// Unwrap takes off the outer layer. It proves that the letter is for this
// account, and nothing about who wrote it.
func (a *Account) Unwrap(sealed []byte) (*Letter, error) {
	r := reader{b: sealed}
	if err := r.version("letter", letterVersion); err != nil {
		return nil, err
	}
	if len(sealed) > MaxSealed {
		return nil, fmt.Errorf("letter: %d bytes, the limit is %d: %w", len(sealed), MaxSealed, ErrTooLarge)
	}
	var id PrekeyID
	r.fill(id[:])
	enc, sealedHeader, sealedContent := r.raw(encapLen), r.raw(headerLen+tagLen), r.raw(len(r.b))
	if r.bad || len(sealedContent) < minClass+tagLen || sizeClass(len(sealedContent)-tagLen) != len(sealedContent)-tagLen {
		return nil, fmt.Errorf("letter: %w", ErrMalformed)
	}
	private, err := a.findPrekey(id)
	if err != nil {
		return nil, err
	}
	recipient, err := hpke.NewRecipient(enc, private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), append([]byte(letterInfo), a.device.public...))
	if err != nil {
		return nil, fmt.Errorf("letter: %w", ErrMalformed)
	}
	l := &Letter{}
	if l.header, err = recipient.Open(sealed[:clearLen], sealedHeader); err != nil {
		return nil, fmt.Errorf("letter: %w", ErrMalformed)
	}
	content, err := recipient.Open(l.header, sealedContent)
	if err != nil {
		return nil, fmt.Errorf("letter: %w", ErrMalformed)
	}
	if l.Header, err = parseHeader(l.header); err != nil {
		return nil, err
	}
	c := reader{b: content}
	l.form = c.u8()
	l.device = c.raw(deviceLen)
	l.payload = c.bytes()
	c.zeros()
	if err := c.end("letter"); err != nil {
		return nil, err
	}
	l.Statement = l.form == formStatement
	switch {
	case l.form == 0 || l.form > formStatement:
		return nil, fmt.Errorf("letter: form %d: %w", l.form, ErrMalformed)
	case l.Header.Prekey != id:
		return nil, fmt.Errorf("letter: %w", ErrHeader)
	case l.Header.To != a.Address():
		return nil, ErrNotForMe
	}
	return l, nil
}

func (a *Account) findPrekey(id PrekeyID) (hpke.PrivateKey, error) {
	for i := range a.prekeys {
		if a.prekeys[i].id == id {
			return a.prekeys[i].hpke()
		}
	}
	return nil, fmt.Errorf("prekey %x: %w", id, ErrPrekey)
}

// sender verifies the device that a letter carries against the agent that its
// header names. known saves the work for one that is known already.
func (l *Letter) sender(known Device) (Device, error) {
	if !known.IsZero() && bytes.Equal(l.device, known.Encode()) {
		if known.epoch != l.Header.FromEpoch || known.Address() != l.Header.From {
			return Device{}, ErrForged
		}
		return known, nil
	}
	d, err := readDevice(l.device)
	if err != nil {
		return Device{}, err
	}
	public, err := agent.ParseAddress(l.Header.From)
	if err != nil {
		return Device{}, err
	}
	if err := d.verify(public); err != nil {
		return Device{}, err
	}
	if d.epoch != l.Header.FromEpoch {
		return Device{}, ErrForged
	}
	return d, nil
}

// digestLen is the length of what precedes the body in the Olm layer.
const digestLen = sha256.Size

// digest ties a body to its header.
func digest(header, body []byte) []byte {
	h := sha256.New()
	h.Write([]byte("conch seal v1 content\x00"))
	h.Write(header) // always of one length
	h.Write(body)
	return h.Sum(nil)
}
