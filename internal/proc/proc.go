// Package proc finds, signals and ends trees of processes, and proves that they are gone.
//
// # Who belongs to what
//
// A process is attributed by two independent facts. Parentage ([Children], [Tree]) is exact for
// what still hangs below its root; with [Subreaper] orphans come back to the caller instead of
// init. A [Mark] is a number in a resource limit that no program looks at; fork, exec, env -i, setsid,
// nohup and double forks all keep it, so [Scan] finds what a dead keeper left behind. A mark
// attributes, it does not confine: a process that wants to can change its own limits.
//
// A process is named by an [ID], pid and start time, so that a reused pid is never taken for the
// process that had it before. A zombie is not alive anywhere in this package: the caller may have
// inherited it and not reaped it yet. (A process whose main thread has left while others run
// looks like a zombie in /proc, and is alive.)
//
// # Ending
//
// [End] ends a set of processes by a ladder of signals such that nothing which had not run yet runs. See there.
//
// # Limits
//
// Linux: wants /proc. pidfds are used where the kernel has them (5.3); without them, or when
// descriptors run out, a pid is compared with its start time just before each signal. Snapshots of a
// tree are not atomic; [End] repeats them until they are stable.
//
// Darwin: there is no way to set or read another process's limits and no subreaper. [SetMark] and
// [Subreaper] return an error that matches [errors.ErrUnsupported], [MarkOf] reports none and
// [Scan] finds nothing; a process that leaves its tree (double fork) is lost to this package. End
// waits by looking again, since there are no pidfds, and reports the wait status of no zombie, so that
// shells are ended with TERM rather than INT.
//
// All functions are safe for concurrent use; a [ChildWatch] belongs to one goroutine at a time.
package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// ID names one process for as long as the machine runs. Start is in clock ticks since boot on
// Linux, microseconds since the epoch on darwin: compare it only with others of the same [BootID].
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Self returns the ID of the calling process.
func Self() ID {
	id, _ := Lookup(os.Getpid())
	return id
}

// Lookup returns the ID of the process that has pid now, a zombie included. The error matches
// [syscall.ESRCH] if there is none.
func Lookup(pid int) (ID, error) {
	in, err := look(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{pid, in.start}, nil
}

// Alive reports whether the process exists and is not a zombie.
func (id ID) Alive() bool {
	in, err := look(id.PID)
	return err == nil && in.start == id.Start && in.alive()
}

// State returns the state letter of /proc/PID/stat: R, S, D, T, t, Z, X or I.
func State(pid int) (byte, error) {
	in, err := look(pid)
	return in.state, err
}

// Signal sends sig to the process. If it is gone, a zombie, or its pid belongs to another process now, nothing is
// sent and the error matches [syscall.ESRCH].
func Signal(id ID, sig syscall.Signal) error {
	h, err := open(id)
	if err != nil {
		return err
	}
	defer h.close()
	return h.signal(sig)
}

// Await returns nil when the process is gone, a zombie included, or ctx's cause when that ends first.
func Await(ctx context.Context, id ID) error {
	h, err := open(id)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.close()
	for id.Alive() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		awaitExit(ctx, []handle{h}, time.Hour)
	}
	return nil
}

// Reap collects every child that has changed its state, without blocking, and calls handle for
// each: exited, killed or (ws.Stopped()) stopped, with what it and the children it waited for used. It takes children from whoever else waits for
// them in this process, [os/exec.Cmd.Wait] included.
func Reap(handle func(pid int, ws syscall.WaitStatus, used syscall.Rusage)) {
	for {
		var ws syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WUNTRACED, &used)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		handle(pid, ws, used)
	}
}

// info is what one look at a process tells.
type info struct {
	state   byte
	ppid    int
	threads int
	start   uint64
	image   uint64             // differs after exec, is the parent's after fork; 0 if not known
	wait    syscall.WaitStatus // of a zombie, where the system shows it
}

// alive is false for zombies, but not for a process whose main thread alone has exited.
func (in info) alive() bool {
	return in.state != 'X' && in.state != 'x' && (in.state != 'Z' || in.threads > 1)
}
