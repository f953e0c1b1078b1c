package seal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAttachments(t *testing.T) {
	for _, n := range []int{0, 1, chunkLen - 1, chunkLen, chunkLen + 1, 3*chunkLen + 5} {
		content := make([]byte, n)
		rand.Read(content)
		var sealed bytes.Buffer
		a, err := EncryptAttachment(&sealed, iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || a.Size() != int64(n) || a.SealedSize() != int64(sealed.Len()) {
			t.Fatal(n, a, err, sealed.Len())
		}
		a, err = ParseAttachment(a.Encode())
		if err != nil {
			t.Fatal(err)
		}
		var back bytes.Buffer
		if err := a.Decrypt(&back, iotest.OneByteReader(bytes.NewReader(sealed.Bytes()))); err != nil || !bytes.Equal(back.Bytes(), content) {
			t.Fatal(n, err)
		}
	}
}

// What is released is a verified beginning of the content, and an altered file
// is an error.
func TestAlteredAttachments(t *testing.T) {
	content := make([]byte, 3*chunkLen+100)
	rand.Read(content)
	var buf bytes.Buffer
	a, err := EncryptAttachment(&buf, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	sealed := buf.Bytes()
	const c = chunkLen + tagLen
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	flip := func(at int) []byte { b := bytes.Clone(sealed); b[at] ^= 1; return b }
	short := a
	short.size = 2 * chunkLen
	other := a
	other.hash[0]++
	for name, bad := range map[string]struct {
		a    Attachment
		data []byte
	}{
		"empty":           {a, nil},
		"cut":             {a, sealed[:len(sealed)-1]},
		"cut at a chunk":  {a, sealed[:3*c]},
		"one chunk less":  {a, join(sealed[:c], sealed[2*c:])},
		"swapped":         {a, join(sealed[c:2*c], sealed[:c], sealed[2*c:])},
		"doubled":         {a, join(sealed[:c], sealed)},
		"a byte more":     {a, join(sealed, []byte{0})},
		"last one twice":  {a, join(sealed, sealed[3*c:])},
		"first byte":      {a, flip(0)},
		"last byte":       {a, flip(len(sealed) - 1)},
		"middle":          {a, flip(c + 7)},
		"another size":    {short, sealed[:2*c]},
		"another content": {other, sealed},
	} {
		var out bytes.Buffer
		if err := bad.a.Decrypt(&out, bytes.NewReader(bad.data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasPrefix(content, out.Bytes()) || out.Len() == len(content) {
			t.Errorf("%s: released %d bytes", name, out.Len())
		}
	}
	// The disk, not the file.
	if err := a.Decrypt(io.Discard, iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if _, err := EncryptAttachment(io.Discard, iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if s := fmt.Sprintf("%v %+v %#v %x", a, a, a, a); strings.Contains(s, fmt.Sprintf("%x", a.key)) || strings.Contains(s, fmt.Sprint(a.key[:4])[1:]) {
		t.Error("the key shows:", s)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAttachmentLimit(t *testing.T) {
	if _, err := EncryptAttachment(io.Discard, io.LimitReader(zeros{}, MaxAttachment+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	a, err := EncryptAttachment(io.Discard, io.LimitReader(zeros{}, MaxAttachment))
	if err != nil || a.Size() != MaxAttachment {
		t.Error(err)
	}
	a.size++
	if _, err := ParseAttachment(a.Encode()); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}
