// Package fault names the places where a crash could lose something. A test
// arms one of them with CONCH_FAULT=name (or name:n for its nth passing) in the
// environment of the process that is to die there, lets it die, and looks at
// what the next one finds. An unarmed point costs one atomic load.
package fault

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Variable is the environment variable that arms a point.
const Variable = "CONCH_FAULT"

var armed = sync.OnceValue(func() *point {
	name, n, _ := strings.Cut(os.Getenv(Variable), ":")
	if name == "" {
		return nil
	}
	p := &point{name: name}
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil || count < 1 {
		count = 1
	}
	p.left.Store(count)
	return p
})

type point struct {
	name string
	left atomic.Int64
}

// Point kills this process, without any clean-up, if the point is armed.
func Point(name string) {
	p := armed()
	if p == nil || p.name != name || p.left.Add(-1) != 0 {
		return
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing may run between the signal and the end
}
