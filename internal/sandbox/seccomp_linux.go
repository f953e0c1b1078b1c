package sandbox

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// filter is a seccomp program that refuses what no namespace covers:
//
//   - unix sockets, which lead to whoever listens in a directory that the box sees, and
//     sockets to the machine under a virtual one, which know no network namespaces. Pairs
//     stay, of the kinds that can never be connected to anything else: a datagram socket
//     can, even when it has a peer;
//   - files with a set-uid or set-gid bit, which the box's mounts ignore and those of the
//     machine do not. A filter cannot tell a directory from a file;
//   - rings, and openat2, whose arguments a filter does not see;
//   - keyrings, the writing of what a terminal reads, and, since their calls have other
//     numbers, programs for another processor.
//
// Nil: it is not known how calls are numbered here.
func filter() []unix.SockFilter {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}[runtime.GOARCH]
	if arch == 0 {
		return nil
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		test    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		allow   = unix.SECCOMP_RET_ALLOW
		refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		// Where struct seccomp_data has the call, the processor, and the low half of
		// the first argument; the others follow.
		call, machine, first, next = 0, 4, 16, 8
		x32                        = 0x40000000 // numbers of a third kind, on amd64
	)
	list := []unix.SockFilter{
		{Code: load, K: machine},
		{Code: equal, Jt: 1, K: arch},
		{Code: ret, K: unknown},
		{Code: load, K: call},
		{Code: least, Jf: 1, K: x32},
		{Code: ret, K: unknown},
	}
	// on adds what is done about a call; it must end in a return.
	on := func(nr uint32, do ...unix.SockFilter) {
		list = append(list, unix.SockFilter{Code: equal, Jf: uint8(len(do)), K: nr})
		list = append(list, do...)
	}
	arg := func(n uint32) unix.SockFilter { return unix.SockFilter{Code: load, K: first + n*next} }
	for _, nr := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD} {
		on(nr, unix.SockFilter{Code: ret, K: refuse})
	}
	on(unix.SYS_OPENAT2, unix.SockFilter{Code: ret, K: unknown}) // programs then use openat
	on(unix.SYS_SOCKET, arg(0),
		unix.SockFilter{Code: equal, Jt: 1, K: unix.AF_UNIX},
		unix.SockFilter{Code: equal, Jf: 1, K: unix.AF_VSOCK},
		unix.SockFilter{Code: ret, K: refuse},
		unix.SockFilter{Code: ret, K: allow})
	on(unix.SYS_SOCKETPAIR, arg(1),
		unix.SockFilter{Code: and, K: 0xf}, // without SOCK_CLOEXEC and SOCK_NONBLOCK
		unix.SockFilter{Code: equal, Jt: 2, K: unix.SOCK_STREAM},
		unix.SockFilter{Code: equal, Jt: 1, K: unix.SOCK_SEQPACKET},
		unix.SockFilter{Code: ret, K: refuse},
		unix.SockFilter{Code: ret, K: allow})
	on(unix.SYS_IOCTL, arg(1),
		unix.SockFilter{Code: equal, Jt: 1, K: unix.TIOCSTI},
		unix.SockFilter{Code: equal, Jf: 1, K: unix.TIOCLINUX},
		unix.SockFilter{Code: ret, K: refuse},
		unix.SockFilter{Code: ret, K: allow})

	const (
		setID   = unix.S_ISUID | unix.S_ISGID
		creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	)
	modes := map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2} // argument by call
	opens := map[uint32]uint32{unix.SYS_OPENAT: 2}                                                                   // that of the flags; the mode follows
	if runtime.GOARCH == "amd64" {                                                                                   // which has older ones too
		const open, creat, chmod, mknod = 2, 85, 90, 133
		modes[creat], modes[chmod], modes[mknod], opens[open] = 1, 1, 1, 1
	}
	for nr, n := range modes {
		on(nr, arg(n),
			unix.SockFilter{Code: test, Jf: 1, K: setID},
			unix.SockFilter{Code: ret, K: refuse},
			unix.SockFilter{Code: ret, K: allow})
	}
	for nr, n := range opens {
		on(nr, arg(n),
			unix.SockFilter{Code: test, Jf: 3, K: creates}, // otherwise the mode is whatever was there
			arg(n+1),
			unix.SockFilter{Code: test, Jf: 1, K: setID},
			unix.SockFilter{Code: ret, K: refuse},
			unix.SockFilter{Code: ret, K: allow})
	}
	return append(list, unix.SockFilter{Code: ret, K: allow})
}
