package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// The vectors were made by running the peers' own modules.

func load(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type decodeVector struct {
	Name    string
	Input   string `json:"input_body"`
	Bytes   int    `json:"input_utf8_bytes"`
	Decoded Body
}

func decodeVectors(t testing.TB) []decodeVector {
	var file struct {
		Count   int
		Vectors []decodeVector
	}
	load(t, "decode.json", &file)
	if len(file.Vectors) != file.Count || file.Count == 0 {
		t.Fatalf("%d vectors, said to be %d", len(file.Vectors), file.Count)
	}
	return file.Vectors
}

// same compares as JSON prints it: pointers by what they point to.
func same(t *testing.T, got, want Body) {
	t.Helper()
	got.BadTarget, want.BadTarget = false, false
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("decoded\n%s, want\n%s", g, w)
	}
}

func TestDecodeVectors(t *testing.T) {
	for _, v := range decodeVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			if len(v.Input) != v.Bytes {
				t.Fatalf("the vector has %d bytes, said to be %d", len(v.Input), v.Bytes)
			}
			same(t, Decode(v.Input), v.Decoded)
		})
	}
}

type parts []struct {
	S string
	N int
}

func (p parts) String() string {
	var b strings.Builder
	for _, part := range p {
		b.WriteString(strings.Repeat(part.S, part.N))
	}
	return b.String()
}

func TestDecodeHugeVectors(t *testing.T) {
	var file struct {
		Count   int
		Vectors []struct {
			Name    string
			Input   parts  `json:"input_body_parts"`
			Sum     string `json:"input_sha256"`
			Decoded struct {
				Body
				Text parts  `json:"text_parts"`
				Sum  string `json:"text_sha256"`
			}
		}
	}
	load(t, "decode-huge.json", &file)
	if len(file.Vectors) != file.Count || file.Count == 0 {
		t.Fatalf("%d vectors, said to be %d", len(file.Vectors), file.Count)
	}
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			body := v.Input.String()
			if sum(body) != v.Sum {
				t.Fatal("the vector's parts do not make its body")
			}
			got := Decode(body)
			if sum(got.Text) != v.Decoded.Sum || got.Text != v.Decoded.Text.String() {
				t.Errorf("text of %d bytes is another", len(got.Text))
			}
			got.Text = ""
			same(t, got, v.Decoded.Body)
		})
	}
}

// Labels that conch refuses where the peers send them all the same.
var refused = map[string]bool{"encode-bad-label": true, "encode-bad-to": true}

func TestEncodeVectors(t *testing.T) {
	var file struct {
		Count   int
		Vectors []struct {
			Name      string
			Options   json.RawMessage
			Env       map[string]string
			Envelope  map[string]any      `json:"normalized_envelope"`
			KeyOrder  map[string][]string `json:"key_order"`
			Roundtrip Body
		}
	}
	load(t, "encode.json", &file)
	if len(file.Vectors) != file.Count || file.Count == 0 {
		t.Fatalf("%d vectors, said to be %d", len(file.Vectors), file.Count)
	}
	now := time.Date(2026, 7, 2, 9, 41, 12, 345_678_901, time.FixedZone("", 7200))
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			d, err := ParseDescription(v.Options)
			if err != nil {
				t.Fatal(err)
			}
			if d.HarnessSession == "" {
				d.HarnessSession = v.Env["CLAUDE_CODE_SESSION_ID"] // the caller's part
			}
			body, err := d.Encode(now)
			if refused[v.Name] {
				if !errors.Is(err, conch.InvalidLabel) {
					t.Fatalf("encoded %s, %v", body, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			bucket, message := got["bucket"].(map[string]any), got["message"].(map[string]any)
			for _, f := range []struct {
				in        map[string]any
				key, want string
			}{
				{bucket, "start", "2026-07-02T07:41:00.000Z"}, {bucket, "end", "2026-07-02T07:42:00.000Z"},
				{message, "timestamp", "2026-07-02T07:41:12.345Z"},
			} {
				if f.in[f.key] != f.want {
					t.Errorf("%s is %v, want %s", f.key, f.in[f.key], f.want)
				}
			}
			bucket["start"], bucket["end"], message["timestamp"] = "<minute floor UTC, ms ISO>", "<start + 60 s>", "<now, ms ISO>"
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(v.Envelope)
			if string(g) != string(w) {
				t.Errorf("encoded\n%s, want\n%s", g, w)
			}
			for block, keys := range v.KeyOrder {
				text := body
				if block != "top" {
					_, text, _ = strings.Cut(body, `"`+block+`":{`)
				}
				for _, key := range keys {
					var ok bool
					if _, text, ok = strings.Cut(text, `"`+key+`":`); !ok {
						t.Errorf("%s: %s is not where it should be", block, key)
					}
				}
			}
			same(t, Decode(body), v.Roundtrip)
		})
	}
}

func TestConstants(t *testing.T) {
	var c struct {
		EnvelopeVersion string `json:"envelope_version"`
		Auto            string `json:"auto_sentinel_hex"`
		ReplyOpen       string `json:"reply_open_hex"`
		ReplyClose      string `json:"reply_close_hex"`
		Reset           string `json:"reset_sentinel_hex"`
		Legacy          []struct {
			InReplyTo string `json:"in_reply_to"`
			Text, Hex string
		} `json:"legacy_encode"`
		Labels    []struct{ Value, Result any } `json:"safe_label"`
		IDPattern string                        `json:"message_id_pattern"`
	}
	load(t, "constants.json", &c)
	for _, x := range []struct{ hex, text string }{
		{c.Auto, Auto}, {c.ReplyOpen, replyOpen}, {c.ReplyClose, replyClose}, {c.Reset, Reset},
		{hex.EncodeToString([]byte(c.EnvelopeVersion)), Version},
	} {
		if hex.EncodeToString([]byte(x.text)) != x.hex {
			t.Errorf("%q is not %s", x.text, x.hex)
		}
	}
	for _, l := range c.Legacy {
		m := Message{Auto: true, InReplyTo: l.InReplyTo, Text: l.Text}
		got, err := m.EncodeLegacy()
		if err != nil || hex.EncodeToString([]byte(got)) != l.Hex {
			t.Errorf("%+v: %x, %v, want %s", m, got, err, l.Hex)
		}
	}
	if len(c.Legacy) == 0 || len(c.Labels) == 0 {
		t.Error("no vectors")
	}
	for _, l := range c.Labels {
		raw, _ := json.Marshal(l.Value)
		got := object{"x": raw}.label("x")
		if (got == nil) != (l.Result == nil) || got != nil && *got != l.Result {
			t.Errorf("label %s: %v, want %v", raw, got, l.Result)
		}
	}
	if id := NewID(); !regexp.MustCompile(c.IDPattern).MatchString(id) || id == NewID() {
		t.Errorf("id %s", id)
	}
}

// What the vectors of routing say of a target is read from a body alike, but
// for the one difference: what is there and no label is told apart from none.
func TestTargetsOfRouting(t *testing.T) {
	var file struct {
		Vectors []struct {
			To *string `json:"to_session"`
		}
	}
	load(t, "routing.json", &file)
	seen := map[string]bool{}
	for _, v := range file.Vectors {
		raw, _ := json.Marshal(v.To)
		b := Decode(`{"envelope_version":"` + Version + `","tp":{"to_session":` + string(raw) + `}}`)
		valid := v.To != nil && conch.CheckLabel(*v.To) == nil
		if (b.ToSession != nil) != valid || b.BadTarget != (v.To != nil && !valid) {
			t.Errorf("to_session %s: %v, bad %v", raw, b.ToSession, b.BadTarget)
		}
		seen[string(raw)] = true
	}
	if len(seen) < 3 {
		t.Errorf("only %v", seen)
	}
	for raw, bad := range map[string]bool{
		`null`: false, `"ok"`: false, `""`: true, `"a b"`: true, `7`: true, `["a"]`: true, `{}`: true, `false`: true, `"a\n"`: true,
	} {
		if got := Decode(`{"envelope_version":"` + Version + `","tp":{"to_session":` + raw + `}}`).BadTarget; got != bad {
			t.Errorf("to_session %s: bad %v, want %v", raw, got, bad)
		}
	}
	for _, tp := range []string{`{}`, `[]`, `null`, `"x"`} {
		if Decode(`{"envelope_version":"` + Version + `","tp":` + tp + `}`).BadTarget {
			t.Errorf("tp %s has no target and is said to have a bad one", tp)
		}
	}
}

func TestReset(t *testing.T) {
	env, err := Message{Text: Reset}.Encode(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]bool{Reset: true, Auto + Reset: true, env: true, Reset + "x": false, "": false} {
		if Decode(body).IsReset() != want {
			t.Errorf("%q: reset %v", body, !want)
		}
	}
}

// The bytes are those of JSON.stringify.
func TestEncodedBytes(t *testing.T) {
	body, err := Message{Text: "<a&b>\u2028\u2029\x7f\x00\x1f\b\f\n\r\t\"\\é", ID: "m", FromSession: "a", Cwd: ""}.Encode(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := "\"text\":\"<a&b>\u2028\u2029\x7f\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\é\""
	if !strings.Contains(body, want) {
		t.Errorf("%s has no %s", body, want)
	}
	if !strings.Contains(body, `"cwd":""`) || strings.HasSuffix(body, "\n") {
		t.Errorf("%q", body)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, m := range []Message{
		{Text: "\xff"}, {ID: "\xc3"}, {InReplyTo: "\xff"}, {Address: "\xff"}, {HarnessSession: "\xff"}, {Cwd: "/\xff"},
		{FromSession: "a b"}, {ToSession: "a/b"}, {ToSession: strings.Repeat("x", 33)}, {FromSession: "a\n"},
	} {
		if body, err := m.Encode(time.Now()); err == nil {
			t.Errorf("%+v became %s", m, body)
		}
	}
	for _, m := range []Message{
		{Auto: true, InReplyTo: "a\x01b"}, {Auto: true, Text: replyOpen + "id" + replyClose + "x"},
		{Text: Auto + "hi"}, {Text: `{"envelope_version":"` + Version + `"}`},
	} {
		if body, err := m.EncodeLegacy(); err == nil {
			t.Errorf("%+v became %q", m, body)
		}
	}
}

func TestDescriptionRefuses(t *testing.T) {
	for _, d := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{} {}`, `{"text":{}}`, `{"text":[]}`, `{"Text":"x"}`, `{"to":"x"}`,
		`{"fromSession":1}`, `{"envelope":"yes"}`, `{"messageId":true}`,
	} {
		if got, err := ParseDescription([]byte(d)); !errors.Is(err, conch.InvalidRequest) || conch.AsError(err).HintText == "" {
			t.Errorf("%s: %+v, %v", d, got, err)
		}
	}
	for auto, want := range map[string]bool{
		`0`: false, `-0.0`: false, `0e9`: false, `1`: true, `1e-9`: true, `""`: false, `"0"`: true, `[]`: true, `{}`: true, `null`: false, `true`: true,
	} {
		if d, err := ParseDescription([]byte(`{"auto":` + auto + `}`)); err != nil || d.Auto != want {
			t.Errorf("auto %s: %v, %v", auto, d.Auto, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range decodeVectors(f) {
		f.Add(v.Input)
	}
	f.Add(strings.Repeat(`{"tp":`, 20000))
	f.Fuzz(func(t *testing.T, body string) {
		b := Decode(body)
		for _, l := range []*string{b.FromSession, b.ToSession} {
			if l != nil && conch.CheckLabel(*l) != nil {
				t.Errorf("%q is no label", *l)
			}
		}
		switch {
		case b.Envelope && (b.Role == nil || *b.Role != RoleUser && *b.Role != RoleAgent):
			t.Error("an envelope without a role")
		case b.Envelope && !json.Valid([]byte(body)):
			t.Error("an envelope that is not JSON")
		case b.BadTarget && (!b.Envelope || b.ToSession != nil):
			t.Error("a bad target where there is none")
		case !b.Envelope && (b.MessageID != nil || b.FromSession != nil || b.ToSession != nil || b.Role != nil):
			t.Error("a text with an envelope's fields")
		case !b.Envelope && !b.Auto && (b.Text != body || b.InReplyTo != nil):
			t.Error("plain text was changed")
		case !b.Envelope && b.Auto:
			// What was cut off can be put back.
			again := Auto + b.Text
			if b.InReplyTo != nil {
				again = Auto + replyOpen + *b.InReplyTo + replyClose + b.Text
			}
			if again != body {
				t.Errorf("%q was read from %q", again, body)
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("hi", "msg-1", "claude:1", "claude:2", "m0", "Addr", "hs", "/w", true)
	f.Add("\u2028\x00\"\\<>", "", "", "", "", "", "", "", false)
	f.Fuzz(func(t *testing.T, text, id, from, to, reply, address, harness, cwd string, auto bool) {
		m := Message{Text: text, ID: id, FromSession: from, ToSession: to, InReplyTo: reply, Role: RoleUser,
			Address: address, HarnessSession: harness, Cwd: cwd, Auto: auto}
		body, err := m.Encode(time.Unix(1e9, 0))
		if err != nil {
			clean := utf8.ValidString(text + "|" + id + "|" + reply + "|" + address + "|" + harness + "|" + cwd)
			if clean && (from == "" || conch.CheckLabel(from) == nil) && (to == "" || conch.CheckLabel(to) == nil) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(body)); err != nil || compact.String() != body {
			t.Errorf("not compact JSON: %v %s", err, body)
		}
		b := Decode(body)
		is := func(what string, got *string, want string) {
			if got == nil && want != "" || got != nil && *got != want {
				t.Errorf("%s %v, want %q", what, got, want)
			}
		}
		if b.Text != text || b.Auto != auto || !b.Envelope || b.BadTarget || *b.Role != RoleUser {
			t.Errorf("%+v from %s", b, body)
		}
		is("reply", b.InReplyTo, reply)
		is("to", b.ToSession, to)
		if from != "" {
			is("from", b.FromSession, from)
		}
		if id != "" {
			is("id", b.MessageID, id)
		}
		legacy, err := m.EncodeLegacy()
		if err != nil {
			return
		}
		if b := Decode(legacy); b.Text != text || b.Auto != auto || auto && reply != "" && (b.InReplyTo == nil || *b.InReplyTo != reply) {
			t.Errorf("legacy %q became %+v", legacy, b)
		}
	})
}

func FuzzDescription(f *testing.F) {
	f.Add([]byte(`{"text":5,"auto":"yes","toSession":null,"envelope":false}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseDescription(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Error("read what is not JSON")
		}
		d.Encode(time.Unix(0, 0))
	})
}

// What travels with automatic mail is read back, and nothing else is taken for it.
func TestHops(t *testing.T) {
	body, err := Message{Text: "x", Auto: true, Hops: 2, Chain: []string{"a", "b"}}.Encode(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if b := Decode(body); b.Hops != 2 || !slices.Equal(b.Chain, []string{"a", "b"}) || !b.Auto {
		t.Errorf("%+v", b)
	}
	for _, tp := range []string{`{"hops":-1}`, `{"hops":"2"}`, `{"chain":"a"}`, `{"chain":[1]}`, `{"hops":1e99}`, `{}`} {
		if b := Decode(`{"envelope_version":"` + Version + `","message":{"text":"x"},"tp":` + tp + `}`); b.Hops != 0 || len(b.Chain) != 0 || b.Text != "x" {
			t.Errorf("%s: %+v", tp, b)
		}
	}
	plain, err := Message{Text: "x"}.Encode(time.Now())
	if err != nil || strings.Contains(plain, "hops") || strings.Contains(plain, "chain") {
		t.Errorf("%s, %v", plain, err)
	}
}
