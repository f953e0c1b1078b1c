package mcp_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

// A bearer adds a token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// overHTTP is the SDK's own client on the daemon of a home, with a token. query is what
// its address has.
func overHTTP(h *conchtest.Home, revision, token, query string) *peer {
	h.T.Helper()
	p := &peer{t: h.T, updated: map[string]int{}}
	c := sdk.NewClient(&sdk.Implementation{Name: "codex-test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.progress = append(p.progress, req.Params)
		},
		ResourceUpdatedHandler: func(_ context.Context, req *sdk.ResourceUpdatedNotificationRequest) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.updated[req.Params.URI]++
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), conchtest.Limit)
	h.T.Cleanup(cancel)
	var err error
	p.ClientSession, err = c.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: listening(h) + "/mcp" + query, HTTPClient: httpClient(h, token)}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		h.T.Fatal(err)
	}
	if got := p.InitializeResult().ProtocolVersion; got != revision {
		h.T.Fatalf("negotiated %s, want %s", got, revision)
	}
	h.T.Cleanup(func() { p.Close() })
	return p
}

func httpClient(h *conchtest.Home, token string) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	h.T.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: bearer{token, tr}}
}

// listening has the daemon serve the network, and gives its address.
func listening(h *conchtest.Home) string {
	h.T.Helper()
	h.Conch("token", "new", "first", "--scope", "read") // without one it does not open; made once
	h.OK("up", "--listen", "127.0.0.1:0")
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	return s.Listen.URL
}

func newToken(h *conchtest.Home, name, scope string) string {
	h.T.Helper()
	return strings.TrimSpace(h.OK("token", "new", name, "--scope", scope))
}

// Tools work over HTTP in both eras of the protocol, at one address.
func TestHTTP(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{withInitialize, "2025-11-25", withoutInitialize} {
		t.Run(revision, func(t *testing.T) {
			h := conchtest.New(t)
			token := newToken(h, "robot", "exec,mail")
			p := overHTTP(h, revision, token, "")
			if i := p.whoami(); i.Agent != "me" || i.Label != "robot" {
				t.Errorf("%+v", i)
			}
			p.exec("cd /tmp; X=1")
			if r, _ := p.exec("echo $PWD $X"); r.Stdout != "/tmp 1\n" {
				t.Errorf("%q", r.Stdout)
			}
			// The same session, from the command line.
			if r := h.Exec("robot", "echo $X"); r.Stdout != "1\n" {
				t.Errorf("%q", r.Stdout)
			}
			p.fails(conch.SessionNotFound, "shell_exec", args{"command": "true", "session": "nosuch"})
			p.ok(nil, "shell_exec", args{"command": "true", "session": "new:other"})

			// Progress comes while the command runs.
			ctx, cancel := context.WithTimeout(t.Context(), conchtest.Limit)
			defer cancel()
			params := &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "echo early; read -t 20 < gate; echo late", "cwd": h.Work}}
			params.SetProgressToken("p1")
			if err := os.WriteFile(h.Work+"/gate.sh", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.Exec("other", "mkfifo "+h.Work+"/gate")
			done := make(chan *sdk.CallToolResult, 1)
			go func() { // ends with the call
				r, err := p.CallTool(ctx, params)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			until(t, "progress tells of output", func() bool {
				for _, n := range p.told() {
					if strings.Contains(n.Message, "early") {
						return true
					}
				}
				return false
			})
			h.Exec("other", "echo go > "+h.Work+"/gate")
			if r := <-done; r == nil || r.IsError || !strings.Contains(r.Content[0].(*sdk.TextContent).Text, "late") {
				t.Errorf("%+v", r)
			}

			// Mail finds the session, and a result tells of it.
			h.OK("send", "robot", "the build is red")
			until(t, "a result tells of mail", func() bool {
				_, out := p.exec("true")
				return strings.Contains(out.text, "1 message waiting")
			})
			var box struct{ Messages []conch.InboxEntry }
			p.ok(&box, "inbox", args{})
			if len(box.Messages) != 1 || body(t, box.Messages[0]) != "the build is red" {
				t.Errorf("%+v", box)
			}
			p.ok(nil, "ack", args{"ids": []string{box.Messages[0].ID}})

			// A cancelled call ends its command.
			cctx, stop := context.WithCancel(ctx)
			called := make(chan struct{})
			go func() { // ends with the call
				defer close(called)
				p.CallTool(cctx, &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "echo begun > " + h.Work + "/begun; sleep 1000"}})
			}()
			until(t, "the command runs", func() bool { _, err := os.Stat(h.Work + "/begun"); return err == nil })
			stop()
			<-called
			until(t, "the command is interrupted", func() bool {
				var list []conch.HistoryEntry
				h.JSON(&list, "history", "-s", "robot", "--json")
				last := list[len(list)-1]
				return strings.Contains(last.Command, "sleep 1000") && last.Status == conch.StatusDone
			})

			// Another client of the same token is the same caller; with a label it is another.
			if i := overHTTP(h, revision, token, "").whoami(); i.Label != "robot" {
				t.Errorf("a second connection is %s", i.Label)
			}
			if i := overHTTP(h, revision, token, "?session=side").whoami(); i.Label != "side" {
				t.Errorf("with a label: %s", i.Label)
			}
			p.ok(nil, "use", args{"label": "renamed"})
			if i := p.whoami(); i.Label != "renamed" {
				t.Errorf("after use: %s", i.Label)
			}
		})
	}
}

// Each token is a holder of its own: what one holds no other gets, nor a server on stdio.
func TestHTTPHolders(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	one, two := newToken(h, "one", "mail"), newToken(h, "two", "admin")
	for _, remember := range []bool{true, false} {
		a, b := overHTTP(h, withInitialize, one, ""), overHTTP(h, withoutInitialize, two, "")
		use := args{"label": fmt.Sprintf("held-%v", remember), "remember": remember}
		a.ok(nil, "use", use)
		b.fails(conch.LabelTaken, "use", use)
		connect(h, withInitialize).fails(conch.LabelTaken, "use", use)
		if i := b.whoami(); i.Label != "two" {
			t.Errorf("who was refused is %s", i.Label)
		}
		h.OK("send", "-s", "main", use["label"].(string), "for one alone")
		has(t, a.ok(nil, "inbox", args{}).text, "for one alone")
		if r := b.ok(nil, "inbox", args{}); strings.Contains(r.text, "for one alone") {
			t.Errorf("the other token reads it: %s", r.text)
		}
		// All that come with one token are one holder.
		if i := overHTTP(h, withoutInitialize, one, "").whoami(); i.Label != use["label"] {
			t.Errorf("the same token again is %s", i.Label)
		}
	}
	p := connect(h, withInitialize, "-s", "desk")
	p.whoami()
	overHTTP(h, withInitialize, two, "").fails(conch.LabelTaken, "use", args{"label": "desk"})
}

// A scope decides what is offered, and what is not offered cannot be called.
func TestHTTPScopes(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	h.OK("exec", "echo seen")
	for scope, want := range map[string]string{
		"read":  "sessions shell_output shell_screen whoami",
		"exec":  "sessions shell_exec shell_input shell_output shell_screen shell_signal shell_start shell_wait use whoami",
		"mail":  "ack ask await_reply contacts inbox send use whoami",
		"admin": "ack ask await_reply contacts inbox send sessions shell_exec shell_input shell_output shell_screen shell_signal shell_start shell_wait use whoami",
	} {
		p := overHTTP(h, withoutInitialize, newToken(h, "t-"+scope, scope), "")
		list, err := p.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(sorted(names), " "); got != want {
			t.Errorf("%s is offered %s, want %s", scope, got, want)
		}
		if i := p.whoami(); i.Label != "t-"+scope {
			t.Errorf("%s: %+v", scope, i)
		}
		for tool, a := range map[string]args{"shell_exec": {"command": "touch " + h.Work + "/" + scope}, "send": {"to": "main", "text": scope}, "shell_output": {"id": "main"}} {
			_, err := p.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: a})
			if offered := strings.Contains(" "+want+" ", " "+tool+" "); offered != (err == nil) {
				t.Errorf("%s calls %s: %v", scope, tool, err)
			}
		}
		_, ran := os.Stat(h.Work + "/" + scope)
		if may := scope == "exec" || scope == "admin"; may != (ran == nil) {
			t.Errorf("%s ran a command: %v", scope, ran)
		}
		res, err := p.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(res)
		if strings.Contains(string(b), "conch://session/") != (scope != "mail") || strings.Contains(string(b), "conch://inbox") != (scope == "mail" || scope == "admin") {
			t.Errorf("%s is shown %s", scope, b)
		}
		if _, err := p.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "conch://session/me/main/transcript"}); (err == nil) != (scope != "mail") {
			t.Errorf("%s reads a transcript: %v", scope, err)
		}
		if _, err := p.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "conch://inbox"}); (err == nil) != (scope == "mail" || scope == "admin") {
			t.Errorf("%s reads its inbox: %v", scope, err)
		}
	}
	// Who may not have mail is not live for it.
	var list []conch.SessionInfo
	h.JSON(&list, "sessions", "--json")
	for _, s := range list {
		if s.Live && (s.Label == "t-read" || s.Label == "t-exec") {
			t.Errorf("%s is live", s.Label)
		}
	}
}

// Nobody without a good token, no page, and no session of another's token.
func TestHTTPStrangers(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	token, other := newToken(h, "robot", "exec"), newToken(h, "other", "read")
	base := listening(h)
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	ask := func(token, path, body string, header ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest("POST", base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := httpClient(h, token).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	for what, c := range map[string]struct {
		token, path string
		header      []string
		status      int
	}{
		"a wrong token": {"conch_x", "/mcp", nil, 401}, "no token": {"", "/mcp", nil, 401},
		"another origin": {token, "/mcp", []string{"Origin", "https://evil.example"}, 403}, "a parameter": {token, "/mcp?x=1", nil, 400},
		"a label": {token, "/mcp?session=a%20b", nil, 400}, "an agent": {token, "/mcp?agent=A", nil, 400}, "another path": {token, "/mcp/x", nil, 404},
	} {
		if resp, body := ask(c.token, c.path, hello, c.header...); resp.StatusCode != c.status || !strings.Contains(body, `{"error":`) {
			t.Errorf("%s: %s %s", what, resp.Status, body)
		}
	}
	resp, body := ask(token, "/mcp", hello)
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != 200 || id == "" {
		t.Fatalf("%s %s", resp.Status, body)
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"echo mine"}}}`
	if resp, body := ask(other, "/mcp", call, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-06-18"); resp.StatusCode != 404 || strings.Contains(body, "mine") {
		t.Errorf("another's session: %s %s", resp.Status, body)
	}
	if resp, body := ask(token, "/mcp", call, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-06-18"); resp.StatusCode != 200 || !strings.Contains(body, "mine") {
		t.Errorf("its own session: %s %s", resp.Status, body)
	}
	h.OK("token", "revoke", "robot")
	if resp, _ := ask(token, "/mcp", call, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-06-18"); resp.StatusCode != 401 {
		t.Errorf("after the token was taken back: %s", resp.Status)
	}
}

// A daemon that leaves in the middle of a call leaves the command running, and the
// next one gives the caller its label again.
func TestHTTPRestart(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t).With("CONCH_LISTEN=127.0.0.1:0")
	token := newToken(h, "robot", "exec,mail")
	for _, revision := range []string{withInitialize, withoutInitialize} {
		p := overHTTP(h, revision, token, "")
		p.exec("true")
		mark := h.Work + "/begun-" + revision
		done := make(chan struct{})
		go func() { // ends with the daemon
			defer close(done)
			p.CallTool(t.Context(), &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "touch " + mark + "; sleep 1.5; echo went on > " + mark}})
		}()
		until(t, "the command runs", func() bool { _, err := os.Stat(mark); return err == nil })
		h.OK("down")
		<-done
		until(t, "the command has gone on", func() bool { b, _ := os.ReadFile(mark); return string(b) == "went on\n" })
		if i := overHTTP(h, revision, token, "").whoami(); i.Label != "robot" {
			t.Errorf("the label is %s", i.Label)
		}
	}
}
