package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// carrier is a resource limit that can hold a mark.
type carrier struct {
	resource int
	label    string // its line in /proc/PID/limits
}

const rlimitLocks = 10 // not in x/sys; the same on every Linux architecture Go has

// carriers in order of preference. Both were tried as root and as nobody.
var carriers = [...]carrier{
	{unix.RLIMIT_RTTIME, "Max realtime timeout"},
	{rlimitLocks, "Max file locks"},
}

// SetMark gives the process m; what it starts from now on inherits it. A zero m takes a mark
// away, which a daemon that was itself started by a marked process wants to do to itself first.
func SetMark(pid int, m Mark) error {
	if m == 0 {
		return clearMark(pid)
	}
	if !m.Valid() {
		return fmt.Errorf("proc: mark %#x: %w", uint64(m), syscall.EINVAL)
	}
	// Nearly always the first carrier has no hard limit, and keeps none: one
	// system call, on the way of every command.
	lim := unix.Rlimit{Cur: uint64(m), Max: unix.RLIM_INFINITY}
	if unix.Prlimit(pid, carriers[0].resource, &lim, nil) == nil {
		return nil
	}
	for _, c := range carriers {
		var lim unix.Rlimit
		if err := unix.Prlimit(pid, c.resource, nil, &lim); err != nil {
			return fmt.Errorf("proc: mark process %d: %w", pid, err)
		}
		if lim.Max < uint64(m) {
			continue
		}
		lim.Cur = uint64(m)
		if err := unix.Prlimit(pid, c.resource, &lim, nil); err != nil {
			return fmt.Errorf("proc: mark process %d: %w", pid, err)
		}
		return nil
	}
	return fmt.Errorf("proc: mark process %d: the hard limits on real-time and file locks are too low: %w", pid, syscall.EPERM)
}

func clearMark(pid int) error {
	for _, c := range carriers {
		var lim unix.Rlimit
		err := unix.Prlimit(pid, c.resource, nil, &lim)
		if err == nil && Mark(lim.Cur).Valid() {
			lim.Cur = lim.Max
			err = unix.Prlimit(pid, c.resource, &lim, nil)
		}
		if err != nil {
			return fmt.Errorf("proc: unmark process %d: %w", pid, err)
		}
	}
	return nil
}

// MarkOf returns the mark of a process, if it has one. For a marked process of the same user it is one system call.
func MarkOf(pid int) (Mark, bool) {
	for _, c := range carriers {
		var lim unix.Rlimit
		err := unix.Prlimit(pid, c.resource, nil, &lim)
		if err == unix.EPERM {
			// A set-uid or set-gid child: its limits are still there for all to read.
			return markFromLimits(pid)
		}
		if err != nil {
			return 0, false
		}
		if m := Mark(lim.Cur); m.Valid() {
			return m, true
		}
	}
	return 0, false
}

func markFromLimits(pid int) (Mark, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	for _, c := range carriers {
		_, line, ok := bytes.Cut(text, []byte("\n"+c.label))
		if !ok {
			continue
		}
		f := bytes.Fields(line[:bytes.IndexByte(append(line, '\n'), '\n')])
		if len(f) == 0 {
			continue
		}
		v, err := strconv.ParseUint(string(f[0]), 10, 64)
		if m := Mark(v); err == nil && m.Valid() {
			return m, true
		}
	}
	return 0, false
}
