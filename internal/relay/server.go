package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
)

const (
	// agentsAccount is where agents are. There is no JetStream in it.
	agentsAccount = "conch-agents"

	maxConns      = 1024 // of agents and homes, in all
	maxLoginConns = 8    // of one key
	maxHomes      = 1000
	maxHomeAgents = 100
	startLimit    = 10 * time.Second
	healthPause   = 2 * time.Second
	// shakeLimit is how long a stranger may take to shake hands.
	shakeLimit = 5 * time.Second
)

// A nest is the home's own relay: a NATS server inside this process and the hub
// that serves it. The server itself never listens: agents of this home connect in
// process, and others through a TLS listener of ours.
type nest struct {
	dir  string
	log  *slog.Logger
	cert *certificate
	srv  *server.Server
	hub  *hub

	front, back *nats.Conn
	agents      *server.Account
	dead        chan struct{} // closed when the server can serve no more
	kill        sync.Once
	wg          sync.WaitGroup

	mu       sync.Mutex
	keys     map[string]bool   // of the hub's own connections: true is back
	own      map[string]string // login key → address, of this home's agents
	guests   guests
	conns    map[string][]uint64 // by login key
	listener net.Listener
	open     map[net.Conn]bool
}

// startNest starts the server and its hub on what is in a directory.
func startNest(ctx context.Context, o Options) (n *nest, err error) {
	dir, log := o.Dir, o.Log
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageError(err)
	}
	n = &nest{
		dir: dir, log: log, dead: make(chan struct{}),
		keys: map[string]bool{}, own: map[string]string{}, conns: map[string][]uint64{}, open: map[net.Conn]bool{},
	}
	n.guests.Version = fileVersion
	if err := readFile(dir, guestsFile, &n.guests); err != nil {
		return nil, err
	}
	if n.cert, err = identity(dir); err != nil {
		return nil, err
	}
	n.srv, err = server.NewServer(&server.Options{
		ServerName: "conch-" + n.cert.fingerprint[:16],
		DontListen: true, NoSigs: true, NoLog: log == nil,
		JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxMemory: 16 << 20, JetStreamMaxStore: 1 << 40, // what each stream may have is bounded by the hub
		MaxPayload: MaxMessage + 64<<10, MaxPending: 2 * MaxBatch * MaxMessage, MaxConn: 2 * maxConns, MaxSubs: 256,
		AlwaysEnableNonce: true, AuthTimeout: shakeLimit.Seconds(),
		PingInterval: 20 * time.Second, MaxPingsOut: 2, WriteDeadline: 10 * time.Second,
		CustomClientAuthentication: n,
	})
	if err != nil {
		return nil, err
	}
	if log != nil {
		n.srv.SetLoggerV2(&quietLog{log: log}, false, false, false)
	}
	n.srv.Start()
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if !n.srv.ReadyForConnections(startLimit) || !n.srv.JetStreamEnabled() {
		return nil, conch.Errorf(conch.RelayUnreachable, "the home's relay did not start").
			Hint("the daemon's log says why; mail within this home needs no relay").Retry()
	}
	if n.agents, err = n.srv.RegisterAccount(agentsAccount); err != nil {
		return nil, err
	}
	if n.front, err = n.dialHub(false); err != nil {
		return nil, err
	}
	if n.back, err = n.dialHub(true); err != nil {
		return nil, err
	}
	if n.hub, err = newHub(ctx, n.front, n.back, 1, o); err != nil {
		return nil, err
	}
	if _, err = n.front.QueueSubscribe(homeSubject+"*."+verbEnrol, "q", n.enrolRequest); err != nil {
		return nil, err
	}
	if err = n.front.Flush(); err != nil {
		return nil, err
	}
	n.wg.Go(n.watch) // ends with dead
	return n, nil
}

// dialHub makes one of the hub's own connections, with a key that lives as long.
func (n *nest) dialHub(back bool) (*nats.Conn, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	public, err := kp.PublicKey()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.keys[public] = back
	n.mu.Unlock()
	return nats.Connect("", nats.InProcessServer(n.srv), nats.Nkey(public, kp.Sign), nats.Name("conch hub"),
		nats.NoReconnect(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if n.log != nil {
				n.log.Warn("relay: hub", "err", err)
			}
		}))
}

// watch notices a server that gave up: JetStream turns itself off when the disk
// is full, and stays off.
func (n *nest) watch() {
	t := time.NewTicker(healthPause)
	defer t.Stop()
	for {
		select {
		case <-n.dead:
			return
		case <-t.C:
			if !n.srv.JetStreamEnabled() || n.front.IsClosed() || n.back.IsClosed() {
				if n.log != nil {
					n.log.Error("relay: the server stopped serving; it is started again")
				}
				n.kill.Do(func() { close(n.dead) })
				return
			}
		}
	}
}

// close stops everything and waits.
func (n *nest) close() {
	n.kill.Do(func() { close(n.dead) })
	n.unlisten()
	if n.hub != nil {
		n.hub.close()
	}
	for _, c := range []*nats.Conn{n.front, n.back} {
		if c != nil {
			c.Close()
		}
	}
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
	n.wg.Wait()
}

// Check decides who a connection is, for the NATS server: it has shown to have
// a key, and the key says what it may do. Permissions hold for as long as the
// connection.
func (n *nest) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if c.Kind() != server.CLIENT || !signed(o.Nkey, o.Sig, c.GetNonce()) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if back, ok := n.keys[o.Nkey]; ok {
		u := &server.User{Username: "hub"}
		if !back {
			u.Account = n.agents
		}
		c.RegisterUser(u)
		return true
	}
	user := &server.User{Account: n.agents}
	if address, ok := n.loginOf(o.Nkey); ok {
		user.Username, user.Permissions = address, permissions(hubSubject+address+".*", address)
	} else if n.homeOf(o.Nkey) != nil || n.admit(o.Nkey, o.Token) {
		user.Username, user.Permissions = o.Nkey, permissions(homeSubject+o.Nkey+"."+verbEnrol, o.Nkey)
	} else {
		return false
	}
	ids := slices.DeleteFunc(n.conns[o.Nkey], func(id uint64) bool { return n.srv.GetClient(id) == nil })
	if len(ids) >= maxLoginConns {
		return false
	}
	n.conns[o.Nkey] = append(ids, c.GetID())
	c.RegisterUser(user)
	return true
}

// permissions let a connection publish on one subject and listen where its own
// answers come, and nothing else.
func permissions(publish, who string) *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{publish}},
		Subscribe: &server.SubjectPermission{Allow: []string{inboxPrefix(who) + ".>"}},
	}
}

func signed(public, sig string, nonce []byte) bool {
	raw, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil || len(nonce) == 0 {
		return false
	}
	kp, err := nkeys.FromPublicKey(public)
	return err == nil && nkeys.IsValidPublicUserKey(public) && kp.Verify(nonce, raw) == nil
}

// loginOf, homeOf and admit are called under mu.
func (n *nest) loginOf(key string) (string, bool) {
	if address, ok := n.own[key]; ok {
		return address, true
	}
	for _, g := range n.guests.Homes {
		for address, login := range g.Agents {
			if login == key {
				return address, true
			}
		}
	}
	return "", false
}

func (n *nest) homeOf(key string) *guest {
	i := slices.IndexFunc(n.guests.Homes, func(g guest) bool { return g.Key == key })
	if i < 0 {
		return nil
	}
	return &n.guests.Homes[i]
}

// admit lets a home in by an invitation, and the invitation is used up.
func (n *nest) admit(key, token string) bool {
	secret, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(secret) != secretSize || len(n.guests.Homes) >= maxHomes {
		return false
	}
	hash := secretHash(secret)
	found := -1
	for i, inv := range n.guests.Invites {
		if subtle.ConstantTimeCompare(inv.Hash, hash) == 1 && time.Now().Before(inv.ExpiresAt) {
			found = i
		}
	}
	if found < 0 {
		return false
	}
	next := n.guests
	next.Invites = slices.Delete(slices.Clone(next.Invites), found, found+1)
	next.Homes = append(slices.Clone(next.Homes), guest{Key: key, JoinedAt: time.Now().UTC(), Agents: map[string]string{}})
	return n.keepGuests(next) == nil
}

// keepGuests writes the list before it counts.
func (n *nest) keepGuests(next guests) error {
	if err := writeFile(n.dir, guestsFile, next); err != nil {
		if n.log != nil {
			n.log.Error("relay: keep the list of homes", "err", err)
		}
		return err
	}
	n.guests = next
	return nil
}

// enrolRequest makes an agent known that a home shows to be its own.
func (n *nest) enrolRequest(m *nats.Msg) {
	home, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, homeSubject), ".")
	if !strings.HasPrefix(m.Reply, inboxPrefix(home)+".") {
		return // see hub.serve
	}
	var r enrolRequest
	err := json.Unmarshal([]byte(m.Header.Get(metaHeader)), &r)
	if err == nil {
		err = n.enrol(home, r)
	}
	out := newMsg(m.Reply, struct{}{}, nil)
	if err != nil {
		out = errorMsg(m.Reply, err)
	}
	if err := n.front.PublishMsg(out); err != nil && n.log != nil {
		n.log.Warn("relay: answer", "err", err)
	}
}

// proofText is what an agent's own key signs so that a login key speaks for it,
// at one relay.
func proofText(relay, address, login string) []byte {
	return fmt.Appendf(nil, "conch relay login 1\n%s\n%s\n%s", relay, address, login)
}

func (n *nest) enrol(home string, r enrolRequest) error {
	public, err := agent.ParseAddress(r.Address)
	if err != nil || !nkeys.IsValidPublicUserKey(r.Login) || !ed25519.Verify(public, proofText(n.cert.fingerprint, r.Address, r.Login), r.Proof) {
		return conch.Errorf(conch.RelayRefused, "the relay does not believe that this is the agent's key")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.homeOf(home)
	if g == nil {
		return conch.Errorf(conch.RelayRefused, "this home was removed from the relay").Hint("ask for a new invitation")
	}
	if g.Agents[r.Address] == r.Login {
		return nil
	}
	if len(g.Agents) >= maxHomeAgents {
		return conch.Errorf(conch.LimitReached, "this home has %d agents at the relay, the limit", maxHomeAgents)
	}
	next := n.guests
	next.Homes = slices.Clone(next.Homes)
	for i := range next.Homes {
		agents := map[string]string{}
		for a, l := range next.Homes[i].Agents {
			if a != r.Address { // it moved: it is of the home that showed it last
				agents[a] = l
			}
		}
		if next.Homes[i].Key == home {
			agents[r.Address] = r.Login
		}
		next.Homes[i].Agents = agents
	}
	return n.keepGuests(next)
}

// adopt makes an agent of this home known.
func (n *nest) adopt(address, login string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own[login] = address
}

// invite opens the door for one home.
func (n *nest) invite(ttl time.Duration) (secret []byte, expires time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	next := n.guests
	next.Invites = slices.DeleteFunc(slices.Clone(next.Invites), func(i invite) bool { return now.After(i.ExpiresAt) })
	if len(next.Invites) >= maxInvites {
		return nil, expires, conch.Errorf(conch.LimitReached, "%d invitations are open, the limit", maxInvites).Hint("wait until one is used, or expires")
	}
	secret, expires = newSecret(), now.Add(ttl).UTC().Truncate(time.Second)
	next.Invites = append(next.Invites, invite{secretHash(secret), expires})
	return secret, expires, n.keepGuests(next)
}

// remove shuts a home out, with its agents. Its mailboxes stay.
func (n *nest) remove(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var gone []guest
	next := n.guests
	next.Homes = slices.DeleteFunc(slices.Clone(next.Homes), func(g guest) bool {
		if homeID(g.Key) == id {
			gone = append(gone, g)
		}
		return homeID(g.Key) == id
	})
	if len(gone) == 0 {
		return conch.Errorf(conch.InvalidRequest, "no home %q was let in", id).Hint("conch relay status lists them")
	}
	if err := n.keepGuests(next); err != nil {
		return err
	}
	for _, g := range gone {
		keys := []string{g.Key}
		for _, login := range g.Agents {
			keys = append(keys, login)
		}
		for _, k := range keys {
			for _, id := range n.conns[k] {
				if n.srv.GetClient(id) != nil {
					n.srv.DisconnectClientByID(id)
				}
			}
			delete(n.conns, k)
		}
	}
	return nil
}

// homeID is a home's key as people see it.
func homeID(key string) string { return strings.ToLower(key[max(0, len(key)-12):]) }

// listen takes connections of other machines.
func (n *nest) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return conch.Errorf(conch.InvalidRequest, "cannot listen on %s: %v", addr, err).
			Hint("choose an address of this machine and a free port; port 0 takes any")
	}
	n.mu.Lock()
	n.listener = l
	n.mu.Unlock()
	cfg := &tls.Config{Certificates: []tls.Certificate{n.cert.tls}, MinVersion: tls.VersionTLS13}
	n.wg.Go(func() { // ends with the listener
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, or the like
				select {
				case <-n.dead:
					return
				case <-time.After(100 * time.Millisecond):
				}
				continue
			}
			if !n.hold(l, c) {
				c.Close()
				continue
			}
			n.wg.Go(func() { // ends with the connection
				defer n.release(c)
				n.bridge(c, cfg)
			})
		}
	})
	return nil
}

func (n *nest) hold(l net.Listener, c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != l || len(n.open) >= maxConns {
		return false
	}
	n.open[c] = true
	return true
}

func (n *nest) release(c net.Conn) {
	c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
}

// bridge shakes hands and passes bytes on until one side closes.
func (n *nest) bridge(c net.Conn, cfg *tls.Config) {
	t := tls.Server(c, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), shakeLimit)
	err := t.HandshakeContext(ctx)
	cancel()
	if err != nil {
		return
	}
	inside, err := n.srv.InProcessConn()
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() { // ends when either side is closed, which its end brings about
		defer close(done)
		io.Copy(inside, t)
		inside.Close()
	}()
	io.Copy(t, inside)
	t.Close()
	inside.Close()
	<-done
}

// unlisten cuts everybody off who came through the listener.
func (n *nest) unlisten() {
	n.mu.Lock()
	l, open := n.listener, n.open
	n.listener = nil
	for c := range open {
		c.Close()
	}
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// listening is where, if anywhere.
func (n *nest) listening() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener == nil {
		return ""
	}
	return n.listener.Addr().String()
}

// usage is what is on the relay's disk.
func (n *nest) usage(ctx context.Context) (mailboxes int, messages, bytes uint64) {
	streams := n.hub.js.ListStreams(ctx)
	for s := range streams.Info() {
		bytes += s.State.Bytes
		if strings.HasPrefix(s.Config.Name, mailStream) {
			mailboxes++
			messages += s.State.Msgs
		}
	}
	return mailboxes, messages, bytes
}

// A quietLog writes to the daemon's log up to logLines a minute: some of it is
// said at the wish of whoever is connected. The server's own words go there too.
type quietLog struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
	lines int
}

const logLines = 60

func (l *quietLog) write(level slog.Level, text string, args ...any) {
	if l.log == nil {
		return
	}
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.since) > time.Minute {
		l.since, l.lines = now, 0
	}
	l.lines++
	n := l.lines
	l.mu.Unlock()
	switch {
	case n < logLines:
		l.log.Log(context.Background(), level, "relay: "+text, args...)
	case n == logLines:
		l.log.Warn("relay: there is more to say than is written down in a minute")
	}
}

func (l *quietLog) Noticef(string, ...any)        {}
func (l *quietLog) Debugf(string, ...any)         {}
func (l *quietLog) Tracef(string, ...any)         {}
func (l *quietLog) Warnf(format string, v ...any) { l.write(slog.LevelWarn, fmt.Sprintf(format, v...)) }
func (l *quietLog) Errorf(format string, v ...any) {
	l.write(slog.LevelError, fmt.Sprintf(format, v...))
}
func (l *quietLog) Fatalf(format string, v ...any) {
	l.write(slog.LevelError, fmt.Sprintf(format, v...))
}
