// Package agent holds the identities of a home: Ed25519 keys under names, and
// who works as which of them where.
//
// Keys are files in $CONCH_HOME/keys, one a name, readable by their owner only.
// A key may be sealed with a passphrase; its name and address can be read
// without it. Nothing in this package prints, logs or puts into an error any
// part of a secret.
//
// A key file is written once: whole, on the disk, and under its name in one
// step that fails if the name is there. Whoever comes second, in this process or
// another, is told so. Assignments are one small file that is replaced whole;
// clients read it themselves (Assignments), so that naming no agent costs a
// command one look at the disk and no question to the daemon.
//
// A Store is the daemon's; its methods are safe for concurrent use. Lock order:
// Store.making, then Store.mu. Nothing blocks under mu.
package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conchsh/conch"
)

const (
	keysDir = "keys"
	keyExt  = ".key"
	// maxKeys bounds what a home holds; each is read at the daemon's start.
	maxKeys = 1000
)

// An Info is what may be known of an agent without its key.
type Info struct {
	Name      string
	Address   string
	Protected bool // sealed with a passphrase
	CreatedAt time.Time
	// Err says why the key cannot be used: damaged, or open to others. The
	// name is taken all the same.
	Err error
}

// A Store is the agents of one home.
type Store struct {
	home, dir string

	making sync.Mutex // held while a key is made, over disk work

	mu       sync.Mutex
	known    map[string]Info
	pending  string          // the name under way, taken for labels already
	unlocked map[string]*Key // sealed keys whose passphrase was given
}

// Open reads what is known of the agents of a home. A key that cannot be used
// is reported when it is asked for; it keeps nobody from the others.
func Open(home string) (*Store, error) {
	s := &Store{
		home: home, dir: filepath.Join(home, keysDir),
		known: map[string]Info{}, unlocked: map[string]*Key{},
	}
	ents, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range ents {
		name, ok := strings.CutSuffix(e.Name(), keyExt)
		if ok && conch.CheckAgent(name) == nil {
			s.known[name] = s.read(name)
		}
	}
	return s, nil
}

// Sweep removes what a daemon left that died while it wrote. Only the home's
// one owner may call it, before anything else writes.
func (s *Store) Sweep() error {
	return errors.Join(sweep(s.dir), sweep(s.home))
}

// read gives what a name's file says.
func (s *Store) read(name string) Info {
	f, err := readKeyFile(s.path(name))
	if err != nil {
		return Info{Name: name, Err: err}
	}
	return Info{Name: name, Address: f.Address, Protected: f.Sealed != nil, CreatedAt: f.CreatedAt}
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name+keyExt) }

// KeyFile is where an agent's key is.
func (s *Store) KeyFile(name string) string { return s.path(name) }

// Known reports whether there is an agent of this name: a look into a map, and
// for a name that is not in it one at the disk, in case a file was put there.
func (s *Store) Known(name string) bool {
	_, ok := s.lookup(name)
	return ok
}

func (s *Store) lookup(name string) (Info, bool) {
	s.mu.Lock()
	info, ok := s.known[name]
	s.mu.Unlock()
	if ok || conch.CheckAgent(name) != nil {
		return info, ok
	}
	if _, err := os.Lstat(s.path(name)); err != nil {
		return Info{}, false
	}
	info = s.read(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = info
	return info, true
}

// Taken reports whether a label would be an agent's name: that of one that is
// there, is being made, or is made on first use. It only looks into memory.
func (s *Store) Taken(label string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[label]
	return ok || label == s.pending || label == conch.DefaultAgent
}

// Get gives one agent, or AgentNotFound with the names there are.
func (s *Store) Get(name string) (Info, error) {
	if err := conch.CheckAgent(name); err != nil {
		return Info{}, err
	}
	if info, ok := s.lookup(name); ok {
		return info, nil
	}
	err := conch.Errorf(conch.AgentNotFound, "no agent %q", name)
	const most = 20
	names, more := s.Names(), ""
	if len(names) > most {
		names, more = names[:most], ", …"
	}
	if len(names) == 0 {
		return Info{}, err.Hint("there is no agent yet; conch agent new %s makes it", name)
	}
	return Info{}, err.Hint("agents: %s%s; conch agent new %s makes it", strings.Join(names, ", "), more, name)
}

// List gives all agents by name.
func (s *Store) List() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.known), func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
}

// Names are the agents' names, sorted.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.known))
}

// ByAddress gives the name of the agent here that has an address.
func (s *Store) ByAddress(address string) (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, info := range s.known {
		if info.Address == address && address != "" {
			return info.Name, true
		}
	}
	return "", false
}

// New makes an agent with a new key, sealed if there is a passphrase. vacant is
// asked, once the name is taken for labels, whether something else has it.
func (s *Store) New(name string, passphrase []byte, vacant func(name string) error) (Info, error) {
	return s.add(name, vacant, func() (*keyFile, error) {
		k, err := newKey()
		if err != nil {
			return nil, err
		}
		return k.file(time.Now().UTC(), passphrase)
	})
}

// Import keeps a key that Export gave, here or on another machine, under the
// name that it has or another. A sealed one stays sealed.
func (s *Store) Import(data []byte, name string, vacant func(name string) error) (Info, error) {
	f, err := parseKeyFile(data)
	if err != nil {
		return Info{}, err
	}
	if name == "" {
		name = f.Name
	}
	return s.add(name, vacant, func() (*keyFile, error) {
		if other, ok := s.ByAddress(f.Address); ok {
			return nil, conch.Errorf(conch.AgentExists, "this key is here already, as agent %s", other).
				Hint("nothing was changed; conch agent ls shows it")
		}
		return f, nil
	})
}

// add puts one more key under a name that has none.
func (s *Store) add(name string, vacant func(string) error, key func() (*keyFile, error)) (Info, error) {
	if err := conch.CheckAgent(name); err != nil {
		return Info{}, err
	}
	if name == conch.DefaultLabel {
		return Info{}, conch.Errorf(conch.LabelTaken, "%q is the label of the default session", name).
			Hint("an agent and a session cannot have one name; choose another")
	}
	s.making.Lock()
	defer s.making.Unlock()
	if s.Known(name) {
		return Info{}, exists(name)
	}
	s.mu.Lock()
	n := len(s.known)
	s.pending = name
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending = ""
	}()
	if n >= maxKeys {
		return Info{}, conch.Errorf(conch.TooLarge, "there are %d agents, which is the limit", n)
	}
	if vacant != nil {
		if err := vacant(name); err != nil {
			return Info{}, err
		}
	}
	f, err := key()
	if err != nil {
		return Info{}, err
	}
	f.Name = name
	if err := s.write(f); err != nil {
		return Info{}, err
	}
	info := Info{Name: name, Address: f.Address, Protected: f.Sealed != nil, CreatedAt: f.CreatedAt}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = info
	return info, nil
}

func (s *Store) write(f *keyFile) error {
	if err := os.Mkdir(s.dir, 0o700); err == nil {
		if err := syncDir(s.home); err != nil {
			return storageError(err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return storageError(err)
	}
	if err := private(s.dir); err != nil {
		return err
	}
	data, err := f.encode()
	if err != nil {
		return err
	}
	err = writeFile(s.path(f.Name), data, create)
	if errors.Is(err, fs.ErrExist) {
		return exists(f.Name)
	}
	return storageError(err)
}

func exists(name string) error {
	return conch.Errorf(conch.AgentExists, "agent %s exists already", name).
		Hint("its key was left as it is; conch agent use %s works as it", name)
}

// Export gives a key file's bytes. With a passphrase the copy is sealed with
// it, for which a sealed key must be unlocked; without one the copy is as the
// original is.
func (s *Store) Export(name string, passphrase []byte) ([]byte, error) {
	if _, err := s.Get(name); err != nil {
		return nil, err
	}
	f, err := readKeyFile(s.path(name))
	if err != nil {
		return nil, err
	}
	if len(passphrase) > 0 {
		k, err := s.Key(name)
		if err != nil {
			return nil, err
		}
		if f, err = k.file(f.CreatedAt, passphrase); err != nil {
			return nil, err
		}
	}
	f.Name = name
	return f.encode()
}

// Key gives an agent's key. One that is sealed and not unlocked is AgentLocked.
func (s *Store) Key(name string) (*Key, error) {
	if _, err := s.Get(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	k := s.unlocked[name]
	s.mu.Unlock()
	if k != nil {
		return k, nil
	}
	f, err := readKeyFile(s.path(name))
	if err != nil {
		return nil, err
	}
	return f.key(nil)
}

// Unlock opens a sealed key, which Key then gives until Lock or the process's
// end. It takes a good part of a second, by design.
func (s *Store) Unlock(name string, passphrase []byte) error {
	if _, err := s.Get(name); err != nil {
		return err
	}
	f, err := readKeyFile(s.path(name))
	if err != nil {
		return err
	}
	if f.Sealed == nil {
		return nil
	}
	k, err := f.key(passphrase)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlocked[name] = k
	return nil
}

// Locked reports whether a sealed key has not been unlocked.
func (s *Store) Locked(info Info) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return info.Protected && s.unlocked[info.Name] == nil
}

// Lock forgets a key that Unlock opened.
func (s *Store) Lock(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unlocked, name)
}

// private refuses a directory or file that others can look into: what they may
// have read cannot be made secret again by closing it in silence.
func private(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return storageError(err)
	}
	return checkPrivate(path, fi)
}

func checkPrivate(path string, fi fs.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return conch.Errorf(conch.InvalidKey, "%s belongs to another user", path).Hint("keys must be yours alone")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		mode := "600"
		if fi.IsDir() {
			mode = "700"
		}
		return conch.Errorf(conch.InvalidKey, "%s is open to other users (mode %v)", path, fi.Mode().Perm()).
			Hint("if nobody can have read it, chmod %s %s; else make a new agent", mode, path)
	}
	return nil
}

// storageError gives what a disk says its kind.
func storageError(err error) error {
	var e *conch.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return conch.Errorf(conch.StorageFull, "%v", err).Hint("nothing was changed; free space and try again")
	}
	return conch.Errorf(conch.HomeUnusable, "%v", err).Hint("conch agent ls shows what is kept; conch doctor looks at the home")
}
