package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/api"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
	"github.com/conchsh/conch/internal/session"
)

// serve answers for an empty home, on TCP and on a unix socket.
func serve(t *testing.T) (h *host.Host, tcp, unix func(method, path, body string) (int, string)) {
	t.Helper()
	home := t.TempDir()
	agents, err := agent.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	store, err := session.Open(session.Options{Home: home, Login: map[string]string{}, Reserved: agents.Taken})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	door, err := gate.Open(gate.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	h = host.New(host.Options{Store: store, Agents: agents, Home: home, Version: "test", Gate: door, Leaving: t.Context()})
	ts := httptest.NewServer(api.New(h))
	t.Cleanup(ts.Close)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	us := &http.Server{Handler: api.New(h)}
	go us.Serve(l) // ends with Close
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() { tr.CloseIdleConnections(); us.Close() })
	ask := func(c *http.Client, base string) func(method, path, body string) (int, string) {
		return func(method, path, body string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(b)
		}
	}
	return h, ask(ts.Client(), ts.URL), ask(&http.Client{Transport: tr}, "http://conch")
}

func code(t *testing.T, body string) conch.Kind {
	t.Helper()
	var b conch.ErrorBody
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return b.Error.Code
}

// What carries a secret is answered on the unix socket only.
func TestSecretsStayHere(t *testing.T) {
	_, tcp, unix := serve(t)
	for _, c := range []struct{ path, body string }{
		{"/v1/agents", `{"name":"bob","passphrase":"x"}`}, {"/v1/agents/me/export", `{}`},
		{"/v1/agents/import", `{"key":{}}`}, {"/v1/agents/me/unlock", `{"passphrase":"x"}`},
	} {
		if status, body := tcp("POST", c.path, c.body); status != 403 || code(t, body) != conch.PermissionDenied {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
	status, key := unix("POST", "/v1/agents/me/export", `{}`)
	if status != 200 || !strings.Contains(key, `"seed"`) {
		t.Errorf("%d %s", status, key)
	}
	for _, path := range []string{"/v1/agents", "/v1/whoami", "/v1/doctor", "/v1/status"} {
		if _, body := unix("GET", path, ""); strings.Contains(body, "seed") {
			t.Errorf("%s shows %s", path, body)
		}
	}
}

func TestAgentRoutes(t *testing.T) {
	_, _, unix := serve(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/agents", "", 200, `"name":"me"`},
		{"POST", "/v1/agents", `{"name":"bob"}`, 200, `"name":"bob"`},
		{"POST", "/v1/agents", `{"name":"bob"}`, 409, `agent_exists`},
		{"POST", "/v1/agents", `{"name":"Bob"}`, 400, `invalid_agent`},
		{"POST", "/v1/agents", `{"nam":"x"}`, 400, `nam`},
		{"POST", "/v1/agents", ``, 400, `invalid_agent`},
		{"POST", "/v1/agents/nosuch/use", ``, 404, `agents: bob, me`},
		{"POST", "/v1/agents/bob/use", `{}`, 200, `"assigned":[{"scope":"global"}]`},
		{"POST", "/v1/agents/bob/use", `{"x":1}`, 400, `invalid_request`},
		{"GET", "/v1/whoami", "", 200, `"agent":"bob"`},
		{"GET", "/v1/whoami?agent=me", "", 200, `"chosen_by":"named"`},
		{"GET", "/v1/whoami?agent=../x", "", 400, `invalid_agent`},
		{"GET", "/v1/whoami?label=a%20b", "", 400, `invalid_label`},
		{"POST", "/v1/agents/me/assign", `{"scope":"session","key":"h1"}`, 200, `"key":"h1"`},
		{"GET", "/v1/whoami?harness=h1", "", 200, `"agent":"me"`},
		{"POST", "/v1/agents/me/assign", `{"scope":"project","key":"/nowhere/at all"}`, 200, `at all`},
		{"GET", "/v1/whoami?dir=/nowhere/at%20all/x", "", 200, `"chosen_by":"project"`},
		{"GET", "/v1/agents?dir=/nowhere/at%20all/x", "", 200, `"name":"me"`},
		{"POST", "/v1/agents/me/assign", `{"scope":"project","key":"relative"}`, 400, `invalid_request`},
		{"POST", "/v1/agents/me/assign", `{"scope":""}`, 400, `global, project or session`},
		{"POST", "/v1/agents/unassign", `{"scope":"session","key":"h1"}`, 200, `"removed":true`},
		{"POST", "/v1/agents/unassign", `{"scope":"session","key":"h1"}`, 200, `"removed":false`},
		{"POST", "/v1/agents/import", `{}`, 400, `key is missing`},
		{"POST", "/v1/agents/import", `{"key":"` + strings.Repeat("x", 20000) + `"}`, 400, `invalid_key`},
		{"POST", "/v1/agents/..%2f/export", `{}`, 400, `invalid_agent`},
		{"POST", "/v1/agents/nosuch/unlock", `{"passphrase":"x"}`, 404, `agent_not_found`},
		{"POST", "/v1/agents/nosuch/lock", ``, 404, `agent_not_found`},
		{"POST", "/v1/sessions", `{"agent":"nosuch","label":"x"}`, 404, `agent_not_found`},
		{"POST", "/v1/sessions", `{"label":"bob"}`, 409, `label_taken`},
		{"GET", "/v1/sessions/nosuch/x/history", "", 404, `agent_not_found`},
		{"POST", "/v1/sessions/nosuch/x/exec?create=1", `{"command":"true"}`, 404, `agent_not_found`},
	} {
		status, body := unix(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %.100s: %d %s; want %d with %s", c.method, c.path, c.body, status, body, c.status, c.want)
		}
	}
}
