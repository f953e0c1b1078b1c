//go:build !linux

package keeper

import (
	"time"

	"golang.org/x/sys/unix"
)

// An alarm is a timer the loop polls: here a pipe that a Go timer writes to.
type alarm struct {
	fd, w int
	at    time.Time
	timer *time.Timer
}

func newAlarm() (*alarm, error) {
	r, w, err := pipe()
	return &alarm{fd: r, w: w}, err
}

func (a *alarm) set(t time.Time) {
	if t.IsZero() || !a.at.IsZero() && !t.Before(a.at) {
		return
	}
	a.at = t
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer = time.AfterFunc(time.Until(t), func() { unix.Write(a.w, []byte{0}) })
}

func (a *alarm) clear() {
	var b [64]byte
	unix.Read(a.fd, b[:])
	a.at = time.Time{}
}
