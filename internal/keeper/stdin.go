package keeper

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/metrics"
)

// stdin is a command's standard input when it has one. The shell opens the FIFO
// for reading and thereby lets our opening for writing return; until then, and
// after the last reader has gone, nothing can be written.
type stdin struct {
	ready chan struct{} // closed when file is set, or will never be

	mu     sync.Mutex // guards what follows; held while writing, so writers take turns
	file   *os.File
	offset int64
	closed bool
	tty    bool // a terminal, which has no end: closing it types Ctrl-D

	stop    sync.Once
	path    string
	data    []byte // given whole
	dropped bool   // nobody will write: it ends as soon as it has begun; Keeper.mu guards it

	count *metrics.Counter // set before anybody writes; bytes written are added
}

func newStdin(q conch.ExecRequest) *stdin {
	// Input that is given whole is closed to others.
	return &stdin{ready: make(chan struct{}), data: q.Stdin, closed: !q.OpenStdin}
}

// pipeStdin is the stdin of a process, which has a pipe from its beginning.
func pipeStdin(f *os.File) *stdin {
	s := &stdin{ready: make(chan struct{}), file: f}
	close(s.ready)
	return s
}

// shut ends the stdin of a process that has ended. A write that waits lets go of the
// lock then.
func (s *stdin) shut() {
	s.file.Close()
	go func() { // ends with that write
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
	}()
}

// open makes the FIFO for this attempt and starts waiting for the shell to open it.
func (s *stdin) open(k *Keeper) (string, error) {
	s.path, s.count = filepath.Join(k.runDir, "i"), &k.count.Stdin
	if err := os.Remove(s.path); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	if err := unix.Mkfifo(s.path, 0o600); err != nil {
		return "", storageError(err)
	}
	path := s.path
	if s.dropped {
		s.drop()
	}
	go func() { // ends with the FIFO's reader, or when release lets it through
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			s.once(nil)
			return
		}
		s.once(f)
		if s.data != nil {
			n, _ := f.Write(s.data) // a reader that has gone does not want the rest
			s.count.Add(int64(n))
			f.Close()
		}
	}()
	return path, nil
}

func (s *stdin) once(f *os.File) {
	s.stop.Do(func() {
		s.file = f
		close(s.ready)
	})
}

// drop ends the input of a command whose writer has gone. One that has not begun yet
// finds an empty input: its FIFO must be there for the shell to open.
func (s *stdin) drop() {
	s.dropped = true
	if s.path == "" {
		return
	}
	go func() { // ends when the shell has opened its end, or the command is over
		<-s.ready
		if s.file != nil {
			s.file.Close()
		}
	}()
}

// release ends the waiting and the writing when the command is over.
func (s *stdin) release() {
	// A reader for a moment: an open that still waits returns.
	if fd, err := unix.Open(s.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
	}
	os.Remove(s.path)
	if s.data == nil {
		go func() { // ends at once: the open above has returned
			<-s.ready
			if s.file != nil {
				s.file.Close() // ends a write that waits
			}
		}()
	}
}

// write appends r's bytes at offset, skipping what is there already, so that a
// request that is sent again does no harm. It returns the new offset. A writer that
// leaves (ctx) while the command does not read lets the next one write.
func (s *stdin) write(ctx context.Context, r io.Reader, offset int64, closeAfter bool, done <-chan struct{}) (int64, error) {
	select {
	case <-s.ready:
	case <-done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.file; f != nil {
		stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
		defer func() {
			if !stop() {
				f.SetWriteDeadline(time.Time{})
			}
		}()
	}
	gone := conch.Errorf(conch.StdinClosed, "the command's stdin is closed").Hint("the command has ended, or its stdin was closed before")
	if offset >= 0 && offset > s.offset {
		return s.offset, conch.Errorf(conch.InvalidRequest, "offset %d is past the %d bytes written so far", offset, s.offset)
	}
	if s.closed || s.file == nil {
		if offset >= 0 {
			// The same write again: all of it has been had.
			if n, err := io.CopyN(io.Discard, r, s.offset-offset+1); err == io.EOF && n <= s.offset-offset {
				return s.offset, nil
			}
		} else if s.closed && closeAfter {
			return s.offset, nil // closed already: the same wish again
		}
		return s.offset, gone
	}
	if offset >= 0 {
		if _, err := io.CopyN(io.Discard, r, s.offset-offset); err != nil && !errors.Is(err, io.EOF) {
			return s.offset, err
		}
	}
	n, err := io.Copy(s.file, r)
	s.offset += n
	s.count.Add(n)
	if err != nil {
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
			return s.offset, gone
		}
		return s.offset, err
	}
	if closeAfter && s.tty {
		_, err := s.file.Write([]byte{4})
		return s.offset, err
	}
	if closeAfter {
		s.closed = true
		s.file.Close()
	}
	return s.offset, nil
}
