package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/doctor"
)

// openHome makes sure that everything conch keeps can be kept there: a
// directory of ours that others cannot write, on a file system where locks and
// sockets work.
func openHome(home string) (string, error) {
	if home == "" {
		return "", conch.Errorf(conch.HomeUnusable, "no home directory is set").Hint("set CONCH_HOME")
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return "", homeError(home, err)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", homeError(home, err)
	}
	// One name for one home: its hash names the files in memory.
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return "", homeError(home, err)
	}
	fi, err := os.Stat(home)
	if err != nil {
		return "", homeError(home, err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Getuid() {
		return "", conch.Errorf(conch.HomeUnusable, "%s belongs to another user", home).
			Hint("set CONCH_HOME to a directory of your own")
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return "", conch.Errorf(conch.HomeUnusable, "%s can be written by others (mode %v)", home, fi.Mode().Perm()).
			Hint("chmod 700 %s", home)
	}
	name, err := doctor.NetworkFS(home)
	if err != nil {
		return "", homeError(home, err)
	}
	if name != "" {
		return "", conch.Errorf(conch.HomeUnusable, "%s is on a network file system (%s)", home, name).
			Hint("locks and process numbers of another machine mean nothing here; set CONCH_HOME to a local directory")
	}
	// Root may write where the permissions say no, but not on a read-only
	// file system: only trying tells.
	f, err := os.CreateTemp(home, ".probe-")
	if err != nil {
		return "", homeError(home, err)
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return "", homeError(home, err)
	}
	return home, nil
}

// homeError says what an error means for the home.
func homeError(home string, err error) error {
	var e *conch.Error
	if errors.As(err, &e) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return conch.Errorf(conch.StorageFull, "%s: %v", home, err).Hint("free space, or set CONCH_HOME to another disk")
	}
	return conch.Errorf(conch.HomeUnusable, "%s cannot be used: %v", home, err).
		Hint("set CONCH_HOME to a directory you can write")
}
