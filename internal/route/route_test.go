package route

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

// The table is one that a Mux can serve and a reader can follow.
func TestTable(t *testing.T) {
	names, calls := map[string]bool{}, map[string]bool{}
	for _, r := range append(Daemon(), Session()...) {
		if names[r.Name] || calls[r.Method+" "+r.Path] {
			t.Errorf("%s, %s %s: there is another", r.Name, r.Method, r.Path)
		}
		names[r.Name], calls[r.Method+" "+r.Path] = true, true
		if r.Summary == "" || !strings.HasSuffix(r.Summary, ".") && !strings.HasSuffix(r.Summary, "?") {
			t.Errorf("%s: no summary", r.Name)
		}
		if r.Answer == nil && len(r.Media) == 0 && !r.Socket {
			t.Errorf("%s answers nothing", r.Name)
		}
		if r.Body != nil && r.Upload || r.Method == http.MethodGet && (r.Body != nil || r.Upload) {
			t.Errorf("%s: which body?", r.Name)
		}
		if len(r.Query) > 60 {
			t.Errorf("%s: checkQuery counts in an int", r.Name)
		}
		for _, p := range append(slices.Clone(r.Query), r.Header...) {
			if p.Doc == "" || p.Type == "" || len(p.Enum) > 0 && p.Type != String || p.Max > 0 && p.Type != Integer {
				t.Errorf("%s: parameter %+v", r.Name, p)
			}
		}
		for _, k := range r.Errors {
			if !slices.Contains(conch.Kinds(), k) {
				t.Errorf("%s: no such kind: %s", r.Name, k)
			}
		}
	}
	for _, r := range Session() {
		if Archived(r.Name) && r.Method != http.MethodGet && !strings.Contains(r.Path, "/processes/") {
			t.Errorf("%s of a closed session", r.Name)
		}
	}
}

func TestBuildFindsWhatIsWrong(t *testing.T) {
	h := func(http.ResponseWriter, *http.Request) {}
	_, wrong := Build([]Route{{Name: "a"}, {Name: "b"}, {Name: "b"}}, map[string]http.HandlerFunc{"b": h, "c": h}, nil)
	if fmt.Sprint(wrong) != "[a b c]" {
		t.Errorf("%v", wrong)
	}
}

// answer is what a Mux of a few routes makes of a request.
func answer(t *testing.T, method, target, contentType, body string) (string, *httptest.ResponseRecorder) {
	t.Helper()
	routes := []Route{
		{Name: "list", Method: "GET", Path: "/v1/things"},
		{Name: "make", Method: "POST", Path: "/v1/things", Body: conch.NewRequest{}},
		{Name: "thing", Method: "GET", Path: "/v1/things/{id}", Query: []Param{
			{Name: "n", Type: Integer, Max: 10}, {Name: "b", Type: Boolean}, {Name: "s", Type: String}, {Name: "e", Type: String, Enum: []string{"x", "y"}}}},
		{Name: "prune", Method: "GET", Path: "/v1/things/prune"},
		{Name: "sub", Method: "GET", Path: "/v1/things/{id}/sub/{name}"},
		{Name: "put", Method: "POST", Path: "/v1/things/{id}/put", Upload: true},
	}
	said := ""
	handlers := map[string]http.HandlerFunc{}
	for _, r := range routes {
		handlers[r.Name] = func(_ http.ResponseWriter, q *http.Request) {
			said = r.Name
			for _, p := range r.Params() {
				said += " " + p + "=" + q.PathValue(p)
			}
		}
	}
	m, wrong := Build(routes, handlers, func(w http.ResponseWriter, err error) {
		said = string(conch.AsError(err).Kind) + ": " + err.Error()
	})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return said, w
}

func TestMux(t *testing.T) {
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/v1/things", "list"},
		{"GET", "/v1/things/", "route_not_found"},
		{"GET", "/v1//things", "route_not_found"},
		{"GET", "/v1/things/a", "thing id=a"},
		{"GET", "/v1/things/a%2Fb", "thing id=a/b"},
		{"GET", "/v1/things/a%20b%3f", "thing id=a b?"},
		{"GET", "/v1/things/prune", "prune"},
		{"GET", "/v1/things/a/sub/..", "sub id=a name=.."},
		{"GET", "/v1/things/a/sub", "route_not_found"},
		{"GET", "/", "route_not_found"},
		{"DELETE", "/v1/things", "method_not_allowed"},
		{"HEAD", "/v1/things/a", "method_not_allowed"},
		{"GET", "/v1/things?x=1", "invalid_request: /v1/things takes no parameter \"x\""},
		{"GET", "/v1/things/a?", "thing"},
		{"GET", "/v1/things/a?n=0&b=1&s=&e=x&", "thing"},
		{"GET", "/v1/things/a?n=10&b=true&s=%00%ff", "thing"},
		{"GET", "/v1/things/a?n=11", "request_too_large"},
		{"GET", "/v1/things/a?n=-1", "invalid_request"},
		{"GET", "/v1/things/a?n=", "invalid_request"},
		{"GET", "/v1/things/a?n=9223372036854775808", "invalid_request"},
		{"GET", "/v1/things/a?n=1&n=1", "invalid_request: parameter n is given twice"},
		{"GET", "/v1/things/a?b=yes", "invalid_request"},
		{"GET", "/v1/things/a?e=z", "invalid_request"},
		{"GET", "/v1/things/a?s=%zz", "invalid_request"},
		{"GET", "/v1/things/a?s=a;b=1", "invalid_request"},
		{"GET", "/v1/things/a?%73=1", "thing"},
		{"GET", "/v1/things/a?S=1", "invalid_request"},
	} {
		said, w := answer(t, c.method, c.target, "", "")
		if !strings.HasPrefix(said, c.want) {
			t.Errorf("%s %s: %s, want %s", c.method, c.target, said, c.want)
		}
		if allow := w.Header().Get("Allow"); (allow != "") != (c.want == "method_not_allowed") {
			t.Errorf("%s %s: Allow %q", c.method, c.target, allow)
		}
	}
	if _, w := answer(t, "PUT", "/v1/things", "", ""); w.Header().Get("Allow") != "GET, POST" {
		t.Errorf("Allow %q", w.Header().Get("Allow"))
	}
	for _, c := range []struct{ target, kind, body, want string }{
		{"/v1/things", "application/json", "{}", "make"},
		{"/v1/things", "application/json; charset=utf-8", "{}", "make"},
		{"/v1/things", "", "{}", "make"},
		{"/v1/things", "application/x-www-form-urlencoded", "{}", "make"},
		{"/v1/things", "text/plain", "{}", "unsupported_media_type"},
		{"/v1/things", "multipart/form-data; boundary=x", "{}", "unsupported_media_type"},
		{"/v1/things/a/put", "text/plain", "x", "put"},
		{"/v1/things/a/put", "multipart/form-data; boundary=x", "x", "unsupported_media_type"},
	} {
		if said, _ := answer(t, "POST", c.target, c.kind, c.body); !strings.HasPrefix(said, c.want) {
			t.Errorf("%s %s: %s, want %s", c.target, c.kind, said, c.want)
		}
	}
	for body, want := range map[string]string{"": "list", "{}": "list", " null\n": "list", "{\"x\":1}": "invalid_request", "x": "invalid_request", strings.Repeat(" ", 70000): "request_too_large"} {
		if said, _ := answer(t, "GET", "/v1/things", "application/json", body); !strings.HasPrefix(said, want) {
			t.Errorf("body %.20q: %s, want %s", body, said, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		body, want string
		optional   bool
	}{
		{`{"label":"a"}`, "", false},
		{`{"label":""}`, "", false},
		{`{"label":"a","env":{"A":"b"}} `, "", false},
		{``, "it is empty", false},
		{``, "", true},
		{`{}`, "label is missing", false},
		{`{"label":null}`, "label is missing", false},
		{`null`, "not an object", false},
		{`{"label":"a","lable":1}`, `unknown field "lable"`, false},
		{`{"label":1}`, "label is not a string", false},
		{`{"label":"a"}{}`, "more than one", false},
		{`[]`, "it is not an object", false},
		{`{"label":"` + strings.Repeat("a", 1000) + `"}`, "larger than 500", false},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		var v conch.NewRequest
		err := Decode(httptest.NewRecorder(), r, 500, c.optional, &v)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.40q: %v, want %q", c.body, err, c.want)
		}
		if err != nil && !errors.Is(err, conch.InvalidRequest) && !errors.Is(err, conch.TooLarge) {
			t.Errorf("%.40q: %v has no kind", c.body, err)
		}
	}
}
