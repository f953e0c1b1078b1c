package conchtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conchsh/conch"
)

// page logs a browser in, with the cookie it got.
func page(t *testing.T, h *Home, flags string) *door {
	t.Helper()
	return login(t, h, strings.TrimSpace(h.OK(append([]string{"ui", "--print"}, strings.Fields(flags)...)...)))
}

// login has a browser open an address.
func login(t *testing.T, h *Home, address string) *door {
	t.Helper()
	d, code := stranger(t, h, address)
	resp := d.open(t.Context(), "POST", "/login", `{"code":"`+code+`"}`)
	defer resp.Body.Close()
	set := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != 204 || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") || !strings.Contains(set, "Path=/;") || !strings.Contains(set, "Max-Age=") {
		t.Fatalf("login: %s %q", resp.Status, set)
	}
	value, _, _ := strings.Cut(set, ";")
	in := d.with()
	in.header = append([]string{"Cookie", value}, in.header...)
	return in
}

// link has the page served, for a browser that is not in yet, and gives its code.
func link(t *testing.T, h *Home, flags ...string) (*door, string) {
	t.Helper()
	return stranger(t, h, strings.TrimSpace(h.OK(append([]string{"ui", "--print"}, flags...)...)))
}

func stranger(t *testing.T, h *Home, text string) (*door, string) {
	t.Helper()
	base, code, ok := strings.Cut(text, "/#login=")
	if !ok || !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Fatalf("ui prints %q", text)
	}
	tr := new(http.Transport)
	t.Cleanup(tr.CloseIdleConnections)
	return &door{h: h, base: base, client: &http.Client{Transport: tr}, header: []string{"Origin", base, "Sec-Fetch-Site", "same-origin"}}, code
}

func TestPage(t *testing.T) {
	h := New(t)
	p := page(t, h, "")
	p.gives("exec", "POST", "/v1/sessions/me/main/exec?create=1", `{"command":"echo hi"}`, `"stdout":"hi\n"`)
	p.gives("access", "GET", "/v1/access", "", `"via":"page","name":"page-`)
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	if s.UIURL == nil || *s.UIURL != p.base+"/" {
		t.Errorf("status: %v", s.UIURL)
	}
	resp := p.open(t.Context(), "GET", "/", "")
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(b), "<title>conch") {
		t.Errorf("page: %s %.200s", resp.Status, b)
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self';", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := resp.Header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "base-uri 'none'") || !strings.Contains(csp, "form-action 'none'") {
		t.Errorf("policy: %s", csp)
	}

	// A second address is at the same port, and nobody is logged out by it.
	q := page(t, h, "")
	if q.base != p.base {
		t.Errorf("another port: %s, %s", p.base, q.base)
	}
	p.gives("still in", "GET", "/v1/version", "", `"version"`)

	// Over a restart of the daemon, orderly or not, the page comes back by itself.
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	for _, end := range []func(){func() { h.OK("down") }, func() {
		h.JSON(&s, "status", "--json")
		syscall.Kill(s.DaemonPID, syscall.SIGKILL)
	}} {
		stream := p.open(ctx, "GET", "/v1/sessions/me/main/events?live=1", "")
		end()
		io.Copy(io.Discard, stream.Body) // it is told at once, by the end
		stream.Body.Close()
		h.OK("exec", "true") // which starts another
		p.client.CloseIdleConnections()
		p.gives("in again", "GET", "/v1/sessions", "", `"label":"main"`)
		resp := p.open(ctx, "GET", "/v1/sessions/me/main/events?live=1", "")
		go h.Conch("exec", "echo back")
		r := bufio.NewReader(resp.Body)
		for e, ok := readEvent(r); !strings.Contains(e.data, "back"); e, ok = readEvent(r) {
			if !ok {
				t.Fatal("no event after the restart")
			}
		}
		resp.Body.Close()
	}
	if out := p.open(t.Context(), "POST", "/logout", ""); out.StatusCode != 204 {
		t.Errorf("logout: %s", out.Status)
	}
	p.refuses("logged out", 401, conch.Unauthorized, "GET", "/v1/version", "")
	q.gives("the other", "GET", "/v1/version", "", `"version"`)
}

// Logins are listed without their secrets, and ended one by one or all at once, with
// what is open under them.
func TestPageLogins(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	h.OK("token", "new", "ci", "--scope", "read")
	a, b, c := page(t, h, ""), page(t, h, "--read-only"), page(t, h, "")
	var list []conch.TokenInfo
	text := h.OK("token", "ls", "--json")
	h.JSON(&list, "token", "ls", "--json")
	if len(list) != 4 || list[0].Kind != "token" || list[1].Kind != "page" || list[1].ExpiresAt == nil || list[1].CreatedAt.IsZero() || list[2].Scopes[0] != "read" || strings.Contains(text, "sha256") {
		t.Fatal(text)
	}
	for _, d := range []*door{a, b, c} {
		if _, secret, _ := strings.Cut(d.header[1], "="); strings.Contains(text, secret) {
			t.Error("the list has a secret")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	ends := func(d *door, end func()) {
		t.Helper()
		stream := d.open(ctx, "GET", "/v1/events", "")
		defer stream.Body.Close()
		if stream.StatusCode != 200 {
			t.Fatal(stream.Status)
		}
		end()
		io.Copy(io.Discard, stream.Body)
		if ctx.Err() != nil {
			t.Error("what was open goes on")
		}
		d.refuses("shut out", 401, conch.Unauthorized, "GET", "/v1/version", "")
	}
	a.gives("whose it is", "GET", "/v1/access", "", `"name":"`+list[1].Name+`"`)
	ends(a, func() { h.OK("token", "revoke", list[1].Name) })
	b.gives("the others stay", "GET", "/v1/version", "", `"version"`)
	_, code := link(t, h)
	ends(b, func() {
		if out := h.OK("ui", "--logout"); out != "logged out: 2\n" {
			t.Error(out)
		}
	})
	c.refuses("shut out", 401, conch.Unauthorized, "GET", "/v1/version", "")
	c.refuses("an address that waited", 401, conch.Unauthorized, "POST", "/login", `{"code":"`+code+`"}`)
	h.JSON(&list, "token", "ls", "--json")
	if len(list) != 1 || list[0].Name != "ci" {
		t.Errorf("%+v", list)
	}
	if out := h.Conch("ui", "--logout", "--print"); out.Status != 125 {
		t.Error(out)
	}
}

// A read-only link may look and not touch.
func TestReadOnlyPage(t *testing.T) {
	h := New(t)
	h.OK("exec", "echo hi")
	id := strings.TrimSpace(h.OK("run", "--tty", "cat"))
	p := page(t, h, "--read-only")
	p.gives("look", "GET", "/v1/sessions", "", `"label":"main"`)
	p.gives("look", "GET", "/v1/sessions/me/main/history", "", `echo hi`)
	p.gives("look", "GET", "/v1/processes/"+id+"/screen", "", `"text"`)
	ctx, cancel := context.WithCancel(t.Context())
	resp := p.open(ctx, "GET", "/v1/processes/"+id+"/attach?read_only=1", "")
	if resp.StatusCode != 200 {
		t.Errorf("look on: %s", resp.Status)
	}
	cancel()
	resp.Body.Close()
	for _, c := range [][3]string{
		{"POST", "/v1/sessions/me/main/exec", `{"command":"true"}`}, {"POST", "/v1/processes/" + id + "/keys", `{"text":"x"}`}, {"POST", "/v1/processes/" + id + "/stdin", "x"},
		{"POST", "/v1/processes/" + id + "/signal", ""}, {"GET", "/v1/processes/" + id + "/attach", ""}, {"GET", "/v1/sessions/me/main/attach", ""},
		{"GET", "/v1/sessions/me/other/attach?read_only=1&create=1", ""}, {"GET", "/v1/sessions/me/main/env", ""}, {"POST", "/v1/sessions", `{"label":"x"}`},
		{"POST", "/v1/mail/send", `{"to":"main","text":"x"}`}, {"POST", "/v1/shutdown", ""}, {"GET", "/v1/tokens", ""},
	} {
		p.refuses("touch", 403, conch.PermissionDenied, c[0], c[1], c[2])
	}
}

// Links are good once, for a minute, here; and what another site makes a browser do is refused.
func TestPageStrangers(t *testing.T) {
	h := New(t)
	d, code := link(t, h)
	login := `{"code":"` + code + `"}`
	no, denied := conch.Unauthorized, conch.PermissionDenied
	bare := d.with()
	bare.header = nil
	// None of these uses the code up, or gets in.
	port := d.base[strings.LastIndex(d.base, ":"):]
	for what, header := range map[string][]string{
		"no origin": {}, "cross-site form": {"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "application/x-www-form-urlencoded"},
		"another port's page": {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, "rebinding": {"Host", "evil.example" + port, "Origin", "http://evil.example" + port},
		"rebinding with our port's origin": {"Host", "evil.example" + port, "Origin", d.base}, "null": {"Origin", "null"}, "another name": {"Host", "127.0.0.2" + port, "Origin", "http://127.0.0.2" + port},
	} {
		bare.with(header...).refuses(what, 403, denied, "POST", "/login", login)
	}
	if status, _ := d.with("Content-Type", "text/plain").ask("POST", "/login", login); status != 415 {
		t.Errorf("a form's type: %d", status)
	}
	if status, _ := d.ask("GET", "/login", ""); status != 405 {
		t.Errorf("GET /login: %d", status)
	}
	d.refuses("wrong code", 401, no, "POST", "/login", `{"code":"AAAA"}`)
	d.refuses("not logged in", 401, no, "GET", "/v1/sessions", "")
	if status, _ := d.ask("POST", "/login", login); status != 204 {
		t.Fatalf("login: %d", status)
	}
	d.refuses("used twice", 401, no, "POST", "/login", login)

	p := page(t, h, "")
	for what, header := range map[string][]string{
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"}, "origin": {"Origin", "http://evil.example"},
		"rebinding": {"Host", "evil.example" + port}, "a WebSocket of another origin": {"Origin", "http://evil.example", "Connection", "Upgrade", "Upgrade", "websocket"},
	} {
		p.with(header...).refuses(what, 403, denied, "GET", "/v1/sessions", "")
	}
	sameCookie := bare.with(p.header[0], p.header[1])
	sameCookie.gives("a plain GET", "GET", "/v1/version", "", "version")
	sameCookie.refuses("a POST without origin", 403, denied, "POST", "/v1/sessions/me/main/exec", `{"command":"true"}`)
	sameCookie.with("Connection", "Upgrade", "Upgrade", "websocket").refuses("a WebSocket without origin", 403, denied, "GET", "/v1/sessions", "")
	// A link elsewhere leads to the page, and to nothing else.
	nav := bare.with("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	nav.gives("a link", "GET", "/", "", "<title>conch")
	nav.with(p.header[0], p.header[1]).refuses("a link to data", 403, denied, "GET", "/v1/sessions", "")
	bare.with("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe").refuses("a frame", 403, denied, "GET", "/", "")
	// Tokens are for the other port, and cookies for this one.
	n := network(t, h)
	x := n.token("ci", "admin")
	d.with("Authorization", x.header[1]).refuses("a token", 401, no, "GET", "/v1/version", "")
	n.with(p.header[0], p.header[1]).refuses("a cookie", 401, no, "GET", "/v1/version", "")
	// Files outside the page are not there.
	for _, path := range []string{"/../access.json", "/%2e%2e/access.json", "/dist/README", "/.git", "/index.html.gz"} {
		if status, body := bare.ask("GET", path, ""); status == 200 && !strings.Contains(body, "<title>conch") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Another user of this machine can reach the port, and gets nothing, not even with the cookie.
func TestAnotherUsersPage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	h := New(t)
	p := page(t, h, "")
	dir, err := os.MkdirTemp("", "other")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	conf := filepath.Join(dir, "curl.conf")
	text := fmt.Sprintf("header = \"Cookie: %s\"\nheader = \"Origin: %s\"\nurl = \"%s/v1/sessions\"\n", p.header[1], p.base, p.base)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	curl := func(uid uint32) string {
		cmd := exec.Command("curl", "-sS", "--max-time", "30", "-K", conf)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("curl: %v: %s", err, out)
		}
		return string(out)
	}
	if out := curl(0); !strings.HasPrefix(out, "[") {
		t.Errorf("the owner: %s", out)
	}
	if out := curl(65534); !strings.Contains(out, "permission_denied") || !strings.Contains(out, "another user") {
		t.Errorf("another user: %s", out)
	}
}
