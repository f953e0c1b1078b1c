package session

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch/internal/proc"
)

func userHome(t *testing.T, files map[string]string) account {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return account{name: "u", home: home, shell: "/bin/bash"}
}

func TestLoginEnvironment(t *testing.T) {
	rc := "echo noise; echo noise >&2; exec 3>&- 4>&-; set -o noclobber; export TMOUT=1 MULTI=$'a\\nb' PATH=/opt/mine:$PATH\n"
	for name, c := range map[string]struct {
		shell string
		files map[string]string
	}{
		"bash":        {"bash", map[string]string{".bash_profile": ". ~/.bashrc\n", ".bashrc": rc}},
		"exec in rc":  {"bash", map[string]string{".bash_profile": rc + "case $- in *i*) exec /bin/true;; esac\n"}},
		"exit in rc":  {"bash", map[string]string{".bash_profile": rc + "case $- in *i*) exit 0;; esac\n"}},
		"errexit":     {"bash", map[string]string{".bash_profile": rc + "case $- in *i*) set -e; false;; esac\n"}},
		"left behind": {"bash", map[string]string{".bash_profile": rc + "sleep 1000 &\n"}},
		"zsh":         {"zsh", map[string]string{".zshrc": rc}},
		"dash":        {"dash", map[string]string{".profile": "export TMOUT=1 MULTI='a\nb' PATH=/opt/mine:$PATH\n"}},
		"fish":        {"fish", map[string]string{".config/fish/config.fish": "echo noise; set -x TMOUT 1; set -x MULTI \"a\nb\"; set -x PATH /opt/mine $PATH\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(c.shell)
			if err != nil {
				t.Skipf("%s is not installed", c.shell)
			}
			a := userHome(t, c.files)
			a.shell = path
			t.Setenv("HOME", a.home)
			t.Setenv("SHELL", path)
			t.Setenv("SECRET_OF_CALLER", "1")
			env := captureLogin(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
			if env["MULTI"] != "a\nb" || !strings.HasPrefix(env["PATH"], "/opt/mine:") {
				t.Errorf("MULTI %q, PATH %q", env["MULTI"], env["PATH"])
			}
			for _, k := range append([]string{"SECRET_OF_CALLER"}, dropped...) {
				if v, ok := env[k]; ok {
					t.Errorf("%s=%q is there", k, v)
				}
			}
			if env["HOME"] != a.home {
				t.Errorf("HOME %q", env["HOME"])
			}
		})
	}
}

func TestLoginShellThatHangs(t *testing.T) {
	a := userHome(t, map[string]string{".bash_profile": "sleep 1000\n"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, t.TempDir(), a, a.base(), []string{"-l", "-c"}); err == nil {
		t.Error("no error")
	}
	t.Setenv("HOME", a.home)
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if env := captureLogin(ctx, t.TempDir(), slog.New(slog.DiscardHandler)); env["PATH"] != defaultPath {
		t.Errorf("not the base: %q", env)
	}
}

// What an rc file was doing gets to tidy up, and is gone when ask returns.
func TestLoginShellCutShort(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/bash\ntrap 'rm lock' EXIT\necho $$ > pid\n: > lock\nwhile :; do sleep 0.1; done\n"
	if err := os.WriteFile(filepath.Join(dir, "rehash"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	a := userHome(t, map[string]string{".bash_profile": "cd " + dir + " && ./rehash; echo went on > after\n"})
	for _, flags := range [][]string{{"-l", "-c"}, {"-l", "-i", "-c"}} {
		lock := filepath.Join(dir, "lock")
		ctx, cancel := context.WithCancel(t.Context())
		var cut sync.WaitGroup
		cut.Go(func() {
			defer cancel()
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
				if _, err := os.Stat(lock); err == nil {
					return
				}
			}
			t.Error("the script did not start")
		})
		if _, err := ask(ctx, t.TempDir(), a, a.base(), flags); err == nil {
			t.Error("no error")
		}
		cut.Wait()
		if _, err := os.Stat(lock); err == nil {
			t.Errorf("%q: the lock stays", flags)
			os.Remove(lock)
		}
		if _, err := os.Stat(filepath.Join(dir, "after")); err == nil {
			t.Errorf("%q: the file was read on", flags)
		}
		b, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		if id, err := proc.Lookup(pid); err == nil && id.Alive() {
			t.Errorf("%q: process %d is still there", flags, pid)
		}
	}
}

func TestParseEnviron(t *testing.T) {
	env, err := parseEnviron([]byte("A=1\x00B=x=y\n\x00noequals\x00=bad\x00SHLVL=2\x00"))
	if err != nil || len(env) != 2 || env["A"] != "1" || env["B"] != "x=y\n" {
		t.Errorf("%q, %v", env, err)
	}
	for _, bad := range []string{"", "A=1"} {
		if _, err := parseEnviron([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
