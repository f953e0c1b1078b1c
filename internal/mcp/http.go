package mcp

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// The revision of the protocol that has no sessions of its own; dates compare as text.
const sessionless = "2026-07-28"

const (
	// callerIdle is how long a caller without a request keeps its label.
	callerIdle = 2 * time.Minute
	// sessionIdle is how long a session of the older protocol is kept.
	sessionIdle = 10 * time.Minute
	maxCallers  = 200
)

// HTTPOptions say whom to serve over HTTP.
type HTTPOptions struct {
	Version string
	// Client is how to reach the daemon, which must run.
	Client client.Options
	// Agent is whose sessions are meant where a caller names none.
	Agent func() (string, error)
	// Caller says as whom a request was let in, and its scopes; ok is false for
	// one that may not come here.
	Caller func(*http.Request) (name string, scopes []string, ok bool)
	// Fail writes an error.
	Fail func(http.ResponseWriter, error)
}

// HTTP serves the Model Context Protocol over streamable HTTP, at one address for both
// of its eras: requests say by their header whether they know sessions of the protocol.
//
// Nothing hangs on such a session. The caller is the token: it has a name, which is the
// label of its own session unless the address has ?session=LABEL (and ?agent=NAME).
// All that come with the same token and label are one caller, with one label and one
// presence, which lasts two minutes longer than its last request. Each caller has
// handlers of its own, so that a protocol's session is of no use to another's token.
type HTTP struct {
	o HTTPOptions

	mu      sync.Mutex // guards what follows
	callers map[string]*caller
	closed  bool
}

type caller struct {
	*Server
	old, new http.Handler
	open     int // requests under way
	idle     *time.Timer
}

// NewHTTP makes the handler. Close ends it.
func NewHTTP(o HTTPOptions) *HTTP { return &HTTP{o: o, callers: map[string]*caller{}} }

// ServeHTTP implements http.Handler.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, o, err := h.who(r)
	var c *caller
	if err == nil {
		c, err = h.enter(key, o)
	}
	if err != nil {
		h.o.Fail(w, err)
		return
	}
	defer h.leave(key, c)
	if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
		c.new.ServeHTTP(w, r)
	} else {
		c.old.ServeHTTP(w, r)
	}
}

// who reads from a request who calls.
func (h *HTTP) who(r *http.Request) (key string, o Options, err error) {
	name, scopes, ok := h.o.Caller(r)
	if !ok {
		return "", o, conch.Errorf(conch.PermissionDenied, "tools over HTTP are for those who have a token").Hint("conch mcp serves them on stdin and stdout")
	}
	q := r.URL.Query()
	for param := range q {
		if param != "session" && param != "agent" {
			return "", o, conch.Errorf(conch.InvalidRequest, "/mcp takes no parameter %q", param).Hint("it takes agent, session")
		}
	}
	o = Options{Version: h.o.Version, Client: h.o.Client, Session: q.Get("session"), Harness: harnessName(name), Scopes: scopes}
	o.Client.NoStart = true
	if o.Client.Agent = q.Get("agent"); o.Client.Agent == "" {
		if o.Client.Agent, err = h.o.Agent(); err != nil {
			return "", o, err
		}
	}
	if o.Session == "" {
		o.Session = name
	}
	if o.Harness == "" {
		o.Harness = "agent"
	}
	if err = conch.CheckAgent(o.Client.Agent); err == nil {
		err = conch.CheckLabel(o.Session)
	}
	// By this it gets its label again after a restart.
	o.HarnessSession = "token:" + name + "/" + o.Session
	return strings.Join(append(slices.Clone(scopes), name, o.Client.Agent, o.Session), " "), o, err
}

// enter gives the caller of a key, which is made if it is new.
func (h *HTTP) enter(key string, o Options) (*caller, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, conch.Errorf(conch.NotRunning, "the daemon is leaving").Retry()
	}
	c := h.callers[key]
	if c == nil {
		if len(h.callers) >= maxCallers {
			return nil, conch.Errorf(conch.LimitReached, "%d callers are being served, which is the limit", maxCallers).Hint("each is kept for %v after its last request", callerIdle).Retry()
		}
		c = &caller{Server: newServer(o)}
		get := func(*http.Request) *sdk.Server { return c.sdk }
		// Who may come in, by which name and from which page, is settled before.
		c.old = sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true,
		})
		// In this era to end the request is how a client cancels a call.
		c.new = sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			Stateless: true, MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true, PropagateRequestCancellation: true,
		})
		h.callers[key] = c
	}
	c.open++
	if c.idle != nil {
		c.idle.Stop()
	}
	return c, nil
}

func (h *HTTP) leave(key string, c *caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.open--; c.open == 0 && !h.closed {
		c.idle = time.AfterFunc(callerIdle, func() { h.forget(key, c) })
	}
}

// forget ends a caller that has not come again.
func (h *HTTP) forget(key string, c *caller) {
	h.mu.Lock()
	if c.open > 0 || h.closed || h.callers[key] != c {
		h.mu.Unlock()
		return
	}
	delete(h.callers, key)
	h.mu.Unlock()
	c.end()
}

// end gives the label back. What was started runs on.
func (c *caller) end() {
	c.Server.leave()
	closed := make(chan struct{})
	go func() { // ends with the last call; those that only listen end with their connection
		defer close(closed)
		for s := range c.sdk.Sessions() {
			s.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(drain):
	}
	c.release()
	for _, cl := range []*client.Client{c.client, c.maker, c.quiet} {
		cl.CloseIdle()
	}
}

// Close ends all callers; calls under way are told that their commands run on.
func (h *HTTP) Close() {
	h.mu.Lock()
	h.closed = true
	list := h.callers
	h.callers = nil
	h.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range list {
		wg.Go(c.end)
	}
	wg.Wait()
}
