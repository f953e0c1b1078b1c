// Package backup writes a conch home into one file and reads it back.
//
// The file is a tar archive, compressed if its name says so (.gz): a header that
// names the format, the files, and last a manifest with the size and SHA-256 of
// each. An archive without its manifest, or that does not agree with it in every
// byte, is refused whole.
//
// A backup is made while sessions run and needs no daemon. What it holds of a
// session fits together: the state is that of a command which is on the tape.
// Tapes are copied up to where they were when the copying came to them. Commands
// that were running are, after a restore, recorded as lost.
//
// What lives only as long as processes do (sockets, locks, logs) is left out.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Format is the archive's version. A reader refuses a newer one.
const Format = 1

const (
	headerName   = "conch-backup.json"
	manifestName = "MANIFEST.json"
)

// Header is the first entry.
type Header struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the conch that made it
	Home    string    `json:"home"`
	At      time.Time `json:"at"`
}

// Entry is one file in the manifest. Its size may be less than what the archive
// has of it: a tape that was cut while it was copied is filled up with zeros,
// which are not part of it.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest is the last entry.
type Manifest struct {
	Files []Entry `json:"files"`
}

// A Source is a file of the home that cannot just be copied, because somebody
// writes to it: it is asked for a consistent copy of itself. The database of
// messages is to be one.
type Source struct {
	Name  string // its place in the home
	Write func(w io.Writer) error
}

// Options say what to back up.
type Options struct {
	Home    string
	Version string
	Sources []Source
}

// Summary says what an archive holds.
type Summary struct {
	Open   int       `json:"open"`
	Closed int       `json:"closed"`
	Files  int       `json:"files"`
	Bytes  int64     `json:"bytes"`
	At     time.Time `json:"at"`
	// Aside is where Restore moved what was there before.
	Aside string `json:"aside,omitempty"`
}

// allowed reports whether a name may be in an archive: a restore must not be led
// anywhere else by one that was made to. No expression: every process of conch
// would pay for having it compiled.
func allowed(name string) bool {
	if slices.Contains(homeFiles, name) || name == "conch.db" {
		return true
	}
	p := strings.Split(name, "/")
	switch {
	case p[0] == "keys" && (len(p) == 2 || len(p) == 3):
		return plainWord(p[1]) && plainWord(p[len(p)-1])
	case p[0] == "files" && len(p) == 2: // attachments
		return only(p[1], "0123456789abcdef", 40, 40)
	case p[0] == "sessions" && len(p) == 3:
		return only(p[1], idLetters, 8, 8) && slices.Contains(stateFiles, p[2])
	case p[0] == "sessions" && len(p) == 4 && p[2] == "tape":
		digits, ok := strings.CutSuffix(p[3], ".tape")
		return ok && only(p[1], idLetters, 8, 8) && only(digits, "0123456789", 8, 10)
	}
	return false
}

// homeFiles are a home's own. Of the relay it is who it is, whom it lets in and
// what it has joined; mail that waits there is its senders' too.
var homeFiles = []string{"config.toml", "agents.json", "relay/relay.json", "relay/guests.json", "relay/identity.pem"}

const idLetters = "abcdefghijklmnopqrstuvwxyz234567"

// plainWord is a file's name without anything special in it.
func plainWord(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return only(s, letters+".", 1, 64) && s[0] != '.'
}

// only reports whether s has these letters alone, so many of them.
func only(s, letters string, least, most int) bool {
	return len(s) >= least && len(s) <= most && strings.Trim(s, letters) == ""
}

// Write puts a backup of the home at path: all of it or nothing. A file that is
// there already is not touched unless replace says so.
func Write(path string, o Options, replace bool) (Summary, error) {
	if _, err := os.Lstat(path); err == nil && !replace {
		return Summary{}, conch.Errorf(conch.InvalidRequest, "%s exists already", path).Hint("choose another name, or --force replaces it")
	}
	if _, err := os.Stat(filepath.Join(o.Home, "sessions")); err != nil {
		return Summary{}, conch.Errorf(conch.HomeUnusable, "there is nothing to back up in %s", o.Home).Hint("CONCH_HOME names the home")
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".") // 0600
	if err != nil {
		return Summary{}, writeError(path, err)
	}
	s, err := write(f, strings.HasSuffix(path, "gz"), o)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return Summary{}, writeError(path, err)
	}
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
	return s, nil
}

func writeError(path string, err error) error {
	var e *conch.Error
	if errors.As(err, &e) {
		return err
	}
	return conch.Errorf(conch.Internal, "no backup was made: %v", err).Hint("nothing of it is left at %s", path)
}

func write(f io.Writer, compress bool, o Options) (Summary, error) {
	w := &writer{at: time.Now().UTC()}
	var zw *gzip.Writer
	if compress {
		zw = gzip.NewWriter(f)
		f = zw
	}
	w.tar = tar.NewWriter(f)
	head, err := json.Marshal(Header{Format, o.Version, o.Home, w.at})
	if err != nil {
		return Summary{}, err
	}
	if err := w.bytes(headerName, head); err != nil {
		return Summary{}, err
	}
	if err := w.home(o); err != nil {
		return Summary{}, err
	}
	m, err := json.Marshal(w.manifest)
	if err != nil {
		return Summary{}, err
	}
	if err := w.bytes(manifestName, m); err != nil {
		return Summary{}, err
	}
	err = w.tar.Close()
	if zw != nil {
		err = errors.Join(err, zw.Close())
	}
	w.sum.Files, w.sum.At = len(w.manifest.Files), w.at
	return w.sum, err
}

// A writer fills an archive.
type writer struct {
	tar      *tar.Writer
	at       time.Time
	manifest Manifest
	sum      Summary
}

func (w *writer) header(name string, size int64) error {
	return w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: w.at, Format: tar.FormatPAX})
}

// bytes adds what is in memory; the two ends of the archive are not in the manifest.
func (w *writer) bytes(name string, b []byte) error {
	if err := w.header(name, int64(len(b))); err != nil {
		return err
	}
	if name != headerName && name != manifestName {
		sum := sha256.Sum256(b)
		w.manifest.Files = append(w.manifest.Files, Entry{name, int64(len(b)), hex.EncodeToString(sum[:])})
		w.sum.Bytes += int64(len(b))
	}
	_, err := w.tar.Write(b)
	return err
}

// file adds a file as long as it is now, however it grows or shrinks meanwhile.
func (w *writer) file(name string, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.header(name, fi.Size()); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, h), io.LimitReader(f, fi.Size()))
	if err != nil {
		return err
	}
	w.manifest.Files = append(w.manifest.Files, Entry{name, n, hex.EncodeToString(h.Sum(nil))})
	w.sum.Bytes += n
	_, err = io.CopyN(w.tar, zeros{}, fi.Size()-n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (w *writer) home(o Options) error {
	for _, name := range homeFiles {
		if err := w.plain(o.Home, name); err != nil {
			return err
		}
	}
	if err := w.tree(o.Home, "keys"); err != nil {
		return err
	}
	for _, s := range o.Sources {
		if err := w.source(o.Home, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	// After the database: what it names was there when it was copied.
	if err := w.tree(o.Home, "files"); err != nil {
		return err
	}
	list, err := session.List(o.Home)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Err != nil {
			// It is somebody's work; leaving it out in silence is the worst.
			return conch.Errorf(conch.Internal, "session directory %s cannot be read: %v", s.Dir, s.Err).
				Hint("conch doctor says more; move the directory away to back up the rest")
		}
		if err := w.session(s); err != nil {
			return err
		}
	}
	return nil
}

// tree adds the files of a directory of the home, as far as they have names that
// a restore would take.
func (w *writer) tree(home, dir string) error {
	return filepath.WalkDir(filepath.Join(home, dir), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(home, path)
		if err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); dir == "files" && !allowed(rel) {
			return nil // one that is being written
		}
		return w.plain(home, rel)
	})
}

// source adds a copy that a source makes of itself. It passes through a file: a
// tar archive has a file's size before its bytes.
func (w *writer) source(home string, s Source) error {
	f, err := os.CreateTemp(home, ".backup-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := s.Write(f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.file(s.Name, f)
}

// plain adds a file that is written whole and rarely, if it is there.
func (w *writer) plain(home, name string) error {
	b, err := os.ReadFile(filepath.Join(home, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !allowed(name) {
		return conch.Errorf(conch.Internal, "%s has a name that is not conch's", filepath.Join(home, name)).Hint("move it away")
	}
	return w.bytes(name, b)
}

// stateFiles are a session's small files, each written whole and renamed.
var stateFiles = []string{"spec.json", "checkpoint", "checkpoint.1"}

// tries bounds how often a session's state is read that changes meanwhile.
const tries = 10

// session adds a session. First its state, then the tape: the state is of a
// command that is on the tape, or was about to be. If a command ends just
// between the two checkpoints, they are read again.
func (w *writer) session(s session.Found) error {
	var state map[string][]byte
	for try := 0; ; try++ {
		before := stamps(s.Dir)
		state = map[string][]byte{}
		for _, name := range stateFiles {
			b, err := os.ReadFile(filepath.Join(s.Dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err == nil {
				state[name] = b
			}
		}
		if slices.Equal(before, stamps(s.Dir)) || try == tries {
			break
		}
	}
	if state["spec.json"] == nil {
		return nil // pruned since it was listed
	}
	// Opened before any is copied, so that one that is removed meanwhile is
	// still read.
	segs, err := filepath.Glob(filepath.Join(s.Tape(), "*.tape"))
	if err != nil {
		return err
	}
	slices.Sort(segs)
	base := "sessions/" + s.ID + "/"
	for _, name := range stateFiles {
		if b := state[name]; b != nil {
			if err := w.bytes(base+name, b); err != nil {
				return err
			}
		}
	}
	for _, path := range segs {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = w.file(base+"tape/"+filepath.Base(path), f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if s.Spec.ClosedAt == nil {
		w.sum.Open++
	} else {
		w.sum.Closed++
	}
	return nil
}

// stamps tells two states of a session's small files apart.
func stamps(dir string) []string {
	var out []string
	for _, name := range stateFiles {
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil {
			out = append(out, fmt.Sprintf("%s %d %d", name, fi.ModTime().UnixNano(), fi.Size()))
		}
	}
	return out
}
