package gate

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
)

// looks is how often the kernel's table is read: it is not read in one step, and a
// connection may be missed while others come and go.
const looks = 3

// ownerOf finds the user at one end of a connection within this machine. A socket
// whose owner has closed it counts as root's there, and is known as such.
func ownerOf(from, to *net.TCPAddr) (uid int, known bool, err error) {
	for range looks {
		var missing error
		for _, table := range []struct {
			path string
			v6   bool
		}{{"/proc/self/net/tcp", false}, {"/proc/self/net/tcp6", true}} {
			uid, known, err := lookUp(table.path, endpoint(from, table.v6), endpoint(to, table.v6))
			if err != nil && !(table.v6 && errors.Is(err, os.ErrNotExist)) {
				missing = err
			}
			if known {
				return uid, true, nil
			}
		}
		if missing != nil {
			return 0, false, missing
		}
	}
	return 0, false, nil
}

func lookUp(path, from, to string) (uid int, known bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		// sl local_address rem_address st queues timer retransmits uid
		w := strings.Fields(s.Text())
		if len(w) > 7 && w[1] == from && w[2] == to {
			uid, err := strconv.Atoi(w[7])
			return uid, err == nil, err
		}
	}
	return 0, false, s.Err()
}

// endpoint writes an address as the table does: words in the machine's own order.
func endpoint(a *net.TCPAddr, v6 bool) string {
	ip := a.IP.To4()
	if v6 {
		ip = a.IP.To16()
	}
	if ip == nil {
		return ""
	}
	words := make([]byte, len(ip))
	for i := 0; i < len(ip); i += 4 {
		binary.BigEndian.PutUint32(words[i:], binary.NativeEndian.Uint32(ip[i:]))
	}
	port := strconv.FormatUint(uint64(a.Port)|0x10000, 16)[1:]
	return strings.ToUpper(hex.EncodeToString(words) + ":" + port)
}
