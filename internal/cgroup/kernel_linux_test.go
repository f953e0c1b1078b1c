package cgroup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel mounts the kernel's own groups, where that is allowed.
func kernel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Skipf("cannot mount cgroups: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// What is born in a group is killed with it, a process that left its parent too.
func TestKernelRemove(t *testing.T) {
	root := kernel(t)
	name := Prefix + filepath.Base(filepath.Dir(root)) // others may test at the same time
	dir, err := Make(root, name, Limits{})
	if err != nil {
		t.Skip(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/bash", "-c", "trap '' TERM; setsid sleep 600 & echo in; wait")
	cmd.Stdout = w
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer cmd.Wait()
	var b [3]byte
	if _, err := r.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	if procs, _ := words(filepath.Join(dir, "cgroup.procs")); len(procs) == 0 {
		t.Error("the group is empty")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// A child that is not yet collected keeps no group.
	if err := Remove(ctx, dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the group is still there")
	}
	// Its stdout is held by nobody any more.
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := r.Read(b[:]); n != 0 || os.IsTimeout(err) {
		t.Errorf("something of it lives: %d %v", n, err)
	}
}
