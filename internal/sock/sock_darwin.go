package sock

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerCred gives the process and user at the other end as they were when it
// connected. The kernel vouches for both; a connection that was handed over
// keeps its client's.
func PeerCred(c *net.UnixConn) (pid, uid int, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	cerr := rc.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err != nil {
			return
		}
		uid = int(cred.Uid)
		pid, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if cerr != nil {
		return 0, 0, cerr
	}
	return pid, uid, err
}

// Confined reports whether a process is in a sandbox of ours. There are none here.
func Confined(int) bool { return false }

func socketpair() ([2]int, error) {
	// No SOCK_CLOEXEC here: hold the fork lock until the flag is set.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, nil
}
