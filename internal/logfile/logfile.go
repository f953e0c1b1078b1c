// Package logfile is a log that does not grow without bound: what would make it
// too long moves it to NAME.1, in place of the one before, and begins it anew.
// So there are two files at most, of the limit each.
//
// A File may be used from any number of goroutines. Two processes may append to
// one path only as long as one of them alone rotates.
package logfile

import (
	"os"
	"sync"
)

// A File is an open log.
type File struct {
	path string
	max  int64
	// Moved, when set, is given every new file, for who else writes to it.
	Moved func(*os.File)

	mu   sync.Mutex
	f    *os.File
	size int64
}

// Open opens the log at path to append to.
func Open(path string, max int64) (*File, error) {
	l := &File{path: path, max: max}
	return l, l.open()
}

func (l *File) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, fi.Size()
	return nil
}

// Write appends one line.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, os.ErrClosed
	}
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		l.rotate()
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

// rotate begins the log anew. If that cannot be, the old one grows on: a line
// too much is better than a line lost.
func (l *File) rotate() {
	if os.Rename(l.path, l.path+".1") != nil {
		return
	}
	old := l.f
	if l.open() != nil {
		l.size = 0 // tried again after as much
		return
	}
	if l.Moved != nil {
		l.Moved(l.f)
	}
	old.Close()
}

// Close closes the log.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
