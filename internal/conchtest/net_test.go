package conchtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// A door is one of a home's ports, and who knocks.
type door struct {
	h      *Home
	base   string // https://127.0.0.1:PORT
	client *http.Client
	header []string
}

// network has a home's daemon serve the network, and trusts its certificate.
func network(t *testing.T, h *Home) *door {
	t.Helper()
	h.Conch("token", "new", "first", "--scope", "read") // without one it does not open; made once
	h.OK("up", "--listen", "127.0.0.1:0")
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	if s.Listen == nil {
		t.Fatal("status shows no listen")
	}
	b, err := os.ReadFile(s.Listen.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		t.Fatalf("no certificate in %s", b)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return &door{h: h, base: s.Listen.URL, client: &http.Client{Transport: tr}}
}

// as is the same door for who has a token.
func (d *door) as(token string) *door { return d.with("Authorization", "Bearer "+token) }

func (d *door) with(header ...string) *door {
	c := *d
	c.header = append(d.header[:len(d.header):len(d.header)], header...)
	return &c
}

func (d *door) token(name, scope string, more ...string) *door {
	d.h.T.Helper()
	return d.as(strings.TrimSpace(d.h.OK(append([]string{"token", "new", name, "--scope", scope}, more...)...)))
}

func (d *door) open(ctx context.Context, method, path, body string) *http.Response {
	d.h.T.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.h.T.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(d.header); i += 2 {
		if d.header[i] == "Host" {
			req.Host = d.header[i+1]
			continue
		}
		req.Header.Set(d.header[i], d.header[i+1])
	}
	resp, err := d.client.Do(req)
	if err != nil {
		d.h.T.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (d *door) ask(method, path, body string) (int, string) {
	d.h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	resp := d.open(ctx, method, path, body)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.h.T.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(b)
}

// refuses asks for something that must not be had.
func (d *door) refuses(what string, status int, code conch.Kind, method, path, body string) {
	d.h.T.Helper()
	got, text := d.ask(method, path, body)
	var e conch.ErrorBody
	if err := json.Unmarshal([]byte(text), &e); err != nil || got != status || e.Error.Code != code {
		d.h.T.Errorf("%s: %s %s: %d %.300s; want %d %s", what, method, path, got, text, status, code)
	}
}

func (d *door) gives(what, method, path, body, want string) {
	d.h.T.Helper()
	if status, text := d.ask(method, path, body); status != 200 || !strings.Contains(text, want) {
		d.h.T.Errorf("%s: %s %s: %d %.300s; want %q", what, method, path, status, text, want)
	}
}

// Off is the default: a daemon opens no port by itself.
func TestNoPortByItself(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	var s map[string]any
	h.JSON(&s, "status", "--json")
	if s["listen"] != nil || s["ui_url"] != nil {
		t.Errorf("status: %v", s)
	}
	if ports := listening(t, h); len(ports) > 0 {
		t.Errorf("the daemon listens at %v", ports)
	}
	network(t, h)
	if ports := listening(t, h); len(ports) != 1 {
		t.Errorf("the daemon listens at %v", ports)
	}
}

// listening gives the TCP ports that the home's daemon listens at, as the kernel has them.
func listening(t *testing.T, h *Home) []string {
	t.Helper()
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	inodes := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.DaemonPID))
	for _, fd := range fds {
		if l, err := os.Readlink(fd); err == nil && strings.HasPrefix(l, "socket:[") {
			inodes[strings.Trim(l[len("socket:"):], "[]")] = true
		}
	}
	if len(inodes) == 0 {
		t.Skip("the system does not show a process's sockets")
	}
	var ports []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			if w := strings.Fields(line); len(w) > 9 && w[3] == "0A" && inodes[w[9]] {
				ports = append(ports, w[1])
			}
		}
	}
	return ports
}

// The whole API is there for who has a token, and nothing for who has none.
func TestNetwork(t *testing.T) {
	h := New(t)
	d := network(t, h)
	x := d.token("ci", "exec")
	x.gives("exec", "POST", "/v1/sessions/me/build/exec?create=1", `{"command":"x=1; echo $((x+1)); exit 3"}`, `"exit_code":3`)
	x.gives("list", "GET", "/v1/sessions", "", `"label":"build"`)
	x.gives("access", "GET", "/v1/access", "", `"via":"token","name":"ci","scopes":["exec"]`)
	if got := h.Exec("build", "echo $PPID"); got.ExitCode == nil || *got.ExitCode != 0 {
		t.Errorf("the session is not the same over the socket: %v", got)
	}

	// Output flows as it comes: the first event is here before the command is told to go on.
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	fifo := filepath.Join(h.Work, "go-on")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]string{"command": "echo first; cat " + fifo})
	resp := x.with("Accept", "text/event-stream").open(ctx, "POST", "/v1/sessions/me/build/exec", string(body))
	defer resp.Body.Close()
	if resp.Header.Get("Conch-Command-Id") == "" || len(resp.Header.Values("Conch-Protocol")) != 1 {
		t.Errorf("headers: %v", resp.Header)
	}
	r := bufio.NewReader(resp.Body)
	wait := func(name, data string) {
		t.Helper()
		for {
			e, ok := readEvent(r)
			if !ok {
				t.Fatalf("no event %s with %s", name, data)
			}
			if e.name == name && strings.Contains(e.data, data) {
				return
			}
		}
	}
	wait("stdout", "first")
	if err := os.WriteFile(fifo, []byte("second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wait("stdout", "second")
	wait("exit", `"exit_code":0`)

	// Input flows too, while the answer is owed.
	var p conch.Process
	if status, text := x.ask("POST", "/v1/sessions/me/build/run", `{"command":"cat"}`); status != 200 || json.Unmarshal([]byte(text), &p) != nil {
		t.Fatalf("run: %d %s", status, text)
	}
	pr, pw := io.Pipe()
	req, _ := http.NewRequestWithContext(ctx, "POST", d.base+"/v1/processes/"+string(p.ProcessID)+"/stdin?close=1", pr)
	req.Header.Set("Authorization", x.header[1])
	done := make(chan string, 1)
	go func() { // ends with the request
		resp, err := d.client.Do(req)
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		done <- resp.Status + " " + string(b)
	}()
	io.WriteString(pw, "one\n")
	x.gives("wait", "POST", "/v1/processes/"+string(p.ProcessID)+"/wait", `{"log":"one","timeout_ms":20000}`, `"reason":"log"`)
	io.WriteString(pw, "two\n")
	pw.Close()
	if got := <-done; !strings.HasPrefix(got, "200") || !strings.Contains(got, `"offset":8`) {
		t.Errorf("stdin: %s", got)
	}
	x.gives("its end", "POST", "/v1/processes/"+string(p.ProcessID)+"/wait", `{"exit":true,"timeout_ms":20000}`, `"reason":"exit"`)
	x.gives("logs", "GET", "/v1/processes/"+string(p.ProcessID)+"/logs", "", "one\ntwo\n")

	// A client that leaves is seen by the keeper: it is no longer at the prompt.
	at, leave := context.WithCancel(ctx)
	att := x.open(at, "GET", "/v1/sessions/me/build/attach?cols=80&rows=24", "")
	defer att.Body.Close()
	attached := func(n int) bool {
		var list []conch.SessionInfo
		h.JSON(&list, "sessions", "--json")
		for _, s := range list {
			if s.Label == "build" {
				return s.Attached == n
			}
		}
		return false
	}
	Until(t, 30*time.Second, "somebody is attached", func() bool { return attached(1) })
	leave()
	Until(t, 30*time.Second, "nobody is attached", func() bool { return attached(0) })
}

// Every call, with every scope that does not allow it, and with no good token at all.
func TestEveryCallIsGuarded(t *testing.T) {
	h := New(t)
	d := network(t, h)
	h.OK("exec", "true")
	who := map[string]*door{}
	for _, scope := range []string{"read", "exec", "mail"} {
		who[scope] = d.token("t-"+scope, scope)
	}
	gone := d.token("gone", "admin")
	h.OK("token", "revoke", "gone")
	late := d.token("late", "admin", "--expires", "1ms")
	fill := strings.NewReplacer("{agent}", "me", "{label}", "main", "{id}", "aaaaaaaa-1", "{message}", "m", "{name}", "me", "{token}", "t-read")
	for _, r := range append(route.Daemon(), route.Session()...) {
		path := fill.Replace(r.Path)
		for what, stranger := range map[string]*door{"no token": d, "a wrong token": d.as("conch_" + strings.Repeat("A", 43)), "a hash": d.as(strings.Repeat("0", 64)),
			"a revoked token": gone, "an expired token": late, "another scheme": d.with("Authorization", "Basic "+gone.header[1][7:])} {
			status, text := stranger.ask(r.Method, path, "")
			if (status != 401 && status != 429) || strings.Contains(text, `"label":"main"`) {
				t.Fatalf("%s: %s %s: %d %s", what, r.Method, path, status, text)
			}
		}
		for scope, m := range who {
			has, _ := route.ParseScope([]string{scope})
			if has.Allows(r.Scope) {
				continue
			}
			m.refuses(scope, 403, conch.PermissionDenied, r.Method, path, "")
		}
	}
	// A good token is let in although its address has failed so often.
	who["read"].gives("read", "GET", "/v1/version", "", `"version"`)
	who["mail"].gives("mail", "POST", "/v1/mail/inbox", `{"session":"main"}`, `"messages":[]`)
	who["read"].refuses("to offer mail is no reading", 403, conch.PermissionDenied, "GET", "/v1/mail/events?session=main", "")
	// Secrets are had on the socket only, whatever the token.
	admin := d.token("boss", "admin")
	for _, c := range [][2]string{{"/v1/tokens", `{"name":"x","scopes":["admin"]}`}, {"/v1/agents/me/export", `{}`}, {"/v1/page", `{}`}, {"/v1/listen", `{"address":":0"}`}} {
		admin.refuses("admin", 403, conch.PermissionDenied, "POST", c[0], c[1])
	}
	admin.gives("admin", "GET", "/v1/tokens", "", `"name":"t-mail"`)
	admin.gives("admin", "POST", "/v1/tokens/t-mail/revoke", "", `"revoked":true`)
	who["mail"].refuses("revoked, and too many", 429, conch.LimitReached, "GET", "/v1/agents", "")
}

// What another site's page makes a browser send is refused, even with a good token.
func TestOtherSites(t *testing.T) {
	h := New(t)
	d := network(t, h)
	x := d.token("ci", "admin")
	port := d.base[strings.LastIndex(d.base, ":"):]
	for what, header := range map[string][]string{
		"rebinding": {"Host", "evil.example" + port}, "rebinding without port": {"Host", "evil.example"}, "another address": {"Host", "10.1.2.3" + port},
		"origin": {"Origin", "https://evil.example"}, "null origin": {"Origin", "null"}, "same host, plain": {"Origin", "http://127.0.0.1" + port},
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"}, "nonsense": {"Sec-Fetch-Site", "x"},
	} {
		for _, method := range []string{"GET", "POST"} {
			x.with(header...).refuses(what, 403, conch.PermissionDenied, method, "/v1/sessions", "")
		}
	}
	for _, header := range [][]string{{"Origin", d.base}, {"Sec-Fetch-Site", "same-origin"}, {"Host", "localhost" + port}, {"Sec-Fetch-Site", "none"}} {
		x.with(header...).gives("its own", "GET", "/v1/version", "", `"version"`)
	}
	resp := x.with("Origin", "https://evil.example", "Access-Control-Request-Method", "POST").open(t.Context(), "OPTIONS", "/v1/sessions", "")
	defer resp.Body.Close()
	for name := range resp.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("CORS: %s", name)
		}
	}
}

// Only TLS 1.3 is spoken, by the certificate whose fingerprint is printed; it is the same
// one after a restart.
func TestCertificate(t *testing.T) {
	h := New(t)
	h.OK("token", "new", "first", "--scope", "read")
	up := h.OK("up", "--listen", "127.0.0.1:0")
	d := network(t, h)
	print := regexp.MustCompile(`SHA256:([0-9A-F]{64})`).FindStringSubmatch(up)
	if print == nil || !strings.Contains(h.OK("status"), print[0]) {
		t.Fatalf("no fingerprint: %s", up)
	}
	conn, err := tls.Dial("tcp", d.base[len("https://"):], &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	state := conn.ConnectionState()
	if sum := sha256.Sum256(state.PeerCertificates[0].Raw); fmt.Sprintf("%X", sum) != print[1] || state.Version != tls.VersionTLS13 {
		t.Errorf("%X, version %x; printed %s", sum, state.Version, print[1])
	}
	if c, err := tls.Dial("tcp", d.base[len("https://"):], &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		c.Close()
		t.Error("TLS 1.2 is spoken")
	}
	if resp, err := http.Get("http" + d.base[len("https"):] + "/v1/version"); err == nil {
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("plain HTTP: %s", resp.Status)
		}
	}
	x := d.token("ci", "read")
	curl := exec.Command("curl", "-sS", "--fail", "--max-time", "30", "--cacert", filepath.Join(h.Path, "tls/cert.pem"), "-H", "@-", d.base+"/v1/version")
	curl.Stdin = strings.NewReader("Authorization: " + x.header[1] + "\n")
	if out, err := curl.CombinedOutput(); err != nil || !strings.Contains(string(out), `"version"`) {
		t.Errorf("curl: %v: %s", err, out)
	}
	h.OK("down")
	again := h.OK("up", "--listen", "127.0.0.1:0")
	if !strings.Contains(again, print[0]) {
		t.Errorf("another certificate after a restart: %s", again)
	}
	if fi, err := os.Stat(filepath.Join(h.Path, "tls/key.pem")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("key: %v %v", fi, err)
	}
	h.OK("down")
	// Its own files, by configuration, which also opens the port at every start.
	for _, name := range []string{"cert.pem", "key.pem"} {
		b, _ := os.ReadFile(filepath.Join(h.Path, "tls", name))
		if err := os.WriteFile(filepath.Join(h.Work, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	os.RemoveAll(filepath.Join(h.Path, "tls"))
	c := h.With("CONCH_LISTEN=127.0.0.1:0", "CONCH_TLS_CERT="+filepath.Join(h.Work, "cert.pem"), "CONCH_TLS_KEY="+filepath.Join(h.Work, "key.pem"))
	if up := c.OK("up"); !strings.Contains(up, print[0]) {
		t.Errorf("configured: %s", up)
	}
	c.OK("down")
	if err := os.Chmod(filepath.Join(h.Work, "key.pem"), 0o640); err != nil {
		t.Fatal(err)
	}
	if o := c.Conch("up"); o.Status != 125 || !strings.Contains(o.Stderr, "can be read by others") || !strings.Contains(o.Stderr, "chmod 600") {
		t.Errorf("a key that others can read: %v", o)
	}
	if o := h.With("CONCH_LISTEN=127.0.0.1:0", "CONCH_TLS_CERT=/nowhere", "CONCH_TLS_KEY=/nowhere").Conch("up"); o.Status != 125 || !strings.Contains(o.Stderr, "/nowhere") {
		t.Errorf("a missing certificate: %v", o)
	}
}

// The network is not served while there is no token: asked for it is an error, configured
// it waits for the first one, and says so.
func TestNoPortWithoutToken(t *testing.T) {
	h := New(t)
	refused := func() {
		t.Helper()
		if o := h.Conch("up", "--listen", "127.0.0.1:0"); o.Status != 125 || !strings.Contains(o.Stderr, "there is no token") || !strings.Contains(o.Stderr, "conch token new") {
			t.Errorf("%v", o)
		}
	}
	refused()
	h.OK("token", "new", "short", "--scope", "read", "--expires", "1ms")
	refused()
	if ports := listening(t, h); len(ports) > 0 {
		t.Errorf("the daemon listens at %v", ports)
	}
	h.OK("down")
	c := h.With("CONCH_LISTEN=127.0.0.1:0")
	c.OK("up")
	var s conch.StatusInfo
	c.JSON(&s, "status", "--json")
	if s.Listen != nil || !strings.Contains(s.ListenError, "no token") || !strings.Contains(c.OK("status"), "no token") {
		t.Errorf("%+v", s)
	}
	if o := c.Conch("doctor"); !strings.Contains(o.Stdout, "there is no token") {
		t.Errorf("%v", o)
	}
	if ports := listening(t, h); len(ports) > 0 {
		t.Errorf("the daemon listens at %v", ports)
	}
	c.OK("token", "new", "ci", "--scope", "read")
	s = conch.StatusInfo{}
	c.JSON(&s, "status", "--json")
	if s.Listen == nil || s.ListenError != "" {
		t.Errorf("with a token: %+v", s)
	}
}

// A token's command does not get another token, nor opens a door: that is for who is
// outside of sessions.
func TestNoTokenFromInside(t *testing.T) {
	h := New(t)
	x := network(t, h).token("ci", "exec")
	for _, line := range []string{
		"token new x --scope admin", "up --listen 127.0.0.1:0", "relay listen 127.0.0.1:0", "relay invite",
	} {
		line = h.Exe + " " + line + " 2>&1"
		body, _ := json.Marshal(map[string]string{"command": "export CONCH_HOME=" + h.Path + "; " + line + "; echo status $?; setsid -w " + line})
		status, text := x.ask("POST", "/v1/sessions/me/ci/exec?create=1", string(body))
		if status != 200 || !strings.Contains(text, "status 125") || strings.Count(text, "runs in a session of conch") < 2 {
			t.Errorf("%s: %d %s", line, status, text)
		}
	}
	if ls := h.OK("token", "ls"); strings.Contains(ls, "admin") {
		t.Errorf("%s", ls)
	}
}

// A token that is taken back ends what is open under it.
func TestRevokedInTheMiddle(t *testing.T) {
	h := New(t)
	d := network(t, h)
	x := d.token("ci", "exec")
	x.gives("exec", "POST", "/v1/sessions/me/main/exec?create=1", `{"command":"true"}`, `"exit_code":0`)
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	resp := x.open(ctx, "GET", "/v1/sessions/me/main/events?live=1", "")
	defer resp.Body.Close()
	h.OK("token", "revoke", "ci")
	io.Copy(io.Discard, resp.Body) // ends
	if ctx.Err() != nil {
		t.Error("the stream goes on")
	}
	y := d.token("short", "exec", "--expires", "2s")
	resp = y.open(ctx, "GET", "/v1/sessions/me/main/events?live=1", "")
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if ctx.Err() != nil {
		t.Error("the stream outlives its token")
	}
}

// Who sends nothing, or a header a byte at a time, keeps nobody out and is dropped.
func TestSlowStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	h := New(t)
	d := network(t, h)
	x := d.token("ci", "read")
	addr := d.base[len("https://"):]
	var slow []net.Conn
	for i := range 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 { // a handshake, and then a header that does not end
			tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			if err := tc.Handshake(); err != nil {
				t.Fatal(err)
			}
			io.WriteString(tc, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A")
			c = tc
		}
		slow = append(slow, c)
	}
	start := time.Now()
	x.gives("meanwhile", "GET", "/v1/version", "", `"version"`)
	for _, c := range slow {
		c.SetReadDeadline(start.Add(40 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("still held after %v", time.Since(start))
		}
	}
	// One address has a limit, and others have room.
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	h.OK("exec", "true") // the socket knows nothing of it
}

// No secret is in a file, a log, or the arguments of a process.
func TestSecretsAreNowhere(t *testing.T) {
	h := New(t)
	d := network(t, h)
	x := d.token("ci", "exec")
	secret := strings.TrimPrefix(x.header[1], "Bearer ")
	link := strings.TrimSpace(h.OK("ui", "--print"))
	code := link[strings.Index(link, "=")+1:]
	p := page(t, h, "")
	x.gives("exec", "POST", "/v1/sessions/me/main/exec?create=1", `{"command":"env; cat /proc/$PPID/cmdline"}`, `"exit_code":0`)
	d.as(secret[:len(secret)-1]).refuses("cut short", 401, conch.Unauthorized, "GET", "/v1/version", "")
	cookie := p.header[1][strings.Index(p.header[1], "=")+1:]
	if len(secret) < 43+6 || len(code) != 43 || len(cookie) != 43 {
		t.Fatalf("%d %d %d characters", len(secret), len(code), len(cookie))
	}
	look := func(where string, b []byte) {
		t.Helper()
		for what, s := range map[string]string{"token": secret[len("conch_"):], "code": code, "cookie": cookie} {
			if bytes.Contains(b, []byte(s[:20])) {
				t.Errorf("%s has the %s", where, what)
			}
		}
	}
	seen := 0
	filepath.WalkDir(h.Path, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			b, _ := os.ReadFile(path)
			look(path, b)
			seen++
		}
		return nil
	})
	b, _ := os.ReadFile(filepath.Join(h.Path, "daemon.log"))
	if seen < 5 || !bytes.Contains(b, []byte("op=refused")) || !bytes.Contains(b, []byte("as=ci")) {
		t.Errorf("looked at %d files; the log: %s", seen, b)
	}
	for _, proc := range h.Processes() {
		look("process "+proc.Args, []byte(proc.Args))
	}
	if fi, err := os.Stat(filepath.Join(h.Path, "access.json")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("access.json: %v %v", fi, err)
	}
}
