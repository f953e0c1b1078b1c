package keeper

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back the memory an idle keeper does not need. A thousand of them may
// be idle at once: the heap goes back to the system, and the program's own code and
// constants are unmapped until they are touched again, when they come from the page
// cache, 64 KiB at a time.
func trim() {
	// The first collection's books take half a megabyte, which is more than there is
	// to be found before there had to be one.
	var gc debug.GCStats
	if debug.ReadGCStats(&gc); gc.NumGC > 0 {
		debug.FreeOSMemory()
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		// 00400000-00803000 r-xp 00000000 fe:00 123 /path
		p := strings.Fields(sc.Text())
		if len(p) < 6 || p[5] != strings.TrimSuffix(exe, " (deleted)") || p[1] != "r-xp" && p[1] != "r--p" {
			continue // never a writable one: what is written is only there
		}
		lo, hi, _ := strings.Cut(p[0], "-")
		a, err1 := strconv.ParseUint(lo, 16, 64)
		b, err2 := strconv.ParseUint(hi, 16, 64)
		if err1 != nil || err2 != nil || b <= a {
			continue
		}
		unix.Syscall(unix.SYS_MADVISE, uintptr(a), uintptr(b-a), unix.MADV_DONTNEED)
	}
}
