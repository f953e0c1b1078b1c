package gate

import (
	"net"
	"os"
	"strings"
	"testing"
)

// The user at the other end is found in the kernel's table, for either kind of socket.
func TestOwner(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	from, to := c.LocalAddr().(*net.TCPAddr), l.Addr().(*net.TCPAddr)
	uid, known, err := ownerOf(from, to)
	if err != nil || !known || uid != os.Getuid() {
		t.Errorf("%d %v %v", uid, known, err)
	}
	if _, known, err := ownerOf(&net.TCPAddr{IP: from.IP, Port: 1}, to); known || err != nil {
		t.Errorf("a connection that is not there: %v %v", known, err)
	}
	if got := endpoint(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, true); !strings.HasSuffix(got, ":0050") || len(got) != 37 {
		t.Errorf("as IPv6: %s", got)
	}
}
