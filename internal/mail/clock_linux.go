package mail

import (
	"time"

	"golang.org/x/sys/unix"
)

// steady counts suspension, which time.Now's monotonic part does not.
func steady() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(begun)
	}
	return time.Duration(ts.Nano())
}

var begun = time.Now()
