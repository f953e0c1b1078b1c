package gate

import (
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// names are the hosts by which the network's port may be called, beside the address
// that a connection came to.
func (g *Gate) names(host string, cert certificate) []string {
	list := append([]string{hostname(), "localhost"}, g.o.Names...)
	if host != "" {
		list = append(list, host)
	}
	for _, name := range cert.names {
		if !strings.HasPrefix(name, "*") {
			list = append(list, name)
		}
	}
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// guard is the handler of a port: it lets requests through to what is behind.
func (g *Gate) guard(p *port, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := r.Context().Value(peerKey{}).(*peer)
		if p.plain {
			pageHeaders(w.Header())
			if err := peer.ours(); err != nil {
				g.refuse(w, r, p, peer, err)
				return
			}
		}
		if err := p.checkSite(r, names); err != nil {
			g.refuse(w, r, p, peer, err)
			return
		}
		if p.plain && !isAPI(r.URL.Path) {
			switch r.URL.Path {
			case LoginPath:
				g.serveLogin(w, r, p, peer)
			case LogoutPath:
				g.serveLogout(w, r, p)
			default:
				g.page.ServeHTTP(w, r)
			}
			return
		}
		ctx, cut := context.WithCancelCause(r.Context())
		defer cut(nil)
		gr, done, ok := g.store.use(p.plain, p.secret(r), func() {
			cut(conch.Errorf(conch.Unauthorized, "the %s was taken back", p.lets()))
		})
		if !ok {
			g.refuse(w, r, p, peer, p.unknown(w))
			return
		}
		defer done()
		if !gr.Expires.IsZero() {
			var stop context.CancelFunc
			ctx, stop = context.WithDeadlineCause(ctx, gr.Expires, conch.Errorf(conch.Unauthorized, "the %s has expired", p.lets()))
			defer stop()
		}
		// Nobody behind the gate has a use for them.
		r.Header.Del("Authorization")
		r.Header.Del("Cookie")
		g.api.ServeHTTP(w, r.WithContext(context.WithValue(ctx, grantKey{}, gr)))
	})
}

// isAPI reports whether a path is the API's and not one of the page's files.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/v1/") || slices.Contains([]string{"/v1", "/openapi.json", "/healthz", "/metrics"}, path)
}

// secret is the token or cookie that a request has, "" for none.
func (p *port) secret(r *http.Request) string {
	if p.plain {
		c, err := r.Cookie(p.cookie())
		if err != nil {
			return ""
		}
		return c.Value
	}
	kind, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(text)
}

// lets is what lets in by a port.
func (p *port) lets() string {
	if p.plain {
		return "login"
	}
	return "token"
}

// unknown is the error for a request whose secret is missing or wrong.
func (p *port) unknown(w http.ResponseWriter) error {
	if p.plain {
		return conch.Errorf(conch.Unauthorized, "this browser is not logged in, or not any more").Hint("conch ui prints an address that lets it in")
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="conch"`)
	return conch.Errorf(conch.Unauthorized, "this request has no token that is good").Hint("conch token new makes one; it goes into the header Authorization: Bearer TOKEN")
}

// checkSite refuses a request that was made for another name, or by another site's
// page. Programs that are no browsers send neither Origin nor Sec-Fetch-Site.
func (p *port) checkSite(r *http.Request, names []string) error {
	if !p.called(r, names) {
		return conch.Errorf(conch.PermissionDenied, "%.100q is not a name of this port", r.Host).
			Hint("the key listen_names in config.toml adds names")
	}
	scheme := "https://"
	if p.plain {
		scheme = "http://"
	}
	unsafe := r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
	origin := r.Header.Get("Origin")
	switch {
	case len(r.Header.Values("Origin")) > 1, origin != "" && !strings.EqualFold(origin, scheme+r.Host):
		return conch.Errorf(conch.PermissionDenied, "the page of another site (%.100q) may not ask here", origin)
	case origin == "" && unsafe && p.plain:
		return conch.Errorf(conch.PermissionDenied, "a browser's request has an Origin, and this has none").Hint("programs use the unix socket, or a token")
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
		return nil
	case "none": // typed by a person
		if !unsafe {
			return nil
		}
	default:
		// A link to the page leads to it from anywhere; there is nothing in the
		// page itself.
		if p.plain && !unsafe && !isAPI(r.URL.Path) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
			return nil
		}
	}
	return conch.Errorf(conch.PermissionDenied, "the page of another site may not ask here")
}

// called reports whether a request's Host is a name of the port.
func (p *port) called(r *http.Request, names []string) bool {
	host, num, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, num = strings.Trim(r.Host, "[]"), ""
	}
	host = strings.ToLower(host)
	if p.plain {
		return num == p.num && slices.Contains(names, host)
	}
	// An address is nobody's name: no resolver can have been made to lie. Nor is the
	// port looked at: others may lead to this one.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	ip := net.ParseIP(host)
	return slices.Contains(names, host) || ok && ip != nil && ip.Equal(local.IP)
}

// refuse answers a request that is not let in, and logs it: never what it brought.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, p *port, from *peer, err error) {
	e := conch.AsError(err)
	w.Header().Set("Connection", "close") // what else it sends is not read
	now := time.Now()
	if g.refused.count(from.ip, now) <= maxFailures {
		g.o.Log.Warn("refused", "op", "refused", "from", from.ip, "method", r.Method, "code", string(e.Kind), "why", e.Message)
	}
	// A page that finds itself logged out is no attack: it is told so each time.
	if page := p.plain && r.URL.Path != LoginPath; e.Kind == conch.Unauthorized && !page && p.wrong.count(from.ip, now) > maxFailures {
		w.Header().Set("Retry-After", "60")
		err = conch.Errorf(conch.LimitReached, "too many requests without a good secret from %s", from.ip).Hint("wait a minute; a good token is let in at once").Retry()
	}
	g.o.Fail(w, err)
}

// Allowed methods of the two paths that are the gate's own.
func onlyPost(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		return nil
	}
	w.Header().Set("Allow", http.MethodPost)
	return conch.Errorf(conch.MethodNotAllowed, "%s cannot be asked of %s", r.Method, r.URL.Path).Hint("it takes POST")
}

// pageHeaders keep what is served to a browser in its place.
func pageHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	// What the API answers is data, whoever takes it for a page. The page's own
	// files have another.
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
}

// readSmall reads the body of a request that nobody has let in yet.
func readSmall(w http.ResponseWriter, r *http.Request, v any) error {
	ctl := http.NewResponseController(w)
	ctl.SetReadDeadline(time.Now().Add(route.HeaderTime))
	defer ctl.SetReadDeadline(time.Time{})
	if t, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(t) != route.JSONType {
		return conch.Errorf(conch.UnsupportedMedia, "the body must be JSON").Hint("Content-Type: application/json") // which no form can send
	}
	return route.Decode(w, r, 4<<10, false, v)
}
