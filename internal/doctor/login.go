package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch/internal/session"
)

// slowLogin is from when on the login shell is worth a word: the first command
// after a daemon's start waits for it.
const slowLogin = 2 * time.Second

// checkLogin asks the login shell as the daemon does, and finds out which file
// keeps it.
func checkLogin(ctx context.Context, home string) Check {
	parent := home
	if _, err := os.Stat(home); err != nil {
		parent = os.TempDir()
	}
	shell, took, err := session.ProbeLogin(ctx, parent)
	if err == nil && took < slowLogin {
		return good("login", "%s gives its environment in %v", shell, took.Round(time.Millisecond))
	}
	where := ""
	if filepath.Base(shell) == "bash" {
		if line, gap := slowest(ctx, shell, parent); gap > 200*time.Millisecond {
			where = fmt.Sprintf("; %s takes %v", line, gap.Round(10*time.Millisecond))
		}
	}
	hint := "conch goes on without what its interactive files set (PATH, for instance): run " + shell + " -l -i -c true to see"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return bad("login", "the first command after a start waits for it, and goes on without it: make the start-up files faster, or have them skip that where there is no terminal ([ -t 0 ] || return)", "%s does not come to an end within %v%s", shell, took.Round(time.Second), where)
	case err != nil:
		return bad("login", hint, "%s -l -i fails: %v%s", shell, err, where)
	}
	return bad("login", "the first command after a start waits for it: make its start-up files faster", "%s takes %v%s", shell, took.Round(10*time.Millisecond), where)
}

// slowest reads bash's start-up files once more, with a trace that has times, and
// gives the line after which most time passed.
func slowest(ctx context.Context, shell, parent string) (string, time.Duration) {
	dir, err := os.MkdirTemp(parent, ".login-")
	if err != nil {
		return "", 0
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	trace := filepath.Join(dir, "trace")
	const script = `exec 3>"$1"; BASH_XTRACEFD=3; PS4='+ $EPOCHREALTIME ${BASH_SOURCE[0]}:$LINENO '; set -x
[ -r /etc/profile ] && . /etc/profile
for f in ~/.bash_profile ~/.bash_login ~/.profile; do [ -r "$f" ] && { . "$f"; break; }; done
[ -r ~/.bashrc ] && . ~/.bashrc`
	cmd := exec.CommandContext(ctx, shell, "--noprofile", "--norc", "-i", "-c", script, "bash", trace)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Run() // what it prints and how it ends is not asked here
	f, err := os.Open(trace)
	if err != nil {
		return "", 0
	}
	defer f.Close()
	var worst, at string
	var most, last float64
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		fields := strings.Fields(strings.TrimLeft(sc.Text(), "+"))
		if len(fields) < 2 || !strings.HasPrefix(sc.Text(), "+") {
			continue
		}
		now, err := strconv.ParseFloat(strings.Replace(fields[0], ",", ".", 1), 64)
		if err != nil {
			continue
		}
		if last > 0 && now-last > most {
			most, worst = now-last, at
		}
		last = now
		if !strings.HasPrefix(fields[1], ":") {
			at = strings.Replace(fields[1], ":", ", line ", 1)
		}
	}
	// The line it never came back from.
	if end := float64(time.Now().UnixMicro()) / 1e6; ctx.Err() != nil && end-last > most {
		most, worst = end-last, at
	}
	return worst, time.Duration(most * float64(time.Second))
}
