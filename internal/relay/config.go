package relay

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conchsh/conch"
)

const (
	configFile   = "relay.json"
	guestsFile   = "guests.json"
	identityFile = "identity.pem"
	fileVersion  = 1
	temporary    = ".relay-"
)

// A config is relay.json: which relay this home uses. It holds secrets.
type config struct {
	Version int      `json:"version"`
	Listen  string   `json:"listen,omitempty"`
	Joined  *joined  `json:"joined,omitempty"`
	Cluster *cluster `json:"cluster,omitempty"`
}

// joined is another home's relay.
type joined struct {
	Addresses   []string `json:"addresses"`
	Fingerprint string   `json:"fingerprint"`
	// Seed is the key by which the relay knows this home.
	Seed []byte `json:"seed"`
}

// cluster is NATS servers of somebody's own.
type cluster struct {
	URLs     []string `json:"urls"`
	Creds    string   `json:"creds,omitempty"`
	Replicas int      `json:"replicas"`
}

// guests is guests.json: whom the home's own relay lets in.
type guests struct {
	Version int      `json:"version"`
	Invites []invite `json:"invites,omitempty"`
	Homes   []guest  `json:"homes,omitempty"`
}

// An invite is what is kept of an invitation: not its secret.
type invite struct {
	Hash      []byte    `json:"hash"`
	ExpiresAt time.Time `json:"expires_at"`
}

// A guest is another home, and the agents that it has shown to be its own.
type guest struct {
	Key      string            `json:"key"`
	JoinedAt time.Time         `json:"joined_at"`
	Agents   map[string]string `json:"agents"` // address → login key
}

// readFile reads one of ours. That it is not there leaves v as it is.
func readFile(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storageError(err)
	}
	// The version first: a newer file may have more fields.
	var head struct{ Version int }
	if json.Unmarshal(b, &head) != nil {
		return damaged(dir, name)
	}
	if head.Version != fileVersion {
		return conch.Errorf(conch.VersionMismatch, "%s has version %d, this conch reads %d", filepath.Join(dir, name), head.Version, fileVersion).
			Hint("use the conch that wrote it, or a newer one")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(v) != nil {
		return damaged(dir, name)
	}
	return nil
}

// damaged never quotes the file: it holds secrets.
func damaged(dir, name string) error {
	return conch.Errorf(conch.Damaged, "%s is damaged", filepath.Join(dir, name)).
		Hint("restore it from a backup; without it the home has its own relay and lets nobody in")
}

// writeFile replaces one of ours, whole and on the disk.
func writeFile(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeBytes(dir, name, append(b, '\n'))
}

func writeBytes(dir, name string, b []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return storageError(err)
	}
	f, err := os.CreateTemp(dir, temporary) // mode 0600
	if err != nil {
		return storageError(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return storageError(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return storageError(err)
	}
	defer d.Close()
	return storageError(d.Sync())
}

// sweep removes files that were being written when their writer died.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, temporary+"*"))
	for _, path := range left {
		os.Remove(path)
	}
}

func storageError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return conch.Errorf(conch.StorageFull, "%v", err).Hint("nothing was changed; free space and try again").Retry()
	}
	return conch.Errorf(conch.HomeUnusable, "%v", err).Hint("conch doctor looks at the home")
}

// A certificate is who the home's relay is to others.
type certificate struct {
	tls         tls.Certificate
	fingerprint string
}

// fingerprint is what a certificate is known by: the SHA-256 of its whole form.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// identity reads the relay's certificate, and makes it the first time. Nobody
// checks its names or dates: those who join know its fingerprint.
func identity(dir string) (*certificate, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = makeIdentity(); err == nil {
			err = writeBytes(dir, identityFile, b)
		}
	}
	if err != nil {
		return nil, storageError(err)
	}
	c, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, conch.Errorf(conch.Damaged, "%s is damaged", filepath.Join(dir, identityFile)).
			Hint("restore it from a backup; if it is removed the relay gets another identity, and homes that joined need a new invitation")
	}
	return &certificate{tls: c, fingerprint: fingerprint(c.Certificate[0])}, nil
}

func makeIdentity() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "conch relay"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
