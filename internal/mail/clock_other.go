//go:build !linux

package mail

import (
	"time"

	"golang.org/x/sys/unix"
)

// steady on macOS goes on while the system sleeps.
func steady() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Since(begun)
	}
	return time.Duration(ts.Nano())
}

var begun = time.Now()
