package keeper

import (
	"runtime"
	"syscall"
)

// peakMemory is the most memory a process had, in bytes. The kernels count differently.
func peakMemory(used syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" {
		return int64(used.Maxrss)
	}
	return int64(used.Maxrss) << 10
}
