package post

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/seal"
)

// maxGreeting is how much a stranger may say when it asks.
const maxGreeting = 500

// wireContact is the body of a contact's statement.
type wireContact struct {
	Type string `json:"type"` // request, accept, refuse
	Text string `json:"text,omitempty"`
}

const contactColumns = `agent, address, name, state, authority, verified, held, text, since, heard, note`

func scanContact(scan func(...any) error) (*conch.Contact, error) {
	var c conch.Contact
	var since, heard int64
	if err := scan(&c.Agent, &c.Address, &c.Name, &c.State, &c.Authority, &c.Verified, &c.Held, &c.Text, &since, &heard, &c.Note); err != nil {
		return nil, err
	}
	c.Since = time.Unix(0, since).UTC()
	if heard > 0 {
		at := time.Unix(0, heard).UTC()
		c.Heard = &at
	}
	return &c, nil
}

// contactOf is an agent's contact of an address, nil if it has none.
func contactOf(s *mail.Step, agent, address string) (*conch.Contact, error) {
	c, err := scanContact(s.Tx().Row(`SELECT `+contactColumns+` FROM contacts WHERE agent = ? AND address = ?`, agent, address).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return c, err
}

// admit decides whether a message to a peer may go now, or waits and for what. A
// stranger is asked.
func (l *line) admit(s *mail.Step, peer string) (parked bool, reason string, err error) {
	c, err := contactOf(s, l.agent, peer)
	if err != nil {
		return false, "", err
	}
	if c == nil {
		if err := l.ask(s, peer, "", ""); err != nil {
			return false, "", err
		}
		if why := l.down(); why != "" {
			return true, "the request to be a contact waits: " + why, nil
		}
		return true, "the recipient is being asked to be a contact; the message waits for the answer", nil
	}
	switch c.State {
	case conch.ContactRequested:
		var waits bool
		if err := s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM outbox WHERE agent = ? AND peer = ? AND kind = 'request' AND published = 0)`, l.agent, peer).Scan(&waits); err != nil {
			return false, "", err
		}
		if why := l.down(); waits && why != "" {
			return true, "the request to be a contact waits: " + why, nil
		}
		return true, "the recipient has not answered the contact request; the message waits", nil
	case conch.ContactAsked:
		return true, "the recipient has asked to be a contact, and a person has to accept it: conch contacts accept " + peer, nil
	case conch.ContactBlocked:
		return false, "", conch.Errorf(conch.NotAContact, "%s is blocked; nothing was sent", peer).Hint("conch contacts accept %s lets it in again", peer)
	case conch.ContactRefused:
		return false, "", conch.Errorf(conch.NotAContact, "%s does not want to be a contact; nothing was sent", peer).Hint("conch contacts add NAME ADDRESS asks again")
	}
	if c.Held != "" {
		return true, "the recipient's keys changed, and a person has to accept them: conch contacts accept " + peer, nil
	}
	return false, "", nil
}

// ask makes a peer a contact that was asked, and queues the request.
func (l *line) ask(s *mail.Step, peer, name, text string) error {
	if _, err := s.Tx().Exec(`INSERT INTO contacts(agent, address, name, state, authority, verified, held, text, since, heard) VALUES (?, ?, ?, 'requested', 'inform', 0, '', '', ?, 0)
		ON CONFLICT DO UPDATE SET state = 'requested', since = excluded.since`, l.agent, peer, name, s.Wall()); err != nil {
		return err
	}
	if _, err := s.Tx().Exec(`DELETE FROM outbox WHERE agent = ? AND peer = ? AND kind = 'request'`, l.agent, peer); err != nil {
		return err
	}
	s.Concern(l.agent)
	return l.queue(s, peer, kindRequest, conch.NewMessageID(), toJSON(wireContact{Type: "request", Text: text}))
}

// stated deals with a statement: it is signed, and needs no ratchet.
func (d *desk) stated(in letter) error {
	h := in.l.Header
	a, err := d.account()
	if err != nil {
		return err
	}
	t, err := d.talk(h.From)
	if err != nil {
		return err
	}
	opened, err := a.OpenStatement(in.l, t.c.Device(), time.Unix(0, d.s.Wall()))
	if err != nil {
		return d.l.aside(d.s, in.m.From, h, false, err.Error(), in.m.Data)
	}
	res, err := d.s.Tx().Exec(`INSERT INTO statements(agent, peer, id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`, d.l.agent, h.From, h.ID, d.s.Now())
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // it was acted on
	}
	if err := d.heard(h.From); err != nil {
		return err
	}
	switch h.Kind {
	case seal.RetryKind:
		r, err := seal.ParseRetry(opened.Body)
		if err != nil {
			return d.l.aside(d.s, h.From, h, false, err.Error(), in.m.Data)
		}
		return d.retried(h.From, r)
	case seal.Contact:
		var w wireContact
		if err := json.Unmarshal(opened.Body, &w); err != nil {
			return d.l.aside(d.s, h.From, h, false, "a contact's statement that cannot be read", in.m.Data)
		}
		return d.contacted(t, opened.Device, w)
	case seal.Control:
		var w wireMissing
		if err := json.Unmarshal(opened.Body, &w); err != nil {
			return d.l.aside(d.s, h.From, h, false, "a statement that cannot be read", in.m.Data)
		}
		return d.missing(h.From, w)
	}
	return d.l.aside(d.s, h.From, h, false, "a statement that this conch does not know", in.m.Data)
}

// contacted is the whole table of what a peer's statement does.
func (d *desk) contacted(t *talk, device seal.Device, w wireContact) error {
	c, err := contactOf(d.s, d.l.agent, t.peer)
	if err != nil {
		return err
	}
	state := conch.ContactState("")
	if c != nil {
		state = c.State
	}
	d.s.Concern(d.l.agent)
	switch w.Type {
	case "request":
		switch state {
		case "", conch.ContactRefused:
			return d.requested(t, c, w.Text)
		case conch.ContactRequested: // both want it
			if err := d.accepted(t.peer); err != nil {
				return err
			}
			return d.answer(t.peer, "accept", "")
		case conch.ContactAccepted: // our answer was lost
			if err := d.met(t, device); err != nil {
				return err
			}
			return d.answer(t.peer, "accept", "")
		case conch.ContactBlocked:
			return d.answer(t.peer, "refuse", "")
		}
	case "accept":
		if state == conch.ContactRequested || state == conch.ContactRefused {
			return d.accepted(t.peer)
		}
	case "refuse":
		if state == conch.ContactRequested || state == conch.ContactAccepted {
			return d.refused(t.peer, w.Text)
		}
	}
	return nil
}

// requested keeps a stranger's request for a person to decide.
func (d *desk) requested(t *talk, c *conch.Contact, text string) error {
	var waiting int64
	if err := d.s.Tx().Row(`SELECT count(*) FROM contacts WHERE agent = ? AND state = 'asked'`, d.l.agent).Scan(&waiting); err != nil {
		return err
	}
	if waiting >= d.l.p.o.Limits.Requests {
		return d.answer(t.peer, "refuse", "it takes no requests of strangers now")
	}
	if r := []rune(text); len(r) > maxGreeting {
		text = string(r[:maxGreeting]) + "…"
	}
	_, err := d.s.Tx().Exec(`INSERT INTO contacts(agent, address, name, state, authority, verified, held, text, since, heard) VALUES (?1, ?2, '', 'asked', 'inform', 0, '', ?3, ?4, ?4)
		ON CONFLICT DO UPDATE SET state = 'asked', text = excluded.text, since = excluded.since, heard = excluded.heard`, d.l.agent, t.peer, text, d.s.Wall())
	return err
}

// accepted lets mail to a peer go that waited for its answer.
func (d *desk) accepted(peer string) error {
	if _, err := d.s.Tx().Exec(`UPDATE contacts SET state = 'accepted', since = ? WHERE agent = ? AND address = ?`, d.s.Wall(), d.l.agent, peer); err != nil {
		return err
	}
	if _, err := d.s.Tx().Exec(`DELETE FROM outbox WHERE agent = ? AND peer = ? AND kind = 'request'`, d.l.agent, peer); err != nil {
		return err
	}
	return d.release(peer)
}

// release has a peer's parked mail sent.
func (d *desk) release(peer string) error {
	_, err := d.s.Tx().Exec(`UPDATE outbox SET next_at = ? WHERE agent = ? AND peer = ? AND next_at = ?`, d.s.Now(), d.l.agent, peer, int64(never))
	return err
}

// refused ends what waits for a peer that does not want it.
func (d *desk) refused(peer, text string) error {
	if _, err := d.s.Tx().Exec(`UPDATE contacts SET state = 'refused', since = ? WHERE agent = ? AND address = ?`, d.s.Wall(), d.l.agent, peer); err != nil {
		return err
	}
	reason := "the recipient does not want to be a contact"
	if text != "" {
		if r := []rune(text); len(r) > maxGreeting {
			text = string(r[:maxGreeting]) + "…"
		}
		reason += ": " + text
	}
	return d.end(peer, conch.ReceiptRefused, reason)
}

// end gives up what is parked for a peer.
func (d *desk) end(peer string, status conch.Receipt, reason string) error {
	list, err := numbers(d.s, `SELECT msg FROM outbox WHERE agent = ? AND peer = ? AND kind = 'mail' AND next_at = ?`, d.l.agent, peer, int64(never))
	if err != nil {
		return err
	}
	for _, n := range list {
		if err := d.s.Note(n, status, reason); err != nil {
			return err
		}
	}
	_, err = d.s.Tx().Exec(`DELETE FROM outbox WHERE agent = ? AND peer = ? AND (kind = 'mail' AND next_at = ? OR kind = 'request')`, d.l.agent, peer, int64(never))
	return err
}

func numbers(s *mail.Step, query string, args ...any) (list []int64, err error) {
	rows, err := s.Tx().Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v int64
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

func (d *desk) answer(peer, what, text string) error {
	return d.l.queue(d.s, peer, kindAnswer, conch.NewMessageID(), toJSON(wireContact{Type: what, Text: text}))
}

// Contacts lists an agent's contacts: those who wait for an answer first.
func (p *Post) Contacts(ctx context.Context, agent string) ([]conch.Contact, error) {
	list := []conch.Contact{}
	if !p.o.Mail.Used() {
		return list, nil
	}
	err := p.o.Mail.View(ctx, func(s *mail.Step) error {
		rows, err := s.Tx().Query(`SELECT `+contactColumns+`, (SELECT count(*) FROM outbox o WHERE o.agent = contacts.agent AND o.peer = contacts.address AND o.kind = 'mail')
			FROM contacts WHERE agent = ? ORDER BY state <> 'asked', held = '', name, address`, agent)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var pending int
			c, err := scanContact(func(dest ...any) error { return rows.Scan(append(dest, &pending)...) })
			if err != nil {
				return err
			}
			c.Pending = pending
			list = append(list, *c)
		}
		return rows.Err()
	})
	return list, err
}

// Contact gives the address that an agent has a name for. Names are kept in
// memory: every message asks.
func (p *Post) Contact(ctx context.Context, agent, name string) (string, bool, error) {
	p.mu.Lock()
	names := p.names
	p.mu.Unlock()
	if names == nil {
		names = map[string]string{}
		err := p.o.Mail.View(ctx, func(s *mail.Step) error {
			rows, err := s.Tx().Query(`SELECT agent, name, address FROM contacts WHERE name <> ''`)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var agent, name, address string
				if err := rows.Scan(&agent, &name, &address); err != nil {
					return err
				}
				names[agent+"/"+name] = address
			}
			return rows.Err()
		})
		if err != nil {
			return "", false, err
		}
		p.mu.Lock()
		p.names = names
		p.mu.Unlock()
	}
	address, ok := names[agent+"/"+name]
	return address, ok, nil
}

// Named reports whether a name is a contact's, of any agent.
func (p *Post) Named(ctx context.Context, name string) (bool, error) {
	if !p.o.Mail.Used() {
		return false, nil
	}
	for _, agent := range p.o.Agents() {
		if _, ok, err := p.Contact(ctx, agent, name); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func (p *Post) forgetNames() {
	p.mu.Lock()
	p.names = nil
	p.mu.Unlock()
}

// peer reads what a caller calls a contact.
func (p *Post) peer(ctx context.Context, agent, peer string) (string, error) {
	if mail.IsAddress(peer) {
		return parsePeer(peer)
	}
	if p.o.Mail.Used() {
		if address, ok, err := p.Contact(ctx, agent, peer); ok || err != nil {
			return address, err
		}
	}
	return "", conch.Errorf(conch.ContactNotFound, "agent %s has no contact %.60q", agent, peer).Hint("conch contacts lists them; an address works too")
}

// decide changes a contact that is there, in one transaction.
func (p *Post) decide(ctx context.Context, r conch.ContactRequest, f func(d *desk, c *conch.Contact) error) (out conch.Contact, err error) {
	peer, err := p.peer(ctx, r.Agent, r.Peer)
	if err != nil {
		return out, err
	}
	l, err := p.line(ctx, r.Agent)
	if err != nil {
		return out, err
	}
	err = p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		c, err := contactOf(s, r.Agent, peer)
		if err != nil {
			return err
		}
		if c == nil {
			return conch.Errorf(conch.ContactNotFound, "agent %s has no contact %s", r.Agent, peer).Hint("conch contacts lists them; conch contacts add NAME ADDRESS asks for one")
		}
		d := l.desk(s)
		if err := f(d, c); err != nil {
			return err
		}
		s.Concern(r.Agent)
		if err := d.save(); err != nil {
			return err
		}
		if c, err = contactOf(s, r.Agent, peer); err == nil && c != nil {
			out = *c
		}
		return err
	})
	p.forgetNames()
	if err == nil {
		l.send(peer)
	}
	return out, err
}

// AddContact asks an agent to be a contact, under a name of ours if there is
// one. vacant says whether the name is free otherwise.
func (p *Post) AddContact(ctx context.Context, r conch.ContactRequest, vacant func(name string) error) (out conch.Contact, err error) {
	if !p.o.Active() {
		return out, conch.Errorf(conch.RelayUnreachable, "this home is at no relay where others are").
			Hint("conch relay listen ADDR and relay invite let others in; conch relay join INVITE goes to theirs")
	}
	peer, err := p.peer(ctx, r.Agent, r.Peer)
	if errors.Is(err, conch.ContactNotFound) {
		return out, conch.Errorf(conch.InvalidRequest, "%.60q is no agent's address; nobody was asked", r.Peer).Hint("conch whoami shows an agent's address; conch contacts add NAME ADDRESS")
	}
	if err != nil {
		return out, err
	}
	for _, a := range p.o.Agents() {
		if key, err := p.o.Key(a); err == nil && key.Address() == peer {
			return out, conch.Errorf(conch.InvalidRequest, "%s is agent %s of this home, which needs no contact", peer, a)
		}
	}
	if r.Name != "" {
		if err := conch.CheckAgent(r.Name); err != nil {
			return out, conch.Errorf(conch.InvalidRequest, "%.40q is not a contact's name", r.Name).Hint("a to z, 0 to 9 and -, at most 32")
		}
		if err := vacant(r.Name); err != nil {
			return out, err
		}
	}
	if len([]rune(r.Text)) > maxGreeting {
		return out, conch.Errorf(conch.TooLarge, "a request says at most %d characters", maxGreeting)
	}
	if err := p.Ready(ctx, r.Agent, peer); err != nil {
		return out, err
	}
	l, err := p.line(ctx, r.Agent)
	if err != nil {
		return out, err
	}
	err = p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		c, err := contactOf(s, r.Agent, peer)
		if err != nil {
			return err
		}
		if r.Name != "" {
			var other string
			err := s.Tx().Row(`SELECT address FROM contacts WHERE agent = ? AND name = ? AND address <> ?`, r.Agent, r.Name, peer).Scan(&other)
			if err == nil {
				return conch.Errorf(conch.NameTaken, "%s is your name for %s already", r.Name, other).Hint("choose another: a name must mean one thing")
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		if c == nil || c.State == conch.ContactRefused || c.State == conch.ContactRequested {
			if err := l.ask(s, peer, r.Name, r.Text); err != nil {
				return err
			}
		}
		if r.Name != "" {
			if _, err := s.Tx().Exec(`UPDATE contacts SET name = ? WHERE agent = ? AND address = ?`, r.Name, r.Agent, peer); err != nil {
				return err
			}
		}
		if c, err = contactOf(s, r.Agent, peer); err == nil {
			out = *c
		}
		return err
	})
	p.forgetNames()
	if err == nil {
		l.send(peer)
	}
	return out, err
}

// AcceptContact lets a contact in: one that asked, one that was blocked, or one
// whose keys changed. It is a person's decision.
func (p *Post) AcceptContact(ctx context.Context, r conch.ContactRequest) (conch.Contact, error) {
	if r.Authority == "" {
		r.Authority = conch.AuthorityInform
	} else if err := conch.CheckAuthority(r.Authority); err != nil {
		return conch.Contact{}, err
	}
	return p.decide(ctx, r, func(d *desk, c *conch.Contact) error {
		if c.State == conch.ContactRequested || c.State == conch.ContactRefused {
			return conch.Errorf(conch.InvalidRequest, "%s has not asked to be a contact", c.Address).Hint("conch contacts add NAME ADDRESS asks it")
		}
		if c.Held == "" && c.State == conch.ContactAccepted {
			return nil
		}
		if c.State != conch.ContactAccepted {
			if _, err := d.s.Tx().Exec(`UPDATE contacts SET authority = ? WHERE agent = ? AND address = ?`, r.Authority, c.Agent, c.Address); err != nil {
				return err
			}
			if err := d.accepted(c.Address); err != nil {
				return err
			}
			if err := d.answer(c.Address, "accept", ""); err != nil {
				return err
			}
		}
		return d.trust(c.Address)
	})
}

// trust pins the keys that a peer has now, and lets its mail in that was held.
func (d *desk) trust(peer string) error {
	t, err := d.talk(peer)
	if err != nil {
		return err
	}
	if device := t.c.Device(); !device.IsZero() {
		t.pinned, t.changed = device, true
	}
	if _, err := d.s.Tx().Exec(`UPDATE contacts SET held = '' WHERE agent = ? AND address = ?`, d.l.agent, peer); err != nil {
		return err
	}
	if err := d.release(peer); err != nil {
		return err
	}
	epochs, err := numbers(d.s, `SELECT DISTINCT epoch FROM early WHERE agent = ? AND peer = ? ORDER BY epoch`, d.l.agent, peer)
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if err := d.drain(t, e); err != nil {
			return err
		}
	}
	return nil
}

// BlockContact keeps a contact, or a stranger, out. It is told.
func (p *Post) BlockContact(ctx context.Context, r conch.ContactRequest) (conch.Contact, error) {
	return p.decide(ctx, r, func(d *desk, c *conch.Contact) error {
		if _, err := d.s.Tx().Exec(`UPDATE contacts SET state = 'blocked', since = ? WHERE agent = ? AND address = ?`, d.s.Wall(), c.Agent, c.Address); err != nil {
			return err
		}
		if err := d.end(c.Address, conch.ReceiptRefused, "the recipient was blocked here"); err != nil {
			return err
		}
		if err := d.dismiss(c.Address); err != nil {
			return err
		}
		return d.answer(c.Address, "refuse", "")
	})
}

// dismiss refuses what was opened and waits.
func (d *desk) dismiss(peer string) error {
	heads, err := strings(d.s, `SELECT header FROM early WHERE agent = ? AND peer = ?`, d.l.agent, peer)
	if err != nil {
		return err
	}
	for _, head := range heads {
		var h seal.Header
		if err := json.Unmarshal([]byte(head), &h); err != nil {
			return err
		}
		if err := d.report(peer, h.ID, conch.ReceiptRefused, "the recipient does not have you as a contact"); err != nil {
			return err
		}
	}
	_, err = d.s.Tx().Exec(`DELETE FROM early WHERE agent = ? AND peer = ?`, d.l.agent, peer)
	return err
}

// SetAuthority says what a contact's word counts for. To raise it is a person's
// decision.
func (p *Post) SetAuthority(ctx context.Context, r conch.ContactRequest, person func() error) (conch.Contact, error) {
	if err := conch.CheckAuthority(r.Authority); err != nil {
		return conch.Contact{}, err
	}
	return p.decide(ctx, r, func(d *desk, c *conch.Contact) error {
		if r.Authority.Above(c.Authority) {
			if err := person(); err != nil {
				return err
			}
		}
		_, err := d.s.Tx().Exec(`UPDATE contacts SET authority = ? WHERE agent = ? AND address = ?`, r.Authority, c.Agent, c.Address)
		return err
	})
}

// VerifyContact gives the safety number of an agent and a contact, and with
// Confirm records that a person compared it.
func (p *Post) VerifyContact(ctx context.Context, r conch.ContactRequest) (out conch.ContactSafety, err error) {
	out.Contact, err = p.decide(ctx, r, func(d *desk, c *conch.Contact) error {
		a, err := d.account()
		if err != nil {
			return err
		}
		t, err := d.talk(c.Address)
		if err != nil {
			return err
		}
		device := t.c.Device()
		if device.IsZero() {
			return conch.Errorf(conch.InvalidRequest, "nothing has come from %s yet, nor have its keys been fetched", c.Address).
				Hint("send it something first; then there is a number to compare")
		}
		out.Number = seal.SafetyNumber(a.Device(), device)
		if !r.Confirm {
			return nil
		}
		if c.Held != "" {
			return conch.Errorf(conch.InvalidRequest, "the keys of %s changed and were not accepted", c.Address).Hint("conch contacts accept %s accepts them", c.Address)
		}
		_, err = d.s.Tx().Exec(`UPDATE contacts SET verified = 1, note = '' WHERE agent = ? AND address = ?`, c.Agent, c.Address)
		return err
	})
	return out, err
}

// ResetContact forgets the ratchets with a contact and begins new ones. What has
// no report is sealed again.
func (p *Post) ResetContact(ctx context.Context, r conch.ContactRequest) (conch.Contact, error) {
	return p.decide(ctx, r, func(d *desk, c *conch.Contact) error {
		t, err := d.talk(c.Address)
		if err != nil {
			return err
		}
		t.c.Reset()
		t.renew, t.changed = true, true
		_, err = d.s.Tx().Exec(`UPDATE outbox SET sealed = x'', attempt = min(attempt + 1, ?), published = 0, next_at = min(next_at, ?)
			WHERE agent = ? AND peer = ? AND kind IN ('mail', 'tombstone') AND seq > 0 AND next_at < ?`, maxAttempts, d.s.Now(), c.Agent, c.Address, int64(never))
		return err
	})
}

// Quarantine lists what could not be read or taken, newest first.
func (p *Post) Quarantine(ctx context.Context, agent string) ([]conch.Quarantined, error) {
	list := []conch.Quarantined{}
	if !p.o.Mail.Used() {
		return list, nil
	}
	err := p.o.Mail.View(ctx, func(s *mail.Step) error {
		rows, err := s.Tx().Query(`SELECT n, agent, peer, id, reason, attempt, asked > 0, octet_length(data), at FROM quarantine WHERE agent = ? ORDER BY n DESC`, agent)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var q conch.Quarantined
			var at int64
			if err := rows.Scan(&q.N, &q.Agent, &q.From, &q.ID, &q.Reason, &q.Attempt, &q.Asked, &q.Bytes, &at); err != nil {
				return err
			}
			q.At = time.Unix(0, at).UTC()
			list = append(list, q)
		}
		return rows.Err()
	})
	return list, err
}

// Authority is what a peer's word counts for. Of who is no contact it is the least.
func (p *Post) Authority(ctx context.Context, agent, peer string) conch.Authority {
	out := conch.AuthorityInform
	err := p.o.Mail.View(ctx, func(s *mail.Step) error {
		c, err := contactOf(s, agent, peer)
		if c != nil && c.State == conch.ContactAccepted && c.Held == "" {
			out = c.Authority
		}
		return err
	})
	if err != nil {
		p.o.Log.Warn("look up a contact", "agent", agent, "err", err)
		return conch.AuthorityInform
	}
	return out
}

// ClearQuarantine throws an agent's quarantined letters away.
func (p *Post) ClearQuarantine(ctx context.Context, agent string) error {
	if !p.o.Mail.Used() {
		return nil
	}
	return p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		_, err := s.Tx().Exec(`DELETE FROM quarantine WHERE agent = ?`, agent)
		return err
	})
}

// Summary is for the doctor: how many letters are in quarantine, how many
// contacts wait for a person.
func (p *Post) Summary(ctx context.Context) (quarantined, asked, held int, err error) {
	if !p.o.Mail.Used() {
		return 0, 0, 0, nil
	}
	err = p.o.Mail.View(ctx, func(s *mail.Step) error {
		return s.Tx().Row(`SELECT (SELECT count(*) FROM quarantine), (SELECT count(*) FROM contacts WHERE state = 'asked'), (SELECT count(*) FROM contacts WHERE held <> '')`).
			Scan(&quarantined, &asked, &held)
	})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("mail between homes: %w", err)
	}
	return quarantined, asked, held, nil
}
