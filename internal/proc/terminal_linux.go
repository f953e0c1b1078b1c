package proc

import (
	"os"
	"strconv"
	"strings"
)

// AtTerminal reports whether a process reads from a terminal.
func AtTerminal(pid int) bool {
	name, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/0")
	return err == nil && (strings.HasPrefix(name, "/dev/pts/") || strings.HasPrefix(name, "/dev/tty"))
}
