// Package post carries mail between homes: what package mail accepts for an
// agent elsewhere is sealed, kept, and published at a relay until the other
// home's daemon says that it has it; what comes from there is opened, looked at
// and handed to mail. It also knows the contacts, who is let in.
//
// # Guarantees
//
// A message that mail accepted is on disk together with the ratchet that sealed
// it, or waits unsealed for a key, for an answer, for a person. The sealed bytes
// are published, the same ones each time, and kept until the recipient's daemon
// reports on the message. A relay's word is not enough.
//
// What comes in is opened from the stored ratchet, known again by peer, epoch and
// number, routed and put into an inbox, with the new ratchet, in one transaction.
// Only then is the relay told. So a message is put into the inbox exactly once,
// whichever process dies when.
//
// Messages of one agent to another are delivered in the order in which they
// were accepted. One that comes before its time, because an earlier one was lost
// on the way or could not be opened, waits for it: up to HoldBack, or until its
// sender says that nothing earlier will come. The sender is told what is missing.
//
// What cannot be opened goes to quarantine with its reason, and its sender is
// asked for it again by a signed statement; it is sealed anew up to maxAttempts
// times. It blocks nobody and changes no ratchet.
//
// # Numbers
//
// Every message to a peer has a number, counted from 1 within the epoch of the
// sender's keys, and every report another. A message carries the floor below
// which its sender will send nothing any more.
//
// # Reports
//
// What becomes of a message is told by reports. They are the steps that mail
// records, read behind a mark that moves in the transaction that seals them.
// A report is published until the relay has it. If the relay loses it, the
// message comes again, and is reported on again.
//
// # Who is who
//
// An agent that is no contact gets nothing in. Asking to be one is a signed
// statement and costs no ratchet; answering is a person's. The keys that a peer
// had first are pinned. If they change without a word of the old ones, all of
// its mail is held, opened and unread, until a person has accepted the new ones.
//
// # Restored and copied homes
//
// The relay has a mark of how far each agent's store has come. A daemon that
// starts and finds itself behind it was restored from a backup, or is a copy: it
// takes new keys, of a new epoch, and seals everything again that has no report. A
// daemon that finds the mark moved by another stops sending and receiving.
//
// # Concurrency
//
// Methods are safe for concurrent use. Per agent there is a line: a goroutine
// that keeps the connection in order, one that reads the mailbox, and one per
// peer while there is something to send. A home that never used a relay has none
// of these. New does nothing; Start and what mail calls start lines.
package post

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
)

// A Wire is an agent's connection to its relay: *relay.Agent, or in tests one
// that misbehaves.
type Wire interface {
	Link() relay.Link
	Close()
	Publish(ctx context.Context, to, id string, data []byte, ttl time.Duration) (duplicate bool, err error)
	Consume(ctx context.Context, take relay.Taker) error
	PutBundle(ctx context.Context, serial uint64, bundle []byte) error
	PutOneTimeKeys(ctx context.Context, keys []relay.OneTimeKey) (count int, err error)
	DropOneTimeKeys(ctx context.Context) error
	Count(ctx context.Context) (int, error)
	Claim(ctx context.Context, address string) (relay.Claim, error)
	Bundle(ctx context.Context, address string) (serial uint64, bundle []byte, err error)
	Mark(ctx context.Context, m relay.Mark) (relay.Mark, error)
	PutBlob(ctx context.Context, id string, r io.Reader) (size int64, err error)
	Blob(ctx context.Context, address, id string, w io.Writer) (size int64, err error)
}

// An Identity is an agent's key. *agent.Key is one.
type Identity interface {
	Public() ed25519.PublicKey
	Address() string
	Sign(message []byte) []byte
	SignFor(purpose string, message []byte) ([]byte, error)
	Derive(purpose string, n int) ([]byte, error)
}

// Options are what a Post stands on.
type Options struct {
	Mail *mail.Mail
	// Active reports whether there is a relay that others reach.
	Active func() bool
	// Connect gives an agent its connection; observe is told of its changes.
	Connect func(id Identity, observe func(relay.Link)) (Wire, error)
	// Agents are the names of this home's agents, and Key gives the key of one.
	Agents func() []string
	Key    func(agent string) (Identity, error)
	// Restored says that the home was restored from a backup and an agent's keys
	// have not been made anew since; Renewed is called when they have, or need not be.
	Restored func(agent string) bool
	Renewed  func(agent string)
	Limits   Limits
	Log      *slog.Logger // nil: nothing is logged
}

// Limits bound what others can make this home do, and how long it waits.
type Limits struct {
	// Rate and Bytes are what is taken of one peer within a minute.
	Rate, Bytes int64
	// Requests is how many strangers' requests may wait for an answer; 0: none.
	Requests int64
	// Resend is when a message that nobody reported on is published again;
	// after that it is done less and less often.
	Resend time.Duration
	// Patience is how long a message waits for its recipient to become a contact.
	Patience time.Duration
	// HoldBack is how long a message waits for an earlier one.
	HoldBack time.Duration
}

const (
	maxAttempts = 3
	// giveUp ends a message on which nobody reported for so long: the relay
	// has forgotten it by then.
	giveUp = relay.MessageAge
	// never is a date for what waits for something else than time.
	never = 1<<62 - 1
)

// A Post is what one home sends and gets.
type Post struct {
	o Options

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	report, fetch chan struct{} // wake the two that look for work
	looked        int64         // the last step of mail that was none to report; of the goroutine that reports

	mu     sync.Mutex // guards what follows
	closed bool
	begun  bool
	lines  map[string]*line // by agent
	names  map[string]string
}

// New gives a Post. It starts nothing.
func New(o Options) *Post {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Post{o: o, lines: map[string]*line{}, report: make(chan struct{}, 1), fetch: make(chan struct{}, 1)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Start opens the lines of all agents, if there is a relay that others reach. It
// is called again whenever that may have changed, or an agent came or was
// unlocked. An agent whose line cannot be opened is logged.
func (p *Post) Start() {
	if !p.o.Active() {
		return
	}
	for _, agent := range p.o.Agents() {
		if _, err := p.line(p.ctx, agent); err != nil && !errors.Is(err, conch.AgentLocked) && !errors.Is(err, conch.AgentNotFound) && p.ctx.Err() == nil {
			p.o.Log.Warn("open the line of an agent", "agent", agent, "err", err)
		}
	}
}

// Close ends all lines and waits. What is under way goes on at the next start.
func (p *Post) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
}

// Shut closes the line of an agent whose key was locked, and waits: nothing is
// sent or taken for it, its connection is gone and its keys are forgotten, until
// Start finds it unlocked.
func (p *Post) Shut(agent string) {
	p.mu.Lock()
	l := p.lines[agent]
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock() // nothing begins behind this
	l.stop()
	l.mu.Unlock()
	l.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[agent] == l {
		delete(p.lines, agent)
	}
}

// line gives an agent's line, and opens it first if it must.
func (p *Post) line(ctx context.Context, agent string) (*line, error) {
	p.mu.Lock()
	l := p.lines[agent]
	p.mu.Unlock()
	if l != nil {
		if l.ctx.Err() != nil && p.ctx.Err() == nil { // Shut is about to be through
			_, err := p.o.Key(agent)
			if err == nil {
				err = conch.Errorf(conch.NotRunning, "the connection of agent %s is being closed", agent).Retry()
			}
			return nil, err
		}
		return l, nil
	}
	l, err := p.openLine(ctx, agent)
	if err != nil {
		return nil, err
	}
	// It may have been locked meanwhile, before there was a line to shut.
	if _, err := p.o.Key(agent); err != nil {
		p.Shut(agent)
		return nil, err
	}
	return l, nil
}

func (p *Post) openLine(ctx context.Context, agent string) (*line, error) {
	key, err := p.o.Key(agent)
	if err != nil {
		return nil, err
	}
	l := newLine(p, agent, key)
	opened := false
	defer func() {
		if !opened {
			l.stop()
		}
	}()
	if err := l.account(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, leaving()
	}
	if old := p.lines[agent]; old != nil {
		return old, nil
	}
	if l.wire, err = p.o.Connect(key, l.linked); err != nil {
		return nil, err
	}
	opened = true
	p.lines[agent] = l
	l.begin(l.run) // ends with the line
	if !p.begun {
		p.begun = true
		p.wg.Go(p.reporting) // ends with Close
		p.wg.Go(p.fetching)  // ends with Close
		p.wg.Go(p.tidying)   // ends with Close
	}
	return l, nil
}

// find gives a line that is open.
func (p *Post) find(agent string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[agent]
}

func leaving() error {
	return conch.Errorf(conch.NotRunning, "the daemon is leaving").Hint("try again: the next command starts another").Retry()
}

// Report is for mail to call after its writes: there may be something to report.
func (p *Post) Report() { wake(p.report) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Ready is asked before mail accepts a message for an address. An address that
// nobody has is refused here; what cannot be known now is accepted and waits.
func (p *Post) Ready(ctx context.Context, agent, address string) error {
	if !p.o.Active() {
		return conch.Errorf(conch.AgentNotFound, "no agent of this home has the address %s, and this home is at no relay where others are; nothing was sent", address).
			Hint("conch relay listen ADDR and relay invite let others in; conch relay join INVITE goes to theirs")
	}
	if _, err := parsePeer(address); err != nil {
		return err
	}
	l, err := p.line(ctx, agent)
	if err != nil {
		return err
	}
	if err := l.stale(); err != nil {
		return err
	}
	known := false
	err = p.o.Mail.View(ctx, func(s *mail.Step) error {
		c, err := contactOf(s, agent, address)
		known = c != nil
		return err
	})
	if err != nil || known || !l.wire.Link().Connected {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, _, err := l.wire.Bundle(ctx, address); errors.Is(err, conch.MailboxNotFound) {
		return conch.Errorf(conch.AgentNotFound, "nobody at this relay has the address %s; nothing was sent", address).
			Hint("conch whoami shows an agent's address; its home must have joined the same relay")
	}
	return nil
}

// Carried is called when a message is on disk.
func (p *Post) Carried(agent, address string) {
	if l := p.find(agent); l != nil {
		l.send(address)
	}
}

// Info is a line of status for an agent that has a line.
type Info struct {
	Agent     string
	Address   string
	Connected bool
	Err       error
}

// Lines says how the agents' lines are.
func (p *Post) Lines() (list []Info) {
	p.mu.Lock()
	lines := make([]*line, 0, len(p.lines))
	for _, l := range p.lines {
		lines = append(lines, l)
	}
	p.mu.Unlock()
	for _, l := range lines {
		i := Info{Agent: l.agent, Address: l.key.Address(), Connected: l.wire.Link().Connected, Err: l.stale()}
		if i.Err == nil {
			i.Err = l.trouble()
		}
		list = append(list, i)
	}
	return list
}
