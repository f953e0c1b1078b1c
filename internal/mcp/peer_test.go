package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

func TestMain(m *testing.M) { conchtest.Main(m) }

// The revisions of the protocol with and without a handshake.
const (
	withInitialize    = "2025-06-18"
	withoutInitialize = "2026-07-28"
)

// A peer is the SDK's own client on a real `conch mcp`.
type peer struct {
	*sdk.ClientSession
	t   testing.TB
	cmd *exec.Cmd

	mu       sync.Mutex // guards what follows
	progress []*sdk.ProgressNotificationParams
	updated  map[string]int
}

// connect starts a server as a harness would. It is ended with the test, and must then
// have ended by itself.
func connect(h *conchtest.Home, revision string, args ...string) *peer {
	h.T.Helper()
	return connectAs(h, "codex-test", revision, args...)
}

func connectAs(h *conchtest.Home, name, revision string, args ...string) *peer {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*conchtest.Limit) // of all calls
	h.T.Cleanup(cancel)
	p := &peer{t: h.T, cmd: h.Cmd(ctx, append([]string{"mcp"}, args...)...), updated: map[string]int{}}
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	c := sdk.NewClient(&sdk.Implementation{Name: name, Version: "1"}, &sdk.ClientOptions{
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
	var err error
	p.ClientSession, err = c.Connect(ctx, &sdk.CommandTransport{Command: p.cmd}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		h.T.Fatalf("%v; stderr %q", err, stderr.String())
	}
	if got := p.InitializeResult().ProtocolVersion; got != revision {
		h.T.Fatalf("negotiated %s, want %s", got, revision)
	}
	h.T.Cleanup(func() {
		p.Close()
		if s := stderr.String(); s != "" {
			h.T.Errorf("the server wrote to stderr: %s", s)
		}
	})
	return p
}

// result is a tool's answer as a test looks at it.
type result struct {
	text string
	raw  []byte
	*sdk.CallToolResult
}

type args = map[string]any

// try calls a tool; only the protocol must work.
func (p *peer) try(tool string, a args) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*conchtest.Limit)
	defer cancel()
	r, err := p.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		p.t.Fatalf("%s %v: %v", tool, a, err)
	}
	out := result{CallToolResult: r}
	if len(r.Content) != 1 {
		p.t.Fatalf("%s gave %d contents", tool, len(r.Content))
	}
	out.text = r.Content[0].(*sdk.TextContent).Text
	if out.raw, err = json.Marshal(r.StructuredContent); err != nil {
		p.t.Fatal(err)
	}
	return out
}

// ok calls a tool, which must succeed, and decodes the structured result into v.
func (p *peer) ok(v any, tool string, a args) result {
	p.t.Helper()
	r := p.try(tool, a)
	if r.IsError {
		p.t.Fatalf("%s %v: %s", tool, a, r.text)
	}
	if v != nil {
		if err := json.Unmarshal(r.raw, v); err != nil {
			p.t.Fatalf("%s: %v in %s", tool, err, r.raw)
		}
	}
	return r
}

// exec runs a command in the peer's own session.
func (p *peer) exec(text string) (conch.Result, result) {
	p.t.Helper()
	var r conch.Result
	out := p.ok(&r, "shell_exec", args{"command": text})
	return r, out
}

// fails calls a tool, which must give an error of a kind, with a hint.
func (p *peer) fails(kind conch.Kind, tool string, a args) result {
	p.t.Helper()
	r := p.try(tool, a)
	var body conch.ErrorBody
	if err := json.Unmarshal(r.raw, &body); err != nil || !r.IsError || body.Error.Code != kind {
		p.t.Fatalf("%s %v: %s (structured %s), want %s", tool, a, r.text, r.raw, kind)
	}
	if !strings.HasPrefix(r.text, "error "+string(kind)+": ") || body.Error.Hint == "" || !strings.Contains(r.text, "\nhint: ") {
		p.t.Errorf("%s %v: says %q, which does not tell what to do", tool, a, r.text)
	}
	return r
}

// pages is what the notifications of progress said so far.
func (p *peer) told() []*sdk.ProgressNotificationParams {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*sdk.ProgressNotificationParams(nil), p.progress...)
}

func (p *peer) rings(uri string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.updated[uri]
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	conchtest.Until(t, 20*time.Second, what, ok)
}

// has fails a test whose text lacks something.
func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in %q", p, text)
		}
	}
}
