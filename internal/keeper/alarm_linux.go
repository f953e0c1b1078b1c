package keeper

import (
	"time"

	"golang.org/x/sys/unix"
)

// An alarm is a timer the loop polls. Setting it wakes nobody: a command that starts
// with a deadline does not cost the loop a round.
type alarm struct {
	fd int
	at time.Time // what it is set to; zero: nothing
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	return &alarm{fd: fd}, err
}

// set makes the alarm go off at t at the latest. An earlier setting stays: going off
// for nothing is cheaper than being set again with every command.
func (a *alarm) set(t time.Time) {
	if t.IsZero() || !a.at.IsZero() && !t.Before(a.at) {
		return
	}
	a.at = t
	d := max(time.Until(t), time.Microsecond)
	ts := unix.NsecToTimespec(int64(d))
	unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: ts}, nil)
}

// clear takes note that it went off.
func (a *alarm) clear() {
	var b [8]byte
	unix.Read(a.fd, b[:])
	a.at = time.Time{}
}
