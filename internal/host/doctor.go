package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
)

// A Check is one thing the doctor looked at.
type Check = conch.Check

// Report is the doctor's answer.
type Report = conch.Checkup

// lowSpace is when the disk counts as nearly full: one tape's size.
const lowSpace = 4 << 30

// Doctor looks at everything conch stands on.
func (h *Host) Doctor(ctx context.Context) Report {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return Report{Checks: []Check{
		h.checkHome(), h.checkLock(), h.checkSocket(), checkBash(ctx), checkMarks(), checkSubreaper(),
		h.checkMemory(), checkCgroup(), h.checkSpace(), h.checkLeftovers(), h.checkKeepers(), h.checkAgents(),
	}}
}

func good(name, format string, args ...any) Check {
	return Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, hint, format string, args ...any) Check {
	return Check{Name: name, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func (h *Host) checkHome() Check {
	f, err := os.CreateTemp(h.Home, ".doctor-")
	if err != nil {
		return bad("home", "make it writable, or set CONCH_HOME to another directory", "%s: %v", h.Home, err)
	}
	f.Close()
	os.Remove(f.Name())
	return good("home", "%s is writable", h.Home)
}

// checkLock proves that the lock file on disk is the one the daemon holds:
// whoever removes it lets a second daemon in.
func (h *Host) checkLock() Check {
	l, err := session.TryLock(filepath.Join(h.Home, "lock"))
	if session.Held(err) {
		return good("lock", "held")
	}
	if err != nil {
		return bad("lock", "", "%v", err)
	}
	l.Unlock()
	return bad("lock", "conch down, then any command starts a daemon that holds it", "nobody holds %s: it was removed and made again", filepath.Join(h.Home, "lock"))
}

func (h *Host) checkSocket() Check {
	fi, err := os.Lstat(h.Socket)
	if err != nil {
		return bad("socket", "conch down, then any command makes it again", "%v", err)
	}
	if fi.Mode().Perm() != 0o600 {
		return bad("socket", "chmod 600 "+h.Socket, "%s has mode %v", h.Socket, fi.Mode().Perm())
	}
	return good("socket", "%s", h.Socket)
}

var bashVersionRE = regexp.MustCompile(`version (\d+)\.(\d+)`)

// checkBash wants 4.4, the oldest the shell driver is written for.
func checkBash(ctx context.Context) Check {
	const hint = "install bash 4.4 or newer"
	path := "/bin/bash"
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("bash"); err != nil {
			return bad("bash", hint, "not found")
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return bad("bash", hint, "%s --version: %v", path, err)
	}
	m := bashVersionRE.FindSubmatch(out)
	if m == nil {
		return bad("bash", hint, "%s does not say its version", path)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major < 4 || (major == 4 && minor < 4) {
		return bad("bash", hint, "%s is %d.%d", path, major, minor)
	}
	return good("bash", "%s, version %d.%d", path, major, minor)
}

// checkMarks tries on a real process whether one can be marked and found.
func checkMarks() Check {
	const hint = "without marks a process that leaves its session's tree is not found again"
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe() // cat waits for its end
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return bad("marks", hint, "%v", err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	mark := proc.MakeMark(uint32(os.Getpid()), 1)
	if err := proc.SetMark(cmd.Process.Pid, mark); err != nil {
		return bad("marks", hint, "%v", err)
	}
	if got, ok := proc.MarkOf(cmd.Process.Pid); !ok || got != mark {
		return bad("marks", hint, "a mark set on a process does not stay")
	}
	return good("marks", "processes can be marked and found")
}

// checkMemory looks for a file system in memory for commands and FIFOs.
func (h *Host) checkMemory() Check {
	defer h.Store.Tidy() // looking made it
	dir, err := sock.MemoryDir(h.Home)
	if err != nil {
		return Check{Name: "memory", OK: errors.Is(err, fs.ErrNotExist), Detail: fmt.Sprintf("run files go to the disk: %v", err),
			Hint: "a private directory in /dev/shm makes commands start faster"}
	}
	return good("memory", "%s", dir)
}

// checkCgroup only notes: nothing needs one.
func checkCgroup() Check {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return good("cgroup", "version 2")
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err == nil {
		return good("cgroup", "version 1 or none: limits on memory and processes are not available")
	}
	return good("cgroup", "none: limits on memory and processes are not available")
}

func (h *Host) checkSpace() Check {
	var st unix.Statfs_t
	if err := unix.Statfs(h.Home, &st); err != nil {
		return bad("space", "", "%v", err)
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	detail := fmt.Sprintf("%.1f GB free", float64(free)/1e9)
	if free < lowSpace {
		return bad("space", "conch prune removes the tapes of closed sessions", "%s, less than one tape may take", detail)
	}
	return good("space", "%s", detail)
}

// checkLeftovers looks for run files whose session is not open.
func (h *Host) checkLeftovers() Check {
	open := map[string]bool{}
	for _, s := range h.Store.Sessions() {
		open[s.ID()] = true
	}
	var left []string
	for _, dir := range []string{filepath.Join(h.Home, "run"), sock.MemoryPath(h.Home)} {
		ents, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range ents {
			path := filepath.Join(dir, e.Name())
			id := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".sock"), ".d")
			if path != h.Socket && !open[id] {
				left = append(left, path)
			}
		}
	}
	if len(left) > 0 {
		return bad("leftovers", "they belong to no open session and may be removed", "%s", strings.Join(left, ", "))
	}
	return good("leftovers", "none")
}

// checkKeepers names keepers that another conch started.
func (h *Host) checkKeepers() Check {
	running, older := 0, []string{}
	for _, s := range h.Store.Sessions() {
		k, ok := s.Record()
		if !ok {
			continue
		}
		running++
		if k.Protocol != conch.ProtocolVersion {
			return bad("keepers", "conch close "+s.Label()+" ends it", "session %s has a keeper of protocol %d (conch %s)", s.Label(), k.Protocol, k.Version)
		}
		if k.Version != h.Version {
			older = append(older, s.Label()+" ("+k.Version+")")
		}
	}
	if len(older) > 0 {
		c := good("keepers", "%d; of another version: %s", running, strings.Join(older, ", "))
		c.Hint = "they work; a session that is closed and made again gets this version"
		return c
	}
	return good("keepers", "%d", running)
}
