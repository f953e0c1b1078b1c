// Package mail carries messages between the sessions of one home: it accepts,
// routes, holds, delivers, and says what became of each.
//
// # Guarantees
//
// A message that Send accepted is on disk. It is put into each recipient's
// inbox exactly once, in the order in which its sender's session sent, and ends
// as stored, seen, done, refused, expired or failed; Receipts tells which.
// Sending again under the same id is the same message.
//
// Fetching leases a message for LeaseTime and consumes nothing; Ack or a reply
// does. A message that is fetched again keeps its id and says that it repeats.
//
// A session is live while somebody holds it: a presence, a call that waits in
// its name, or a command in its shell (Options.Running). Mail to a label that
// is away is held, and is looked at again whenever sessions or policies change.
//
// # Time
//
// Leases and expiry run on a clock of mail's own that a change of the wall
// clock does not touch and that counts the time a machine was suspended: see
// Clock. Times that are shown are the wall clock's.
//
// # Concurrency
//
// All methods are safe for concurrent use. Nothing polls: who waits is woken by
// the write that concerns it. New does nothing; the file is opened by the first
// call that needs it, so that a daemon without mail does not pay for it.
package mail

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/store"
)

// LeaseTime is for how long a fetched message is not given out again.
const LeaseTime = 120 * time.Second

const (
	// maxFetch and maxFetchBytes bound one answer; the rest is for the next.
	maxFetch      = 1000
	maxFetchBytes = 16 << 20
	// spreadTime is for how long a broadcast without an expiry reaches
	// sessions that appear later.
	spreadTime = 24 * time.Hour
	// ghostTime is how often the processes of presences are looked at; a
	// connection that drops is noticed at once.
	ghostTime = 5 * time.Second
	// heldTime is how often held mail is looked at again without a cause: a
	// command that begins in a shell tells nobody.
	heldTime = 10 * time.Second
	// comeBack is how long a new daemon keeps labels for those who held them when
	// the last one died. They look for it twice a second.
	comeBack = 30 * time.Second
)

// Agents says which agents this home has.
type Agents interface {
	Known(name string) bool
	// Taken reports whether a label would be an agent's name, that of one
	// that is being made included. It is asked by the database's writer.
	Taken(label string) bool
	ByAddress(address string) (name string, ok bool)
	Names() []string
}

// Options are what a Mail stands on.
type Options struct {
	Path   string // of the database
	Agents Agents
	Log    *slog.Logger
	Clock  Clock // the zero value: this machine's
	// Had reports whether a shell has, or once had, a label.
	Had func(agent, label string) bool
	// Labels lists those of an agent.
	Labels func(agent string) []string
	// Running gives the labels of an agent's shells that run a command now;
	// with a label, only that one is looked at.
	Running func(ctx context.Context, agent, label string) []string
	// Changed, if set, is called when mail or who is present has changed. It must
	// not block.
	Changed func()
	// Fenced is called when another daemon has taken the database over.
	Fenced func()

	// What carries mail to other homes; without Carry there are none. Ready is
	// asked before a message to an address is taken, and may refuse it. Carry
	// takes its part in the transaction that accepts it, and says what it
	// waits for, if anything. Carried is called when that is on disk.
	Ready   func(ctx context.Context, agent, address string) error
	Carry   func(s *Step, n int64, address string) (reason string, err error)
	Carried func(agent, address string)
	// Contact gives the address that an agent has a name for.
	Contact func(ctx context.Context, agent, name string) (address string, ok bool, err error)
	// Report, if set, is called when there may be something to tell another home.
	Report func()
	// Files is the directory that attachments are kept in.
	Files string
}

// A Mail is the post office of one home.
type Mail struct {
	o    Options
	bell bell
	here presence

	ctx  context.Context // ends with Close, and with it whoever waits
	stop context.CancelCauseFunc
	wg   sync.WaitGroup
	kick chan struct{} // wakes the housekeeper

	began time.Time

	mu     sync.Mutex // guards opening and closing
	st     atomic.Pointer[store.Store]
	closed bool
	anchor anchor // set before st

	// What a look at held mail could find: messages that wait for a session
	// or for more of them, and those that one label's inbox holds.
	spread, held atomic.Bool

	claiming sync.Mutex // held while a harness session claims a label

	runs atomic.Int64 // of the responder, under way

	labels sync.Map // target: those known to be recorded, which they stay

	gomu     sync.Mutex // guards the two below
	gone     bool       // no more goroutines
	stirring map[string]bool
}

// New gives a Mail. It touches nothing.
func New(o Options) *Mail {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock.Wall == nil {
		o.Clock = SystemClock()
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	m := &Mail{o: o, here: presence{changed: o.Changed}, kick: make(chan struct{}, 1), began: time.Now()}
	m.ctx, m.stop = context.WithCancelCause(context.Background())
	return m
}

// errLeaving ends whoever waits when the daemon stops.
func errLeaving() error {
	return conch.Errorf(conch.NotRunning, "the daemon is leaving").Hint("the next command starts another; no mail is lost").Retry()
}

// Leave ends everybody who waits or is present, and refuses to open the file.
// Calls under way come to their end.
func (m *Mail) Leave() { m.stop(errLeaving()) }

// Leaving is closed by Leave.
func (m *Mail) Leaving() <-chan struct{} { return m.ctx.Done() }

// Close is Leave, and closes the file.
func (m *Mail) Close() error {
	m.Leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.gomu.Lock()
	m.gone = true
	m.gomu.Unlock()
	m.wg.Wait()
	if st := m.st.Load(); st != nil {
		return st.Close()
	}
	return nil
}

// Used reports whether there is a database, without making one.
func (m *Mail) Used() bool {
	if m.st.Load() != nil {
		return true
	}
	_, err := os.Stat(m.o.Path)
	return !errors.Is(err, fs.ErrNotExist)
}

// store opens the file on first use. A failure is tried again by the next call.
func (m *Mail) store(ctx context.Context) (*store.Store, error) {
	if st := m.st.Load(); st != nil {
		return st, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.st.Load(); st != nil {
		return st, nil
	}
	if m.closed || m.ctx.Err() != nil {
		return nil, errLeaving()
	}
	st, err := store.Open(store.Options{Path: m.o.Path, Fenced: m.o.Fenced})
	if err != nil {
		return nil, err
	}
	if err := st.Write(ctx, m.begin); err != nil {
		st.Close()
		return nil, err
	}
	m.spread.Store(true) // until the housekeeper has looked
	m.held.Store(true)
	m.st.Store(st)
	m.wg.Go(m.keep) // ends with Leave
	return st, nil
}

// begin sets the clock, and ends leases that the old clock would draw out.
func (m *Mail) begin(tx *store.Tx) error {
	if err := m.setClock(tx); err != nil {
		return err
	}
	if _, err := tx.Exec(`UPDATE deliveries SET lease = ?1 WHERE state = 'seen' AND lease > ?1`, m.now()+int64(LeaseTime)); err != nil {
		return err
	}
	return m.sweepFiles(tx)
}

// Check looks the database over, for the doctor. Unused is fine.
func (m *Mail) Check(ctx context.Context) error {
	if !m.Used() {
		return nil
	}
	st, err := m.store(ctx)
	if err != nil {
		return err
	}
	return st.Check(ctx)
}

// Snapshot writes the database as it is to a path where nothing is yet, for a
// backup. It reports whether there was one to write.
func (m *Mail) Snapshot(ctx context.Context, path string) (bool, error) {
	if !m.Used() {
		return false, nil
	}
	st, err := m.store(ctx)
	if err != nil {
		return false, err
	}
	return true, st.Snapshot(ctx, path)
}

// A step is one write: a transaction, its time, and whom to wake when it is
// on disk.
type step struct {
	m         *Mail
	tx        *store.Tx
	now, wall int64
	running   map[string]bool // "agent/label" of shells that run a command
	wake      map[string]bool
	recorded  []target // labels, once it is on disk
	away      bool     // something happened to a message of another home
}

// write runs f and then wakes those it concerns. f may be run again.
func (m *Mail) write(ctx context.Context, running map[string]bool, f func(*step) error) error {
	st, err := m.store(ctx)
	if err != nil {
		return err
	}
	var s *step
	err = st.Write(ctx, func(tx *store.Tx) error {
		s = &step{m: m, tx: tx, now: m.now(), wall: m.o.Clock.Wall().UnixNano(), running: running, wake: map[string]bool{}}
		return f(s)
	})
	if err != nil {
		return err
	}
	for _, t := range s.recorded {
		m.labels.Store(t, true)
	}
	if len(s.wake) > 0 {
		s.wake[everybody] = true
		m.bell.ring(s.wake)
		m.o.Changed()
	}
	if s.away && m.o.Report != nil {
		m.o.Report()
	}
	return nil
}

// Update runs f in a transaction of mail's, for what carries mail between homes. It may be
// run again. running are the labels, with their agents in front, of
// shells that run a command.
func (m *Mail) Update(ctx context.Context, running map[string]bool, f func(*Step) error) error {
	return m.write(ctx, running, f)
}

// View runs f on one state of the database.
func (m *Mail) View(ctx context.Context, f func(*Step) error) error { return m.read(ctx, f) }

// Atwork gives the shells of an agent that run a command now, among those that
// matter to mail for these labels ("": the agent).
func (m *Mail) Atwork(ctx context.Context, agent string, labels []string) map[string]bool {
	set := map[string]bool{}
	for _, l := range labels {
		if l == "" || !m.here.held(target{agent, l}) {
			maps.Copy(set, m.runningOf(ctx, agent, l))
		}
	}
	return set
}

// read runs f on one state of the database.
func (m *Mail) read(ctx context.Context, f func(*step) error) error {
	st, err := m.store(ctx)
	if err != nil {
		return err
	}
	return st.Read(ctx, func(tx *store.Tx) error {
		return f(&step{m: m, tx: tx, now: m.now(), wall: m.o.Clock.Wall().UnixNano()})
	})
}

// concern marks a session as one to be woken, and its agent.
func (s *step) concern(agent, label string) {
	s.wake[agent] = true
	if label != "" {
		s.wake[agent+"/"+label] = true
	}
}

// runningOf asks which shells of an agent are at work. label "": all.
func (m *Mail) runningOf(ctx context.Context, agent, label string) map[string]bool {
	if m.o.Running == nil {
		return nil
	}
	set := map[string]bool{}
	for _, l := range m.o.Running(ctx, agent, label) {
		set[agent+"/"+l] = true
	}
	return set
}

// others asks for the shells at work that matter to a session's being there:
// none, unless a message waits that one of several could get.
func (m *Mail) others(ctx context.Context, agent string) map[string]bool {
	if !m.spread.Load() {
		return nil
	}
	return m.runningOf(ctx, agent, "")
}

// keep is the housekeeper: it expires mail, looks at held mail again, and ends
// the presence of processes that are gone.
func (m *Mail) keep() {
	for {
		next := m.housekeeping()
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-m.kick:
		case <-m.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

// nudge has the housekeeper look at its dates again.
func (m *Mail) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// housekeeping does what is due and says when to come again.
func (m *Mail) housekeeping() time.Duration {
	next := time.Hour
	if m.here.reap() {
		next = ghostTime
	}
	if m.spread.Load() || m.held.Load() {
		next = min(next, heldTime)
		for _, agent := range m.o.Agents.Names() {
			if err := m.settle(m.ctx, agent, ""); err != nil && m.ctx.Err() == nil {
				m.o.Log.Warn("look at held mail", "agent", agent, "err", err)
			}
		}
	}
	var due int64
	err := m.write(m.ctx, nil, func(s *step) (err error) {
		if err = s.expire(); err != nil {
			return err
		}
		due, err = s.number(`SELECT coalesce(min(expires), 0) FROM messages WHERE expires > 0`)
		return err
	})
	if err != nil && m.ctx.Err() == nil {
		m.o.Log.Warn("expire mail", "err", err)
		next = min(next, heldTime)
	}
	if due > 0 {
		next = min(next, max(time.Millisecond, time.Duration(due-m.now())))
	}
	return next
}

// number is the one number a query gives.
func (s *step) number(query string, args ...any) (n int64, err error) {
	err = s.tx.Row(query, args...).Scan(&n)
	return n, err
}
