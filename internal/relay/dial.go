package relay

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/conchsh/conch"
)

// dial connects one agent, starting and enrolling what must be, and says what
// it is connected to.
func (r *Relay) dial(ctx context.Context, t *target, id Identity) (*nats.Conn, string, error) {
	options := []nats.Option{
		nats.Name("conch agent"), nats.NoReconnect(), nats.CustomInboxPrefix(inboxPrefix(id.Address())),
		nats.Timeout(shakeLimit), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			r.warn("agent", "address", id.Address(), "err", err)
		}),
	}
	switch {
	case t.cfg.Cluster != nil:
		if _, err := r.membership(ctx, t); err != nil {
			return nil, "", err
		}
		nc, err := t.cfg.Cluster.dial(options...)
		return nc, "", err
	case t.cfg.Joined != nil:
		j := t.cfg.Joined
		kp, proof, err := login(id, j.Fingerprint)
		if err != nil {
			return nil, "", err
		}
		r.mu.Lock()
		proved := r.proved[id.Address()]
		r.mu.Unlock()
		if !proved {
			m, err := r.membership(ctx, t)
			if err == nil {
				err = m.enrol(ctx, proof)
			}
			if err != nil {
				return nil, "", err
			}
		}
		nc, err := j.dial(append(options, nats.Nkey(proof.Login, kp.Sign))...)
		r.mu.Lock()
		r.proved[id.Address()] = err == nil // a relay that refuses it may have forgotten it
		r.mu.Unlock()
		return nc, "", err
	}
	n, err := r.embedded(ctx, t)
	if err != nil {
		return nil, "", err
	}
	kp, proof, err := login(id, n.cert.fingerprint)
	if err != nil {
		return nil, "", err
	}
	n.adopt(proof.Address, proof.Login)
	nc, err := nats.Connect("", append(options, nats.InProcessServer(n.srv), nats.Nkey(proof.Login, kp.Sign))...)
	return nc, n.cert.fingerprint, dialError(err)
}

// embedded gives the home's own relay, running.
func (r *Relay) embedded(ctx context.Context, t *target) (*nest, error) {
	r.nesting.Lock()
	defer r.nesting.Unlock()
	r.mu.Lock()
	n, closed, stale := r.nest, r.closed, r.now != t
	r.mu.Unlock()
	if closed || stale {
		return nil, unreachable("the home changed its relay")
	}
	if n != nil {
		select {
		case <-n.dead:
			r.stopAll()
		default:
			return n, nil
		}
	}
	n, err := startNest(ctx, r.o)
	if err == nil && t.cfg.Listen != "" {
		if err = n.listen(t.cfg.Listen); err != nil {
			n.close()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble = err; err != nil {
		return nil, err
	}
	r.nest = n
	r.wg.Go(func() { r.mind(n, t) }) // ends when the nest was stopped, or another took its place
	return n, nil
}

// mind starts a relay again whose server gave up, while it is still the one.
func (r *Relay) mind(n *nest, t *target) {
	<-n.dead
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if _, err := r.embedded(r.ctx, t); err == nil || r.ctx.Err() != nil || r.target() != t {
			return
		}
		select {
		case <-r.ctx.Done():
		case <-t.changed:
		case <-time.After(pause):
		}
	}
}

// A member is this home's own connection to a relay that is not its own. It
// enrols the home's agents at another home's relay, and carries a hub in a
// cluster.
type member struct {
	nc  *nats.Conn
	key string // what the other home's relay knows this home by
	hub *hub   // nil: there is one, or the credentials do not allow it
}

func (m *member) close() {
	if m.hub != nil {
		m.hub.close()
	}
	m.nc.Close()
}

// membership gives the home's connection to the relay that it has joined.
func (r *Relay) membership(ctx context.Context, t *target) (*member, error) {
	r.nesting.Lock()
	defer r.nesting.Unlock()
	r.mu.Lock()
	m, closed, stale := r.member, r.closed, r.now != t
	r.mu.Unlock()
	if closed || stale {
		return nil, unreachable("the home changed its relay")
	}
	if m != nil && !m.nc.IsClosed() {
		return m, nil
	}
	r.stopAll() // one that was refused once it was connected
	m, err := r.newMember(ctx, t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble = err; err != nil {
		return nil, err
	}
	r.member = m
	return m, nil
}

func (r *Relay) newMember(ctx context.Context, t *target) (*member, error) {
	options := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
	}
	if j := t.cfg.Joined; j != nil {
		nc, key, err := j.home(nil, append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { r.warn("home", "err", err) }))...)
		return &member{nc: nc, key: key}, err
	}
	c := t.cfg.Cluster
	denied := make(chan struct{}, 1)
	nc, err := c.dial(append(options, nats.Name("conch hub"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				select {
				case denied <- struct{}{}:
				default:
				}
			}
			r.warn("hub", "err", err)
		}))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused bool
	watching := make(chan struct{})
	go func() { // ends with ctx
		defer close(watching)
		select {
		case <-denied:
			refused = true
			cancel()
		case <-ctx.Done():
		}
	}()
	h, err := newHub(ctx, nc, nc, c.Replicas, r.o)
	cancel()
	<-watching
	switch {
	case err == nil && refused:
		h.close()
		h = nil
	case err != nil && !refused:
		nc.Close()
		return nil, dialError(err)
	}
	if refused {
		r.warn("these credentials do not allow to be a hub of the cluster; others' hubs have to serve")
		return &member{nc: nc}, nil
	}
	h.wg.Go(h.roam) // ends with the hub
	return &member{nc: nc, hub: h}, nil
}

func (c *cluster) dial(options ...nats.Option) (*nats.Conn, error) {
	if c.Creds != "" {
		options = append(options, nats.UserCredentialBytes([]byte(c.Creds)))
	}
	nc, err := nats.Connect(strings.Join(c.URLs, ","), append(options, nats.Timeout(shakeLimit))...)
	return nc, dialError(err)
}

// dial connects to a relay that an invitation told of, and to no other.
func (j *joined) dial(options ...nats.Option) (*nats.Conn, error) {
	urls := make([]string, len(j.Addresses))
	for i, a := range j.Addresses {
		urls[i] = "nats://" + a
	}
	pin := &pinned{fingerprint: j.Fingerprint}
	nc, err := nats.Connect(strings.Join(urls, ","), append(options, nats.SetCustomDialer(pin), nats.Timeout(shakeLimit), nats.IgnoreDiscoveredServers())...)
	if pin.wrong {
		return nil, conch.Errorf(conch.RelayRefused, "what answers at %s is not the relay that was joined: its certificate is another", strings.Join(j.Addresses, ", ")).
			Hint("nothing was told to it; if the relay was made anew, ask for a new invitation")
	}
	return nc, dialError(err)
}

// pinned dials by TLS a server with one certificate.
type pinned struct {
	fingerprint string
	wrong       bool
}

func (p *pinned) Dial(network, address string) (net.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: shakeLimit},
		Config: &tls.Config{
			MinVersion: tls.VersionTLS13,
			// Names and authorities say nothing here; the certificate itself does.
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 || fingerprint(s.PeerCertificates[0].Raw) != p.fingerprint {
					p.wrong = true
					return errors.New("another certificate")
				}
				return nil
			},
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), shakeLimit)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

func dialError(err error) error {
	var e *conch.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return conch.Errorf(conch.RelayRefused, "the relay does not let this home in").
			Hint("an invitation works once and for a time; ask for a new one, or for other credentials")
	}
	return unreachable("the relay cannot be reached: " + err.Error())
}

// home is the connection of this home itself at a joined relay.
func (j *joined) home(secret []byte, options ...nats.Option) (*nats.Conn, string, error) {
	kp, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, j.Seed)
	if err != nil {
		return nil, "", err
	}
	public, err := kp.PublicKey()
	if err != nil {
		return nil, "", err
	}
	options = append(options, nats.Name("conch home"), nats.Nkey(public, kp.Sign), nats.CustomInboxPrefix(inboxPrefix(public)))
	if secret != nil {
		options = append(options, nats.Token(base64.RawURLEncoding.EncodeToString(secret)))
	}
	nc, err := j.dial(options...)
	return nc, public, err
}

// enrol makes an agent of this home known to the relay.
func (m *member) enrol(ctx context.Context, proof enrolRequest) error {
	if !m.nc.IsConnected() { // it would be kept back, and waited for
		return unreachable("the relay is not connected")
	}
	_, err := call(ctx, m.nc, homeSubject+m.key+"."+verbEnrol, proof, nil, nil)
	return err
}
