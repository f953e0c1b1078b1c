package tty

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
	disabled   = 0xff // a control character that there is not
)
