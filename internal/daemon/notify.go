package daemon

import (
	"net"
	"os"
)

// notifier tells the service manager that started this process, if one did, how
// it is doing: the protocol of sd_notify(3).
type notifier struct{ path string }

// newNotifier takes the manager's address out of the environment: it is meant for
// this process and none that it starts.
func newNotifier() notifier {
	n := notifier{os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	return n
}

// say sends a state. A manager that cannot be told finds out by itself.
func (n notifier) say(state string) {
	if n.path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.path, Net: "unixgram"}) // a leading @ means what it does there
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}
