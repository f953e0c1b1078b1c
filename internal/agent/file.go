package agent

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

const (
	keyFormat  = "conch agent key"
	keyVersion = 1
	maxKeyFile = 16 << 10
	// maxPassphrase is far above what anybody types.
	maxPassphrase = 1024
)

// A keyFile is a key as it is stored and passed on: in the clear, or sealed.
type keyFile struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Name      string    `json:"name"`
	Address   string    `json:"address"`
	CreatedAt time.Time `json:"created_at"`
	Seed      []byte    `json:"seed,omitempty"`
	Sealed    *sealed   `json:"sealed,omitempty"`
}

// sealed is a seed behind a passphrase: Argon2id makes the key,
// XChaCha20-Poly1305 seals, and what the seed belongs to is authenticated with it.
type sealed struct {
	KDF       string `json:"kdf"`
	Time      uint32 `json:"time"`
	MemoryKiB uint32 `json:"memory_kib"`
	Threads   uint8  `json:"threads"`
	Salt      []byte `json:"salt"`
	Cipher    string `json:"cipher"`
	Nonce     []byte `json:"nonce"`
	Data      []byte `json:"data"`
}

const (
	kdfName    = "argon2id"
	cipherName = "xchacha20-poly1305"
	// The second of RFC 9106's two recommendations, with one thread, since the
	// machines this runs on share their cores.
	kdfTime, kdfMemory, kdfThreads = 3, 64 << 10, 1
	// What a file may ask for: it comes from elsewhere, and opening it must
	// not cost the daemon its memory.
	maxTime, maxMemory, maxThreads = 16, 256 << 10, 16
)

// file makes the stored form of a key.
func (k *Key) file(made time.Time, passphrase []byte) (*keyFile, error) {
	f := &keyFile{Format: keyFormat, Version: keyVersion, Address: k.address, CreatedAt: made}
	if len(passphrase) == 0 {
		f.Seed = k.private.Seed()
		return f, nil
	}
	if len(passphrase) > maxPassphrase {
		return nil, conch.Errorf(conch.TooLarge, "the passphrase has more than %d bytes", maxPassphrase)
	}
	s := &sealed{
		KDF: kdfName, Time: kdfTime, MemoryKiB: kdfMemory, Threads: kdfThreads, Cipher: cipherName,
		Salt: make([]byte, 16), Nonce: make([]byte, chacha20poly1305.NonceSizeX),
	}
	rand.Read(s.Salt)
	rand.Read(s.Nonce)
	f.Sealed = s
	aead, err := chacha20poly1305.NewX(s.stretch(passphrase))
	if err != nil {
		return nil, err
	}
	s.Data = aead.Seal(nil, s.Nonce, k.private.Seed(), f.bound())
	return f, nil
}

// stretching lets one passphrase at a time take the memory that it needs.
var stretching sync.Mutex

func (s *sealed) stretch(passphrase []byte) []byte {
	stretching.Lock()
	defer stretching.Unlock()
	// Given back at once: the daemon it runs in is small.
	defer debug.FreeOSMemory()
	return argon2.IDKey(passphrase, s.Salt, s.Time, s.MemoryKiB, s.Threads, chacha20poly1305.KeySize)
}

// bound is what a sealed seed is authenticated with. The name is not in it: an
// imported key may have another.
func (f *keyFile) bound() []byte {
	return fmt.Appendf(nil, "%s %d %s %s %d %d %d", f.Format, f.Version, f.Address, f.Sealed.KDF, f.Sealed.Time, f.Sealed.MemoryKiB, f.Sealed.Threads)
}

// key gives the secret itself.
func (f *keyFile) key(passphrase []byte) (*Key, error) {
	if f.Sealed == nil {
		return keyFromSeed(f.Seed), nil // parsing compared it with the address
	}
	if len(passphrase) == 0 {
		return nil, conch.Errorf(conch.AgentLocked, "the key of agent %s is sealed with a passphrase", f.Name).
			Hint("conch agent unlock %s opens it until the daemon leaves", f.Name)
	}
	aead, err := chacha20poly1305.NewX(f.Sealed.stretch(passphrase))
	if err != nil {
		return nil, err
	}
	seed, err := aead.Open(nil, f.Sealed.Nonce, f.Sealed.Data, f.bound())
	if err == nil && len(seed) == ed25519.SeedSize {
		if k := keyFromSeed(seed); k.address == f.Address {
			return k, nil
		}
	}
	return nil, conch.Errorf(conch.WrongPassphrase, "this passphrase does not open the key of agent %s", f.Name).
		Hint("or the file was changed; the two cannot be told apart")
}

func (f *keyFile) encode() ([]byte, error) {
	b, err := json.MarshalIndent(f, "", "  ")
	return append(b, '\n'), err
}

// parseKeyFile reads a key file from wherever. Errors name what is wrong with
// it and never quote it: it may hold a secret.
func parseKeyFile(data []byte) (*keyFile, error) {
	bad := func(what string) error {
		return conch.Errorf(conch.InvalidKey, "not a usable key file: %s", what).
			Hint("conch agent export writes such files; nothing was changed")
	}
	if len(data) > maxKeyFile {
		return nil, bad(fmt.Sprintf("it has more than %d bytes", maxKeyFile))
	}
	// What it is, before how it is written: a newer file may have more fields.
	var head struct {
		Format  string
		Version int
	}
	if json.Unmarshal(data, &head) != nil || head.Format != keyFormat {
		return nil, bad("it is damaged, or something else")
	}
	if head.Version != keyVersion {
		return nil, conch.Errorf(conch.InvalidKey, "the key file has version %d, this conch reads %d", head.Version, keyVersion).
			Hint("use the conch that wrote it, or a newer one")
	}
	var f keyFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if d.Decode(&f) != nil {
		return nil, bad("it is damaged")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, bad("something follows the key")
	}
	if conch.CheckAgent(f.Name) != nil {
		return nil, bad("its name is none")
	}
	if _, err := ParseAddress(f.Address); err != nil {
		return nil, bad("its address is none")
	}
	switch {
	case (f.Seed == nil) == (f.Sealed == nil):
		return nil, bad("it must hold one key")
	case f.Sealed != nil:
		if what := f.Sealed.check(); what != "" {
			return nil, bad(what)
		}
	case len(f.Seed) != ed25519.SeedSize || keyFromSeed(f.Seed).address != f.Address:
		return nil, bad("its key and its address do not belong together")
	}
	return &f, nil
}

// check says what is wrong with the outside of a sealed seed.
func (s *sealed) check() string {
	switch {
	case s.KDF != kdfName || s.Cipher != cipherName:
		return "it is sealed in a way this conch does not know"
	case s.Time < 1 || s.Time > maxTime || s.MemoryKiB < 8*uint32(s.Threads) || s.MemoryKiB > maxMemory || s.Threads < 1 || s.Threads > maxThreads:
		return fmt.Sprintf("opening it would take more than %d rounds, %d MiB or %d threads, or too little to be safe", maxTime, maxMemory>>10, maxThreads)
	case len(s.Salt) < 8 || len(s.Salt) > 64 || len(s.Nonce) != chacha20poly1305.NonceSizeX || len(s.Data) != ed25519.SeedSize+chacha20poly1305.Overhead:
		return "its seal is damaged"
	}
	return ""
}

// readKeyFile reads a key of this home. It must be a plain file of ours that
// nobody else can read, and hold the key of its name.
func readKeyFile(path string) (*keyFile, error) {
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	// Neither a link to elsewhere nor a FIFO that nobody writes.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, conch.Errorf(conch.InvalidKey, "cannot read the key: %v", err).Hint("keys are plain files, readable by their owner")
	}
	defer file.Close()
	fi, err := file.Stat()
	if err != nil {
		return nil, storageError(err)
	}
	if !fi.Mode().IsRegular() {
		return nil, conch.Errorf(conch.InvalidKey, "%s is not a file", path).Hint("keys are plain files")
	}
	if err := checkPrivate(path, fi); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, storageError(err)
	}
	f, err := parseKeyFile(data)
	if err != nil {
		e := conch.AsError(err)
		return nil, conch.Errorf(e.Kind, "%s: %s", path, e.Message).Hint("restore it from a backup or an export")
	}
	if want := strings.TrimSuffix(filepath.Base(path), keyExt); f.Name != want {
		return nil, conch.Errorf(conch.InvalidKey, "%s holds the key of agent %s", path, f.Name).
			Hint("conch agent import --name %s makes a copy under that name", want)
	}
	return f, nil
}

// How writeFile treats a file that is there.
type mode int

const (
	create  mode = iota // fs.ErrExist
	replace             // the old one or the new one, never neither
)

// temporary begins the names of files that are being written.
const temporary = ".agent-"

// writeFile puts a whole file under a name, on the disk when it returns.
func writeFile(path string, data []byte, m mode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, temporary) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if m == replace {
		fault.Point("agent.assign-written")
		err = os.Rename(f.Name(), path)
	} else {
		fault.Point("agent.written")
		err = os.Link(f.Name(), path) // unlike a rename it takes nobody's place
		if err == nil {
			fault.Point("agent.named")
			err = os.Remove(f.Name())
		}
	}
	if err != nil {
		return err
	}
	err = syncDir(dir)
	if err != nil && m == create {
		os.Remove(path) // whoever is told of a failure finds no agent
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// sweep removes files that were being written when their writer died.
func sweep(dir string) error {
	ents, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range ents {
		if strings.HasPrefix(e.Name(), temporary) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
