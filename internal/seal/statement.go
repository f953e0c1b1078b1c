package seal

import (
	"errors"
	"fmt"
	"time"
)

const (
	// MaxStatement is the longest body of a statement.
	MaxStatement = 64 << 10
	// StatementAge is how old a statement may be when it is opened, so how long
	// its recipient may be away, and its id has to be remembered.
	StatementAge = 30 * 24 * time.Hour
	// StatementSkew is how far a clock may be ahead.
	StatementSkew = 24 * time.Hour
)

// Statement signs and seals a body that needs no session: a Retry, a contact
// request or its answer, a control message. Header.ID, random, tells it from all
// others; the recipient must not act on one twice.
func (a *Account) Statement(to *Bundle, h Header, body []byte) ([]byte, error) {
	if h.Kind != Contact && h.Kind != Control && h.Kind != RetryKind {
		return nil, fmt.Errorf("%s is no statement: %w", h.Kind, ErrMalformed)
	}
	if len(body) > MaxStatement {
		return nil, fmt.Errorf("%w: a statement of %d bytes; the limit is %d", ErrTooLarge, len(body), MaxStatement)
	}
	header, err := a.address(&h, to)
	if err != nil {
		return nil, err
	}
	sig, err := a.sign(signStatement, digest(header, body))
	if err != nil {
		return nil, err
	}
	return wrap(to, header, a.device, formStatement, append(sig[:], body...))
}

// OpenStatement verifies a letter that is a statement. known is the sender's
// device as the caller knows it, zero for a stranger's.
func (a *Account) OpenStatement(l *Letter, known Device, now time.Time) (*Opened, error) {
	if !l.Statement || (l.Header.Kind != Contact && l.Header.Kind != Control && l.Header.Kind != RetryKind) {
		return nil, fmt.Errorf("%s is no statement: %w", l.Header.Kind, ErrMalformed)
	}
	from, err := l.sender(known)
	if err != nil {
		return nil, err
	}
	change := from.Compare(known)
	if change == Fork {
		return nil, ErrFork
	}
	r := reader{b: l.payload}
	sig, body := r.raw(64), r.raw(len(r.b))
	if r.bad {
		return nil, fmt.Errorf("statement: %w", ErrMalformed)
	}
	if len(body) > MaxStatement {
		return nil, fmt.Errorf("statement: %w", ErrTooLarge)
	}
	if !verify(from.public, signStatement, digest(l.header, body), sig) {
		return nil, fmt.Errorf("statement: %w", ErrForged)
	}
	if age := now.Sub(l.Header.Created); age > StatementAge || age < -StatementSkew {
		return nil, fmt.Errorf("of %s: %w", l.Header.Created.Format(time.RFC3339), ErrStale)
	}
	return &Opened{Header: l.Header, Body: body, Device: from, Change: change}, nil
}

// A Reason is why a letter is asked for again.
type Reason uint8

const (
	ReasonEpoch      Reason = 1 + iota // ErrEpoch
	ReasonSession                      // ErrSession
	ReasonOneTimeKey                   // ErrOneTimeKey
	ReasonReplay                       // ErrReplay
	ReasonForged                       // ErrForged
	ReasonHeader                       // ErrHeader
	lastReason       = ReasonHeader
)

func (r Reason) String() string {
	switch r {
	case ReasonEpoch:
		return "epoch"
	case ReasonSession:
		return "session"
	case ReasonOneTimeKey:
		return "one-time key"
	case ReasonReplay:
		return "replay"
	case ReasonForged:
		return "forged"
	case ReasonHeader:
		return "header"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

func reasonOf(err error) (Reason, bool) {
	switch {
	case errors.Is(err, ErrEpoch):
		return ReasonEpoch, true
	case errors.Is(err, ErrSession):
		return ReasonSession, true
	case errors.Is(err, ErrOneTimeKey):
		return ReasonOneTimeKey, true
	case errors.Is(err, ErrReplay):
		return ReasonReplay, true
	case errors.Is(err, ErrForged):
		return ReasonForged, true
	case errors.Is(err, ErrHeader):
		return ReasonHeader, true
	}
	return 0, false
}

// A Retry asks the sender of a letter that did not open to seal its message
// again. It is the body of a statement of RetryKind.
type Retry struct {
	ID       string // of the message
	Epoch    Epoch  // the sender's, of its header
	Lane     uint8
	Sequence uint64
	Attempt  uint16
	Reason   Reason
	Bundle   [32]byte // Hash of the bundle that the answer should be sealed to
}

const retryVersion = 1

// RetryOf makes a request for a letter that failed with err. ok is false where
// that would not help.
func (a *Account) RetryOf(l *Letter, err error) (r Retry, ok bool) {
	reason, ok := reasonOf(err)
	if !ok {
		return Retry{}, false
	}
	b, err := a.Bundle()
	if err != nil {
		return Retry{}, false
	}
	h := l.Header
	return Retry{ID: h.ID, Epoch: h.FromEpoch, Lane: h.Lane, Sequence: h.Sequence, Attempt: h.Attempt, Reason: reason, Bundle: b.Hash()}, true
}

// Encode gives the form that ParseRetry reads.
func (r Retry) Encode() []byte {
	var w writer
	w.u8(retryVersion)
	w.text(r.ID)
	w.u64(uint64(r.Epoch))
	w.u8(r.Lane)
	w.u64(r.Sequence)
	w.u16(r.Attempt)
	w.u8(uint8(r.Reason))
	w.raw(r.Bundle[:])
	return w.b
}

// ParseRetry reads the body of an opened statement.
func ParseRetry(body []byte) (Retry, error) {
	r := reader{b: body}
	if err := r.version("retry", retryVersion); err != nil {
		return Retry{}, err
	}
	out := Retry{ID: r.text(), Epoch: Epoch(r.u64()), Lane: r.u8(), Sequence: r.u64(), Attempt: r.u16(), Reason: Reason(r.u8())}
	r.fill(out.Bundle[:])
	if err := r.end("retry"); err != nil {
		return Retry{}, err
	}
	h := Header{Kind: Mail, ID: out.ID, Sequence: out.Sequence, Created: time.UnixMilli(0)}
	if err := h.check(); err != nil {
		return Retry{}, err
	}
	if out.Reason == 0 || out.Reason > lastReason {
		return Retry{}, fmt.Errorf("retry: %s: %w", out.Reason, ErrMalformed)
	}
	return out, nil
}
