package install

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the one it replaces, which matters to root.
func keepOwner(f *os.File, old string) error {
	fi, err := os.Stat(old)
	if err != nil {
		return nil // there is none
	}
	was, ok := fi.Sys().(*syscall.Stat_t)
	now, err := f.Stat()
	if !ok || err != nil {
		return err
	}
	if is, ok := now.Sys().(*syscall.Stat_t); ok && is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return &fs.PathError{Op: "keep the owner of", Path: old, Err: err}
	}
	return nil
}
