package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
)

// Route is asked with a fresh connection's first line. It hands the connection
// to the keeper of the session the line names, if that runs, and says so.
// Everything else is for the server, errors included.
func Route(h *host.Host) func(reqLine string, c *net.UnixConn) bool {
	return func(reqLine string, c *net.UnixConn) bool {
		s := target(h, reqLine)
		if s == nil || s.Handover(c, nil) != nil {
			return false
		}
		c.Close()
		if strings.HasPrefix(reqLine, http.MethodPost) {
			h.Mail.Stir(s.Agent(), s.Label())
		}
		return true
	}
}

// target is the session a request line belongs to, or nil.
func target(h *host.Host, reqLine string) *session.Session {
	_, path, ok := sock.ParseLine(reqLine)
	if !ok {
		return nil
	}
	for _, prefix := range []string{"/v1/commands/", "/v1/processes/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			id, what, _ := strings.Cut(rest, "/")
			if what == "terminal" {
				return nil // the daemon has a part in it
			}
			s, _, _, err := h.Command(conch.CommandID(id))
			if err != nil {
				return nil
			}
			return s
		}
	}
	rest, ok := strings.CutPrefix(path, "/v1/sessions/")
	if !ok {
		return nil
	}
	p := strings.SplitN(rest, "/", 3)
	if len(p) < 2 || len(p) == 3 && (p[2] == "close" || p[2] == "run" || p[2] == "terminal") {
		return nil // the daemon has a part in these
	}
	agent, err := url.PathUnescape(p[0])
	if err != nil {
		return nil
	}
	label, err := url.PathUnescape(p[1])
	if err != nil {
		return nil
	}
	s, err := h.Store.Lookup(agent, label)
	if err != nil {
		return nil
	}
	return s
}

// keeper gives the handler of a session's call that reached the server: start what
// it needs, then hand it over. What can still be asked of a closed session is
// answered here.
func (s *server) keeper(rt route.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		open, closed, err := s.find(r, rt)
		if err != nil {
			fail(w, err)
			return
		}
		var sess *session.Session
		if closed == nil {
			sess, err = open(r.Context())
			// What a closed session left can be read even if its agent is gone.
			if gone := errors.Is(err, conch.SessionNotFound) || errors.Is(err, conch.AgentNotFound); gone && route.Archived(rt.Name) {
				if a, aerr := s.h.Archive(r.PathValue("agent"), r.PathValue("label")); aerr == nil {
					closed, err = a, nil
				}
			}
		}
		switch {
		case err != nil:
			fail(w, because(r, err))
		case closed != nil:
			serveArchive(w, r, rt, closed)
		case rt.Name == "run":
			s.run(w, r, sess)
		case !gate.Local(r):
			s.forward(w, r, rt, sess, open)
		default:
			s.handover(w, r, sess, open)
		}
	}
}

// run passes a process's start on to the keeper and its answer back: whoever is to
// be told of the process's end is told by this daemon.
func (s *server) run(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	body, err := route.Read(w, r, route.MaxExecBody)
	if err != nil {
		fail(w, err)
		return
	}
	p, err := s.h.Run(r.Context(), sess, r.URL.RawQuery, r.Header.Get("Content-Type"), body)
	if err != nil {
		fail(w, because(r, err))
		return
	}
	writeJSON(w, http.StatusOK, p)
}

type opener func(context.Context) (*session.Session, error)

// find gives the way to open the session a call belongs to, or its record if it
// is known to be closed.
func (s *server) find(r *http.Request, rt route.Route) (opener, *session.Archive, error) {
	agent, label, id := r.PathValue("agent"), r.PathValue("label"), conch.CommandID(r.PathValue("id"))
	if id == "" || agent != "" {
		if err := checkNames(agent, label); err != nil {
			return nil, nil, err
		}
	}
	if id == "" {
		var fresh *session.NewSpec
		if (rt.Name == "exec" || rt.Name == "run" || rt.Name == "attach" || rt.Name == "terminal") && route.Bool(r, "create") {
			fresh = &session.NewSpec{Cwd: r.URL.Query().Get("cwd"), Shell: rt.Name != "run"}
		}
		return func(ctx context.Context) (*session.Session, error) {
			return s.h.Open(ctx, agent, label, fresh)
		}, nil, nil
	}
	sess, closed, _, err := s.h.Command(id)
	if errors.Is(err, conch.CommandNotFound) && strings.Contains(rt.Path, "/processes/") {
		err = conch.Errorf(conch.ProcessNotFound, "no process has the id %s", id).Hint("GET /v1/processes and conch ps list ids, and names, which are not taken here")
	}
	if err != nil {
		return nil, nil, err
	}
	if closed != nil {
		if agent != "" && (closed.Spec.Agent != agent || closed.Spec.Label != label) {
			return nil, nil, conch.Errorf(conch.CommandNotFound, "no command %s in session %s", id, label)
		}
		return nil, closed, nil
	}
	if agent != "" {
		// The label decides who is asked, and that one knows its own ids.
		return func(ctx context.Context) (*session.Session, error) { return s.h.Open(ctx, agent, label, nil) }, nil, nil
	}
	return func(ctx context.Context) (*session.Session, error) {
		_, err := sess.Keeper(ctx)
		return sess, err
	}, nil, nil
}

func checkNames(agent, label string) error {
	if err := conch.CheckAgent(agent); err != nil {
		return err
	}
	return conch.CheckLabel(label)
}

// handover takes the connection from the server and passes it on, with the
// request as it was and whatever of its body was read already. A keeper that
// dies at this very moment is started again, twice at most.
func (s *server) handover(w http.ResponseWriter, r *http.Request, sess *session.Session, open opener) {
	head := rebuild(r)
	ctx := context.WithoutCancel(r.Context()) // Hijack ends r's
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fail(w, err)
		return
	}
	defer conn.Close()
	rest, err := buf.Reader.Peek(buf.Reader.Buffered())
	if err != nil {
		return
	}
	head = append(head, rest...)
	uc := sock.Unix(conn)
	if uc == nil {
		s.refuse(conn, conch.Errorf(conch.Unsupported, "sessions are reached over the unix socket"))
		return
	}
	for try := 0; ; try++ {
		if err = sess.Handover(uc, head); err == nil {
			if r.Method == http.MethodPost {
				s.h.Mail.Stir(sess.Agent(), sess.Label())
			}
			return
		}
		if try == 2 {
			break
		}
		if sess, err = open(ctx); err != nil {
			break
		}
	}
	s.refuse(conn, err)
}

// refuse answers on a connection that the server has given up.
func (s *server) refuse(conn net.Conn, err error) {
	conn.Write(Response(s.h.Version, conch.AsError(err)))
}

// Response is a whole HTTP response that says e and ends the connection.
func Response(version string, e *conch.Error) []byte {
	rec := &plain{header: http.Header{}}
	fail(rec, e)
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", rec.status, http.StatusText(rec.status))
	rec.header.Set(HeaderProtocol, strconv.Itoa(conch.ProtocolVersion))
	rec.header.Set(HeaderVersion, version)
	rec.header.Set("Content-Length", strconv.Itoa(rec.body.Len()))
	rec.header.Set("Connection", "close")
	rec.header.Write(&b)
	b.WriteString("\r\n")
	b.Write(rec.body.Bytes())
	return b.Bytes()
}

// plain collects a response.
type plain struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *plain) Header() http.Header         { return p.header }
func (p *plain) WriteHeader(status int)      { p.status = status }
func (p *plain) Write(b []byte) (int, error) { return p.body.Write(b) }

// rebuild writes a request's head again as the client sent it. The server has
// moved some headers into fields; the body's framing must be exactly as on the
// wire, since the body follows unread.
func rebuild(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Proto, r.Host)
	h := r.Header.Clone()
	h.Del("Host")
	h.Del("Content-Length")
	h.Del("Transfer-Encoding")
	if len(r.TransferEncoding) > 0 {
		h.Set("Transfer-Encoding", strings.Join(r.TransferEncoding, ", "))
		if len(r.Trailer) > 0 {
			var names []string
			for k := range r.Trailer {
				names = append(names, k)
			}
			h.Set("Trailer", strings.Join(names, ", "))
		}
	} else if r.ContentLength >= 0 && (r.ContentLength > 0 || r.Header.Get("Content-Length") != "") {
		h.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	h.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
