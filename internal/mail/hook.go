package mail

import (
	"context"
	"slices"
	"time"

	"github.com/conchsh/conch"
)

const (
	// hookCount is how far a hook counts what waits, and hookTexts how many
	// messages it is given to show.
	hookCount = 100
	hookTexts = 5
	// keepLabel is how long a label that a hook took waits for the session's server.
	keepLabel = time.Minute
)

// Hook answers a hook of a harness: which session it belongs to, and what waits there.
// A message is given to each kind of hook once, which is recorded as offered; it stays
// where it is until it is fetched. The hook of a session's start finds the session a
// label if it has none; that of its end ends the leases of what was fetched and not
// done with, since whoever has the label next knows nothing of it.
func (m *Mail) Hook(ctx context.Context, r conch.HookRequest) (a conch.HookAnswer, err error) {
	a.Messages = []conch.InboxEntry{}
	if err := m.checkHook(r); err != nil {
		return a, err
	}
	at, err := m.hooked(ctx, r)
	if err != nil || at == (target{}) {
		return a, err
	}
	a.Agent, a.Label, a.Live = at.agent, at.label, m.here.held(at)
	if r.Event == conch.HookEnd {
		return a, m.write(ctx, nil, func(s *step) error { return s.unlease(at) })
	}
	var rows []hookRow
	look := func(s *step) (err error) {
		a.Messages = a.Messages[:0]
		rows, err = s.hookRows(at, r.Event)
		a.Waiting = len(rows)
		rows = slices.DeleteFunc(rows, func(h hookRow) bool { return !h.fresh })
		return err
	}
	if err := m.read(ctx, look); err != nil || len(rows) == 0 {
		return a, err
	}
	err = m.write(ctx, nil, func(s *step) error {
		if err := look(s); err != nil { // another hook may have been faster
			return err
		}
		a.New = len(rows)
		for i, h := range rows {
			if err := s.offerBy(h.n, at, "hook: "+r.Event); err != nil {
				return err
			}
			if i >= hookTexts {
				continue
			}
			list, _, err := s.inbox(at, filter{leased: true, limit: 1, after: h.n - 1}, "")
			if err != nil {
				return err
			}
			a.Messages = append(a.Messages, list[0].entry(at))
		}
		return nil
	})
	return a, err
}

func (m *Mail) checkHook(r conch.HookRequest) error {
	switch r.Event {
	case conch.HookStart, conch.HookPrompt, conch.HookStop, conch.HookEnd:
	default:
		return conch.Errorf(conch.InvalidRequest, "there is no hook %.40q", r.Event).Hint("start, prompt, stop or end")
	}
	if r.HarnessSession == "" {
		return conch.Errorf(conch.InvalidRequest, "harness_session is missing").Hint("it is the harness's own name for its session")
	}
	p := conch.PresenceRequest{Agent: r.Agent, Label: r.Label, Claim: true, Harness: r.Harness, HarnessSession: r.HarnessSession}
	return m.checkPresence(&p)
}

// hooked finds the session of a harness: that of its server which is here, by the
// harness's process or its session; else the one it had last; else, at its start, a
// new one. A harness that begins another conversation in the same process goes on
// under the same label, and that is recorded.
func (m *Mail) hooked(ctx context.Context, r conch.HookRequest) (at target, err error) {
	p := conch.PresenceRequest{Agent: r.Agent, Label: r.Label, Claim: true, Harness: r.Harness, HarnessSession: r.HarnessSession}
	if at, own := m.here.byHarness(r); at != (target{}) {
		if own || r.Event != conch.HookStart {
			return at, nil
		}
		p.Agent = at.agent
		return at, m.write(ctx, nil, func(s *step) error { return s.present(at, p) })
	}
	if r.Event == conch.HookStart {
		here, err := m.Present(ctx, p)
		if err != nil {
			return at, err
		}
		// The model is told its label before its server is there to hold it.
		m.here.keep(here.h.at, r.HarnessSession, keepLabel)
		here.End()
		return here.h.at, nil
	}
	if !m.Used() {
		return at, nil
	}
	err = m.read(ctx, func(s *step) error {
		labels, err := s.strings(`SELECT label FROM claims WHERE agent = ? AND harness_session = ? ORDER BY at DESC LIMIT 1`, r.Agent, r.HarnessSession)
		if len(labels) > 0 {
			at = target{r.Agent, labels[0]}
		}
		return err
	})
	return at, err
}

// byHarness is the claimed session of a harness's process, or else of its session, and
// whether that is under the session's name.
func (p *presence) byHarness(r conch.HookRequest) (at target, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := 0
	for t, holders := range p.by {
		for _, h := range holders {
			rank := 0
			if h.claimed && r.HarnessPID != 0 && h.parent == r.HarnessPID {
				rank += 2
			}
			named := h.claimed && h.harness == r.HarnessSession
			if named {
				rank++
			}
			if rank > best || rank == best && rank > 0 && (t.agent < at.agent || t.agent == at.agent && CompareLabels(t.label, at.label) < 0) {
				at, own, best = t, named, rank
			}
		}
	}
	return at, own
}

// A hookRow is a message that waits.
type hookRow struct {
	n     int64
	fresh bool // a hook of this kind has not told of it
}

// hookRows lists what waits in an inbox. What was fetched before is known to the
// session, and what somebody wrote who is nobody's contact is for a person: both are
// counted and not told of.
func (s *step) hookRows(at target, event string) (list []hookRow, err error) {
	rows, err := s.tx.Query(`SELECT d.msg, m.from_agent, d.state <> 'seen' AND NOT EXISTS (SELECT 1 FROM receipts r
			WHERE r.msg = d.msg AND r.agent = d.agent AND r.label = d.label AND r.status = 'offered' AND r.reason = ?)
		FROM deliveries d JOIN messages m ON m.n = d.msg
		WHERE d.agent = ? AND d.label = ? AND d.state IN ('held', 'stored', 'offered', 'seen') AND d.lease <= ? ORDER BY d.msg LIMIT ?`,
		"hook: "+event, at.agent, at.label, s.now, hookCount)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h hookRow
		var from string
		if err := rows.Scan(&h.n, &from, &h.fresh); err != nil {
			return nil, err
		}
		h.fresh = h.fresh && s.m.o.Agents.Known(from)
		list = append(list, h)
	}
	return list, rows.Err()
}

// unlease ends the leases of an inbox.
func (s *step) unlease(at target) error {
	s.concern(at.agent, at.label)
	_, err := s.tx.Exec(`UPDATE deliveries SET lease = ?1 WHERE agent = ?2 AND label = ?3 AND state = 'seen' AND lease > ?1`, s.now, at.agent, at.label)
	return err
}
