package session

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errHeld says that a lock file's owner lives.
var errHeld = errors.New("lock is held")

// A Lock is an flock on a file. The kernel lets it go when its holder dies,
// whatever way, which makes it the proof of life and of death that pids, ages
// and heartbeats are not.
type Lock struct{ f *os.File }

// TryLock takes the lock at path or says that somebody holds it (Held).
func TryLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errHeld
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return &Lock{f}, nil
}

// Held reports whether err is TryLock's for a lock that has a living holder.
func Held(err error) bool { return errors.Is(err, errHeld) }

// waitLock takes the lock as soon as its holder lets go, without polling. When
// ctx ends first the waiting thread stays behind until the holder is gone and
// then lets the lock go again at once.
func waitLock(ctx context.Context, path string) (*Lock, error) {
	l, err := TryLock(path)
	if !Held(err) {
		return l, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error)
	go func() {
		err := flock(f, unix.LOCK_EX)
		select {
		case got <- err:
		case <-ctx.Done():
			(&Lock{f}).Unlock()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		return &Lock{f}, nil
	case <-ctx.Done():
		return nil, errHeld
	}
}

// InPlace reports whether the locked file is still the one at its path. If not, the
// directory around it was removed, and whoever comes next locks another.
func (l *Lock) InPlace() bool {
	mine, err := l.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.f.Name())
	return err == nil && os.SameFile(mine, there)
}

// Unlock lets go. It unlocks before it closes because a child that is being
// forked at this moment holds a copy of the descriptor until its exec.
func (l *Lock) Unlock() {
	flock(l.f, unix.LOCK_UN)
	l.f.Close()
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}
