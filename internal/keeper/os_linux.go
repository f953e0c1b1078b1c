package keeper

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipe is for waking a poll: neither end blocks, and no shell inherits it.
func pipe() (r, w int, err error) {
	var p [2]int
	err = unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	return p[0], p[1], err
}

// unread is how many bytes a pipe holds.
func unread(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }

// holdCwd holds the directory a process stands in, whatever becomes of its
// name, and gives a path by which others reach it.
func holdCwd(pid int) (fd int, path string, err error) {
	fd, err = unix.Open("/proc/"+itoa(pid)+"/cwd", unix.O_PATH|unix.O_CLOEXEC, 0)
	return fd, "/proc/" + itoa(os.Getpid()) + "/fd/" + itoa(fd), err
}

func statCwd(pid int, st *unix.Stat_t) error { return unix.Stat("/proc/"+itoa(pid)+"/cwd", st) }

// pollFor waits for one of fds, or, if brief, for a quarter of a millisecond at most.
func pollFor(fds []unix.PollFd, brief bool) error {
	var ts *unix.Timespec
	if brief {
		ts = &unix.Timespec{Nsec: 250_000}
	}
	_, err := unix.Ppoll(fds, ts, nil)
	return err
}

// sendfile copies from a file to a socket inside the kernel.
func sendfile(to, from int, off *int64, n int) (int, error) { return unix.Sendfile(to, from, off, n) }

// setPipeSize makes a pipe hold more.
func setPipeSize(fd, n int) { unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, n) }

// clockBoot counts from the machine's start, like processes' ages.
const clockBoot = unix.CLOCK_BOOTTIME

// dupOnto makes to another name of fd.
func dupOnto(fd, to int) { unix.Dup3(fd, to, 0) }
