package relay

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// listening gives a home whose relay others can join.
func listening(t testing.TB, dir string) (*Relay, string) {
	t.Helper()
	r := open(t, dir)
	s, err := r.Listen(soon(t), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return r, *s.Listen
}

func inviteTo(t testing.TB, r *Relay) string {
	t.Helper()
	i, err := r.Invite(soon(t), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i.Invite
}

func TestTwoHomesShareARelay(t *testing.T) {
	dir := t.TempDir()
	host, addr := listening(t, dir)
	guestDir := t.TempDir()
	guest := open(t, guestDir)
	invite := inviteTo(t, host)
	s, err := guest.Join(soon(t), invite, nil)
	if err != nil || s.Mode != conch.RelayJoined || *s.URL != "tls://"+addr {
		t.Fatalf("%+v, %v", s, err)
	}
	alice, bob := connect(t, host, someone(t)), connect(t, guest, someone(t))
	if alice.Link().Relay != bob.Link().Relay {
		t.Errorf("one relay, two names: %v and %v", alice.Link(), bob.Link())
	}
	var toAlice, toBob reader
	consume(t, alice, toAlice.take)
	consume(t, bob, toBob.take)
	publish(t, alice, bob, "1", "hello")
	publish(t, bob, alice, "1", "hello yourself")
	big := strings.Repeat("x", MaxMessage)
	publish(t, bob, alice, "2", big)
	wantTexts(t, &toBob, "hello")
	wantTexts(t, &toAlice, "hello yourself", big)
	if err := bob.PutBundle(soon(t), 1, []byte("b")); err != nil {
		t.Error(err)
	}

	if s := host.Status(soon(t)); len(s.Homes) != 1 || len(s.Homes[0].Agents) != 1 || s.Homes[0].Agents[0] != bob.Address() || s.Mailboxes != 2 {
		t.Errorf("the host says %+v", s)
	}
	if info := guest.Info(); !info.Connected {
		t.Errorf("the guest says %+v", info)
	}

	// An agent that is made later needs no new invitation.
	connect(t, guest, someone(t))

	// Nobody else can use the invitation; who has used it can do so again.
	third := open(t, t.TempDir())
	_, err = third.Join(soon(t), invite, nil)
	wantKind(t, err, conch.InvalidInvite)
	if s := third.Status(soon(t)); s.Mode != conch.RelayEmbedded {
		t.Errorf("a refused invitation changed the home: %+v", s)
	}
	if _, err := guest.Join(soon(t), invite, nil); err != nil {
		t.Errorf("the same home again: %v", err)
	}

	// The host begins anew: everybody comes back by themselves.
	alice.Close()
	host.Close()
	await(t, bob, func(l Link) bool { return !l.Connected })
	_, err = bob.Publish(soon(t), bob.Address(), "x", nil, 0)
	wantKind(t, err, conch.RelayUnreachable)
	host = open(t, dir)
	if err := host.Start(soon(t)); err != nil {
		t.Fatal(err)
	}
	await(t, bob, func(l Link) bool { return l.Connected && l.Bundle == 1 })
	publish(t, bob, bob, "3", "after")
	wantTexts(t, &toBob, "hello", "after")

	// Shut out, it stays out.
	if _, err := host.Remove(soon(t), host.Status(soon(t)).Homes[0].ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := bob.Publish(soon(t), bob.Address(), "x", nil, 0)
		if l := bob.Link(); l.Connected || l.Err == nil || err == nil {
			return os.ErrInvalid
		}
		return nil
	})
	await(t, bob, func(l Link) bool { return errors.Is(l.Err, conch.RelayRefused) })

	// And it can go back to its own.
	if s, err := guest.Leave(soon(t)); err != nil || s.Mode != conch.RelayEmbedded {
		t.Errorf("%+v, %v", s, err)
	}
	await(t, bob, func(l Link) bool { return l.Connected && l.Bundle == 0 })
	_, err = guest.Leave(soon(t))
	wantKind(t, err, conch.InvalidRequest)
}

func TestInvitationsThatAreRefused(t *testing.T) {
	host, addr := listening(t, t.TempDir())
	guest := open(t, t.TempDir())

	i, err := host.Invite(soon(t), time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if time.Now().Before(i.ExpiresAt) {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
	_, err = guest.Join(soon(t), i.Invite, nil)
	wantKind(t, err, conch.InvalidInvite)
	if !strings.Contains(err.Error(), "expired") {
		t.Errorf("the error is %v", err)
	}

	// A relay with another certificate is told nothing.
	good := inviteTo(t, host)
	other, otherAddr := listening(t, t.TempDir())
	parsed, err := parseInvite(good)
	if err != nil {
		t.Fatal(err)
	}
	parsed.addresses = []string{otherAddr}
	_, err = guest.Join(soon(t), parsed.String(), nil)
	wantKind(t, err, conch.RelayRefused)
	if n := len(other.Status(soon(t)).Homes); n != 0 {
		t.Errorf("%d homes were let in", n)
	}
	// A secret that was made up.
	parsed.addresses, parsed.secret = []string{addr}, newSecret()
	_, err = guest.Join(soon(t), parsed.String(), nil)
	wantKind(t, err, conch.InvalidInvite)

	// Nobody there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	parsed.addresses = []string{l.Addr().String()}
	l.Close()
	_, err = guest.Join(soon(t), parsed.String(), nil)
	wantKind(t, err, conch.RelayUnreachable)

	// One that lost a character, and anything else.
	for _, s := range []string{good[:len(good)-1], good + "A", "conch-invite-", "", "hello", strings.ToUpper(good)} {
		_, err = guest.Join(soon(t), s, nil)
		wantKind(t, err, conch.InvalidInvite)
		if strings.Contains(err.Error(), "conch-invite-") {
			t.Errorf("the error quotes the invitation: %v", err)
		}
	}
	// After all of this the good one still works, once.
	if _, err := guest.Join(soon(t), good, nil); err != nil {
		t.Fatal(err)
	}
	_, err = guest.Listen(soon(t), "127.0.0.1:0")
	wantKind(t, err, conch.InvalidRequest)
	_, err = host.Join(soon(t), good, nil)
	wantKind(t, err, conch.InvalidRequest)
}

func TestListenOffAndOn(t *testing.T) {
	host, addr := listening(t, t.TempDir())
	alice := connect(t, host, someone(t))
	s, err := host.Listen(soon(t), "")
	if err != nil || s.Listen != nil || host.Active() {
		t.Fatalf("%+v, %v", s, err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("it listens still")
	}
	_, err = host.Invite(soon(t), 0, nil)
	wantKind(t, err, conch.InvalidRequest)
	await(t, alice, func(l Link) bool { return l.Connected })
	if s, err := host.Listen(soon(t), addr); err != nil || *s.Listen != addr {
		t.Errorf("%+v, %v", s, err)
	}
	await(t, alice, func(l Link) bool { return l.Connected })
	_, err = host.Listen(soon(t), "nonsense")
	wantKind(t, err, conch.InvalidRequest)
}

// TestOnlyTLS13 looks at the port as a stranger does.
func TestOnlyTLS13(t *testing.T) {
	_, addr := listening(t, t.TempDir())
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	if err == nil {
		c.Close()
		t.Error("TLS 1.2 is taken")
	}
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	plain.SetDeadline(time.Now().Add(patience))
	plain.Write([]byte("CONNECT {}\r\nPING\r\n"))
	b := make([]byte, 512)
	for {
		n, err := plain.Read(b)
		if strings.Contains(string(b[:n]), "INFO") || strings.Contains(string(b[:n]), "PONG") {
			t.Fatalf("it speaks without TLS: %q", b[:n])
		}
		if err != nil {
			break
		}
	}
}

// TestSecretsOnDisk: files are the owner's, and an invitation's secret is not
// among what the host keeps.
func TestSecretsOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "relay")
	host, _ := listening(t, dir)
	i, err := parseInvite(inviteTo(t, host))
	if err != nil {
		t.Fatal(err)
	}
	alice := connect(t, host, someone(t))
	publish(t, alice, alice, "1", "sealed bytes")
	secrets := []string{string(i.secret), base64.StdEncoding.EncodeToString(i.secret), base64.RawURLEncoding.EncodeToString(i.secret)}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if path == dir && fi.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v", path, fi.Mode())
		}
		if e.IsDir() {
			return nil
		}
		if filepath.Dir(path) == dir && fi.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v", path, fi.Mode())
		}
		b, err := os.ReadFile(path)
		for _, s := range secrets {
			if strings.Contains(string(b), s) {
				t.Errorf("%s holds the secret of an invitation", path)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func FuzzInvite(f *testing.F) {
	good := invitation{newSecret(), strings.Repeat("ab", 32), time.Unix(1800000000, 0), []string{"192.0.2.1:4222", "[2001:db8::1]:4222"}}
	f.Add(good.String())
	f.Add("conch-invite-AQ")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := parseInvite(s)
		if err != nil {
			return
		}
		if again, err := parseInvite(i.String()); err != nil || again.String() != i.String() {
			t.Errorf("%q is read as %+v, which is not read again: %v", s, i, err)
		}
	})
}
