package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/tape"
	"github.com/conchsh/conch/internal/tty"
)

// An attachment is the session's terminal and the people at it. While one of them may
// type, the shell is theirs: it reads a line (a step), runs it as a command like any
// other but on the terminal, and reads the next. Commands of others wait in the queue.
//
// The terminal controls the shell from then on, and the keeper never closes it: that
// would end the shell and its jobs. When nobody is at the prompt the terminal's
// foreground is nobody's, so that a command which reads /dev/tty gets an error at once
// and does not wait for somebody to type.
type attachment struct {
	term   *terminal
	out    *stream
	in     *stdin
	mode   *unix.Termios // as the terminal is before each prompt
	left   *unix.Termios // as a prompt of leftBy that was cut off left it
	leftBy *shell.Shell
	size   conch.TerminalSize
	people int           // who may type
	typed  string        // lines of a command that is not complete
	next   string        // the command to run next
	away   bool          // the foreground is nobody's
	done   chan struct{} // closed when those at the prompt are to leave
	over   chan struct{} // closed when the session ends
	fails  int           // steps in a row that came to nothing at once
	stale  bool          // the sandbox it was in has gone
	ended  bool          // the session ends
}

// A step is something of ours that the shell does on the terminal.
type step struct {
	read  bool // it reads a line; else it gives the foreground to nobody
	begun time.Time
}

// The two words after `conch keeper` that make it a short-lived process of the shell.
const (
	ToFront  = "--foreground"
	ToNobody = "--background"
)

// Foreground is such a process: only one that the terminal controls can say who is in
// front of it.
func Foreground(word string) int {
	if err := tty.Foreground(0, word == ToNobody); err != nil {
		fmt.Fprintln(os.Stderr, "conch:", err)
		return 1
	}
	return 0
}

// lineFile is the name of the file in which the shell leaves a line it has read.
const lineFile = "l"

// holds reports whether the shell is for people now, or must be made free of them.
func (a *attachment) holds() bool { return a != nil && (a.people > 0 || a.next != "" || !a.away) }

func (a *attachment) peopleThere() int {
	if a == nil {
		return 0
	}
	return a.people
}

// streams are what a command on the terminal has for its two outputs.
func (a *attachment) streams() *spare {
	return &spare{out: a.out, err: &stream{fd: -1, kind: tape.Stderr, seen: true, ended: true}}
}

// running is the command that runs, if it is one.
func (k *Keeper) running() *command {
	if k.cur == nil || k.cur.step != nil {
		return nil
	}
	return k.cur
}

// openAttachment makes the session's terminal, once.
func (k *Keeper) openAttachment() error {
	if k.att != nil {
		return nil
	}
	pt, err := k.openPTY(tty.DefaultCols, tty.DefaultRows)
	if err != nil {
		return err
	}
	mode, err := pt.Mode()
	if err != nil {
		pt.Close()
		return conch.Errorf(conch.Unsupported, "the terminal has no settings: %v", err)
	}
	fd, err := unix.FcntlInt(uintptr(pt.Master), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		pt.Close()
		return err
	}
	a := &attachment{mode: mode, in: pipeStdin(os.NewFile(uintptr(fd), "terminal")), done: make(chan struct{}), over: make(chan struct{}), away: true,
		size: conch.TerminalSize{Cols: tty.DefaultCols, Rows: tty.DefaultRows},
		out:  &stream{fd: pt.Master, kind: tape.Stdout, path: pt.Path, seen: true, tty: true},
		term: newTerminal(pt, tty.DefaultCols, tty.DefaultRows, newView())}
	a.in.tty, a.in.count = true, &k.count.Stdin
	if c := k.running(); c != nil {
		a.term.view.began(c.n, false)
	}
	k.att = a
	k.streams = append(k.streams[:len(k.streams):len(k.streams)], a.out)
	k.changed()
	go k.followSession(a.term, k.tape.End()) // ends with the tape
	return nil
}

// followSession keeps the model of the session's terminal up to date.
func (k *Keeper) followSession(t *terminal, from tape.Cursor) {
	rd := k.tape.NewReader(from)
	defer rd.Close()
	for {
		f, err := rd.Next()
		switch {
		case err == nil:
			if answer := t.take(f, rd.Cursor()); len(answer) > 0 {
				k.do(func() {
					if k.att != nil && k.att.term == t {
						unix.Write(k.att.out.fd, answer)
					}
				})
			}
			continue
		case atEnd(err):
			t.mu.Lock()
			t.wake(rd.Cursor())
			t.mu.Unlock()
			err = k.tape.Wait(context.Background(), rd.Cursor())
		}
		if err != nil {
			t.mu.Lock()
			t.over = true
			t.wake(rd.Cursor())
			t.mu.Unlock()
			if !errors.Is(err, tape.ErrClosed) {
				k.log.Warn("terminal", "err", err)
			}
			return
		}
	}
}

// humanNext gives the shell what those at the terminal are to have next.
func (k *Keeper) humanNext() {
	a := k.att
	if a.next != "" {
		c := &command{n: k.next, req: conch.ExecRequest{Command: a.next, MaxOutput: route.DefResult, Env: k.terminalEnv()}, tty: true,
			queuedAt: time.Now(), status: conch.StatusQueued, began: make(chan struct{}), done: make(chan struct{})}
		c.id = conch.NewCommandID(k.spec.ID, c.n)
		k.next++
		a.next = ""
		k.start(c)
		return
	}
	s := &step{read: a.people > 0, begun: time.Now()}
	c := &command{n: k.next, id: conch.NewCommandID(k.spec.ID, k.next), tty: true, step: s, status: conch.StatusRunning,
		entry: &history.Entry{Started: s.begun}, began: make(chan struct{}), done: make(chan struct{})}
	c.req.Command = k.stepText(s)
	close(c.began)
	k.cur = c
	os.Remove(k.linePath())
	k.launch(c)
}

// setMode makes the terminal ready for a step, whatever the last program has left.
//
// A line editor that is thrown out of its line (the abort signal does that) may still
// take the terminal for prepared, and does not prepare it again: what it finds must be
// what it left.
func (a *attachment) setMode(s *step, sh *shell.Shell) error {
	if s.read && a.left != nil && a.leftBy == sh {
		return a.term.pty.SetMode(a.left)
	}
	return a.term.pty.SetMode(a.mode)
}

// keepMode notes how a prompt that was cut off has left the terminal.
func (a *attachment) keepMode(sh *shell.Shell, cut bool) (err error) {
	a.left, a.leftBy = nil, sh
	if sh != nil && cut {
		a.left, err = a.term.pty.Mode()
	}
	return err
}

// terminalKind is the TERM of those whose terminal is ours.
const terminalKind = "xterm-256color"

// terminalEnv is what a command on the session's terminal has and others have not.
func (k *Keeper) terminalEnv() map[string]string {
	if k.state.Readonly()["TERM"] {
		return nil
	}
	return map[string]string{"TERM": terminalKind}
}

// stepText is what the shell is to do. Nothing in it ends a shell with `set -e`.
func (k *Keeper) stepText(s *step) string {
	self, err := os.Executable()
	if err != nil {
		self = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	}
	self = shell.Quote(self) + " keeper "
	if !s.read {
		return self + ToNobody + ` ||\builtin :`
	}
	text := ""
	if k.att.away {
		text = self + ToFront + ` ||\builtin :;`
	}
	term := ""
	if !k.state.Readonly()["TERM"] {
		term = "TERM=" + terminalKind + " "
	}
	return text + `IFS= TMOUT=0 ` + term + `\builtin read -r -e -p ` + shell.Quote(k.prompt()) + ` __conch&&\builtin printf %s "$__conch" >|` +
		shell.Quote(k.linePath()) + `;\builtin unset __conch`
}

// prompt says whose shell it is, where it stands, and who waits for it.
func (k *Keeper) prompt() string {
	if k.att.typed != "" {
		return "> "
	}
	dir := k.cwd
	if home := os.Getenv("HOME"); home != "" && (dir == home || strings.HasPrefix(dir, home+"/")) {
		dir = "~" + dir[len(home):]
	}
	wait := ""
	if n := len(k.queue); n > 0 {
		wait = fmt.Sprintf(" [%d waiting]", n)
	}
	return k.spec.Label + " " + printable(dir) + wait + "$ "
}

// printable keeps what would act on a terminal, or on the line editor, out of a text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// stepDone is the end of a step, however it came.
func (k *Keeper) stepDone(c *command) {
	a := k.att
	c.status = conch.StatusDone
	if k.cur == c {
		k.cur = nil
	}
	a.out.cmd = nil
	if c.step.read {
		cut := c.ending != nil || c.end == nil || c.end.Status != 0
		if err := a.keepMode(k.sh, cut); err != nil {
			k.log.Warn("terminal", "err", err)
		}
	}
	if c.dead == nil && k.sh != nil && c.step.read {
		a.away = false
		if c.ending != nil && !k.blocked {
			k.restoreIntTrap()
		}
	} else {
		a.away = true // also of a dead one: the next has no terminal until it is given one
	}
	if e := c.ending; e != nil {
		for _, ch := range e.notified {
			ch <- e.report
		}
	}
	if c.dead != nil && c.ending == nil {
		k.pending = k.deathReport(true)
	}
	close(c.done)
	if !c.step.read {
		return
	}
	line, err := k.readLine()
	whole := c.end != nil && c.end.Status == 0
	switch {
	case err == nil:
		a.fails = 0
		k.typed(line)
	case whole && a.typed != "": // Ctrl-D: bash will say what is missing
		a.next, a.typed = a.typed, ""
	case whole: // Ctrl-D
		k.dismiss()
	default: // Ctrl-C, or nobody is there any more, or it failed
		a.typed = ""
		k.show("\r\n")
		if a.fails++; time.Since(c.step.begun) > 200*time.Millisecond {
			a.fails = 0
		}
		if a.fails >= 5 {
			k.log.Warn("the prompt does not come", "err", c.failed)
			k.show("\r\nconch: the shell does not come to its prompt\r\n")
			k.dismiss()
		}
	}
}

// typed takes a line that was read.
func (k *Keeper) typed(line string) {
	a := k.att
	text := a.typed + line
	word := strings.TrimSpace(text)
	switch {
	case shell.Incomplete(text):
		a.typed = text + "\n"
	case goodbye(word):
		// They mean to go, not to end the agent's shell.
		a.typed = ""
		k.dismiss()
	default:
		a.typed = ""
		if word != "" {
			a.next = text
		}
	}
}

// goodbye reports whether a line is exit or logout and at most a number.
func goodbye(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > 2 || words[0] != "exit" && words[0] != "logout" {
		return false
	}
	return len(words) == 1 || strings.Trim(words[1], "0123456789") == ""
}

// dismiss sends those at the prompt away.
func (k *Keeper) dismiss() {
	close(k.att.done)
	k.att.done = make(chan struct{})
	k.att.people = 0
}

// closeAttachment sends everybody away.
func (k *Keeper) closeAttachment() {
	if k.att != nil {
		k.dismiss()
		close(k.att.over)
		k.att.over = make(chan struct{})
	}
}

// ending reports whether those at the terminal are sent away because the session ends.
func (k *Keeper) ending() bool {
	ended := true
	k.do(func() { ended = k.att != nil && k.att.ended })
	return ended
}

// typedDone is the end of a command that was typed.
func (k *Keeper) typedDone(c *command) {
	k.att.out.cmd = nil
	if c.result.ExitCode != nil && *c.result.ExitCode == 130 {
		k.show("\r\n") // behind the ^C
	}
	if c.dead != nil {
		k.att.away = true
		k.show("conch: the shell ended and is started again with its state\r\n")
	}
}

// takeTyped records what the session's terminal shows: a command's output, or what
// stands around it.
func (k *Keeper) takeTyped(s *stream, b []byte) {
	f := tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Prompt, Data: b}
	c := s.cmd
	if c != nil && c.step == nil && c.status == conch.StatusRunning {
		f.Kind, f.Command = tape.Stdout, c.n
	} else {
		c = nil
	}
	if err := k.append(f); err != nil {
		k.log.Error("tape", "err", err)
		if c != nil && c.failed == nil {
			c.failed = storageError(err)
			k.endCommand(c, byStorage)
		}
		return
	}
	if c == nil {
		return
	}
	s.bytes += int64(len(b))
	if room := headSize - len(s.head); room > 0 {
		s.head = append(s.head, b[:min(room, len(b))]...)
	}
}

// show writes on the session's terminal in the keeper's own voice.
func (k *Keeper) show(text string) {
	if err := k.append(tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Prompt, Data: []byte(text)}); err != nil {
		k.log.Warn("tape", "err", err)
	}
}

// tellWaiting says at the prompt that a command waits for it.
func (k *Keeper) tellWaiting(c *command) {
	if k.att.people == 0 {
		return
	}
	text, _, _ := strings.Cut(c.req.Command, "\n")
	text = "conch: waits for this prompt: " + printable(text)
	if r, most := []rune(text), max(20, k.att.size.Cols-2); len(r) > most {
		text = string(r[:most]) + "…"
	}
	if k.running() != nil {
		return // the next prompt says that somebody waits
	}
	// On a line of its own above the one that is being edited, relative to where
	// the cursor stands: the line editor does not know of it.
	k.show("\x1bD\x1b[A\x1b7\r\x1b[L\x1b[7m" + text + "\x1b[0m\x1b8\x1b[B")
}

// enter is somebody coming to the terminal; leave must be called.
func (k *Keeper) enter(readOnly bool, size conch.TerminalSize) (t *terminal, done <-chan struct{}, leave func(), err error) {
	ok := k.do(func() {
		if err = k.openAttachment(); err != nil {
			return
		}
		a := k.att
		t = a.term
		if readOnly {
			done = a.over
			return
		}
		a.people++
		done = a.done
		if size.Cols > 0 {
			err = k.resizeSession(size)
		}
		if c := k.running(); c != nil && !c.tty {
			k.show("\x1b[7mconch: the prompt comes when this has ended; Ctrl-\\ d leaves\x1b[0m\r\n")
		}
	})
	if !ok {
		err = k.closedError()
	}
	return t, done, func() {
		if readOnly {
			return
		}
		k.do(func() {
			a := k.att
			select {
			case <-done:
				return // dismissed, and not counted any more
			default:
			}
			if a.people--; a.people > 0 {
				return
			}
			a.typed = ""
			if c := k.cur; c != nil && c.step != nil && c.step.read {
				k.endCommand(c, byDetach)
			}
		})
	}, err
}

// resizeSession gives the session's terminal another size.
func (k *Keeper) resizeSession(size conch.TerminalSize) error {
	if err := k.append(resizeFrame(0, size)); err != nil {
		return storageError(err)
	}
	k.att.size = size
	if err := k.att.term.pty.Resize(size.Cols, size.Rows); err != nil {
		return conch.Errorf(conch.Internal, "the terminal takes no new size: %v", err)
	}
	return nil
}

func (k *Keeper) noAttachment() error {
	return conch.Errorf(conch.NoTerminal, "nobody is attached to session %s", k.spec.Label).Hint("conch attach %s", k.spec.Label)
}

// getSessionScreen gives what the session's terminal shows.
func (k *Keeper) getSessionScreen(w http.ResponseWriter, r *http.Request) {
	q, re, err := tty.ParseScreen(r.URL.Query())
	if err != nil {
		sendError(w, err)
		return
	}
	var t *terminal
	ok := k.do(func() {
		if k.att != nil {
			t = k.att.term
		}
	})
	if !ok || t == nil {
		sendError(w, conch.Errorf(conch.NoTerminal, "nobody was ever attached to session %s", k.spec.Label).
			Hint("conch attach %s; conch run --tty starts a program on a terminal", k.spec.Label))
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	s, err := k.watchScreen(ctx, t, nil, q, re)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, s)
}

// postAttachStdin types on the session's terminal.
func (k *Keeper) postAttachStdin(w http.ResponseWriter, r *http.Request) {
	var in *stdin
	ok := k.do(func() {
		if k.att.peopleThere() > 0 {
			in = k.att.in
		}
	})
	if !ok || in == nil {
		sendError(w, k.noAttachment())
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	n, err := in.write(ctx, http.MaxBytesReader(w, r.Body, 1<<20), -1, false, nil)
	if err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, conch.StdinOffset{Offset: n})
}

func (k *Keeper) postAttachResize(w http.ResponseWriter, r *http.Request) {
	var size conch.TerminalSize
	err := route.Decode(w, r, route.MaxBody, false, &size)
	if err == nil {
		err = checkSize(size)
	}
	if err == nil && !k.do(func() {
		if k.att.peopleThere() == 0 {
			err = k.noAttachment()
			return
		}
		err = k.resizeSession(size)
	}) {
		err = k.closedError()
	}
	if err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, size)
}
