// Package daemon wires the parts together: open in order, listen, wait, close
// in reverse.
//
// The order of opening is what makes two daemons of one home impossible: the
// home is looked at, the lock is taken, and only its holder touches anything
// else. Sessions live in keepers, so a daemon that is stopped or killed takes
// nothing with it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
	"github.com/conchsh/conch/internal/api"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/host"
	"github.com/conchsh/conch/internal/logfile"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/web"
)

// Options say which daemon to run.
type Options struct {
	Home    string
	Version string
	// Exe is the binary keepers are started from. Empty: this one.
	Exe string
	// AutoStarted daemons were started by a client that needed one; they leave
	// when nothing was asked of them for IdleExit (0: 10 minutes) and no
	// session is left.
	AutoStarted bool
	IdleExit    time.Duration
	// EndSessions ends every process of the sessions when this daemon ends with
	// its context or by a signal. They stay open, and begin again from their
	// checkpoints. A daemon that a client tells to leave leaves them running.
	EndSessions bool
	// Listen is where to serve the network, before what the configuration says.
	Listen string
	// Tools, if not nil, makes what answers at /mcp, for those who have a token.
	Tools func(ToolOptions) ToolServer
	// Ready is called once the socket answers and daemon.json says where.
	Ready func()
	// NoConfig leaves the configuration unread: a daemon that is only to close
	// sessions must start with a broken one too.
	NoConfig bool
	// Login replaces the captured login environment (see session.Options).
	Login map[string]string
}

// ToolOptions are what a ToolServer is made with. See package mcp, which this one does
// not import: the protocol's SDK is for it alone.
type ToolOptions struct {
	Home   string
	Agent  func() (string, error)
	Caller func(*http.Request) (name string, scopes []string, ok bool)
	Fail   func(http.ResponseWriter, error)
}

// A ToolServer serves a protocol beside the API. Close ends what it has under way.
type ToolServer interface {
	http.Handler
	Close()
}

// Record is daemon.json: how a client finds the daemon.
type Record struct {
	PID       int       `json:"pid"`
	Socket    string    `json:"socket"`
	Version   string    `json:"version"`
	Protocol  int       `json:"protocol"`
	StartedAt time.Time `json:"started_at"`
}

const (
	defaultIdleExit = 10 * time.Minute
	// shutdownGrace is what requests under way get at the end. Sessions' are
	// not among them: their keepers serve those.
	shutdownGrace = 4 * time.Second
	tellGrace     = time.Second
	maxLog        = 1 << 20
	homeWatch     = 2 * time.Second
	toolPath      = "/mcp"
)

// Run is a daemon's whole life. It returns nil after a shutdown that was asked
// for: ctx ended, SIGTERM, SIGINT or SIGHUP came, a client said so, or it was
// idle. AlreadyRunning and HomeUnusable are the errors to expect.
func Run(ctx context.Context, o Options) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	ended := ctx
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	manager := newNotifier()

	home, err := openHome(o.Home)
	if err != nil {
		return err
	}
	lock, err := takeLock(home)
	if err != nil {
		return err
	}
	defer lock.Unlock()

	var cfg config.Config
	if !o.NoConfig {
		if cfg, err = config.Load(home, os.LookupEnv); err != nil {
			return err
		}
	}
	logFile, err := logfile.Open(filepath.Join(home, "daemon.log"), maxLog)
	if err != nil {
		return homeError(home, err)
	}
	defer logFile.Close()
	log := slog.New(slog.NewTextHandler(logFile, nil)).With("daemon", os.Getpid())
	log.Info("start", "version", o.Version, "auto", o.AutoStarted)
	defer func() { log.Info("end", "err", err) }()

	// A daemon that a command inside a session started carries that session's
	// mark, and would be ended with it.
	if err := proc.SetMark(os.Getpid(), 0); err != nil {
		log.Warn("unmark", "err", err)
	}
	if o.Exe == "" {
		if o.Exe, err = os.Executable(); err != nil {
			return err
		}
	}

	agents, err := agent.Open(home)
	if err == nil {
		err = agents.Sweep()
	}
	if err != nil {
		return homeError(home, err)
	}
	store, err := session.Open(session.Options{Home: home, Exe: o.Exe, Log: log, Login: o.Login, Reserved: agents.Taken, Config: cfg})
	if err != nil {
		return homeError(home, err)
	}
	// Empty if no keeper is left; otherwise this fails, as it should. After
	// the store is closed, and with it every start of a keeper is over.
	defer os.Remove(sock.MemoryPath(home))
	defer store.Close()

	path, err := sock.Path(home, "d.sock")
	if err != nil {
		return homeError(home, err)
	}
	ul, err := sock.Listen(path)
	if err != nil {
		return homeError(home, err)
	}
	door, err := gate.Open(gate.Options{
		Home: home, Names: splitNames(cfg.Text(config.ListenNames)), Cert: cfg.Text(config.TLSCert), Key: cfg.Text(config.TLSKey),
		PagePort: int(cfg.Get(config.UIPort)), Log: log, Fail: api.Fail(o.Version),
	})
	if err != nil {
		ul.Close()
		return homeError(home, err)
	}
	door.Sweep()
	h := host.New(host.Options{
		Store: store, Agents: agents, Home: home, Socket: path, Version: o.Version, Config: cfg, Auto: o.AutoStarted, Inside: o.EndSessions,
		Leave: leave, Leaving: ctx, Gate: door, Log: log,
	})
	defer h.Mail.Close()
	defer h.Relay.Close()
	defer h.Post.Close()
	l := sock.NewListener(ul, api.Route(h))
	l.Refusal = api.Response(o.Version, conch.Errorf(conch.PermissionDenied, "this daemon serves only the user who started it").
		Hint("each user has a daemon of their own; unset CONCH_HOME"))
	l.Sandboxed = api.Response(o.Version, conch.Errorf(conch.PermissionDenied, "this daemon serves nobody in a sandbox").
		Hint("what runs in a sandboxed session, or in another program's sandbox, cannot use conch"))
	l.Limit, l.Crowded, l.Silence, l.Rewrite = route.DaemonConns, api.Crowded(o.Version), route.HeaderTime, api.Rewrite(o.Version)
	defer l.Close()

	// Requests that outlast the daemon's patience are told so by their context.
	reqs, tell := context.WithCancelCause(context.WithoutCancel(ctx))
	defer tell(nil)
	idle := newIdle(o, func() int {
		if door.Listening() != nil || h.Responding() || h.Relay.Active() {
			return 1 // others count on it
		}
		return store.Live()
	}, leave)
	defer idle.stop()
	behind := api.New(h)
	if o.Tools != nil {
		tools := o.Tools(ToolOptions{Home: home, Agent: func() (name string, err error) { err = h.FillAgent(&name); return name, err }, Caller: toolCaller, Fail: api.Fail(o.Version)})
		// Before the servers end, which wait for its calls.
		defer context.AfterFunc(ctx, tools.Close)()
		behind = withTools(tools, behind)
	}
	handler := idle.watch(observe(behind, h, log))
	srv := &http.Server{
		Handler:           handler,
		ConnContext:       withPeer,
		BaseContext:       func(net.Listener) context.Context { return reqs },
		ReadHeaderTimeout: route.HeaderTime,
		IdleTimeout:       route.IdleTime,
		MaxHeaderBytes:    route.MaxHeader,

		DisableGeneralOptionsHandler: true, // its answer would not be of our form
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with the listener

	defer door.Close()
	door.Serve(reqs, handler, web.Handler())
	if o.Listen != "" {
		_, err = door.Listen(o.Listen)
	} else if address := cfg.Text(config.Listen); address != "" {
		err = door.ListenAlways(address)
	}
	if err != nil {
		l.Close()
		<-served
		return err
	}

	record := filepath.Join(home, "daemon.json")
	err = session.WriteJSON(record, Record{os.Getpid(), path, o.Version, conch.ProtocolVersion, time.Now().UTC()})
	if err != nil {
		l.Close()
		<-served
		return homeError(home, err)
	}
	defer os.Remove(record)
	fault.Point("daemon.ready")
	if o.Ready != nil {
		o.Ready()
	}
	manager.say("READY=1")

	var tending sync.WaitGroup
	tending.Go(func() { h.Tend(ctx, log) }) // ends with ctx
	tending.Go(func() { h.Tell(ctx) })      // ends with ctx
	tending.Go(func() { h.Respond(ctx) })   // ends with ctx
	tending.Go(func() { h.Follow(ctx) })    // ends with ctx
	tending.Go(func() { h.StartPost(ctx) }) // ends by itself
	defer tending.Wait()
	defer leave()

	go watchHome(ctx, lock, func() { // ends with ctx
		log.Error("the home was removed; ending its sessions", "home", home)
		if _, err := h.Shutdown(context.WithoutCancel(ctx), true); err != nil {
			log.Error("end sessions", "err", err)
		}
		leave()
	}, path, func() {
		log.Error("the socket was removed; leaving, so that the next command finds a daemon", "socket", path)
		leave()
	})

	select {
	case <-ctx.Done():
	case err := <-served:
		srv.Close()
		return fmt.Errorf("serving %s: %w", path, err)
	}
	manager.say("STOPPING=1")
	// The record first, so that nobody is sent to a socket that is going away.
	os.Remove(record)
	h.Mail.Leave() // whoever waits for mail is told, not waited for
	finish([]server{srv, door}, func() {
		tell(conch.Errorf(conch.NotRunning, "the daemon left before it could finish this").Hint("try again; it starts anew").Retry())
	})
	<-served
	if o.EndSessions && ended.Err() != nil {
		if _, err := h.StopAll(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// A server is the socket's, or the gate.
type server interface {
	Shutdown(context.Context) error
	Close() error
}

// finish lets requests end, then tells those that are left, then cuts them off.
func finish(servers []server, tell func()) {
	for _, grace := range []time.Duration{shutdownGrace, tellGrace} {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		var wg sync.WaitGroup
		for _, srv := range servers {
			wg.Go(func() { srv.Shutdown(ctx) })
		}
		wg.Wait()
		late := ctx.Err() != nil
		cancel()
		if !late {
			break
		}
		tell()
	}
	for _, srv := range servers {
		srv.Close()
	}
}

// toolCaller is who a request for tools comes from.
func toolCaller(r *http.Request) (name string, scopes []string, ok bool) {
	gr, ok := gate.From(r)
	return gr.Name, gr.Scope.Names(), ok && gr.Via == conch.ViaToken
}

// withTools puts the tools beside the API.
func withTools(tools, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != toolPath {
			rest.ServeHTTP(w, r)
			return
		}
		r.Pattern = r.Method + " " + toolPath // for who counts
		api.TimeBody(w, r)
		tools.ServeHTTP(w, r)
	})
}

// splitNames reads the hosts of listen_names.
func splitNames(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// watchHome looks now and then whether the home is still there. Without it nobody can
// reach this daemon or its keepers any more, and they would live on for nobody.
func watchHome(ctx context.Context, lock *session.Lock, gone func(), socket string, unreachable func()) {
	t := time.NewTicker(homeWatch)
	defer t.Stop()
	missing := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if !lock.InPlace() {
				gone()
				return
			}
			// The next daemon makes a socket of its own and adopts the sessions.
			// Twice, since a home that is being removed loses one thing after another.
			if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
				missing = 0
			} else if missing++; missing == 2 {
				unreachable()
				return
			}
		}
	}
}

// takeLock makes this process the only daemon of home.
func takeLock(home string) (*session.Lock, error) {
	lock, err := session.TryLock(filepath.Join(home, "lock"))
	if session.Held(err) {
		return nil, conch.Errorf(conch.AlreadyRunning, "a daemon is running for %s", home).
			Hint("conch status describes it; conch down stops it")
	}
	if err != nil {
		return nil, homeError(home, err)
	}
	return lock, nil
}

// idle makes an auto-started daemon leave when it is not needed.
type idle struct {
	limit time.Duration // 0: never
	live  func() int
	leave func()

	mu      sync.Mutex
	busy    int
	timer   *time.Timer
	stopped bool
}

func newIdle(o Options, live func() int, leave func()) *idle {
	i := &idle{live: live, leave: leave}
	if !o.AutoStarted {
		return i
	}
	if i.limit = o.IdleExit; i.limit <= 0 {
		i.limit = defaultIdleExit
	}
	i.timer = time.AfterFunc(i.limit, i.fire)
	return i
}

// fire looks again after the limit as long as anything is left.
func (i *idle) fire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped || i.busy > 0 {
		return // the last request's end sets the timer again
	}
	if i.live() > 0 {
		i.timer.Reset(i.limit)
		return
	}
	i.leave()
}

func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	if i.timer != nil {
		i.timer.Stop()
	}
}

// watch counts the requests that are under way.
func (i *idle) watch(next http.Handler) http.Handler {
	if i.timer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.busy++
		i.mu.Unlock()
		defer func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.busy--; i.busy == 0 && !i.stopped {
				i.timer.Reset(i.limit)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
