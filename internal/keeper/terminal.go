package keeper

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
	"github.com/conchsh/conch/internal/tty"
)

// A terminal is what a process started with tty runs on. Its output goes on the tape as
// any other; the model of its screen reads the tape, behind it, and may be late.
type terminal struct {
	pty tty.PTY // the keeper's; the slave is held so that the process may let go of it

	mu      sync.Mutex // guards what follows; alone
	screen  *tty.Screen
	read    tape.Cursor   // how far the model is
	moved   chan struct{} // closed when it has moved on
	partial bool
	over    bool // it will not move any more
	viewers int  // real terminals that show it, and answer its questions
	view    *view
}

// checkTerminal refuses sizes no terminal has, and fills in the usual one.
func checkTerminal(q *conch.RunRequest) error {
	if !q.TTY {
		if q.Cols != 0 || q.Rows != 0 {
			return conch.Errorf(conch.InvalidRequest, "cols and rows need tty")
		}
		return nil
	}
	if q.NoStdin {
		return conch.Errorf(conch.InvalidRequest, "a terminal has a stdin").Hint("leave out one of tty and no_stdin")
	}
	if q.Cols == 0 {
		q.Cols = tty.DefaultCols
	}
	if q.Rows == 0 {
		q.Rows = tty.DefaultRows
	}
	return checkSize(conch.TerminalSize{Cols: q.Cols, Rows: q.Rows})
}

func checkSize(s conch.TerminalSize) error {
	if s.Cols < tty.MinCols || s.Cols > tty.MaxCols || s.Rows < tty.MinRows || s.Rows > tty.MaxRows {
		return conch.Errorf(conch.InvalidRequest, "a terminal of %d columns and %d rows cannot be had", s.Cols, s.Rows).
			Hint("columns are %d to %d, rows %d to %d", tty.MinCols, tty.MaxCols, tty.MinRows, tty.MaxRows)
	}
	return nil
}

// openTerminal makes the terminal of a process that is about to be forked.
func (k *Keeper) openTerminal(p *process, q conch.RunRequest, prog *shell.Program) error {
	pt, err := k.openPTY(q.Cols, q.Rows)
	if err != nil {
		return err
	}
	p.tty = newTerminal(pt, q.Cols, q.Rows, &view{process: k.next})
	// The session's shell has no terminal, and its TERM says so.
	if _, own := q.Env["TERM"]; !own && !k.state.Readonly()["TERM"] {
		extra := map[string]string{"TERM": terminalKind}
		for name, v := range q.Env {
			extra[name] = v
		}
		prog.Extra = extra
	}
	return nil
}

func newTerminal(pt tty.PTY, cols, rows int, v *view) *terminal {
	return &terminal{pty: pt, screen: tty.New(cols, rows), moved: make(chan struct{}), view: v}
}

// useTerminal makes the terminal's one end the process's stdin and stdout. There is no
// stderr; its stream is one that has ended.
func (p *process) useTerminal() {
	p.out = &stream{fd: p.tty.pty.Master, kind: tape.Stdout, cmd: p.command}
	p.err = &stream{fd: -1, kind: tape.Stderr, cmd: p.command, ended: true}
	fd, err := unix.FcntlInt(uintptr(p.tty.pty.Master), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		fd = -1 // writing says so
	}
	p.stdin = pipeStdin(os.NewFile(uintptr(fd), "terminal"))
	p.stdin.tty = true
}

// drainTerminal takes what an ended process left in its terminal. A read gives what the
// kernel still carries from one end to the other as well; what a background process
// writes there all the while has no end, so there is a limit, above what a terminal holds.
func (k *Keeper) drainTerminal(p *process) {
	k.emptyTerminal(p.out)
	p.tty.pty.CloseSlave()
	k.emptyTerminal(p.out) // and find out whether that was the last one
}

func (k *Keeper) emptyTerminal(s *stream) {
	const most = 512 << 10
	for got := 0; s.fd >= 0 && got < most; {
		n, err := unix.Read(s.fd, k.buf)
		switch {
		case n > 0:
			got += n
			k.take(s, k.buf[:n])
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		default: // nobody has the other end
			s.seen, s.ended = true, true
			k.closeStream(s)
			return
		}
	}
}

// followScreen keeps the model up to date with the tape, and answers what the program
// asks its terminal while no real one does.
func (k *Keeper) followScreen(p *process, e history.Entry) {
	t := p.tty
	rd, next := k.frames(e, tape.Cursor{})
	defer rd.Close()
	defer func() {
		t.mu.Lock()
		t.over = true
		t.wake(rd.Cursor())
		t.mu.Unlock()
	}()
	for {
		f, err := next()
		switch {
		case err == nil:
			if answer := t.take(f, rd.Cursor()); len(answer) > 0 {
				// Never waits: a program that does not read gets no answer.
				k.do(func() {
					if p.out.fd >= 0 {
						unix.Write(p.out.fd, answer)
					}
				})
			}
			if f.Kind == tape.Exit {
				return
			}
		case errors.Is(err, io.EOF):
			t.mu.Lock()
			t.wake(rd.Cursor())
			t.mu.Unlock()
			if k.waitProcess(context.Background(), p, rd) != nil {
				return
			}
		case errors.Is(err, conch.OutputGone):
			t.mu.Lock()
			t.partial = true // a flood was faster; go on behind the gap
			t.mu.Unlock()
		default:
			k.log.Warn("screen", "process", p.id, "err", err)
			return
		}
	}
}

// take gives the model a frame and takes its answers, if they are wanted.
func (t *terminal) take(f tape.Frame, at tape.Cursor) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake(at)
	t.view.apply(t.screen, f)
	answer := t.screen.Replies()
	if t.viewers > 0 {
		return nil
	}
	return answer
}

// wake tells those who wait how far the model is. mu is held.
func (t *terminal) wake(at tape.Cursor) {
	t.read = at
	close(t.moved)
	t.moved = make(chan struct{})
}

// caughtUp waits until the model has read the tape up to a place.
func (t *terminal) caughtUp(ctx context.Context, to tape.Cursor) error {
	for {
		t.mu.Lock()
		done, moved := t.over || !t.read.Less(to), t.moved
		t.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// snapshot is the screen as the model has it, and what tells of its next change.
func (t *terminal) snapshot() (conch.Screen, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := tty.Describe(t.screen)
	s.Partial = t.partial
	return s, t.moved
}

// findTerminal finds a process that has a terminal.
func (k *Keeper) findTerminal(id conch.ProcessID) (e history.Entry, live *process, err error) {
	e, live, err = k.findProcess(id)
	if err == nil && e.Process.Terminal == nil {
		err = noTerminal(id)
	}
	return e, live, err
}

func noTerminal(id conch.ProcessID) error {
	return conch.Errorf(conch.NoTerminal, "process %s has no terminal", id).Hint("conch run --tty starts one that has; conch logs shows its output")
}

// running refuses a process that has ended.
func running(id conch.ProcessID, live *process) error {
	if live == nil {
		return conch.Errorf(conch.ProcessEnded, "process %s has ended", id).Hint("conch screen %s shows what was there last", id)
	}
	return nil
}

// getScreen gives what a process's terminal shows, at once or after a wait.
func (k *Keeper) getScreen(w http.ResponseWriter, r *http.Request) {
	id := conch.ProcessID(r.PathValue("id"))
	q, re, err := tty.ParseScreen(r.URL.Query())
	if err != nil {
		sendError(w, err)
		return
	}
	e, live, err := k.findTerminal(id)
	if err != nil {
		sendError(w, err)
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	var s conch.Screen
	if live != nil {
		s, err = k.watchScreen(ctx, live.tty, live.done, q, re)
	} else {
		rd, next := k.frames(e, e.To)
		defer rd.Close()
		if s, err = tty.Past(next, *e.Process.Terminal, e.Out); err == nil {
			s.Reason = tty.PastReason(q, re, s.Text)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		sendError(w, err)
		return
	}
	d, err := k.process(e.N)
	if err != nil {
		sendError(w, err)
		return
	}
	s.ProcessID, s.Status = d.ProcessID, d.Status
	sendJSON(w, s)
}

// watchScreen waits for a screen to be as wished. It changes until done is closed.
func (k *Keeper) watchScreen(ctx context.Context, screen *terminal, done <-chan struct{}, q conch.ScreenRequest, re *regexp.Regexp) (s conch.Screen, err error) {
	var deadline <-chan time.Time
	if q.TimeoutMS > 0 {
		t := time.NewTimer(time.Duration(q.TimeoutMS) * time.Millisecond)
		defer t.Stop()
		deadline = t.C
	}
	quiet := time.Duration(q.StableMS) * time.Millisecond
	for {
		ended := false
		select {
		case <-done:
			ended = true // before the look at its screen, which is then its last
		default:
		}
		// All that was read of the terminal by now is on the tape; the model must
		// have seen it, whatever it takes.
		if err := screen.caughtUp(ctx, k.tape.End()); err != nil {
			return s, err
		}
		var moved <-chan struct{}
		s, moved = screen.snapshot()
		there := re == nil || re.MatchString(s.Text)
		left := quiet - time.Since(s.ChangedAt)
		settled := time.NewTimer(left)
		if !there {
			settled.Stop()
		}
		switch {
		case there && quiet > 0 && (left <= 0 || ended):
			s.Reason = conch.ScreenStable
			return s, nil
		case there && quiet == 0:
			if re != nil {
				s.Reason = conch.ScreenContains
			}
			return s, nil
		case ended:
			s.Reason = conch.ScreenEnded
			return s, nil
		}
		select {
		case <-moved:
		case <-settled.C:
		case <-done:
		case <-deadline:
			settled.Stop()
			s.Reason = conch.ScreenTimeout
			return s, nil
		case <-ctx.Done():
			settled.Stop()
			return s, ctx.Err()
		}
		settled.Stop()
	}
}

// postKeys types into a process's terminal.
func (k *Keeper) postKeys(w http.ResponseWriter, r *http.Request) {
	id := conch.ProcessID(r.PathValue("id"))
	var q conch.KeysRequest
	if err := route.Decode(w, r, route.MaxBody, false, &q); err != nil {
		sendError(w, err)
		return
	}
	_, live, err := k.findTerminal(id)
	if err == nil {
		err = running(id, live)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	if q.Text == "" && q.Keys == "" {
		sendError(w, conch.Errorf(conch.InvalidRequest, "nothing to type").Hint("text is typed as it is, keys with names such as <Enter>"))
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	// What the cursor keys send is for the program to choose.
	if err := live.tty.caughtUp(ctx, k.tape.End()); err != nil {
		return
	}
	live.tty.mu.Lock()
	other := live.tty.screen.CursorKeys()
	live.tty.mu.Unlock()
	b, err := tty.Keys(q.Keys, other)
	if err != nil {
		sendError(w, conch.Errorf(conch.InvalidRequest, "%v", err).Hint("<Enter> <Tab> <Esc> <Up> <C-c> <M-x> <F1> are keys, <lt> is a \"<\"; nothing was typed"))
		return
	}
	b = append([]byte(q.Text), b...)
	if err := k.typeIn(ctx, live, b); err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, conch.KeysTyped{Bytes: len(b)})
}

// typeIn writes to a process's terminal.
func (k *Keeper) typeIn(ctx context.Context, p *process, b []byte) error {
	_, err := p.stdin.write(ctx, bytes.NewReader(b), -1, false, p.done)
	return err
}

// postResize gives a process's terminal another size.
func (k *Keeper) postResize(w http.ResponseWriter, r *http.Request) {
	id := conch.ProcessID(r.PathValue("id"))
	var size conch.TerminalSize
	if err := route.Decode(w, r, route.MaxBody, false, &size); err != nil {
		sendError(w, err)
		return
	}
	if err := checkSize(size); err != nil {
		sendError(w, err)
		return
	}
	_, live, err := k.findTerminal(id)
	if err == nil {
		err = running(id, live)
	}
	if err == nil {
		err = k.resize(live, size)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, size)
}

// resize puts the new size on the tape, where the model and recordings find it, before
// the program can act on it.
func (k *Keeper) resize(p *process, size conch.TerminalSize) (err error) {
	ok := k.do(func() {
		if p.out.fd < 0 || p.status != conch.StatusRunning {
			err = running(p.id, nil)
			return
		}
		if err = k.append(resizeFrame(p.n, size)); err != nil {
			err = storageError(err)
			return
		}
		if err = p.tty.pty.Resize(size.Cols, size.Rows); err != nil {
			err = conch.Errorf(conch.Internal, "the terminal takes no new size: %v", err)
		}
	})
	if !ok {
		err = k.closedError()
	}
	return err
}
