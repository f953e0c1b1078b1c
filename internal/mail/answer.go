package mail

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// What the auto-responder needs of mail: which messages nobody takes, keeping them from
// others while they are being answered, and a record of every run that is on disk before
// the run begins.

const (
	// ResponderLabel is the session in whose name mail to an agent is answered.
	ResponderLabel = "responder"
	// maxTimes is how often a message is tried whose run was cut short.
	maxTimes = 2
	// keepRuns is how many runs are remembered.
	keepRuns = 1000
	day      = 24 * time.Hour
)

// Changed gives a channel that is closed when mail next changes.
func (m *Mail) Changed() <-chan struct{} { return m.bell.listen(everybody) }

// A Question is a message that a responder may answer.
type Question struct {
	Entry conch.InboxEntry
	From  string // the session that asks, agent/label, or an agent
	N     int64
	Label string // in whose inbox it is; "": it is the agent's and in none
	Hops  int
	Chain []string
	At    time.Time // since when it waits
	times int
}

// SetResponder switches an agent's responder on or off. Mail that came before it was
// switched on is not its to answer.
func (m *Mail) SetResponder(ctx context.Context, agent string, on bool) error {
	return m.write(ctx, nil, func(s *step) error {
		s.wake[agent] = true
		if !on {
			_, err := s.tx.Exec(`DELETE FROM responders WHERE agent = ?`, agent)
			return err
		}
		_, err := s.tx.Exec(`INSERT INTO responders(agent, since) VALUES (?, ?) ON CONFLICT DO NOTHING`, agent, s.wall)
		return err
	})
}

// Responders are the agents whose responder is on, and since when. It makes no database.
func (m *Mail) Responders(ctx context.Context) (map[string]time.Time, error) {
	list := map[string]time.Time{}
	if !m.Used() {
		return list, nil
	}
	err := m.read(ctx, func(s *step) error {
		rows, err := s.tx.Query(`SELECT agent, since FROM responders`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var agent string
			var at int64
			if err := rows.Scan(&agent, &at); err != nil {
				return err
			}
			list[agent] = time.Unix(0, at).UTC()
		}
		return rows.Err()
	})
	return list, err
}

// Questions are the messages to an agent that came since its responder was switched on,
// were written by somebody, and that no session has fetched, oldest first.
func (m *Mail) Questions(ctx context.Context, agent string, most int) (list []Question, err error) {
	err = m.read(ctx, func(s *step) error {
		list, err = s.questions(agent, most)
		return err
	})
	return list, err
}

func (s *step) questions(agent string, most int) (list []Question, err error) {
	const fields = `m.n, m.id, m.from_agent, m.from_session, m.role, m.text, m.in_reply_to, m.thread, m.sent_at, m.hops, m.chain, coalesce(a.times, 0)`
	rows, err := s.tx.Query(`
		SELECT `+fields+`, d.label, d.received_at FROM deliveries d JOIN messages m ON m.n = d.msg
			JOIN responders r ON r.agent = d.agent LEFT JOIN answers a ON a.msg = m.n
		WHERE d.agent = ?1 AND d.state IN ('held', 'stored', 'offered', 'seen') AND d.state <> 'seen' AND d.lease <= ?2
			AND m.auto = 0 AND d.received_at >= r.since AND coalesce(a.again, 1) = 1 AND NOT (m.expires > 0 AND m.expires <= ?2)
		UNION ALL
		SELECT `+fields+`, '', m.sent_at FROM messages m JOIN responders r ON r.agent = m.to_agent LEFT JOIN answers a ON a.msg = m.n
		WHERE m.open = 1 AND m.to_agent = ?1 AND m.status = 'held' AND m.auto = 0 AND m.sent_at >= r.since AND coalesce(a.again, 1) = 1 AND NOT (m.expires > 0 AND m.expires <= ?2)
		ORDER BY 1 LIMIT ?3`, agent, s.now, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var q Question
		var chain string
		if err := rows.Scan(&r.n, &r.id, &r.fromAgent, &r.fromSession, &r.role, &r.text, &r.inReplyTo, &r.thread, &r.sentAt, &q.Hops, &chain, &q.times, &q.Label, &r.receivedAt); err != nil {
			return nil, err
		}
		q.N, q.Chain, q.At = r.n, strings.Fields(chain), time.Unix(0, r.receivedAt)
		q.Entry = r.entry(target{agent, q.Label})
		q.From = target{r.fromAgent, r.fromSession}.String()
		list = append(list, q)
	}
	return list, rows.Err()
}

// A Run is one run of the responder's command.
type Run struct {
	N         int64
	Agent     string
	Questions []Question // of one session, to one inbox
	Session   string     // where it runs
	Dir       string
	Hops      int // of what it sends
	Chain     []string
}

// Begin puts a run on record, and keeps its messages from everybody else for so long.
// It reports false, having done nothing, if one of them was taken meanwhile.
func (m *Mail) Begin(ctx context.Context, r *Run, limit time.Duration) (bool, error) {
	ok := true
	err := m.write(ctx, nil, func(s *step) error {
		free, err := s.questions(r.Agent, 1<<30)
		if err != nil {
			return err
		}
		for _, q := range r.Questions {
			if ok = slices.ContainsFunc(free, func(f Question) bool { return f.N == q.N && f.Label == q.Label }); !ok {
				return nil
			}
		}
		if err := s.addRun(r, conch.RunRunning, ""); err != nil {
			return err
		}
		for _, q := range r.Questions {
			if q.Label == "" {
				_, err = s.tx.Exec(`UPDATE messages SET open = 2 WHERE n = ?`, q.N)
			} else {
				_, err = s.tx.Exec(`UPDATE deliveries SET lease = ? WHERE agent = ? AND label = ? AND msg = ?`, s.now+int64(limit), r.Agent, q.Label, q.N)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !ok {
		return false, err
	}
	m.runs.Add(1)
	fault.Point("responder.begun")
	return true, nil
}

// Refuse puts on record that messages are not answered, and why.
func (m *Mail) Refuse(ctx context.Context, r *Run, why string) error {
	return m.write(ctx, nil, func(s *step) error { return s.addRun(r, conch.RunRefused, why) })
}

func (s *step) addRun(r *Run, status conch.RunStatus, why string) error {
	q := r.Questions[0]
	asker := ""
	if q.Entry.FromSession != nil {
		asker = *q.Entry.FromSession
	}
	var ended int64
	if status != conch.RunRunning {
		ended = s.wall
	}
	size := 0
	for _, q := range r.Questions {
		size += len(q.Entry.Text)
	}
	res, err := s.tx.Exec(`INSERT INTO runs(agent, label, peer, peer_session, session, dir, command, status, reason, hops, chain, started_at, ended_at, bytes_in, bytes_out)
		VALUES (?, ?, ?, ?, '', '', '', ?, ?, ?, ?, ?, ?, ?, 0)`,
		r.Agent, q.Label, q.Entry.From, asker, status, why, r.Hops, strings.Join(r.Chain, " "), s.wall, ended, size)
	if err != nil {
		return err
	}
	if r.N, err = res.LastInsertId(); err != nil {
		return err
	}
	if r.Session == "" {
		r.Session = fmt.Sprintf("%s:%d", ResponderLabel, r.N)
	}
	if _, err := s.tx.Exec(`UPDATE runs SET session = ?, dir = ? WHERE n = ?`, r.Session, r.Dir, r.N); err != nil {
		return err
	}
	for _, q := range r.Questions {
		if _, err := s.tx.Exec(`INSERT INTO answers(msg, run, times, again) VALUES (?1, ?2, 1, 0)
			ON CONFLICT (msg) DO UPDATE SET run = ?2, times = times + 1, again = 0`, q.N, r.N); err != nil {
			return err
		}
	}
	// The oldest go; what they were for stays answered.
	_, err = s.tx.Exec(`DELETE FROM runs WHERE n <= ? AND status <> 'running'`, r.N-keepRuns)
	return err
}

// An Outcome is how a run ended.
type Outcome struct {
	Text      string // the reply; empty where it failed
	Failed    string // why
	CommandID conch.CommandID
	ExitCode  *int
	Bytes     int64 // of its stdout
}

// Finish sends a run's reply to each of its messages, or gives them back to their
// inbox, and puts the end on record. A reply has an id that its message decides, so
// that there is one however often this is done.
func (m *Mail) Finish(ctx context.Context, r Run, o Outcome) error {
	defer m.runs.Add(-1)
	if o.Failed == "" {
		if err := m.answer(ctx, r, o.Text); err != nil {
			o.Failed = "its reply could not be sent: " + err.Error()
		}
	}
	fault.Point("responder.answered")
	return m.write(ctx, nil, func(s *step) error {
		status := conch.RunAnswered
		if o.Failed != "" {
			status = conch.RunFailed
		}
		if err := s.release(r.N, r.Agent); err != nil {
			return err
		}
		_, err := s.tx.Exec(`UPDATE runs SET status = ?, reason = ?, command = ?, ended_at = ?, bytes_out = ?, exit_code = ? WHERE n = ?`,
			status, o.Failed, o.CommandID, s.wall, o.Bytes, o.ExitCode, r.N)
		s.wake[r.Agent] = true
		return err
	})
}

// answer sends the reply to each message of a run.
func (m *Mail) answer(ctx context.Context, r Run, text string) error {
	for _, q := range r.Questions {
		label := q.Label
		if label == "" {
			label = ResponderLabel
			err := m.write(ctx, nil, func(s *step) error {
				had, err := s.recipients(q.N, r.Agent)
				if err != nil || slices.Contains(had, label) {
					return err
				}
				if err := s.place(q.N, target{r.Agent, label}, conch.ReceiptStored); err != nil {
					return err
				}
				if err := s.advance(q.N, conch.ReceiptStored); err != nil {
					return err
				}
				return s.closeMessage(q.N)
			})
			if err != nil {
				return err
			}
		}
		_, err := m.Send(ctx, conch.SendRequest{Agent: r.Agent, Session: label, To: q.From,
			ID: answerID(r.Agent, q.Entry.ID), Text: text, InReplyTo: q.Entry.ID, Auto: true, Hops: r.Hops, Chain: r.Chain})
		if err != nil {
			return err
		}
	}
	return nil
}

// answerID is the id of the one answer of an agent's responder to a message.
func answerID(agent, id string) string {
	sum := sha256.Sum256([]byte(agent + "\x00" + id))
	return "auto-" + hex.EncodeToString(sum[:16])
}

// release gives a run's messages back, where they are not done with.
func (s *step) release(run int64, agent string) error {
	if _, err := s.tx.Exec(`UPDATE messages SET open = 1 WHERE open = 2 AND n IN (SELECT msg FROM answers WHERE run = ?)`, run); err != nil {
		return err
	}
	_, err := s.tx.Exec(`UPDATE deliveries SET lease = 0 WHERE agent = ? AND state IN ('held', 'stored', 'offered')
		AND msg IN (SELECT msg FROM answers WHERE run = ?) AND label = (SELECT label FROM runs WHERE n = ?)`, agent, run, run)
	return err
}

// Lost ends, on record, the runs that a daemon's death cut short, and gives where they
// ran. Their messages are tried once more, unless they were, or the reply had been sent.
func (m *Mail) Lost(ctx context.Context) (list []Run, err error) {
	err = m.write(ctx, nil, func(s *step) error {
		list = nil
		rows, err := s.tx.Query(`SELECT n, agent, session, dir FROM runs WHERE status = 'running'`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r Run
			if err := rows.Scan(&r.N, &r.Agent, &r.Session, &r.Dir); err != nil {
				return err
			}
			list = append(list, r)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, r := range list {
			if err := s.lost(r); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

func (s *step) lost(r Run) error {
	if err := s.release(r.N, r.Agent); err != nil {
		return err
	}
	ids, err := s.strings(`SELECT m.id FROM answers a JOIN messages m ON m.n = a.msg WHERE a.run = ?`, r.N)
	if err != nil {
		return err
	}
	status, why := conch.RunLost, "the daemon ended meanwhile"
	all := true
	for _, id := range ids {
		var there bool
		if err := s.tx.Row(`SELECT EXISTS (SELECT 1 FROM messages WHERE id = ? AND from_agent = ?)`, answerID(r.Agent, id), r.Agent).Scan(&there); err != nil {
			return err
		}
		if all = all && there; there {
			continue
		}
		if _, err := s.tx.Exec(`UPDATE answers SET again = 1 WHERE run = ? AND times < ? AND msg = (SELECT n FROM messages WHERE id = ? AND to_agent = ?)`, r.N, maxTimes, id, r.Agent); err != nil {
			return err
		}
	}
	if all && len(ids) > 0 {
		status, why = conch.RunAnswered, ""
	}
	_, err = s.tx.Exec(`UPDATE runs SET status = ?, reason = ?, ended_at = ? WHERE n = ?`, status, why, s.wall, r.N)
	return err
}

// Spent counts the runs of the last 24 hours: of all, and for each agent that wrote.
func (m *Mail) Spent(ctx context.Context) (all int, peers map[string]int, err error) {
	err = m.read(ctx, func(s *step) error {
		all, peers = 0, map[string]int{}
		rows, err := s.tx.Query(`SELECT peer, count(*) FROM runs WHERE started_at > ? AND status <> 'refused' GROUP BY peer`, s.wall-int64(day))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var peer string
			var n int
			if err := rows.Scan(&peer, &n); err != nil {
				return err
			}
			all += n
			peers[peer] += n
		}
		return rows.Err()
	})
	return all, peers, err
}

// Runs are an agent's last runs, newest first, and what all of them came to.
func (m *Mail) Runs(ctx context.Context, agent string, most int) (list []conch.ResponderRun, total conch.ResponderTotals, err error) {
	list = []conch.ResponderRun{}
	err = m.read(ctx, func(s *step) error {
		var ns int64
		err := s.tx.Row(`SELECT count(*), coalesce(sum(status = 'answered'), 0), coalesce(sum(status IN ('failed', 'lost')), 0), coalesce(sum(status = 'refused'), 0),
			coalesce(sum(max(0, ended_at - started_at)), 0), coalesce(sum(bytes_in), 0), coalesce(sum(bytes_out), 0) FROM runs WHERE agent = ?`, agent).
			Scan(&total.Runs, &total.Answered, &total.Failed, &total.Refused, &ns, &total.BytesIn, &total.BytesOut)
		if err != nil {
			return err
		}
		total.Runs -= total.Refused
		total.Seconds = time.Duration(ns).Seconds()
		rows, err := s.tx.Query(`SELECT n, status, reason, label, peer, peer_session, session, command, exit_code, started_at, ended_at, bytes_in, bytes_out FROM runs WHERE agent = ? ORDER BY n DESC LIMIT ?`, agent, most)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r conch.ResponderRun
			var label string
			var from target
			var started, ended int64
			var code sql.NullInt64
			if err := rows.Scan(&r.Run, &r.Status, &r.Reason, &label, &from.agent, &from.label, &r.Session, &r.CommandID, &code, &started, &ended, &r.BytesIn, &r.BytesOut); err != nil {
				return err
			}
			r.From, r.To, r.StartedAt = from.String(), target{agent, label}.String(), time.Unix(0, started).UTC()
			if label == "" {
				r.To = agent
			}
			if ended > 0 {
				at := time.Unix(0, ended).UTC()
				r.EndedAt, r.Seconds = &at, at.Sub(r.StartedAt).Seconds()
			}
			if code.Valid {
				n := int(code.Int64)
				r.ExitCode = &n
			}
			list = append(list, r)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for i := range list {
			if list[i].Messages, err = s.strings(`SELECT m.id FROM answers a JOIN messages m ON m.n = a.msg WHERE a.run = ? ORDER BY a.msg`, list[i].Run); err != nil {
				return err
			}
		}
		return nil
	})
	return list, total, err
}

// checkChain refuses what cannot have travelled with a message.
func checkChain(r *conch.SendRequest) error {
	if r.Hops < 0 || r.Hops > 1000 || len(r.Chain) > 64 {
		return conch.Errorf(conch.InvalidRequest, "hops is %d and chain has %d agents; a message that went through so many responders is not sent", r.Hops, len(r.Chain))
	}
	for _, c := range r.Chain {
		if c == "" || len(c) > 100 || strings.ContainsAny(c, " \t\n") {
			return conch.Errorf(conch.InvalidRequest, "chain has %.40q, which names no agent", c)
		}
	}
	return nil
}

// inherit gives what a responder's own session sends the hops and the chain of what it
// is answering, and one more.
func (s *step) inherit(r *conch.SendRequest) error {
	if s.m.runs.Load() == 0 || r.Hops > 0 {
		return nil
	}
	var chain string
	err := s.tx.Row(`SELECT hops, chain FROM runs WHERE status = 'running' AND agent = ? AND session = ?`, r.Agent, r.Session).Scan(&r.Hops, &chain)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	r.Chain = strings.Fields(chain)
	return err
}
