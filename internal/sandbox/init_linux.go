package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Init is the first process of a box, `conch keeper --sandbox`: alone in new namespaces,
// with all capabilities over them and none over anything else. It makes the box as
// descriptor 3 tells it, says so there, and waits for the end of that.
func Init() int {
	const fd = 3
	unix.CloseOnExec(fd)
	f := os.NewFile(fd, "keeper")
	if f == nil {
		return 1
	}
	// What is in the box must not look into this process: it is the machine's file
	// that runs here, and for a while the machine's root that it sees.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	var c Config
	if err := json.NewDecoder(f).Decode(&c); err != nil {
		return 1
	}
	rules, err := (&builder{Config: c}).build()
	var r reply
	if err != nil {
		r.Step, r.Error = "make it", err.Error()
		var step *failure
		if errors.As(err, &step) {
			r.Step, r.Error = step.step, step.err.Error()
		}
		var errno unix.Errno
		if errors.As(err, &errno) {
			r.Errno = int(errno)
		}
		var moved *displaced
		if errors.As(err, &moved) {
			r.Place, r.Errno = moved.path, int(moved.err)
		}
	}
	text, _ := json.Marshal(r)
	var rights []byte
	if err == nil && rules >= 0 {
		rights = unix.UnixRights(rules)
	}
	deafen() // before anybody is here who could send a signal
	if serr := unix.Sendmsg(fd, text, rights, nil, 0); serr != nil || err != nil {
		return 1
	}
	if rules >= 0 {
		unix.Close(rules)
	}
	var b [1]byte
	for {
		if n, err := unix.Read(fd, b[:]); n == 0 || err != nil && err != unix.EINTR {
			return 0 // and everybody here goes with us
		}
	}
}

// deafen makes this process ignore every signal, which those in the box could send it:
// a first process is killed by no signal that it does not catch, but Go catches all. The
// kernel then also collects the orphans that come to it.
func deafen() {
	for c := uintptr(0); c < 64; c++ {
		if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); errno != 0 {
			break
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	ignore := struct {
		handler, flags, restorer, mask uint64
	}{handler: 1} // SIG_IGN
	for sig := uintptr(1); sig <= 64; sig++ {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	}
}

// old is where the machine's root is while a box is being made.
const old = "/.old"

func try(step string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{step, err}
}

// A builder makes the file system of a box.
type builder struct {
	Config
	memory uint64   // device of what the box can write in memory
	lids   []string // directories of ours on the way to a place
	run    string   // where Run really is
}

// build makes the box's file system and network, and its Landlock rules.
func (c *builder) build() (rules int, err error) {
	links, err := c.resolve()
	if err != nil {
		return -1, err
	}
	if !c.Network {
		if err := loopback(); err != nil {
			return -1, try("set up the loopback", err)
		}
	}
	if err := c.enter(); err != nil {
		return -1, err
	}
	if err := c.showSystem(links); err != nil {
		return -1, err
	}
	if err := c.showProc(); err != nil {
		return -1, err
	}
	if err := c.showDevices(); err != nil {
		return -1, err
	}
	if err := c.showPlaces(); err != nil {
		return -1, err
	}
	if err := c.hide(); err != nil {
		return -1, err
	}
	if err := c.showRun(); err != nil {
		return -1, err
	}
	if err := unix.Unmount(old, unix.MNT_DETACH); err != nil {
		return -1, try("leave the machine's root", err)
	}
	if err := os.Remove(old); err != nil {
		return -1, try("leave the machine's root", err)
	}
	if err := restrict("/", false, unix.MOUNT_ATTR_RDONLY); err != nil {
		return -1, try("make the root read-only", err)
	}
	fd, err := ruleset(c.rules(), c.Network)
	return fd, try("make Landlock rules", err)
}

// enter changes to an empty root, with the machine's below it.
func (c *builder) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return try("keep its mounts to itself", err)
	}
	base := "/tmp" // any directory; it is covered only until the root changes
	if err := unix.Mount("conch", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return try("mount its root", err)
	}
	if err := os.Mkdir(base+old, 0o700); err != nil {
		return try("mount its root", err)
	}
	if err := unix.PivotRoot(base, base+old); err != nil {
		return try("change to its root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return try("change to its root", err)
	}
	// All that can be written in the box but its work directory, under one limit.
	for _, dir := range []string{scratch, "/tmp", "/run", "/var"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return try("mount its memory", err)
		}
	}
	if err := unix.Mount("conch", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", memoryLimit(), maxFiles)); err != nil {
		return try("mount its memory", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(scratch, &st); err != nil {
		return try("mount its memory", err)
	}
	c.memory = st.Dev
	for dir, mode := range map[string]uint32{"/tmp": 0o1777, "/shm": 0o1777, "/home": 0o700} {
		if err := unix.Mkdir(scratch+dir, 0o700); err != nil {
			return try("mount its memory", err)
		}
		if err := unix.Chmod(scratch+dir, mode); err != nil {
			return try("mount its memory", err)
		}
	}
	if err := os.Symlink("../tmp", "/var/tmp"); err != nil {
		return try("mount its memory", err)
	}
	return try("mount its memory", bind(scratch+"/tmp", "/tmp", 0))
}

// What a box may keep in memory: /tmp, /dev/shm and the home together.
const (
	maxMemory = 1 << 30
	maxFiles  = 256 << 10
)

// memoryLimit is maxMemory, or half of what a small machine has.
func memoryLimit() uint64 {
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		return maxMemory
	}
	return min(maxMemory, uint64(i.Totalram)*uint64(i.Unit)/2)
}

// resolve finds, while the machine's root is still in place, the files to which links in
// /etc lead that lie where a box has nothing.
func (c *builder) resolve() (files []string, err error) {
	if c.Run != "" {
		if c.run, err = filepath.EvalSymlinks(c.Run); err != nil {
			return nil, try("find "+c.Run, err)
		}
	}
	if c.Network {
		if p, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && !within(p, "/etc") {
			files = append(files, p)
		}
	}
	return files, nil
}

// showSystem shows the programs and settings of the machine.
func (c *builder) showSystem(files []string) error {
	for _, dir := range append(system(), "/run/current-system") {
		fi, err := os.Lstat(old + dir)
		if err != nil {
			continue
		}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			var to string
			if to, err = os.Readlink(old + dir); err == nil {
				err = os.Symlink(to, dir)
			}
		case fi.IsDir():
			if err = os.MkdirAll(dir, 0o755); err == nil {
				err = bind(old+dir, dir, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
			}
		}
		if err != nil {
			return try("show "+dir, err)
		}
	}
	for _, f := range files {
		if err := c.showFile(f); err != nil {
			return try("show "+f, err)
		}
	}
	if os.Getuid() == 0 {
		return hidePrivate("/etc")
	}
	return nil
}

// hidePrivate covers what only root could read: in the box root is a user like others.
func hidePrivate(top string) error {
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it cannot be read from here either
		}
		fi, err := d.Info()
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 || fi.Mode().Perm()&0o004 != 0 {
			return nil
		}
		if d.IsDir() {
			if err := cover(path); err != nil {
				return try("hide "+path, err)
			}
			return fs.SkipDir
		}
		return try("hide "+path, bind(old+"/dev/null", path, unix.MOUNT_ATTR_RDONLY))
	})
}

// cover puts an empty directory over one.
func cover(path string) error {
	return unix.Mount("conch", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "mode=0555,size=4k")
}

// showProc mounts a /proc of the box's own processes. Nothing in it can be written:
// who is root outside would reach the kernel's settings there.
func (c *builder) showProc() error {
	if err := os.Mkdir("/proc", 0o555); err != nil {
		return try("mount /proc", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return try("mount /proc", err)
	}
	// No namespaces below this one, in which a process would have capabilities again.
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return try("forbid further user namespaces", err)
	}
	return try("make /proc read-only", restrict("/proc", true, unix.MOUNT_ATTR_RDONLY))
}

func devices() []string { return []string{"null", "zero", "full", "random", "urandom", "tty"} }

// showDevices makes a /dev with the few devices every program may have, and terminals
// of its own.
func (c *builder) showDevices() error {
	const step = "make /dev"
	if err := os.Mkdir("/dev", 0o755); err != nil {
		return try(step, err)
	}
	if err := unix.Mount("conch", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=1m"); err != nil {
		return try(step, err)
	}
	for _, d := range devices() {
		if err := os.WriteFile("/dev/"+d, nil, 0o600); err != nil {
			return try(step, err)
		}
		if err := unix.Mount(old+"/dev/"+d, "/dev/"+d, "", unix.MS_BIND, ""); err != nil {
			return try("show /dev/"+d, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return try(step, err)
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return try(step, err)
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return try("make terminals", err)
	}
	if err := bind(scratch+"/shm", "/dev/shm", 0); err != nil {
		return try(step, err)
	}
	return try(step, restrict("/dev", false, unix.MOUNT_ATTR_RDONLY))
}

// showPlaces shows the work directory, the empty home, and what may be read besides.
func (c *builder) showPlaces() error {
	for _, p := range c.places() {
		if err := c.showPlace(p); err != nil {
			return try("show "+p.path, err)
		}
	}
	return nil
}

func (c *builder) showPlace(p place) error {
	if p.from != "" {
		if err := c.mkdir(p.path); err != nil {
			return err
		}
		return bind(p.from, p.path, unix.MOUNT_ATTR_NODEV)
	}
	from, done, err := firm(p.path)
	var errno unix.Errno
	if errors.As(err, &errno) {
		return &displaced{p.path, errno}
	}
	if err != nil {
		return err
	}
	defer done()
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	var attr uint64 = unix.MOUNT_ATTR_NODEV
	if p.read {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	switch {
	case fi.IsDir():
		if err := c.mkdir(p.path); err != nil {
			return err
		}
		return bind(from, p.path, attr)
	case fi.Mode().IsRegular() && p.read:
		return c.showFile(p.path)
	}
	return &displaced{path: p.path}
}

// firm gives a name for what is at a path of the machine that stays with it. A path in
// which there is a link is refused: there was none when the session was made, and what
// another sandbox put there since must not decide what this one sees.
func firm(path string) (name string, done func(), err error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, old+path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return "", nil, err
	}
	return "/proc/self/fd/" + strconv.Itoa(fd), func() { unix.Close(fd) }, nil
}

// mkdir makes the directory that a place is mounted on. The mount keeps it where it is.
func (c *builder) mkdir(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := c.way(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Mkdir(path, 0o755)
}

// way makes the directories on the way to a place. The box must not be able to move them
// away from under the place, so they are on a mount of their own, a lid. Nothing is ever
// mounted on a lid itself: closing it would close that.
func (c *builder) way(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	up := filepath.Dir(path)
	if err := c.way(up); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(up, &st); err != nil || st.Dev != c.memory {
		return err
	}
	c.lids = append(c.lids, path)
	return unix.Mount("conch", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m")
}

// showFile shows one file of the machine, read-only, unless it is there already.
func (c *builder) showFile(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := c.way(filepath.Dir(path)); err != nil {
		return err
	}
	from, done, err := firm(path)
	if err != nil {
		return err
	}
	defer done()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return bind(from, path, unix.MOUNT_ATTR_RDONLY)
}

// hide covers conch's own directories, should they lie in something that is shown.
func (c *builder) hide() error {
	for _, dir := range c.Hidden {
		if fi, err := os.Lstat(dir); err == nil && fi.IsDir() {
			if err := unix.Mount("conch", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
				return try("hide "+dir, err)
			}
			c.lids = append(c.lids, dir)
		}
	}
	return nil
}

// showRun shows conch itself and the keeper's directory.
func (c *builder) showRun() error {
	if c.Exe != "" {
		if fi, err := os.Stat(old + c.Exe); err == nil && fi.Mode().IsRegular() {
			if err := c.showFile(c.Exe); err != nil {
				return try("show "+c.Exe, err)
			}
		}
	}
	if c.Run != "" {
		// FIFOs can be written to on a read-only mount; nothing can be put in their place.
		if err := c.mkdir(c.Run); err != nil {
			return try("show "+c.Run, err)
		}
		if err := bind(old+c.run, c.Run, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return try("show "+c.Run, err)
		}
		out := c.Run + "/" + Out
		if err := bind(old+c.run+"/"+Out, out, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return try("show "+out, err)
		}
	}
	for _, dir := range c.lids {
		if err := restrict(dir, false, unix.MOUNT_ATTR_RDONLY); err != nil {
			return try("close "+dir, err)
		}
	}
	if err := unix.Unmount(scratch, unix.MNT_DETACH); err != nil {
		return try("mount its memory", err)
	}
	return try("mount its memory", os.Remove(scratch))
}

// rules say with Landlock what the mounts say.
func (c Config) rules() []rule {
	list := []rule{{"/", mayRead}, {"/dev/pts", mayRead | mayUse}}
	for _, d := range devices() {
		list = append(list, rule{"/dev/" + d, mayUse})
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		list = append(list, rule{dir, mayWrite})
	}
	for _, p := range c.places() {
		if !p.read {
			list = append(list, rule{p.path, mayWrite})
		}
	}
	if c.Run != "" {
		list = append(list, rule{c.Run, mayUse}, rule{c.Run + "/" + Out, mayWrite})
	}
	return list
}

// bind mounts from at to, with all that is mounted below, and set-uid bits without force.
func bind(from, to string, attr uint64) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return restrict(to, true, attr|unix.MOUNT_ATTR_NOSUID)
}

// restrict takes rights from a mount, and from those below it.
func restrict(path string, all bool, attr uint64) error {
	var flags uint
	if all {
		flags = unix.AT_RECURSIVE
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: attr})
}

// loopback switches on the one network device there is.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
