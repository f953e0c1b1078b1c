package tty

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
	disabled   = 0 // a control character that there is not
)

// openIn makes a terminal of the devpts that is mounted below root.
func openIn(root int) (PTY, error) {
	p := PTY{-1, -1, ""}
	fail := func(err error) (PTY, error) { return p, fmt.Errorf("no pseudo-terminal: %w", err) }
	var err error
	if p.Master, err = unix.Openat(root, "dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return fail(err)
	}
	if err = unix.IoctlSetPointerInt(p.Master, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	n, err := unix.IoctlGetInt(p.Master, unix.TIOCGPTN)
	if err != nil {
		return fail(err)
	}
	p.Path = fmt.Sprintf("/dev/pts/%d", n)
	if p.Slave, err = unix.Openat(root, p.Path[1:], unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return fail(err)
	}
	return p, nil
}
