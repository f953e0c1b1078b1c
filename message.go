package conch

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// MaxText is how many bytes a message's text may have. A longer one is refused,
// never cut.
const MaxText = 1 << 20

// MaxMessageID is how long a message's id may be.
const MaxMessageID = 128

// CheckMessageID refuses what cannot be a message's id. Ids are data that
// others give: they are never part of a path.
func CheckMessageID(s string) error {
	if !of(letters+digits+"._:@+-", s, MaxMessageID) || !of(letters+digits, s[:1], 1) {
		if len(s) > 40 {
			s = s[:40] + "…"
		}
		return Errorf(InvalidRequest, "%q is not a message id", s).
			Hint("an id is 1 to %d characters of A-Z a-z 0-9 . _ : @ + -, the first a letter or digit", MaxMessageID)
	}
	return nil
}

// NewMessageID makes an id: the time, so that ids sort roughly by age, and 72
// random bits. A client makes it before it sends, so that it can send again
// when it did not hear the answer.
func NewMessageID() string {
	var b [15]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], ms[2:])
	rand.Read(b[6:]) // never fails
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// A Policy says what becomes of mail to an agent that names no session.
type Policy string

const (
	PolicyPrimary   Policy = "primary"   // the session of the highest priority, then lowest label
	PolicyBroadcast Policy = "broadcast" // every live session
	PolicyDrop      Policy = "drop"      // refused to the sender
)

// CheckPolicy refuses anything else.
func CheckPolicy(p Policy) error {
	switch p {
	case PolicyPrimary, PolicyBroadcast, PolicyDrop:
		return nil
	}
	return Errorf(InvalidRequest, "%q is not a policy", string(p)).Hint("policies are primary, broadcast and drop")
}

// A Receipt is where a message stands, for its sender. The moves are
// queued → sent (over a relay) → held or stored → offered → seen → done; steps
// may be left out, none is taken back. Refused, expired and failed are ends.
type Receipt string

const (
	ReceiptQueued  Receipt = "queued"
	ReceiptSent    Receipt = "sent"    // on the relay
	ReceiptHeld    Receipt = "held"    // stored, its session away
	ReceiptStored  Receipt = "stored"  // in the inbox of a session that was live
	ReceiptOffered Receipt = "offered" // pushed to a session
	ReceiptSeen    Receipt = "seen"    // fetched
	ReceiptDone    Receipt = "done"    // acknowledged or answered
	ReceiptRefused Receipt = "refused"
	ReceiptExpired Receipt = "expired"
	ReceiptFailed  Receipt = "failed"
)

// SendRequest asks for a message to be sent. Agent and Session are the sender's.
type SendRequest struct {
	Agent   string `json:"agent,omitempty"`   // empty: the one that works everywhere
	Session string `json:"session,omitempty"` // empty: main
	To      string `json:"to"`                // label, agent/label, agent, or an address with or without /label
	Text    string `json:"text"`
	// ID makes a repeated send the same message. Empty: one is made.
	ID        string `json:"id,omitempty"`
	InReplyTo string `json:"in_reply_to,omitempty"`
	Role      string `json:"role,omitempty"`       // user or agent (the default)
	ExpiresMS int64  `json:"expires_ms,omitempty"` // 0: never
	Policy    Policy `json:"policy,omitempty"`     // empty: the recipient's
	Auto      bool   `json:"auto,omitempty"`       // written by a program on its own
	// Hops is how many auto-responders stand between a person and this message,
	// Chain the agents they were of. What a responder's own session sends has
	// them filled in.
	Hops  int      `json:"hops,omitempty"`
	Chain []string `json:"chain,omitempty"`
	// Attachments are ids of files that were uploaded before.
	Attachments []string `json:"attachments,omitempty"`
}

// ReplyRequest answers a message of the session's inbox. Agent and Session are
// as in a SendRequest, and so are the others.
type ReplyRequest struct {
	Agent     string `json:"agent,omitempty"`
	Session   string `json:"session,omitempty"`
	Text      string `json:"text"`
	ID        string `json:"id,omitempty"`
	Role      string `json:"role,omitempty"`
	ExpiresMS int64  `json:"expires_ms,omitempty"`
	Auto      bool   `json:"auto,omitempty"`
}

// AskRequest sends a message and waits for its answer.
type AskRequest struct {
	SendRequest
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // 0: no limit
	Token     string `json:"token,omitempty"`      // as in AwaitRequest
}

// InboxRequest fetches a session's messages.
type InboxRequest struct {
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty"`
	Peek    bool   `json:"peek,omitempty"`  // show all, and lease nothing
	Limit   int    `json:"limit,omitempty"` // 0: as many as one answer holds
	After   int64  `json:"after,omitempty"` // with Peek: go on after a page's Next
}

// An InboxPage is what one answer holds of an inbox.
type InboxPage struct {
	Messages []InboxEntry `json:"messages"`
	More     bool         `json:"more"` // there are more
	Next     int64        `json:"next"` // where to go on; 0: nothing was shown
}

// AckRequest says that messages of a session's inbox are done with.
type AckRequest struct {
	Agent   string   `json:"agent,omitempty"`
	Session string   `json:"session,omitempty"`
	IDs     []string `json:"ids"`
}

// Acked answers it.
type Acked struct {
	OK bool `json:"ok"`
}

// PolicyInfo is what an agent does with mail that names no session.
type PolicyInfo struct {
	Agent  string `json:"agent,omitempty"`
	Policy Policy `json:"policy"`
}

// PriorityRequest sets a session's priority.
type PriorityRequest struct {
	Agent    string `json:"agent,omitempty"`
	Session  string `json:"session"`
	Priority int    `json:"priority"`
}

// BusyRequest says whether the client of a presence is at work.
type BusyRequest struct {
	Agent  string `json:"agent"`
	Label  string `json:"label"`
	Holder int64  `json:"holder"`
	Busy   bool   `json:"busy"`
}

// SentMessage is what `send --json` prints.
type SentMessage struct {
	ID          string  `json:"id"`
	To          string  `json:"to"`
	ToSession   *string `json:"to_session"` // null: not (only) one session
	FromSession string  `json:"from_session"`
	Via         string  `json:"via"` // local or relay
	Status      Receipt `json:"status"`
}

// An InboxEntry is one message as its reader gets it.
type InboxEntry struct {
	ID          string    `json:"id"`
	From        string    `json:"from"`
	FromSession *string   `json:"from_session"`
	ToSession   string    `json:"to_session"`
	Role        string    `json:"role"`
	Text        string    `json:"text"`
	InReplyTo   *string   `json:"in_reply_to"`
	Auto        bool      `json:"auto"`
	Repeat      bool      `json:"repeat"` // was fetched before
	SentAt      time.Time `json:"sent_at"`
	ReceivedAt  time.Time `json:"received_at"`
	// LeasedUntil is set in what `--peek` shows.
	LeasedUntil *time.Time `json:"leased_until,omitempty"`
	Thread      string     `json:"thread"`
	// Contact is our name for a sender of another home, whose address From is;
	// Verified says that it is an agent of this home or that its keys were
	// compared, Authority what its word counts for.
	Contact     string       `json:"contact"`
	Verified    bool         `json:"verified"`
	Authority   Authority    `json:"authority"`
	Attachments []Attachment `json:"attachments"`
}

// Receipts is all that became of a message.
type Receipts struct {
	ID string `json:"id"`
	// Status is that of the recipient that is least far.
	Status Receipt `json:"status"`
	// Reason is why it came to nothing, or how far its recipients are if not
	// all are equally far; else empty.
	Reason     string         `json:"reason"`
	Recipients []Recipient    `json:"recipients"`
	History    []ReceiptEntry `json:"history"`
}

// A Recipient is a session that has a message in its inbox.
type Recipient struct {
	Session string    `json:"session"` // agent/label
	Status  Receipt   `json:"status"`
	At      time.Time `json:"at"` // since when
}

// A ReceiptEntry is one step of a message.
type ReceiptEntry struct {
	Status Receipt   `json:"status"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Session is the recipient it is about, as agent/label; empty: the message.
	Session string `json:"session"`
}

// Asked is what `ask --json` prints.
type Asked struct {
	Sent     AskedMessage `json:"sent"`
	Reply    *InboxEntry  `json:"reply"`     // nil: none came in time, or none will
	TimedOut bool         `json:"timed_out"` // the time was up
}

// AskedMessage is the question.
type AskedMessage struct {
	ID        string  `json:"id"`
	To        string  `json:"to"`
	ToSession *string `json:"to_session"`
	// Status is as in Receipts. If it is refused, expired or failed, nobody
	// will answer, and Reason says why.
	Status Receipt `json:"status"`
	Reason string  `json:"reason"`
}

// AwaitRequest asks for the next message of an inbox, now or when it comes.
type AwaitRequest struct {
	Agent     string `json:"agent,omitempty"`
	Session   string `json:"session,omitempty"`
	From      string `json:"from,omitempty"`        // as To of a SendRequest
	InReplyTo string `json:"in_reply_to,omitempty"` // only replies to this message
	TimeoutMS int64  `json:"timeout_ms,omitempty"`  // 0: no limit
	// Token names the request: one that is sent again under it, its answer
	// having been lost, gets what it got, although that is leased.
	Token string `json:"token,omitempty"`
}

// FoundMessage is one hit of a search, or one message of a thread.
type FoundMessage struct {
	ID          string    `json:"id"`
	From        string    `json:"from"`
	FromSession string    `json:"from_session"`
	To          string    `json:"to"`
	ToSession   string    `json:"to_session"`
	Text        string    `json:"text"`
	InReplyTo   string    `json:"in_reply_to"`
	Thread      string    `json:"thread"`
	Status      Receipt   `json:"status"`
	SentAt      time.Time `json:"sent_at"`
	// Reason and Recipients are as in Receipts.
	Reason      string       `json:"reason"`
	Recipients  []Recipient  `json:"recipients"`
	Attachments []Attachment `json:"attachments"`
}

// A MailEvent is one step of a message, as it is streamed. To the recipient it
// is a doorbell: the text is fetched.
type MailEvent struct {
	Seq         int64     `json:"seq"`
	Type        string    `json:"type"` // mail: for the listener; receipt: of its own message; contact: From waits for a person's decision
	ID          string    `json:"id"`
	Status      Receipt   `json:"status"`
	At          time.Time `json:"at"`
	Reason      string    `json:"reason"`
	From        string    `json:"from"`
	FromSession string    `json:"from_session"`
	To          string    `json:"to"`
	ToSession   string    `json:"to_session"` // the recipient it is about
	InReplyTo   string    `json:"in_reply_to"`
	Bytes       int64     `json:"bytes"` // of the text
}

// PresenceRequest says that a client works as a session from now on, for as
// long as its connection and its process live.
type PresenceRequest struct {
	Agent string `json:"agent,omitempty"`
	// Label is the one wanted. A claim may get another; joining may not.
	Label string `json:"label,omitempty"`
	// Claim takes a label that no live session has. Otherwise the session of
	// Label, which must exist, is joined.
	Claim bool `json:"claim,omitempty"`
	// Only claims Label or nothing: conch.LabelTaken if it cannot be had.
	Only bool `json:"only,omitempty"`
	// Harness names what the client is (claude, codex); HarnessSession is its
	// own name for the conversation, by which a label is found again.
	Harness        string `json:"harness,omitempty"`
	HarnessSession string `json:"harness_session,omitempty"`
	// HarnessPID is the harness's process, by which its hooks find this session.
	HarnessPID int `json:"harness_pid,omitempty"`
	// PID, Start and Boot are the holder's process. PID 0: the connection alone counts.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
	// Priority decides which session is the primary; nil leaves it as it is.
	Priority *int   `json:"priority,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	Busy     bool   `json:"busy,omitempty"`
}

// PresenceInfo answers it.
type PresenceInfo struct {
	Agent string `json:"agent"`
	Label string `json:"label"`
	// Why this label: wanted, before (this harness session had it), free, or joined.
	Why    string `json:"why"`
	Holder int64  `json:"holder"` // names this presence, to say that it is busy
	// Seq is the last mail event before this presence. Who listens after it hears of
	// everything that the presence brought.
	Seq int64 `json:"seq"`
	// MailError is why mail cannot be used. The label is held all the same, and is
	// not kept for the next time.
	MailError string `json:"mail_error,omitempty"`
}

// The hooks of a harness: its session begins, its user has written a prompt, its model
// wants to stop, its session ends.
const (
	HookStart  = "start"
	HookPrompt = "prompt"
	HookStop   = "stop"
	HookEnd    = "end"
)

// HookRequest is a harness's hook asking what to tell its model.
type HookRequest struct {
	Event string `json:"event"` // HookStart and so on
	// Agent and Label are those wanted, where the session has none yet. The rest
	// is as in a PresenceRequest.
	Agent          string `json:"agent,omitempty"`
	Label          string `json:"label,omitempty"`
	Harness        string `json:"harness,omitempty"`
	HarnessSession string `json:"harness_session"`
	HarnessPID     int    `json:"harness_pid,omitempty"`
}

// HookAnswer answers it.
type HookAnswer struct {
	// Agent and Label are the harness's session; empty: it has none.
	Agent string `json:"agent"`
	Label string `json:"label"`
	Live  bool   `json:"live"`
	// Waiting counts the messages that a fetch would give, up to 100; New those of
	// them that no hook of this kind has told of, now recorded as offered. Messages
	// has the first few of the new ones.
	Waiting  int          `json:"waiting"`
	New      int          `json:"new"`
	Messages []InboxEntry `json:"messages"`
}
