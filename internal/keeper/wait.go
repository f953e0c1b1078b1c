package keeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
)

// settleAfter is how long a match at the very end of what was written is left to grow.
const settleAfter = 60 * time.Millisecond

// postWait answers when the first of several things happens to a process: one request
// that blocks, whatever it is for.
func (k *Keeper) postWait(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	var q conch.WaitRequest
	if err := route.Decode(w, r, route.MaxBody, true, &q); err != nil {
		sendError(w, err)
		return
	}
	m, err := logs.CheckWait(&q)
	if err != nil {
		sendError(w, err)
		return
	}
	e, live, err := k.findProcess(conch.ProcessID(r.PathValue("id")))
	if err == nil {
		err = k.noNetwork(q)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	var res conch.WaitResult
	if live == nil && (q.Port > 0 || q.HTTP != "") && len(k.treeOf(e.N)) > 0 {
		live = leftover(e) // a server that went into the background by itself
	}
	if live != nil {
		res, err = k.waitFor(ctx, live, q, m)
	} else {
		rd, next := k.frames(e, e.To)
		defer rd.Close()
		res, err = logs.Past(q, m, next)
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		res.Process, err = k.process(e.N)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	res.Elapsed = float64(time.Since(begun)) / 1e6
	sendJSON(w, res)
}

// waitFor waits for a process that runs, or did a moment ago.
func (k *Keeper) waitFor(ctx context.Context, p *process, q conch.WaitRequest, m *logs.Matcher) (conch.WaitResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var deadline, idle, settle <-chan time.Time
	if q.TimeoutMS > 0 {
		t := time.NewTimer(time.Duration(q.TimeoutMS) * time.Millisecond)
		defer t.Stop()
		deadline = t.C
	}
	quiet := time.Duration(q.IdleMS) * time.Millisecond
	if quiet > 0 {
		idle = time.After(k.quietFor(p, quiet))
	}
	seen := &observation{}
	reached := make(chan string, 2) // port and http, once each
	if q.Port > 0 {
		go probe(ctx, func(ctx context.Context) bool { return k.tryPort(ctx, p, q.Port, seen) }, conch.WaitPort, reached)
	}
	if q.HTTP != "" {
		get := newProbeClient()
		defer get.CloseIdleConnections()
		go probe(ctx, func(ctx context.Context) bool { return k.tryHTTP(ctx, p, get, q, seen) }, conch.WaitHTTP, reached)
	}
	done := func(reason string) (conch.WaitResult, error) {
		return conch.WaitResult{Reason: reason, Detail: seen.last()}, nil
	}
	var next func() (tape.Frame, error)
	var moved chan error
	var rd *tape.Reader
	if m != nil {
		rd, next = k.frames(*p.entry, tape.Cursor{})
		defer rd.Close()
	}
	var last tape.Frame
	exited := false
	over := p.done // nil while only what it left is waited for
	var linger <-chan time.Time
	for {
		if m != nil && moved == nil {
			f, err := next()
			switch {
			case err == nil && f.Kind == tape.Exit:
				exited = true // what it left may have written since: read on
				continue
			case errors.Is(err, io.EOF) && exited:
				if got, ok := m.End(last); ok {
					return conch.WaitResult{Reason: conch.WaitLog, Match: got}, nil
				}
				m = nil // it will not come any more
			case err == nil:
				last = f
				if got, ok := m.Add(f); ok {
					return conch.WaitResult{Reason: conch.WaitLog, Match: got}, nil
				}
				select {
				case <-deadline: // while there is always more to read
					return done(conch.WaitTimeout)
				case <-ctx.Done():
					return conch.WaitResult{}, ctx.Err()
				default:
				}
				continue
			case errors.Is(err, io.EOF):
				moved = make(chan error, 1)
				go func(at tape.Cursor, moved chan error) { moved <- k.waitTape(ctx, p.command, at) }(rd.Cursor(), moved) // ends with ctx
				settle = nil
				if m.Pending() {
					settle = time.After(settleAfter)
				}
			default:
				return conch.WaitResult{}, err
			}
		}
		ended := over
		if m != nil {
			select {
			case <-p.done:
				// Its end is on the tape, behind what it wrote, and wakes us there.
				if p.failed != nil {
					return conch.WaitResult{}, p.failed
				}
				ended = nil
			default:
			}
		}
		select {
		case <-ended:
			if m != nil {
				continue
			}
			select {
			case reason := <-reached: // it came before the end
				return done(reason)
			default:
			}
			if q.Exit {
				return conch.WaitResult{Reason: conch.WaitExit}, nil
			}
			if (q.Port > 0 || q.HTTP != "") && len(k.treeOf(p.n)) > 0 {
				over = nil // what it left may be the server
				linger = time.After(200 * time.Millisecond)
				continue
			}
			return done(conch.WaitEnded)
		case <-linger:
			over = p.done
		case <-moved:
			moved = nil
		case <-settle:
			return conch.WaitResult{Reason: conch.WaitLog, Match: m.Settle()}, nil
		case reason := <-reached:
			return done(reason)
		case <-idle:
			if left := k.quietFor(p, quiet); left > 0 {
				idle = time.After(left)
				continue
			}
			return done(conch.WaitIdle)
		case <-deadline:
			return done(conch.WaitTimeout)
		case <-ctx.Done():
			return conch.WaitResult{}, ctx.Err()
		}
	}
}

// leftover stands for a process that has ended and left others behind.
func leftover(e history.Entry) *process {
	p := &process{command: &command{n: e.N, entry: &e, done: make(chan struct{})}, lastOut: e.Ended}
	close(p.done)
	if t := ticks(); t > 0 { // in the kernel's count, for who was there before
		p.self = proc.ID{PID: e.Process.PID, Start: t - uint64(time.Since(e.Started)/(time.Second/100))}
	}
	return p
}

// quietFor is how much longer a process must be quiet to have been so for d.
func (k *Keeper) quietFor(p *process, d time.Duration) (left time.Duration) {
	k.do(func() { left = d - time.Since(p.lastOut) })
	return max(0, left)
}

// probe tries until it succeeds; there is nothing that could wake it. It ends with ctx.
func probe(ctx context.Context, try func(context.Context) bool, reason string, reached chan<- string) {
	for pause := 10 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok := try(one)
		cancel()
		if ok {
			reached <- reason
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// tryPort connects to a port of this machine.
func (k *Keeper) tryPort(ctx context.Context, p *process, port int, seen *observation) bool {
	if k.noReach() {
		ids, _ := proc.Listeners(k.network(), port)
		if k.owns(p, ids) != 0 {
			return k.ours(p, port, seen)
		}
		seen.set("port %d: nothing of the process listens on it", port)
		return false
	}
	var d net.Dialer
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			c.Close()
			return k.ours(p, port, seen)
		}
	}
	// It may listen on another address of this machine only.
	if ids, _ := proc.Listeners(k.network(), port); k.owns(p, ids) != 0 {
		return k.ours(p, port, seen)
	}
	seen.set("port %d: %v", port, err)
	return false
}

// owns gives the one of ids that is of the process's tree, or 0.
func (k *Keeper) owns(p *process, ids []proc.ID) int {
	for _, id := range ids {
		if m, ok := proc.MarkOf(id.PID); ok && m == proc.MakeMark(k.mark, p.n) {
			return id.PID
		}
	}
	return 0
}

// ours reports whether a port that answers can be the process's doing. A listener that
// was there before it and is not of its tree is somebody else's: to take that for the
// process would be to report a server that has not started.
func (k *Keeper) ours(p *process, port int, seen *observation) bool {
	ids, all := proc.Listeners(k.network(), port)
	if pid := k.owns(p, ids); pid != 0 {
		seen.set("port %d is listened on by process %d", port, pid)
		return true
	}
	for _, id := range ids {
		if id.Start > p.self.Start {
			seen.set("port %d is listened on by process %d, which is not of this tree but younger", port, id.PID)
			return true
		}
	}
	if len(ids) == 0 || !all {
		seen.set("port %d takes connections; whose listener it is cannot be seen", port)
		return true
	}
	seen.set("port %d takes connections, but its listener is process %d, which was there before", port, ids[0].PID)
	return false
}

// newProbeClient asks anew each time: what answered before says nothing of now.
func newProbeClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: nil,
			// Whether it answers is the question, not who it is; and what runs
			// on this machine for development has no certificate to speak of.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (k *Keeper) tryHTTP(ctx context.Context, p *process, c *http.Client, q conch.WaitRequest, seen *observation) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.HTTP, nil)
	if err != nil {
		seen.set("%v", err)
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		seen.set("%v", err)
		return false
	}
	resp.Body.Close()
	if want := q.HTTPStatus; want != 0 && resp.StatusCode != want || want == 0 && resp.StatusCode >= 400 {
		seen.set("%s answered %s", q.HTTP, resp.Status)
		return false
	}
	if port, local := localPort(req.URL); local && !k.ours(p, port, seen) {
		return false
	}
	seen.set("%s answered %s", q.HTTP, resp.Status)
	return true
}

// localPort is the port of an address on this machine.
func localPort(u *url.URL) (int, bool) {
	host := u.Hostname()
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return 0, false
	}
	if s := u.Port(); s != "" {
		n, err := strconv.Atoi(s)
		return n, err == nil
	}
	if u.Scheme == "https" {
		return 443, true
	}
	return 80, true
}

// An observation is what a probe saw last, for people.
type observation struct {
	mu   sync.Mutex
	text string
}

func (o *observation) set(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = fmt.Sprintf(format, args...)
}

func (o *observation) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text
}
