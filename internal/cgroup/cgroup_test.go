package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// tree makes a fake hierarchy: "path file" → contents.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// group is the files of one group.
func group(files map[string]string, path, controllers, subtree, procs string) {
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": subtree, "cgroup.procs": procs, "cgroup.type": "domain"} {
		files[filepath.Join(path, name)] = text
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFind(t *testing.T) {
	all := Limits{Memory: 1 << 30, CPU: 1500, Pids: 100}
	files := map[string]string{}
	group(files, ".", "cpu memory pids io", "cpu memory pids", "1\n2\n")
	delete(files, "cgroup.type") // the topmost has none
	group(files, "user.slice", "cpu memory pids", "memory pids", "")
	group(files, "user.slice/app.slice", "memory pids", "memory pids", "")
	group(files, "user.slice/app.slice/term.scope", "memory pids", "", "77\n")
	group(files, "conch.service", "cpu memory pids", "", "")
	group(files, "conch.service/daemon", "cpu memory pids", "", "99\n")
	root := tree(t, files)

	for _, c := range []struct {
		self string
		l    Limits
		want string
	}{
		{"/user.slice/app.slice/term.scope", Limits{Memory: 1}, "user.slice/app.slice"}, // itself holds processes
		{"/user.slice/app.slice/term.scope", all, "user.slice"},                         // no processors further down; enabled
		{"/conch.service/daemon", all, "conch.service"},                                 // the unit that up --install writes
		{"/", all, "."},
		{"/", Limits{}, "."},
	} {
		dir, err := Find(root, c.self, c.l)
		if err != nil || dir != filepath.Join(root, c.want) {
			t.Errorf("%s %+v: %q, %v; want %s", c.self, c.l, dir, err, c.want)
		}
	}
	if got := read(t, root, "conch.service/cgroup.subtree_control"); got != "+memory +cpu +pids" {
		t.Errorf("enabled %q", got)
	}
	if got := read(t, root, "user.slice/cgroup.subtree_control"); !strings.HasPrefix(got, "+cpu") {
		t.Errorf("enabled %q", got)
	}
}

func TestUnsupported(t *testing.T) {
	v1 := tree(t, map[string]string{"memory/tasks": ""})
	files := map[string]string{}
	group(files, ".", "memory", "memory", "")
	group(files, "busy", "memory", "", "5\n")
	noCPU := tree(t, files)
	for _, c := range []struct {
		mount, self, want string
		l                 Limits
	}{
		{v1, "/", "version 1", All},
		{t.TempDir(), "/", "no cgroups of version 2", All},
		{noCPU, "/busy", `no controller "cpu"`, All},
		{noCPU, "/gone", "not delegated", Limits{Memory: 1}},
	} {
		_, err := Find(c.mount, c.self, c.l)
		if !errors.Is(err, conch.Unsupported) || !strings.Contains(err.Error(), c.want) || conch.AsError(err).HintText == "" {
			t.Errorf("%s: %v, want %q", c.self, err, c.want)
		}
	}
	if os.Getuid() != 0 {
		os.Chmod(filepath.Join(noCPU, "busy", "cgroup.procs"), 0o444)
		if _, err := Find(noCPU, "/busy", Limits{Memory: 1}); err == nil || !strings.Contains(err.Error(), "not delegated") {
			t.Error(err)
		}
	}
}

func TestMake(t *testing.T) {
	root := tree(t, map[string]string{"conch-a/memory.max": "max", "conch-a/memory.swap.max": "max", "conch-a/cpu.max": "max 100000", "conch-a/pids.max": "max"})
	dir, err := Make(root, Prefix+"a", Limits{Memory: 1 << 20, CPU: 1500, Pids: 7})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "7"} {
		if got := read(t, dir, file); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	// A group without the file cannot obey: refused, and nothing stays.
	if _, err := Make(root, Prefix+"b", Limits{Pids: 1}); !errors.Is(err, conch.Unsupported) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, Prefix+"b")); err == nil {
		t.Error("the group that was refused is there")
	}
}

func TestRemove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	root := t.TempDir()
	if err := Remove(ctx, filepath.Join(root, "other")); err == nil {
		t.Error("removed what is no session's")
	}
	if err := Remove(ctx, filepath.Join(root, Prefix+"never")); err != nil {
		t.Error(err)
	}
	os.Mkdir(filepath.Join(root, Prefix+"x"), 0o755)
	if err := Remove(ctx, filepath.Join(root, Prefix+"x")); err != nil {
		t.Error(err)
	}
}
