package session

import (
	"context"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/metrics"
	"github.com/conchsh/conch/internal/proc"
)

// Close ends the session for good: its keeper, its shell and every process in
// it, seen gone. The tape stays until Prune. Once begun it goes on to its end
// even if the caller leaves.
func (s *Session) Close(ctx context.Context) (Ended, error) {
	if err := s.acquire(ctx); err != nil {
		return Ended{}, err
	}
	defer s.release()
	return s.close(ctx)
}

// close is Close under turn.
func (s *Session) close(ctx context.Context) (Ended, error) {
	total, lock, err := s.halt(ctx)
	if err != nil {
		return total, err
	}
	defer lock.Unlock()
	now := time.Now().UTC()
	s.spec.ClosedAt = &now
	if err := WriteJSON(filepath.Join(s.dir, specFile), s.spec); err != nil {
		s.spec.ClosedAt = nil
		return total, storageError(err)
	}
	fault.Point("close.recorded")
	s.gone = true
	s.st.forget(s)
	s.st.Tidy()
	return total, nil
}

// Stop ends the same as Close and leaves the session open: its next use starts
// a shell from the last checkpoint.
func (s *Session) Stop(ctx context.Context) (Ended, error) {
	if err := s.acquire(ctx); err != nil {
		return Ended{}, err
	}
	defer s.release()
	total, lock, err := s.halt(ctx)
	if err != nil {
		return total, err
	}
	lock.Unlock()
	return total, nil
}

// halt ends the keeper and all processes, and holds the session's lock. Under turn.
func (s *Session) halt(ctx context.Context) (Ended, *Lock, error) {
	if s.gone {
		return Ended{}, nil, errGone
	}
	ctx = context.WithoutCancel(ctx)
	total, err := s.end(ctx)
	if err != nil {
		return total, nil, err
	}
	lock, err := s.seize(ctx)
	if err != nil {
		return total, nil, err
	}
	fault.Point("close.ended")
	rest, err := s.sweep(ctx)
	total.Processes += rest.Processes
	total.Verified = total.Verified && rest.Verified
	if err != nil {
		lock.Unlock()
		return total, nil, err
	}
	return total, lock, nil
}

// end asks a living keeper to end everything. From here on no request is
// handed to it. A keeper that does not answer is left to seize. Under turn.
func (s *Session) end(ctx context.Context) (Ended, error) {
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	l := s.link.Swap(nil)
	if l == nil {
		lock, err := TryLock(filepath.Join(s.dir, lockFile))
		if !Held(err) {
			if err == nil {
				lock.Unlock()
			}
			return Ended{Verified: true}, err
		}
		if l, err = s.connect(ctx); err != nil {
			s.st.log.Warn("close: keeper does not answer", "session", s.spec.ID, "err", err)
			return Ended{Verified: true}, nil
		}
		defer l.ctl.Close() // nobody watches this one
	}
	// One that was stopped would not hear us.
	proc.Signal(proc.ID{PID: l.keeper.PID, Start: l.keeper.Start}, syscall.SIGCONT)
	if s.st.Retired != nil {
		sctx, cancel := context.WithTimeout(ctx, time.Second)
		var st metrics.Stats
		if s.call(sctx, l, http.MethodGet, "/stats", &st) == nil {
			s.st.Retired(s.countKey(l), st)
		}
		cancel()
	}
	var answer Ended
	if err := s.call(ctx, l, http.MethodPost, "/shutdown", &answer); err != nil {
		s.st.log.Warn("close: keeper did not shut down", "session", s.spec.ID, "err", err)
		// Whether all is gone is then for the sweep to find out.
		return Ended{Verified: true}, nil
	}
	return answer, nil
}

// seize takes the session's lock, the proof that its keeper is gone. One that
// does not go by itself is killed.
func (s *Session) seize(ctx context.Context) (*Lock, error) {
	path := filepath.Join(s.dir, lockFile)
	wait := func() (*Lock, error) {
		ctx, cancel := context.WithTimeout(ctx, deathLimit)
		defer cancel()
		return waitLock(ctx, path)
	}
	lock, err := wait()
	if !Held(err) {
		return lock, err
	}
	k, err := readKeeper(s.dir)
	if err != nil {
		return nil, err
	}
	if k == nil || k.Boot != proc.BootID() {
		return nil, conch.Errorf(conch.Internal, "the keeper of session %s lives but did not say who it is", s.spec.Label).
			Hint("fuser %s names the process", path)
	}
	s.st.log.Warn("close: killing keeper", "session", s.spec.ID, "pid", k.PID)
	if err := proc.Signal(proc.ID{PID: k.PID, Start: k.Start}, syscall.SIGKILL); err != nil {
		s.st.log.Warn("close: kill", "session", s.spec.ID, "pid", k.PID, "err", err)
	}
	if lock, err = wait(); Held(err) {
		return nil, conch.Errorf(conch.Internal, "the keeper of session %s (process %d) could not be ended", s.spec.Label, k.PID).
			Hint("a process that waits in the kernel ends when what it waits for does").Retry()
	}
	return lock, err
}
