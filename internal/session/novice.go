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
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// A novice is a keeper's process that has no session yet: it waits for an order on its
// stdin. A program takes a while to start, so it is started before it is needed: while
// a new session's record is written, or, as the spare, when the last one was taken.
type novice struct {
	cmd  *exec.Cmd
	tell *os.File // its stdin; closed without an order, it leaves
	says *os.File // its stdout
	// spare: it was started for nobody, and may have died since.
	spare bool
}

// An order makes a novice the keeper of a session.
type order struct {
	Dir string   `json:"dir"`
	Env []string `json:"env"`
	// Shell: the session is new and a command comes next.
	Shell bool `json:"shell,omitempty"`
}

// errMute says that a spare ended without a word.
var errMute = errors.New("the keeper in reserve has died")

// spareAfter is how long after a session's start the next spare is started: when the
// session's first command is over, most of the time.
const spareAfter = 10 * time.Millisecond

// spawn starts a novice, whose last words go to stderr. It has a process session of its
// own, so that nothing sent to the daemon's group or terminal reaches it, nor the other
// way round.
func (st *Store) spawn(stderr *os.File) (*novice, error) {
	in, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	says, out, err := os.Pipe()
	if err != nil {
		tell.Close()
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(st.exe, "keeper")
	cmd.Env = append(pairs(st.login), "CONCH_HOME="+st.home)
	if v, ok := os.LookupEnv(fault.Variable); ok {
		cmd.Env = append(cmd.Env, fault.Variable+"="+v)
	}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout = in, out
	if stderr != nil {
		cmd.Stderr = stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		tell.Close()
		says.Close()
		return nil, conch.Errorf(conch.ShellFailed, "cannot start a keeper: %v", err).
			Hint("conch doctor looks for the cause")
	}
	return &novice{cmd: cmd, tell: tell, says: says}, nil
}

// end makes sure that there is no such process.
func (n *novice) end() {
	n.tell.Close()
	n.says.Close()
	n.cmd.Process.Kill()
	n.cmd.Wait()
}

// hire gives a novice for the session: the spare, or else a new one.
func (s *Session) hire(ctx context.Context) (*novice, error) {
	select {
	case <-s.st.loginDone:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.st.ctx.Done():
		return nil, errLeaving()
	}
	select {
	case n := <-s.st.spare:
		return n, nil
	default:
		return s.recruit()
	}
}

// recruit starts a novice for the session.
func (s *Session) recruit() (*novice, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return s.st.spawn(log)
}

// refill sees to it that there is a spare for the next session.
func (st *Store) refill() {
	if !st.refilling.CompareAndSwap(false, true) {
		return
	}
	if !st.enter() {
		st.refilling.Store(false)
		return
	}
	go func() { // Close waits for it
		defer st.wg.Done()
		defer st.refilling.Store(false)
		select {
		case <-time.After(spareAfter):
		case <-st.ctx.Done():
			return
		}
		if len(st.spare) > 0 {
			return
		}
		n, err := st.spawn(nil)
		if err != nil {
			st.log.Warn("spare keeper", "err", err) // the next session starts its own
			return
		}
		n.spare = true
		st.spare <- n // nobody else fills it
	}()
}

// dismiss ends the spare. There is no other after it: the Store is closed.
func (st *Store) dismiss() {
	select {
	case n := <-st.spare:
		n.end()
	default:
	}
}

// engage makes a novice the session's keeper, waits until it serves, and connects.
func (s *Session) engage(ctx context.Context, n *novice, shell bool) (*link, error) {
	defer s.st.refill()
	line, err := s.order(shell)
	if err == nil {
		err = s.begin(ctx, n, line)
	}
	if errors.Is(err, errMute) {
		n.end()
		if n, err = s.recruit(); err != nil {
			return nil, err
		}
		err = s.begin(ctx, n, line)
	}
	if err != nil {
		n.end()
		return nil, err
	}
	n.says.Close()
	fault.Point("start.spawned")
	l, err := s.connect(ctx)
	if err != nil {
		n.end()
		return nil, err
	}
	l.child = n.cmd.Process
	s.watch(l)
	return l, nil
}

// order is what the session's keeper is to be told, as a line.
func (s *Session) order(shell bool) ([]byte, error) {
	limits, err := s.limit()
	if err != nil {
		return nil, err
	}
	// After all else: the last of a name counts.
	env := append(environment(s.st.login, s.st.home, s.spec), limits...)
	if v, ok := os.LookupEnv(fault.Variable); ok {
		env = append(env, fault.Variable+"="+v)
	}
	line, err := json.Marshal(order{Dir: s.dir, Env: env, Shell: shell})
	return append(line, '\n'), err
}

// begin gives a novice its order. It returns when the keeper serves.
func (s *Session) begin(ctx context.Context, n *novice, line []byte) error {
	// Ends when the keeper writes its line, dies, or the limit closes the pipes.
	stop := context.AfterFunc(ctx, func() {
		n.tell.SetWriteDeadline(time.Unix(1, 0))
		n.says.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	n.tell.Write(line) // one that has died says so below
	n.tell.Close()
	said, err := bufio.NewReader(io.LimitReader(n.says, 1<<20)).ReadBytes('\n')
	if err == nil && string(bytes.TrimSpace(said)) == "ready" {
		return nil
	}
	var eb conch.ErrorBody
	if json.Unmarshal(said, &eb) == nil && eb.Error.Code != "" {
		return eb.Err()
	}
	why := "did not get ready in time"
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		if n.spare {
			return errMute
		}
		why = "died at its start"
	}
	return conch.Errorf(conch.ShellFailed, "the keeper of session %s %s", s.spec.Label, why).
		Hint("%s says: %s", filepath.Join(s.dir, logFile), lastLine(filepath.Join(s.dir, logFile)))
}
