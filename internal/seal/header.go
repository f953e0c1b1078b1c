package seal

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
)

// A Kind is what a letter is for.
type Kind uint8

const (
	Mail      Kind = 1 + iota
	Receipt        // what became of a message
	Contact        // a request to be known, or its answer
	Control        // between daemons
	Tombstone      // takes the place of a message that expired unsent
	RetryKind      // a Retry
	lastKind  = RetryKind
)

func (k Kind) String() string {
	switch k {
	case Mail:
		return "mail"
	case Receipt:
		return "receipt"
	case Contact:
		return "contact"
	case Control:
		return "control"
	case Tombstone:
		return "tombstone"
	case RetryKind:
		return "retry"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Header is what is said of a message besides its body, all of it hidden from
// the relay. The sender gives the first fields; Seal adds the others.
type Header struct {
	Kind      Kind
	ID        string // the message's
	Lane      uint8  // each has its own sequence
	Sequence  uint64 // of this sender's epoch to this recipient, as the sender counts
	Attempt   uint16 // 0, and one more each time the same message is sealed again
	Created   time.Time
	FromLabel string // may be empty
	ToLabel   string // may be empty

	From, To           string // addresses
	FromEpoch, ToEpoch Epoch
	Prekey             PrekeyID // the recipient's, that the letter is sealed to
}

const (
	headerVersion = 1
	// headerLen is the longest header's length, and by padding every one's.
	headerLen = 1 + 1 + 32 + 32 + 8 + 8 + 8 + 1 + 8 + 2 + 8 + 1 + conch.MaxMessageID + 1 + 32 + 1 + 32
)

func (h *Header) check() error {
	if h.Kind == 0 || h.Kind > lastKind {
		return fmt.Errorf("%s: %w", h.Kind, ErrMalformed)
	}
	if err := conch.CheckMessageID(h.ID); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	for _, l := range []string{h.FromLabel, h.ToLabel} {
		if l == "" {
			continue
		}
		if err := conch.CheckLabel(l); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if ms := h.Created.UnixMilli(); ms < 0 || ms > maxMilli {
		return fmt.Errorf("header: time: %w", ErrMalformed)
	}
	if h.Sequence>>63 != 0 {
		return fmt.Errorf("header: sequence: %w", ErrMalformed)
	}
	return nil
}

func (h *Header) encode() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	from, err := parseAddress(h.From)
	if err != nil {
		return nil, err
	}
	to, err := parseAddress(h.To)
	if err != nil {
		return nil, err
	}
	var w writer
	w.u8(headerVersion)
	w.u8(uint8(h.Kind))
	w.raw(from)
	w.raw(to)
	w.u64(uint64(h.FromEpoch))
	w.u64(uint64(h.ToEpoch))
	w.raw(h.Prekey[:])
	w.u8(h.Lane)
	w.u64(h.Sequence)
	w.u16(h.Attempt)
	w.u64(uint64(h.Created.UnixMilli()))
	w.text(h.ID)
	w.text(h.FromLabel)
	w.text(h.ToLabel)
	return append(w.b, make([]byte, headerLen-len(w.b))...), nil
}

func parseHeader(data []byte) (h Header, err error) {
	if len(data) != headerLen {
		return Header{}, fmt.Errorf("header: %w", ErrMalformed)
	}
	r := reader{b: data}
	if err := r.version("header", headerVersion); err != nil {
		return Header{}, err
	}
	h.Kind = Kind(r.u8())
	from, to := r.raw(32), r.raw(32)
	h.FromEpoch, h.ToEpoch = Epoch(r.u64()), Epoch(r.u64())
	r.fill(h.Prekey[:])
	h.Lane, h.Sequence, h.Attempt = r.u8(), r.u64(), r.u16()
	created := r.u64()
	h.ID, h.FromLabel, h.ToLabel = r.text(), r.text(), r.text()
	r.zeros()
	if err := r.end("header"); err != nil {
		return Header{}, err
	}
	if created > maxMilli {
		return Header{}, fmt.Errorf("header: time: %w", ErrMalformed)
	}
	if smallOrder(ed25519.PublicKey(from)) || smallOrder(ed25519.PublicKey(to)) {
		return Header{}, fmt.Errorf("header: address: %w", ErrWeakKey)
	}
	h.Created = milli(created)
	h.From, h.To = agent.Address(from), agent.Address(to)
	return h, h.check()
}
