package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch/internal/proc"
)

// captureLimit is how long each way of asking the login shell may take. People
// have rc files that wait for a network.
const captureLimit = 5 * time.Second

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// passed are the variables of the daemon's own environment that a login shell
// would find set before it reads its first file.
var passed = []string{
	"LANG", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
	"TZ", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
}

// dropped describe the shell that was asked, not the user's environment; or,
// like TMOUT, would end an idle session; or would switch options on in every
// bash (SHELLOPTS).
var dropped = []string{"TMOUT", "SHLVL", "PWD", "OLDPWD", "_", "SHELLOPTS", "BASHOPTS"}

// plain are variables that hold no secret, and that programs cannot do without.
var plain = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TERM"}

// outside are variables that lead to what a sandbox does not have.
var outside = []string{"XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "TMPDIR"}

// quiet keeps programs from waiting for somebody who is not there.
func quiet() map[string]string {
	return map[string]string{
		"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "SYSTEMD_PAGER": "cat",
		"BAT_PAGER": "cat", "AWS_PAGER": "", "PSQL_PAGER": "cat", "LESS": "-eFRX",
		"GIT_TERMINAL_PROMPT": "0", "DEBIAN_FRONTEND": "noninteractive",
	}
}

// account is whose shell is asked.
type account struct{ name, home, shell string }

// whoami reads the account of this process. HOME and SHELL of the environment
// come first: that is where the user says otherwise.
func whoami() account {
	a := account{home: os.Getenv("HOME"), shell: os.Getenv("SHELL")}
	if u, err := user.Current(); err == nil {
		a.name = u.Username
		if a.home == "" {
			a.home = u.HomeDir
		}
	}
	if a.home == "" {
		a.home = "/"
	}
	if !executable(a.shell) {
		a.shell = passwdShell()
	}
	if !executable(a.shell) {
		a.shell = "/bin/bash"
	}
	return a
}

func executable(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0
}

// passwdShell is the last field of our line in the password file; os/user does
// not tell it.
func passwdShell() string {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return ""
	}
	defer f.Close()
	uid := strconv.Itoa(os.Getuid())
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if p := strings.Split(sc.Text(), ":"); len(p) == 7 && p[2] == uid {
			return p[6]
		}
	}
	return ""
}

// base is the environment a login starts from.
func (a account) base() map[string]string {
	env := map[string]string{
		"HOME": a.home, "USER": a.name, "LOGNAME": a.name, "SHELL": a.shell,
		"PATH": defaultPath, "TERM": "dumb",
	}
	for _, k := range passed {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	return env
}

// captureLogin gives the environment a terminal of the user's would have: what
// the login shell exports after its files were read, interactive ones too,
// since many people set PATH there. The answer passes through dir, which is
// empty again after it. A shell that fails or takes too long is
// asked again without them, and the base environment is what remains.
func captureLogin(ctx context.Context, dir string, log *slog.Logger) map[string]string {
	a := whoami()
	base := a.base()
	for _, flags := range [][]string{{"-l", "-i", "-c"}, {"-l", "-c"}} {
		env, err := ask(ctx, dir, a, base, flags)
		if err == nil {
			return env
		}
		if ctx.Err() != nil {
			break
		}
		log.Warn("login environment", "shell", a.shell, "flags", flags, "err", err)
	}
	return base
}

// ask runs the shell once. The answer comes through a file of its own and not
// through a descriptor: what rc files print, and which descriptors they open
// or close, then cannot matter, and `> file` is written alike in bash, zsh,
// fish and dash. The file does not exist before, for those with noclobber.
func ask(ctx context.Context, parent string, a account, base map[string]string, flags []string) (map[string]string, error) {
	envTool := "/usr/bin/env"
	if !executable(envTool) {
		envTool = "/bin/env"
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "env")
	if strings.Contains(file, `\`) {
		return nil, fmt.Errorf("%q cannot be quoted for every shell", dir)
	}

	ctx, cancel := context.WithTimeout(ctx, captureLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.shell, append(slices.Clone(flags), envTool+" -0 > '"+strings.ReplaceAll(file, "'", `'\''`)+"'")...)
	cmd.Env = pairs(base)
	cmd.Dir = a.home
	if fi, err := os.Stat(cmd.Dir); err != nil || !fi.IsDir() {
		cmd.Dir = "/"
	}
	// A session of its own: no terminal to stop on, and a group to end. No
	// pipes, so a process that an rc file leaves behind holds nothing of ours.
	// It ends with its daemon, or rather with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = loginAttributes()
	// Waited for: a daemon that is told to leave must not be survived by what
	// an rc file runs. Asked first: some of those take locks (pyenv does, and
	// then every terminal of the user waits a minute for one that is stale).
	cmd.Cancel = func() error {
		proc.End(context.WithoutCancel(ctx), func() []proc.ID {
			ids := proc.Tree(cmd.Process.Pid)
			if id, err := proc.Lookup(cmd.Process.Pid); err == nil && id.Alive() {
				ids = append(ids, id)
			}
			return ids
		}, []proc.Step{{Signal: syscall.SIGHUP, Wait: time.Second}, {Signal: syscall.SIGKILL, Wait: time.Second}})
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = cmd.Wait()
	// What rc files left running is told that its terminal has gone, and has
	// time to take its lock files away.
	if group := -cmd.Process.Pid; syscall.Kill(group, syscall.SIGHUP) == nil {
		time.AfterFunc(2*time.Second, func() { syscall.Kill(group, syscall.SIGKILL) })
	}
	if err != nil {
		if cerr := context.Cause(ctx); cerr != nil {
			return nil, cerr
		}
		return nil, err
	}
	out, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseEnviron(out)
}

// parseEnviron reads NAME=VALUE pairs that each end in NUL.
func parseEnviron(b []byte) (map[string]string, error) {
	if len(b) == 0 || b[len(b)-1] != 0 {
		return nil, errors.New("environment is cut short")
	}
	env := map[string]string{}
	for _, kv := range bytes.Split(b[:len(b)-1], []byte{0}) {
		k, v, ok := bytes.Cut(kv, []byte{'='})
		if !ok || len(k) == 0 {
			continue
		}
		env[string(k)] = string(v)
	}
	for _, k := range dropped {
		delete(env, k)
	}
	return env, nil
}

// environment is what the keeper of a session, and through it the shell, starts
// with: the login environment, what keeps programs quiet, the session's name,
// and what its maker asked for.
func environment(login map[string]string, home string, s Spec) []string {
	env := maps.Clone(login)
	if s.Clean {
		maps.DeleteFunc(env, func(k, _ string) bool {
			return !slices.Contains(plain, k) && !strings.HasPrefix(k, "LC_") && !slices.Contains(s.Only, k)
		})
	}
	maps.Copy(env, quiet())
	if env["TERM"] == "" {
		env["TERM"] = "dumb"
	}
	maps.Copy(env, s.Env)
	if s.Sandbox != nil {
		env["CONCH_SANDBOX"] = "1"
		for _, k := range outside {
			delete(env, k)
		}
	}
	// Last: a child session must not be able to claim another's name.
	env["CONCH_SESSION"], env["CONCH_AGENT"], env["CONCH_HOME"] = s.Label, s.Agent, home
	return pairs(env)
}

// pairs is env as exec wants it, in a stable order.
func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}
