package mcp_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/conchtest"
	"github.com/conchsh/conch/internal/mcp"
)

// serveInside runs the server in this process, where the race detector sees it.
func serveInside(t *testing.T, h *conchtest.Home) (p *peer, served chan error) {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served = make(chan error, 1)
	go func() {
		served <- mcp.Serve(t.Context(), mcp.Options{
			Version: "test", HarnessSession: "inside", In: in, Out: out,
			Client: client.Options{Home: h.Path, Exe: h.Exe, Cwd: h.Work, Agent: "me"},
		})
		out.Close()
	}()
	p = &peer{t: t, updated: map[string]int{}}
	c := sdk.NewClient(&sdk.Implementation{Name: "inside", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) {},
		ResourceUpdatedHandler:      func(context.Context, *sdk.ResourceUpdatedNotificationRequest) {},
	})
	var err error
	p.ClientSession, err = c.Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, served
}

// Everything at once: calls with and without progress, calls that are cancelled at any
// moment, labels that change, subscriptions. Nothing is mixed up, and the end is an end.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p, served := serveInside(t, h)
	p.exec("true")
	const uri = "conch://session/me/inside:1/transcript"
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			ctx := t.Context()
			switch i % 6 {
			case 0, 1: // with progress
				params := &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": fmt.Sprintf("seq 3000 >/dev/null; echo %d; echo e >&2", i), "session": "inside:1"}}
				params.SetProgressToken(i)
				r, err := p.CallTool(ctx, params)
				if err != nil || r.IsError || !strings.HasSuffix(text(r), fmt.Sprintf("\n%d\n--- stderr ---\ne\n", i)) {
					t.Errorf("%d: %v %s", i, err, text(r))
				}
			case 2: // cancelled, at another moment each
				ctx, cancel := context.WithTimeout(ctx, time.Duration(i*i)*100*time.Microsecond)
				defer cancel()
				p.CallTool(ctx, &sdk.CallToolParams{Name: "shell_exec", Arguments: args{"command": "sleep 200", "session": "inside:1"}})
			case 3:
				if err := p.Subscribe(ctx, &sdk.SubscribeParams{URI: uri}); err != nil {
					t.Error(err)
				}
				p.Unsubscribe(ctx, &sdk.UnsubscribeParams{URI: uri})
			case 4:
				if r := p.try("use", args{"label": fmt.Sprintf("l%d", i)}); r.IsError {
					t.Error(r.text)
				}
			case 5:
				if r := p.try("sessions", nil); r.IsError {
					t.Error(r.text)
				}
				if r := p.try("whoami", nil); r.IsError {
					t.Error(r.text)
				}
			}
		})
	}
	wg.Wait()
	// What was cancelled has ended: this one has its turn.
	if r := p.try("shell_exec", args{"command": "echo last", "session": "inside:1"}); r.IsError || !strings.HasSuffix(r.text, "\nlast\n") {
		t.Error(r.text)
	}
	p.Close()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(conchtest.Limit):
		t.Error("the server does not end")
	}
}

func text(r *sdk.CallToolResult) string {
	if r == nil || len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].(*sdk.TextContent).Text
}
