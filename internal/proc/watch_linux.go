package proc

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ChildWatch answers in one system call whether a single-threaded process, such as a shell, has
// children. (Children that other threads than the first have made are not seen.) The descriptor stays with the
// process it was opened for, whoever gets the pid later.
type ChildWatch struct {
	pid  int
	fd   int
	fast bool // fd is open; otherwise Any asks the slow way
	buf  []byte
	pids []int
}

// Open starts to watch pid. Close ends it.
func (w *ChildWatch) Open(pid int) error {
	*w = ChildWatch{pid: pid}
	if !haveChildren() {
		return nil
	}
	p := strconv.Itoa(pid)
	fd, err := unix.Open("/proc/"+p+"/task/"+p+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("proc: watch children of %d: %w", pid, err)
	}
	w.fd, w.fast, w.buf = fd, true, make([]byte, 512)
	return nil
}

// Any reports whether the process has a living child other than those in except.
func (w *ChildWatch) Any(except ...int) bool {
	for _, pid := range w.children() {
		if slices.Contains(except, pid) {
			continue
		}
		if in, err := look(pid); err == nil && in.alive() {
			return true
		}
	}
	return false
}

func (w *ChildWatch) children() []int {
	if !w.fast {
		return Children(w.pid)
	}
	n := 0
	for {
		got, err := unix.Pread(w.fd, w.buf[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil // the process is gone
		}
		n += got
		// The kernel fills what it is given up to a page, so a short first answer is the whole
		// list and the usual case costs one call.
		if got == 0 || n == got && n < 400 {
			break
		}
		if len(w.buf)-n < 400 {
			w.buf = append(w.buf, make([]byte, len(w.buf))...)
		}
	}
	w.pids = parsePIDs(w.pids[:0], w.buf[:n])
	return w.pids
}

// Close stops watching. Any must not be called after it.
func (w *ChildWatch) Close() error {
	if !w.fast {
		return nil
	}
	w.fast = false
	return unix.Close(w.fd)
}
