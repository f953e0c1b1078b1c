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
