package shell

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// AbortSignal makes the driver's trap throw the shell back to its top level, so
// that the part of a command that has not run yet never runs.
const (
	AbortSignal = syscall.Signal(39) // SIGRTMIN+5 as bash counts (SIGRTMIN is 34 in user space)
	abortName   = "RTMIN+5"
)

func pipe(p *[2]int) error { return unix.Pipe2(p[:], unix.O_CLOEXEC) }

// Outside reports whether the shell stands outside any command: its standard
// input is the control pipe. A command's own redirections never lead there, so a
// shell that is outside and still owes an End is wedged or about to report.
func (s *Shell) Outside() bool {
	l, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", s.PID))
	return err == nil && l == fmt.Sprintf("pipe:[%d]", s.controlInode)
}

// Cwd is the directory the shell stands in now, also in mid-command.
func (s *Shell) Cwd() string {
	l, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", s.PID))
	return strings.TrimSuffix(l, " (deleted)")
}

// CanAbort reports whether the shell still catches AbortSignal.
func (s *Shell) CanAbort() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), "\nSigCgt:\t")
	if !ok || len(rest) < 16 {
		return false
	}
	mask, err := strconv.ParseUint(rest[:16], 16, 64)
	return err == nil && mask&(1<<(uint(AbortSignal)-1)) != 0
}

// OpenDescriptors counts the descriptors the user opened in the shell. Those that bash
// keeps for itself are close-on-exec, also the ones it holds for a moment only.
func (s *Shell) OpenDescriptors() int {
	dir := fmt.Sprintf("/proc/%d/fdinfo", s.PID)
	ents, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range ents {
		if fd, err := strconv.Atoi(e.Name()); err != nil || fd < 3 {
			continue
		}
		info, err := os.ReadFile(dir + "/" + e.Name())
		if err != nil {
			continue
		}
		_, flags, _ := strings.Cut(string(info), "flags:")
		flags, _, _ = strings.Cut(strings.TrimSpace(flags), "\n")
		if v, err := strconv.ParseUint(flags, 8, 64); err == nil && v&unix.O_CLOEXEC == 0 {
			n++
		}
	}
	return n
}

// Attributes put the shell into a session of its own, and into its control group
// before it runs its first instruction.
func Attributes(cgroup int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if cgroup > 0 {
		a.UseCgroupFD, a.CgroupFD = true, cgroup
	}
	return a
}
