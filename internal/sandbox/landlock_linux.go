package sandbox

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockABI is the kernel's version of Landlock, 0: none.
func landlockABI() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

const (
	mayRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayUse   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	ofAFile  = mayUse | unix.LANDLOCK_ACCESS_FS_EXECUTE
	mayWrite = 1<<16 - 1 // all there is up to version 5
)

// handled is what a version of Landlock knows of.
func handled(abi int) uint64 {
	all := uint64(1<<13 - 1)
	if abi >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// A rule allows access to a path and all below it.
type rule struct {
	path   string
	access uint64
}

// ruleset makes the rules ready to bind a process. They name files and not paths, so they
// hold wherever a file is mounted. -1: the kernel has no Landlock.
func ruleset(rules []rule, network bool) (int, error) {
	abi := landlockABI()
	if network && abi < 6 {
		// Without a network namespace abstract sockets of others are in reach.
		return -1, errors.New("a sandbox with the network needs Landlock 6 (Linux 6.12)")
	}
	if abi == 0 {
		return -1, nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled(abi)}
	size := unsafe.Offsetof(attr.Handled_access_net) // all that version 1 takes
	if network {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, errno
	}
	unix.CloseOnExec(int(fd))
	for _, r := range rules {
		at, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: r.path, Err: err}
		}
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			r.access &= ofAFile
		}
		beneath := unix.LandlockPathBeneathAttr{Allowed_access: r.access & handled(abi), Parent_fd: int32(at)}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
		unix.Close(at)
		if errno != 0 {
			return -1, &os.PathError{Op: "landlock", Path: r.path, Err: errno}
		}
	}
	return int(fd), nil
}
