package route

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

func TestExact(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"to":"a","text":"x"}`, ""},
		{"{ \"to\" : \"a\" ,\n\"text\": \"{[\\\"Text\\\\\"}", ""},
		{`{"to":"a","\u0074ext":"x"}`, ""},
		{`{"to":"a","TEXT":"x"}`, `unknown field "TEXT"`},
		{`{"to":"a","text":"x","Text":"y"}`, `unknown field "Text"`},
		{`{"to":"a","\u0054ext":"x"}`, `unknown field "Text"`},
		{`{"to":"a","text":"x","nosuch":1}`, `unknown field "nosuch"`},
		{"{\"to\":\"a\",\"text\":\"\xff\"}", "not valid UTF-8"},
		{"{\"to\":\"a\",\"text\":\"\xed\xa0\x80\"}", "not valid UTF-8"},
		{`{"to":"a","text":"\ud83d\ude00\\ud800"}`, ""},
		{`{"to":"a","text":"\ud83d"}`, "surrogate"},
		{`{"to":"a","text":"\ud83d\n"}`, "surrogate"},
		{`{"to":"a","text":"\ud83d\u0041"}`, "surrogate"},
		{`{"to":"a","text":"\uDE00\uD83D"}`, "surrogate"},
		{`{"to":"a","text":"\ud83d\ud83d\ude00"}`, "surrogate"},
		{`{"to":"a","text":7}`, "text is not a string (given: number)"},
		{`{"to":"a","text":"x","expires_ms":"1h"}`, "expires_ms is not a whole number within limits (given: string)"},
		{`[]`, "it is not an object (given: array)"},
	} {
		var v conch.AskRequest
		err := Strict([]byte(c.body), &v)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		if !errors.Is(err, conch.InvalidRequest) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, not %s", c.body, err, c.want)
		}
	}
	// Names inside are another's business.
	var e conch.ExecRequest
	if err := Strict([]byte(`{"command":"x","env":{"COMMAND":"1"}}`), &e); err != nil {
		t.Error(err)
	}
}

// FuzzExact holds it against the decoder: it reads any JSON to its end, and what
// it lets through comes out of another round as it went in.
func FuzzExact(f *testing.F) {
	for _, s := range []string{`{"a":"\ud83d"}`, `"\ud83d\ude00"`, `[{"x":[]},"\\"]`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		if Strict(b, &v) != nil {
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(again), "\ufffd") && !strings.Contains(string(b), "\ufffd") && !strings.Contains(strings.ToLower(string(b)), `\ufffd`) {
			t.Errorf("%q was repaired: %q", b, again)
		}
	})
}
