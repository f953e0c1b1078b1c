// Package envelope is the body of a message: the one string that two agents
// exchange inside the ciphertext, and what can be read from it.
//
// A body is one of three things, told apart by its content alone and tried in
// this order: a session envelope (JSON, version 1 of the harness session
// format, with a tp block that carries labels and replies), a text behind the
// legacy auto sentinel, or plain text. Everything is a body: Decode cannot
// fail, it falls through to plain text.
//
// The peers that wrote the format check nothing they send and read a label they
// do not like as none. This package refuses to encode what is not a label, and
// says of a received body when its target was there and was none
// (Body.BadTarget): such a message must be refused, not sent elsewhere.
//
// Known difference to those peers: JSON nested deeper than 10,000 is plain
// text here. The package is pure: no state, no clock but the one it is given.
package envelope

import (
	"encoding/json"
	"strings"

	"github.com/conchsh/conch"
)

// Version is the envelope's schema, compared as a whole.
const Version = "tinyplace.harness.session.v1"

// The bytes of the legacy form. Reset is a whole body: older peers send it to
// ask for a new handshake, and it is never shown to anybody.
const (
	Auto       = "\x01tp-auto\x01"
	Reset      = "\x01tp-rehandshake\x01"
	replyOpen  = "\x01re:"
	replyClose = "\x01"
)

// The roles a message can have.
const (
	RoleUser  = "user"
	RoleAgent = "agent"
)

// A Body is what a body says. What it does not say, or says in a shape that
// does not count, is nil.
type Body struct {
	Auto        bool    `json:"auto"`
	InReplyTo   *string `json:"inReplyTo"`
	Text        string  `json:"text"`
	MessageID   *string `json:"messageId"` // any text at all: it is the sender's
	FromSession *string `json:"fromSession"`
	ToSession   *string `json:"toSession"`
	Role        *string `json:"role"`
	Envelope    bool    `json:"envelope"`

	// BadTarget says that the body names a target session and that this is no
	// label. ToSession is nil then, as it is when no target was given, but the
	// sender meant one session and no other.
	BadTarget bool `json:"-"`
	// Hops and Chain are as in a Message. What is no such thing reads as none.
	Hops  int      `json:"-"`
	Chain []string `json:"-"`

	// Conch is conch's own part of an envelope, nil if there is none.
	Conch json.RawMessage `json:"-"`
}

// maxChain is more than any hop limit lets through.
const maxChain = 64

// IsReset reports whether a body is a peer's request for a new handshake, in
// whichever form it came.
func (b Body) IsReset() bool { return b.Text == Reset }

// Decode reads a body.
func Decode(body string) Body {
	if b, ok := decodeEnvelope(body); ok {
		return b
	}
	text, auto := strings.CutPrefix(body, Auto)
	if !auto {
		return Body{Text: body}
	}
	b := Body{Auto: true, Text: text}
	if rest, ok := strings.CutPrefix(text, replyOpen); ok {
		if id, text, closed := strings.Cut(rest, replyClose); closed {
			b.InReplyTo, b.Text = &id, text
		}
	}
	return b
}

// decodeEnvelope reads field by field: key names are case-sensitive, which
// struct decoding is not, and a field that nobody reads may be of any type.
func decodeEnvelope(body string) (Body, bool) {
	// Cheap, and what keeps plain texts from being scanned as JSON.
	if !strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{") {
		return Body{}, false
	}
	var top object
	if json.Unmarshal([]byte(body), &top) != nil {
		return Body{}, false
	}
	if v, ok := top.text("envelope_version"); !ok || v != Version {
		return Body{}, false
	}
	message, tp, scope := top.object("message"), top.object("tp"), top.object("scope")
	b := Body{Envelope: true, Auto: string(tp["auto"]) == "true"}
	b.Text, _ = message.text("text")
	b.MessageID = message.optional("id")
	b.InReplyTo = tp.optional("in_reply_to")
	b.FromSession = tp.label("from_session")
	if b.FromSession == nil {
		// Older bodies have the label here. Ids of other kinds are too long
		// to be taken for one, mostly.
		b.FromSession = scope.label("wrapper_session_id")
	}
	b.ToSession = tp.label("to_session")
	if raw, there := tp["to_session"]; there && b.ToSession == nil {
		b.BadTarget = string(raw) != "null" // a way to write "none"
	}
	if json.Unmarshal(tp["hops"], &b.Hops) != nil || b.Hops < 0 {
		b.Hops = 0
	}
	if json.Unmarshal(tp["chain"], &b.Chain) != nil || len(b.Chain) > maxChain {
		b.Chain = nil
	}
	b.Conch = top["conch"]
	role := RoleAgent
	if r, _ := message.text("role"); r == RoleUser {
		role = RoleUser
	}
	b.Role = &role
	return b, true
}

// An object is a JSON object whose values were not looked at. What is not an
// object is an empty one.
type object map[string]json.RawMessage

func (o object) object(key string) object {
	var inner object
	if json.Unmarshal(o[key], &inner) != nil {
		return nil
	}
	return inner
}

// text is a field that holds a string, and whether it does.
func (o object) text(key string) (string, bool) {
	raw := o[key]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

func (o object) optional(key string) *string {
	if s, ok := o.text(key); ok {
		return &s
	}
	return nil
}

// label is a field that holds a session's label.
func (o object) label(key string) *string {
	if s, ok := o.text(key); ok && conch.CheckLabel(s) == nil {
		return &s
	}
	return nil
}
