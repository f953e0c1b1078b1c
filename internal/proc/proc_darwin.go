package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Subreaper is not possible on darwin: orphans go to launchd.
func Subreaper() error { return fmt.Errorf("proc: become subreaper: %w", errors.ErrUnsupported) }

// BootID identifies this run of the machine; empty if the system does not tell.
func BootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}

// SetMark is not possible on darwin. Taking a mark away always succeeds, as there never is one.
func SetMark(pid int, m Mark) error {
	if m == 0 {
		return nil
	}
	return fmt.Errorf("proc: mark process %d: %w", pid, errors.ErrUnsupported)
}

// MarkOf reports no mark on darwin.
func MarkOf(pid int) (Mark, bool) { return 0, false }

// Scan finds nothing on darwin, where there are no marks.
func Scan(match func(Mark) bool) []ID { return nil }

// The states of sys/proc.h.
const (
	sIDL = iota + 1
	sRUN
	sSLEEP
	sSTOP
	sZOMB
)

func describe(k *unix.KinfoProc) info {
	in := info{
		ppid:    int(k.Eproc.Ppid),
		threads: 1,
		start:   uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec),
	}
	switch k.Proc.P_stat {
	case sRUN, sIDL:
		in.state = 'R'
	case sSTOP:
		in.state = 'T'
	case sZOMB:
		in.state = 'Z'
	default:
		in.state = 'S'
	}
	return in
}

func kinfo(pid int) (*unix.KinfoProc, error) {
	if pid <= 0 {
		return nil, syscall.ESRCH
	}
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		// An unknown pid is an empty answer, which x/sys gives as EIO.
		return nil, syscall.ESRCH
	}
	return k, nil
}

func look(pid int) (info, error) {
	k, err := kinfo(pid)
	if err != nil {
		return info{}, err
	}
	return describe(k), nil
}

func (in info) stopped(pid int) bool { return in.state == 'T' || in.state == 'Z' }

func ignores(pid int, sig syscall.Signal) bool {
	k, err := kinfo(pid)
	return err == nil && k.Proc.P_sigignore>>(uint(sig)-1)&1 == 1
}

func program(pid int) string {
	k, err := kinfo(pid)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(k.Proc.P_comm[:])
}

// Children returns the pids of the direct children, zombies included.
func Children(pid int) []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	var kids []int
	for i := range all {
		if int(all[i].Eproc.Ppid) == pid {
			kids = append(kids, int(all[i].Proc.P_pid))
		}
	}
	return kids
}

// Tree returns all living descendants of root, parents before their children, root itself left out.
func Tree(root int, _ ...int) []ID {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	kids := make(map[int][]*unix.KinfoProc)
	for i := range all {
		ppid := int(all[i].Eproc.Ppid)
		kids[ppid] = append(kids[ppid], &all[i])
	}
	var ids []ID
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, k := range kids[queue[0]] {
			pid, in := int(k.Proc.P_pid), describe(k)
			if !seen[pid] && in.alive() {
				seen[pid] = true
				ids = append(ids, ID{pid, in.start})
				queue = append(queue, pid)
			}
		}
	}
	return ids
}

// handle is a process; without pidfds its start time is compared before each signal.
type handle struct{ id ID }

func open(id ID) (handle, error) {
	if !id.Alive() {
		return handle{}, syscall.ESRCH
	}
	return handle{id}, nil
}

func (h handle) close() {}

func (h handle) signal(sig syscall.Signal) error {
	err := error(syscall.ESRCH)
	if h.id.Alive() {
		err = unix.Kill(h.id.PID, sig)
	}
	if err != nil {
		return fmt.Errorf("proc: signal process %d: %w", h.id.PID, err)
	}
	return nil
}

// lookAgain is how often processes are looked at.
const lookAgain = 5 * time.Millisecond

// awaitExit returns after a short while, the limit, or when ctx has ended, with the indices of all: only a look can tell.
func awaitExit(ctx context.Context, hs []handle, limit time.Duration) []int {
	timer := time.NewTimer(min(limit, lookAgain))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	all := make([]int, len(hs))
	for i := range all {
		all[i] = i
	}
	return all
}

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(sig))
}

// ChildWatch answers whether a process has children.
type ChildWatch struct{ id ID }

// Open starts to watch pid. Close ends it.
func (w *ChildWatch) Open(pid int) (err error) {
	if w.id, err = Lookup(pid); err != nil {
		return &os.SyscallError{Syscall: "sysctl", Err: err}
	}
	return nil
}

// Any reports whether the process has a living child other than those in except.
func (w *ChildWatch) Any(except ...int) bool {
	if !w.id.Alive() {
		return false
	}
	return slices.ContainsFunc(Children(w.id.PID), func(pid int) bool {
		in, err := look(pid)
		return !slices.Contains(except, pid) && err == nil && in.alive()
	})
}

// Close stops watching.
func (w *ChildWatch) Close() error { return nil }

// AtTerminal cannot be seen here; the command line looks for itself.
func AtTerminal(pid int) bool { return true }
