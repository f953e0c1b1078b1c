package relay

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// An invitation is where a relay is, what it is known by, and a secret that lets
// one home in. As text it is invitePrefix and base64 of
//
//	1 version, 16 secret, 32 fingerprint, 8 expiry (Unix seconds), addresses with commas, 4 check
//
// where the check finds what was mistyped or cut off; it proves nothing.
type invitation struct {
	secret      []byte
	fingerprint string
	expires     time.Time
	addresses   []string
}

const (
	invitePrefix  = "conch-invite-"
	inviteVersion = 1
	secretSize    = 16
	// maxInvite is far above what any has; it is read from outside.
	maxInvite = 2048
	// InviteTime is how long an invitation is good unless it is said, and
	// MaxInviteTime how long at most.
	InviteTime    = time.Hour
	MaxInviteTime = 30 * 24 * time.Hour
	// maxInvites bounds those that are open at once.
	maxInvites = 100
)

func newSecret() []byte {
	b := make([]byte, secretSize)
	rand.Read(b)
	return b
}

// secretHash is what is kept of a secret. It is random, so a plain hash hides it.
func secretHash(secret []byte) []byte {
	sum := sha256.Sum256(append([]byte("conch relay invite 1\n"), secret...))
	return sum[:]
}

func (i *invitation) String() string {
	b := []byte{inviteVersion}
	b = append(b, i.secret...)
	fp, _ := hex.DecodeString(i.fingerprint)
	b = append(b, fp...)
	b = binary.BigEndian.AppendUint64(b, uint64(i.expires.Unix()))
	b = append(b, strings.Join(i.addresses, ",")...)
	sum := sha256.Sum256(b)
	return invitePrefix + base64.RawURLEncoding.EncodeToString(append(b, sum[:4]...))
}

// parseInvite reads an invitation. Errors never quote it.
func parseInvite(s string) (*invitation, error) {
	bad := conch.Errorf(conch.InvalidInvite, "this is no whole invitation").
		Hint("conch relay invite, on the machine whose relay it is, makes one; it is one line that begins with %s", invitePrefix)
	enc, ok := strings.CutPrefix(strings.TrimSpace(s), invitePrefix)
	if !ok || len(enc) > maxInvite {
		return nil, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(enc)
	const head = 1 + secretSize + sha256.Size + 8
	if err != nil || len(b) < head+4 {
		return nil, bad
	}
	b, check := b[:len(b)-4], b[len(b)-4:]
	if sum := sha256.Sum256(b); string(sum[:4]) != string(check) {
		return nil, bad
	}
	if b[0] != inviteVersion {
		return nil, conch.Errorf(conch.InvalidInvite, "the invitation has version %d, this conch reads %d", b[0], inviteVersion).
			Hint("use a conch as new as the one that made it")
	}
	i := &invitation{
		secret:      b[1 : 1+secretSize],
		fingerprint: hex.EncodeToString(b[1+secretSize : 1+secretSize+sha256.Size]),
		expires:     time.Unix(int64(binary.BigEndian.Uint64(b[head-8:head])), 0).UTC(),
		addresses:   strings.Split(string(b[head:]), ","),
	}
	for _, a := range i.addresses {
		if checkDial(a) != nil {
			return nil, bad
		}
	}
	return i, nil
}

// checkDial refuses what cannot be dialled.
func checkDial(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" || port == "0" || strings.ContainsAny(addr, ", \t\r\n/@") {
		return conch.Errorf(conch.InvalidRequest, "%q is no address to dial", addr).Hint("it is HOST:PORT")
	}
	return nil
}

// reachable gives the addresses under which a listener may be found: its own,
// or those of this machine if it listens on all.
func reachable(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return []string{addr}
	}
	const most = 4
	var list []string
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if ip := p.Addr(); err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && len(list) < most {
			list = append(list, net.JoinHostPort(ip.String(), port))
		}
	}
	return list
}
