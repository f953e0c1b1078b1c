package mail

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/store"
)

// uploadTime is how long a file waits for the message that it is for.
const uploadTime = 24 * time.Hour

const (
	fileHere = "here" // whole and on disk
	fileAway = "away" // at the relay, to be fetched
	fileGone = "gone" // it cannot be had
)

// NewFileID names a file in the home and at a relay. Ids are of this form
// only: they are names of files.
func NewFileID() string {
	var b [20]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// CheckFileID refuses anything else.
func CheckFileID(id string) error {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) != 20 || strings.ToLower(id) != id {
		return conch.Errorf(conch.InvalidRequest, "%.60q is not an attachment's id", id)
	}
	return nil
}

// FileName makes of what a sender calls a file a name that is safe to show and
// to write: its last part, no control characters, not hidden, at most 200 bytes.
func FileName(name string) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, name)
	for len(name) > 200 {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if name = strings.TrimSpace(name); strings.Trim(name, ".") == "" {
		return "attachment"
	}
	if name[0] == '.' { // a hidden file, which some program may obey
		name = "_" + name[1:]
	}
	return name
}

// FilePath is where an attachment's content is.
func (m *Mail) FilePath(id string) string { return filepath.Join(m.o.Files, id) }

// Upload keeps a file for a message that is about to be sent.
func (m *Mail) Upload(ctx context.Context, name string, r io.Reader) (a conch.Attachment, err error) {
	// Opening sweeps files that no message has, which this is until it is recorded.
	if _, err := m.store(ctx); err != nil {
		return a, err
	}
	a = conch.Attachment{ID: NewFileID(), Name: FileName(name), Here: true}
	if a.Size, a.SHA256, err = m.KeepFile(a.ID, r); err != nil {
		return conch.Attachment{}, err
	}
	err = m.write(ctx, nil, func(s *step) error {
		_, err := s.tx.Exec(`INSERT INTO uploads(id, name, size, sha256, at) VALUES (?, ?, ?, ?, ?)`, a.ID, a.Name, a.Size, a.SHA256, s.now)
		return err
	})
	if err != nil {
		os.Remove(m.FilePath(a.ID))
		return conch.Attachment{}, err
	}
	return a, nil
}

// KeepFile writes a file of the home's, whole and on disk or not at all.
func (m *Mail) KeepFile(id string, r io.Reader) (size int64, sum string, err error) {
	if err := CheckFileID(id); err != nil {
		return 0, "", err
	}
	if err := os.MkdirAll(m.o.Files, 0o700); err != nil {
		return 0, "", storage(err)
	}
	f, err := os.CreateTemp(m.o.Files, ".new-") // 0600
	if err != nil {
		return 0, "", storage(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(r, conch.MaxAttachment+1))
	switch {
	case err != nil:
		return 0, "", storage(err)
	case size > conch.MaxAttachment:
		return 0, "", conch.Errorf(conch.TooLarge, "the attachment has more than %d bytes (64 MiB); nothing was kept", conch.MaxAttachment)
	}
	if err := f.Sync(); err != nil {
		return 0, "", storage(err)
	}
	if err := os.Rename(f.Name(), m.FilePath(id)); err != nil {
		return 0, "", storage(err)
	}
	d, err := os.Open(m.o.Files)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	return size, hex.EncodeToString(h.Sum(nil)), storage(err)
}

func storage(err error) error {
	var e *conch.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return conch.Errorf(conch.StorageFull, "nothing was kept of the attachment: %v", err).Hint("free space and try again").Retry()
}

// uploaded gives the files that a message to be sent names.
func (s *step) uploaded(ids []string) (list []conch.Attachment, err error) {
	for i, id := range ids {
		a := conch.Attachment{N: i + 1, ID: id, Here: true}
		if err := CheckFileID(id); err != nil {
			return nil, err
		}
		// A message that was sent before under the same id has them.
		err := s.tx.Row(`SELECT name, size, sha256 FROM uploads WHERE id = ?1 UNION ALL SELECT name, size, sha256 FROM attachments WHERE id = ?1 LIMIT 1`, id).
			Scan(&a.Name, &a.Size, &a.SHA256)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, conch.Errorf(conch.InvalidRequest, "there is no uploaded file %s; nothing was sent", id).Hint("upload it again: files wait for their message for 24 hours")
		}
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// attach gives a message its files.
func (s *step) attach(n int64, files []conch.Attachment) error {
	for _, f := range files {
		if _, err := s.tx.Exec(`INSERT INTO attachments(msg, i, id, name, size, sha256, key, state, error) VALUES (?, ?, ?, ?, ?, ?, x'', 'here', '')`,
			n, f.N, f.ID, f.Name, f.Size, f.SHA256); err != nil {
			return err
		}
		if _, err := s.tx.Exec(`DELETE FROM uploads WHERE id = ?`, f.ID); err != nil {
			return err
		}
	}
	return nil
}

// received gives a message from another home its files, to be fetched.
func (s *step) received(n int64, files []conch.Attachment, keys [][]byte) error {
	for i, f := range files {
		if _, err := s.tx.Exec(`INSERT INTO attachments(msg, i, id, name, size, sha256, key, state, error) VALUES (?, ?, ?, ?, ?, ?, ?, 'away', '')`,
			n, i+1, f.ID, FileName(f.Name), f.Size, f.SHA256, keys[i]); err != nil {
			return err
		}
	}
	return nil
}

// attached lists a message's files.
func (s *step) attached(n int64) (list []conch.Attachment, keys [][]byte, err error) {
	rows, err := s.tx.Query(`SELECT i, id, name, size, sha256, key, state, error FROM attachments WHERE msg = ? ORDER BY i`, n)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	list = []conch.Attachment{}
	for rows.Next() {
		var a conch.Attachment
		var key []byte
		var state string
		if err := rows.Scan(&a.N, &a.ID, &a.Name, &a.Size, &a.SHA256, &key, &state, &a.Error); err != nil {
			return nil, nil, err
		}
		a.Here = state == fileHere
		list, keys = append(list, a), append(keys, key)
	}
	return list, keys, rows.Err()
}

// SetKey records what opens a file of a message that is about to leave the home.
func (s *step) SetKey(n int64, i int, key []byte) error {
	_, err := s.tx.Exec(`UPDATE attachments SET key = ? WHERE msg = ? AND i = ?`, key, n, i)
	return err
}

// An Away file is one that a message came with and that is not here yet.
type Away struct {
	Msg         int64
	I           int
	Agent, From string
	conch.Attachment
	Key []byte
}

// Away lists them, at most limit.
func (s *step) Away(limit int) (list []Away, err error) {
	rows, err := s.tx.Query(`SELECT a.msg, a.i, m.to_agent, m.from_agent, a.id, a.name, a.size, a.sha256, a.key
		FROM attachments a JOIN messages m ON m.n = a.msg WHERE a.state = 'away' ORDER BY a.msg, a.i LIMIT ?`, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a Away
		if err := rows.Scan(&a.Msg, &a.I, &a.Agent, &a.From, &a.ID, &a.Name, &a.Size, &a.SHA256, &a.Key); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, rows.Err()
}

// Fetched records what came of fetching a file: err nil, it is here; final, it
// will not be tried again.
func (s *step) Fetched(a Away, err error, final bool) error {
	state, text := fileHere, ""
	if err != nil {
		state, text = fileAway, err.Error()
		if final {
			state = fileGone
		}
	}
	_, e := s.tx.Exec(`UPDATE attachments SET state = ?, error = ? WHERE msg = ? AND i = ?`, state, text, a.Msg, a.I)
	s.concern(a.Agent, "")
	return e
}

// Attachment gives one of a message's files, for an agent that sent or got it.
func (m *Mail) Attachment(ctx context.Context, agent, id string, n int) (a conch.Attachment, err error) {
	if err := m.knownAgent(agent); err != nil {
		return a, err
	}
	if err := conch.CheckMessageID(id); err != nil {
		return a, err
	}
	err = m.read(ctx, func(s *step) error {
		var msg int64
		err := s.tx.Row(`SELECT n FROM messages WHERE id = ?1 AND (from_agent = ?2 OR to_agent = ?2) ORDER BY n DESC LIMIT 1`, id, agent).Scan(&msg)
		if errors.Is(err, sql.ErrNoRows) {
			return conch.Errorf(conch.MessageNotFound, "agent %s has neither sent nor got a message %s", agent, id)
		}
		if err != nil {
			return err
		}
		list, _, err := s.attached(msg)
		if err != nil {
			return err
		}
		if n < 1 || n > len(list) {
			return conch.Errorf(conch.InvalidRequest, "message %s has no attachment %d", id, n).Hint("it has %d", len(list))
		}
		a = list[n-1]
		return nil
	})
	return a, err
}

// OpenFile opens a file that is here.
func (m *Mail) OpenFile(a conch.Attachment) (*os.File, error) {
	if !a.Here {
		why := a.Error
		if why == "" {
			why = "it has not been fetched from the relay yet"
		}
		return nil, conch.Errorf(conch.MessageNotFound, "attachment %d (%s) is not here: %s", a.N, a.Name, why).Hint("try again later; conch inbox --peek --json says how it stands").Retry()
	}
	f, err := os.Open(m.FilePath(a.ID))
	if err != nil {
		return nil, conch.Errorf(conch.Damaged, "the file of attachment %d (%s) is gone from the home: %v", a.N, a.Name, err)
	}
	return f, nil
}

// sweepFiles removes files that no message has: what was uploaded long ago, and
// what a daemon left that died while it wrote.
func (m *Mail) sweepFiles(tx *store.Tx) error {
	if m.o.Files == "" {
		return nil
	}
	ents, err := os.ReadDir(m.o.Files)
	if err != nil {
		return nil // there is none yet
	}
	if _, err := tx.Exec(`DELETE FROM uploads WHERE at < ?`, m.now()-int64(uploadTime)); err != nil {
		return err
	}
	for _, e := range ents {
		keep := false
		if CheckFileID(e.Name()) == nil {
			var n int
			if err := tx.Row(`SELECT (SELECT count(*) FROM uploads WHERE id = ?1) + (SELECT count(*) FROM attachments WHERE id = ?1)`, e.Name()).Scan(&n); err != nil {
				return err
			}
			keep = n > 0
		} else {
			keep = !strings.HasPrefix(e.Name(), ".new-")
		}
		if !keep {
			if err := os.Remove(m.FilePath(e.Name())); err != nil {
				return fmt.Errorf("sweep attachments: %w", err)
			}
		}
	}
	return nil
}
