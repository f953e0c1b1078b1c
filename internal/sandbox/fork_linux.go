package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the runtime does around a fork of package syscall. A user namespace can be
// entered only by a process with one thread, which of Go's is only a child between fork
// and exec, and syscall.ForkExec has no way to do it there.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// cloneArgs is struct clone_args of the kernel.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// launch is all a child needs, ready before the fork: it can allocate nothing.
type launch struct {
	namespaces []int // descriptors, in the order in which they are entered
	first      cloneArgs
	second     cloneArgs
	path       *byte
	argv, envv **byte
	dir        *byte
	fds        []int
	ctty       bool
	rules      int // a Landlock ruleset, -1: none
	calls      *unix.SockFprog
	files      *unix.Rlimit
	report     int // a pipe
}

// What a child says on its pipe: where it is, and a number.
const (
	forked = iota // the second child's pid
	enterFailed
	forkFailed
	limitFailed
	dirFailed
	filesFailed
	execFailed
)

var stages = [...]string{"", "enter the sandbox", "fork", "give up rights", "change to its directory", "set up its descriptors", "exec"}

// ForkExec starts a program in the box, as syscall.ForkExec does outside: a child of
// the caller in a session of its own. Of attr.Sys it heeds Setctty and the control group.
// The path and the directory are those of the box.
//
// There are two forks. The first child enters the namespaces; but a process stays in
// the pid namespace it was born in, so it forks the second, in its own parent's name
// (CLONE_PARENT), and leaves.
func (b *Box) ForkExec(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	l := &launch{namespaces: b.namespaces, rules: b.rules, calls: b.calls, files: b.files}
	if l.path, err = syscall.BytePtrFromString(path); err != nil {
		return 0, err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return 0, err
	}
	env, err := syscall.SlicePtrFromStrings(attr.Env)
	if err != nil {
		return 0, err
	}
	l.argv, l.envv = &args[0], &env[0]
	if l.dir, err = syscall.BytePtrFromString(attr.Dir); err != nil {
		return 0, err
	}
	for _, fd := range attr.Files {
		l.fds = append(l.fds, int(fd))
	}
	l.first.exitSignal = uint64(unix.SIGCHLD)
	l.second.flags = unix.CLONE_PARENT
	if sys := attr.Sys; sys != nil {
		l.ctty = sys.Setctty
		if sys.UseCgroupFD {
			l.first.flags |= unix.CLONE_INTO_CGROUP
			l.first.cgroup = uint64(sys.CgroupFD)
		}
	}

	syscall.ForkLock.Lock()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		syscall.ForkLock.Unlock()
		return 0, err
	}
	l.report = p[1]
	first, errno := l.fork()
	syscall.ForkLock.Unlock()
	unix.Close(p[1])
	defer unix.Close(p[0])
	runtime.KeepAlive(args)
	runtime.KeepAlive(env)
	if errno != 0 {
		return 0, os.NewSyscallError("clone3", errno)
	}
	// The pipe ends when the first has left and the second has become its program.
	var buf [64]byte
	n := 0
	for n < len(buf) {
		got, err := unix.Read(p[0], buf[n:])
		if err == unix.EINTR {
			continue
		}
		if got <= 0 {
			break
		}
		n += got
	}
	for {
		if _, err := unix.Wait4(first, nil, 0, nil); err != unix.EINTR {
			break // by us, or by one who collects every child
		}
	}
	for at := 0; at+8 <= n; at += 8 {
		what, value := *(*int32)(unsafe.Pointer(&buf[at])), *(*int32)(unsafe.Pointer(&buf[at+4]))
		if what == forked {
			pid = int(value)
		} else if err == nil {
			err = fmt.Errorf("%s: %w", stages[what], unix.Errno(value))
		}
	}
	if err == nil && pid == 0 {
		err = fmt.Errorf("enter the sandbox: its holder is gone")
	}
	if err != nil && pid != 0 {
		unix.Wait4(pid, nil, 0, nil)
	}
	return pid, err
}

// fork makes both children. From the first clone on this is, in the children, code that
// may call nothing but the kernel.
//
//go:noinline
//go:norace
//go:nocheckptr
func (l *launch) fork() (pid int, errno unix.Errno) {
	var (
		r1    uintptr
		stage int32
		word  [2]int32
		i     int
		fd    int
		next  int
		c     uintptr
	)
	fds := l.fds
	size := unsafe.Sizeof(cloneArgs{})
	next = l.report
	if next < len(fds) {
		next = len(fds)
	}
	for i = range fds {
		if fds[i] >= next {
			next = fds[i] + 1
		}
	}
	next++
	beforeFork()
	r1, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&l.first)), size, 0)
	if errno != 0 || r1 != 0 {
		afterFork()
		return int(r1), errno
	}
	afterForkInChild()

	stage = enterFailed
	for i = range l.namespaces {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETNS, uintptr(l.namespaces[i]), 0, 0); errno != 0 {
			goto failed
		}
	}
	stage = forkFailed
	r1, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&l.second)), size, 0)
	if errno != 0 {
		goto failed
	}
	if r1 != 0 {
		word[0], word[1] = forked, int32(r1)
		syscall.RawSyscall(unix.SYS_WRITE, uintptr(l.report), uintptr(unsafe.Pointer(&word[0])), 8)
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}

	syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	stage = limitFailed
	// A keyring of its own in place of the login's.
	syscall.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if l.files != nil {
		syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(l.files)), 0, 0, 0)
	}
	// Directories and devices before the rights go: what must be seen is.
	stage = dirFailed
	if _, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(l.dir)), 0, 0); errno != 0 {
		goto failed
	}
	stage = limitFailed
	for c = 0; c < 64; c++ {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); errno != 0 {
			break // there are no more
		}
	}
	if c == 0 {
		goto failed
	}
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		goto failed
	}
	if l.rules >= 0 {
		if _, _, errno = syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(l.rules), 0, 0); errno != 0 {
			goto failed
		}
	}
	if l.calls != nil {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(l.calls)), 0, 0, 0); errno != 0 {
			goto failed
		}
	}

	// Out of each other's way, then into place.
	stage = filesFailed
	if l.report < len(fds) {
		if r1, _, errno = syscall.RawSyscall(unix.SYS_FCNTL, uintptr(l.report), unix.F_DUPFD_CLOEXEC, uintptr(next)); errno != 0 {
			goto failed
		}
		l.report = int(r1)
		next = int(r1) + 1
	}
	for i = range fds {
		if fds[i] < i {
			if r1, _, errno = syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fds[i]), unix.F_DUPFD_CLOEXEC, uintptr(next)); errno != 0 {
				goto failed
			}
			fds[i] = int(r1)
			next = int(r1) + 1
		}
	}
	for i = range fds {
		fd = fds[i]
		if fd == i {
			_, _, errno = syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFD, 0)
		} else {
			_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
		}
		if errno != 0 {
			goto failed
		}
	}
	if l.ctty {
		if _, _, errno = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1); errno != 0 {
			goto failed
		}
	}
	stage = execFailed
	_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(l.path)), uintptr(unsafe.Pointer(l.argv)), uintptr(unsafe.Pointer(l.envv)))

failed:
	word[0], word[1] = stage, int32(errno)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(l.report), uintptr(unsafe.Pointer(&word[0])), 8)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 253, 0, 0)
	}
}
