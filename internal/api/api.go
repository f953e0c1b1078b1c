// Package api is the daemon's HTTP surface: decode, call one method of host,
// encode. It decides nothing of its own.
//
// A session's requests are not served here. Route hands their connections to
// the keeper before any HTTP is spoken; those that arrive here nevertheless,
// because the keeper has to be started first or the client reuses a
// connection, are rebuilt and handed over by the same way.
package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/host"
)

const (
	// maxBody bounds the JSON the daemon itself reads; environments are the
	// longest. Commands go to keepers, which have their own limits.
	maxBody = 4 << 20
	// MaxHeader bounds request headers.
	MaxHeader = 64 << 10
)

// Header names every response carries, so that a client knows whom it talks to
// before it reads the body.
const (
	HeaderProtocol = "Conch-Protocol"
	HeaderVersion  = "Conch-Version"
)

type server struct {
	h   *host.Host
	mux *http.ServeMux
}

// New is the handler of the daemon's socket.
func New(h *host.Host) http.Handler {
	s := &server{h: h, mux: http.NewServeMux()}
	for pattern, f := range map[string]func(*http.Request) (any, error){
		"GET /v1/version":                         s.version,
		"GET /v1/status":                          s.status,
		"GET /v1/sessions":                        s.sessions,
		"POST /v1/sessions":                       s.new,
		"POST /v1/sessions/{agent}/{label}/close": s.close,
		"POST /v1/prune":                          s.prune,
		"POST /v1/shutdown":                       s.shutdown,
		"GET /v1/doctor":                          s.doctor,
		"GET /v1/processes":                       s.processes,
		"GET /v1/whoami":                          s.whoami,
		"GET /v1/agents":                          s.agents,
		"POST /v1/agents":                         s.newAgent,
		"POST /v1/agents/import":                  s.importAgent,
		"POST /v1/agents/unassign":                s.unassignAgent,
		"POST /v1/agents/{name}/use":              s.useAgent,
		"POST /v1/agents/{name}/assign":           s.assignAgent,
		"POST /v1/agents/{name}/export":           s.exportAgent,
		"POST /v1/agents/{name}/unlock":           s.unlockAgent,
		"POST /v1/agents/{name}/lock":             s.lockAgent,
	} {
		s.mux.HandleFunc(pattern, answer(f))
	}
	s.mux.HandleFunc("POST /v1/import", s.importLog)
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("/v1/sessions/{agent}/{label}", s.session)
	s.mux.HandleFunc("/v1/sessions/{agent}/{label}/{rest...}", s.session)
	s.mux.HandleFunc("GET /v1/commands/{id}", s.command)
	s.mux.HandleFunc("GET /v1/commands/{id}/{rest...}", s.command)
	s.mux.HandleFunc("GET /v1/processes/{id}", s.process)
	s.mux.HandleFunc("GET /v1/processes/{id}/{rest...}", s.process)
	s.mux.HandleFunc("POST /v1/processes/{id}/{rest...}", s.process)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(HeaderProtocol, strconv.Itoa(conch.ProtocolVersion))
	w.Header().Set(HeaderVersion, s.h.Version)
	if v := r.Header.Get(HeaderProtocol); v != "" && !speaks(v) {
		fail(w, conch.Errorf(conch.VersionMismatch, "the daemon (conch %s) speaks protocol %d, the client %s", s.h.Version, conch.ProtocolVersion, v).
			Hint("conch down stops the daemon; the next command starts one of its own version"))
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		e := conch.Errorf(conch.InvalidRequest, "no such request: %s %s", r.Method, r.URL.Path)
		writeJSON(w, http.StatusNotFound, e.Body())
		return
	}
	s.mux.ServeHTTP(w, r)
}

// speaks reports whether a peer's header names a protocol that this conch knows.
func speaks(header string) bool {
	n, err := strconv.Atoi(header)
	return err == nil && conch.Speaks(n)
}

// answer turns a function into a handler: its value is the body, its error the
// error's form.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

func fail(w http.ResponseWriter, err error) {
	e := conch.AsError(err)
	writeJSON(w, e.Kind.HTTPStatus(), e.Body())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

// decode reads a JSON body into v. An empty body leaves v as it is; a word
// that v does not know is refused, since it would be ignored otherwise.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == io.EOF {
		return nil
	}
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		} else if err == nil {
			err = errors.New("more than one JSON value")
		}
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return conch.Errorf(conch.TooLarge, "the request has more than %d bytes", large.Limit)
	}
	return conch.Errorf(conch.InvalidRequest, "request body: %v", err)
}

func (s *server) version(*http.Request) (any, error)  { return s.h.About(), nil }
func (s *server) status(r *http.Request) (any, error) { return s.h.Status(r.Context()), nil }

func (s *server) doctor(r *http.Request) (any, error) {
	return s.h.Doctor(r.Context(), r.URL.Query().Get("deep") == "1"), nil
}

func (s *server) prune(r *http.Request) (any, error) {
	var req host.PruneRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.Prune(r.Context(), req)
}

func (s *server) processes(r *http.Request) (any, error) {
	return s.h.Processes(r.Context())
}

func (s *server) sessions(r *http.Request) (any, error) { return s.h.Sessions(r.Context()), nil }

func (s *server) new(r *http.Request) (any, error) {
	var req host.NewRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.New(r.Context(), req)
}

func (s *server) close(r *http.Request) (any, error) {
	return s.h.Close(r.Context(), r.PathValue("agent"), r.PathValue("label"))
}

func (s *server) shutdown(r *http.Request) (any, error) {
	var req struct {
		All bool `json:"all"`
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return s.h.Shutdown(r.Context(), req.All)
}
