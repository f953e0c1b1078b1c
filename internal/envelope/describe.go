package envelope

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// A Description is a message in the words of `conch envelope encode`: those
// that decoding prints, and those of the sender that it does not.
type Description struct {
	Message
	// Legacy asks for the form of older peers ("envelope": false).
	Legacy bool
}

// Encode writes what was described, as of now.
func (d Description) Encode(now time.Time) (string, error) {
	if d.Legacy {
		return d.EncodeLegacy()
	}
	return d.Message.Encode(now)
}

// ParseDescription reads a description. Names it does not know are refused, so
// that a misspelt one is not left out in silence. As the peers have it, text
// that is a number or a boolean is what it prints as, and auto is anything that
// is true in JavaScript.
func ParseDescription(data []byte) (Description, error) {
	bad := func(format string, args ...any) (Description, error) {
		return Description{}, conch.Errorf(conch.InvalidRequest, format, args...).
			Hint(`for instance {"text": "hi", "fromSession": "claude:1", "toSession": "claude:2"}`)
	}
	var fields object
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&fields); err != nil || fields == nil {
		if err == nil || err == io.EOF {
			return bad("the description is not a JSON object")
		}
		return bad("the description is not a JSON object: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return bad("something follows the description")
	}
	var d Description
	strs := map[string]*string{
		"messageId": &d.ID, "fromSession": &d.FromSession, "toSession": &d.ToSession, "inReplyTo": &d.InReplyTo,
		"role": &d.Role, "agentAddress": &d.Address, "harnessSessionId": &d.HarnessSession, "cwd": &d.Cwd,
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		raw := string(fields[key])
		switch to := strs[key]; {
		case to != nil:
			var ok bool
			if *to, ok = fields.text(key); !ok && raw != "null" {
				return bad("%s is not a string", key)
			}
		case key == "text":
			var ok bool
			if d.Text, ok = fields.text(key); ok || raw == "null" {
				break
			}
			if raw[0] == '{' || raw[0] == '[' {
				return bad("text is not a string")
			}
			d.Text = raw
		case key == "auto":
			d.Auto = truthy(raw)
		case key == "envelope":
			if raw != "true" && raw != "false" {
				return bad("envelope is neither true nor false")
			}
			d.Legacy = raw == "false"
		default:
			return bad("a description has no %q", key)
		}
	}
	return d, nil
}

// truthy is what JavaScript makes of a value where it wants a boolean.
func truthy(raw string) bool {
	switch raw {
	case "false", "null", `""`:
		return false
	}
	if c := raw[0]; c == '-' || c >= '0' && c <= '9' {
		mantissa, _, _ := strings.Cut(strings.ToLower(raw), "e")
		return strings.Trim(mantissa, "-.0") != ""
	}
	return true
}
