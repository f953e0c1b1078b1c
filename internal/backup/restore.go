package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// Restore makes home what the archive at path holds. Nothing is changed before
// every byte was read and found right. A home that has something in it is
// refused, or, with force, moved aside; one that is in use always is refused.
func Restore(path, home string, force bool) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, conch.Errorf(conch.InvalidRequest, "%v", err)
	}
	defer f.Close()
	if err := inUse(home); err != nil {
		return Summary{}, err
	}
	used, err := inhabited(home)
	if err != nil {
		return Summary{}, conch.Errorf(conch.HomeUnusable, "%v", err)
	}
	if used && !force {
		return Summary{}, conch.Errorf(conch.InvalidRequest, "%s is not empty", home).
			Hint("--force moves what is there aside; or set CONCH_HOME to another directory")
	}
	parent := filepath.Dir(home)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return Summary{}, conch.Errorf(conch.HomeUnusable, "%v", err)
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(home)+".restore-") // 0700
	if err != nil {
		return Summary{}, conch.Errorf(conch.HomeUnusable, "%v", err)
	}
	defer os.RemoveAll(tmp)
	sum, err := unpack(f, tmp)
	if err != nil {
		var e *conch.Error
		if errors.As(err, &e) {
			return Summary{}, err
		}
		return Summary{}, conch.Errorf(conch.Damaged, "%s cannot be restored: %v", path, err).
			Hint("it is damaged or not a backup of conch's; nothing was changed")
	}
	// The daemon is told that its encryption keys may have been used since.
	if err := os.WriteFile(filepath.Join(tmp, RestoredFile), nil, 0o600); err != nil {
		return Summary{}, conch.Errorf(conch.HomeUnusable, "%v", err).Hint("nothing was changed")
	}
	err = install(tmp, home, used, &sum)
	return sum, err
}

// RestoredFile is what a restore leaves in the home, until the daemon has seen it.
const RestoredFile = "restored"

// inUse refuses a home whose daemon or sessions run: they would go on in
// what is moved aside.
func inUse(home string) error {
	if _, err := os.Stat(home); err != nil {
		return nil
	}
	busy := func(what string) error {
		return conch.Errorf(conch.AlreadyRunning, "%s in %s", what, home).Hint("conch down --all ends everything there")
	}
	if l, err := session.TryLock(filepath.Join(home, "lock")); err == nil {
		l.Unlock()
	} else if session.Held(err) {
		return busy("a daemon runs")
	}
	list, err := session.List(home)
	if err != nil {
		return conch.Errorf(conch.HomeUnusable, "%v", err)
	}
	for _, s := range list {
		if s.Alive() {
			return busy("session " + s.Spec.Label + " runs")
		}
	}
	return nil
}

// passing is what a home may have that nobody would miss.
var passing = []string{"lock", "start.lock", "slots", "daemon.json", "daemon.log", "daemon.log.1", "run", "login"}

// inhabited reports whether a home holds something.
func inhabited(home string) (bool, error) {
	ents, err := os.ReadDir(home)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range ents {
		if slices.Contains(passing, e.Name()) {
			continue
		}
		if e.Name() == "sessions" {
			if in, err := os.ReadDir(filepath.Join(home, "sessions")); err == nil && len(in) == 0 {
				continue
			}
		}
		return true, nil
	}
	return false, nil
}

// install puts the restored directory in place of home.
func install(tmp, home string, keep bool, sum *Summary) error {
	aside := ""
	if _, err := os.Lstat(home); err == nil {
		aside = fmt.Sprintf("%s.before-%s", home, time.Now().UTC().Format("20060102T150405.000"))
		if err := os.Rename(home, aside); err != nil {
			return conch.Errorf(conch.HomeUnusable, "%v", err).Hint("nothing was changed")
		}
	}
	if err := os.Rename(tmp, home); err != nil {
		if aside != "" {
			os.Rename(aside, home)
		}
		return conch.Errorf(conch.HomeUnusable, "%v", err).Hint("nothing was changed")
	}
	if d, err := os.Open(filepath.Dir(home)); err == nil {
		d.Sync()
		d.Close()
	}
	if aside != "" && !keep {
		os.RemoveAll(aside) // nothing that anybody would miss
	} else {
		sum.Aside = aside
	}
	return nil
}

// maxManifest bounds what is read into memory at once.
const maxManifest = 256 << 20

// unpack reads an archive into dir and compares all of it with its manifest.
func unpack(r io.Reader, dir string) (Summary, error) {
	br := bufio.NewReaderSize(r, 1<<20)
	var in io.Reader = br
	if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return Summary{}, err
		}
		in = zr
	}
	tr := tar.NewReader(in)
	var head Header
	if err := readEntry(tr, headerName, &head); err != nil {
		return Summary{}, err
	}
	if head.Format < 1 || head.Format > Format {
		return Summary{}, conch.Errorf(conch.VersionMismatch, "the backup has format %d (made by conch %s), this conch reads up to %d", head.Format, head.Version, Format).
			Hint("restore it with a conch of that version or newer")
	}
	got := map[string]Entry{}
	var m *Manifest
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Summary{}, err
		}
		if m != nil {
			return Summary{}, fmt.Errorf("%q comes after the manifest", h.Name)
		}
		if h.Typeflag != tar.TypeReg {
			return Summary{}, fmt.Errorf("%q is not a file", h.Name)
		}
		if h.Name == manifestName {
			m = new(Manifest)
			if err := json.NewDecoder(io.LimitReader(tr, maxManifest)).Decode(m); err != nil {
				return Summary{}, fmt.Errorf("manifest: %w", err)
			}
			continue
		}
		if !allowed(h.Name) {
			return Summary{}, fmt.Errorf("%q is no name of conch's", h.Name)
		}
		if _, twice := got[h.Name]; twice {
			return Summary{}, fmt.Errorf("%q is there twice", h.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := writeFile(path, tr); err != nil {
			return Summary{}, err
		}
		got[h.Name] = Entry{Name: h.Name, Size: h.Size}
	}
	if m == nil {
		return Summary{}, errors.New("it is cut short: the manifest is missing")
	}
	// To the very end: a checksum of the compression stands there.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return Summary{}, err
	}
	return verify(dir, head, *m, got)
}

func readEntry(tr *tar.Reader, name string, v any) error {
	h, err := tr.Next()
	if err != nil {
		return err
	}
	if h.Name != name {
		return fmt.Errorf("it begins with %q", h.Name)
	}
	return json.NewDecoder(io.LimitReader(tr, 1<<20)).Decode(v)
}

func writeFile(path string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// verify cuts every file to its size, compares it with its checksum, and sees
// it on the disk.
func verify(dir string, head Header, m Manifest, got map[string]Entry) (Summary, error) {
	sum := Summary{Files: len(m.Files), At: head.At}
	if len(m.Files) != len(got) {
		return sum, fmt.Errorf("%d files, the manifest has %d", len(got), len(m.Files))
	}
	for _, e := range m.Files {
		g, ok := got[e.Name]
		if !ok || e.Size < 0 || e.Size > g.Size {
			return sum, fmt.Errorf("%q is missing or cut short", e.Name)
		}
		if err := verifyFile(filepath.Join(dir, filepath.FromSlash(e.Name)), e); err != nil {
			return sum, err
		}
		sum.Bytes += e.Size
	}
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return sum, err
	}
	list, err := session.List(dir)
	if err != nil {
		return sum, err
	}
	for _, s := range list {
		if s.Err != nil {
			return sum, fmt.Errorf("session %s: %w", s.ID, s.Err)
		}
		if s.Spec.ClosedAt == nil {
			sum.Open++
		} else {
			sum.Closed++
		}
	}
	return sum, nil
}

func verifyFile(path string, e Entry) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(e.Size); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != e.SHA256 {
		return fmt.Errorf("%q does not have the checksum of the manifest", e.Name)
	}
	return f.Sync()
}
