package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/metrics"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/sock"
)

// A Session is one open session. Its keeper may be running or not.
type Session struct {
	st  *Store
	dir string

	// turn is held, one token, by whoever starts, sweeps or closes. A channel
	// and not a mutex, so that a caller can stop waiting for it.
	turn chan struct{}
	spec Spec // ClosedAt changes under turn, the rest never
	gone bool // under turn: closed, or never made

	link atomic.Pointer[link] // nil: no keeper that we know to live
}

// errGone says that a session is no longer the one of its label.
var errGone = conch.Errorf(conch.SessionClosed, "the session was closed").
	Hint("conch exec on the same label makes a new one")

func newSession(st *Store, spec Spec) *Session {
	return &Session{st: st, dir: st.dir(spec.ID), spec: spec, turn: make(chan struct{}, 1)}
}

// ID is the session's id, the first part of its commands' ids.
func (s *Session) ID() string { return s.spec.ID }

// Dir is where its files are.
func (s *Session) Dir() string { return s.dir }

// Agent and Label are its address.
func (s *Session) Agent() string { return s.spec.Agent }

// Label is the second half of the address.
func (s *Session) Label() string { return s.spec.Label }

// Sandboxed reports whether its processes are.
func (s *Session) Sandboxed() bool { return s.spec.Sandbox != nil }

// acquire takes the turn. Whoever has it is waited for by the Store's Close.
func (s *Session) acquire(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		if !s.st.enter() {
			<-s.turn
			return errLeaving()
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.st.ctx.Done():
		return errLeaving()
	}
}

func (s *Session) release() {
	<-s.turn
	s.st.wg.Done()
}

// A link is the control connection to a living keeper.
type link struct {
	keeper Keeper
	ctl    *net.UnixConn
	pass   *sock.Passer
	// child is set when this daemon started the keeper and must reap it.
	child *os.Process
}

// Handover gives c, with the bytes already read from it, to the keeper if it
// runs. It starts nothing and does not wait.
func (s *Session) Handover(c syscall.Conn, head []byte) error {
	l := s.link.Load()
	if l == nil {
		return conch.Errorf(conch.NotRunning, "the session's keeper is not running").Retry()
	}
	err := l.hand(c, head)
	if err == nil {
		s.st.Handovers.Add(1)
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		// The keeper is dead and the reader of ctl has yet to hear of it. A
		// caller that tries again must get the next keeper, not this link.
		s.link.CompareAndSwap(l, nil)
	}
	return err
}

// Dial gives a connection on which the keeper, which must run, serves requests as
// on any client's.
func (s *Session) Dial() (net.Conn, error) {
	ours, theirs, err := sock.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := s.Handover(theirs, nil); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

func (l *link) hand(c syscall.Conn, head []byte) error {
	err := l.pass.Pass(c, head)
	if errors.Is(err, sock.ErrBroken) || errors.Is(err, os.ErrDeadlineExceeded) {
		// The reader of ctl then finds out what is the matter. It knows by
		// itself of a keeper that died, and other errors are not the link's.
		l.ctl.CloseRead()
	}
	return err
}

// Running reports whether the keeper is known to live.
func (s *Session) Running() bool { return s.link.Load() != nil }

// Record is what the running keeper, or one that cannot be talked to, said of
// itself.
func (s *Session) Record() (Keeper, bool) {
	if l := s.link.Load(); l != nil {
		return l.keeper, true
	}
	if k, err := readKeeper(s.dir); err == nil && k != nil {
		return *k, true
	}
	return Keeper{}, false
}

// Keeper makes sure that the keeper runs, starting it from the checkpoint if
// it does not. Callers at once share one start, which goes on when one of
// them leaves.
func (s *Session) Keeper(ctx context.Context) (Keeper, error) {
	l, err := s.running(ctx)
	if err != nil {
		return Keeper{}, err
	}
	return l.keeper, nil
}

func (s *Session) running(ctx context.Context) (*link, error) {
	if l := s.link.Load(); l != nil {
		return l, nil
	}
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if s.gone {
		return nil, errGone
	}
	if l := s.link.Load(); l != nil {
		return l, nil
	}
	return s.start(context.WithoutCancel(ctx))
}

// client talks HTTP to the keeper: each request on a socket pair of which the
// keeper is handed one end, like any client's connection.
func (l *link) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs, err := sock.Pair()
			if err != nil {
				return nil, err
			}
			defer theirs.Close()
			if err := l.hand(theirs, nil); err != nil {
				ours.Close()
				return nil, err
			}
			return ours, nil
		},
	}}
}

// maxAnswer bounds what is read of a keeper's answer. An environment is the
// longest.
const maxAnswer = 8 << 20

// call sends one request to the keeper's own path and decodes the answer.
func (s *Session) call(ctx context.Context, l *link, method, path string, out any) error {
	return s.send(ctx, l, method, path, "", nil, out)
}

// send is call with a body.
func (s *Session) send(ctx context.Context, l *link, method, path, contentType string, body []byte, out any) error {
	url := fmt.Sprintf("http://daemon.conch/v1/sessions/%s/%s%s", s.spec.Agent, s.spec.Label, path)
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(route.ByDaemon, "1")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := l.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var eb conch.ErrorBody
		if json.Unmarshal(answer, &eb) == nil && eb.Error.Code != "" {
			return eb.Err()
		}
		return &statusError{resp.StatusCode}
	}
	return json.Unmarshal(answer, out)
}

type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("the keeper answered status %d", e.code) }

// Info is the session as lists show it, from the keeper if it runs.
func (s *Session) Info(ctx context.Context) (conch.SessionInfo, error) {
	info := conch.SessionInfo{
		Agent: s.spec.Agent, Label: s.spec.Label, ID: s.spec.ID, Cwd: s.spec.Cwd,
		StartedAt: s.spec.CreatedAt, LastActive: s.spec.CreatedAt, Sandbox: s.spec.Sandbox != nil,
	}
	l := s.link.Load()
	if l == nil {
		info.LastActive = s.LastUsed()
		info.TapeBytes = treeSize(filepath.Join(s.dir, tapeDir))
		return info, nil
	}
	// What is known without asking, for a keeper that does not answer.
	info.KeeperPID = l.keeper.PID
	var asked conch.SessionInfo
	if err := s.call(ctx, l, http.MethodGet, "", &asked); err != nil {
		return info, err
	}
	return asked, nil
}

// Processes lists the session's background processes, from the keeper if it runs.
func (s *Session) Processes(ctx context.Context) ([]conch.Process, error) {
	record := s.Past()
	l := s.link.Load()
	if l == nil {
		list, err := record.Processes()
		if errors.Is(err, conch.OutputGone) {
			return nil, nil // it is being made, and nothing is on disk yet; or it was pruned just now
		}
		return list, err
	}
	var out []conch.Process
	err := s.call(ctx, l, http.MethodGet, "/processes", &out)
	if _, told := errors.AsType[*conch.Error](err); err != nil && !told {
		return record.Processes() // the keeper has just died, or is stopped: as far as is on record
	}
	return out, err
}

// Run starts a process. query and body are a client's, and the keeper's to judge.
func (s *Session) Run(ctx context.Context, query, contentType string, body []byte) (p conch.Process, err error) {
	l, err := s.running(ctx)
	if err == nil {
		err = s.send(ctx, l, http.MethodPost, "/run?"+query, contentType, body, &p)
	}
	return p, err
}

// Exec runs a command in the session's shell, to its end.
func (s *Session) Exec(ctx context.Context, q conch.ExecRequest) (r conch.Result, err error) {
	l, err := s.running(ctx)
	if err != nil {
		return r, err
	}
	body, err := json.Marshal(q)
	if err == nil {
		err = s.send(ctx, l, http.MethodPost, "/exec", "application/json", body, &r)
	}
	return r, err
}

// Wait waits for something to happen to a process that may still run.
func (s *Session) Wait(ctx context.Context, id conch.ProcessID, q conch.WaitRequest) (r conch.WaitResult, err error) {
	l := s.link.Load()
	if l == nil {
		return r, errAsleep
	}
	body, err := json.Marshal(q)
	if err == nil {
		err = s.send(ctx, l, http.MethodPost, "/processes/"+string(id)+"/wait", "application/json", body, &r)
	}
	return r, err
}

// Changes calls tell with the session as it is and then whenever it changes, until ctx
// or the keeper ends. An error says that nothing was told.
func (s *Session) Changes(ctx context.Context, tell func(conch.SessionChange)) error {
	l := s.link.Load()
	if l == nil {
		return errAsleep
	}
	url := fmt.Sprintf("http://daemon.conch/v1/sessions/%s/%s/changes", s.spec.Agent, s.spec.Label)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set(route.ByDaemon, "1")
	resp, err := l.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &statusError{resp.StatusCode}
	}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		var c conch.SessionChange
		if ok && json.Unmarshal(data, &c) == nil {
			tell(c)
		}
	}
}

// errAsleep is that a session has no keeper, and so nothing that runs.
var errAsleep = errors.New("the session has no keeper")

// Past is the record of the session, for what has ended.
func (s *Session) Past() *Archive {
	return &Archive{Spec: s.spec, tape: filepath.Join(s.dir, tapeDir)}
}

// ForgetProcesses takes ended processes off the session's list and says how many.
func (s *Session) ForgetProcesses(ctx context.Context) (int, error) {
	l := s.link.Load()
	if l == nil {
		return 0, nil // its next keeper lists them; they go with the session at the latest
	}
	var out struct {
		Processes int `json:"processes"`
	}
	err := s.call(ctx, l, http.MethodPost, "/processes/prune", &out)
	return out.Processes, err
}

// Env is the current environment of the session's shell, for another's start.
func (s *Session) Env(ctx context.Context) (map[string]string, error) {
	l, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	var out struct {
		Env map[string]string `json:"env"`
	}
	err = s.call(ctx, l, http.MethodGet, "/env", &out)
	var se *statusError
	if errors.As(err, &se) && se.code == http.StatusNotFound {
		return nil, conch.Errorf(conch.Unsupported, "the keeper of session %s cannot give its environment", s.spec.Label).
			Hint("make the session without --inherit-env")
	}
	if err != nil {
		return nil, err
	}
	for _, k := range dropped {
		delete(out.Env, k)
	}
	return out.Env, nil
}

// Stats asks the keeper what it has counted; key is another for every keeper.
// A session without one, or with one too old to count, has none.
func (s *Session) Stats(ctx context.Context) (st metrics.Stats, key string, ok bool) {
	l := s.link.Load()
	if l == nil {
		return st, "", false
	}
	err := s.call(ctx, l, http.MethodGet, "/stats", &st)
	return st, s.countKey(l), err == nil
}

func (s *Session) countKey(l *link) string {
	return fmt.Sprintf("%s.%d.%d", s.spec.ID, l.keeper.PID, l.keeper.Start)
}

// Ended reports what closing a session took.
type Ended struct {
	Processes int  `json:"processes"`
	Verified  bool `json:"verified"` // every process was seen gone
}

// The limits of a start and an end. A keeper is ready in milliseconds; a
// loaded machine and a large tape to mend are what these leave room for.
var (
	startLimit    = 30 * time.Second
	shutdownLimit = 30 * time.Second
	deathLimit    = 5 * time.Second
)
