// Package route is the table of the HTTP API: for every call its method, path,
// parameters, body and answers. The daemon and the keepers build their
// multiplexers from it, and the OpenAPI description is made from it, so a call
// that is served is described and one that is described is served.
//
// A Mux checks what can be checked without knowing the call: path and method,
// unknown and malformed query parameters, the kind of body. A handler that runs
// can rely on it. Nothing here is computed at start-up: the keeper is the same
// binary and there may be a thousand of them.
package route

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/conchsh/conch"
)

// TapeType is the content type of frames as they are on the tape, EventType that
// of server-sent events.
const (
	TapeType  = "application/vnd.conch.tape"
	EventType = "text/event-stream"
	BytesType = "application/octet-stream"
	JSONType  = "application/json"
	CastType  = "application/x-asciicast"
)

// A Type is what a query parameter holds.
type Type string

const (
	String  Type = "string"
	Integer Type = "integer" // from 0 up
	Boolean Type = "boolean" // 1, 0, true or false
)

// A Param is one query parameter or header.
type Param struct {
	Name string
	Type Type
	Doc  string
	Enum []string // of a String
	Max  int64    // of an Integer; 0: what 64 bits hold
}

// A Route is one call.
type Route struct {
	Name    string // the operation's name, and its handler's
	Method  string
	Path    string // with {names}
	Summary string
	Detail  string
	Query   []Param
	Header  []Param // request headers it heeds beyond the usual

	Body     any   // a value of the JSON body's type; nil: none is taken
	Optional bool  // an empty body stands for {}
	MaxBody  int64 // of a JSON body; 0: MaxBody
	Upload   bool  // the body is bytes, of any length, read as they come

	Scope  Scope    // what a token must allow; see Needs
	Socket bool     // it becomes a WebSocket
	Answer any      // a value of the JSON answer's type
	Media  []string // other content types it answers with
	Empty  string   // when it answers 204
	Errors []conch.Kind
}

// Common are the kinds that any call may answer with.
func Common() []conch.Kind {
	return []conch.Kind{conch.InvalidRequest, conch.MethodNotAllowed, conch.RequestTimeout, conch.TooLarge, conch.UnsupportedMedia,
		conch.VersionMismatch, conch.HeaderTooLarge, conch.Internal, conch.TooManyClients, conch.PermissionDenied, conch.Unauthorized, conch.StorageFull}
}

// Params are the names in the path, in order.
func (r Route) Params() []string {
	var names []string
	for _, s := range segments(r.Path) {
		if name, ok := wildcard(s); ok {
			names = append(names, name)
		}
	}
	return names
}

func segments(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

func wildcard(s string) (name string, ok bool) {
	if strings.HasPrefix(s, "{") {
		return s[1 : len(s)-1], true
	}
	return "", false
}

// A Mux finds a request's handler.
type Mux struct {
	// Fail writes an error.
	Fail func(w http.ResponseWriter, err error)
	// Allow, if not nil, says why a request may not make a call.
	Allow func(r *http.Request, rt Route) error

	list []entry
}

type entry struct {
	Route
	segs    []string
	handler http.HandlerFunc
	passing bool
}

// Build makes a Mux that serves routes with the handlers of their names. The
// names that have only the one or the other are wrong.
func Build(routes []Route, handlers map[string]http.HandlerFunc, fail func(http.ResponseWriter, error)) (m *Mux, wrong []string) {
	m = &Mux{Fail: fail}
	seen := map[string]bool{}
	for _, r := range routes {
		h := handlers[r.Name]
		if h == nil || seen[r.Name] {
			wrong = append(wrong, r.Name)
			continue
		}
		seen[r.Name] = true
		m.list = append(m.list, entry{Route: r, segs: segments(r.Path), handler: h})
	}
	for name := range handlers {
		if !seen[name] {
			wrong = append(wrong, name)
		}
	}
	sort.Strings(wrong)
	return m, wrong
}

// Pass adds routes that somebody else serves: h passes them on, and their bodies
// are left unread.
func (m *Mux) Pass(routes []Route, h http.HandlerFunc) {
	for _, r := range routes {
		m.list = append(m.list, entry{Route: r, segs: segments(r.Path), handler: h, passing: true})
	}
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, allow := m.find(r)
	if e == nil {
		if len(allow) > 0 {
			w.Header()["Allow"] = []string{strings.Join(allow, ", ")}
			m.Fail(w, conch.Errorf(conch.MethodNotAllowed, "%s cannot be asked of %s", r.Method, r.URL.Path).Hint("it takes %s", strings.Join(allow, ", ")))
			return
		}
		m.Fail(w, conch.Errorf(conch.RouteNotFound, "no such call: %s %s", r.Method, r.URL.Path).Hint("GET /openapi.json lists them"))
		return
	}
	if err := e.checkQuery(r.URL.RawQuery); err != nil {
		m.Fail(w, err)
		return
	}
	if m.Allow != nil {
		if err := m.Allow(r, e.Route); err != nil {
			m.Fail(w, err)
			return
		}
	}
	if !e.passing {
		if err := e.checkBody(w, r); err != nil {
			m.Fail(w, err)
			return
		}
	}
	e.handler(w, r)
}

// find gives the entry of a request, with the path's values set in it, or the
// methods its path takes. A literal word goes before a name.
func (m *Mux) find(r *http.Request) (*entry, []string) {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		return nil, nil
	}
	path = path[1:]
	var found *entry
	var allow []string
	for i := range m.list {
		e := &m.list[i]
		if !match(e.segs, path) {
			continue
		}
		if e.Method != r.Method {
			if !slices.Contains(allow, e.Method) {
				allow = append(allow, e.Method)
			}
			continue
		}
		if found == nil || moreLiteral(e.segs, found.segs) {
			found = e
		}
	}
	if found == nil {
		return nil, allow
	}
	for _, s := range found.segs {
		seg := path
		if i := strings.IndexByte(path, '/'); i >= 0 {
			seg, path = path[:i], path[i+1:]
		}
		if name, ok := wildcard(s); ok {
			if v, err := url.PathUnescape(seg); err == nil {
				seg = v
			}
			r.SetPathValue(name, seg)
		}
	}
	r.Pattern = found.Method + " " + found.Path // what was asked, for who counts
	return found, nil
}

func match(segs []string, path string) bool {
	for i, s := range segs {
		seg, rest, more := strings.Cut(path, "/")
		if more != (i < len(segs)-1) {
			return false
		}
		if s[:min(1, len(s))] != "{" {
			if s != seg {
				return false
			}
		} else if seg == "" {
			return false
		}
		path = rest
	}
	return true
}

func moreLiteral(a, b []string) bool {
	for i := range a {
		_, wa := wildcard(a[i])
		_, wb := wildcard(b[i])
		if wa != wb {
			return wb
		}
	}
	return false
}

// checkQuery refuses parameters that the route does not know or cannot read. It
// is on the way of every command, hence no url.Values.
func (e *entry) checkQuery(raw string) error {
	seen := 0
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, err := unescape(key)
		if err == nil {
			value, err = unescape(value)
		}
		if err != nil || strings.IndexByte(pair, ';') >= 0 {
			return conch.Errorf(conch.InvalidRequest, "the query has %q, which cannot be read", pair).Hint("special characters are written as %%XX")
		}
		i := slices.IndexFunc(e.Query, func(p Param) bool { return p.Name == key })
		if i < 0 {
			return conch.Errorf(conch.InvalidRequest, "%s takes no parameter %q", e.Path, key).Hint("%s", e.known())
		}
		if seen&(1<<i) != 0 {
			return conch.Errorf(conch.InvalidRequest, "parameter %s is given twice", key)
		}
		seen |= 1 << i
		if err := e.Query[i].check(value); err != nil {
			return err
		}
	}
	return nil
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	return url.QueryUnescape(s)
}

func (e *entry) known() string {
	if len(e.Query) == 0 {
		return "it takes none"
	}
	var names []string
	for _, p := range e.Query {
		names = append(names, p.Name)
	}
	return "it takes " + strings.Join(names, ", ")
}

func (p Param) check(v string) error {
	bad := func(want string) error {
		return conch.Errorf(conch.InvalidRequest, "%s=%q is not %s", p.Name, v, want)
	}
	switch p.Type {
	case Integer:
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			return bad("a count")
		}
		if p.Max > 0 && int64(n) > p.Max {
			return conch.Errorf(conch.TooLarge, "%s is limited to %d", p.Name, p.Max)
		}
	case Boolean:
		switch v {
		case "0", "1", "true", "false":
		default:
			return bad("1, 0, true or false")
		}
	case String:
		if len(p.Enum) > 0 && !slices.Contains(p.Enum, v) {
			return bad("one of " + strings.Join(p.Enum, ", "))
		}
	}
	return nil
}

// Int is a query parameter that the Mux has checked; 0 when it was not given.
func Int(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	return n
}

// Bool is a query parameter that the Mux has checked.
func Bool(r *http.Request, name string) bool {
	v := r.URL.Query().Get(name)
	return v == "1" || v == "true"
}

// checkBody refuses a body of the wrong kind, and any where none is taken.
func (e *entry) checkBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	switch {
	case e.Upload:
		if media(r) == "multipart/form-data" {
			return conch.Errorf(conch.UnsupportedMedia, "the body is taken as it is, not as a form").Hint("curl sends it so with --data-binary or -T")
		}
	case e.Body != nil:
		// curl -d says urlencoded when it is told nothing else.
		if t := media(r); t != "" && t != JSONType && t != "application/x-www-form-urlencoded" {
			return conch.Errorf(conch.UnsupportedMedia, "a body of type %s is not taken", t).Hint("send JSON as application/json")
		}
	default:
		b, err := Read(w, r, 64<<10)
		if err != nil {
			return err
		}
		if b = bytes.TrimSpace(b); len(b) > 0 && string(b) != "{}" && string(b) != "null" {
			return conch.Errorf(conch.InvalidRequest, "%s %s takes no body", e.Method, e.Path)
		}
	}
	return nil
}

// media is the type of a request's body, without parameters.
func media(r *http.Request) string {
	t, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}
