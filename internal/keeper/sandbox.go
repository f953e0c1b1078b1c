package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/sandbox"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/tty"
)

// openBox makes the session's sandbox, if it is to have one and has none, or one that
// shows a run directory which was taken away since. It runs on the first thread, whose
// child the sandbox's first process is.
func (k *Keeper) openBox() error {
	if k.spec.Sandbox == nil {
		return nil
	}
	if k.box != nil && k.box.Holds() {
		return nil
	}
	k.closeBox()
	exe, err := os.Executable()
	if err != nil {
		exe = ""
	}
	home, err := filepath.EvalSymlinks(os.Getenv("HOME"))
	if err != nil || !filepath.IsAbs(home) {
		home = ""
	}
	hidden := []string{k.home, sock.MemoryPath(k.home)}
	for _, dir := range hidden[:2] {
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			hidden = append(hidden, real)
		}
	}
	k.box, err = sandbox.Start(sandbox.Config{
		Work: k.spec.Cwd, Home: home, Run: k.runDir, Exe: exe, Hidden: hidden,
		Read: k.spec.Sandbox.Allow, Network: k.spec.Sandbox.Network, Name: k.dir,
	})
	if err != nil {
		k.box = nil
		return err
	}
	k.holder.Store(int64(k.box.PID))
	k.watch[2] = openWatch(k.box.PID)
	return nil
}

// needBox is openBox for the loop.
func (k *Keeper) needBox() (err error) {
	if k.spec.Sandbox == nil || k.box != nil && k.box.Holds() {
		return nil
	}
	k.onFirstThread(func() { err = k.openBox() })
	return err
}

// closeBox ends the sandbox with all in it.
func (k *Keeper) closeBox() {
	if k.watch[2] != nil {
		k.watch[2].Close()
		k.watch[2] = nil
	}
	if k.box == nil {
		return
	}
	if k.box.PID > 0 {
		k.dying[k.box.PID] = true
	}
	k.box.Close()
	k.box = nil
	k.holder.Store(0)
	if k.att != nil {
		k.att.stale = true
	}
}

// dropTerminal gives up the session's terminal if it went with the sandbox it was made
// in: people must come again. Nothing runs on it now.
func (k *Keeper) dropTerminal() {
	if k.att == nil || k.spec.Sandbox == nil || !k.att.stale && k.box != nil && k.box.Holds() {
		return
	}
	k.closeAttachment()
	k.closeStream(k.att.out)
	k.att.in.shut()
	k.att.term.pty.CloseSlave()
	k.att = nil
}

// forkExec starts a program of the session: in its sandbox, if it has one.
func (k *Keeper) forkExec(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if k.box != nil {
		return k.box.ForkExec(path, argv, attr)
	}
	return syscall.ForkExec(path, argv, attr)
}

// tree is all that lives of the session; it needs no lock. What is orphaned in a sandbox
// comes to its first process, which is ours and none of the session's.
func (k *Keeper) tree() []proc.ID {
	holder := int(k.holder.Load())
	if holder == 0 {
		return proc.Tree(os.Getpid())
	}
	return slices.DeleteFunc(proc.Tree(os.Getpid(), holder), func(id proc.ID) bool { return id.PID == holder })
}

// checkDir reports whether the session's processes find a directory at path.
func (k *Keeper) checkDir(path string) error {
	if k.box != nil {
		return k.box.Dir(path)
	}
	fi, err := os.Stat(path)
	if err == nil && !fi.IsDir() {
		err = &os.PathError{Op: "stat", Path: path, Err: unix.ENOTDIR}
	}
	return err
}

// statPath is stat(2) as the session's processes have it.
func (k *Keeper) statPath(path string, st *unix.Stat_t) error {
	if k.box != nil {
		return k.box.Stat(path, st)
	}
	return unix.Stat(path, st)
}

// openPTY makes a terminal that the session's processes find by its path.
func (k *Keeper) openPTY(cols, rows int) (tty.PTY, error) {
	if err := k.needBox(); err != nil {
		return tty.PTY{}, err
	}
	root := -1
	if k.box != nil {
		root = k.box.Root()
	}
	pt, err := tty.Open(root, cols, rows)
	if err != nil {
		return pt, conch.Errorf(conch.Unsupported, "%v", err)
	}
	return pt, nil
}

// linePath is where the shell leaves a line it has read.
func (k *Keeper) linePath() string {
	if k.spec.Sandbox != nil {
		return filepath.Join(k.runDir, sandbox.Out, lineFile)
	}
	return filepath.Join(k.runDir, lineFile)
}

// readLine reads it. A sandboxed process may have put anything there, a link to a file
// that it cannot read itself above all.
func (k *Keeper) readLine() (string, error) {
	fd, err := unix.Open(k.linePath(), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), lineFile)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", errors.New("the line is no file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxLine+1))
	if err == nil && len(b) > maxLine {
		err = errors.New("the line is longer than 16 MiB")
	}
	return string(b), err
}

const maxLine = 16 << 20

// noReach reports whether the session has a network of its own.
func (k *Keeper) noReach() bool { return k.spec.Sandbox != nil && !k.spec.Sandbox.Network }

// network is a process that has the session's network.
func (k *Keeper) network() int {
	if pid := int(k.holder.Load()); pid > 0 {
		return pid
	}
	return os.Getpid()
}

// noNetwork refuses to wait for what only a process in the sandbox could see.
func (k *Keeper) noNetwork(q conch.WaitRequest) error {
	if q.HTTP == "" || !k.noReach() {
		return nil
	}
	return conch.Errorf(conch.InvalidRequest, "session %s is sandboxed: its network cannot be reached from outside", k.spec.Label).
		Hint("wait for --port or --log, or ask from inside: conch exec -s %s 'curl %s'", k.spec.Label, q.HTTP)
}
