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
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return nil, err
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
	}
	return &alarm{fd: p[0], w: p[1]}, nil
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

// pollFor waits for one of fds, or, if brief, for a millisecond at most.
func pollFor(fds []unix.PollFd, brief bool) error {
	ms := -1
	if brief {
		ms = 1
	}
	_, err := unix.Poll(fds, ms)
	return err
}

// sendfile copies from a file to a socket.
func sendfile(to, from int, off *int64, n int) (int, error) {
	b := make([]byte, min(n, 256<<10))
	m, err := unix.Pread(from, b, *off)
	if m <= 0 || err != nil {
		return m, err
	}
	m, err = unix.Write(to, b[:m])
	if m > 0 {
		*off += int64(m)
	}
	return m, err
}

// setPipeSize makes a pipe hold more, where the system can.
func setPipeSize(fd, n int) {}

const clockBoot = unix.CLOCK_MONOTONIC
