package mail

import (
	"database/sql"
	"errors"
	"time"

	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/store"
)

// A Clock is where time comes from.
//
// Deadlines are counted in mail's own time: the wall clock at the first opening
// after the machine's start, and from then on the steady clock's progress. So
// setting the wall clock neither ends nor prolongs a lease or an expiry, and an
// hour of suspension is an hour. Only what happens while the machine is off
// is taken from the wall clock.
type Clock struct {
	Wall   func() time.Time
	Steady func() time.Duration // since the machine's start, suspension included
	Boot   func() string        // names this run of the machine
}

// SystemClock is this machine's.
func SystemClock() Clock { return Clock{Wall: time.Now, Steady: steady, Boot: proc.BootID} }

// anchor ties mail's time to the steady clock.
type anchor struct{ steady, wall int64 }

// now is mail's time in nanoseconds.
func (m *Mail) now() int64 { return m.anchor.wall + int64(m.o.Clock.Steady()) - m.anchor.steady }

// setClock takes up this boot's time where an earlier daemon left it, or begins it.
func (m *Mail) setClock(tx *store.Tx) error {
	boot := m.o.Clock.Boot()
	a := anchor{int64(m.o.Clock.Steady()), m.o.Clock.Wall().UnixNano()}
	var was string
	var then anchor
	err := tx.Row(`SELECT boot, steady, wall FROM clock`).Scan(&was, &then.steady, &then.wall)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err == nil && was == boot && boot != "" && then.steady <= a.steady {
		m.anchor = then
		return nil
	}
	m.anchor = a
	_, err = tx.Exec(`INSERT INTO clock(one, boot, steady, wall) VALUES (1, ?, ?, ?)
		ON CONFLICT(one) DO UPDATE SET boot = excluded.boot, steady = excluded.steady, wall = excluded.wall`, boot, a.steady, a.wall)
	return err
}
