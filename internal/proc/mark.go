package proc

import (
	"fmt"
)

// Mark says which command of which session a process belongs to.
//
// It is carried as the soft limit RLIMIT_RTTIME: microseconds that a real-time thread may run
// without blocking. That is unlimited by default, may be moved up and down by its owner below the
// hard limit, and as every mark is above 10^18 µs, 180,000 years, it never takes effect. Where a finite
// hard limit leaves no room, RLIMIT_LOCKS carries it, which Linux has not enforced since 2.4.
//
// The bits, from the top: 0101, session (32), command (28). The tag tells marks from limits that people set.
// Programs that set their own real-time limit (pipewire, rtkit) or all limits (a
// login through PAM) lose the mark.
type Mark uint64

const (
	markTag     = 0x5 << 60
	markTagMask = 0xf << 60
	// maxCommand is the highest command number that a mark can hold.
	maxCommand = 1<<28 - 1
)

// MakeMark returns the mark of a command in a session. Command numbers wrap at 28 bits.
func MakeMark(session, command uint32) Mark {
	return markTag | Mark(session)<<28 | Mark(command&maxCommand)
}

// Session returns the session's number.
func (m Mark) Session() uint32 { return uint32(m >> 28) }

// Command returns the command's number, its lowest 28 bits.
func (m Mark) Command() uint32 { return uint32(m) & maxCommand }

// Valid reports whether m was made by [MakeMark].
func (m Mark) Valid() bool { return m&markTagMask == markTag }

func (m Mark) String() string {
	if !m.Valid() {
		return "unmarked"
	}
	return fmt.Sprintf("%08x.%d", m.Session(), m.Command())
}
