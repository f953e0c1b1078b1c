package proc

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ignored reports whether this process ignores a signal. signal.Ignored does not know
// of those that were ignored before Go began and that Go leaves alone.
func Ignored(sig syscall.Signal) bool {
	var act [8]uintptr // the kernel's sigaction: the handler comes first
	const ignore = 1
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0)
	return e == 0 && act[0] == ignore
}
