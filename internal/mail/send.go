package mail

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// maxExpiry keeps dates within what nanoseconds can count.
const maxExpiry = 100 * 365 * 24 * time.Hour

// Send accepts a message, or says why not. When it returns without an error the
// message is on disk, in the inbox it is for or held. The same id with the same
// content is the same message; with other content it is refused.
//
// Sending is no presence: who is there only to send is not there to receive,
// but for what it sends to itself. Mail to an agent never goes to its sender.
func (m *Mail) Send(ctx context.Context, r conch.SendRequest) (sent conch.SentMessage, err error) {
	if err := m.checkSend(&r); err != nil {
		return sent, err
	}
	to, err := m.resolve(ctx, r.Agent, r.To)
	if err != nil {
		return sent, err
	}
	var running map[string]bool
	if away := IsAddress(to.agent); away {
		if err := m.o.Ready(ctx, r.Agent, to.agent); err != nil {
			return sent, err
		}
	} else if to.label == "" || !m.here.held(to) {
		running = m.runningOf(ctx, to.agent, to.label)
	}
	err = m.write(ctx, running, func(s *step) error {
		sent, err = s.accept(r, to)
		return err
	})
	if err != nil {
		return conch.SentMessage{}, err
	}
	fault.Point("mail.accepted")
	if sent.Via == "relay" {
		m.o.Carried(r.Agent, to.agent)
	}
	if r.ExpiresMS > 0 {
		m.nudge()
	}
	return sent, nil
}

func (m *Mail) checkSend(r *conch.SendRequest) error {
	if err := m.checkSession(r.Agent, r.Session); err != nil {
		return err
	}
	if r.ID == "" {
		r.ID = conch.NewMessageID()
	}
	for _, id := range []string{r.ID, r.InReplyTo} {
		if id == "" {
			continue
		}
		if err := conch.CheckMessageID(id); err != nil {
			return err
		}
	}
	switch r.Role {
	case "":
		r.Role = "agent"
	case "user", "agent":
	default:
		return conch.Errorf(conch.InvalidRequest, "%.40q is not a role", r.Role).Hint("roles are user and agent")
	}
	if r.Policy != "" {
		if err := conch.CheckPolicy(r.Policy); err != nil {
			return err
		}
	}
	if r.ExpiresMS < 0 || r.ExpiresMS > maxExpiry.Milliseconds() {
		return conch.Errorf(conch.InvalidRequest, "a message cannot expire after %d ms", r.ExpiresMS).
			Hint("between 1 ms and 100 years; without, it does not expire")
	}
	if err := checkChain(r); err != nil {
		return err
	}
	if len(r.Attachments) > conch.MaxAttachments {
		return conch.Errorf(conch.TooLarge, "%d attachments, more than the limit of %d; nothing was sent", len(r.Attachments), conch.MaxAttachments)
	}
	return checkText(r.Text)
}

func checkText(text string) error {
	switch {
	case text == "":
		return conch.Errorf(conch.InvalidRequest, "the message has no text")
	case len(text) > conch.MaxText:
		return conch.Errorf(conch.TooLarge, "the text has %d bytes, more than the limit of %d (1 MiB); nothing was sent", len(text), conch.MaxText).
			Hint("send it as a file: conch send TO 'see the file' --attach FILE")
	case !utf8.ValidString(text):
		return conch.Errorf(conch.InvalidRequest, "the text is not valid UTF-8; nothing was sent").
			Hint("bytes that are not text: encode them, or send a file's name")
	}
	return nil
}

// hash is of what the sender asked for. Not of a date: a repeated request with
// the same time to live is the same request.
func hash(r conch.SendRequest, to target, files []conch.Attachment) []byte {
	what := []any{r.Agent, r.Session, to.agent, to.label, r.Text, r.InReplyTo, r.Role, r.ExpiresMS, r.Policy, r.Auto}
	for _, f := range files {
		what = append(what, f.Name, f.SHA256) // not its id: the same file may have been uploaded again
	}
	b, err := json.Marshal(what)
	if err != nil {
		panic(err) // strings and numbers
	}
	h := sha256.Sum256(b)
	return h[:]
}

// accept is the transaction of a send. It is the one that everybody waits for,
// so it runs as few statements as it can.
func (s *step) accept(r conch.SendRequest, to target) (conch.SentMessage, error) {
	var none conch.SentMessage
	files, err := s.uploaded(r.Attachments)
	if err != nil {
		return none, err
	}
	sum := hash(r, to, files)
	if again, err := s.repeated(r, sum); again != nil || err != nil {
		if err != nil {
			return none, err
		}
		return *again, nil
	}
	if err := s.record(r.Agent, r.Session); err != nil { // an answer must find it
		return none, err
	}
	if IsAddress(to.agent) {
		return s.acceptRemote(r, to, sum, files)
	}
	d, open, err := s.routed(r, to)
	if err != nil {
		return none, err
	}
	state := conch.ReceiptStored
	if d.held {
		state = conch.ReceiptHeld
	}
	n, err := s.insert(r, to, sum, state, open, "local", s.wall)
	if err != nil {
		return none, err
	}
	if err := s.attach(n, files); err != nil {
		return none, err
	}
	if err := s.receipt(n, conch.ReceiptQueued, "", target{}); err != nil {
		return none, err
	}
	if len(d.to) == 0 {
		if err := s.receipt(n, state, "no session of the agent is live", target{}); err != nil {
			return none, err
		}
	}
	s.concern(r.Agent, r.Session)
	sent := conch.SentMessage{ID: r.ID, To: to.agent, FromSession: r.Session, Via: "local", Status: state}
	for _, l := range d.to {
		if err := s.place(n, target{to.agent, l}, state); err != nil {
			return none, err
		}
		if len(d.to) == 1 {
			sent.ToSession = &l
		}
	}
	// The first to wait has the housekeeper look now and then.
	if open && !s.m.spread.Swap(true) || d.held && !open && !s.m.held.Swap(true) {
		s.m.nudge()
	}
	if r.InReplyTo != "" {
		err = s.answered(r, to)
	}
	return sent, err
}

// routed says where a new message goes, and whether it may go further later.
func (s *step) routed(r conch.SendRequest, to target) (d decision, open bool, err error) {
	if to.label != "" {
		if err := s.reachable(to); err != nil {
			return d, false, err
		}
		var here []live // the others do not matter
		// Who writes to itself is there.
		if s.running[to.String()] || s.m.here.held(to) || to == (target{r.Agent, r.Session}) {
			here = []live{{label: to.label}}
		}
		return route(to.label, "", here), false, nil
	}
	policy, err := s.policy(to.agent, r.Policy)
	if err != nil {
		return d, false, err
	}
	here, err := s.live(to.agent)
	if err != nil {
		return d, false, err
	}
	if d = route("", policy, takers(here, to.agent, target{r.Agent, r.Session})); d.refuse {
		return d, false, conch.Errorf(conch.MessageRefused, "agent %s takes no mail that names no session (policy drop); nothing was sent", to.agent).
			Hint("send to one of its sessions: %s/LABEL", to.agent)
	}
	return d, d.held || policy == conch.PolicyBroadcast, nil
}

// repeated finds a message that was sent before under the same id.
func (s *step) repeated(r conch.SendRequest, sum []byte) (*conch.SentMessage, error) {
	var n int64
	var was []byte
	err := s.tx.Row(`SELECT n, hash FROM messages WHERE id = ? ORDER BY from_agent = ? DESC LIMIT 1`, r.ID, r.Agent).Scan(&n, &was)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if string(was) != string(sum) {
		return nil, conch.Errorf(conch.MessageConflict, "the id %s belongs to another message; nothing was sent", r.ID).
			Hint("an id is for one sender, recipient and text: repeat those exactly, or choose another id")
	}
	sent, err := s.sent(n)
	return &sent, err
}

// reachable refuses a label that never was. One that only a shell had is kept.
func (s *step) reachable(to target) error {
	known, err := s.labelled(to.agent, to.label)
	if err != nil || known {
		return err
	}
	if (s.m.o.Had != nil && s.m.o.Had(to.agent, to.label)) || s.m.here.held(to) {
		return s.record(to.agent, to.label)
	}
	return s.nobody(to)
}

func (s *step) insert(r conch.SendRequest, to target, sum []byte, status conch.Receipt, open bool, via string, sentAt int64) (int64, error) {
	if err := s.inherit(&r); err != nil {
		return 0, err
	}
	thread := r.ID
	if r.InReplyTo != "" {
		err := s.tx.Row(`SELECT thread FROM messages WHERE id = ? ORDER BY n LIMIT 1`, r.InReplyTo).Scan(&thread)
		if errors.Is(err, sql.ErrNoRows) {
			thread, err = r.InReplyTo, nil
		}
		if err != nil {
			return 0, err
		}
	}
	var expires int64
	spread := s.now + int64(spreadTime)
	if r.ExpiresMS > 0 {
		expires = s.now + r.ExpiresMS*int64(time.Millisecond)
		spread = expires
	}
	res, err := s.tx.Exec(`INSERT INTO messages(id, from_agent, from_session, to_agent, to_session, policy, role, text, in_reply_to, thread, auto, via, hash, status, open, sent_at, expires, spread_until, hops, chain)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, r.Agent, r.Session, to.agent, to.label, r.Policy, r.Role, r.Text, r.InReplyTo, thread, r.Auto, via, sum, status, open, sentAt, expires, spread, r.Hops, strings.Join(r.Chain, " "))
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// answered consumes the message that this one answers, if it was the sender's
// to answer and goes back to where it came from.
func (s *step) answered(r conch.SendRequest, to target) error {
	var n int64
	var state conch.Receipt
	err := s.tx.Row(`SELECT d.msg, d.state FROM messages m JOIN deliveries d ON d.msg = m.n
		WHERE m.id = ? AND m.from_agent = ? AND d.agent = ? AND d.label = ?`, r.InReplyTo, to.agent, r.Agent, r.Session).Scan(&n, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.done(n, state, target{r.Agent, r.Session})
}

// done ends a message in one inbox. Doing so twice is once.
func (s *step) done(n int64, state conch.Receipt, at target) error {
	if state == conch.ReceiptDone || state == conch.ReceiptExpired {
		return nil
	}
	if _, err := s.tx.Exec(`UPDATE deliveries SET state = 'done', lease = 0 WHERE agent = ? AND label = ? AND msg = ?`, at.agent, at.label, n); err != nil {
		return err
	}
	return s.note(n, conch.ReceiptDone, "", at)
}

// sent describes a message to its sender.
func (s *step) sent(n int64) (m conch.SentMessage, err error) {
	var label string
	err = s.tx.Row(`SELECT id, to_agent, to_session, from_session, via, status FROM messages WHERE n = ?`, n).
		Scan(&m.ID, &m.To, &label, &m.FromSession, &m.Via, &m.Status)
	if err != nil {
		return m, err
	}
	if label != "" {
		m.ToSession = &label
		return m, nil
	}
	to, err := s.recipients(n, m.To)
	if len(to) == 1 {
		m.ToSession = &to[0]
	}
	return m, err
}
