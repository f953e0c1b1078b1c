package mail

import (
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/conchsh/conch"
)

// A target is a recipient: an agent, or with a label one of its sessions.
type target struct{ agent, label string }

func (t target) String() string {
	if t.label == "" {
		return t.agent
	}
	return t.agent + "/" + t.label
}

// isAddress knows 32 bytes in base58: 32 characters if all are zero, 44 at most.
func isAddress(s string) bool {
	return len(s) >= 33 && len(s) <= 44 && strings.Trim(s, "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz") == ""
}

// resolve reads TO as a sender of an agent writes it: label, agent/label,
// agent, a contact's name or an address, these two with or without a label. No
// label is an agent's or contact's name and an address is longer than all, so
// there is one reading.
func (m *Mail) resolve(ctx context.Context, sender, to string) (target, error) {
	first, label, both := strings.Cut(to, "/")
	if both {
		if err := conch.CheckLabel(label); err != nil {
			return target{}, err
		}
	}
	if isAddress(first) {
		if name, ok := m.o.Agents.ByAddress(first); ok {
			return target{name, label}, nil
		}
		if m.o.Carry == nil {
			return target{}, conch.Errorf(conch.AgentNotFound, "no agent of this home has the address %s", first).
				Hint("agents here: %s", strings.Join(m.o.Agents.Names(), ", "))
		}
		return target{first, label}, nil
	}
	if address, ok, err := m.contact(ctx, sender, first); err != nil || ok {
		return target{address, label}, err
	}
	if both {
		return target{first, label}, m.knownAgent(first)
	}
	if m.o.Agents.Known(to) {
		return target{to, ""}, nil
	}
	if err := conch.CheckLabel(to); err != nil {
		return target{}, conch.Errorf(conch.InvalidRequest, "%.60q is nobody's name", to).
			Hint("send to a label, agent/label, agent, a contact's name or an address with or without /label")
	}
	return target{sender, to}, nil
}

// contact gives the address of a contact of an agent's by our name for it.
func (m *Mail) contact(ctx context.Context, agent, name string) (string, bool, error) {
	if m.o.Contact == nil || !m.Used() || conch.CheckAgent(name) != nil || m.o.Agents.Known(name) {
		return "", false, nil
	}
	return m.o.Contact(ctx, agent, name)
}

func (m *Mail) knownAgent(name string) error {
	if err := conch.CheckAgent(name); err != nil {
		return err
	}
	if !m.o.Agents.Known(name) {
		return conch.Errorf(conch.AgentNotFound, "there is no agent %s", name).
			Hint("agents here: %s", strings.Join(m.o.Agents.Names(), ", "))
	}
	return nil
}

// checkSession refuses a session that cannot be one of ours.
func (m *Mail) checkSession(agent, label string) error {
	if err := m.knownAgent(agent); err != nil {
		return err
	}
	if err := conch.CheckLabel(label); err != nil {
		return err
	}
	return m.untaken(label)
}

// untaken refuses a label that is an agent's name.
func (m *Mail) untaken(label string) error {
	if !m.o.Agents.Taken(label) {
		return nil
	}
	return conch.Errorf(conch.LabelTaken, "%s is the name of an agent and cannot be a session's label", label).
		Hint("choose another label: a name must mean one thing")
}

// Known reports whether a label was ever one of the agent's.
func (m *Mail) Known(ctx context.Context, agent, label string) (known bool, err error) {
	if m.o.Had != nil && m.o.Had(agent, label) {
		return true, nil
	}
	if !m.Used() {
		return false, nil
	}
	err = m.read(ctx, func(s *step) (err error) {
		known, err = s.labelled(agent, label)
		return err
	})
	return known, err
}

// LabelOwner gives an agent that has, or had, a label; "" if none did. The
// writer answers: a label that it is about to record is seen, and one that
// comes after finds the name Taken.
func (m *Mail) LabelOwner(ctx context.Context, label string) (agent string, err error) {
	if !m.Used() {
		return "", nil
	}
	err = m.write(ctx, nil, func(s *step) error {
		list, err := s.strings(`SELECT agent FROM labels WHERE label = ? LIMIT 1`, label)
		if agent = ""; len(list) > 0 {
			agent = list[0]
		}
		return err
	})
	return agent, err
}

// Senders are the agents that have sent mail, here or gone.
func (m *Mail) Senders(ctx context.Context) (list []string, err error) {
	if !m.Used() {
		return nil, nil
	}
	err = m.read(ctx, func(s *step) error {
		// Who sent has a label.
		list, err = s.strings(`SELECT DISTINCT l.agent FROM labels l WHERE EXISTS (SELECT 1 FROM messages m WHERE m.from_agent = l.agent)`)
		return err
	})
	return list, err
}

// Reaches reports, as an error, whether a message of an agent to TO would be taken.
func (m *Mail) Reaches(ctx context.Context, sender, to string) error {
	at, err := m.resolve(ctx, sender, to)
	if err != nil || at.label == "" || IsAddress(at.agent) {
		return err
	}
	return m.exists(ctx, at.agent, at.label)
}

// exists is Known as an error, which names the labels there are. The default
// session needs no making.
func (m *Mail) exists(ctx context.Context, agent, label string) error {
	if err := m.checkSession(agent, label); err != nil {
		return err
	}
	if label == conch.DefaultLabel {
		return nil
	}
	known, err := m.Known(ctx, agent, label)
	if err != nil || known {
		return err
	}
	return m.read(ctx, func(s *step) error { return s.nobody(target{agent, label}) })
}

// labelled reports whether a label is recorded.
func (s *step) labelled(agent, label string) (bool, error) {
	if _, ok := s.m.labels.Load(target{agent, label}); ok {
		return true, nil
	}
	n, err := s.number(`SELECT count(*) FROM labels WHERE agent = ? AND label = ?`, agent, label)
	return n > 0, err
}

// record keeps a label for ever: mail to it is held from now on when it is away.
func (s *step) record(agent, label string) error {
	t := target{agent, label}
	if _, ok := s.m.labels.Load(t); ok {
		return nil
	}
	if err := s.m.untaken(label); err != nil { // once more: it may be being made
		return err
	}
	s.recorded = append(s.recorded, t)
	_, err := s.tx.Exec(`INSERT INTO labels(agent, label, first_seen, last_seen) VALUES (?1, ?2, ?3, ?3) ON CONFLICT DO NOTHING`, agent, label, s.wall)
	return err
}

// nobody is the refusal of a label that never was.
func (s *step) nobody(t target) error {
	labels, err := s.strings(`SELECT label FROM labels WHERE agent = ?`, t.agent)
	if err != nil {
		return err
	}
	if s.m.o.Labels != nil {
		labels = append(labels, s.m.o.Labels(t.agent)...)
	}
	slices.SortFunc(labels, CompareLabels)
	labels = slices.Compact(labels)
	e := conch.Errorf(conch.LabelNotFound, "agent %s has no session %s, and never had", t.agent, t.label)
	if len(labels) == 0 {
		return e.Hint("it has no sessions yet")
	}
	more := ""
	if len(labels) > 50 {
		labels, more = labels[:50], ", …"
	}
	return e.Hint("its sessions: %s%s", strings.Join(labels, ", "), more)
}

// strings is the first column of a query.
func (s *step) strings(query string, args ...any) ([]string, error) {
	rows, err := s.tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// CompareLabels orders labels with their numbers as numbers: claude:2 comes
// before claude:10. Labels that differ only in leading zeros are still apart.
func CompareLabels(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		nx, ny := digits(x), digits(y)
		if nx > 0 && ny > 0 {
			p, _ := new(big.Int).SetString(x[:nx], 10)
			q, _ := new(big.Int).SetString(y[:ny], 10)
			if c := p.Cmp(q); c != 0 {
				return c
			}
			x, y = x[nx:], y[ny:]
			continue
		}
		if x[0] != y[0] {
			return int(x[0]) - int(y[0])
		}
		x, y = x[1:], y[1:]
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}

// digits counts those that s begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
