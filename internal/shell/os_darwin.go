package shell

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// AbortSignal makes the driver's trap throw the shell back to its top level, so
// that the part of a command that has not run yet never runs. There are no
// real-time signals here, so it is one that users have too: a command that
// traps USR2 takes it from us (CanAbort), and its shell is ended instead.
const (
	AbortSignal = syscall.SIGUSR2
	abortName   = "USR2"
)

func pipe(p *[2]int) error {
	// No pipe2 here: hold the fork lock until the flags are set.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return nil
}

// Outside cannot be told without /proc: a wedged shell is then noticed only by
// its process being stopped or gone.
func (s *Shell) Outside() bool { return false }

// Cwd is not known in mid-command; the shell's own word counts after it.
func (s *Shell) Cwd() string { return "" }

// CanAbort reports whether the shell still catches AbortSignal.
func (s *Shell) CanAbort() bool {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", s.PID)
	return err == nil && k.Proc.P_sigcatch&(1<<(uint(AbortSignal)-1)) != 0
}

// OpenDescriptors cannot be counted without /proc.
func (s *Shell) OpenDescriptors() int { return 0 }

// Attributes put the shell into a session of its own. There are no control groups here.
func Attributes(int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
