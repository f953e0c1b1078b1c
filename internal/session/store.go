// Package session is a persistent shell as the daemon sees it: a directory, a
// keeper process that holds the shell, and a control connection to it.
//
// A Store is all sessions of one home. Opening it reads the directory, adopts
// the keepers that live and sweeps what dead ones left. Who lives and who is
// dead is decided by the lock file each keeper holds for its life, never by
// pid or age. Closing a Store leaves keepers running: the next one finds them.
//
// The daemon that opens a Store is the only one of its home; the caller holds
// the lock that makes it so. All methods are safe for concurrent use.
//
// Lock order: Session.turn, then Store.mu. Nothing blocks under Store.mu.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/metrics"
	"github.com/conchsh/conch/internal/sock"
)

// Options say where a Store is and what it starts.
type Options struct {
	Home string // absolute
	Exe  string // the binary that is run as `Exe keeper`
	Log  *slog.Logger
	// Login is the environment sessions start from. Nil: the user's login
	// shell is asked, once, in the background.
	Login map[string]string
	// Config has the limits. The zero Config has the defaults.
	Config config.Config
	// Reserved reports that a label may not be used for a new session. It is
	// called with the Store's lock held and must not block. Nil: none is.
	Reserved func(label string) bool
}

// A Store holds the sessions of one home.
type Store struct {
	// Handovers and Deaths count connections given to keepers, and keepers that
	// died; Retired, set before any session is closed, gets the last counts of
	// a keeper that is about to end.
	Handovers, Deaths metrics.Counter
	Retired           func(key string, st metrics.Stats)

	// onChange is told that sessions or their keepers have come or gone.
	onChange atomic.Pointer[func()]

	home, exe string
	log       *slog.Logger
	config    config.Config
	reserved  func(label string) bool

	login     map[string]string // valid once loginDone is closed
	loginDone chan struct{}

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // everything that Close waits for

	spare     chan *novice // holds one, or is about to
	refilling atomic.Bool

	mu     sync.Mutex
	open   map[name]*Session
	byID   map[string]*Session
	closed map[string]Spec // by id
	// unreadable are sessions of which nothing is known but their ids. A keeper may
	// live there all the same.
	unreadable []*Session
	held       bool // no new sessions
	// importing holds the labels of imports under way.
	importing map[name]bool
}

// name is a session's address.
type name struct{ agent, label string }

// Open reads the home, connects to every living keeper, and begins, in the
// background, to sweep after dead ones.
func Open(o Options) (*Store, error) {
	st := &Store{
		home: o.Home, exe: o.Exe, log: o.Log, config: o.Config,
		login: o.Login, loginDone: make(chan struct{}), reserved: o.Reserved, spare: make(chan *novice, 1),
		open: map[name]*Session{}, byID: map[string]*Session{}, closed: map[string]Spec{}, importing: map[name]bool{},
	}
	if st.log == nil {
		st.log = slog.New(slog.DiscardHandler)
	}
	// What a daemon left that was killed while it asked the login shell.
	login := filepath.Join(st.home, "login")
	if err := os.RemoveAll(login); err != nil {
		return nil, err
	}
	for _, d := range []string{"run", "sessions", "login"} {
		if err := os.MkdirAll(filepath.Join(st.home, d), 0o700); err != nil {
			return nil, err
		}
	}
	st.ctx, st.stop = context.WithCancel(context.Background())
	if st.login != nil {
		close(st.loginDone)
	} else {
		st.wg.Go(func() {
			st.login = captureLogin(st.ctx, login, st.log)
			close(st.loginDone)
		})
	}
	if err := st.load(); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// Close lets go of all keepers, which live on, and waits for what is under way.
func (st *Store) Close() error {
	st.mu.Lock()
	st.stop() // under mu: see enter
	st.mu.Unlock()
	st.wg.Wait()
	st.dismiss()
	return nil
}

// OnChange has f called whenever a session or a keeper has come or gone. It must not
// block.
func (st *Store) OnChange(f func()) { st.onChange.Store(&f) }

func (st *Store) tellChange() {
	if f := st.onChange.Load(); f != nil {
		(*f)()
	}
}

// Hold refuses, until it is called with false, to make new sessions: whoever
// closes all of them must not have one made behind its back.
func (st *Store) Hold(on bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.held = on
}

// enter makes Close wait for the caller, until wg.Done; not after Close.
func (st *Store) enter() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ctx.Err() != nil {
		return false
	}
	st.wg.Add(1)
	return true
}

func (st *Store) dir(id string) string { return filepath.Join(st.home, "sessions", id) }

// load reads every session directory. One that cannot be read is reported and
// left alone: it is somebody's work.
func (st *Store) load() error {
	ents, err := os.ReadDir(filepath.Join(st.home, "sessions"))
	if err != nil {
		return err
	}
	var open []*Session
	for _, e := range ents {
		dir := st.dir(e.Name())
		if strings.HasPrefix(e.Name(), trash) || strings.HasPrefix(e.Name(), partial) {
			// A removal or an import that was cut short.
			if err := os.RemoveAll(dir); err != nil {
				st.log.Warn("remove", "dir", dir, "err", err)
			}
			continue
		}
		if !e.IsDir() || !isID(e.Name()) {
			continue
		}
		spec, err := readSpec(dir)
		if errors.Is(err, fs.ErrNotExist) {
			// Made, but never announced: the spec is the first thing in it.
			if hasTape(dir) {
				st.log.Error("session without spec", "dir", dir)
				st.unreadable = append(st.unreadable, newSession(st, Spec{ID: e.Name()}))
			} else if err := os.RemoveAll(dir); err != nil {
				st.log.Warn("remove", "dir", dir, "err", err)
			}
			continue
		}
		if err != nil {
			st.log.Error("session unreadable", "dir", dir, "err", err)
			st.unreadable = append(st.unreadable, newSession(st, Spec{ID: e.Name()}))
			continue
		}
		if spec.ClosedAt != nil {
			st.closed[spec.ID] = spec
			continue
		}
		s := newSession(st, spec)
		k := name{spec.Agent, spec.Label}
		if other := st.open[k]; other != nil {
			st.log.Error("two open sessions have one label", "label", spec.Label, "ids", []string{other.spec.ID, spec.ID})
			continue
		}
		st.open[k], st.byID[spec.ID] = s, s
		open = append(open, s)
	}
	// Living keepers before anything is served, so that nobody sees a session
	// as dead that is not; the dead in the background, each under its turn.
	var wg sync.WaitGroup
	sem := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	for _, s := range open {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			s.recover()
		})
	}
	wg.Wait()
	return nil
}

// NewSpec is what a new session is to be.
type NewSpec struct {
	Agent, Label string
	Cwd          string // absolute; "": the user's home
	Env          map[string]string
	Parent       string
	RC           bool
	Limits       map[string]string // of its own, by the configuration's names
	Shell        bool              // a command comes next: start the shell now
	Sandbox      *Sandbox
	Clean        bool
	Only         []string
}

// Create makes a session and starts its keeper. LabelTaken if the label has an
// open one.
func (st *Store) Create(ctx context.Context, n NewSpec) (*Session, error) {
	s, made, err := st.reserve(n)
	if err != nil {
		return nil, err
	}
	if !made {
		return nil, conch.Errorf(conch.LabelTaken, "session %s exists already", n.Label).
			Hint("conch exec -s %s uses it; conch close %s ends it", n.Label, n.Label)
	}
	defer s.release()
	return s, s.build(ctx, n.Shell)
}

// Obtain gives the session of a label, making it if there is none. Any number
// of callers at once get one and the same.
func (st *Store) Obtain(ctx context.Context, n NewSpec) (*Session, error) {
	for {
		s, made, err := st.reserve(n)
		if err != nil {
			return nil, err
		}
		if made {
			err := s.build(ctx, n.Shell)
			s.release()
			return s, err
		}
		if _, err := s.Keeper(ctx); !errors.Is(err, errGone) {
			return s, err
		}
		// It was closed, or could not be made, while we waited our turn.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// reserve takes the label in memory. A session it made has its turn taken.
func (st *Store) reserve(n NewSpec) (s *Session, made bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ctx.Err() != nil {
		return nil, false, errLeaving()
	}
	k := name{n.Agent, n.Label}
	if s := st.open[k]; s != nil {
		return s, false, nil
	}
	if st.held {
		return nil, false, errLeaving()
	}
	if err := st.checkReserved(n.Label); err != nil {
		return nil, false, err
	}
	if most := st.config.Get(config.SessionLimit); most > 0 && int64(len(st.open)) >= most {
		return nil, false, conch.Errorf(conch.LimitReached, "%d sessions are open, which is the limit", len(st.open)).
			Hint("conch close LABEL ends one; session_limit in config.toml (CONCH_SESSION_LIMIT) sets the limit")
	}
	id := st.freeID()
	if n.Cwd == "" {
		n.Cwd = whoami().home
	}
	if n.Env == nil {
		n.Env = map[string]string{}
	}
	s = newSession(st, Spec{
		ID: id, Agent: n.Agent, Label: n.Label, Cwd: n.Cwd, Env: n.Env,
		Parent: n.Parent, RC: n.RC, CreatedAt: time.Now().UTC(), Limits: n.Limits, Sandbox: n.Sandbox, Clean: n.Clean, Only: n.Only,
	})
	s.turn <- struct{}{} // as acquire does
	st.wg.Add(1)
	st.open[k], st.byID[id] = s, s
	return s, true, nil
}

// checkReserved refuses a label that is not for sessions. Under mu, so that the
// answer holds until the label is taken.
func (st *Store) checkReserved(label string) error {
	if st.reserved == nil || !st.reserved(label) {
		return nil
	}
	return conch.Errorf(conch.LabelTaken, "%q is the name of an agent and cannot be a session's label", label).
		Hint("choose another label; conch agent ls lists the agents")
}

// Exe is the binary that keepers are.
func (st *Store) Exe() string { return st.exe }

// UserHome is where a session starts that names no directory.
func (st *Store) UserHome() string { return whoami().home }

// HasLabel gives the agent of a session that has a label, open or being
// imported.
func (st *Store) HasLabel(label string) (agent string, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for k := range st.open {
		if k.label == label {
			return k.agent, true
		}
	}
	for k := range st.importing {
		if k.label == label {
			return k.agent, true
		}
	}
	return "", false
}

// freeID is an id that no session has. Under mu.
func (st *Store) freeID() string {
	id := newID()
	for st.byID[id] != nil || st.closed[id].ID != "" {
		id = newID()
	}
	return id
}

// forget takes a session out of the open ones.
func (st *Store) forget(s *Session) {
	defer st.tellChange()
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.open, name{s.spec.Agent, s.spec.Label})
	delete(st.byID, s.spec.ID)
	if s.spec.ClosedAt != nil {
		st.closed[s.spec.ID] = s.spec
	}
}

// Lookup gives the open session of a label, or SessionNotFound with a hint
// that lists the labels there are.
func (st *Store) Lookup(agent, label string) (*Session, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s := st.open[name{agent, label}]; s != nil {
		return s, nil
	}
	var labels []string
	for k := range st.open {
		if k.agent == agent {
			labels = append(labels, k.label)
		}
	}
	slices.Sort(labels)
	err := conch.Errorf(conch.SessionNotFound, "no session %q", label)
	if len(labels) == 0 {
		if agent != conch.DefaultAgent {
			return nil, err.Hint("agent %s has no session yet; conch new --agent %s %s makes one", agent, agent, label)
		}
		return nil, err.Hint("there is no session yet; conch new %s makes one", label)
	}
	const most = 20
	more := ""
	if len(labels) > most {
		labels, more = labels[:most], ", …"
	}
	return nil, err.Hint("sessions: %s%s", strings.Join(labels, ", "), more)
}

// ByID gives the open session with an id, or nil.
func (st *Store) ByID(id string) *Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.byID[id]
}

// Sessions are the open sessions by agent and label.
func (st *Store) Sessions() []*Session {
	list := st.sessions()
	slices.SortFunc(list, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(a.spec.Agent, b.spec.Agent), cmp.Compare(a.spec.Label, b.spec.Label))
	})
	return list
}

// Unreadable are the sessions whose spec could not be read when the Store was opened.
// They can be stopped and nothing else.
func (st *Store) Unreadable() []*Session { return st.unreadable }

func (st *Store) sessions() []*Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	list := make([]*Session, 0, len(st.open))
	for _, s := range st.open {
		list = append(list, s)
	}
	return list
}

// Live counts the sessions that have a keeper, or are being given one.
func (st *Store) Live() int {
	n := 0
	for _, s := range st.sessions() {
		if s.link.Load() != nil || len(s.turn) > 0 {
			n++
		}
	}
	return n
}

// Tidy removes the home's directory in memory when no session is left that
// could have a keeper with files in it, or be about to. That is why it looks
// under mu: a session is in open before its keeper is started. It is made
// again when it is needed.
func (st *Store) Tidy() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.open) == 0 {
		// Fails where the daemon's own socket is in it; it goes with that then.
		os.Remove(sock.MemoryPath(st.home))
	}
}

func treeSize(dir string) (total int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				total += fi.Size()
			}
		}
		return nil
	})
	return total
}

// newID is 8 characters of a-z2-7, 40 random bits.
func newID() string {
	var b [5]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

func errLeaving() error {
	return conch.Errorf(conch.NotRunning, "the daemon is shutting down").Hint("try again; it starts anew").Retry()
}

// Leaving reports whether no new session can be made any more.
func (st *Store) Leaving() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.held || st.ctx.Err() != nil
}
