package proc

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes what this process got from its starter beyond the standard
// descriptors: a long-lived process that holds the end of somebody's pipe makes them
// wait for ever. What Go opened itself is close-on-exec; what came through an exec
// cannot be. Call it first thing.
func CloseInherited(except ...int) {
	dir := "/proc/self/fd"
	if _, err := os.Stat(dir); err != nil {
		dir = "/dev/fd"
	}
	ents, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range ents {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 || slices.Contains(except, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// Detach makes this process nobody's: it closes inherited descriptors and takes off
// the mark of a session it may have been started from, so that ending that session
// does not end it.
func Detach(except ...int) {
	CloseInherited(except...)
	_ = SetMark(os.Getpid(), 0) // without marks there is none to take off
}
