package sock

import (
	"net"
	"os"
	"strconv"
	"sync"

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
	var cred *unix.Ucred
	cerr := rc.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil {
		return 0, 0, cerr
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// Confined reports whether a process lives in another user namespace than this one, as
// all in a sandbox do. So does, as far as can be told, one that is gone.
func Confined(pid int) bool {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	return err != nil || theirs != ownNamespace()
}

var ownNamespace = sync.OnceValue(func() string {
	ours, _ := os.Readlink("/proc/self/ns/user")
	return ours
})

func socketpair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}
