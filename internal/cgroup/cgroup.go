// Package cgroup limits memory, processors and processes of a session by
// control groups of version 2, where the system lets the user have some.
//
// The daemon makes a group per session that has such a limit; the shell is
// born in it, so nothing of the session ever runs outside. Where no group can
// be made, Find says why, and the limit is refused rather than forgotten.
//
// Everything here is files: the tests use a tree of plain ones, and, where they
// may mount it, the kernel's own.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
)

// Mount is where the system has its groups.
const Mount = "/sys/fs/cgroup"

// Limits of one session. Zero is none.
type Limits struct {
	Memory int64 // bytes
	CPU    int64 // thousandths of a processor
	Pids   int64
}

// controllers that l needs.
func (l Limits) controllers() []string {
	var list []string
	if l.Memory > 0 {
		list = append(list, "memory")
	}
	if l.CPU > 0 {
		list = append(list, "cpu")
	}
	if l.Pids > 0 {
		list = append(list, "pids")
	}
	return list
}

// Any reports whether there is a limit at all.
func (l Limits) Any() bool { return l != Limits{} }

// All is a limit of each kind, to ask Find what is there.
var All = Limits{Memory: 1, CPU: 1, Pids: 1}

func refused(format string, args ...any) error {
	return conch.Errorf(conch.Unsupported, "limits on memory, processors and processes are not available: "+format, args...).
		Hint("they need cgroups of version 2 that are delegated to you: conch up --install runs the daemon in such a group where systemd is; or leave session_memory, session_cpu and session_pids off")
}

// Self is this process's group below the mount, from the form of
// /proc/PID/cgroup.
func Self() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", refused("%v", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return rest, nil
		}
	}
	return "", refused("this process is in no group of version 2")
}

// Find gives the group under which groups for sessions can be made that obey l:
// the one this process is in, or the nearest above it, as long as all of them
// are ours to write (to move a process the kernel asks for the group that is
// above both places). A group that holds processes itself cannot have limited
// groups below it, the system's topmost excepted.
func Find(mount, self string, l Limits) (string, error) {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil {
		if _, err := os.Stat(filepath.Join(mount, "memory")); err == nil {
			return "", refused("this system has cgroups of version 1")
		}
		return "", refused("%s has no cgroups of version 2", mount)
	}
	why := ""
	for dir := filepath.Join(mount, self); ; dir = filepath.Dir(dir) {
		for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
			if err := unix.Access(filepath.Join(dir, f), unix.W_OK); err != nil {
				if why != "" {
					why += ", and "
				}
				return "", refused("%s%s is not delegated to you (%v)", why, strings.TrimPrefix(dir, mount), err)
			}
		}
		err := enable(dir, l.controllers())
		if err == nil {
			return dir, nil
		}
		why = err.Error()
		if dir == mount || len(dir) <= len(mount) {
			return "", refused("%s", why)
		}
	}
}

// enable makes controllers available to the groups below dir.
func enable(dir string, need []string) error {
	on, err := words(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	have, err := words(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range need {
		if slices.Contains(on, c) {
			continue
		}
		if !slices.Contains(have, c) {
			return fmt.Errorf("%s has no controller %q", dir, c)
		}
		missing = append(missing, "+"+c)
	}
	if len(missing) == 0 {
		return nil
	}
	procs, err := words(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	// Only the topmost group has no type.
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil && len(procs) > 0 {
		return fmt.Errorf("%s holds processes itself", dir)
	}
	return put(dir, "cgroup.subtree_control", strings.Join(missing, " "))
}

// Make makes the group of a session below one that Find gave, with its limits,
// and gives its path. One that is there already gets the limits.
func Make(parent, name string, l Limits) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", refused("%v", err)
	}
	set := func(file, value string) error {
		if err := put(dir, file, value); err != nil {
			os.Remove(dir)
			return refused("%v", err)
		}
		return nil
	}
	if l.Memory > 0 {
		if err := set("memory.max", strconv.FormatInt(l.Memory, 10)); err != nil {
			return "", err
		}
		// Otherwise a session at its limit goes on in the swap, which is not
		// what was asked for. Not every kernel accounts for swap.
		if _, err := os.Stat(filepath.Join(dir, "memory.swap.max")); err == nil {
			if err := set("memory.swap.max", "0"); err != nil {
				return "", err
			}
		}
	}
	if l.CPU > 0 {
		const period = 100_000 // µs, the kernel's default
		if err := set("cpu.max", fmt.Sprintf("%d %d", max(1000, l.CPU*period/1000), period)); err != nil {
			return "", err
		}
	}
	if l.Pids > 0 {
		if err := set("pids.max", strconv.FormatInt(l.Pids, 10)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// removePause is the wait between two looks at a group whose processes were killed.
const removePause = 5 * time.Millisecond

// Remove kills every process in a session's group, waits until it is empty, and
// takes the group away. One that is not there is no error.
func Remove(ctx context.Context, dir string) error {
	// A path that was read from a file must not lead elsewhere.
	if !strings.HasPrefix(filepath.Base(dir), Prefix) {
		return fmt.Errorf("%s is not a session's group", dir)
	}
	if err := put(dir, "cgroup.kill", "1"); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		// A kernel before 5.14: the processes were ended one by one before.
	}
	for {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			procs, _ := words(filepath.Join(dir, "cgroup.procs"))
			return fmt.Errorf("%s still holds processes: %s", dir, strings.Join(procs, " "))
		}
	}
}

// Prefix begins the name of every session's group.
const Prefix = "conch-"

func words(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	return strings.Fields(string(b)), err
}

// put writes a value with one write, as the kernel wants it, to a file that is
// there: in a plain directory nothing is made.
func put(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
