package post

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/envelope"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/relay"
	"github.com/conchsh/conch/internal/seal"
)

// The lanes that numbers are counted in.
const (
	laneMail    = 0
	laneReports = 1
)

const (
	// maxEarly is how many messages of a peer wait for an earlier one.
	maxEarly = 2000
	// maxSparse is how many numbers of reports are known one by one; a report
	// that is missing below so many is lost.
	maxSparse = 500
	// maxQuarantine is how many letters an agent's quarantine keeps.
	maxQuarantine = 1000
)

// read takes the mailbox's letters for as long as the line is open.
func (l *line) read(ctx context.Context) {
	err := l.wire.Consume(ctx, l.take)
	if err != nil && ctx.Err() == nil {
		l.p.o.Log.Error("read the mailbox", "agent", l.agent, "err", err)
	}
}

// take opens and files a batch, all of it in one transaction. If that cannot be,
// each has its own, and one that conch cannot deal with is put aside, so that it
// does not keep the others out.
func (l *line) take(ctx context.Context, batch []relay.Message) (int, error) {
	if err := l.sure(ctx); err != nil {
		return 0, err
	}
	err := l.file(ctx, batch)
	if err == nil {
		return len(batch), nil
	}
	for i, m := range batch {
		if len(batch) > 1 {
			err = l.file(ctx, batch[i:i+1])
		}
		if err != nil {
			e := conch.AsError(err)
			if ctx.Err() != nil || e.Retryable || e.Kind != conch.Internal {
				return i, err // the disk is full, or the daemon leaves: later
			}
			l.p.o.Log.Error("a letter that cannot be taken", "agent", l.agent, "err", err)
			if err := l.p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
				return l.aside(s, m.From, seal.Header{}, false, "conch failed: "+err.Error(), m.Data)
			}); err != nil {
				return i, err
			}
		}
	}
	return len(batch), nil
}

// letter is one of a batch, its outer layer off.
type letter struct {
	m   relay.Message
	l   *seal.Letter
	err error
}

func (l *line) file(ctx context.Context, batch []relay.Message) error {
	var own *seal.Account
	err := l.p.o.Mail.View(ctx, func(s *mail.Step) (err error) { own, err = l.desk(s).account(); return err })
	if err != nil {
		return err
	}
	letters := make([]letter, len(batch))
	var labels []string
	for i, m := range batch {
		letters[i].m = m
		if letters[i].l, letters[i].err = own.Unwrap(m.Data); letters[i].err == nil && letters[i].l.Header.Kind == seal.Mail {
			labels = append(labels, letters[i].l.Header.ToLabel)
		}
	}
	slices.Sort(labels)
	running := l.p.o.Mail.Atwork(ctx, l.agent, slices.Compact(labels))
	var peers map[string]bool
	var d *desk
	err = l.p.o.Mail.Update(ctx, running, func(s *mail.Step) error {
		peers = map[string]bool{}
		d = l.desk(s)
		for _, in := range letters {
			if err := d.open(in); err != nil {
				return err
			}
			if in.l != nil {
				peers[in.l.Header.From] = true
			}
		}
		if err := d.save(); err != nil {
			return err
		}
		fault.Point("post.before-commit")
		return nil
	})
	if err != nil {
		return err
	}
	fault.Point("post.filed")
	for p := range peers {
		l.send(p) // an answer, or what waited for one
	}
	if d.files {
		wake(l.p.fetch)
	}
	return nil
}

// open looks at one letter. Its error is one of conch's; what is wrong with the
// letter is dealt with.
func (d *desk) open(in letter) error {
	if in.err != nil {
		return d.l.aside(d.s, in.m.From, seal.Header{}, false, in.err.Error(), in.m.Data)
	}
	h := in.l.Header
	if in.l.Statement {
		return d.stated(in)
	}
	lane := laneMail
	if h.Kind == seal.Receipt {
		lane = laneReports
	}
	if int(h.Lane) != lane {
		return d.l.aside(d.s, h.From, h, false, "its number is of another lane", in.m.Data)
	}
	// A header proves nothing yet; whoever it names is at most told again what
	// became of its own message.
	before, err := d.came(h, lane)
	if err != nil {
		return err
	}
	if before {
		known, err := d.again(h)
		if err != nil || known {
			return err
		}
	}
	t, err := d.talk(h.From)
	if err != nil {
		return err
	}
	opened, err := t.c.Open(in.l)
	if err != nil {
		if before && h.Kind != seal.Mail {
			return nil // a report once more
		}
		return d.unread(in, t, err)
	}
	t.changed = true
	d.changed = d.changed || opened.KeyUsed
	if err := d.met(t, opened.Device); err != nil {
		return err
	}
	if err := d.moved(t, opened.Change); err != nil {
		return err
	}
	if err := d.heard(h.From); err != nil {
		return err
	}
	if before && h.Kind != seal.Mail {
		return nil
	}
	// It has come after all. Reports are said again in others.
	if _, err := d.s.Tx().Exec(`DELETE FROM quarantine WHERE agent = ?1 AND peer = ?2 AND (id = ?3 OR lane = ?4 AND lane = ?5)`,
		d.l.agent, h.From, h.ID, lane, laneReports); err != nil {
		return err
	}
	switch h.Kind {
	case seal.Receipt:
		if err := d.mark(h, lane); err != nil {
			return err
		}
		return d.reported(h.From, opened.Body)
	case seal.Mail, seal.Tombstone:
		if before {
			// The number was used by another message: its sender was restored
			// from a backup and has not noticed. It is a new one all the same.
			return d.deliver(t, h, opened.Body)
		}
		return d.arrive(t, h, opened.Body)
	}
	return d.l.aside(d.s, h.From, h, false, "of a kind that this conch does not know: "+h.Kind.String(), in.m.Data)
}

// came reports whether a number has come before.
func (d *desk) came(h seal.Header, lane int) (came bool, err error) {
	err = d.s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM dedupe WHERE agent = ?1 AND peer = ?2 AND epoch = ?3 AND lane = ?4 AND through >= ?5)
		OR EXISTS (SELECT 1 FROM dedupe_sparse WHERE agent = ?1 AND peer = ?2 AND epoch = ?3 AND lane = ?4 AND seq = ?5)`,
		d.l.agent, h.From, int64(h.FromEpoch), lane, int64(h.Sequence)).Scan(&came)
	return came, err
}

// again answers a letter that was taken before: its sender has not heard of it.
func (d *desk) again(h seal.Header) (known bool, err error) {
	if h.Kind == seal.Receipt {
		return false, nil
	}
	status, reason, known, err := d.s.Standing(d.l.agent, h.From, h.ID)
	if err != nil {
		return false, err
	}
	if known {
		return true, d.report(h.From, h.ID, status, reason)
	}
	res, err := d.s.Tx().Exec(`UPDATE reports SET due = 1 WHERE agent = ? AND peer = ? AND id = ?`, d.l.agent, h.From, h.ID)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		d.s.Tell()
		return true, err
	}
	// It may wait for an earlier one, and is reported on when it is delivered.
	err = d.s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM early WHERE agent = ? AND peer = ? AND epoch = ? AND seq = ?)`, d.l.agent, h.From, int64(h.FromEpoch), int64(h.Sequence)).Scan(&known)
	return known || h.Kind == seal.Tombstone, err
}

// unread deals with a letter that does not open: it is put aside, and its
// sender is asked for it again if that can help.
func (d *desk) unread(in letter, t *talk, cause error) error {
	h := in.l.Header
	a, err := d.account()
	if err != nil {
		return err
	}
	if errors.Is(cause, seal.ErrReplay) {
		// It was opened, and then its number would be known; unless this store
		// lost that.
		if known, err := d.again(h); err != nil || known {
			return err
		}
	}
	retry, ok := a.RetryOf(in.l, cause)
	ok = ok && int(h.Attempt) < maxAttempts && h.Kind != seal.Tombstone
	if ok {
		c, err := contactOf(d.s, d.l.agent, h.From)
		if err != nil {
			return err
		}
		ok = c != nil && c.State != conch.ContactBlocked // strangers are not asked for anything
	}
	if ok {
		// Once for each attempt: the same letter may come often.
		var asked bool
		if err := d.s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM quarantine WHERE agent = ? AND peer = ? AND id = ? AND attempt = ? AND asked > 0)`,
			d.l.agent, h.From, h.ID, int64(h.Attempt)).Scan(&asked); err != nil {
			return err
		}
		if asked {
			return nil
		}
		if err := d.l.queue(d.s, h.From, kindRetry, conch.NewMessageID(), retry.Encode()); err != nil {
			return err
		}
	}
	return d.l.aside(d.s, h.From, h, ok, cause.Error(), in.m.Data)
}

// aside puts a letter into quarantine.
func (l *line) aside(s *mail.Step, peer string, h seal.Header, asked bool, reason string, data []byte) error {
	at := int64(0)
	if asked {
		at = s.Now()
	}
	if _, err := s.Tx().Exec(`INSERT INTO quarantine(agent, peer, id, lane, reason, attempt, asked, data, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		l.agent, peer, h.ID, int64(h.Lane), reason, int64(h.Attempt), at, data, s.Wall()); err != nil {
		return err
	}
	l.p.o.Log.Warn("a letter went to quarantine", "agent", l.agent, "from", peer, "id", h.ID, "reason", reason)
	res, err := s.Tx().Exec(`DELETE FROM quarantine WHERE agent = ?1 AND n <= (SELECT n FROM quarantine WHERE agent = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)`, l.agent, maxQuarantine)
	if err != nil {
		return err
	}
	if n, _ := res.RowsAffected(); n > 0 {
		l.p.o.Log.Warn("the quarantine is full; its oldest letters were removed", "agent", l.agent, "removed", n)
	}
	s.Concern(l.agent)
	return nil
}

// heard notes that a peer is there.
func (d *desk) heard(peer string) error {
	_, err := d.s.Tx().Exec(`UPDATE contacts SET heard = ? WHERE agent = ? AND address = ?`, d.s.Wall(), d.l.agent, peer)
	return err
}

// mark records that a number has come.
func (d *desk) mark(h seal.Header, lane int) error {
	tx, agent, peer, epoch := d.s.Tx(), d.l.agent, h.From, int64(h.FromEpoch)
	if _, err := tx.Exec(`INSERT INTO dedupe_sparse(agent, peer, epoch, lane, seq) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, agent, peer, epoch, lane, int64(h.Sequence)); err != nil {
		return err
	}
	through, err := d.through(peer, epoch, lane)
	if err != nil {
		return err
	}
	for {
		var next bool
		if err := tx.Row(`SELECT EXISTS (SELECT 1 FROM dedupe_sparse WHERE agent = ? AND peer = ? AND epoch = ? AND lane = ? AND seq = ?)`, agent, peer, epoch, lane, through+1).Scan(&next); err != nil {
			return err
		}
		if !next {
			break
		}
		through++
	}
	if lane == laneReports {
		var n, low int64
		if err := tx.Row(`SELECT count(*), coalesce(min(seq), 0) FROM dedupe_sparse WHERE agent = ? AND peer = ? AND epoch = ? AND lane = ? AND seq > ?`, agent, peer, epoch, lane, through).Scan(&n, &low); err != nil {
			return err
		}
		if n > maxSparse {
			through = low
		}
	}
	return d.settle(peer, epoch, lane, through)
}

func (d *desk) through(peer string, epoch int64, lane int) (through int64, err error) {
	err = d.s.Tx().Row(`SELECT through FROM dedupe WHERE agent = ? AND peer = ? AND epoch = ? AND lane = ?`, d.l.agent, peer, epoch, lane).Scan(&through)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return through, err
}

// settle says that everything up to a number has come, or will not.
func (d *desk) settle(peer string, epoch int64, lane int, through int64) error {
	if _, err := d.s.Tx().Exec(`INSERT INTO dedupe(agent, peer, epoch, lane, through) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET through = max(through, excluded.through)`, d.l.agent, peer, epoch, lane, through); err != nil {
		return err
	}
	_, err := d.s.Tx().Exec(`DELETE FROM dedupe_sparse WHERE agent = ? AND peer = ? AND epoch = ? AND lane = ? AND seq <= ?`, d.l.agent, peer, epoch, lane, through)
	return err
}

// arrive takes a proved message that did not come before: it is delivered if
// its turn has come, and waits if not. Then those have their turn that waited
// for it.
func (d *desk) arrive(t *talk, h seal.Header, body []byte) error {
	var x wireExtra
	if h.Kind == seal.Tombstone {
		json.Unmarshal(body, &x) // a tombstone that says nothing has no floor
	} else if b := envelope.Decode(string(body)); b.Conch != nil {
		json.Unmarshal(b.Conch, &x)
	}
	epoch := int64(h.FromEpoch)
	through, err := d.through(h.From, epoch, laneMail)
	if err != nil {
		return err
	}
	if floor := min(x.Floor, int64(h.Sequence)); floor-1 > through {
		through = floor - 1
		if err := d.settle(h.From, epoch, laneMail, through); err != nil {
			return err
		}
	}
	held, err := d.held(h.From)
	if err != nil {
		return err
	}
	if int64(h.Sequence) == through+1 && !held {
		if err := d.ripe(t, epoch, through); err != nil { // what the floor let go
			return err
		}
		if err := d.deliver(t, h, body); err != nil {
			return err
		}
		if err := d.mark(h, laneMail); err != nil {
			return err
		}
		return d.drain(t, epoch)
	}
	if _, err := d.s.Tx().Exec(`INSERT INTO early(agent, peer, epoch, seq, header, body, at) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		d.l.agent, h.From, epoch, int64(h.Sequence), toJSON(h), body, d.s.Now()); err != nil {
		return err
	}
	if err := d.mark(h, laneMail); err != nil {
		return err
	}
	if held {
		// It is safe here. Why a person hesitates is not the sender's to know.
		return d.report(h.From, h.ID, conch.ReceiptHeld, "a person has to look at it there first")
	}
	var n, low int64
	if err := d.s.Tx().Row(`SELECT count(*), coalesce(min(seq), 0) FROM early WHERE agent = ? AND peer = ? AND epoch = ?`, d.l.agent, h.From, epoch).Scan(&n, &low); err != nil {
		return err
	}
	if n > maxEarly {
		return d.skip(t, epoch, low)
	}
	if err := d.drain(t, epoch); err != nil {
		return err
	}
	return d.miss(h.From, epoch)
}

// wireMissing says which numbers have not come although later ones have.
type wireMissing struct {
	Epoch int64 `json:"epoch"`
	From  int64 `json:"from"`
	To    int64 `json:"to"`
}

// missAgain is how often a peer is told of letters that did not come.
const missAgain = time.Second

// miss tells a peer of letters that did not come: the relay lost them, and
// others wait for them. It would publish them again by itself, later.
func (d *desk) miss(peer string, epoch int64) error {
	through, err := d.through(peer, epoch, laneMail)
	if err != nil {
		return err
	}
	var low int64
	if err := d.s.Tx().Row(`SELECT coalesce(min(seq), 0) FROM early WHERE agent = ? AND peer = ? AND epoch = ?`, d.l.agent, peer, epoch).Scan(&low); err != nil || low <= through+1 {
		return err
	}
	d.l.mu.Lock()
	soon := time.Since(d.l.missed[peer]) < missAgain
	if !soon {
		d.l.missed[peer] = time.Now()
	}
	d.l.mu.Unlock()
	if soon {
		return nil
	}
	return d.l.queue(d.s, peer, kindMissing, conch.NewMessageID(), toJSON(wireMissing{epoch, through + 1, low - 1}))
}

// missing publishes letters again that a peer misses.
func (d *desk) missing(peer string, w wireMissing) error {
	a, err := d.account()
	if err != nil || w.Epoch != int64(a.Epoch()) {
		return err
	}
	_, err = d.s.Tx().Exec(`UPDATE outbox SET next_at = ? WHERE agent = ? AND peer = ? AND seq BETWEEN ? AND ? AND published > 0 AND next_at < ?`,
		d.s.Now(), d.l.agent, peer, w.From, w.To, int64(never))
	return err
}

// skip stops waiting for what comes before a number.
func (d *desk) skip(t *talk, epoch, low int64) error {
	if err := d.settle(t.peer, epoch, laneMail, low-1); err != nil {
		return err
	}
	d.l.p.o.Log.Warn("an earlier message did not come; later ones are delivered without it", "agent", d.l.agent, "peer", t.peer, "number", low-1)
	// Numbers that came are contiguous from there on, up to the next gap.
	if err := d.mark(seal.Header{From: t.peer, FromEpoch: seal.Epoch(epoch), Sequence: uint64(low)}, laneMail); err != nil {
		return err
	}
	return d.drain(t, epoch)
}

// drain delivers what waited and waits no more, in its order.
func (d *desk) drain(t *talk, epoch int64) error {
	through, err := d.through(t.peer, epoch, laneMail)
	if err != nil {
		return err
	}
	return d.ripe(t, epoch, through)
}

func (d *desk) ripe(t *talk, epoch, through int64) error {
	if held, err := d.held(t.peer); err != nil || held {
		return err
	}
	for {
		var seq int64
		var head, body []byte
		err := d.s.Tx().Row(`SELECT seq, header, body FROM early WHERE agent = ? AND peer = ? AND epoch = ? AND seq <= ? ORDER BY seq LIMIT 1`, d.l.agent, t.peer, epoch, through).Scan(&seq, &head, &body)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var h seal.Header
		if err := json.Unmarshal(head, &h); err != nil {
			return err
		}
		if err := d.deliver(t, h, body); err != nil {
			return err
		}
		if _, err := d.s.Tx().Exec(`DELETE FROM early WHERE agent = ? AND peer = ? AND epoch = ? AND seq = ?`, d.l.agent, t.peer, epoch, seq); err != nil {
			return err
		}
	}
}

// held reports whether a peer's mail waits for a person.
func (d *desk) held(peer string) (bool, error) {
	c, err := contactOf(d.s, d.l.agent, peer)
	return c != nil && c.Held != "", err
}

// deliver hands a message to mail, or says why not.
func (d *desk) deliver(t *talk, h seal.Header, body []byte) error {
	if h.Kind == seal.Tombstone { // as its sender knows; told, so that it forgets it
		return d.report(h.From, h.ID, conch.ReceiptFailed, "")
	}
	in, refusal, err := d.look(t, h, body)
	if err != nil {
		return err
	}
	if refusal != "" {
		return d.report(h.From, h.ID, conch.ReceiptRefused, refusal)
	}
	if in == nil { // for conch itself, or too late
		return nil
	}
	d.files = d.files || len(in.Attachments) > 0
	status, reason, known, err := d.s.Receive(*in)
	if err != nil {
		return err
	}
	if known || status == conch.ReceiptRefused {
		return d.report(h.From, h.ID, status, reason)
	}
	return nil // what mail records is reported
}

// look reads a message and decides whether it may come in.
func (d *desk) look(t *talk, h seal.Header, body []byte) (in *mail.Inbound, refusal string, err error) {
	c, err := contactOf(d.s, d.l.agent, h.From)
	if err != nil {
		return nil, "", err
	}
	switch {
	case c == nil || c.State == conch.ContactAsked || c.State == conch.ContactBlocked || c.State == conch.ContactRefused:
		return nil, "the recipient does not have you as a contact", nil
	case c.State == conch.ContactRequested: // we asked, and here is an answer
		if err := d.accepted(h.From); err != nil {
			return nil, "", err
		}
	}
	if refusal := d.quota(t, len(body)); refusal != "" {
		return nil, refusal, nil
	}
	b := envelope.Decode(string(body))
	if b.IsReset() {
		t.renew, t.changed = true, true
		return nil, "", d.report(h.From, h.ID, conch.ReceiptDone, "")
	}
	var x wireExtra
	if b.Conch != nil {
		if err := json.Unmarshal(b.Conch, &x); err != nil {
			return nil, "the message cannot be read", nil
		}
	}
	to := ""
	if b.ToSession != nil {
		to = *b.ToSession
	}
	switch {
	case b.BadTarget:
		return nil, "the session that it names is no label", nil
	case to != h.ToLabel:
		return nil, "its letter and its body name different sessions", nil
	case b.Text == "":
		return nil, "it has no text", nil
	case len(b.Text) > conch.MaxText:
		return nil, fmt.Sprintf("its text has %d bytes, more than the limit of %d", len(b.Text), conch.MaxText), nil
	case conch.CheckMessageID(h.ID) != nil:
		return nil, "its id is none", nil
	case x.Policy != "" && conch.CheckPolicy(x.Policy) != nil:
		return nil, "it asks for a policy that this conch does not know", nil
	case len(x.Attachments) > conch.MaxAttachments:
		return nil, "it has too many attachments", nil
	}
	in = &mail.Inbound{
		Agent: d.l.agent, From: h.From, FromSession: h.FromLabel, ToSession: to, ID: h.ID, Text: b.Text, Role: envelope.RoleAgent,
		Policy: x.Policy, Auto: b.Auto, Hops: b.Hops, Chain: b.Chain, SentAt: h.Created,
	}
	if b.FromSession != nil && *b.FromSession != h.FromLabel {
		return nil, "its letter and its body are of different sessions", nil
	}
	if b.Role != nil {
		in.Role = *b.Role
	}
	if b.InReplyTo != nil && conch.CheckMessageID(*b.InReplyTo) == nil {
		in.InReplyTo = *b.InReplyTo
	}
	if x.ExpiresAt > 0 {
		left := x.ExpiresAt - d.s.Wall()/int64(time.Millisecond)
		if left <= 0 {
			return nil, "", d.report(h.From, h.ID, conch.ReceiptExpired, "it came after its time")
		}
		in.ExpiresMS = min(left, (100 * 365 * 24 * time.Hour).Milliseconds())
	}
	for i, w := range x.Attachments {
		a, err := seal.ParseAttachment(w.Key)
		if err != nil || mail.CheckFileID(w.Blob) != nil {
			return nil, fmt.Sprintf("its attachment %d cannot be read", i+1), nil
		}
		in.Attachments = append(in.Attachments, conch.Attachment{ID: mail.NewFileID(), Name: w.Name, Size: a.Size(), SHA256: fmt.Sprintf("%x", a.Hash())})
		in.AttachmentKeys = append(in.AttachmentKeys, joinKey(w.Blob, w.Key))
	}
	return in, "", nil
}

// quota counts what a peer sends within a minute.
func (d *desk) quota(t *talk, size int) (refusal string) {
	limits := d.l.p.o.Limits
	if d.s.Now()-t.rateAt > int64(time.Minute) {
		t.rateAt, t.rateN, t.rateB = d.s.Now(), 0, 0
	}
	t.rateN++
	t.rateB += int64(size)
	t.changed = true
	switch {
	case limits.Rate > 0 && t.rateN > limits.Rate:
		return fmt.Sprintf("over the recipient's limit of %d messages a minute from one contact", limits.Rate)
	case limits.Bytes > 0 && t.rateB > limits.Bytes:
		return fmt.Sprintf("over the recipient's limit of %d bytes a minute from one contact", limits.Bytes)
	}
	return ""
}

// report has a peer told what became of its message, where mail does not
// record it.
func (d *desk) report(peer, id string, status conch.Receipt, reason string) error {
	_, err := d.s.Tx().Exec(`INSERT INTO reports(agent, peer, id, status, reason, at, due) VALUES (?, ?, ?, ?, ?, ?, 1)
		ON CONFLICT DO UPDATE SET status = excluded.status, reason = excluded.reason, due = 1`, d.l.agent, peer, id, status, reason, d.s.Wall())
	d.s.Tell()
	return err
}
