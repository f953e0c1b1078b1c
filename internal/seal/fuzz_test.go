package seal

import (
	"bytes"
	"errors"
	"testing"
)

// What parses is encoded to the same bytes: there is one form.

func FuzzBundle(f *testing.F) {
	bob := newSide(f, "bob")
	good := bob.bundle().Encode()
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
	bob := newSide(f, "bob")
	good := bob.a.Device().Encode()
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
	bob := newSide(f, "bob")
	good := bob.claim().Encode()
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseOneTimeKey(data, bob.a.Device()); err == nil && !bytes.Equal(data, good) {
			t.Error("a key that bob did not sign")
		}
	})
}

func FuzzHeader(f *testing.F) {
	amy, bob := pair(f)
	h := amy.header()
	f.Add(must(amy.a.address(&h, bob.bundle())))
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
	amy, bob := pair(f)
	amy.start(bob, bob.claim())
	good := amy.seal("hello")
	f.Add(good)
	f.Add(good[:contentAt])
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := bob.a.Unwrap(data); err == nil && !bytes.Equal(data, good) {
			t.Error("unwrapped what nobody sealed")
		}
	})
}

// Any content in a good outer layer, which anybody can make: in the name of who
// began a talk, with the session and header of a real letter or other ones.
func FuzzContent(f *testing.F) {
	amy, bob := pair(f)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("1"), "1")
	second := must(bob.a.Unwrap(amy.seal("2")))
	amy.ok(amy.c.Start(bob.claim()))
	third := must(bob.a.Unwrap(amy.seal("3")))
	device := amy.a.Device()
	statement := must(bob.a.Unwrap(must(amy.a.Statement(bob.bundle(), Header{Kind: Contact, ID: "c", Created: noon}, []byte("hi")))))
	for _, l := range []*Letter{second, third, statement} {
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
		} else if text := string(o.Body); text != "2" && text != "3" || !bytes.Equal(header, map[string]*Letter{"2": second, "3": third}[text].header) {
			t.Errorf("opened %q, which amy did not seal", o.Body)
		}
		if o, err := bob.a.OpenStatement(l, device, noon); err == nil && !bytes.Equal(payload, statement.payload) {
			t.Errorf("%q is a statement that amy did not make", o.Body)
		}
	})
}

// A state's bytes come from our own disk and are authenticated. Those of another
// version of goolm, or a fault of ours, are still an error and no panic.
func FuzzState(f *testing.F) {
	amy, bob := pair(f)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("1"), "1")
	f.Add(must(bob.a.unlock(conversationVersion, "conversation", bob.c.peer, must(bob.c.State()))))
	f.Fuzz(func(t *testing.T, plain []byte) {
		c := must(bob.a.Conversation(amy.a.Address()))
		if err := c.read(plain); err != nil && !errors.Is(err, ErrState) {
			t.Error(err)
		}
	})
}
