package mail

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

const foundColumns = `m.n, m.id, m.from_agent, m.from_session, m.to_agent, m.to_session, m.text, m.in_reply_to, m.thread, m.status, m.sent_at`

// Search finds an agent's own mail, sent and received, that has all words of
// text; the newest first.
func (m *Mail) Search(ctx context.Context, agent, text string, limit int) ([]conch.FoundMessage, error) {
	if err := m.knownAgent(agent); err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ReplaceAll(text, "\x00", " "))
	if len(words) == 0 {
		return nil, conch.Errorf(conch.InvalidRequest, "nothing to look for")
	}
	if len(words) > 64 || len(text) > 4096 {
		return nil, conch.Errorf(conch.TooLarge, "more than 64 words or 4096 bytes to look for")
	}
	for i, w := range words {
		words[i] = `"` + strings.ReplaceAll(w, `"`, `""`) + `"` // a word, whatever is in it
	}
	if limit <= 0 || limit > maxFetch {
		limit = 100
	}
	if err := m.index(ctx); err != nil {
		return nil, err
	}
	return m.found(ctx, `SELECT `+foundColumns+` FROM message_text t JOIN messages m ON m.n = t.rowid
		WHERE message_text MATCH ?1 AND (m.from_agent = ?2 OR m.to_agent = ?2) ORDER BY m.n DESC LIMIT ?3`, strings.Join(words, " "), agent, limit)
}

// Recent is an agent's own mail, sent and received, the newest first; with before, an
// id of such a message, what is older than that.
func (m *Mail) Recent(ctx context.Context, agent, before string, limit int) ([]conch.FoundMessage, error) {
	if err := m.knownAgent(agent); err != nil {
		return nil, err
	}
	if !m.Used() {
		return []conch.FoundMessage{}, nil
	}
	if limit <= 0 || limit > maxFetch {
		limit = 100
	}
	if before == "" {
		return m.found(ctx, `SELECT `+foundColumns+` FROM messages m
			WHERE (m.from_agent = ?1 OR m.to_agent = ?1) ORDER BY m.n DESC LIMIT ?2`, agent, limit)
	}
	if err := conch.CheckMessageID(before); err != nil {
		return nil, err
	}
	return m.found(ctx, `SELECT `+foundColumns+` FROM messages m
		WHERE (m.from_agent = ?1 OR m.to_agent = ?1) AND m.n < (SELECT min(n) FROM messages WHERE id = ?2 AND (from_agent = ?1 OR to_agent = ?1))
		ORDER BY m.n DESC LIMIT ?3`, agent, before, limit)
}

// index brings the index of the text up to date, a part at a time, so that
// others can write in between.
func (m *Mail) index(ctx context.Context) error {
	const part = 500
	for {
		var done int64
		err := m.write(ctx, nil, func(s *step) error {
			from, err := s.number(`SELECT through FROM indexed`)
			if err != nil {
				return err
			}
			list, err := s.numbers(`SELECT n FROM messages WHERE n > ? ORDER BY n LIMIT ?`, from, part)
			if done = int64(len(list)); err != nil || done == 0 {
				return err
			}
			last := list[len(list)-1]
			if _, err := s.tx.Exec(`INSERT INTO message_text(rowid, text) SELECT n, text FROM messages WHERE n > ? AND n <= ?`, from, last); err != nil {
				return err
			}
			_, err = s.tx.Exec(`UPDATE indexed SET through = ?`, last)
			return err
		})
		if err != nil || done < part {
			return err
		}
	}
}

// Thread is the chain of replies that a message of the agent's belongs to,
// oldest first.
func (m *Mail) Thread(ctx context.Context, agent, id string) ([]conch.FoundMessage, error) {
	if err := m.knownAgent(agent); err != nil {
		return nil, err
	}
	if err := conch.CheckMessageID(id); err != nil {
		return nil, err
	}
	list, err := m.found(ctx, `SELECT `+foundColumns+` FROM messages m
		WHERE (m.id IN (SELECT thread FROM messages WHERE id = ?1 AND (from_agent = ?2 OR to_agent = ?2))
				OR m.in_reply_to <> '' AND m.thread IN (SELECT thread FROM messages WHERE id = ?1 AND (from_agent = ?2 OR to_agent = ?2)))
			AND (m.from_agent = ?2 OR m.to_agent = ?2) ORDER BY m.n LIMIT 1000`, id, agent)
	if err == nil && len(list) == 0 {
		return nil, conch.Errorf(conch.MessageNotFound, "agent %s has neither sent nor got a message %s", agent, id)
	}
	return list, err
}

func (m *Mail) found(ctx context.Context, query string, args ...any) ([]conch.FoundMessage, error) {
	list := []conch.FoundMessage{}
	err := m.read(ctx, func(s *step) error {
		rows, err := s.tx.Query(query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		var numbers []int64
		size := 0
		for rows.Next() {
			var f conch.FoundMessage
			var n, at int64
			if err := rows.Scan(&n, &f.ID, &f.From, &f.FromSession, &f.To, &f.ToSession, &f.Text, &f.InReplyTo, &f.Thread, &f.Status, &at); err != nil {
				return err
			}
			if size += len(f.Text); size > maxFetchBytes && len(list) > 0 {
				break
			}
			f.SentAt = time.Unix(0, at).UTC()
			list = append(list, f)
			numbers = append(numbers, n)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for i, n := range numbers {
			f := &list[i]
			if f.Recipients, err = s.reached(n, f.To); err != nil {
				return err
			}
			if f.Reason, err = s.why(n, f.Status, f.Recipients); err != nil {
				return err
			}
			if f.Attachments, _, err = s.attached(n); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Policy is what an agent does with mail that names no session.
func (m *Mail) Policy(ctx context.Context, agent string) (p conch.Policy, err error) {
	if err := m.knownAgent(agent); err != nil {
		return "", err
	}
	if !m.Used() {
		return conch.PolicyPrimary, nil
	}
	err = m.read(ctx, func(s *step) error {
		p, err = s.policy(agent, "")
		return err
	})
	return p, err
}

// SetPolicy changes it. Mail that is held is looked at again.
func (m *Mail) SetPolicy(ctx context.Context, agent string, p conch.Policy) error {
	if err := m.knownAgent(agent); err != nil {
		return err
	}
	if err := conch.CheckPolicy(p); err != nil {
		return err
	}
	return m.write(ctx, m.runningOf(ctx, agent, ""), func(s *step) error {
		if _, err := s.tx.Exec(`INSERT INTO policies(agent, policy) VALUES (?, ?) ON CONFLICT DO UPDATE SET policy = excluded.policy`, agent, p); err != nil {
			return err
		}
		if err := s.expire(); err != nil {
			return err
		}
		return s.settle(agent)
	})
}
