package post

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/envelope"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/seal"
)

// A desk is the keys and ratchets that one transaction works with. They are
// read from it, and written by save.
type desk struct {
	l       *line
	s       *mail.Step
	own     *seal.Account
	changed bool // the account
	files   bool // a message with attachments came
	talks   map[string]*talk
}

// A talk is a conversation with a peer, and its numbers.
type talk struct {
	peer          string
	c             *seal.Conversation
	pinned        seal.Device
	next, reports int64
	renew         bool
	rateAt        int64
	rateN, rateB  int64
	changed       bool
}

func (l *line) desk(s *mail.Step) *desk { return &desk{l: l, s: s, talks: map[string]*talk{}} }

func (d *desk) account() (*seal.Account, error) {
	if d.own != nil {
		return d.own, nil
	}
	var state []byte
	if err := d.s.Tx().Row(`SELECT state FROM accounts WHERE agent = ?`, d.l.agent).Scan(&state); err != nil {
		return nil, err
	}
	a, err := seal.LoadAccount(d.l.key, state)
	if err != nil {
		return nil, conch.Errorf(conch.StoreDamaged, "the encryption keys of agent %s cannot be read: %v", d.l.agent, err).
			Hint("put a backup in place of conch.db; the agent's own key is not affected")
	}
	d.own = a
	return a, nil
}

// talk gives the conversation with a peer, an empty one if there was none.
func (d *desk) talk(peer string) (*talk, error) {
	if t := d.talks[peer]; t != nil {
		return t, nil
	}
	a, err := d.account()
	if err != nil {
		return nil, err
	}
	t := &talk{peer: peer, next: 1, reports: 1}
	var state, pinned []byte
	err = d.s.Tx().Row(`SELECT state, pinned, next, reports, renew, rate_at, rate_n, rate_b FROM conversations WHERE agent = ? AND peer = ?`, d.l.agent, peer).
		Scan(&state, &pinned, &t.next, &t.reports, &t.renew, &t.rateAt, &t.rateN, &t.rateB)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		t.c, err = a.Conversation(peer)
	case err == nil:
		if t.c, err = a.LoadConversation(peer, state); errors.Is(err, seal.ErrState) {
			err = conch.Errorf(conch.StoreDamaged, "the conversation of agent %s with %s cannot be read: %v", d.l.agent, peer, err)
		}
		if err == nil && len(pinned) > 0 {
			// Nearly always it is the one that is known, which was verified.
			if t.pinned = t.c.Device(); t.pinned.IsZero() || !bytes.Equal(pinned, t.pinned.Encode()) {
				t.pinned, err = seal.ParseDevice(pinned, peer)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	d.talks[peer] = t
	return t, nil
}

func (d *desk) save() error {
	if d.changed {
		state, err := d.own.State()
		if err != nil {
			return err
		}
		if _, err := d.s.Tx().Exec(`UPDATE accounts SET state = ?, epoch = ? WHERE agent = ?`, state, int64(d.own.Epoch()), d.l.agent); err != nil {
			return err
		}
		d.changed = false
	}
	for _, t := range d.talks {
		if !t.changed {
			continue
		}
		state, err := t.c.State()
		if err != nil {
			return err
		}
		pinned := []byte{}
		if !t.pinned.IsZero() {
			pinned = t.pinned.Encode()
		}
		if _, err := d.s.Tx().Exec(`INSERT INTO conversations(agent, peer, state, pinned, next, reports, renew, rate_at, rate_n, rate_b) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET state = excluded.state, pinned = excluded.pinned, next = excluded.next, reports = excluded.reports, renew = excluded.renew,
				rate_at = excluded.rate_at, rate_n = excluded.rate_n, rate_b = excluded.rate_b`,
			d.l.agent, t.peer, state, pinned, t.next, t.reports, t.renew, t.rateAt, t.rateN, t.rateB); err != nil {
			return err
		}
		t.changed = false
	}
	return nil
}

// met compares a peer's device with the one that is pinned, pins the first, and
// has its mail held if it changed without a word of the old one.
func (d *desk) met(t *talk, device seal.Device) error {
	switch device.Compare(t.pinned) {
	case seal.First:
		t.pinned, t.changed = device, true
	case seal.Successor:
		// The store was restored. It is who it was; the safety number is not.
		t.pinned, t.changed = device, true
		d.l.p.o.Log.Warn("a contact has new keys, which its old ones vouch for: its home was restored from a backup", "agent", d.l.agent, "peer", t.peer)
		d.s.Concern(d.l.agent)
		_, err := d.s.Tx().Exec(`UPDATE contacts SET note = ? || iif(verified, '; compare the safety number again', ''), verified = 0 WHERE agent = ? AND address = ?`,
			"new keys, seen at "+moment(d.s)+", which its old ones vouch for", d.l.agent, t.peer)
		return err
	case seal.Changed:
		d.l.p.o.Log.Warn("a contact's keys changed, and its old ones do not vouch for the new; its mail is held", "agent", d.l.agent, "peer", t.peer)
		held := "its keys changed, seen at " + moment(d.s) + ", and the old ones do not vouch for the new"
		_, err := d.s.Tx().Exec(`UPDATE contacts SET held = ?, verified = 0, note = '' WHERE agent = ? AND address = ? AND held = ''`, held, d.l.agent, t.peer)
		d.s.Concern(d.l.agent)
		return err
	}
	return nil
}

// moment is now, as people are told it.
func moment(s *mail.Step) string { return time.Unix(0, s.Wall()).UTC().Format(time.RFC3339) }

// moved has everything sealed again that has no report, when a peer turns out to
// have other keys than it was sealed for.
func (d *desk) moved(t *talk, change seal.Change) error {
	if change != seal.Successor && change != seal.Changed {
		return nil
	}
	next := d.s.Now()
	if held, err := d.held(t.peer); err != nil {
		return err
	} else if held {
		next = never
	}
	_, err := d.s.Tx().Exec(`UPDATE outbox SET sealed = x'', attempt = min(attempt + 1, ?), published = 0, next_at = ?
		WHERE agent = ? AND peer = ? AND kind IN ('mail', 'tombstone') AND seq > 0`, maxAttempts, next, d.l.agent, t.peer)
	return err
}

// row is one of the outbox.
type row struct {
	n         int64
	kind, id  string
	msg       int64
	body      []byte
	seq       int64
	attempt   int64
	sealed    []byte
	published int64
	at        int64
}

// The kinds of what is in the outbox. Those that are numbered are sealed with a
// ratchet; the others are statements, made when they are published.
const (
	kindMail      = "mail"
	kindTombstone = "tombstone" // in place of a message that was given up
	kindReceipt   = "receipt"
	kindRequest   = "request" // to become a contact
	kindAnswer    = "answer"  // to such a request
	kindRetry     = "retry"   // a letter is wanted again
	kindMissing   = "missing" // letters did not come
)

// Carry takes a message in the transaction that accepts it.
func (p *Post) Carry(s *mail.Step, n int64, peer string) (reason string, err error) {
	parcel, err := s.Parcel(n)
	if err != nil {
		return "", err
	}
	l := p.find(parcel.Agent)
	if l == nil {
		return "", leaving() // Ready opened it
	}
	parked, reason, err := l.admit(s, peer)
	if err != nil {
		return "", err
	}
	if !parked {
		reason = l.down()
	}
	next := s.Now()
	if parked {
		next = never
	}
	res, err := s.Tx().Exec(`INSERT INTO outbox(agent, peer, kind, id, msg, body, seq, attempt, sealed, published, at, next_at) VALUES (?, ?, 'mail', ?, ?, x'', 0, 0, x'', 0, ?, ?)`,
		l.agent, peer, parcel.ID, n, s.Now(), next)
	if err != nil || parked || len(parcel.Attachments) > 0 {
		return reason, err
	}
	at, err := res.LastInsertId()
	if err != nil {
		return "", err
	}
	// The usual case: it is sealed here and now. If others wait to be, so does it.
	var waiting int
	if err := s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM outbox WHERE agent = ? AND peer = ? AND n < ? AND seq = 0 AND kind IN ('mail', 'tombstone'))`, l.agent, peer, at).Scan(&waiting); err != nil || waiting > 0 {
		return reason, err
	}
	d := l.desk(s)
	t, err := d.talk(peer)
	if err != nil || t.renew || !t.c.Ready() {
		return reason, err
	}
	if err := d.seal(t, &row{n: at, kind: kindMail, id: parcel.ID, msg: n}, &parcel); err != nil {
		return "", err
	}
	return reason, d.save()
}

func tooLarge(n int) error {
	return conch.Errorf(conch.TooLarge, "a message of %d bytes is too large for the way to another home; nothing was sent", n).
		Hint("send it as an attachment: conch send TO 'see the file' --attach FILE")
}

// seal makes a row's letter, under its number or the next.
func (d *desk) seal(t *talk, r *row, parcel *mail.Parcel) error {
	h := seal.Header{ID: r.id, Attempt: uint16(r.attempt), Created: time.Unix(0, d.s.Wall())}
	var body []byte
	var err error
	if r.seq == 0 {
		counter := &t.next
		if r.kind == kindReceipt {
			counter = &t.reports
		}
		r.seq = *counter
		*counter++
	}
	h.Sequence = uint64(r.seq)
	switch r.kind {
	case kindMail:
		h.Kind, h.Created = seal.Mail, parcel.SentAt
		h.FromLabel, h.ToLabel = parcel.Session, parcel.Label
		floor, err := d.floor(t.peer, r.seq)
		if err != nil {
			return err
		}
		if body, err = encodeMail(parcel, d.l.key.Address(), floor); err != nil {
			return err
		}
	case kindTombstone:
		h.Kind = seal.Tombstone
		floor, err := d.floor(t.peer, r.seq)
		if err != nil {
			return err
		}
		if body, err = json.Marshal(wireExtra{Floor: floor}); err != nil {
			return err
		}
	case kindReceipt:
		h.Kind, h.Lane, body = seal.Receipt, laneReports, r.body
	}
	if r.sealed, err = t.c.Seal(h, body); err != nil {
		return err
	}
	if len(r.sealed) > relay.MaxMessage {
		return tooLarge(len(body))
	}
	t.changed = true
	_, err = d.s.Tx().Exec(`UPDATE outbox SET seq = ?, sealed = ? WHERE n = ?`, r.seq, r.sealed, r.n)
	if err == nil {
		fault.Point("post.sealed")
	}
	return err
}

// floor is the lowest number that may still come to a peer, of those sealed
// before and this one.
func (d *desk) floor(peer string, seq int64) (int64, error) {
	var low int64
	err := d.s.Tx().Row(`SELECT seq FROM outbox WHERE agent = ? AND peer = ? AND seq > 0 AND kind IN ('mail', 'tombstone') ORDER BY n LIMIT 1`, d.l.agent, peer).Scan(&low)
	if errors.Is(err, sql.ErrNoRows) {
		return seq, nil
	}
	return min(low, seq), err
}

// wireExtra is what conch adds to the body of a message.
type wireExtra struct {
	// Floor: nothing with a lower number comes any more.
	Floor       int64            `json:"floor"`
	ExpiresAt   int64            `json:"expires_at,omitempty"` // Unix milliseconds
	Policy      conch.Policy     `json:"policy,omitempty"`
	Attachments []wireAttachment `json:"attachments,omitempty"`
}

type wireAttachment struct {
	Name string `json:"name"`
	Blob string `json:"blob"` // its id at the relay
	Key  []byte `json:"key"`  // a seal.Attachment
}

func encodeMail(p *mail.Parcel, address string, floor int64) ([]byte, error) {
	x := wireExtra{Floor: floor, Policy: p.Policy}
	if !p.ExpiresAt.IsZero() {
		x.ExpiresAt = p.ExpiresAt.UnixMilli()
	}
	for i, a := range p.Attachments {
		blob, key := splitKey(p.AttachmentKeys[i])
		x.Attachments = append(x.Attachments, wireAttachment{a.Name, blob, key})
	}
	extra, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	body, err := envelope.Message{
		Text: p.Text, ID: p.ID, FromSession: p.Session, ToSession: p.Label, InReplyTo: p.InReplyTo, Role: p.Role, Auto: p.Auto, Hops: p.Hops, Chain: p.Chain,
		Address: address, Conch: extra,
	}.Encode(p.SentAt)
	return []byte(body), err
}

// joinKey puts a blob's id and its key into one column.
func joinKey(blob string, key []byte) []byte { return append([]byte(blob), key...) }

func splitKey(b []byte) (blob string, key []byte) {
	if n := len(mail.NewFileID()); len(b) > n {
		return string(b[:n]), b[n:]
	}
	return "", nil
}

func parsePeer(address string) (string, error) {
	if _, err := agent.ParseAddress(address); err != nil {
		return "", err
	}
	return address, nil
}
