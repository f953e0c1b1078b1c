package relay

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/conchsh/conch"
)

// What agents and the hub say to each other: a request on
// conch.hub.ADDRESS.VERB, where the server lets only that address publish, and
// answers to an inbox where it lets only that address listen. Both carry JSON in
// one header and bytes as they are.
const (
	hubSubject   = "conch.hub."
	homeSubject  = "conch.home."
	inboxSubject = "_INBOX_"

	metaHeader  = "Conch-Meta"
	errorHeader = "Conch-Error"
)

// inboxPrefix is where answers to an address, or a home's key, may go.
func inboxPrefix(who string) string { return inboxSubject + who }

// The verbs of the hub.
const (
	verbOpen    = "open"
	verbSend    = "send"
	verbFetch   = "fetch"
	verbAck     = "ack"
	verbBundle  = "bundle"
	verbGet     = "get"
	verbKeys    = "keys"
	verbClaim   = "claim"
	verbMark    = "mark"
	verbPut     = "put"
	verbRead    = "read"
	verbDrop    = "drop"
	verbHandle  = "handle"
	verbResolve = "resolve"
	verbEnrol   = "enrol"
)

type (
	openAnswer struct {
		Serial uint64 `json:"serial"`
		Keys   int    `json:"keys"`
	}
	sendRequest struct {
		To  string        `json:"to"`
		ID  string        `json:"id"`
		TTL time.Duration `json:"ttl,omitempty"`
	}
	sendAnswer struct {
		Duplicate bool `json:"duplicate,omitempty"`
	}
	fetchRequest struct {
		Wait time.Duration `json:"wait"`
	}
	// delivery is a message of a mailbox. The last answer to a fetch has none.
	delivery struct {
		End        bool      `json:"end,omitempty"`
		From       string    `json:"from,omitempty"`
		ID         string    `json:"id,omitempty"`
		Seq        uint64    `json:"seq,omitempty"`
		Time       time.Time `json:"time,omitzero"`
		Deliveries uint64    `json:"deliveries,omitempty"`
		Consumer   uint64    `json:"consumer,omitempty"` // its number at the consumer
	}
	ackRequest struct {
		Seq        uint64 `json:"seq"`
		Consumer   uint64 `json:"consumer"`
		Deliveries uint64 `json:"deliveries"`
	}
	bundleRequest struct {
		Serial uint64 `json:"serial"`
	}
	addressRequest struct {
		Address string `json:"address"`
	}
	claimAnswer struct {
		Serial  uint64      `json:"serial"`
		Key     *OneTimeKey `json:"key,omitempty"`
		Limited bool        `json:"limited,omitempty"`
	}
	keysRequest struct {
		Keys []OneTimeKey `json:"keys,omitempty"`
		Drop bool         `json:"drop,omitempty"`
	}
	keysAnswer struct {
		Count int `json:"count"`
	}
	chunkRequest struct {
		Owner string `json:"owner,omitempty"`
		ID    string `json:"id"`
		N     int    `json:"n"`
		Last  bool   `json:"last,omitempty"`
	}
	handleRequest struct {
		Name string `json:"name"`
	}
	handleAnswer struct {
		Address string `json:"address"`
	}
	enrolRequest struct {
		Address string `json:"address"`
		Login   string `json:"login"`
		Proof   []byte `json:"proof"`
	}
)

// wireError is an error as it travels.
type wireError struct {
	Kind  conch.Kind `json:"kind"`
	Text  string     `json:"text"`
	Hint  string     `json:"hint,omitempty"`
	Retry bool       `json:"retry,omitempty"`
}

func newMsg(subject string, meta any, data []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	if meta != nil {
		b, err := json.Marshal(meta)
		if err != nil {
			panic(err) // types of ours, all of which can be marshalled
		}
		m.Header.Set(metaHeader, string(b))
	}
	m.Data = data
	return m
}

func errorMsg(subject string, err error) *nats.Msg {
	e := conch.AsError(err)
	m := nats.NewMsg(subject)
	b, _ := json.Marshal(wireError{e.Kind, e.Message, e.HintText, e.Retryable})
	m.Header.Set(errorHeader, string(b))
	return m
}

// readMsg gives what an answer carries, or the error that it is.
func readMsg(m *nats.Msg, meta any) error {
	if s := m.Header.Get(errorHeader); s != "" {
		var e wireError
		if json.Unmarshal([]byte(s), &e) != nil {
			return badAnswer()
		}
		return &conch.Error{Kind: e.Kind, Message: e.Text, HintText: e.Hint, Retryable: e.Retry}
	}
	if meta == nil {
		return nil
	}
	if json.Unmarshal([]byte(m.Header.Get(metaHeader)), meta) != nil {
		return badAnswer()
	}
	return nil
}

func badAnswer() error {
	return conch.Errorf(conch.RelayUnreachable, "the relay's answer cannot be read").
		Hint("it may be a newer conch").Retry()
}

// safeToken reports whether s may stand as one word of a subject or a name.
func safeToken(s string, most int) bool {
	return len(s) > 0 && len(s) <= most && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// isAddress reports whether s can be the base58 of a key.
func isAddress(s string) bool {
	return len(s) >= 32 && len(s) <= 44 && strings.Trim(s, "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz") == ""
}
