package envelope

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// A Message is what is to be put into a body.
type Message struct {
	Text string
	// ID is the message's own. Empty: NewID.
	ID string
	// FromSession is the sender's label. Empty: claude:1, which is what peers
	// take a sender without one for.
	FromSession string
	ToSession   string // empty: the agent, whichever session that means there
	InReplyTo   string
	Role        string // RoleUser; anything else is RoleAgent
	Auto        bool   // nobody wrote this: it must not be answered by a machine
	// Hops is how many responders stand between a person and this, Chain who
	// they were.
	Hops  int
	Chain []string

	// Address is the sending agent's. HarnessSession is the harness's own id
	// of the session. Cwd is a path on the sender's machine and leaves it only
	// if it is set here.
	Address, HarnessSession, Cwd string

	// Conch is a JSON object of conch's own that other readers leave alone. Nil:
	// none.
	Conch json.RawMessage
}

const (
	defaultLabel   = "claude:1"
	defaultAddress = "agent"
	isoMillis      = "2006-01-02T15:04:05.000Z"
)

// NewID makes a message's id: msg- and 18 hexadecimal digits.
func NewID() string {
	var b [9]byte
	rand.Read(b[:])
	return "msg-" + hex.EncodeToString(b[:])
}

// The wire form. The order of fields is that of the peers; nobody depends on it.
type wire struct {
	EnvelopeVersion string      `json:"envelope_version"`
	Version         int         `json:"version"`
	Bucket          wireBucket  `json:"bucket"`
	Scope           wireScope   `json:"scope"`
	Harness         wireHarness `json:"harness"`
	Message         wireMessage `json:"message"`
	Source          wireSource  `json:"source"`
	TP              wireTP      `json:"tp"`

	Conch json.RawMessage `json:"conch,omitempty"`
}

type wireBucket struct {
	Unit  string `json:"unit"`
	Start string `json:"start"`
	End   string `json:"end"`
}

type wireScope struct {
	Type           string  `json:"type"`
	Key            literal `json:"key"`
	Cwd            literal `json:"cwd"`
	WrapperSession literal `json:"wrapper_session_id"`
	HarnessSession literal `json:"harness_session_id"`
}

type wireHarness struct {
	Provider string   `json:"provider"`
	Command  string   `json:"command"`
	Argv     []string `json:"argv"`
}

type wireMessage struct {
	ID        literal `json:"id"`
	Line      int     `json:"line"`
	Role      string  `json:"role"`
	Text      literal `json:"text"`
	Timestamp string  `json:"timestamp"`
}

type wireSource struct {
	Path       string `json:"path"`
	RecordType string `json:"record_type"`
}

type wireTP struct {
	V           int     `json:"v"`
	FromSession string  `json:"from_session"`
	ToSession   string  `json:"to_session,omitempty"`
	InReplyTo   literal `json:"in_reply_to,omitempty"`
	Auto        bool    `json:"auto,omitempty"`
	// Ours, and ignored by peers that do not know them.
	Hops  int      `json:"hops,omitempty"`
	Chain []string `json:"chain,omitempty"`
}

// A literal is encoded as the peers do it: what JSON demands is escaped, and
// nothing else. encoding/json escapes U+2028 and U+2029 as well.
type literal string

func (s literal) MarshalJSON() ([]byte, error) {
	const hexDigits = "0123456789abcdef"
	b := append(make([]byte, 0, len(s)+2), '"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		default:
			if short := strings.IndexByte("\b\t\n\f\r", c); short >= 0 {
				b = append(b, '\\', "btnfr"[short])
			} else {
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		}
	}
	return append(b, '"'), nil
}

// Encode writes the message as an envelope of the given time. Labels are
// checked, never repaired; text that is not UTF-8 is refused, since JSON would
// change it on the way.
func (m Message) Encode(now time.Time) (string, error) {
	if m.FromSession == "" {
		m.FromSession = defaultLabel
	}
	if err := conch.CheckLabel(m.FromSession); err != nil {
		return "", err
	}
	if m.ToSession != "" {
		if err := conch.CheckLabel(m.ToSession); err != nil {
			return "", err
		}
	}
	for _, f := range []struct{ name, value string }{
		{"text", m.Text}, {"id", m.ID}, {"id it replies to", m.InReplyTo}, {"address", m.Address},
		{"harness session", m.HarnessSession}, {"directory", m.Cwd},
	} {
		if !utf8.ValidString(f.value) {
			return "", conch.Errorf(conch.InvalidRequest, "the message's %s is not UTF-8", f.name).
				Hint("a body is text; send other bytes encoded, for instance as base64")
		}
	}
	if m.ID == "" {
		m.ID = NewID()
	}
	if m.Address == "" {
		m.Address = defaultAddress
	}
	if m.Role != RoleUser {
		m.Role = RoleAgent
	}
	key := m.Address + ":" + m.FromSession
	wrapper := m.HarnessSession
	if wrapper == "" {
		wrapper = key
	}
	now = now.UTC()
	start := now.Truncate(time.Minute)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(wire{
		EnvelopeVersion: Version, Version: 1,
		Bucket:  wireBucket{"minute", start.Format(isoMillis), start.Add(time.Minute).Format(isoMillis)},
		Scope:   wireScope{"session", literal(key), literal(m.Cwd), literal(wrapper), literal(m.HarnessSession)},
		Harness: wireHarness{"claude", "tinyplace-plugin", []string{}},
		Message: wireMessage{ID: literal(m.ID), Role: m.Role, Text: literal(m.Text), Timestamp: now.Format(isoMillis)},
		Source:  wireSource{"plugin", "dm"},
		TP:      wireTP{1, m.FromSession, m.ToSession, literal(m.InReplyTo), m.Auto, m.Hops, m.Chain},
		Conch:   m.Conch,
	})
	if err != nil {
		return "", conch.Errorf(conch.Internal, "cannot encode the message: %v", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// EncodeLegacy writes the form of peers that know no envelope: an automatic
// reply behind its sentinel, anything else as plain text. It carries no id, no
// labels and no role, and only an automatic reply says what it replies to. An
// id that the form cannot carry is refused; so is a plain text that would be
// read as something else.
func (m Message) EncodeLegacy() (string, error) {
	if !m.Auto {
		if b := Decode(m.Text); b.Envelope || b.Auto {
			return "", conch.Errorf(conch.InvalidRequest, "this text would be read as a body of another form").
				Hint("send it in an envelope")
		}
		return m.Text, nil
	}
	if strings.Contains(m.InReplyTo, replyClose) {
		return "", conch.Errorf(conch.InvalidRequest, "the id %q cannot stand in a legacy body", m.InReplyTo).
			Hint("send it in an envelope")
	}
	if m.InReplyTo == "" {
		if strings.HasPrefix(m.Text, replyOpen) && strings.Contains(m.Text[len(replyOpen):], replyClose) {
			return "", conch.Errorf(conch.InvalidRequest, "this text would be read as a reply").Hint("send it in an envelope")
		}
		return Auto + m.Text, nil
	}
	return Auto + replyOpen + m.InReplyTo + replyClose + m.Text, nil
}
