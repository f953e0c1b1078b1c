package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conchsh/conch"
)

func openTest(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(label string) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO labels(agent, label, first_seen, last_seen) VALUES ('me', ?, 1, 1)`, label)
		return err
	}
}

func count(t *testing.T, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.Read(t.Context(), func(tx *Tx) error { return tx.Row(query, args...).Scan(&n) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Every caller of a shared transaction has a result of its own: those that
// fail, by an error, a panic or a broken rule, leave nothing, the others all.
func TestEachCallerHasItsResult(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "conch.db"))
	mine := errors.New("mine")
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			label := fmt.Sprint("l", i)
			err := s.Write(t.Context(), func(tx *Tx) error {
				if err := put(label)(tx); err != nil {
					return err
				}
				switch i % 4 {
				case 1:
					return mine
				case 2:
					panic("on purpose")
				case 3:
					return put(label)(tx) // twice the same key
				}
				return nil
			})
			switch i % 4 {
			case 0:
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			case 1:
				if !errors.Is(err, mine) {
					t.Errorf("%d: %v", i, err)
				}
			default:
				if err == nil {
					t.Errorf("%d: no error", i)
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, s, `SELECT count(*) FROM labels`); n != 100 {
		t.Errorf("%d labels, want 100", n)
	}
}

// What Write said yes to is there for a reader at once.
func TestReadsSeeWrites(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "a ?#%.db")) // a path is a path
	for i := range 50 {
		if err := s.Write(t.Context(), put(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, `SELECT count(*) FROM labels`); n != i+1 {
			t.Fatalf("%d labels after %d writes", n, i+1)
		}
	}
	err := s.Read(t.Context(), func(tx *Tx) error { return put("x")(tx) })
	if err == nil {
		t.Error("a reader could write")
	}
	fi, err := os.Stat(s.path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

func TestAContextThatEnded(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "conch.db"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ctx, put("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	if err := s.Read(ctx, func(*Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if n := count(t, s, `SELECT count(*) FROM labels`); n != 0 {
		t.Errorf("%d labels", n)
	}
}

// The write of an owner that was replaced fails, and changes nothing.
func TestAStaleOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conch.db")
	fenced := make(chan struct{})
	old, err := Open(Options{Path: path, Fenced: func() { close(fenced) }})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.Write(t.Context(), put("before")); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, path)
	if s.Generation() != old.Generation()+1 {
		t.Errorf("generations %d and %d", old.Generation(), s.Generation())
	}
	for range 2 {
		if err := old.Write(t.Context(), put("stale")); !errors.Is(err, conch.NotOwner) {
			t.Errorf("a stale write: %v", err)
		}
	}
	<-fenced
	if err := s.Write(t.Context(), put("after")); err != nil {
		t.Error(err)
	}
	if n := count(t, s, `SELECT count(*) FROM labels WHERE label = 'stale'`); n != 0 {
		t.Error("a stale write was kept")
	}
}

// A file of every older version becomes one of today's, with what was in it.
func TestMigrations(t *testing.T) {
	fresh := openTest(t, filepath.Join(t.TempDir(), "conch.db"))
	want := schemaOf(t, fresh)
	for version := range len(migrations) {
		path := filepath.Join(t.TempDir(), "conch.db")
		db, err := sql.Open("sqlite", dsn(path, "immediate"))
		if err != nil {
			t.Fatal(err)
		}
		for n := range version {
			if _, err := db.Exec(migrations[n] + fmt.Sprintf("; PRAGMA user_version = %d", n+1)); err != nil {
				t.Fatal(err)
			}
		}
		if version > 0 {
			_, err = db.Exec(`INSERT INTO owner VALUES (1, 7);
				INSERT INTO messages(id, from_agent, from_session, to_agent, to_session, policy, role, text, in_reply_to, thread, auto, via, hash, status, open, sent_at, expires, spread_until)
				VALUES ('m1', 'me', 'a', 'me', 'b', '', 'agent', 'the quick fox', '', 'm1', 0, 'local', x'00', 'stored', 0, 1, 0, 0);
				INSERT INTO deliveries(agent, label, msg, state, received_at, lease, times) VALUES ('me', 'b', 1, 'stored', 1, 0, 0);
				INSERT INTO receipts(msg, status, at, reason, agent, label) VALUES (1, 'stored', 1, '', 'me', 'b')`)
			if err != nil {
				t.Fatal(err)
			}
		}
		db.Close()
		s := openTest(t, path)
		if got := schemaOf(t, s); got != want {
			t.Errorf("from version %d:\n%s\nwant\n%s", version, got, want)
		}
		if version == 0 {
			continue
		}
		if s.Generation() != 8 {
			t.Errorf("from version %d: generation %d", version, s.Generation())
		}
		if n := count(t, s, `SELECT count(*) FROM messages m, indexed i WHERE m.id = 'm1' AND m.text = 'the quick fox' AND i.through = 0`); n != 1 {
			t.Errorf("from version %d: the old message is not there, or counts as indexed", version)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func schemaOf(t *testing.T, s *Store) string {
	t.Helper()
	var lines []string
	err := s.Read(t.Context(), func(tx *Tx) error {
		rows, err := tx.Query(`SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return err
			}
			lines = append(lines, line)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("version %d\n%s", count(t, s, `PRAGMA user_version`), strings.Join(lines, "\n"))
}

func TestANewerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conch.db")
	s := openTest(t, path)
	if err := s.Write(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`PRAGMA user_version = 1000`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: path}); !errors.Is(err, conch.VersionMismatch) {
		t.Errorf("opening a newer file: %v", err)
	}
}

func TestADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conch.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: path}); !errors.Is(err, conch.StoreDamaged) {
		t.Errorf("opening rubbish: %v", err)
	}

	path = filepath.Join(t.TempDir(), "conch.db")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := s.Write(t.Context(), put(fmt.Sprintf("label-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i += 64 {
		b[i] ^= 0xff
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(Options{Path: path})
	if err == nil {
		err = s.Check(t.Context())
		s.Close()
	}
	if !errors.Is(err, conch.StoreDamaged) {
		t.Errorf("a damaged file: %v", err)
	}
}

// A write that does not fit is its caller's error. Those that share its
// transaction are kept, and when there is room again so is the next.
func TestFull(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "conch.db"))
	limit := func(pages int) {
		t.Helper()
		// Of the writer's connection, hence through it.
		var got int
		if err := s.Write(t.Context(), func(tx *Tx) error {
			return tx.Row(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)).Scan(&got)
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit(count(t, s, `PRAGMA page_count`) + 40)
	big := strings.Repeat("x", 1<<20)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			label := fmt.Sprint("small", i)
			if i%3 == 0 {
				label = fmt.Sprint("big", i, big)
			}
			err := s.Write(t.Context(), put(label))
			switch {
			case i%3 == 0 && !errors.Is(err, conch.StorageFull):
				t.Errorf("a write that does not fit: %v", err)
			case i%3 != 0 && err != nil:
				t.Errorf("a small write beside it: %v", err)
			}
		})
	}
	wg.Wait()
	if n := count(t, s, `SELECT count(*) FROM labels`); n != 40 {
		t.Errorf("%d labels, want 40", n)
	}
	limit(1 << 20)
	if err := s.Write(t.Context(), put("big"+big)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, filepath.Join(dir, "conch.db"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Write(t.Context(), func(tx *Tx) error {
				if err := put(fmt.Sprint("a", i))(tx); err != nil {
					return err
				}
				return put(fmt.Sprint("b", i))(tx)
			}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range 5 {
		path := filepath.Join(dir, fmt.Sprint("copy", n))
		if err := s.Snapshot(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if err := s.Snapshot(t.Context(), path); err == nil {
			t.Error("a file was written over")
		}
		fi, err := os.Stat(path)
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
		c := openTest(t, path)
		if a, b := count(t, c, `SELECT count(*) FROM labels WHERE label LIKE 'a%'`), count(t, c, `SELECT count(*) FROM labels WHERE label LIKE 'b%'`); a != b {
			t.Errorf("half a transaction: %d and %d", a, b)
		}
		if err := c.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestClosed(t *testing.T) {
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "conch.db")})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	kept := make([]error, 100)
	for i := range kept {
		wg.Go(func() { kept[i] = s.Write(t.Context(), put(fmt.Sprint(i))) })
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	said := 0
	for _, err := range kept {
		if err == nil {
			said++
		} else if !errors.Is(err, conch.NotRunning) {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	s = openTest(t, s.path)
	if n := count(t, s, `SELECT count(*) FROM labels`); n != said {
		t.Errorf("%d were told yes and %d are there", said, n)
	}
}

// BenchmarkWrite shows what sharing a transaction is worth.
func BenchmarkWrite(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s, err := Open(Options{Path: filepath.Join(b.TempDir(), "conch.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var next sync.Mutex
			n := 0
			take := func() (int, bool) {
				next.Lock()
				defer next.Unlock()
				n++
				return n, n <= b.N
			}
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for {
						i, more := take()
						if !more {
							return
						}
						if err := s.Write(b.Context(), put(fmt.Sprint(i))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
