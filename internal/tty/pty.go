package tty

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A PTY is a pseudo-terminal: what a program writes to Slave is read from Master, what
// is written to Master the program reads. Both are descriptors of this process alone
// (close-on-exec). Reading and writing Master never waits.
type PTY struct {
	Master, Slave int
	Path          string // of the slave
}

// Open makes a pseudo-terminal of a size. root, if it is not -1, is a directory that is
// the root of those who are to use the terminal: it is then of the kind that is mounted
// there, and Path is a path for them.
func Open(root, cols, rows int) (p PTY, err error) {
	if root >= 0 {
		p, err = openIn(root)
	} else {
		p, err = openHere()
	}
	if err == nil {
		err = unix.SetNonblock(p.Master, true)
	}
	if err == nil {
		err = p.Resize(cols, rows)
	}
	if err != nil {
		p.Close()
		return PTY{}, err
	}
	return p, nil
}

func openHere() (PTY, error) {
	m, s, err := pty.Open()
	if err != nil {
		return PTY{-1, -1, ""}, fmt.Errorf("no pseudo-terminal: %w", err)
	}
	defer m.Close()
	defer s.Close()
	// The files are blocking ones, on purpose of their maker: a read would hold a
	// thread and could not be ended. Descriptors of our own are not.
	p := PTY{-1, -1, s.Name()}
	if p.Master, err = own(m); err == nil {
		p.Slave, err = own(s)
	}
	return p, err
}

func own(f *os.File) (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3) }

// Resize sets the size; the program is told by SIGWINCH.
func (p PTY) Resize(cols, rows int) error {
	return unix.IoctlSetWinsize(p.Master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
}

// Mode gives the terminal's settings, to be set again by SetMode. Ctrl-Z is none of
// them: there is nothing to which a stopped program could be stopped.
func (p PTY) Mode() (*unix.Termios, error) {
	t, err := unix.IoctlGetTermios(p.Slave, getTermios)
	if err == nil {
		t.Cc[unix.VSUSP] = disabled
	}
	return t, err
}

// SetMode sets what Mode gave, whatever a program has left.
func (p PTY) SetMode(t *unix.Termios) error { return unix.IoctlSetTermios(p.Slave, setTermios, t) }

// Foreground makes the calling process's group the one that reads from the terminal at
// fd and gets its signals. With nobody it is a group that is gone by the time the
// caller is: whoever reads the terminal then gets an error. It is for a short-lived
// process that the terminal controls.
func Foreground(fd int, nobody bool) error {
	signal.Ignore(syscall.SIGTTOU) // which changing it from the background would bring
	if nobody {
		if err := unix.Setpgid(0, 0); err != nil {
			return err
		}
	}
	return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
}

// CloseSlave lets go of the program's side, which is what ends Master once the
// program has.
func (p *PTY) CloseSlave() {
	if p.Slave >= 0 {
		unix.Close(p.Slave)
		p.Slave = -1
	}
}

// Close closes both.
func (p *PTY) Close() {
	p.CloseSlave()
	if p.Master >= 0 {
		unix.Close(p.Master)
		p.Master = -1
	}
}
