package conchtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// An outer is a real terminal, tmux's, with conch in it.
type outer struct {
	h    *Home
	dir  string
	seq  int
	made *int // how many there are on its server
}

// newOuter starts a tmux server of its own. Windows are numbered from 0.
func newOuter(h *Home, cols, rows int, args ...string) *outer {
	h.T.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		h.T.Skip("no tmux; scripts/tools.sh installs it")
	}
	o := &outer{h: h, dir: h.T.TempDir(), made: new(int)}
	o.tmux(append([]string{"new-session", "-d", "-s", "w0", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows), Binary(h.T)}, args...)...)
	h.T.Cleanup(func() {
		cmd := exec.Command("tmux", "-L", "c", "kill-server")
		cmd.Env = append(os.Environ(), "TMUX_TMPDIR="+o.dir)
		cmd.Run()
	})
	o.tmux("set", "-g", "status", "off")
	o.tmux("set", "-g", "remain-on-exit", "on")
	o.tmux("resize-window", "-t", "w0", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows))
	return o
}

// another opens one more terminal.
func (o *outer) another(args ...string) *outer {
	o.h.T.Helper()
	*o.made++
	n := &outer{h: o.h, dir: o.dir, seq: *o.made, made: o.made}
	o.tmux(append([]string{"new-session", "-d", "-s", fmt.Sprintf("w%d", n.seq), "-x", "80", "-y", "24", Binary(o.h.T)}, args...)...)
	return n
}

func (o *outer) tmux(args ...string) string {
	o.h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-L", "c", "-f", "/dev/null"}, args...)...)
	env := o.h.Cmd(ctx).Env
	cmd.Env = append(env[:len(env):len(env)], "TMUX_TMPDIR="+o.dir, "TMUX=", "LC_ALL=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh")
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.h.T.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (o *outer) target() string { return fmt.Sprintf("w%d", o.seq) }

func (o *outer) text() string {
	o.h.T.Helper()
	return strings.TrimRight(o.tmux("capture-pane", "-p", "-t", o.target()), "\n")
}

// shows waits for a text and gives the whole screen.
func (o *outer) shows(want string) string {
	o.h.T.Helper()
	var last string
	defer func() {
		if !strings.Contains(last, want) {
			o.h.T.Logf("the terminal shows:\n%s", last)
		}
	}()
	Until(o.h.T, Limit, fmt.Sprintf("the terminal shows %q", want), func() bool {
		last = o.text()
		return strings.Contains(last, want)
	})
	return last
}

// prompt waits for an empty prompt at the end.
func (o *outer) prompt() {
	o.h.T.Helper()
	var last string
	defer func() {
		if o.h.T.Failed() {
			o.h.T.Logf("the terminal shows:\n%s", last)
		}
	}()
	Until(o.h.T, Limit, "the prompt comes", func() bool {
		last = o.text()
		return strings.HasSuffix(last, "$") || strings.HasSuffix(last, "$ ")
	})
}

func (o *outer) keys(keys ...string) {
	o.h.T.Helper()
	o.tmux(append([]string{"send-keys", "-t", o.target()}, keys...)...)
}

// line types a line at the prompt.
func (o *outer) line(text string) {
	o.h.T.Helper()
	o.prompt()
	o.tmux("send-keys", "-t", o.target(), "-l", text)
	o.keys("Enter")
}

// ended waits until conch has left the terminal. (tmux does not always tell how.)
func (o *outer) ended() {
	o.h.T.Helper()
	Until(o.h.T, Limit, "conch leaves", func() bool {
		return strings.TrimSpace(o.tmux("display", "-p", "-t", o.target(), "#{pane_dead}")) == "1"
	})
	if got := o.text(); !strings.Contains(got, "[detached from") && !strings.Contains(got, "has ended]") {
		o.h.T.Errorf("conch left like this:\n%s", got)
	}
}

// interrupt types Ctrl-C and waits for what it does: what is typed right behind it the
// line editor may take first.
func (o *outer) interrupt() {
	o.h.T.Helper()
	n := strings.Count(o.text(), "^C")
	o.keys("C-c")
	Until(o.h.T, Limit, "Ctrl-C is seen", func() bool { return strings.Count(o.text(), "^C") > n })
	o.prompt()
}

// detach types Ctrl-\ d.
func (o *outer) detach() {
	o.h.T.Helper()
	o.keys(`C-\`, "d")
	o.ended()
}

func TestAttach(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "cd /usr; V=agent; f() { echo called $V; }; readonly R=1; set -u", "")
	o := newOuter(h, 80, 24, "attach", "main")
	// The agent's state, and line editing: the cursor goes back and inserts.
	o.line("echo $V $PWD")
	o.shows("agent /usr")
	o.prompt()
	o.keys("-l", "eho hello")
	o.keys("Home", "Right", "c", "Enter")
	o.shows("\nhello\n")
	// The session's commands are its history.
	o.line("f")
	o.shows("called agent")
	o.prompt()
	o.keys("Up", "Up", "Up")
	Until(t, Limit, "it shows an earlier one", func() bool { return strings.HasSuffix(o.text(), "$ echo $V $PWD") })
	o.interrupt()
	// Lines that are not complete.
	o.line("for i in 1 2; do")
	o.shows("\n>")
	o.keys("-l", "echo item$i")
	o.keys("Enter")
	o.keys("-l", "done")
	o.keys("Enter")
	o.shows("item1\nitem2\n")
	o.line("cat <<X")
	o.keys("-l", "in a heredoc")
	o.keys("Enter", "X", "Enter")
	o.shows("\nin a heredoc\n")
	o.line(`echo "oops`)
	Until(t, Limit, "it asks for more", func() bool { return strings.HasSuffix(o.text(), "\n>") })
	o.interrupt()
	// Ctrl-C ends what runs, and not the shell.
	pid := h.Session("main").ShellPID
	o.line("sleep 1000; touch never")
	Until(t, Limit, "it runs", func() bool { return h.Last("main").Status == conch.StatusRunning })
	o.interrupt()
	if l := h.Last("main"); Code(l.ExitCode) != "130" || l.Command != "sleep 1000; touch never" {
		t.Errorf("%+v", l)
	}
	// A real terminal for what needs one.
	o.line("stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo on a tty: $TERM; echo straight >/dev/tty")
	o.shows("24 80\non a tty: xterm-256color\nstraight")
	o.line("vi -N -u NONE -i NONE -n")
	o.shows("~")
	o.keys(":", "q", "Enter")
	o.line("W=human; cd /etc")
	o.prompt()
	// A new size is everybody's.
	o.tmux("resize-window", "-t", "w0", "-x", "100", "-y", "30")
	Until(t, Limit, "the new size has come", func() bool { return screen(h, 0, "main").Cols == 100 })
	o.line("stty size")
	o.shows("30 100")
	o.prompt()
	if s := h.Session("main"); s.Attached != 1 || s.Busy || !s.Live || s.ShellPID != pid {
		t.Errorf("%+v", s)
	}
	o.detach()
	if got := o.text(); !strings.Contains(got, "[detached from main: you left]") {
		t.Errorf("%s", got)
	}
	// State is shared both ways; nothing was harmed.
	h.Want("main", `echo "$W $PWD $V $R"; f`, "human /etc agent 1\ncalled agent\n")
	if s := h.Session("main"); s.Attached != 0 || s.ShellPID != pid {
		t.Errorf("%+v", s)
	}
}

// Who comes back has line editing from the first key, however the last one left: the line
// editor is cut off in the middle by that, and must find the terminal as it left it.
func TestAttachAgain(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "true", "")
	o := newOuter(h, 80, 24, "attach", "main")
	o.line("V=kept")
	long := strings.Repeat("z", 6000)
	for i := range 12 {
		o.prompt()
		left := o
		switch i % 4 {
		case 0:
			o.detach()
		case 1: // as the line is edited
			o.keys("-l", "half")
			o.shows("half")
			o.detach()
		case 2: // killed
			o.tmux("kill-session", "-t", o.target())
		case 3: // and an agent is there in between
			o.detach()
			h.Want("main", "echo $V", "kept\n")
		}
		Until(t, Limit, "it is noticed", func() bool { return h.Session("main").Attached == 0 })
		o = left.another("attach", "main")
		o.prompt()
		if i == 5 { // longer than a terminal that edits lines itself can take
			o.keys("-l", "x="+long[:3000])
			o.keys("-l", long[3000:])
			o.keys("Enter")
			o.keys("-l", "clear; echo len=${#x}")
			o.keys("Enter")
			o.shows("len=6000")
			continue
		}
		o.keys("-l", fmt.Sprintf("eho n%d $V", i))
		o.keys("Home", "Right", "c", "Enter")
		got := o.shows(fmt.Sprintf("\nn%d kept\n", i))
		if strings.Count(got, fmt.Sprintf("echo n%d $V", i)) != 1 || strings.Contains(got, "^[") {
			t.Fatalf("after leaving in way %d:\n%s", i%4, got)
		}
		o.prompt()
		o.keys("Up")
		Until(t, Limit, "Up shows the last one", func() bool { return strings.HasSuffix(o.text(), fmt.Sprintf("$ echo n%d $V", i)) })
		o.keys("C-u")
	}
	o.detach()
}

// Commands of the agent wait while somebody is at the prompt, and both can see it.
func TestAttachHoldsThePrompt(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "true", "")
	o := newOuter(h, 80, 24, "attach", "main")
	o.prompt()
	begun := time.Now()
	person := o.another("exec", "echo seen")
	person.shows("waits: somebody is attached to session main and holds its prompt")
	person.keys("C-c")
	Until(t, Limit, "it gives up", func() bool { return h.Session("main").Queue == 0 })
	waiting := h.Start("exec", "echo ran with $X")
	o.shows("conch: waits for this prompt: echo ran with $X")
	if s := h.Session("main"); s.Queue != 1 || s.Attached != 1 {
		t.Errorf("%+v", s)
	}
	if r := h.Conch("exec", "--queue-timeout", "100ms", "echo never"); r.Status != 125 || !strings.Contains(r.Stderr, "holds its prompt") {
		t.Errorf("%v", r)
	}
	// The line that was being typed is still there, and works.
	o.keys("-l", "X=set")
	o.keys("Enter")
	o.shows("[1 waiting]$")
	o.detach()
	if r := waiting.End(); r.Stdout != "ran with set\n" || r.Stderr != "" {
		t.Errorf("%v after %v", r, time.Since(begun))
	}
	// A command of the agent is not disturbed by somebody who comes, and is seen.
	slow := h.Start("exec", "echo working; sleep 1000; echo done")
	Until(t, Limit, "it runs", func() bool { l := h.Last("main"); return l.Status == conch.StatusRunning })
	person = o.another("exec", "echo seen")
	person.shows(`("echo working; sleep 1000; echo done")`)
	person.keys("C-c")
	Until(t, Limit, "it gives up", func() bool { return h.Session("main").Queue == 0 })
	o = o.another("attach", "main")
	o.shows("the prompt comes when this has ended")
	h.OK("interrupt")
	slow.End()
	o.prompt()
	o.line("echo mine")
	o.shows("\nmine\n")
	o.prompt()
	o.keys("C-d")
	o.ended()
	h.Want("main", "echo free", "free\n")
}

// After somebody was there a command that reads the terminal gets an error at once.
func TestNoTerminalForCommands(t *testing.T) {
	t.Parallel()
	h := New(t)
	o := newOuter(h, 80, 24, "attach", "main")
	o.line("sleep 1000 &")
	o.prompt()
	o.line("exit") // leaves; the shell stays
	o.ended()
	for _, text := range []string{"cat </dev/tty", "read -r x </dev/tty", "bash -c 'read x </dev/tty'", "(read x </dev/tty)", "head -c 1 /dev/tty | cat; exit ${PIPESTATUS[0]}"} {
		r := h.Exec("main", text, "-t", "10s")
		if r.TimedOut || Code(r.ExitCode) == "0" || r.DurationMS > 5000 {
			t.Errorf("%q: %+v", text, r)
		}
	}
	o = o.another("attach", "main")
	o.line("exit 7") // so does this
	o.ended()
	// Its background job is still there, and a shell that dies harms nobody.
	if got := strings.TrimSpace(h.Exec("main", "jobs -p | wc -l").Stdout); got == "" {
		t.Error("no jobs")
	}
	h.Exec("main", "kill -9 $$")
	o = o.another("attach", "main")
	o.line("echo again")
	o.shows("\nagain\n")
	// A shell that a human ends comes back as for anybody.
	o.line("V=before")
	o.line("(exit 0); exit 3")
	o.shows("started again with its state")
	o.line("echo $V.")
	o.shows("\nbefore.\n")
	o.detach()
	h.Want("main", "echo $V", "before\n")
}

// Several at once; one who only looks on types nothing.
func TestSeveralViewers(t *testing.T) {
	t.Parallel()
	h := New(t)
	o := newOuter(h, 80, 24, "attach", "main")
	o.line("echo first one")
	o.shows("\nfirst one\n")
	second := o.another("attach", "main")
	second.shows("\nfirst one\n") // the screen as it stands
	third := o.another("attach", "main", "--read-only")
	third.shows("\nfirst one\n")
	second.line("echo from the second")
	for _, v := range []*outer{o, second, third} {
		v.shows("\nfrom the second\n")
	}
	third.keys("-l", "echo intruder")
	third.keys("Enter")
	third.detach()
	second.detach()
	if s := h.Session("main"); s.Attached != 1 {
		t.Errorf("%+v", s)
	}
	o.line("echo still here")
	if got := o.shows("\nstill here\n"); strings.Contains(got, "intruder") {
		t.Errorf("%s", got)
	}
	o.detach()
	// One who looks on does not hold the prompt, and sees what the agent does; what
	// could act on the viewer's terminal does not come through.
	v := o.another("attach", "main", "--read-only")
	v.shows("still here")
	h.Want("main", `printf '\033]0;evil title\007agent output\n'`, "\033]0;evil title\007agent output\n")
	v.shows("\nagent output")
	if got := v.tmux("display", "-p", "-t", v.target(), "#{pane_title}"); strings.Contains(got, "evil") {
		t.Errorf("%q", got)
	}
}

// Who looks on in a smaller window sees a part of the screen and nothing else.
func TestSmallerWindow(t *testing.T) {
	t.Parallel()
	h := New(t)
	o := newOuter(h, 100, 24, "attach", "main")
	o.prompt()
	small := o.another("attach", "main", "--read-only") // 80 columns
	small.shows("cut off; the session is 100x24, this window 80x24")
	o.line("clear; printf '%095d\\n' 7; echo short; printf 'begin\\rBEGIN%091d' 9; printf '\\r\\033[Kgone\\n'")
	want := strings.Repeat("0", 80) + "\nshort\ngone\n"
	Until(t, Limit, "it shows the left part", func() bool { return strings.HasPrefix(small.text(), want) })
	o.tmux("resize-window", "-t", "w0", "-x", "80", "-y", "24")
	Until(t, Limit, "it fits again", func() bool { return !strings.Contains(small.text(), "cut off") })
	o.line("echo all of it")
	small.shows("\nall of it\n")
	small.detach()
	o.detach()
}

// Whatever dies, and whoever leaves in whatever way, the session goes on.
func TestAttachAndDeath(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "true", "")
	o := newOuter(h, 80, 24, "attach", "main")
	o.line("echo before")
	o.shows("\nbefore\n")
	Kill(t, h.Daemon())
	o.line("echo after")
	o.shows("\nafter\n")
	// A client that is killed has left; what it ran goes on.
	o.line("echo up; sleep 1000")
	o.shows("\nup")
	o.tmux("kill-session", "-t", "w0") // and with it conch, by HUP
	Until(t, Limit, "it is noticed", func() bool { return h.Session("main").Attached == 0 })
	if s := h.Session("main"); !s.Busy {
		t.Errorf("%+v", s)
	}
	h.OK("interrupt")
	h.Want("main", "echo on", "on\n")
	// Closing the session sends everybody away.
	o = newOuter(h, 80, 24, "attach", "main")
	o.line("echo here")
	o.shows("\nhere\n")
	h.OK("close", "main")
	o.shows("session main was closed by somebody else")
}

// Whatever the shell was made to be, a person can come and go.
func TestAttachToAnOddShell(t *testing.T) {
	t.Parallel()
	h := New(t)
	for i, odd := range []string{
		"set -e", "set -eu -o pipefail", "trap 'echo trapped' INT TERM", "trap '' INT HUP", "PATH=", "IFS=0123456789abc", "read() { echo mine; }; printf() { :; }",
		"shopt -s extdebug; trap : DEBUG", "readonly TERM", "set -o posix", "exec 5</dev/null; ulimit -n 40", "cd /tmp && mkdir -p odd$$ && cd odd$$ && rmdir ../odd$$",
		"PS1='$(cat)'", "TMOUT=1", "umask 777", "set -C", "alias read=nothing printf=nothing unset=nothing",
	} {
		label := fmt.Sprintf("odd%d", i)
		h.Want(label, "V=kept", "")
		h.Exec(label, odd)
		o := newOuter(h, 80, 24, "attach", label)
		o.line("echo at $V")
		o.shows("\nat kept\n")
		o.prompt()
		o.keys("-l", "half a line")
		o.shows("half a line")
		if strings.Contains(odd, "INT") {
			o.keys("C-u") // Ctrl-C is the trap's there, or nothing
		} else {
			o.interrupt()
		}
		o.line("W=typed")
		Until(t, Limit, "it is done", func() bool { l := h.Last(label); return l.Command == "W=typed" && l.Status == conch.StatusDone })
		o.prompt()
		o.detach()
		if r := h.Exec(label, `echo "$V $W"`, "-t", "20s"); r.Stdout != "kept typed\n" || r.Shell.Restarted {
			t.Errorf("%s: %+v", odd, r)
		}
		h.OK("close", label)
	}
}

// Attaching to a program's own terminal.
func TestAttachToProcess(t *testing.T) {
	t.Parallel()
	h := New(t)
	id := run(h, "--tty", "cat")
	h.OK("keys", id, "one<Enter>")
	shows(h, id, "one\none")
	o := newOuter(h, 70, 20, "attach", id)
	o.shows("one\none")
	Until(t, Limit, "it has the size", func() bool { return screen(h, 0, id).Cols == 70 })
	o.keys("t", "w", "o", "Enter")
	o.shows("two\ntwo")
	o.detach()
	if p := ps(h, id); p.Status != conch.ProcessRunning {
		t.Errorf("%+v", p)
	}
	o = o.another("attach", id)
	o.shows("two\ntwo")
	o.keys("C-d")
	o.ended()
	waited(h, 0, id)
	if r := h.Conch("attach", "main"); r.Status != 125 || !strings.Contains(r.Stderr, "needs a terminal") {
		t.Errorf("%v", r)
	}
}
