//go:build !linux

package gate

import (
	"errors"
	"net"
)

// ownerOf cannot tell here.
func ownerOf(from, to *net.TCPAddr) (uid int, known bool, err error) {
	return 0, false, errors.ErrUnsupported
}
