package session

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/proc"
)

const (
	// settlePause is the wait between two looks at a keeper that lives and
	// does not serve.
	settlePause = 20 * time.Millisecond
	settleLimit = 10 * time.Second
	// dyingLimit is what a process needs at most between closing its control
	// connection and its lock, both of which its exit does.
	dyingLimit = 200 * time.Millisecond
)

// recover finds out, at the daemon's start, what became of the session's
// keeper: a living one is adopted, after a dead one is swept in the background.
func (s *Session) recover() {
	if err := s.acquire(s.st.ctx); err != nil {
		return
	}
	l, lock, err := s.look(s.st.ctx)
	if err == nil && l != nil {
		s.watch(l)
		s.release()
		return
	}
	s.st.wg.Go(func() {
		defer s.release()
		if err != nil {
			l, lock, err = s.settle(s.st.ctx)
		}
		switch {
		case err != nil:
			s.st.log.Error("adopt", "session", s.spec.ID, "label", s.spec.Label, "err", err)
		case l != nil:
			s.watch(l)
		default:
			defer lock.Unlock()
			if _, err := s.sweep(s.st.ctx); err != nil {
				s.st.log.Error("sweep", "session", s.spec.ID, "label", s.spec.Label, "err", err)
			}
		}
	})
}

// look finds the session's keeper alive, and gives a link to it; or dead, and
// gives the lock that proves it; or alive without an answer, an error.
func (s *Session) look(ctx context.Context) (*link, *Lock, error) {
	lock, err := TryLock(filepath.Join(s.dir, lockFile))
	if !Held(err) {
		return nil, lock, err
	}
	l, err := s.connect(ctx)
	return l, nil, err
}

// settle is look for a keeper that is in between: being started when the last
// daemon died, or dying. One that lives is never ended for being slow, it
// holds somebody's work. Under turn.
func (s *Session) settle(ctx context.Context) (*link, *Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		l, lock, err := s.look(ctx)
		if err == nil || errors.Is(err, conch.VersionMismatch) {
			return l, lock, err
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			if s.st.ctx.Err() != nil {
				return nil, nil, errLeaving()
			}
			return nil, nil, conch.Errorf(conch.ShellFailed, "the keeper of session %s lives but does not answer: %v", s.spec.Label, err).
				Hint("conch close %s ends it with everything in it", s.spec.Label).Retry()
		}
	}
}

// watch makes l the session's link and waits for its end, which the kernel
// tells at the keeper's death by closing the control connection.
func (s *Session) watch(l *link) {
	s.link.Store(l)
	s.st.tellChange()
	stop := context.AfterFunc(s.st.ctx, func() { l.ctl.Close() })
	s.st.wg.Go(func() {
		defer stop()
		// A keeper writes nothing here; whatever ends the reading ends the link.
		io.Copy(io.Discard, l.ctl)
		l.ctl.Close()
		if s.st.ctx.Err() != nil {
			if l.child != nil {
				l.child.Release()
			}
			return
		}
		s.lost(l)
	})
}

// lost is called when the control connection has ended. A keeper that closes
// says so before, and whoever closes it holds the turn until all is done, so
// that nothing is left here then.
func (s *Session) lost(l *link) {
	// At once: a request that comes now must wait for the sweep, not be handed
	// to a dead keeper. But only this link; a new one may be there already.
	s.link.CompareAndSwap(l, nil)
	defer s.st.tellChange()
	if err := s.acquire(context.Background()); err != nil {
		if l.child != nil {
			l.child.Release()
		}
		return
	}
	defer s.release()
	if s.gone || s.link.Load() != nil {
		s.reap(l)
		return
	}
	ctx, cancel := context.WithTimeout(s.st.ctx, dyingLimit)
	lock, err := waitLock(ctx, filepath.Join(s.dir, lockFile))
	cancel()
	if Held(err) {
		// Perhaps it lives and only the connection broke.
		var again *link
		if again, lock, err = s.settle(s.st.ctx); err == nil && again != nil {
			again.child = l.child
			s.watch(again)
			return
		}
	}
	if err != nil {
		s.st.log.Error("keeper lost", "session", s.spec.ID, "label", s.spec.Label, "pid", l.keeper.PID, "err", err)
		s.reap(l)
		return
	}
	defer lock.Unlock()
	s.reap(l)
	if k, _ := readKeeper(s.dir); k == nil {
		// It took its record with it: it let its idle session go.
		s.st.log.Info("session asleep", "session", s.spec.ID, "label", s.spec.Label, "pid", l.keeper.PID)
		if _, err := s.sweep(s.st.ctx); err != nil {
			s.st.log.Error("sweep", "session", s.spec.ID, "err", err)
		}
		return
	}
	s.st.Deaths.Add(1)
	s.st.log.Warn("keeper died", "session", s.spec.ID, "label", s.spec.Label, "pid", l.keeper.PID)
	rep, err := s.sweep(s.st.ctx)
	if err != nil {
		s.st.log.Error("sweep", "session", s.spec.ID, "err", err)
		return
	}
	s.st.log.Info("swept", "session", s.spec.ID, "processes", rep.Processes, "verified", rep.Verified)
}

// reap collects a keeper this daemon started, so that no zombie stays. The
// goroutine ends when the keeper does, which has been or is about to be.
func (s *Session) reap(l *link) {
	if l.child != nil {
		go l.child.Wait()
	}
}

// sweepSteps end what a dead keeper's session left: its shell and its commands
// have nobody any more who could record how they end.
var sweepSteps = []proc.Step{{Signal: syscall.SIGKILL, Wait: 3 * time.Second}, {Signal: syscall.SIGKILL, Wait: 3 * time.Second}}

// sweep ends the processes of a dead keeper, removes its run files and records
// its running command as lost. The keeper's record goes last: it says that all
// this is still to be done if we die here. The caller holds the session's lock
// file, the proof that the keeper is dead, and the turn.
func (s *Session) sweep(ctx context.Context) (Ended, error) {
	rep, foreign := Ended{Verified: true}, false
	k, err := readKeeper(s.dir)
	if err != nil {
		// A record that cannot be read names nothing. It was written
		// atomically, so this is not a crash's doing.
		s.st.log.Error("keeper record", "session", s.spec.ID, "err", err)
	}
	if k != nil && k.Boot == proc.BootID() {
		if !ownSocket(s.st.home, s.spec.ID, k.Socket) && (proc.ID{PID: k.PID, Start: k.Start}).Alive() {
			// The lock is free and yet its keeper, which serves elsewhere,
			// lives: this directory is a copy of another home, whose
			// processes are none of ours. (Alive alone does not tell: a
			// process lets its lock go a moment before it is dead.)
			s.st.log.Warn("record of another home's keeper", "session", s.spec.ID, "pid", k.PID)
			foreign = true
		} else {
			r := proc.End(ctx, s.strays(k.Mark), sweepSteps)
			rep = Ended{Processes: r.Processes, Verified: r.Verified}
		}
	}
	fault.Point("sweep.ended")
	errs := []error{removeRunFiles(s.st.home, s.spec.ID)}
	if !foreign {
		errs = append(errs, s.removeGroup(ctx))
	}
	if k != nil || err != nil || hasTape(s.dir) {
		errs = append(errs, MarkLost(s.dir, s.spec))
	}
	fault.Point("sweep.marked")
	if err := errors.Join(errs...); err != nil {
		return rep, storageError(err)
	}
	return rep, remove(filepath.Join(s.dir, keeperFile))
}

// strays finds the processes that carry a session's mark.
func (s *Session) strays(mark uint32) func() []proc.ID {
	return func() []proc.ID {
		return proc.Scan(func(m proc.Mark) bool { return m.Session() == mark })
	}
}

func hasTape(dir string) bool {
	ents, err := os.ReadDir(filepath.Join(dir, tapeDir))
	return err == nil && len(ents) > 0
}
