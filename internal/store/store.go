// Package store keeps what must outlive every process: one SQLite file in
// conch's home. It is the only package that knows SQLite. The schema and its
// migrations are here; the statements that use it stand with their owner,
// internal/mail, as functions over a Tx.
//
// # Guarantees
//
// Write returns nil only when the change is on disk (WAL, synchronous FULL).
// All writes go through one goroutine, which puts those that wait into one
// transaction: they share its fsync, and each has its own result, since each
// runs under a savepoint of its own. A function given to Write may be run again
// when the shared transaction failed for another's sake; it must only
// overwrite what it gives back, never add to it.
//
// A full disk is conch.StorageFull to the caller whose write did not fit, and
// nothing else: the transaction is undone, the store stays open, and the next
// write that fits succeeds.
//
// There is one owner. Opening raises a generation number in the file, and every
// transaction compares it first: the write of a process that has been
// replaced fails with conch.NotOwner and changes nothing.
//
// Methods are safe for concurrent use. Close waits for the writes under way.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

const (
	// A transaction is closed when it has this many writes, or has taken this
	// long, so that its first caller is not kept waiting for a stream of others.
	maxBatch  = 256
	batchTime = 10 * time.Millisecond
	readers   = 4
)

// Options say which file to open.
type Options struct {
	Path string
	// Fenced is called once, from a goroutine of its own, when another
	// process has taken the file over.
	Fenced func()
}

// A Store is an open file.
type Store struct {
	path       string
	generation int64
	fenced     func()
	fence      sync.Once

	wdb, rdb *sql.DB
	prepared sync.Map  // query: the readers' *sql.Stmt of it; parsing costs more than most queries do
	conn     *sql.Conn // the writer's, used by its goroutine alone
	wtx      *Tx

	requests chan *request
	mu       sync.RWMutex // held for reading while sending to requests
	closed   bool
	wg       sync.WaitGroup
}

type request struct {
	ctx  context.Context
	f    func(*Tx) error
	err  error
	done chan struct{}
}

// Open opens or makes the file, brings its schema up to date, and makes this
// process its owner.
func Open(o Options) (*Store, error) {
	s := &Store{path: o.Path, fenced: o.Fenced, requests: make(chan *request, maxBatch)}
	if err := s.open(); err != nil {
		s.shut()
		return nil, explain(o.Path, err)
	}
	s.wg.Go(s.write) // ends with Close
	return s, nil
}

func (s *Store) open() error {
	// SQLite gives its other files the mode of this one.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	if s.wdb, err = sql.Open("sqlite", dsn(s.path, "immediate")); err != nil {
		return err
	}
	if s.rdb, err = sql.Open("sqlite", dsn(s.path, "deferred", "query_only(1)")); err != nil {
		return err
	}
	s.wdb.SetMaxOpenConns(1)
	s.rdb.SetMaxOpenConns(readers)
	s.rdb.SetConnMaxIdleTime(30 * time.Second) // an idle connection keeps a cache of 2 MB
	if s.conn, err = s.wdb.Conn(background); err != nil {
		return err
	}
	s.wtx = &Tx{prepare: s.conn.PrepareContext, kept: map[string]*sql.Stmt{}}
	if err := migrate(s.wtx); err != nil {
		return err
	}
	return s.own()
}

// background is given to the driver: a context that can end costs it a
// goroutine for every statement, and a statement here takes microseconds.
var background = context.Background()

func dsn(path, txlock string, pragmas ...string) string {
	q := url.Values{"_txlock": {txlock}}
	// Pragmas belong to a connection: given here, every one of a pool has them.
	for _, p := range append([]string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}, pragmas...) {
		q.Add("_pragma", p)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// own makes this process the owner, and every earlier one a stranger.
func (s *Store) own() error {
	return inTx(s.wtx, func() error {
		if _, err := s.wtx.Exec(`INSERT INTO owner(one, generation) VALUES (1, 1) ON CONFLICT(one) DO UPDATE SET generation = generation + 1`); err != nil {
			return err
		}
		return s.wtx.Row(`SELECT generation FROM owner`).Scan(&s.generation)
	})
}

// Generation is this owner's number.
func (s *Store) Generation() int64 { return s.generation }

// Close waits for the writes under way and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.requests)
	s.mu.Unlock()
	s.wg.Wait()
	return s.shut()
}

// shut closes what is open, which may be a part.
func (s *Store) shut() error {
	var errs []error
	if s.wtx != nil {
		s.wtx.forget()
	}
	// Readers first: the last connection to leave folds the log into the file.
	if s.rdb != nil {
		errs = append(errs, s.rdb.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.wdb != nil {
		errs = append(errs, s.wdb.Close())
	}
	return errors.Join(errs...)
}

// Write runs f in a transaction and returns when it is on disk. An error of f
// undoes what f did, and that only. ctx counts until f's turn comes; from then
// on the outcome is waited for, so that no caller is left not knowing it.
func (s *Store) Write(ctx context.Context, f func(*Tx) error) error {
	r := &request{ctx: ctx, f: f, done: make(chan struct{})}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return conch.Errorf(conch.NotRunning, "the daemon is leaving").Hint("try again: the next command starts another").Retry()
	}
	s.requests <- r // the writer takes it, at the latest when its commit is through
	s.mu.RUnlock()
	<-r.done
	return explain(s.path, r.err)
}

// write is the writer's goroutine.
func (s *Store) write() {
	for first := range s.requests {
		s.transact(first)
	}
}

// transact makes one transaction of first and whatever waits behind it.
func (s *Store) transact(first *request) {
	began := time.Now()
	if err := s.begin(); err != nil {
		answer(err, first)
		return
	}
	var batch []*request
	for r := first; r != nil; {
		batch = append(batch, r)
		if broken := s.run(r); broken {
			s.alone(batch)
			return
		}
		if len(batch) == maxBatch || time.Since(began) > batchTime {
			break
		}
		select {
		case r = <-s.requests: // nil when closed
		default:
			r = nil
		}
	}
	fault.Point("store.before-commit")
	if _, err := s.wtx.Exec(`COMMIT`); err != nil {
		s.alone(batch)
		return
	}
	fault.Point("store.after-commit")
	answer(nil, batch...)
}

// alone gives every request of a transaction that could not be kept one of its
// own. One write that does not fit on the disk fails by itself.
func (s *Store) alone(batch []*request) {
	s.wtx.Exec(`ROLLBACK`) // SQLite may have done so already
	for _, r := range batch {
		r.err = s.begin()
		if r.err == nil {
			s.run(r)
			if _, err := s.wtx.Exec(`COMMIT`); err != nil {
				s.wtx.Exec(`ROLLBACK`)
				if r.err == nil {
					r.err = err
				}
			}
		}
		answer(r.err, r)
	}
}

// answer lets callers go on. With an error it is theirs; without, each keeps its own.
func answer(err error, batch ...*request) {
	for _, r := range batch {
		if err != nil {
			r.err = err
		}
		close(r.done)
	}
}

func (s *Store) begin() error {
	if _, err := s.wtx.Exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	var now int64
	err := s.wtx.Row(`SELECT generation FROM owner`).Scan(&now)
	if err == nil && now != s.generation {
		err = conch.Errorf(conch.NotOwner, "another daemon has taken over this home's mail").
			Hint("this one can write nothing any more; conch down stops it, the next command finds the other")
		s.fence.Do(func() {
			if s.fenced != nil {
				go s.fenced() // ends by itself: it makes the daemon leave
			}
		})
	}
	if err != nil {
		s.wtx.Exec(`ROLLBACK`)
	}
	return err
}

// run runs one request under a savepoint. broken says that the transaction
// around it is gone: SQLite undoes all of it on a full disk.
func (s *Store) run(r *request) (broken bool) {
	if r.err = context.Cause(r.ctx); r.err != nil {
		return false
	}
	if _, r.err = s.wtx.Exec(`SAVEPOINT one`); r.err != nil {
		return true
	}
	if r.err = safely(r.f, s.wtx); r.err != nil {
		if _, err := s.wtx.Exec(`ROLLBACK TO one`); err != nil {
			return true
		}
	}
	_, err := s.wtx.Exec(`RELEASE one`)
	return err != nil
}

// safely turns a panic into an error: it is one caller's, and the writer is
// everybody's.
func safely(f func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()
	return f(tx)
}

// Read runs f on one consistent state of the file. f must not write.
func (s *Store) Read(ctx context.Context, f func(*Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	tx, err := s.rdb.BeginTx(background, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(s.path, err)
	}
	var missed []string
	err = safely(f, &Tx{prepare: func(ctx context.Context, query string) (*sql.Stmt, error) {
		if st, ok := s.prepared.Load(query); ok {
			return tx.StmtContext(ctx, st.(*sql.Stmt)), nil
		}
		missed = append(missed, query)
		return tx.PrepareContext(ctx, query)
	}})
	tx.Rollback()
	// Now that this holds no connection: preparing wants one, and they are few.
	for _, query := range missed {
		if st, e := s.rdb.PrepareContext(background, query); e == nil {
			if _, there := s.prepared.LoadOrStore(query, st); there {
				st.Close()
			}
		}
	}
	return explain(s.path, err)
}

// Check looks the whole file over, for the doctor.
func (s *Store) Check(ctx context.Context) error {
	return s.Read(ctx, func(tx *Tx) error {
		rows, err := tx.Query(`PRAGMA integrity_check(5)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		var found []error
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return err
			}
			if line != "ok" {
				found = append(found, errors.New(line))
			}
		}
		if err := errors.Join(append(found, rows.Err())...); err != nil {
			return damaged(s.path, err)
		}
		return nil
	})
}

// Snapshot writes the file as it is at this moment, whole and without a log, to
// a path where nothing is yet. Writes go on meanwhile.
func (s *Store) Snapshot(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return explain(path, err)
	}
	defer f.Close()
	db, err := sql.Open("sqlite", dsn(s.path, "deferred"))
	if err != nil {
		return explain(s.path, err)
	}
	defer db.Close()
	if _, err = db.ExecContext(ctx, `VACUUM INTO ?`, path); err == nil {
		err = f.Sync() // VACUUM INTO writes into an empty file, and does not sync it
	}
	if err != nil {
		os.Remove(path)
	}
	return explain(path, err)
}

// A Tx is a transaction, handed to the function that Write or Read runs. The
// writer keeps its statements prepared.
type Tx struct {
	prepare func(context.Context, string) (*sql.Stmt, error)
	kept    map[string]*sql.Stmt // nil: a reader's, which the store keeps
}

func (tx *Tx) stmt(query string) (*sql.Stmt, error) {
	if st := tx.kept[query]; st != nil {
		return st, nil
	}
	st, err := tx.prepare(background, query)
	if err == nil && tx.kept != nil {
		tx.kept[query] = st
	}
	return st, err
}

// forget gives the kept statements back.
func (tx *Tx) forget() {
	for _, st := range tx.kept {
		st.Close()
	}
	clear(tx.kept)
}

// Exec runs a statement.
func (tx *Tx) Exec(query string, args ...any) (sql.Result, error) {
	st, err := tx.stmt(query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(background, args...)
}

// Query runs a query; the caller closes the rows before the next statement.
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := tx.stmt(query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(background, args...)
}

// A Row is the first row of a query.
type Row struct {
	row *sql.Row
	err error
}

// Scan is as sql.Row's: sql.ErrNoRows where there is none.
func (r Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.row.Scan(dest...)
}

// Row runs a query for one row.
func (tx *Tx) Row(query string, args ...any) Row {
	st, err := tx.stmt(query)
	if err != nil {
		return Row{err: err}
	}
	return Row{row: st.QueryRowContext(background, args...)}
}

// inTx is a transaction outside the writer's goroutine, before it runs.
func inTx(tx *Tx, f func() error) error {
	if _, err := tx.Exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	err := f()
	if err == nil {
		_, err = tx.Exec(`COMMIT`)
	}
	if err != nil {
		tx.Exec(`ROLLBACK`)
	}
	return err
}

// explain gives SQLite's errors the kinds that callers know.
func explain(path string, err error) error {
	var ours *conch.Error
	var its *sqlite.Error
	switch {
	case err == nil, errors.As(err, &ours):
		return err
	case errors.Is(err, fs.ErrPermission):
		return conch.Errorf(conch.HomeUnusable, "%v", err).Hint("%s must be yours", path)
	case !errors.As(err, &its):
		return err
	}
	switch its.Code() & 0xff { // the rest of the code is detail
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return conch.Errorf(conch.StorageFull, "nothing was kept of this: %v", err).
			Hint("free space on the disk of %s and try again; all that was kept before is still there", filepath.Dir(path)).Retry()
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(path, err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return conch.Errorf(conch.HomeUnusable, "%s cannot be used: %v", path, err).Hint("it must be a file of yours that you can write")
	}
	return err
}

func damaged(path string, err error) error {
	return conch.Errorf(conch.StoreDamaged, "%s is damaged: %v", path, err).
		Hint("sessions are not affected; put a backup in its place, or move it away with its -wal and -shm files to begin anew")
}
