package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
)

// A Box is a sandbox that stands. It is used by one goroutine at a time.
type Box struct {
	PID int // of its first process, a child of the caller

	config     Config
	namespaces []int
	root       int // its root directory
	run        unix.Stat_t
	rules      int
	calls      *unix.SockFprog
	files      *unix.Rlimit
	life       *os.File // whose end ends the box
}

// startLimit is what making a box may take on a busy machine.
const startLimit = 10 * time.Second

// reply is what a box's first process says when it is through.
type reply struct {
	Step  string `json:"step,omitempty"` // that failed
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"`
	Place string `json:"place,omitempty"` // of the machine that cannot be shown
}

// Start makes a box. Its first process is a child of the caller, which must be conch,
// and reaps it; the box ends when it does, or at Close.
func Start(c Config) (*Box, error) {
	return begin(c, "/proc/self/exe") // even if its file was replaced since
}

func begin(c Config, exe string) (*Box, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b := &Box{config: c, root: -1, rules: -1, files: openFiles()}
	list := filter()
	if list == nil {
		return nil, conch.Errorf(conch.Unsupported, "sessions cannot be sandboxed on %s processors", runtime.GOARCH).
			Hint("a sandbox filters system calls, whose numbers conch knows for amd64, arm64 and riscv64; leave --sandbox off")
	}
	b.calls = &unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	if c.Run != "" {
		if err := os.Mkdir(c.Run+"/"+Out, 0o700); err != nil && !os.IsExist(err) {
			return nil, err
		}
		if err := unix.Stat(c.Run, &b.run); err != nil {
			return nil, err
		}
	}
	if err := b.start(exe); err != nil {
		b.Close()
		var moved *displaced
		if errors.As(err, &moved) {
			return nil, moved.explain()
		}
		return nil, missing(err)
	}
	return b, nil
}

func (b *Box) start(exe string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	b.life = os.NewFile(uintptr(pair[0]), "sandbox")
	theirs := os.NewFile(uintptr(pair[1]), "sandbox")
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		// An exec would take them from anybody but root.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SETPCAP},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	kinds := []string{"user", "mnt", "ipc", "pid"}
	if !b.config.Network {
		sys.Cloneflags |= unix.CLONE_NEWNET
		kinds = append(kinds, "net")
	}
	b.PID, err = syscall.ForkExec(exe, []string{"conch", "keeper", Word, b.config.Name}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Sys: sys, Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
	})
	if err != nil {
		b.PID = 0
		return &failure{"make namespaces", err}
	}
	theirs.Close()
	text, _ := json.Marshal(b.config)
	if _, err := b.life.Write(append(text, '\n')); err != nil {
		return &failure{"speak to its first process", err}
	}
	if err := b.hear(); err != nil {
		return err
	}
	dir := "/proc/" + strconv.Itoa(b.PID) + "/"
	for _, k := range kinds {
		fd, err := unix.Open(dir+"ns/"+k, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &failure{"open the " + k + " namespace", err}
		}
		b.namespaces = append(b.namespaces, fd)
	}
	if b.root, err = unix.Open(dir+"root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &failure{"open its root", err}
	}
	return nil
}

// hear waits for the first process's word, with which the Landlock rules come.
func (b *Box) hear() error {
	fd := int(b.life.Fd())
	limit := unix.NsecToTimeval(int64(startLimit))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	var n, on int
	for {
		var err error
		n, on, _, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &failure{"hear of its first process", err}
		}
		break
	}
	if msgs, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
		for _, m := range msgs {
			if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
				b.rules = fds[0]
			}
		}
	}
	var r reply
	if err := json.Unmarshal(buf[:n], &r); err != nil {
		return &failure{"start its first process", io.ErrUnexpectedEOF}
	}
	if r.Place != "" {
		return &displaced{r.Place, unix.Errno(r.Errno)}
	}
	if r.Step != "" {
		if r.Errno != 0 {
			return &failure{r.Step, unix.Errno(r.Errno)}
		}
		return &failure{r.Step, errors.New(r.Error)}
	}
	return nil
}

// failure is a step of making a box that the system did not allow.
type failure struct {
	step string
	err  error
}

func (f *failure) Error() string { return "cannot " + f.step + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// displaced is a directory or file of the user's that is not what it was when the
// session was made. Nothing is wrong with the machine then.
type displaced struct {
	path string
	err  unix.Errno
}

func (d *displaced) Error() string { return d.path + ": " + d.err.Error() }

func (d *displaced) explain() error {
	why := fmt.Sprintf("%s cannot be opened: %v", d.path, d.err)
	switch d.err {
	case unix.ELOOP:
		why = d.path + " is now a symbolic link, or behind one"
	case unix.ENOENT, unix.ENOTDIR:
		why = d.path + " is no longer there"
	case 0:
		why = d.path + " is now neither a directory nor a file"
	}
	return conch.Errorf(conch.InvalidRequest, "the session's sandbox cannot be made: %s; nothing was run", why).
		Hint("put it back as it was when the session was made, or conch close the session and make another: a sandbox follows no link that may have been put there from inside")
}

// missing says what the machine lacks.
func missing(err error) error {
	e := conch.Errorf(conch.Unsupported, "this machine cannot sandbox a session: %v", err)
	read := func(name string) string {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	switch {
	case errors.Is(err, unix.ENOSYS):
		return e.Hint("a sandbox needs Linux 5.12 or newer")
	case read("user/max_user_namespaces") == "0":
		return e.Hint("user namespaces are switched off: sysctl user.max_user_namespaces=10000 switches them on")
	case read("kernel/unprivileged_userns_clone") == "0":
		return e.Hint("user namespaces are for root only: sysctl kernel.unprivileged_userns_clone=1 lets others have them")
	case read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return e.Hint("AppArmor keeps programs from using user namespaces: give conch a profile with the rule userns, or sysctl kernel.apparmor_restrict_unprivileged_userns=0")
	}
	return e.Hint("a sandbox needs user, mount, pid, ipc and network namespaces and a /proc that is not covered, as in most containers; nothing was started without it")
}

// openFiles is the limit on open files that programs are to have: Go raises its own,
// and package syscall, which keeps what it was, gives it back only to what it starts.
var openFiles = sync.OnceValue(func() *unix.Rlimit {
	out, _ := exec.Command("/bin/sh", "-c", "ulimit -S -n; ulimit -H -n").Output() // the error is that somebody else reaped it
	f := strings.Fields(string(out))
	if len(f) != 2 {
		return nil
	}
	var l unix.Rlimit
	for i, to := range []*uint64{&l.Cur, &l.Max} {
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil && f[i] != "unlimited" {
			return nil
		}
		if *to = n; err != nil {
			*to = unix.RLIM_INFINITY
		}
	}
	return &l
})

// Dir reports whether the box has a directory at path that can be entered.
func (b *Box) Dir(path string) error {
	var st unix.Stat_t
	if err := b.stat(path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &os.PathError{Op: "stat", Path: path, Err: unix.ENOTDIR}
	}
	return nil
}

// Stat is stat(2) on a path of the box.
func (b *Box) Stat(path string, st *unix.Stat_t) error { return b.stat(path, st) }

func (b *Box) stat(path string, st *unix.Stat_t) error {
	// Links inside lead to what is inside.
	fd, err := unix.Openat2(b.root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}

// Root is a descriptor of the box's root directory. Only /dev in it cannot be changed
// by the box.
func (b *Box) Root() int { return b.root }

// Holds reports whether the box stands and shows the directory that is at its Run now.
func (b *Box) Holds() bool {
	// A first process that dies lets go of its socket before the others are killed.
	fds := []unix.PollFd{{Fd: int32(b.life.Fd())}}
	if n, err := unix.Poll(fds, 0); err != nil || n > 0 {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(b.config.Run, &st) == nil && st.Ino == b.run.Ino && st.Dev == b.run.Dev
}

// Close ends all in the box. Its first process is left to be reaped by whoever reaps.
func (b *Box) Close() {
	if b.PID > 0 {
		unix.Kill(b.PID, unix.SIGKILL)
		b.PID = 0
	}
	if b.life != nil {
		b.life.Close()
		b.life = nil
	}
	for _, fd := range append(b.namespaces, b.root, b.rules) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	b.namespaces, b.root, b.rules = nil, -1, -1
}

// Probe makes a box and takes it away again, with exe, which is conch. It tells what the
// box was made of.
func Probe(exe string) (string, error) {
	dir, err := os.MkdirTemp("", "conch-sandbox-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	b, err := begin(Config{Work: dir}, exe)
	if err != nil {
		return "", err
	}
	pid := b.PID
	landlock := "no Landlock"
	if b.rules >= 0 {
		landlock = fmt.Sprintf("Landlock %d", landlockABI())
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	child, err := b.ForkExec("/bin/sh", []string{"sh", "-c", ":"}, &syscall.ProcAttr{Dir: dir, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	var ws unix.WaitStatus
	if err == nil {
		_, err = unix.Wait4(child, &ws, 0, nil)
	}
	b.Close()
	unix.Wait4(pid, nil, 0, nil)
	if err != nil {
		return "", missing(err)
	}
	if ws.ExitStatus() != 0 {
		return "", missing(fmt.Errorf("a program in it ended with status %d", ws.ExitStatus()))
	}
	return "namespaces, " + landlock, nil
}
