package api

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
)

// forward passes a request on to the keeper and its answer back, both as they come:
// a connection with TLS cannot be handed over. The client's leaving is the keeper's
// news at once. A daemon that leaves ends what only follows, which its reader takes
// up again by itself.
func (s *server) forward(w http.ResponseWriter, r *http.Request, rt route.Route, sess *session.Session, open opener) {
	ctl := http.NewResponseController(w)
	ctl.EnableFullDuplex() // input and output may go on side by side
	if rt.Upload {
		ctl.SetReadDeadline(time.Time{}) // a person may be typing it
	}
	if r.Method == http.MethodGet {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stop := context.AfterFunc(s.h.Leaving, cancel)
		defer stop()
		r = r.WithContext(ctx)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		for try := 0; ; try++ {
			c, err := sess.Dial()
			if err == nil {
				if r.Method == http.MethodPost {
					s.h.Mail.Stir(sess.Agent(), sess.Label())
				}
				return c, nil
			}
			if try == 2 {
				return nil, err
			}
			if sess, err = open(ctx); err != nil {
				return nil, err
			}
		}
	}
	tr := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: route.MaxHeader}
	(&httputil.ReverseProxy{
		Transport: tr, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "daemon.conch", "daemon.conch"
			p.Out.Header.Del(route.ByDaemon)
			p.Out.Header.Del("Origin")
			if p.Out.Header.Get("User-Agent") == "" {
				p.Out.Header["User-Agent"] = nil // else one is made up
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			// Those of every answer stand there already.
			resp.Header.Del(HeaderProtocol)
			resp.Header.Del(HeaderVersion)
			resp.Header.Del("Connection")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if _, told := errors.AsType[*conch.Error](err); !told {
				var slow net.Error
				switch {
				case errors.As(err, &slow) && slow.Timeout():
					err = route.Slow()
				case r.Context().Err() != nil:
					err = because(r, context.Canceled)
				default:
					err = conch.Errorf(conch.NotRunning, "the session's keeper ended before it answered: %v", err).
						Hint("conch history shows what became of a command").Retry()
				}
			}
			fail(w, err)
		},
		ErrorLog: log.New(io.Discard, "", 0), // the client is told
	}).ServeHTTP(w, r)
}
