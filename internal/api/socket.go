package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tape"
)

const (
	// maxTyped bounds one message of a client.
	maxTyped = 1 << 20
	// typeTime is how long a program may leave what was typed unread. No answer to a
	// ping is read meanwhile, so it is shorter than goneTime.
	typeTime = 5 * time.Second
	// pingTime is how often a client is asked whether it is still there, goneTime how
	// long it may be silent, or take to receive one message. Together they are the 15 s
	// within which a holder that is dead is known to be.
	pingTime = 5 * time.Second
	goneTime = 10 * time.Second
)

// terminal serves a WebSocket by way of the keeper's attach, which it follows, and its
// calls to type and to resize.
func (s *server) terminal(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-WebSocket-Version") != "13" || r.Header.Get("Sec-WebSocket-Key") == "" {
			fail(w, conch.Errorf(conch.InvalidRequest, "a terminal is a WebSocket (RFC 6455), and this request is none").Hint("attach gives it as frames"))
			return
		}
		open, closed, err := s.find(r, route.Route{Name: name, Path: r.URL.Path})
		var sess *session.Session
		if err == nil && closed != nil {
			err = conch.Errorf(conch.ProcessEnded, "process %s ended with its session", r.PathValue("id"))
		}
		if err == nil {
			sess, err = open(r.Context())
		}
		if err != nil {
			fail(w, because(r, err))
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		t := &viewer{s: s, open: open, sess: sess, ctx: ctx, cancel: cancel, mayType: true,
			// The host tells the keeper that the connection is its own for good.
			base: "http://s-terminal.conch/v1/sessions/" + sess.Agent() + "/" + sess.Label()}
		if id := r.PathValue("id"); id != "" {
			t.base, t.process = t.base+"/processes/"+id, true
		}
		if gr, ok := gate.From(r); ok {
			t.mayType = gr.Scope.Allows(route.ScopeExec)
		}
		t.keeper = &http.Client{Transport: &http.Transport{DialContext: t.dial, DisableCompression: true, MaxIdleConnsPerHost: 1}}
		defer t.keeper.CloseIdleConnections()
		// The first look is asked for before the upgrade, so that what is wrong with
		// it is an ordinary answer.
		first, err := t.look(route.Bool(r, "read_only"), r.URL.Query())
		if err != nil {
			fail(w, because(r, err))
			return
		}
		// Whether its origin is ours was looked at by the gate; the unix socket has none.
		t.ws, err = websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			first.end()
			return
		}
		t.ws.SetReadLimit(maxTyped)
		t.serve(first)
	}
}

// A viewer is one WebSocket.
type viewer struct {
	s       *server
	open    opener
	sess    *session.Session
	base    string          // of the keeper's calls about the terminal
	process bool            // it is a process's; else the session's own
	ctx     context.Context // of all that it does
	cancel  context.CancelFunc
	mayType bool
	keeper  *http.Client
	ws      *websocket.Conn
	heard   atomic.Int64 // when the client last gave a sign of life, in Unix nanoseconds

	mu   sync.Mutex // guards sess, and now, which only listen changes
	now  *look
	over chan ended    // the end of a look, unless another took its place
	met  chan struct{} // closed when hello has been said
}

// A look is one following of the keeper's attach, in one role.
type look struct {
	readOnly bool
	body     io.ReadCloser
	cancel   context.CancelFunc
	done     chan struct{} // closed when nobody reads it any more
	size     conch.TerminalSize
}

func (l *look) end() {
	l.cancel()
	l.body.Close()
}

func (l *look) role() string {
	if l.readOnly {
		return conch.Viewer
	}
	return conch.Typist
}

func (t *viewer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for try := 0; ; try++ {
		t.mu.Lock()
		sess := t.sess
		t.mu.Unlock()
		c, err := sess.Dial()
		if err == nil || try == 2 {
			return c, err
		}
		if sess, err = t.open(ctx); err != nil {
			return nil, err
		}
		t.mu.Lock()
		t.sess = sess
		t.mu.Unlock()
	}
}

// look asks the keeper for the terminal.
func (t *viewer) look(readOnly bool, given url.Values) (*look, error) {
	q := url.Values{"skip": {"1"}}
	if readOnly {
		q.Set("read_only", "1")
	}
	for _, name := range []string{"cols", "rows"} {
		if v := given.Get(name); v != "" {
			q.Set(name, v)
		}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	resp, err := t.call(ctx, http.MethodGet, t.base+"/attach?"+q.Encode(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	return &look{readOnly: readOnly, body: resp.Body, cancel: cancel, done: make(chan struct{})}, nil
}

// call makes a call of the keeper's; what is not 200 is an error.
func (t *viewer) call(ctx context.Context, method, address string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := t.keeper.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*conch.Error](err); ok {
			return nil, e
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, conch.Errorf(conch.NotRunning, "the session's keeper ended: %v", err).Retry()
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var b conch.ErrorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&b); err != nil || b.Error.Code == "" {
		return nil, conch.Errorf(conch.Internal, "the keeper answered %s", resp.Status)
	}
	return nil, b.Err()
}

// ended is why a WebSocket is closed.
type ended struct {
	code   websocket.StatusCode
	reason string
}

// serve lasts as long as the WebSocket.
func (t *viewer) serve(first *look) {
	// Its own: a context that ends cuts the connection, without a word.
	ctx, cut := context.WithCancel(context.WithoutCancel(t.ctx))
	defer cut()
	t.over, t.met = make(chan ended, 3), make(chan struct{})
	t.now = first
	var wg sync.WaitGroup
	wg.Go(func() { t.follow(ctx, first, true) }) // ends with the look
	wg.Go(func() { t.listen(ctx, &wg) })         // ends with the connection
	wg.Go(func() { t.ping(ctx) })                // ends with ctx
	var e ended
	select {
	case e = <-t.over:
	case <-t.s.h.Leaving.Done():
		e = ended{websocket.StatusServiceRestart, "the daemon is leaving; come again"}
	case <-t.ctx.Done():
		e = ended{websocket.StatusPolicyViolation, conch.AsError(context.Cause(t.ctx)).Message}
	}
	t.cancel() // first: who waits for the prompt need not wait for the client's goodbye
	// It waits for the client's part for a while, and cuts.
	t.ws.Close(e.code, e.reason[:min(len(e.reason), 120)])
	cut()
	wg.Wait()
}

func (t *viewer) finish(code websocket.StatusCode, format string, args ...any) {
	select {
	case t.over <- ended{code, fmt.Sprintf(format, args...)}:
	default: // others have said why
	}
}

// send writes one message. A client that does not take it is given up.
func (t *viewer) send(ctx context.Context, kind websocket.MessageType, b []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, goneTime)
	defer cancel()
	if err := t.ws.Write(ctx, kind, b); err != nil {
		t.finish(websocket.StatusPolicyViolation, "the client takes nothing: %v", err)
		return false
	}
	return true
}

func (t *viewer) event(ctx context.Context, e conch.TerminalEvent) bool {
	b, err := json.Marshal(e)
	return err == nil && t.send(ctx, websocket.MessageText, b)
}

func (t *viewer) complain(ctx context.Context, err error) {
	e := conch.AsError(err)
	t.event(ctx, conch.TerminalEvent{Type: conch.TerminalError, Code: e.Kind, Message: e.Message, Hint: e.HintText})
}

// follow sends what a look brings, to its end. The first says hello.
func (t *viewer) follow(ctx context.Context, l *look, hello bool) {
	defer close(l.done)
	dec := tape.NewDecoder(l.body)
	redraw := true
	for {
		f, err := dec.Next()
		t.mu.Lock()
		current := t.now == l
		t.mu.Unlock()
		if !current {
			return // another look took its place
		}
		ok := true
		switch {
		case errors.Is(err, io.EOF):
			t.event(ctx, conch.TerminalEvent{Type: conch.TerminalLeft})
			t.finish(websocket.StatusNormalClosure, "left")
			return
		case t.ctx.Err() != nil:
			return
		case err != nil:
			t.finish(websocket.StatusInternalError, "the session's keeper ended; come again")
			return
		case f.Kind == tape.Gap:
			redraw = true
		case f.Kind == tape.Resize:
			if json.Unmarshal(f.Data, &l.size) != nil {
				continue
			}
			e := conch.TerminalEvent{Type: conch.TerminalResize, Cols: l.size.Cols, Rows: l.size.Rows}
			if hello {
				e.Type, e.Role, hello = conch.TerminalHello, l.role(), false
			}
			if ok = t.event(ctx, e); ok && e.Type == conch.TerminalHello {
				close(t.met)
			}
		case f.Kind == tape.Stdout:
			if redraw {
				redraw, ok = false, t.event(ctx, conch.TerminalEvent{Type: conch.TerminalRedraw})
			}
			ok = ok && t.send(ctx, websocket.MessageBinary, f.Data)
		case f.Kind == tape.Exit:
			var res conch.Result
			if json.Unmarshal(f.Data, &res) == nil {
				t.event(ctx, conch.TerminalEvent{Type: conch.TerminalExit, ExitCode: res.ExitCode, Signal: res.Signal})
			}
			t.finish(websocket.StatusNormalClosure, "the process has ended")
			return
		}
		if !ok {
			return
		}
	}
}

// listen takes what the client sends, in order.
func (t *viewer) listen(ctx context.Context, wg *sync.WaitGroup) {
	select {
	case <-t.met: // what is wrong with it is told after hello
	case <-ctx.Done():
		return
	}
	for {
		kind, b, err := t.ws.Read(ctx)
		if err != nil {
			t.finish(websocket.StatusNormalClosure, "gone")
			return
		}
		t.heard.Store(time.Now().UnixNano())
		if kind == websocket.MessageBinary {
			err = t.typed(b)
		} else {
			err = t.told(ctx, b, wg)
		}
		if err != nil && t.ctx.Err() == nil {
			t.complain(ctx, err)
		}
	}
}

func (t *viewer) refuse() error {
	if t.mayType {
		return conch.Errorf(conch.PermissionDenied, "a viewer does not type, and does not decide on the size").Hint(`{"type":"role","role":"typist"} takes over; nothing was done`)
	}
	return conch.Errorf(conch.PermissionDenied, "who may only read does not type").Hint("nothing was done")
}

func (t *viewer) typed(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if t.now.readOnly {
		return t.refuse()
	}
	call := "/attach/stdin"
	if t.process {
		call = "/stdin"
	}
	ctx, cancel := context.WithTimeout(t.ctx, typeTime)
	defer cancel()
	err := t.post(ctx, call, b)
	if errors.Is(err, context.DeadlineExceeded) {
		return conch.Errorf(conch.RequestTimeout, "the program has not read what was typed within %v; some of it may be lost", typeTime)
	}
	return err
}

func (t *viewer) post(ctx context.Context, call string, b []byte) error {
	resp, err := t.call(ctx, http.MethodPost, t.base+call, b)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return err
}

func (t *viewer) told(ctx context.Context, b []byte, wg *sync.WaitGroup) error {
	var c conch.TerminalCommand
	if err := route.Strict(b, &c); err != nil {
		return err
	}
	switch c.Type {
	case "resize":
		if t.now.readOnly {
			return t.refuse()
		}
		call := "/attach/resize"
		if t.process {
			call = "/resize"
		}
		b, _ := json.Marshal(conch.TerminalSize{Cols: c.Cols, Rows: c.Rows})
		return t.post(t.ctx, call, b)
	case conch.TerminalRole:
		return t.become(ctx, c.Role, wg)
	}
	return conch.Errorf(conch.InvalidRequest, "%.40q is no command of a terminal's client", c.Type).Hint("resize and role are; what is typed is a binary message")
}

// become changes the role: another look takes the place of this one, which ends only
// then, so that a typist's place is never empty in between.
func (t *viewer) become(ctx context.Context, role string, wg *sync.WaitGroup) error {
	switch {
	case role != conch.Viewer && role != conch.Typist:
		return conch.Errorf(conch.InvalidRequest, "%.40q is no role", role).Hint("%s or %s", conch.Viewer, conch.Typist)
	case role == conch.Typist && !t.mayType:
		return t.refuse()
	case role == t.now.role():
		t.event(ctx, conch.TerminalEvent{Type: conch.TerminalRole, Role: role})
		return nil
	}
	next, err := t.look(role == conch.Viewer, nil)
	if err != nil {
		return err
	}
	t.mu.Lock()
	old := t.now
	t.now = next
	t.mu.Unlock()
	old.end()
	<-old.done // its last message goes before the new one's first
	if !t.event(ctx, conch.TerminalEvent{Type: conch.TerminalRole, Role: role}) {
		close(next.done)
		return nil
	}
	wg.Go(func() { t.follow(ctx, next, false) }) // ends with the look
	return nil
}

// ping finds out whether the client is still there. What it sends shows that too: its
// answers stand behind it.
func (t *viewer) ping(ctx context.Context) {
	t.heard.Store(time.Now().UnixNano())
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(ctx, pingTime)
		err := t.ws.Ping(one)
		cancel()
		if err == nil {
			t.heard.Store(time.Now().UnixNano())
		} else if time.Since(time.Unix(0, t.heard.Load())) >= goneTime {
			t.finish(websocket.StatusPolicyViolation, "no answer to a ping within %v", goneTime)
			return
		}
	}
}
