//go:build !linux

package keeper

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe is for waking a poll: neither end blocks, and no shell inherits it.
func pipe() (r, w int, err error) {
	// No pipe2 here: hold the fork lock until the flags are set.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return -1, -1, err
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(p[0])
			unix.Close(p[1])
			return -1, -1, err
		}
	}
	return p[0], p[1], nil
}

// fionread is FIONREAD of sys/filio.h, the same on all BSDs.
const fionread = 0x4004667f

// unread is how many bytes a pipe holds.
func unread(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

// holdCwd is not possible without /proc: after a command with a directory of
// its own the shell goes back by name.
func holdCwd(pid int) (fd int, path string, err error) { return -1, "", errors.ErrUnsupported }

func statCwd(pid int, st *unix.Stat_t) error { return errors.ErrUnsupported }

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

// clockBoot counts from the machine's start, like processes' ages.
const clockBoot = unix.CLOCK_MONOTONIC

// dupOnto makes to another name of fd.
func dupOnto(fd, to int) { unix.Dup2(fd, to) }
