package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conchsh/conch"
)

func TestHomeUnusable(t *testing.T) {
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	homes := map[string]string{"": "CONCH_HOME", path("file"): "file", path("file") + "/below": "file"}
	if err := os.Mkdir(path("open"), 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chmod(path("open"), 0o777)
	homes[path("open")] = "chmod 700"
	if os.Getuid() == 0 {
		os.Mkdir(path("theirs"), 0o700)
		os.Chown(path("theirs"), 65534, 65534)
		homes[path("theirs")] = "another user"
		os.Mkdir(path("ro"), 0o700)
		if err := syscall.Mount("tmpfs", path("ro"), "tmpfs", syscall.MS_RDONLY, "mode=0700"); err == nil {
			t.Cleanup(func() { syscall.Unmount(path("ro"), syscall.MNT_DETACH) })
			homes[path("ro")] = "read-only"
		}
	} else {
		os.Mkdir(path("ro"), 0o500)
		homes[path("ro")] = "permission"
	}
	for home, want := range homes {
		err := Run(context.Background(), Options{Home: home, Exe: "/bin/false"})
		if !errors.Is(err, conch.HomeUnusable) || conch.AsError(err).HintText == "" ||
			!strings.Contains(err.Error()+conch.AsError(err).HintText, want) {
			t.Errorf("%q: %v (%s), want %q", home, err, conch.AsError(err).HintText, want)
		}
	}
}

func TestHomeOnFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600)
	err := Run(context.Background(), Options{Home: dir, Exe: "/bin/false", Login: map[string]string{}})
	if !errors.Is(err, conch.StorageFull) {
		t.Errorf("%v", err)
	}
}
