// Package gate lets requests in that do not come over the unix socket, and says
// as whom.
//
// There are two ports, both closed unless somebody asks. The network's speaks
// TLS 1.3, wants a token with every request, and does not open while there is none. The page's is plain HTTP on
// 127.0.0.1 for one browser, which has a cookie that it got for a code that the
// owner was shown. A token is of no use on the page's port, nor a cookie on the
// other.
//
// Before anything of a request is looked at, its Host must be a name that the port
// is reached by (else a name that an attacker made resolve to us would do), and
// what a browser says of where it comes from must be the page itself. Then its
// secret is compared, by hash and in constant time, with those that are kept. What
// it allows is in the request's context (From); the multiplexer compares it with
// what the call needs. A token that is taken back, or expires, ends what is open
// under it, and so does a login. Whether a person made it is kept with each: only
// such a one may decide what is a person's.
//
// Only hashes are kept, in access.json, which nobody else writes. No secret is ever
// logged. Methods are safe for concurrent use.
package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// Options are what a Gate stands on.
type Options struct {
	Home string
	// Names are hosts, beside its own, by which the network's port may be called.
	Names []string
	// Cert and Key are files; empty: one is made.
	Cert, Key string
	// PagePort is where the page is served; 0: any port that is free.
	PagePort int
	Log      *slog.Logger
	// Fail writes an error.
	Fail func(http.ResponseWriter, error)
}

// A Gate is the two ports and who may pass.
type Gate struct {
	o       Options
	store   store
	refused failures

	mu      sync.Mutex // guards what follows; held while a port opens
	api     http.Handler
	page    http.Handler
	base    context.Context
	network *port
	browser *port
	codes   map[[32]byte]code
	wanted  string // where to listen when there is a token
	closed  bool
}

// Open reads what is kept. It listens nowhere.
func Open(o Options) (*Gate, error) {
	g := &Gate{o: o, codes: map[[32]byte]code{}}
	return g, g.store.open(o.Home)
}

// Serve says what is behind the gate: the API, and the page's files. Requests get
// contexts that end with base. A page that was open when the last daemon ended is
// served again where it was.
func (g *Gate) Serve(base context.Context, api, page http.Handler) {
	g.mu.Lock()
	g.base, g.api, g.page = base, api, page
	g.mu.Unlock()
	if p := g.store.pagePort(); p != 0 && g.store.loggedIn() {
		if _, err := g.openPage(p); err != nil {
			g.o.Log.Warn("the page is not served again", "port", p, "err", err)
		}
	}
}

// A port is one listener and its server.
type port struct {
	srv   *http.Server
	done  chan struct{}
	plain bool // the page's
	host  string
	num   string
	info  conch.ListenInfo
	wrong failures
}

func (g *Gate) start(l net.Listener, p *port, guard http.Handler) {
	_, p.num, _ = net.SplitHostPort(l.Addr().String())
	base := g.base
	p.srv = &http.Server{
		Handler:     guard,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, newPeer(c))
		},
		ReadHeaderTimeout: route.HeaderTime, // of the handshake too
		IdleTimeout:       route.IdleTime,
		MaxHeaderBytes:    route.MaxHeader,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 alone, as on the socket

		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(g.o.Log.Handler(), slog.LevelDebug), // strangers' noise
	}
	p.done = make(chan struct{})
	go func() { // ends with the listener
		defer close(p.done)
		p.srv.Serve(l)
	}()
}

// Listen opens the network's port.
func (g *Gate) Listen(address string) (conch.ListenInfo, error) {
	host, num, err := net.SplitHostPort(address)
	if err != nil {
		return conch.ListenInfo{}, conch.Errorf(conch.InvalidRequest, "%q is no address to listen at", address).Hint("HOST:PORT, or :PORT for all addresses")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.network; p != nil {
		if p.host == host && (p.num == num || num == "0") {
			return p.info, nil
		}
		return conch.ListenInfo{}, conch.Errorf(conch.AlreadyRunning, "the daemon already listens at %s", p.info.Address).Hint("conch down ends that, and leaves sessions running")
	}
	if g.base == nil || g.closed {
		return conch.ListenInfo{}, conch.Errorf(conch.NotRunning, "the daemon is leaving").Retry()
	}
	if !g.store.hasToken() {
		return conch.ListenInfo{}, conch.Errorf(conch.TokenNotFound, "there is no token, so that nobody could come in").
			Hint("nothing was opened; conch token new NAME --scope SCOPE makes one")
	}
	cert, err := g.certificate(host)
	if err != nil {
		return conch.ListenInfo{}, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return conch.ListenInfo{}, conch.Errorf(conch.InvalidRequest, "cannot listen at %s: %v", address, err).Hint("nothing was opened")
	}
	p := &port{host: host}
	shown := host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		shown = hostname()
	}
	_, n, _ := net.SplitHostPort(l.Addr().String())
	p.info = conch.ListenInfo{Address: l.Addr().String(), URL: "https://" + net.JoinHostPort(shown, n), Certificate: cert.file, Fingerprint: cert.fingerprint}
	g.start(tls.NewListener(limited(l), &tls.Config{
		Certificates: []tls.Certificate{cert.pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
	}), p, g.guard(p, g.names(host, cert)))
	g.network = p
	g.o.Log.Info("listen", "address", p.info.Address, "fingerprint", p.info.Fingerprint)
	return p.info, nil
}

// ListenAlways opens the network's port now or, while there is no token, as soon as
// there is one.
func (g *Gate) ListenAlways(address string) error {
	g.mu.Lock()
	g.wanted = address // first: a token may be made meanwhile
	g.mu.Unlock()
	_, err := g.Listen(address)
	if errors.Is(err, conch.TokenNotFound) {
		g.o.Log.Warn("does not listen", "address", address, "err", err)
		return nil
	}
	return err
}

// Closed is why the network is not served where the configuration has it served;
// empty: it is, or need not be.
func (g *Gate) Closed() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.network != nil || g.wanted == "" {
		return ""
	}
	return "not served at " + g.wanted + ": there is no token"
}

// openWanted opens the port that waited for a token.
func (g *Gate) openWanted() {
	g.mu.Lock()
	address := g.wanted
	g.mu.Unlock()
	if address == "" || g.Listening() != nil {
		return
	}
	if _, err := g.Listen(address); err != nil {
		g.o.Log.Warn("does not listen", "address", address, "err", err)
	}
}

// openPage opens the page's port, at num if that is not 0.
func (g *Gate) openPage(num int) (*port, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.browser; p != nil {
		if num != 0 && strconv.Itoa(num) != p.num {
			return nil, conch.Errorf(conch.AlreadyRunning, "the page is served at port %s already", p.num).Hint("conch down ends that, and leaves sessions running")
		}
		return p, nil
	}
	if g.base == nil || g.closed {
		return nil, conch.Errorf(conch.NotRunning, "the daemon is leaving").Retry()
	}
	want := num
	if want == 0 {
		want = g.o.PagePort
	}
	last := g.store.pagePort()
	if want == 0 {
		want = last
	}
	listen := func(n int) (net.Listener, error) { return net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(n)) }
	l, err := listen(want)
	if err != nil && num == 0 && g.o.PagePort == 0 {
		l, err = listen(0) // somebody took the one it had
	}
	if err != nil {
		return nil, conch.Errorf(conch.InvalidRequest, "cannot serve the page at port %d: %v", want, err).Hint("--port 0 takes any that is free")
	}
	p := &port{plain: true, host: "127.0.0.1"}
	g.start(limited(l), p, g.guard(p, []string{"127.0.0.1", "localhost"}))
	n, _ := strconv.Atoi(p.num)
	if err := g.store.setPagePort(n); err != nil {
		p.srv.Close()
		<-p.done
		return nil, err
	}
	g.browser = p
	g.o.Log.Info("page", "port", p.num)
	return p, nil
}

// PageURL is where the page is, without a secret; "" where it is not served.
func (g *Gate) PageURL() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.browser == nil {
		return ""
	}
	return g.browser.url()
}

func (p *port) url() string { return "http://127.0.0.1:" + p.num + "/" }

// Listening is where the network is served, nil: nowhere.
func (g *Gate) Listening() *conch.ListenInfo {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.network == nil {
		return nil
	}
	info := g.network.info
	return &info
}

// ports are those that are open. None opens after end.
func (g *Gate) ports(end bool) (list []*port) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = g.closed || end
	for _, p := range []*port{g.network, g.browser} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// Shutdown closes the ports and lets requests end.
func (g *Gate) Shutdown(ctx context.Context) error {
	var first error
	for _, p := range g.ports(true) {
		if err := p.srv.Shutdown(ctx); first == nil {
			first = err
		}
		<-p.done
	}
	return first
}

// Close closes the ports and cuts off what is under way.
func (g *Gate) Close() error {
	for _, p := range g.ports(true) {
		p.srv.Close()
		<-p.done
	}
	g.forgetCodes()
	return nil
}

// A Grant is what a request from a port may do, and as whom.
type Grant struct {
	Via     string // conch.ViaToken or conch.ViaPage
	Name    string // the token's, or the login's
	Scope   route.Scope
	Expires time.Time // zero: never
	Decides bool      // what is a person's to decide
}

type grantKey struct{}

// From gives a request's grant. One that has none came over the unix socket, or
// must not come in.
func From(r *http.Request) (Grant, bool) {
	gr, ok := r.Context().Value(grantKey{}).(Grant)
	return gr, ok
}

// Local reports whether a request came over the unix socket.
func Local(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// Allow refuses a call that a request's grant does not cover.
func Allow(r *http.Request, rt route.Route) error {
	gr, ok := From(r)
	if !ok {
		if Local(r) {
			return nil
		}
		return conch.Errorf(conch.PermissionDenied, "this request was let in by nobody")
	}
	if needs := rt.Needs(r); !gr.Scope.Allows(needs) {
		who := "the token " + gr.Name
		if gr.Via == conch.ViaPage {
			who = "this page"
		}
		return conch.Errorf(conch.PermissionDenied, "%s may %s; this call needs %s", who, gr.Scope, needs).Hint("nothing was done")
	}
	return nil
}
