package post

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/seal"
)

// reportBatch is how many steps are looked at in one transaction, and one letter
// holds at most so many reports.
const reportBatch = 256

// wireReports is the body of a report: any number of steps of the recipient's
// messages.
type wireReports struct {
	Reports []wireReport `json:"reports"`
}

type wireReport struct {
	ID string `json:"id"`
	mail.Report
}

// reporting tells peers what becomes of their messages.
func (p *Post) reporting() {
	wait := backoff{}
	for {
		more, err := p.reportSome(p.ctx)
		var again <-chan time.Time
		switch {
		case p.ctx.Err() != nil:
			return
		case err != nil:
			p.o.Log.Warn("report on mail", "err", err)
			again = time.After(wait.next())
		case more:
			continue
		default:
			wait = backoff{}
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.report:
		case <-again:
		}
	}
}

// reportSome puts reports on what happened since the last time into the outbox,
// and moves the mark behind it. An agent without a line is told of later.
func (p *Post) reportSome(ctx context.Context) (more bool, err error) {
	// Look first: nearly always there is nothing.
	var list []mail.Reportable
	var due int
	if err := p.o.Mail.View(ctx, func(s *mail.Step) error {
		list, _, err = p.reportable(s)
		if err != nil {
			return err
		}
		return s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM reports WHERE due = 1)`).Scan(&due)
	}); err != nil {
		return false, err
	}
	if len(list) == 0 && due == 0 {
		return false, nil
	}
	type pair struct{ agent, peer string }
	var told map[pair]bool
	err = p.o.Mail.Update(ctx, nil, func(s *mail.Step) error {
		told = map[pair]bool{}
		list, last, err := p.reportable(s)
		if err != nil {
			return err
		}
		out := map[pair][]wireReport{}
		for _, r := range list {
			k := pair{r.Agent, r.Peer}
			out[k] = append(out[k], wireReport{r.ID, r.Report})
		}
		rows, err := s.Tx().Query(`SELECT agent, peer, id, status, reason, at FROM reports WHERE due = 1 LIMIT ?`, reportBatch)
		if err != nil {
			return err
		}
		var keys []pair
		for rows.Next() {
			var k pair
			var w wireReport
			var at int64
			if err := rows.Scan(&k.agent, &k.peer, &w.ID, &w.Status, &w.Reason, &at); err != nil {
				rows.Close()
				return err
			}
			w.At = time.Unix(0, at).UTC()
			out[k] = append(out[k], w)
			keys = append(keys, k)
		}
		if err := rows.Close(); err != nil {
			return err
		}
		more = len(keys) == reportBatch
		for k, reports := range out {
			l := p.find(k.agent)
			if l == nil {
				// Its key is locked or gone. What mail records is not told; asked
				// again, its peer is.
				continue
			}
			told[k] = true
			if err := l.queue(s, k.peer, kindReceipt, conch.NewMessageID(), toJSON(wireReports{reports})); err != nil {
				return err
			}
			for _, r := range reports {
				if _, err := s.Tx().Exec(`UPDATE reports SET due = 0 WHERE agent = ? AND peer = ? AND id = ?`, k.agent, k.peer, r.ID); err != nil {
					return err
				}
			}
		}
		if len(keys) > 0 && len(told) == 0 {
			more = false
		}
		_, err = s.Tx().Exec(`UPDATE reported SET through = ?`, last)
		return err
	})
	if err != nil {
		return false, err
	}
	fault.Point("post.reported")
	for _, k := range slices.Collect(maps.Keys(told)) {
		if l := p.find(k.agent); l != nil {
			l.send(k.peer)
		}
	}
	return more || len(list) > 0, nil
}

// reportable looks behind the mark, or behind what was looked at since and was mail
// within the home: that is not worth a write each time.
func (p *Post) reportable(s *mail.Step) ([]mail.Reportable, int64, error) {
	var through int64
	if err := s.Tx().Row(`SELECT through FROM reported`).Scan(&through); err != nil {
		return nil, 0, err
	}
	for {
		list, last, err := s.Reportable(max(through, p.looked), reportBatch)
		if err != nil || len(list) > 0 || last <= max(through, p.looked) {
			return list, max(last, p.looked), err
		}
		p.looked = last
	}
}

// reported takes what a peer says about our messages.
func (d *desk) reported(peer string, body []byte) error {
	var w wireReports
	if err := json.Unmarshal(body, &w); err != nil {
		d.l.p.o.Log.Warn("a report that cannot be read", "agent", d.l.agent, "peer", peer, "err", err)
		return nil
	}
	for _, r := range w.Reports {
		if err := d.s.Told(d.l.agent, peer, r.ID, r.Report); err != nil {
			return err
		}
		// Whatever it says of it, it has it.
		if _, err := d.s.Tx().Exec(`DELETE FROM outbox WHERE id = ? AND agent = ? AND peer = ? AND kind IN ('mail', 'tombstone')`, r.ID, d.l.agent, peer); err != nil {
			return err
		}
	}
	fault.Point("post.told")
	return nil
}

// retried answers a peer that could not open a letter of ours: it is sealed
// again, with a new session.
func (d *desk) retried(peer string, r seal.Retry) error {
	t, err := d.talk(peer)
	if err != nil {
		return err
	}
	// Reports are not kept. What they said is said again.
	res, err := d.s.Tx().Exec(`INSERT INTO reports(agent, peer, id, status, reason, at, due)
		SELECT m.to_agent, m.from_agent, iif(m.wire = '', m.id, m.wire), m.status, '', ?3, 1 FROM messages m WHERE m.to_agent = ?1 AND m.from_agent = ?2 AND ?4 ORDER BY m.n DESC LIMIT 500
		ON CONFLICT DO UPDATE SET status = excluded.status, due = 1`, d.l.agent, peer, d.s.Wall(), !d.outgoing(peer, r.ID))
	if err != nil {
		return err
	}
	if n, _ := res.RowsAffected(); n > 0 {
		t.renew, t.changed = true, true
		d.s.Tell()
	}
	rows, err := d.s.Tx().Query(`SELECT n, kind, id, msg, seq, attempt FROM outbox WHERE agent = ? AND peer = ? AND kind IN ('mail', 'tombstone') AND seq > 0 ORDER BY n`, d.l.agent, peer)
	if err != nil {
		return err
	}
	var list []row
	asked := false
	for rows.Next() {
		var o row
		if err := rows.Scan(&o.n, &o.kind, &o.id, &o.msg, &o.seq, &o.attempt); err != nil {
			rows.Close()
			return err
		}
		list = append(list, o)
		asked = asked || o.id == r.ID && o.attempt == int64(r.Attempt)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	if !asked {
		return nil // it was sealed again since, or reported on
	}
	t.renew, t.changed = true, true
	for _, o := range list {
		// A session that is not known there, or a store that was restored:
		// none of what was sealed for it will open.
		all := r.Reason == seal.ReasonEpoch || r.Reason == seal.ReasonSession || r.Reason == seal.ReasonOneTimeKey
		if o.id != r.ID && (!all || o.attempt > 0) {
			continue
		}
		if o.attempt >= maxAttempts {
			if err := d.fail(peer, &o, "the recipient could not open it, although it was sealed again "+plural(maxAttempts)); err != nil {
				return err
			}
			continue
		}
		waits := []time.Duration{0, 10 * time.Second, time.Minute}
		if _, err := d.s.Tx().Exec(`UPDATE outbox SET sealed = x'', attempt = attempt + 1, published = 0, next_at = ? WHERE n = ?`,
			d.s.Now()+int64(waits[min(int(o.attempt), len(waits)-1)]), o.n); err != nil {
			return err
		}
	}
	return nil
}

// outgoing reports whether an id is one of a message that is kept for a peer.
func (d *desk) outgoing(peer, id string) (there bool) {
	err := d.s.Tx().Row(`SELECT EXISTS (SELECT 1 FROM outbox WHERE agent = ? AND peer = ? AND id = ? AND kind IN ('mail', 'tombstone'))`, d.l.agent, peer, id).Scan(&there)
	return err == nil && there
}

func plural(n int) string {
	if n == 1 {
		return "once"
	}
	return string(rune('0'+n)) + " times"
}
