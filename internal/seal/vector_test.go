package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"testing/cryptotest"

	"github.com/conchsh/conch/internal/agent"
)

var update = flag.Bool("update", false, "write testdata/vectors.json anew")

const vectorFile = "testdata/vectors.json"

// vectors are for other implementations, and for later versions of this one:
// what is here must be read for ever.
type vectors struct {
	About     string `json:"about"`
	Sender    who    `json:"sender"`
	Recipient who    `json:"recipient"`

	Safety string `json:"safety_number"` // of the two devices

	// The recipient's states before the first of the letters, under a key that
	// its identity gives by HKDF-SHA256 of the seed with "seal state v1".
	Account      hexed `json:"account_state"`
	Conversation hexed `json:"conversation_state"`

	Letters []letterVector `json:"letters"` // opened in this order

	Attachment struct {
		Content    string `json:"content"` // how it is made
		Descriptor hexed  `json:"descriptor"`
		Sealed     hexed  `json:"sealed_sha256"`
	} `json:"attachment"`

	SizeClasses [][2]int `json:"size_classes"`
}

type who struct {
	Seed       hexed  `json:"ed25519_seed"`
	Address    string `json:"address"`
	Epoch      string `json:"epoch"`
	Device     hexed  `json:"device"`
	Bundle     hexed  `json:"bundle"`
	BundleHash hexed  `json:"bundle_sha256"`
	OneTimeKey hexed  `json:"one_time_key,omitempty"`
}

type letterVector struct {
	Name   string  `json:"name"`
	Sealed hexed   `json:"sealed"`
	Digest string  `json:"digest"`
	Header *Header `json:"header,omitempty"`
	Body   hexed   `json:"body,omitempty"`
	Change string  `json:"change,omitempty"`
	Error  string  `json:"error,omitempty"` // nil where it opens
	Retry  *Retry  `json:"retry,omitempty"` // what the body of a statement says
}

type hexed []byte

func (h hexed) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

func (h *hexed) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

func describe(s *side) who {
	b := s.bundle()
	hash := b.Hash()
	return who{Seed: s.id.private.Seed(), Address: s.a.Address(), Epoch: s.a.Epoch().String(), Device: s.a.Device().Encode(), Bundle: b.Encode(), BundleHash: hash[:]}
}

func makeVectors(t *testing.T) vectors {
	cryptotest.SetGlobalRandom(t, 1)
	amy, bob := pair(t)
	bob.ok(bob.a.Refill(OneTimeKeys - 2))
	bob.pool = must(bob.a.Unpublished())
	bob.a.MarkPublished(bob.pool)
	key := bob.claim()
	v := vectors{
		About:  "Made-up identities. Times are noon of 2026-11-15, UTC. Numbers in encodings are big endian.",
		Sender: describe(amy), Recipient: describe(bob),
		Safety:  SafetyNumber(amy.a.Device(), bob.a.Device()),
		Account: must(bob.a.State()), Conversation: must(bob.c.State()),
	}
	v.Recipient.OneTimeKey = key.Encode()

	add := func(name string, sealed []byte) {
		one := letterVector{Name: name, Sealed: sealed, Digest: Digest(sealed)}
		one.try(bob)
		v.Letters = append(v.Letters, one)
	}
	amy.start(bob, key)
	first, second, third := amy.seal("the first, with a one-time key"), amy.seal("the second"), amy.seal("the third")
	add("unknown prekey", append(bytes.Clone(first[:5]), append([]byte{first[5] ^ 1}, first[6:]...)...))
	add("altered", append(bytes.Clone(first[:len(first)-1]), first[len(first)-1]^1))
	add("of a version to come", append([]byte{2}, first[1:]...))
	add("first", first)
	add("third before second", third)
	add("second", second)
	add("second again", second)
	l := must(bob.a.Unwrap(amy.seal("with another header")))
	h := l.Header
	h.FromLabel = "main"
	add("altered header", rewrap(t, bob, l, must(h.encode())))
	l.payload = append(make([]byte, 16), l.payload[16:]...)
	l.form = formOlm
	add("unknown session", rewrap(t, bob, l, l.header))
	amy.ok(amy.c.Start(nil))
	add("by the fallback key", amy.seal("a new session, by the fallback key"))
	add("retry request", must(amy.a.Statement(bob.bundle(), Header{Kind: RetryKind, ID: "q1", Created: noon},
		Retry{ID: "m9", Epoch: bob.a.Epoch(), Sequence: 9, Reason: ReasonSession, Bundle: amy.bundle().Hash()}.Encode())))
	amy.ok(amy.a.Retire(noon, 0))
	amy.restore(must(amy.a.State()), must(amy.c.State()))
	amy.ok(amy.c.Start(nil))
	amy.seq = 0
	add("from the successor of the device", amy.seal("restored"))

	sealed := sha256.New()
	a := must(EncryptAttachment(sealed, bytes.NewReader(content())))
	v.Attachment.Content, v.Attachment.Descriptor, v.Attachment.Sealed = "the text conch 40000 times", a.Encode(), sealed.Sum(nil)
	for _, n := range []int{1, 512, 513, 5000, 32768, 32769, 1 << 20, 1<<20 + 1} {
		v.SizeClasses = append(v.SizeClasses, [2]int{n, sizeClass(n)})
	}
	return v
}

func content() []byte { return bytes.Repeat([]byte("conch"), 40000) }

// try opens the letter and notes what came of it.
func (v *letterVector) try(s *side) {
	l, err := s.a.Unwrap(v.Sealed)
	var o *Opened
	switch {
	case err != nil:
	case l.Statement:
		o, err = s.a.OpenStatement(l, s.c.Device(), noon)
	default:
		o, err = s.c.Open(l)
	}
	if err != nil {
		v.Error = err.Error()
		return
	}
	v.Header, v.Body, v.Change = &o.Header, o.Body, o.Change.String()
	if l.Statement {
		r := must(ParseRetry(o.Body))
		v.Retry = &r
	}
}

func loadVectors(t tester) (v vectors) {
	t.Helper()
	data, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// recipient is the stored one, before the first letter.
func (v *vectors) recipient(t tester) *side {
	t.Helper()
	s := &side{t: t, id: identity{ed25519.NewKeyFromSeed(v.Recipient.Seed)}}
	a, err := LoadAccount(s.id, v.Account)
	s.ok(err)
	s.a = a
	s.c, err = a.LoadConversation(v.Sender.Address, v.Conversation)
	s.ok(err)
	return s
}

func (v *vectors) letter(t tester, name string) []byte {
	t.Helper()
	for _, l := range v.Letters {
		if l.Name == name {
			return l.Sealed
		}
	}
	t.Fatalf("no letter %q", name)
	return nil
}

func TestVectors(t *testing.T) {
	if *update {
		data := must(json.MarshalIndent(makeVectors(t), "", "  "))
		if err := os.WriteFile(vectorFile, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v := loadVectors(t)
	devices := map[string]Device{}
	for _, w := range []who{v.Sender, v.Recipient} {
		id := identity{ed25519.NewKeyFromSeed(w.Seed)}
		d, err := ParseDevice(w.Device, w.Address)
		if err != nil || agent.Address(id.Public()) != w.Address || d.Epoch().String() != w.Epoch {
			t.Error(w.Address, err)
		}
		devices[w.Address] = d
		b, err := ParseBundle(w.Bundle, w.Address)
		if err != nil {
			t.Fatal(err)
		}
		if hash := b.Hash(); b.Device().Compare(d) != Same || !bytes.Equal(hash[:], w.BundleHash) {
			t.Error("another bundle")
		}
		if w.OneTimeKey != nil {
			if _, err := ParseOneTimeKey(w.OneTimeKey, d); err != nil {
				t.Error(err)
			}
		}
	}
	if got := SafetyNumber(devices[v.Sender.Address], devices[v.Recipient.Address]); got != v.Safety {
		t.Errorf("%s, want %s", got, v.Safety)
	}
	bob := v.recipient(t)
	opened := 0
	for _, want := range v.Letters {
		got := letterVector{Name: want.Name, Sealed: want.Sealed, Digest: Digest(want.Sealed)}
		got.try(bob)
		if a, b := must(json.Marshal(got)), must(json.Marshal(want)); !bytes.Equal(a, b) {
			t.Errorf("%s:\n%s\n%s", want.Name, a, b)
		}
		if got.Error == "" {
			opened++
		}
	}
	if opened != 6 || len(v.Letters) != 12 {
		t.Errorf("%d of %d letters open", opened, len(v.Letters))
	}
	a, err := ParseAttachment(v.Attachment.Descriptor)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	if got, err := encryptAttachment(a.key, hash, bytes.NewReader(content())); err != nil || got != a || !bytes.Equal(hash.Sum(nil), v.Attachment.Sealed) {
		t.Error(err)
	}
	for _, c := range v.SizeClasses {
		if sizeClass(c[0]) != c[1] {
			t.Error(c)
		}
	}
}
