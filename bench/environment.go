package bench

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (r *run) environment() Environment {
	e := Environment{
		At: time.Now().UTC(), Conch: r.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Cores: runtime.NumCPU(), Home: r.dir, Quick: r.Quick, Seq: r.Seq, LoadBefore: loadAverage(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	e.CPU = field("/proc/cpuinfo", "model name")
	kb, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	n, _ := strconv.ParseInt(kb, 10, 64)
	e.MemoryMB = n * 1024 / 1e6
	e.Bash = firstLine(r.bash, "--version")
	e.Tmux = firstLine("tmux", "-V")
	return e
}

// field is the first value of a name in a file of "name: value" lines.
func field(path, name string) string {
	b, _ := os.ReadFile(path) // absent outside Linux: the field stays empty
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// loadAverage tells the reader of a report how busy the machine was.
func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return ""
	}
	return strings.Join(f[:3], " ")
}
