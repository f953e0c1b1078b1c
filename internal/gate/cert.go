package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// certDir is where the certificate is kept that was made here.
const certDir = "tls"

type certificate struct {
	pair        tls.Certificate
	file        string
	names       []string
	fingerprint string
}

// certificate reads the configured files, or those that were made before, or makes
// them now. It is made once: clients pin it.
func (g *Gate) certificate(host string) (certificate, error) {
	cert, key := g.o.Cert, g.o.Key
	if (cert == "") != (key == "") {
		return certificate{}, conch.Errorf(conch.InvalidConfig, "tls_cert and tls_key go together, and one is missing")
	}
	if cert == "" {
		dir := filepath.Join(g.o.Home, certDir)
		cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			if err := makeCertificate(dir, host); err != nil {
				return certificate{}, conch.Errorf(conch.StorageFull, "cannot make a certificate: %v", err)
			}
		}
	}
	if fi, err := os.Stat(key); err == nil && fi.Mode().Perm()&0o077 != 0 {
		return certificate{}, conch.Errorf(conch.InvalidConfig, "the key %s can be read by others (mode %v)", key, fi.Mode().Perm()).Hint("nothing was opened; chmod 600 %s, if nobody has read it", key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return certificate{}, conch.Errorf(conch.InvalidConfig, "the certificate %s cannot be used: %v", cert, err).Hint("nothing was opened")
	}
	c := certificate{pair: pair, file: cert, names: pair.Leaf.DNSNames}
	sum := sha256.Sum256(pair.Leaf.Raw)
	c.fingerprint = "SHA256:" + strings.ToUpper(fmt.Sprintf("%x", sum))
	if time.Now().After(pair.Leaf.NotAfter) {
		return certificate{}, conch.Errorf(conch.InvalidConfig, "the certificate %s has expired", cert).Hint("remove %s for a new one, whose fingerprint clients must be told", filepath.Dir(cert))
	}
	return c, nil
}

// makeCertificate makes dir, whole or not at all.
func makeCertificate(dir, host string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "conch on " + hostname()},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Its own issuer, and nobody else's: those who trust it trust one server.
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			t.IPAddresses = append(t.IPAddresses, n.IP)
		}
	}
	for _, name := range []string{hostname(), host} {
		if ip := net.ParseIP(name); ip != nil {
			if !ip.IsUnspecified() && !slices.ContainsFunc(t.IPAddresses, ip.Equal) {
				t.IPAddresses = append(t.IPAddresses, ip)
			}
		} else if name != "" && !slices.Contains(t.DNSNames, name) {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".tls-") // 0700
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		f, err := os.OpenFile(filepath.Join(tmp, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		err = pem.Encode(f, block)
		if err == nil {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}
