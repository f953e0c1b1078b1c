package seal

import (
	"crypto/ecdh"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Everything that is signed, sealed or stored has one encoding: numbers big
// endian, texts and byte strings behind their length, nothing optional left out,
// nothing after the end.

type writer struct{ b []byte }

func (w *writer) u8(v uint8)     { w.b = append(w.b, v) }
func (w *writer) u16(v uint16)   { w.b = binary.BigEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32)   { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64)   { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *writer) raw(b []byte)   { w.b = append(w.b, b...) }
func (w *writer) text(s string)  { w.u8(uint8(len(s))); w.b = append(w.b, s...) } // at most 255 bytes, as its users check
func (w *writer) bytes(b []byte) { w.u32(uint32(len(b))); w.raw(b) }
func (w *writer) bool(v bool) {
	if v {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

// A reader takes bytes apart. Once something is missing it gives zeros, and end
// reports it.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) raw(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) fill(b []byte) { copy(b, r.raw(len(b))) }

func (r *reader) u8() uint8 {
	if b := r.raw(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.raw(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.raw(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.raw(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.u8()
	if v > 1 {
		r.bad = true
	}
	return v == 1
}

func (r *reader) text() string  { return string(r.raw(int(r.u8()))) }
func (r *reader) bytes() []byte { return r.raw(int(r.u32())) }

// zeros takes the rest, which must be padding.
func (r *reader) zeros() {
	var or byte
	for _, c := range r.raw(len(r.b)) {
		or |= c
	}
	if or != 0 {
		r.bad = true
	}
}

func (r *reader) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%s: %w", what, ErrMalformed)
	}
	return nil
}

// version reads the byte that everything begins with.
func (r *reader) version(what string, known uint8) error {
	switch v := r.u8(); {
	case r.bad || v == 0:
		return fmt.Errorf("%s: %w", what, ErrMalformed)
	case v > known:
		return fmt.Errorf("%s: version %d, %w", what, v, ErrVersion)
	}
	return nil
}

// Sizes of letters: powers of two while they are small, then steps of an eighth
// to a sixteenth of their size, so that a size tells little and costs little.
const (
	minClass  = 512
	wideClass = 32 << 10
)

func sizeClass(n int) int {
	switch {
	case n <= minClass:
		return minClass
	case n <= wideClass:
		return 1 << bits.Len(uint(n-1))
	}
	step := 1 << (bits.Len(uint(n-1)) - 4)
	return (n + step - 1) / step * step
}

// weakX25519 reports whether a public key leads to the same secret for everybody.
func weakX25519(b []byte) bool {
	pub, err := ecdh.X25519().NewPublicKey(b)
	if err != nil {
		return true
	}
	// Any scalar does: they are all multiples of 8.
	priv, err := ecdh.X25519().NewPrivateKey(append(make([]byte, 31), 1))
	if err != nil {
		return true
	}
	_, err = priv.ECDH(pub)
	return err != nil
}
