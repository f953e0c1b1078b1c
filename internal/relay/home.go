package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/conchsh/conch"
)

// Options say whose relay it is.
type Options struct {
	// Dir is $CONCH_HOME/relay. It is made when something is kept there.
	Dir string
	Log *slog.Logger // nil: nothing is logged

	limits *limits // of tests
}

// A Relay is a home's way to others.
//
// Lock order: changing, then nesting, then mu, then those of a nest or an Agent.
// Nothing blocks under mu.
type Relay struct {
	o    Options
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	changing sync.Mutex // held while the configuration is changed
	nesting  sync.Mutex // held while a server or a hub is started or stopped

	mu       sync.Mutex
	cfg      config
	loadErr  error
	closed   bool
	now      *target
	nest     *nest
	member   *member
	trouble  error // why the home's own relay is not running, or does not listen
	agents   map[string]*Agent
	onChange func()
	proved   map[string]bool // agents that were enrolled at the joined relay, in this process
}

// A target is what agents are to be connected to, until changed is closed.
type target struct {
	cfg     config
	changed chan struct{}
}

func (t *target) name() string {
	switch {
	case t.cfg.Joined != nil:
		return t.cfg.Joined.Fingerprint
	case t.cfg.Cluster != nil:
		return strings.Join(t.cfg.Cluster.URLs, ",")
	}
	return ""
}

// New makes a Relay. It starts nothing. There is one for a directory at a time.
func New(o Options) *Relay {
	r := &Relay{o: o, agents: map[string]*Agent{}, proved: map[string]bool{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.cfg.Version = fileVersion
	sweep(o.Dir)
	r.loadErr = readFile(o.Dir, configFile, &r.cfg)
	r.now = &target{cfg: r.cfg, changed: make(chan struct{})}
	return r
}

func (r *Relay) warn(msg string, args ...any) {
	if r.o.Log != nil {
		r.o.Log.Warn("relay: "+msg, args...)
	}
}

// Start begins what is configured: the home's relay listens, or the one that was
// joined is connected to, and a cluster gets this home's hub. A home with nothing configured starts nothing. An
// error is also in Status, and it is tried again until ctx ends.
func (r *Relay) Start(ctx context.Context) error {
	if r.loadErr != nil {
		return r.loadErr
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		t := r.target()
		err := r.begin(ctx, t)
		if err == nil {
			return nil
		}
		r.warn("start", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-t.changed:
			return nil
		case <-time.After(pause):
		}
	}
}

func (r *Relay) begin(ctx context.Context, t *target) error {
	switch {
	case t.cfg.Cluster != nil || t.cfg.Joined != nil:
		_, err := r.membership(ctx, t)
		return err
	case t.cfg.Listen != "":
		_, err := r.embedded(ctx, t)
		return err
	}
	return nil
}

// Close ends every connection and the server, and waits.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	var list []*Agent
	for _, a := range r.agents {
		list = append(list, a)
	}
	r.mu.Unlock()
	for _, a := range list {
		a.Close()
	}
	r.stop()
	r.nesting.Lock()
	r.stopAll()
	r.nesting.Unlock()
	r.wg.Wait()
}

// stopAll is called under nesting.
func (r *Relay) stopAll() {
	r.mu.Lock()
	n, m := r.nest, r.member
	r.nest, r.member = nil, nil
	r.mu.Unlock()
	if n != nil {
		n.close()
	}
	if m != nil {
		m.close()
	}
}

// Active reports whether anybody but this home can be reached: it listens, or has
// joined another relay. While it is not there is nothing to connect to but
// oneself.
func (r *Relay) Active() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Listen != "" || r.cfg.Joined != nil || r.cfg.Cluster != nil
}

// OnChange has f called whenever Active may have changed. f must not block.
func (r *Relay) OnChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = f
}

// Connect gives the agent of an identity. It returns at once; the connection is
// made in the background, and made again for ever. observe, which may be nil,
// is told of every change of the link and must not block. A second call for an
// address that is connected is conch.AlreadyRunning.
func (r *Relay) Connect(id Identity, observe func(Link)) (*Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.loadErr != nil:
		return nil, r.loadErr
	case r.closed:
		return nil, conch.Errorf(conch.NotRunning, "the relay was closed")
	case r.agents[id.Address()] != nil:
		return nil, conch.Errorf(conch.AlreadyRunning, "the agent %s is connected", id.Address())
	}
	a := &Agent{relay: r, id: id, observe: observe, done: make(chan struct{}), up: make(chan struct{}), link: Link{Relay: r.now.name()}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	r.agents[id.Address()] = a
	go a.run() // ends with Close
	return a, nil
}

func (r *Relay) forget(a *Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[a.Address()] == a {
		delete(r.agents, a.Address())
	}
}

func (r *Relay) target() *target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// use makes a configuration the home's, on disk and for every agent.
func (r *Relay) use(next config) error {
	if err := writeFile(r.o.Dir, configFile, next); err != nil {
		return err
	}
	r.nesting.Lock()
	r.mu.Lock()
	r.cfg, r.loadErr, r.trouble = next, nil, nil
	old := r.now
	r.now = &target{cfg: next, changed: make(chan struct{})}
	r.proved = map[string]bool{}
	change := r.onChange
	r.mu.Unlock()
	close(old.changed)
	r.stopAll()
	r.nesting.Unlock()
	if change != nil {
		change()
	}
	return nil
}

// Listen opens the home's own relay to others at an address (host:port, port 0:
// any). Empty: nobody any more; those who joined stay known.
func (r *Relay) Listen(ctx context.Context, addr string) (conch.RelayStatus, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	next, err := r.cfg, r.loadErr
	r.mu.Unlock()
	if err != nil {
		return conch.RelayStatus{}, err
	}
	if next.Joined != nil || next.Cluster != nil {
		return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "this home uses another relay, and can open only its own").
			Hint("conch relay leave goes back to its own")
	}
	if addr != "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "%q is no address to listen on", addr).Hint("it is HOST:PORT, as in 192.0.2.7:4222 or 0.0.0.0:4222")
		}
		// The port is taken now, and kept in the configuration: invitations name it.
		l, err := net.Listen("tcp", addr)
		if err != nil && addr != next.Listen {
			return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "cannot listen on %s: %v", addr, err).
				Hint("choose an address of this machine and a free port; port 0 takes any")
		}
		if err == nil {
			_, port, _ := net.SplitHostPort(l.Addr().String())
			addr = net.JoinHostPort(host, port)
			l.Close()
		}
	}
	if addr != next.Listen {
		next.Listen = addr
		if err := r.use(next); err != nil {
			return conch.RelayStatus{}, err
		}
	}
	if addr != "" {
		if _, err := r.embedded(ctx, r.target()); err != nil {
			return conch.RelayStatus{}, err
		}
	}
	return r.Status(ctx), nil
}

// Invite makes a text that lets one home in, once, until it expires (0:
// InviteTime). addrs are what the other is to dial; none: where it listens.
func (r *Relay) Invite(ctx context.Context, ttl time.Duration, addrs []string) (conch.RelayInvite, error) {
	ttl = cmp.Or(ttl, InviteTime)
	if ttl < time.Second || ttl > MaxInviteTime {
		return conch.RelayInvite{}, conch.Errorf(conch.InvalidRequest, "an invitation is good for a second to %d days", int(MaxInviteTime.Hours()/24))
	}
	t := r.target()
	if t.cfg.Listen == "" {
		return conch.RelayInvite{}, conch.Errorf(conch.InvalidRequest, "this home's relay listens nowhere: nobody could come").
			Hint("conch relay listen HOST:PORT opens it")
	}
	n, err := r.embedded(ctx, t)
	if err != nil {
		return conch.RelayInvite{}, err
	}
	if len(addrs) == 0 {
		addrs = reachable(t.cfg.Listen)
	}
	if len(addrs) == 0 || len(addrs) > 8 {
		return conch.RelayInvite{}, conch.Errorf(conch.InvalidRequest, "an invitation names 1 to 8 addresses, this one %d", len(addrs)).
			Hint("--address HOST:PORT says where this machine is reached")
	}
	for _, a := range addrs {
		if err := checkDial(a); err != nil {
			return conch.RelayInvite{}, err
		}
	}
	secret, expires, err := n.invite(ttl)
	if err != nil {
		return conch.RelayInvite{}, err
	}
	i := invitation{secret: secret, fingerprint: n.cert.fingerprint, expires: expires, addresses: addrs}
	return conch.RelayInvite{Invite: i.String(), Addresses: addrs, ExpiresAt: expires}, nil
}

// Join has the home use another relay: that of an invitation, or a NATS cluster
// (URLs separated by commas) with the contents of a credentials file. It has been
// reached when Join returns, and nothing is changed if it cannot be.
func (r *Relay) Join(ctx context.Context, to string, creds []byte) (conch.RelayStatus, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	now, err := r.cfg, r.loadErr
	r.mu.Unlock()
	if err != nil {
		return conch.RelayStatus{}, err
	}
	if now.Listen != "" {
		return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "other homes may use this home's relay, which listens on %s", now.Listen).
			Hint("a home has one relay; conch relay listen off closes its own first")
	}
	next := config{Version: fileVersion}
	to = strings.TrimSpace(to)
	if strings.Contains(to, "://") {
		next.Cluster, err = joinCluster(to, creds)
	} else {
		next.Joined, err = r.joinHome(to, now.Joined)
	}
	if errors.Is(err, conch.RelayUnreachable) {
		err = conch.Errorf(conch.RelayUnreachable, "%s; nothing was changed", conch.AsError(err).Message).Hint("see that it runs and can be reached from here, and join again").Retry()
	}
	if err == nil {
		err = r.use(next)
	}
	if err != nil {
		return conch.RelayStatus{}, err
	}
	if _, err := r.membership(ctx, r.target()); err != nil {
		return conch.RelayStatus{}, err
	}
	return r.Status(ctx), nil
}

func (r *Relay) joinHome(text string, now *joined) (*joined, error) {
	i, err := parseInvite(text)
	if err != nil {
		return nil, err
	}
	j := &joined{Addresses: i.addresses, Fingerprint: i.fingerprint, Seed: make([]byte, 32)}
	// Whoever is known there already stays who it is, with a used invitation too:
	// the first try may have succeeded and its answer been lost.
	pending, err := r.pending(i)
	switch {
	case err != nil:
		return nil, err
	case now != nil && now.Fingerprint == i.fingerprint:
		j.Seed = now.Seed
	case pending != nil:
		j.Seed = pending
	default:
		rand.Read(j.Seed)
		if err := r.keepPending(i, j.Seed); err != nil {
			return nil, err
		}
	}
	nc, _, err := j.home(i.secret, nats.NoReconnect())
	if errors.Is(err, conch.RelayRefused) && time.Now().After(i.expires) {
		return nil, conch.Errorf(conch.InvalidInvite, "the invitation expired at %s", i.expires.Format(time.RFC3339)).Hint("ask for a new one")
	}
	if errors.Is(err, conch.RelayRefused) && !strings.Contains(err.Error(), "certificate") {
		return nil, conch.Errorf(conch.InvalidInvite, "the relay does not take this invitation: it was used, or it expired").Hint("ask for a new one")
	}
	if err != nil {
		return nil, err
	}
	nc.Close()
	return j, nil
}

const pendingFile = "joining.json"

// joining is joining.json: the key of a home that may have been let in.
type joining struct {
	Version     int    `json:"version"`
	Fingerprint string `json:"fingerprint"`
	Seed        []byte `json:"seed"`
}

func (r *Relay) pending(i *invitation) ([]byte, error) {
	var p joining
	if err := readFile(r.o.Dir, pendingFile, &p); err != nil || p.Fingerprint != i.fingerprint {
		return nil, err
	}
	return p.Seed, nil
}

func (r *Relay) keepPending(i *invitation, seed []byte) error {
	return writeFile(r.o.Dir, pendingFile, joining{fileVersion, i.fingerprint, seed})
}

// joinCluster looks at the servers once, to see that they are there, and how many.
func joinCluster(to string, creds []byte) (*cluster, error) {
	c := &cluster{Creds: string(creds), Replicas: 1}
	for s := range strings.SplitSeq(to, ",") {
		s = strings.TrimSpace(s)
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls"}, u.Scheme) {
			return nil, conch.Errorf(conch.InvalidRequest, "this is no address of a NATS server").Hint("they are nats://HOST:PORT or tls://HOST:PORT, with commas between")
		}
		if u.User != nil {
			return nil, conch.Errorf(conch.InvalidRequest, "the address of a NATS server must not hold a password").
				Hint("it would be seen in process lists and in conch status; use --creds FILE")
		}
		c.URLs = append(c.URLs, s)
	}
	if c.Creds != "" {
		if _, err := nkeys.ParseDecoratedNKey(creds); err != nil {
			return nil, conch.Errorf(conch.InvalidRequest, "the credentials file is none").Hint("nsc generate creds writes such files")
		}
	}
	nc, err := c.dial(nats.Name("conch"), nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if len(nc.Servers()) >= 3 {
		c.Replicas = 3
	}
	return c, nil
}

// Leave goes back to the home's own relay. What was not fetched from the other
// stays there until it expires.
func (r *Relay) Leave(ctx context.Context) (conch.RelayStatus, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	now := r.cfg
	r.mu.Unlock()
	if now.Joined == nil && now.Cluster == nil {
		return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "this home uses its own relay; there is none to leave").
			Hint("conch relay listen off closes it to others")
	}
	if err := r.use(config{Version: fileVersion}); err != nil {
		return conch.RelayStatus{}, err
	}
	return r.Status(ctx), nil
}

// Remove shuts a home out that was let in, by its id in Status. Its agents are
// cut off, their mailboxes stay.
func (r *Relay) Remove(ctx context.Context, id string) (conch.RelayStatus, error) {
	t := r.target()
	if t.cfg.Joined != nil || t.cfg.Cluster != nil {
		return conch.RelayStatus{}, conch.Errorf(conch.InvalidRequest, "this home uses another relay").Hint("conch relay leave goes back to its own")
	}
	n, err := r.embedded(ctx, t)
	if err != nil {
		return conch.RelayStatus{}, err
	}
	if err := n.remove(id); err != nil {
		return conch.RelayStatus{}, err
	}
	return r.Status(ctx), nil
}

// Info is the relay as `status` shows it, without asking it anything.
func (r *Relay) Info() conch.RelayInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info()
}

func (r *Relay) info() conch.RelayInfo {
	up := r.member != nil && r.member.nc.IsConnected()
	var where string
	switch i := (conch.RelayInfo{Mode: conch.RelayEmbedded}); {
	case r.cfg.Joined != nil:
		i.Mode, i.Connected = conch.RelayJoined, up
		where = "tls://" + r.cfg.Joined.Addresses[0]
		i.URL = &where
		return i
	case r.cfg.Cluster != nil:
		i.Mode, i.Connected = conch.RelayCluster, up
		where = strings.Join(r.cfg.Cluster.URLs, ",")
		i.URL = &where
		return i
	default:
		i.Connected = r.nest != nil
		if r.cfg.Listen != "" {
			where = "tls://" + r.cfg.Listen
			i.URL = &where
		}
		return i
	}
}

// Status describes the relay.
func (r *Relay) Status(ctx context.Context) conch.RelayStatus {
	r.mu.Lock()
	s := conch.RelayStatus{RelayInfo: r.info(), Running: r.nest != nil, Replicas: 1, Homes: []conch.RelayHome{}, Agents: []conch.RelayAgent{}}
	n := r.nest
	if err := cmp.Or(r.loadErr, r.trouble); err != nil {
		text := err.Error()
		s.Error = &text
	}
	if r.cfg.Cluster != nil {
		s.Replicas = r.cfg.Cluster.Replicas
	}
	if r.cfg.Joined != nil {
		s.Fingerprint = &r.cfg.Joined.Fingerprint
	}
	for address, a := range r.agents {
		l := a.Link()
		ra := conch.RelayAgent{Address: address, Connected: l.Connected}
		if l.Err != nil {
			text := l.Err.Error()
			ra.Error = &text
		}
		s.Agents = append(s.Agents, ra)
	}
	r.mu.Unlock()
	slices.SortFunc(s.Agents, func(a, b conch.RelayAgent) int { return cmp.Compare(a.Address, b.Address) })
	if n == nil {
		return s
	}
	if l := n.listening(); l != "" {
		s.Listen = &l
	}
	s.Fingerprint = &n.cert.fingerprint
	ctx, cancel := context.WithTimeout(ctx, shakeLimit)
	defer cancel()
	s.Mailboxes, s.Messages, s.Bytes = n.usage(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.guests.Homes {
		h := conch.RelayHome{ID: homeID(g.Key), JoinedAt: g.JoinedAt, Agents: []string{}}
		for address := range g.Agents {
			h.Agents = append(h.Agents, address)
		}
		slices.Sort(h.Agents)
		s.Homes = append(s.Homes, h)
	}
	return s
}
