package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Subreaper makes the caller inherit orphaned descendants in init's place; it must [Reap] them.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("proc: become subreaper: %w", err)
	}
	return nil
}

// BootID identifies this run of the machine; empty if the system does not tell.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// readProc reads a small file whole. It goes without os.File, whose poller costs as much again
// for /proc. The result shares buf when it fits.
func readProc(path string, buf []byte) ([]byte, error) { return readAt(unix.AT_FDCWD, path, buf) }

func readAt(dir int, path string, buf []byte) ([]byte, error) {
	fd, err := openProc(dir, path, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, 4096)
		}
		room := cap(buf) - len(buf)
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		// The kernel gives what there is up to a page: less than asked for is the end, and
		// saves the read that would say so.
		if n == 0 || n < room && len(buf) < 2048 {
			return buf, nil
		}
	}
}

func openProc(dir int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func look(pid int) (info, error) {
	var space [64]byte
	path := append(space[:0], "/proc/"...)
	path = strconv.AppendInt(path, int64(pid), 10)
	path = append(path, "/stat"...)
	var buf [1024]byte
	text, err := readProc(string(path), buf[:])
	if pid <= 0 || err == unix.ENOENT || err == unix.ESRCH {
		return info{}, syscall.ESRCH
	}
	if err != nil {
		return info{}, fmt.Errorf("proc: look at process %d: %w", pid, err)
	}
	in, ok := parseStat(text)
	if !ok {
		return info{}, fmt.Errorf("proc: look at process %d: unknown form of /proc/PID/stat", pid)
	}
	return in, nil
}

// parseStat reads the fields after the command's name, which may itself hold spaces,
// parentheses and newlines. Numbers are those of proc_pid_stat(5).
func parseStat(text []byte) (in info, ok bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 || end+3 >= len(text) {
		return in, false
	}
	rest := text[end+2:]
	field := 3
	for len(rest) > 0 {
		word := rest
		if i := bytes.IndexByte(rest, ' '); i >= 0 {
			word, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		switch field {
		case 3:
			in.state = word[0]
		case 4:
			in.ppid = int(digits(word))
		case 20:
			in.threads = int(digits(word))
		case 22:
			in.start = digits(word)
			ok = true
		case 28:
			in.image = digits(word) // where the stack starts: random for each exec
		case 52:
			in.wait = syscall.WaitStatus(digits(word))
		}
		field++
	}
	return in, ok
}

// digits reads the decimal digits that b starts with.
func digits(b []byte) (n uint64) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// haveChildren reports whether the kernel lists children (CONFIG_PROC_CHILDREN).
var haveChildren = sync.OnceValue(func() bool {
	return unix.Access("/proc/thread-self/children", unix.R_OK) == nil
})

// Children returns the pids of the direct children, zombies included.
func Children(pid int) []int {
	in, err := look(pid)
	if err != nil {
		return nil
	}
	if !haveChildren() {
		return byParent()[pid]
	}
	return appendChildren(nil, pid, in.threads)
}

// appendChildren adds the children of every thread: the list of a process is split by who forked.
func appendChildren(dst []int, pid, threads int) []int {
	if threads <= 1 {
		p := strconv.Itoa(pid)
		return appendPIDs(dst, unix.AT_FDCWD, "/proc/"+p+"/task/"+p+"/children")
	}
	eachTask(pid, func(dir int, tid string) bool {
		dst = appendPIDs(dst, dir, tid+"/children")
		return true
	})
	return dst
}

// eachTask calls f for the threads of a process until it returns false. Paths below dir are a
// third cheaper to open than whole ones.
func eachTask(pid int, f func(dir int, tid string) bool) {
	fd, err := openProc(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/task", unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, tid := range names(fd) {
		if !f(fd, strconv.Itoa(tid)) {
			return
		}
	}
}

func appendPIDs(dst []int, dir int, path string) []int {
	var buf [1024]byte
	text, err := readAt(dir, path, buf[:])
	if err != nil {
		return dst
	}
	return parsePIDs(dst, text)
}

func parsePIDs(dst []int, text []byte) []int {
	for len(text) > 0 {
		i := bytes.IndexByte(text, ' ')
		if i < 0 {
			i = len(text) - 1
		}
		if pid := digits(text); pid > 0 {
			dst = append(dst, int(pid))
		}
		text = text[i+1:]
	}
	return dst
}

// pids returns the pids in /proc, in order.
func pids() []int {
	fd, err := openProc(unix.AT_FDCWD, "/proc", unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return names(fd)
}

// names returns the numeric names in an open directory of /proc.
func names(fd int) []int {
	var pids []int
	var buf [4096]byte
	var found []string
	for {
		n, err := unix.Getdents(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return pids // what was read before an error is still true
		}
		_, _, found = unix.ParseDirent(buf[:n], -1, found[:0])
		for _, name := range found {
			if pid, err := strconv.Atoi(name); err == nil {
				pids = append(pids, pid)
			}
		}
	}
}

// byParent is the table of all children, for kernels that do not keep it readable.
func byParent() map[int][]int {
	kids := make(map[int][]int)
	for _, pid := range pids() {
		if in, err := look(pid); err == nil {
			kids[in.ppid] = append(kids[in.ppid], pid)
		}
	}
	return kids
}

// Tree returns all living descendants of root, parents before their children, root itself left out.
// It is a walk, not a snapshot: what is forked or orphaned during it can be missed when
// neither root nor one of the reapers, descendants of it, inherits orphans.
func Tree(root int, reapers ...int) []ID {
	var children func(pid, threads int) []int
	if haveChildren() {
		var buf []int
		children = func(pid, threads int) []int {
			buf = appendChildren(buf[:0], pid, threads)
			return buf
		}
	} else {
		kids := byParent()
		children = func(pid, _ int) []int { return kids[pid] }
	}
	top, err := look(root)
	if err != nil {
		return nil
	}
	type node struct{ pid, threads int }
	var ids []ID
	seen := map[int]bool{root: true}
	queue := []node{{root, top.threads}}
	walk := func() {
		for len(queue) > 0 {
			n := queue[0]
			queue = queue[1:]
			for _, pid := range children(n.pid, n.threads) {
				if seen[pid] {
					continue
				}
				seen[pid] = true
				if in, err := look(pid); err == nil && in.alive() {
					ids = append(ids, ID{pid, in.start})
					queue = append(queue, node{pid, in.threads})
				}
			}
		}
	}
	// What was orphaned during the walk is now a child of the root, if that is a reaper, and of
	// its main thread, which the kernel asks first: look there again until nothing new has come.
	// The bound is for fork storms.
	if top.state != 'Z' {
		top.threads = 1
	}
	for range 8 {
		before := len(seen)
		walk()
		if len(seen) == before {
			break
		}
		queue = append(queue, node{root, top.threads})
		for _, pid := range reapers {
			queue = append(queue, node{pid, 1})
		}
	}
	return ids
}

// Scan returns every living process on the machine, the caller left out, whose mark match accepts.
// Those of other users are found too, if they carry the mark: sudo and other set-uid programs.
func Scan(match func(Mark) bool) []ID {
	var ids []ID
	self := os.Getpid()
	seen := make(map[int]bool)
	// A process may fork and leave between the listing and the look at it: its child is then in
	// the next listing. Only pids not looked at before cost anything there.
	for range 8 {
		vanished := false
		for _, pid := range pids() {
			if seen[pid] || pid == self {
				continue
			}
			seen[pid] = true
			m, ok := MarkOf(pid)
			if ok && !match(m) {
				continue
			}
			if !ok {
				// Unmarked, or gone before it was asked.
				if unix.Kill(pid, 0) == unix.ESRCH {
					vanished = true
				}
				continue
			}
			in, err := look(pid)
			if err != nil {
				vanished = true
			} else if in.alive() {
				ids = append(ids, ID{pid, in.start})
			} else {
				vanished = true // a zombie of ours: it may have forked just before
			}
		}
		if !vanished {
			break
		}
	}
	return ids
}

// stopped reports whether every thread has stopped; the main thread, which stat shows, may be ahead of the others.
func (in info) stopped(pid int) bool {
	if in.state != 'T' && in.state != 't' && in.state != 'Z' {
		return false
	}
	if in.threads <= 1 {
		return true
	}
	all := true
	eachTask(pid, func(dir int, tid string) bool {
		var buf [1024]byte
		text, err := readAt(dir, tid+"/stat", buf[:])
		if err != nil {
			return true // it has left
		}
		t, ok := parseStat(text)
		all = ok && strings.IndexByte("TtZX", t.state) >= 0
		return all
	})
	return all
}

// ignores reports whether the process has set sig to be ignored.
func ignores(pid int, sig syscall.Signal) bool {
	var buf [4096]byte
	text, err := readProc("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(text, []byte("\nSigIgn:\t"))
	if !ok || len(rest) < 16 {
		return false
	}
	mask, err := strconv.ParseUint(string(rest[:16]), 16, 64)
	return err == nil && mask>>(uint(sig)-1)&1 == 1
}

// program returns the base name of the executable; comm, which a script's name replaces, only if it cannot be read.
func program(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	name, err := os.Readlink(dir + "/exe")
	if err != nil {
		comm, _ := os.ReadFile(dir + "/comm")
		return strings.TrimSpace(string(comm))
	}
	name = strings.TrimSuffix(name, " (deleted)")
	return name[strings.LastIndexByte(name, '/')+1:]
}
