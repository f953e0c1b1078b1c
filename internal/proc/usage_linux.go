package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CopyLimits gives a process the resource limits of another, save those that carry marks.
func CopyLimits(from, to int) {
	for r := range unix.RLIMIT_RTTIME + 1 {
		if r == carriers[0].resource || r == carriers[1].resource {
			continue
		}
		var lim unix.Rlimit
		if unix.Prlimit(from, r, nil, &lim) == nil {
			_ = unix.Prlimit(to, r, &lim, nil) // a process that has gone needs none
		}
	}
}

// clockTick is what the kernel counts processor time in for /proc; the same on every
// architecture Go has.
const clockTick = time.Second / 100

// Usage is the processor time of a process so far, the most memory it had, and what
// it has now.
func Usage(pid int) (cpu time.Duration, peak, now int64) {
	dir := "/proc/" + strconv.Itoa(pid)
	var buf [1024]byte
	if text, err := readProc(dir+"/stat", buf[:0]); err == nil {
		// The name may hold anything; the last parenthesis ends it.
		if i := bytes.LastIndexByte(text, ')'); i >= 0 {
			f := bytes.Fields(text[i+1:])
			for _, n := range []int{11, 12} { // utime, stime
				if len(f) > n {
					cpu += time.Duration(digits(f[n])) * clockTick
				}
			}
		}
	}
	if text, err := os.ReadFile(dir + "/status"); err == nil {
		peak, now = kilobytes(string(text), "\nVmHWM:"), kilobytes(string(text), "\nVmRSS:")
	}
	return cpu, peak, now
}

// kilobytes reads a line of /proc/PID/status, in bytes.
func kilobytes(text, name string) int64 {
	_, line, _ := strings.Cut(text, name)
	f := strings.Fields(line)
	if len(f) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(f[0], 10, 64)
	return kb << 10
}

// Listeners gives the processes that accept TCP connections on a port in the network of
// process pid. all is false if some of them cannot be seen.
func Listeners(pid, port int) (ids []ID, all bool) {
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/" + table)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" { // LISTEN
				continue
			}
			_, hex, ok := strings.Cut(f[1], ":")
			if n, err := strconv.ParseInt(hex, 16, 32); ok && err == nil && int(n) == port {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(inodes) == 0 {
		return nil, true
	}
	found := map[string]bool{}
	for _, pid := range pids() {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		ents, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range ents {
			if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && inodes[to] {
				found[to] = true
				if id, err := Lookup(pid); err == nil {
					ids = append(ids, id)
				}
				break
			}
		}
	}
	return ids, len(found) == len(inodes)
}
