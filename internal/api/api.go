// Package api is the daemon's HTTP surface: decode, call one method of host,
// encode. It decides nothing of its own.
//
// A session's requests are not served here. Route hands their connections to
// the keeper before any HTTP is spoken; those that arrive here nevertheless,
// because the keeper has to be started first or the client reuses a
// connection, are rebuilt and handed over by the same way. What came by one of the
// gate's ports cannot be handed over, since only this process has its keys: it is
// passed on, as it comes, and so is the answer.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
	"github.com/conchsh/conch/internal/route"
)

// Header names every response carries, so that a client knows whom it talks to
// before it reads the body.
const (
	HeaderProtocol = "Conch-Protocol"
	HeaderVersion  = "Conch-Version"
)

type server struct {
	h   *host.Host
	mux *route.Mux
}

// New is the handler of the daemon's socket.
func New(h *host.Host) http.Handler {
	s := &server{h: h}
	var wrong []string
	s.mux, wrong = route.Build(route.Daemon(), s.handlers(), fail)
	if len(wrong) > 0 { // a test looks at this
		panic(fmt.Sprint("calls without handler, or handlers without call: ", wrong))
	}
	s.mux.Allow = gate.Allow
	for _, r := range route.Session() {
		s.mux.Pass([]route.Route{r}, s.keeper(r))
	}
	return s
}

// handlers are the functions of the calls that the daemon answers, by the names
// that package route has for them.
func (s *server) handlers() map[string]http.HandlerFunc {
	list := map[string]http.HandlerFunc{
		"import": s.importLog, "openapi": s.openapi, "health": s.healthz, "metrics": s.metrics,
		"mailEvents": s.mailEvents, "mailSnapshot": s.mailSnapshot, "presence": s.presence,
		"watch":    s.watch,
		"terminal": s.terminal("terminal"), "processTerminal": s.terminal("processTerminal"),
		"upload": s.uploadFile, "attachment": s.attachment,
	}
	for name, f := range map[string]func(*http.Request) (any, error){
		"version":       s.version,
		"status":        s.status,
		"sessions":      s.sessions,
		"new":           s.new,
		"close":         s.close,
		"prune":         s.prune,
		"shutdown":      s.shutdown,
		"doctor":        s.doctor,
		"processes":     s.processes,
		"whoami":        s.whoami,
		"agents":        s.agents,
		"newAgent":      s.newAgent,
		"importAgent":   s.importAgent,
		"unassignAgent": s.unassignAgent,
		"useAgent":      s.useAgent,
		"assignAgent":   s.assignAgent,
		"exportAgent":   s.exportAgent,
		"unlockAgent":   s.unlockAgent,
		"lockAgent":     s.lockAgent,
		"send":          s.send,
		"inbox":         s.inbox,
		"ack":           s.ack,
		"reply":         s.reply,
		"ask":           s.ask,
		"await":         s.await,
		"receipts":      s.receipts,
		"thread":        s.thread,
		"search":        s.search,
		"messages":      s.messages,
		"policy":        s.policy,
		"setPolicy":     s.setPolicy,
		"setPriority":   s.setPriority,
		"busy":          s.busy,
		"access":        s.access,
		"tokens":        s.tokens,
		"newToken":      s.newToken,
		"revokeToken":   s.revokeToken,
		"logOut":        s.logOut,
		"listen":        s.listen,
		"page":          s.page,
		"hook":          s.hook,
		"responder":     s.responder,
		"setResponder":  s.setResponder,
		"relay":         s.relay,
		"relayListen":   s.relayListen,
		"relayInvite":   s.relayInvite,
		"relayJoin":     s.relayJoin,
		"relayLeave":    s.relayLeave,
		"relayRemove":   s.relayRemove,

		"contacts":         s.contacts,
		"addContact":       s.contact(s.addContact),
		"acceptContact":    s.contact(s.acceptContact),
		"blockContact":     s.contact(s.blockContact),
		"verifyContact":    s.contact(s.verifyContact),
		"resetContact":     s.contact(s.resetContact),
		"contactAuthority": s.contact(s.contactAuthority),
		"quarantine":       s.quarantine,
		"clearQuarantine":  s.clearQuarantine,
	} {
		list[name] = answer(f)
	}
	return list
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(HeaderProtocol, strconv.Itoa(conch.ProtocolVersion))
	w.Header().Set(HeaderVersion, s.h.Version)
	if v := r.Header.Get(HeaderProtocol); v != "" && !speaks(v) {
		fail(w, conch.Errorf(conch.VersionMismatch, "the daemon (conch %s) speaks protocol %d, the client %s", s.h.Version, conch.ProtocolVersion, v).
			Hint("conch down stops the daemon; the next command starts one of its own version"))
		return
	}
	TimeBody(w, r) // for what is read here: who hands the connection on takes no deadline with it
	s.mux.ServeHTTP(w, r)
}

// TimeBody limits the time that a request's body may take.
func TimeBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		ctl := http.NewResponseController(w)
		ctl.SetReadDeadline(time.Now().Add(route.BodyTime))
		r.Body = &timed{r.Body, ctl}
	}
}

// speaks reports whether a peer's header names a protocol that this conch knows.
func speaks(header string) bool {
	n, err := strconv.Atoi(header)
	return err == nil && conch.Speaks(n)
}

// timed is a body with a deadline, which must not outlast it: the server takes
// its passing for the client's leaving.
type timed struct {
	io.ReadCloser
	ctl *http.ResponseController
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		t.ctl.SetReadDeadline(time.Time{})
	}
	return n, err
}

// answer turns a function into a handler: its value is the body, its error the
// error's form.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, because(r, err))
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// because is what a client is told of an error. A request that the leaving
// daemon could not wait for is told so.
func because(r *http.Request, err error) error {
	var e *conch.Error
	if cause := context.Cause(r.Context()); errors.Is(err, context.Canceled) && errors.As(cause, &e) {
		return e
	}
	return err
}

// Fail writes an error in its form, with the headers of every answer.
func Fail(version string) func(http.ResponseWriter, error) {
	return func(w http.ResponseWriter, err error) {
		w.Header().Set(HeaderProtocol, strconv.Itoa(conch.ProtocolVersion))
		w.Header().Set(HeaderVersion, version)
		fail(w, err)
	}
}

func fail(w http.ResponseWriter, err error) {
	e := conch.AsError(err)
	writeJSON(w, e.Kind.HTTPStatus(), e.Body())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status = http.StatusInternalServerError
		b, _ = json.Marshal(conch.Errorf(conch.Internal, "cannot encode the answer: %v", err).Body())
	}
	w.Header().Set("Content-Type", route.JSONType)
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

// decode reads a JSON body of the type that the call's route names. An empty one
// leaves v as it is.
func decode(r *http.Request, v any) error { return route.Decode(nil, r, route.MaxBody, true, v) }

func (s *server) version(*http.Request) (any, error) { return s.h.About(), nil }

func (s *server) status(r *http.Request) (any, error) {
	return s.h.Status(r.Context()), nil
}

func (s *server) prune(r *http.Request) (any, error) {
	var req conch.PruneRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.Prune(r.Context(), req)
}

func (s *server) doctor(r *http.Request) (any, error) {
	return s.h.Doctor(r.Context(), r.URL.Query().Get("deep") == "1"), nil
}

func (s *server) processes(r *http.Request) (any, error) {
	return s.h.Processes(r.Context())
}

func (s *server) sessions(r *http.Request) (any, error) {
	return s.h.Sessions(r.Context()), nil
}

func (s *server) new(r *http.Request) (any, error) {
	var req conch.NewRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.New(r.Context(), req)
}

func (s *server) close(r *http.Request) (any, error) {
	return s.h.Close(r.Context(), r.PathValue("agent"), r.PathValue("label"))
}

func (s *server) shutdown(r *http.Request) (any, error) {
	var req conch.ShutdownRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.Shutdown(r.Context(), req.All)
}
