// Package relay carries sealed mail between machines. It knows nothing of mail
// or of keys: it takes opaque bytes to a mailbox named by an address, and keeps
// a directory of opaque public bundles. NATS is behind it and nowhere else.
//
// # What there is
//
// A home has one relay. By default it is a NATS server with JetStream inside
// the daemon, which listens nowhere and is started by the first who connects.
// `relay listen` opens it to other machines (TLS 1.3, a certificate of its own),
// `relay invite` makes a text that lets one other home in, and `relay join`
// has this home use the relay of such a text, or a NATS cluster.
//
// A Relay is the home's; an Agent is one identity's connection through it. An
// Agent outlives what it is connected to: it reconnects for ever, and follows
// the home to another relay.
//
// # What is promised
//
// Publish returns without an error when the message is on the relay's disk (on
// a majority of disks in a cluster). An Agent reads its own mailbox in the order
// in which it was filled, and a message stays until the handler has taken it.
// A full mailbox refuses what is new and keeps what is old. What was refused or
// not reached is an error of one of these kinds, and nothing is retried here:
//
//	conch.RelayUnreachable   not connected, or no answer; the message may have arrived: publish it again under the same id
//	conch.MailboxNotFound    nobody has that mailbox at this relay
//	conch.MailboxFull        it is full; later, the same again
//	conch.QuotaReached       this sender has too much waiting there; later, the same again
//	conch.TooLarge           over MaxMessage
//	conch.RelayRefused       the relay does not let this agent in, or is not the one that was joined
//
// A relay's word is not proof: it may lose its disk, or lie. Senders keep what
// they sent until the recipient says that it has it.
//
// # Concurrency
//
// All methods are safe for concurrent use. Handlers and observers are called by
// one goroutine per Agent, in order.
package relay

import "time"

const (
	// MaxMessage is how many bytes one published message may have.
	MaxMessage = 2 << 20
	// MaxBundle is how many bytes a bundle may have.
	MaxBundle = 64 << 10
	// MaxOneTimeKeys is how many one-time keys the directory keeps for an agent.
	MaxOneTimeKeys = 100
	// MaxOneTimeKey is how many bytes one of them may have.
	MaxOneTimeKey = 1 << 10
	// MaxBlob is how many bytes a blob may have.
	MaxBlob = 65 << 20
	// BlobChunk is how many bytes of a blob travel at once.
	BlobChunk = 512 << 10

	// MessageAge is how long an unread message is kept, and BlobAge a blob.
	MessageAge = 30 * 24 * time.Hour
	BlobAge    = 30 * 24 * time.Hour
	// DedupeWindow is how long the relay knows the id of a message.
	DedupeWindow = 2 * time.Minute
)

// An Identity is who connects. *agent.Key is one.
type Identity interface {
	Address() string
	Sign(message []byte) []byte
	Derive(purpose string, n int) ([]byte, error)
}
