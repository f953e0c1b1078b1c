package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/cgroup"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/sandbox"
)

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
	m := regexp.MustCompile(`version (\d+)\.(\d+)`).FindSubmatch(out)
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

// checkCgroup only tells: nothing needs one, and whoever asks for such a limit
// where it cannot be is refused then.
func checkCgroup() Check {
	self, err := cgroup.Self()
	if err == nil {
		var dir string
		if dir, err = cgroup.Find(cgroup.Mount, self, cgroup.All); err == nil {
			return good("cgroup", "limits on memory, processors and processes can be set, below %s", dir)
		}
	}
	c := good("cgroup", "unsupported: %s", strings.TrimPrefix(err.Error(), "limits on memory, processors and processes are not available: "))
	c.Hint = conch.AsError(err).HintText
	return c
}

// checkSandbox makes a sandbox and takes it away.
func checkSandbox(exe string) Check {
	if exe == "" {
		return Check{}
	}
	how, err := sandbox.Probe(exe)
	if err == nil {
		return good("sandbox", "sessions can be sandboxed: %s", how)
	}
	c := good("sandbox", "unsupported: %s", strings.TrimPrefix(err.Error(), "this machine cannot sandbox a session: "))
	c.Hint = conch.AsError(err).HintText
	return c
}

// lowSpace is when the disk counts as nearly full, lowInodes likewise.
const (
	lowSpace  = 1 << 30
	lowInodes = 1000
)

func checkSpace(home string) Check {
	const hint = "conch prune removes the tapes of closed sessions; tape_limit and prune_size in config.toml keep them smaller"
	var st unix.Statfs_t
	if err := unix.Statfs(existing(home), &st); err != nil {
		return bad("space", "", "%v", err)
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	detail := fmt.Sprintf("%.1f GB free", float64(free)/1e9)
	if free < lowSpace {
		return bad("space", hint, "%s: the disk is nearly full, and commands fail when it is", detail)
	}
	if st.Files > 0 && uint64(st.Ffree) < lowInodes {
		return bad("space", hint, "%d files can still be made on this disk", st.Ffree)
	}
	return good("space", "%s", detail)
}
