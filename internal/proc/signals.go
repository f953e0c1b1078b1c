package proc

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ParseSignal reads a signal's name, with or without SIG and in any case, or its number.
func ParseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0, fmt.Errorf("there is no signal %d", n)
		}
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	for n := 34; n <= 64; n++ {
		if SignalName(syscall.Signal(n)) == name {
			return syscall.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("there is no signal %q", s)
}
