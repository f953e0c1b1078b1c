package mail

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/store"
)

// This file is where mail meets what carries it between homes, internal/post. An
// agent of another home is known by its address, which stands wherever a name
// of this home's agents does.

// IsAddress reports whether a name is an address: no agent's name is as long.
func IsAddress(name string) bool { return isAddress(name) }

// A Step is one transaction of mail's, for what joins it with its own.
type Step = step

// Tx is the transaction.
func (s *step) Tx() *store.Tx { return s.tx }

// Now is mail's own time, which deadlines are counted in, and Wall the time
// that is shown, both in nanoseconds.
func (s *step) Now() int64  { return s.now }
func (s *step) Wall() int64 { return s.wall }

// Concern has those woken who wait for something of an agent.
func (s *step) Concern(agent string) { s.concern(agent, "") }

// Tell says that there is something to tell another home.
func (s *step) Tell() { s.away = true }

// A Parcel is an accepted message to an agent of another home.
type Parcel struct {
	N                   int64 // its number among all messages
	Agent, Session      string
	Address, Label      string // of the recipient
	ID, Text, InReplyTo string
	Role                string
	Policy              conch.Policy
	Auto                bool
	Hops                int
	Chain               []string
	SentAt              time.Time
	ExpiresAt           time.Time // zero: never
	Attachments         []conch.Attachment
	AttachmentKeys      [][]byte
}

// Parcel reads an accepted message again.
func (s *step) Parcel(n int64) (p Parcel, err error) {
	var sent, expires int64
	var chain string
	p.N = n
	err = s.tx.Row(`SELECT from_agent, from_session, to_agent, to_session, id, text, in_reply_to, role, policy, auto, hops, chain, sent_at, abs(expires) FROM messages WHERE n = ?`, n).
		Scan(&p.Agent, &p.Session, &p.Address, &p.Label, &p.ID, &p.Text, &p.InReplyTo, &p.Role, &p.Policy, &p.Auto, &p.Hops, &chain, &sent, &expires)
	if err != nil {
		return p, err
	}
	if p.InReplyTo, err = s.wireID(p.Address, p.InReplyTo); err != nil {
		return p, err
	}
	p.SentAt, p.Chain = time.Unix(0, sent), strings.Fields(chain)
	if expires > 0 {
		p.ExpiresAt = time.Unix(0, s.wall+expires-s.now)
	}
	p.Attachments, p.AttachmentKeys, err = s.attached(n)
	return p, err
}

// acceptRemote is accept for a recipient in another home. What carries it says
// whether it can go, and takes it in the same transaction.
func (s *step) acceptRemote(r conch.SendRequest, to target, sum []byte, files []conch.Attachment) (conch.SentMessage, error) {
	var none conch.SentMessage
	n, err := s.insert(r, to, sum, conch.ReceiptQueued, false, "relay", s.wall)
	if err != nil {
		return none, err
	}
	if err := s.attach(n, files); err != nil {
		return none, err
	}
	reason, err := s.m.o.Carry(s, n, to.agent)
	if err != nil {
		return none, err
	}
	if err := s.receipt(n, conch.ReceiptQueued, reason, target{}); err != nil {
		return none, err
	}
	s.concern(r.Agent, r.Session)
	sent := conch.SentMessage{ID: r.ID, To: to.agent, FromSession: r.Session, Via: "relay", Status: conch.ReceiptQueued}
	if to.label != "" {
		sent.ToSession = &to.label
	}
	if r.InReplyTo != "" {
		err = s.answered(r, to)
	}
	return sent, err
}

// An Inbound message is one that came from another home, proved to be from
// the agent it names.
type Inbound struct {
	Agent               string // of this home
	From, FromSession   string // an address; "": its sender named no session
	ToSession           string // "": the agent
	ID, Text, InReplyTo string
	Role                string
	Policy              conch.Policy
	Auto                bool
	Hops                int
	Chain               []string
	SentAt              time.Time
	ExpiresMS           int64 // from now; 0: never
	Attachments         []conch.Attachment
	AttachmentKeys      [][]byte
}

// Receive routes a message as if it were sent within the home, and puts it where
// it belongs. Refused, with the reason, is an answer and no error: nothing of it
// is kept. A message that is here is not put anywhere again; known says so.
func (s *step) Receive(in Inbound) (status conch.Receipt, reason string, known bool, err error) {
	if status, _, known, err = s.Standing(in.Agent, in.From, in.ID); known || err != nil {
		return status, "", known, err
	}
	local, err := s.localID(in.From, in.ID)
	if err != nil {
		return "", "", false, err
	}
	if in.InReplyTo, err = s.repliedTo(in); err != nil {
		return "", "", false, err
	}
	r := conch.SendRequest{
		Agent: in.From, Session: in.FromSession, Text: in.Text, ID: local, InReplyTo: in.InReplyTo, Role: in.Role,
		ExpiresMS: in.ExpiresMS, Policy: in.Policy, Auto: in.Auto, Hops: in.Hops, Chain: in.Chain,
	}
	if err := checkChain(&r); err != nil {
		return conch.ReceiptRefused, err.Error(), false, nil
	}
	to := target{in.Agent, in.ToSession}
	d, open, err := s.routed(r, to)
	var refusal *conch.Error
	if errors.As(err, &refusal) && (refusal.Kind == conch.LabelNotFound || refusal.Kind == conch.MessageRefused || refusal.Kind == conch.LabelTaken) {
		reason = refusal.Message
		if refusal.HintText != "" {
			reason += " (" + refusal.HintText + ")"
		}
		return conch.ReceiptRefused, reason, false, nil
	}
	if err != nil {
		return "", "", false, err
	}
	status = conch.ReceiptStored
	if d.held {
		status = conch.ReceiptHeld
	}
	s.away = true
	sum := sha256.Sum256([]byte(in.Text))
	n, err := s.insert(r, to, sum[:], status, open, "relay", in.SentAt.UnixNano())
	if err != nil {
		return "", "", false, err
	}
	if local != in.ID {
		if _, err := s.tx.Exec(`UPDATE messages SET wire = ? WHERE n = ?`, in.ID, n); err != nil {
			return "", "", false, err
		}
	}
	if err := s.received(n, in.Attachments, in.AttachmentKeys); err != nil {
		return "", "", false, err
	}
	if len(d.to) == 0 {
		reason = "no session of the agent is live"
		if err := s.receipt(n, status, reason, target{}); err != nil {
			return "", "", false, err
		}
		s.concern(in.Agent, "")
	}
	for _, l := range d.to {
		if err := s.place(n, target{in.Agent, l}, status); err != nil {
			return "", "", false, err
		}
	}
	if open && !s.m.spread.Swap(true) || d.held && !open && !s.m.held.Swap(true) || in.ExpiresMS > 0 {
		s.m.nudge()
	}
	return status, reason, false, nil
}

// localID is what a message from another home is called here: as its sender
// calls it, unless something else in this home has that id. Then its sender is
// in it, so that an id means one message wherever one is named.
func (s *step) localID(from, id string) (string, error) {
	local := id
	for i := 1; ; i++ {
		var taken bool
		if err := s.tx.Row(`SELECT EXISTS (SELECT 1 FROM messages WHERE id = ?)`, local).Scan(&taken); err != nil || !taken {
			return local, err
		}
		end := "@" + from[:min(len(from), 8)]
		if i > 1 {
			end += "." + strconv.Itoa(i)
		}
		local = id[:min(len(id), conch.MaxMessageID-len(end))] + end
	}
}

// wireID is what the agent of another home calls a message that is named here.
func (s *step) wireID(peer, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	wire, err := s.strings(`SELECT wire FROM messages WHERE id = ? AND from_agent = ? AND wire <> ''`, id, peer)
	if err != nil || len(wire) == 0 {
		return id, err
	}
	return wire[0], nil
}

// repliedTo is the id here of what a message from elsewhere answers: one that was
// sent to its sender, or else an earlier one of the sender's own.
func (s *step) repliedTo(in Inbound) (string, error) {
	if in.InReplyTo == "" {
		return "", nil
	}
	if n, err := s.Sent(in.Agent, in.From, in.InReplyTo); err != nil || n > 0 {
		return in.InReplyTo, err
	}
	local, err := s.strings(`SELECT id FROM messages WHERE wire = ? AND wire <> '' AND from_agent = ? AND to_agent = ?`, in.InReplyTo, in.From, in.Agent)
	if err != nil || len(local) == 0 {
		return in.InReplyTo, err
	}
	return local[0], nil
}

// Standing is where a message that came from another home stands, by the id that
// its sender gave it.
func (s *step) Standing(agent, from, id string) (status conch.Receipt, reason string, known bool, err error) {
	var n int64
	err = s.tx.Row(`SELECT n, status FROM messages WHERE id = ?1 AND from_agent = ?2 AND to_agent = ?3 AND wire = ''
		UNION ALL SELECT n, status FROM messages WHERE wire = ?1 AND wire <> '' AND from_agent = ?2 AND to_agent = ?3 LIMIT 1`, id, from, agent).Scan(&n, &status)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", false, nil
	}
	if err == nil {
		reason, err = s.why(n, status, nil)
	}
	return status, reason, err == nil, err
}

// A Report is one step of a message of ours, as the home it went to tells it.
type Report struct {
	Status conch.Receipt `json:"status"`
	At     time.Time     `json:"at"`
	Reason string        `json:"reason,omitempty"`
	Label  string        `json:"label,omitempty"` // the recipient it is about
}

// Told takes a report about a message that an agent sent to a peer. One of an
// unknown message, or one that is known already, changes nothing.
func (s *step) Told(agent, peer, id string, r Report) error {
	if rank(r.Status) < rank(conch.ReceiptSent) || (r.Label != "" && conch.CheckLabel(r.Label) != nil) {
		return nil
	}
	n, err := s.Sent(agent, peer, id)
	if err != nil || n == 0 {
		return err
	}
	seen, err := s.number(`SELECT count(*) FROM receipts WHERE msg = ? AND status = ? AND label = ?`, n, r.Status, r.Label)
	if err != nil || seen > 0 {
		return err
	}
	about := target{}
	if r.Label != "" {
		about = target{peer, r.Label}
	}
	return s.note(n, r.Status, r.Reason, about)
}

// Sent is the number of a message that an agent sent to a peer; 0: none.
func (s *step) Sent(agent, peer, id string) (n int64, err error) {
	err = s.tx.Row(`SELECT n FROM messages WHERE id = ? AND from_agent = ? AND to_agent = ?`, id, agent, peer).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// Note moves a message that was accepted for another home on.
func (s *step) Note(n int64, status conch.Receipt, reason string) error {
	return s.note(n, status, reason, target{})
}

// reachedAway is reached for a message to another home, by what was told of it.
func (s *step) reachedAway(n int64, address string) ([]conch.Recipient, error) {
	rows, err := s.tx.Query(`SELECT label, status, at, max(n) FROM receipts WHERE msg = ? AND label <> '' GROUP BY label`, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []conch.Recipient{}
	for rows.Next() {
		var r conch.Recipient
		var label string
		var at, last int64
		if err := rows.Scan(&label, &r.Status, &at, &last); err != nil {
			return nil, err
		}
		r.Session, r.At = target{address, label}.String(), time.Unix(0, at).UTC()
		list = append(list, r)
	}
	return list, rows.Err()
}

// A Reportable step is one of a message that came from another home.
type Reportable struct {
	N           int64 // of the step
	Agent, Peer string
	ID          string
	Report
}

// Reportable gives the steps after the number after of messages that came from
// other homes, at most limit of all steps, and the number of the last it looked at.
func (s *step) Reportable(after int64, limit int) (list []Reportable, last int64, err error) {
	rows, err := s.tx.Query(`SELECT r.n, m.via, m.from_agent, m.to_agent, iif(m.wire = '', m.id, m.wire), r.status, r.at, r.reason, r.label
		FROM receipts r JOIN messages m ON m.n = r.msg WHERE r.n > ? ORDER BY r.n LIMIT ?`, after, limit)
	if err != nil {
		return nil, after, err
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var r Reportable
		var via string
		var at int64
		if err := rows.Scan(&last, &via, &r.Peer, &r.Agent, &r.ID, &r.Status, &at, &r.Reason, &r.Label); err != nil {
			return nil, after, err
		}
		if via == "relay" && IsAddress(r.Peer) {
			r.N, r.At = last, time.Unix(0, at).UTC()
			list = append(list, r)
		}
	}
	return list, last, rows.Err()
}

// expireAway ends a message to another home that is not there in time. From
// then on it is that home's to say what became of it.
func (s *step) expireAway(n int64) (away bool, err error) {
	var to string
	var status conch.Receipt
	if err := s.tx.Row(`SELECT to_agent, status FROM messages WHERE n = ?`, n).Scan(&to, &status); err != nil || !IsAddress(to) {
		return false, err
	}
	if rank(status) <= rank(conch.ReceiptSent) {
		if err := s.note(n, conch.ReceiptExpired, "no word that it was taken came in time", target{}); err != nil {
			return true, err
		}
	}
	_, err = s.tx.Exec(`UPDATE messages SET expires = -expires WHERE n = ?`, n)
	return true, err
}
