package session

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/sock"
)

// build makes the directory of a session that was just reserved and starts its
// keeper, with a shell at once if one is wanted. When it fails nothing is left and
// the label is free. Under turn.
func (s *Session) build(ctx context.Context, shell bool) error {
	if err := s.setUp(context.WithoutCancel(ctx), shell); err != nil {
		s.gone = true
		s.st.forget(s)
		// A keeper that was started and could not be used has been ended, and
		// has left what it made outside the directory.
		if gerr := errors.Join(s.removeGroup(context.WithoutCancel(ctx)), removeRunFiles(s.st.home, s.spec.ID)); gerr != nil {
			s.st.log.Warn("remove", "session", s.spec.ID, "err", gerr)
		}
		if rerr := os.RemoveAll(s.dir); rerr != nil {
			s.st.log.Warn("remove", "dir", s.dir, "err", rerr)
		}
		s.st.Tidy()
		return storageError(err)
	}
	return nil
}

func (s *Session) setUp(ctx context.Context, shell bool) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	// A program takes a while to start, and the disk to write: at the same time.
	n, err := s.hire(ctx)
	if err != nil {
		return err
	}
	if err := WriteJSON(filepath.Join(s.dir, specFile), s.spec); err != nil {
		n.end()
		return err
	}
	fault.Point("create.written")
	// The directory's own name must be on the disk too before anybody is
	// told of the session; the keeper need not wait for that.
	synced := make(chan error, 1)
	go func() { synced <- syncDir(filepath.Dir(s.dir)) }()
	_, err = s.engage(ctx, n, shell)
	if serr := <-synced; err == nil && serr != nil {
		err = serr
		s.abandon()
	}
	return err
}

// abandon ends the keeper of a session that is not to be. Under turn.
func (s *Session) abandon() {
	ctx := context.Background()
	if _, err := s.end(ctx); err != nil {
		s.st.log.Error("abandon", "session", s.spec.ID, "err", err)
	}
	lock, err := s.seize(ctx)
	if err != nil {
		s.st.log.Error("abandon", "session", s.spec.ID, "err", err)
		return
	}
	defer lock.Unlock()
	if _, err := s.sweep(ctx); err != nil {
		s.st.log.Error("abandon", "session", s.spec.ID, "err", err)
	}
}

// storageError gives a full disk its kind.
func storageError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return conch.Errorf(conch.StorageFull, "%v", err).Hint("free space, or remove closed sessions with conch prune")
	}
	return err
}

// start gives the session a keeper: the one that lives, or else a new one
// after the dead one was swept. Under turn.
func (s *Session) start(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	l, lock, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil {
		s.watch(l)
		return l, nil
	}
	_, err = s.sweep(ctx)
	lock.Unlock()
	if err != nil {
		return nil, err
	}
	n, err := s.hire(ctx)
	if err != nil {
		return nil, err
	}
	return s.engage(ctx, n, false)
}

// lastLine is what a keeper said last, for an error's hint.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "nothing"
	}
	defer f.Close()
	const most = 512
	if fi, err := f.Stat(); err == nil && fi.Size() > most {
		f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, most))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return "nothing"
}

// connect opens the control connection to a keeper that serves.
func (s *Session) connect(ctx context.Context) (*link, error) {
	k, err := readKeeper(s.dir)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errors.New("the keeper has not written its record")
	}
	if !conch.Speaks(k.Protocol) {
		return nil, conch.Errorf(conch.VersionMismatch, "the keeper of session %s speaks protocol %d (conch %s), this daemon %d to %d",
			s.spec.Label, k.Protocol, k.Version, conch.OldestProtocol, conch.ProtocolVersion).
			Hint("its commands run on; conch %s can use it, or conch close %s ends it and a new session gets a keeper of this version", k.Version, s.spec.Label)
	}
	ctl, err := sock.Dial(ctx, k.Socket)
	if err != nil {
		return nil, err
	}
	return &link{keeper: *k, ctl: ctl, pass: sock.NewPasser(ctl)}, nil
}
