package gate

import (
	"net"
	"os"
	"sync"

	"github.com/conchsh/conch"
)

type peerKey struct{}

// A peer is the other end of a connection.
type peer struct {
	ip   string
	conn net.Conn

	once sync.Once
	err  error
}

func newPeer(c net.Conn) *peer { return &peer{ip: addressOf(c), conn: c} }

// ours refuses a connection that another user of this machine made. Its cookie would
// be refused as well; but cookies are shared by all ports of a host, so one may
// have got hold of it.
func (p *peer) ours() error {
	p.once.Do(func() {
		local, ok1 := p.conn.LocalAddr().(*net.TCPAddr)
		remote, ok2 := p.conn.RemoteAddr().(*net.TCPAddr)
		if !ok1 || !ok2 || !remote.IP.IsLoopback() {
			p.err = conch.Errorf(conch.PermissionDenied, "the page is for this machine only")
			return
		}
		uid, known, err := ownerOf(remote, local)
		switch {
		case err != nil: // no such table here: the cookie alone decides
		case !known:
			p.err = conch.Errorf(conch.PermissionDenied, "this connection is nobody's")
		case uid != os.Getuid():
			p.err = conch.Errorf(conch.PermissionDenied, "this page is another user's").Hint("each user has a daemon of their own: conch ui")
		}
	})
	return p.err
}
