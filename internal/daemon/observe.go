package daemon

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/conchsh/conch/internal/api"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
	"github.com/conchsh/conch/internal/sock"
)

// peerKey finds the process at the other end of a request's connection.
type peerKey struct{}

// withPeer is the server's ConnContext.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if u := sock.Unix(c); u != nil {
		if pid, _, err := sock.PeerCred(u); err == nil {
			ctx = api.WithPeer(context.WithValue(ctx, peerKey{}, pid), pid)
		}
	}
	return ctx
}

// observe counts every request and writes one line for it: what was asked, of
// which session, by which process, how it ended and what it took. Never a
// query, a header or a body: those hold people's words and secrets.
func observe(next http.Handler, h *host.Host, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		o := &observed{ResponseWriter: w}
		defer func() {
			took := time.Since(start)
			route := r.Pattern // the mux has set it by now
			if _, path, ok := strings.Cut(route, " "); ok {
				route = path
			}
			if route == "" {
				route = "other"
			}
			if o.status == 0 {
				o.status = http.StatusOK
			}
			args := []any{"op", "request", "method", r.Method, "route", route, "status", o.status, "ms", float64(took.Microseconds()) / 1000,
				"bytes", o.bytes, "client", r.Context().Value(peerKey{})}
			if l := r.PathValue("label"); l != "" {
				args = append(args, "agent", r.PathValue("agent"), "label", l)
			}
			if id := r.PathValue("id"); id != "" {
				args = append(args, "id", id)
			}
			if gr, ok := gate.From(r); ok {
				args = append(args, "via", gr.Via, "as", gr.Name)
			}
			if o.hijacked && o.status != http.StatusSwitchingProtocols {
				args = append(args, "handover", true)
			}
			level := slog.LevelInfo
			if o.status >= 500 {
				level = slog.LevelError
			}
			h.CountRequest(r.Method, route, o.status, took)
			log.Log(context.WithoutCancel(r.Context()), level, "request", args...)
		}()
		next.ServeHTTP(o, r)
	})
}

// observed remembers what was answered.
type observed struct {
	http.ResponseWriter
	status   int
	bytes    int64
	hijacked bool
}

func (o *observed) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(p []byte) (int, error) {
	if o.status == 0 {
		o.status = http.StatusOK
	}
	n, err := o.ResponseWriter.Write(p)
	o.bytes += int64(n)
	return n, err
}

// Unwrap, Hijack and FlushError are for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	o.hijacked = true
	return http.NewResponseController(o.ResponseWriter).Hijack()
}

func (o *observed) FlushError() error { return http.NewResponseController(o.ResponseWriter).Flush() }
