package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	// MaxAttachment is how many bytes an attachment may have.
	MaxAttachment = 64 << 20

	attachmentVersion = 1
	attachmentLen     = 1 + 32 + 8 + 32
	chunkLen          = 64 << 10
)

// An Attachment is what opens an encrypted file: it travels in a sealed body,
// the file itself anywhere. The file is cut into chunks of 64 KiB, each sealed
// with ChaCha20-Poly1305 under the attachment's own random key and a nonce of the
// chunk's number and whether it is the last (the STREAM construction), so that no
// chunk can be left out, moved, doubled or added. The last one is shorter than
// 64 KiB, and may be empty.
type Attachment struct {
	key  [32]byte
	size int64
	hash [32]byte
}

// Size is the file's.
func (a Attachment) Size() int64 { return a.size }

// Hash is the SHA-256 of the file's content.
func (a Attachment) Hash() [32]byte { return a.hash }

// SealedSize is how many bytes the encrypted file has.
func (a Attachment) SealedSize() int64 { return a.size + (a.size/chunkLen+1)*tagLen }

// Format keeps the key out of everything that prints.
func (a Attachment) Format(w fmt.State, _ rune) {
	fmt.Fprintf(w, "attachment of %d bytes, sha256 %x", a.size, a.hash)
}

// Encode gives the form that ParseAttachment reads. It holds the key.
func (a Attachment) Encode() []byte {
	var w writer
	w.u8(attachmentVersion)
	w.raw(a.key[:])
	w.u64(uint64(a.size))
	w.raw(a.hash[:])
	return w.b
}

// ParseAttachment reads what Encode gave.
func ParseAttachment(data []byte) (Attachment, error) {
	r := reader{b: data}
	if err := r.version("attachment", attachmentVersion); err != nil {
		return Attachment{}, err
	}
	var a Attachment
	r.fill(a.key[:])
	size := r.u64()
	r.fill(a.hash[:])
	if err := r.end("attachment"); err != nil {
		return Attachment{}, err
	}
	if size > MaxAttachment {
		return Attachment{}, fmt.Errorf("attachment: %d bytes, the limit is %d: %w", size, MaxAttachment, ErrTooLarge)
	}
	a.size = int64(size)
	return a, nil
}

// EncryptAttachment encrypts what src gives to dst, and gives what opens it.
func EncryptAttachment(dst io.Writer, src io.Reader) (Attachment, error) {
	var key [32]byte
	rand.Read(key[:]) // never fails
	return encryptAttachment(key, dst, src)
}

func encryptAttachment(key [32]byte, dst io.Writer, src io.Reader) (Attachment, error) {
	a := Attachment{key: key}
	aead := a.aead()
	hash := sha256.New()
	buf := make([]byte, chunkLen, chunkLen+tagLen)
	for n := uint64(0); ; n++ {
		got, err := io.ReadFull(src, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return Attachment{}, err
		}
		if a.size += int64(got); a.size > MaxAttachment {
			return Attachment{}, fmt.Errorf("an attachment of more than %d bytes: %w", MaxAttachment, ErrTooLarge)
		}
		hash.Write(buf[:got])
		if _, err := dst.Write(aead.Seal(buf[:0], chunkNonce(n, last), buf[:got], nil)); err != nil {
			return Attachment{}, err
		}
		if last {
			hash.Sum(a.hash[:0])
			return a, nil
		}
	}
}

// Decrypt writes the file's content to dst, each chunk once it is verified. Only
// when it returns nil is the content whole and the one that was attached.
func (a Attachment) Decrypt(dst io.Writer, src io.Reader) error {
	aead := a.aead()
	hash := sha256.New()
	buf := make([]byte, chunkLen+tagLen)
	left := a.size
	for n := uint64(0); ; n++ {
		last := left < chunkLen
		want := int(min(left, chunkLen)) + tagLen
		if _, err := io.ReadFull(src, buf[:want]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("attachment: cut short: %w", ErrMalformed)
			}
			return err
		}
		plain, err := aead.Open(buf[:0], chunkNonce(n, last), buf[:want], nil)
		if err != nil {
			return fmt.Errorf("attachment: chunk %d: %w", n, ErrMalformed)
		}
		left -= int64(len(plain))
		hash.Write(plain)
		if last {
			switch n, err := io.ReadFull(src, make([]byte, 1)); {
			case n > 0:
				return fmt.Errorf("attachment: bytes after its end: %w", ErrMalformed)
			case !errors.Is(err, io.EOF):
				return err
			}
			if subtle.ConstantTimeCompare(hash.Sum(nil), a.hash[:]) != 1 {
				return fmt.Errorf("attachment: not the content that was attached: %w", ErrMalformed)
			}
		}
		if _, err := dst.Write(plain); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

func (a Attachment) aead() cipher.AEAD {
	aead, err := chacha20poly1305.New(a.key[:])
	if err != nil {
		panic(err) // the key's length is a constant
	}
	return aead
}

func chunkNonce(n uint64, last bool) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint64(nonce[3:], n)
	if last {
		nonce[11] = 1
	}
	return nonce
}
