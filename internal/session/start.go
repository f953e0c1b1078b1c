package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/sock"
)

// build makes the directory of a session that was just reserved and starts its
// keeper. When it fails nothing is left and the label is free. Under turn.
func (s *Session) build(ctx context.Context) error {
	err := os.Mkdir(s.dir, 0o700)
	if err == nil {
		err = WriteJSON(filepath.Join(s.dir, specFile), s.spec)
	}
	if err == nil {
		fault.Point("create.written")
		// The directory's own name must be on the disk too before anybody is
		// told of the session; the keeper need not wait for that.
		synced := make(chan error, 1)
		go func() { synced <- syncDir(filepath.Dir(s.dir)) }()
		_, err = s.start(context.WithoutCancel(ctx))
		if serr := <-synced; err == nil && serr != nil {
			err = serr
			s.abandon()
		}
	}
	if err != nil {
		s.gone = true
		s.st.forget(s)
		if rerr := os.RemoveAll(s.dir); rerr != nil {
			s.st.log.Warn("remove", "dir", s.dir, "err", rerr)
		}
		s.st.Tidy()
		return storageError(err)
	}
	return nil
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
	select {
	case <-s.st.loginDone:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.st.ctx.Done():
		return nil, errLeaving()
	}
	child, err := s.spawn(ctx)
	if err != nil {
		return nil, err
	}
	fault.Point("start.spawned")
	if l, err = s.connect(ctx); err != nil {
		child.Kill()
		child.Wait()
		return nil, err
	}
	l.child = child
	s.watch(l)
	return l, nil
}

// settings are the daemon's own variables that are meant for keepers. They do
// not go on to the shell.
var settings = []string{"CONCH_QUEUE_LIMIT", "CONCH_PROCESS_LIMIT", "CONCH_TAPE_LIMIT", fault.Variable}

// spawn runs a keeper and waits until it serves. The keeper has a process
// session of its own, so that nothing sent to the daemon's group or terminal
// reaches it, nor the other way round.
func (s *Session) spawn(ctx context.Context) (*os.Process, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(s.st.exe, "keeper", s.dir)
	cmd.Env = environment(s.st.login, s.st.home, s.spec)
	for _, k := range settings {
		if v, ok := os.LookupEnv(k); ok {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = w, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, conch.Errorf(conch.ShellFailed, "cannot start a keeper: %v", err).
			Hint("conch doctor looks for the cause")
	}
	// Ends when the keeper writes its line, dies, or the limit closes r.
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
	line, err := bufio.NewReader(io.LimitReader(r, 1<<20)).ReadBytes('\n')
	stop()
	if err == nil && string(bytes.TrimSpace(line)) == "ready" {
		return cmd.Process, nil
	}
	cmd.Process.Kill()
	cmd.Wait()
	var eb conch.ErrorBody
	if json.Unmarshal(line, &eb) == nil && eb.Error.Code != "" {
		return nil, eb.Err()
	}
	why := "died at its start"
	if errors.Is(err, os.ErrDeadlineExceeded) {
		why = "did not get ready in time"
	}
	return nil, conch.Errorf(conch.ShellFailed, "the keeper of session %s %s", s.spec.Label, why).
		Hint("%s says: %s", filepath.Join(s.dir, logFile), lastLine(filepath.Join(s.dir, logFile)))
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
	if k.Protocol != conch.ProtocolVersion {
		return nil, conch.Errorf(conch.VersionMismatch, "the keeper of session %s speaks protocol %d (conch %s), this daemon %d",
			s.spec.Label, k.Protocol, k.Version, conch.ProtocolVersion).
			Hint("conch close %s ends it; a new session gets a keeper of this version", s.spec.Label)
	}
	ctl, err := sock.Dial(ctx, k.Socket)
	if err != nil {
		return nil, err
	}
	return &link{keeper: *k, ctl: ctl, pass: sock.NewPasser(ctl)}, nil
}
