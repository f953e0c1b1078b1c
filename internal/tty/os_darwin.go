package tty

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
	disabled   = 0xff // a control character that there is not
)

func openIn(int) (PTY, error) { return PTY{-1, -1, ""}, errors.ErrUnsupported }
