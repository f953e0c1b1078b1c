package seal

import (
	"bytes"
	"errors"
	"testing"
)

// What parses is encoded to the same bytes: there is one form. Keys and letters
// are those of the vectors, since fuzzing runs in several processes.

func stored(f *testing.F) (v vectors, bob *side) {
	v = loadVectors(f)
	return v, v.recipient(f)
}

func FuzzBundle(f *testing.F) {
	v, bob := stored(f)
	good := []byte(v.Recipient.Bundle)
	f.Add(good)
	f.Add(good[:deviceLen])
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := readBundle(data); err == nil && !bytes.Equal(b.Encode(), data) {
			t.Error("two forms")
		}
		if b, err := ParseBundle(data, bob.a.Address()); err == nil && !bytes.Equal(b.Encode(), good) {
			t.Error("a bundle that bob did not sign")
		}
	})
}

func FuzzDevice(f *testing.F) {
	v, bob := stored(f)
	good := []byte(v.Recipient.Device)
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := readDevice(data); err == nil && !bytes.Equal(d.Encode(), data) {
			t.Error("two forms")
		}
		if d, err := ParseDevice(data, bob.a.Address()); err == nil && !bytes.Equal(d.Encode(), good) {
			t.Error("a device that bob did not sign")
		}
	})
}

func FuzzOneTimeKey(f *testing.F) {
	v, bob := stored(f)
	good := []byte(v.Recipient.OneTimeKey)
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseOneTimeKey(data, bob.a.Device()); err == nil && !bytes.Equal(data, good) {
			t.Error("a key that bob did not sign")
		}
	})
}

func FuzzHeader(f *testing.F) {
	v, bob := stored(f)
	f.Add(must(bob.a.Unwrap(v.letter(f, "first"))).header)
	f.Add(make([]byte, headerLen))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parseHeader(data)
		if err != nil {
			return
		}
		if again, err := h.encode(); err != nil || !bytes.Equal(again, data) {
			t.Error("two forms", err)
		}
	})
}

func FuzzRetry(f *testing.F) {
	f.Add(Retry{ID: "m1", Epoch: 1, Sequence: 2, Attempt: 3, Reason: ReasonEpoch}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseRetry(data); err == nil && !bytes.Equal(r.Encode(), data) {
			t.Error("two forms")
		}
	})
}

func FuzzAttachment(f *testing.F) {
	f.Add(Attachment{size: 7}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := ParseAttachment(data); err == nil && !bytes.Equal(a.Encode(), data) {
			t.Error("two forms")
		}
	})
}

// Bytes of anybody's.
func FuzzLetter(f *testing.F) {
	v, bob := stored(f)
	good := v.letter(f, "first")
	f.Add(good)
	f.Add(good[:contentAt])
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := bob.a.Unwrap(data); err == nil && !bytes.Equal(data, good) {
			t.Errorf("unwrapped what nobody sealed: %+v", l.Header)
		}
	})
}

// Any content in a good outer layer, which anybody can make: in the name of who
// began a talk, with the session and header of a real letter or other ones.
func FuzzContent(f *testing.F) {
	v, bob := stored(f)
	must(bob.try(v.letter(f, "first")))
	device := bob.c.Device()
	second := must(bob.a.Unwrap(v.letter(f, "second")))
	fresh := must(bob.a.Unwrap(v.letter(f, "by the fallback key")))
	statement := must(bob.a.Unwrap(v.letter(f, "retry request")))
	for _, l := range []*Letter{second, fresh, statement} {
		f.Add(l.header, l.form, l.payload)
	}
	account, conversation := must(bob.a.State()), must(bob.c.State())
	f.Fuzz(func(t *testing.T, header []byte, form uint8, payload []byte) {
		h, err := parseHeader(header)
		if err != nil {
			return
		}
		bob.t = t
		bob.restore(account, conversation)
		before := bob.snapshot()
		l := &Letter{Header: h, Statement: form == formStatement, header: header, device: device.Encode(), form: form, payload: payload}
		if o, err := bob.c.Open(l); err != nil {
			if bob.snapshot() != before {
				t.Error("what failed has changed the state")
			}
		} else if !bytes.Equal(header, second.header) && !bytes.Equal(header, fresh.header) {
			t.Errorf("opened %q, which was not sealed so", o.Body)
		}
		if o, err := bob.a.OpenStatement(l, device, noon); err == nil && !bytes.Equal(payload, statement.payload) {
			t.Errorf("%q is a statement that was not made", o.Body)
		}
	})
}

// A state's bytes come from our own disk and are authenticated. Those of another
// version of goolm, or a fault of ours, are still an error and no panic.
func FuzzState(f *testing.F) {
	v, bob := stored(f)
	must(bob.try(v.letter(f, "first")))
	f.Add(must(bob.a.unlock(conversationVersion, "conversation", bob.c.peer, must(bob.c.State()))))
	f.Fuzz(func(t *testing.T, plain []byte) {
		c := must(bob.a.Conversation(v.Sender.Address))
		if err := c.read(plain); err != nil && !errors.Is(err, ErrState) {
			t.Error(err)
		}
	})
}
