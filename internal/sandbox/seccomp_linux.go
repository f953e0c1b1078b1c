package sandbox

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// filter is a seccomp program that refuses what no namespace covers: sockets to the
// machine under a virtual one, which know no network namespaces; rings, through which
// such a socket could be had past this filter; keyrings; the writing of what a terminal
// reads; and, since their calls have other numbers, programs for another processor. Nil:
// it is not known how calls are numbered here.
func filter() []unix.SockFilter {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}[runtime.GOARCH]
	if arch == 0 {
		return nil
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		allow   = unix.SECCOMP_RET_ALLOW
		refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		// Where struct seccomp_data has the call, the processor, and the low halves
		// of the first two arguments.
		call, machine, first, second = 0, 4, 16, 24
		x32                          = 0x40000000 // numbers of a third kind, on amd64
	)
	list := []unix.SockFilter{
		{Code: load, K: machine},
		{Code: equal, Jt: 1, K: arch},
		{Code: ret, K: unknown},
		{Code: load, K: call},
		{Code: least, Jf: 1, K: x32},
		{Code: ret, K: unknown},
	}
	for _, nr := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD} {
		list = append(list, unix.SockFilter{Code: equal, Jf: 1, K: nr}, unix.SockFilter{Code: ret, K: refuse})
	}
	return append(list,
		unix.SockFilter{Code: equal, Jf: 4, K: unix.SYS_SOCKET},
		unix.SockFilter{Code: load, K: first},
		unix.SockFilter{Code: equal, Jf: 1, K: unix.AF_VSOCK},
		unix.SockFilter{Code: ret, K: refuse},
		unix.SockFilter{Code: ret, K: allow},
		unix.SockFilter{Code: equal, Jf: 5, K: unix.SYS_IOCTL},
		unix.SockFilter{Code: load, K: second},
		unix.SockFilter{Code: equal, Jt: 1, K: unix.TIOCSTI},
		unix.SockFilter{Code: equal, Jf: 1, K: unix.TIOCLINUX},
		unix.SockFilter{Code: ret, K: refuse},
		unix.SockFilter{Code: ret, K: allow},
		unix.SockFilter{Code: ret, K: allow},
	)
}
