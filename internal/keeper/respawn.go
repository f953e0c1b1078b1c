package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/shell"
)

// maxFailures is how often a shell may die before doing anything, one after the
// other, until the next one starts without the saved state.
const maxFailures = 2

// ensureShell starts a shell if there is none, from the last checkpoint if there
// is one.
func (k *Keeper) ensureShell(c *command) error {
	if k.sh != nil {
		return nil
	}
	if k.failures >= maxFailures && k.state != nil {
		k.log.Warn("state cannot be restored; starting clean")
		k.state = nil
		os.Remove(k.statePath())
		os.Remove(shell.Previous(k.statePath()))
		c.report.Restarted = true
		c.report.Restored, c.report.Lost = nil, []string{"cwd", "variables", "functions", "aliases", "options", "traps", "umask"}
		k.cwd = k.spec.Cwd
	}
	if k.failures > maxFailures+1 {
		k.failures = 0
		return conch.Errorf(conch.ShellFailed, "bash does not start").Hint("see %s", filepath.Join(k.dir, "keeper.log"))
	}
	if _, err := os.Stat(k.runDir); err != nil {
		if _, err := k.makeRunDir(); err != nil {
			return storageError(err)
		}
	}
	if c.tty && k.spec.Sandbox != nil && (k.box == nil || !k.box.Holds()) {
		return conch.Errorf(conch.ShellFailed, "the session's sandbox has gone, and its terminal with it").Hint("conch attach %s makes another", k.spec.Label).Retry()
	}
	if err := k.needBox(); err != nil {
		return err
	}
	cfg := shell.Config{Bash: k.bash, Dir: k.runDir, Env: shellEnv(), Cwd: k.cwd, Restore: k.state, Fork: k.forkExec}
	var err error
	if cfg.Cgroup, err = k.cgroup(); err != nil {
		return err
	}
	if cfg.Cgroup > 0 {
		defer unix.Close(cfg.Cgroup)
	}
	if k.spec.RC && k.state == nil && k.failures < maxFailures {
		if home := os.Getenv("HOME"); home != "" {
			cfg.RC = filepath.Join(home, ".bashrc")
		}
	}
	if dir := k.existing(cfg.Cwd); dir != cfg.Cwd {
		cfg.Cwd = dir
		k.cwd = dir
		if k.state != nil {
			c.report.Lost = append(c.report.Lost, "cwd")
			c.report.Restored = without(c.report.Restored, "cwd")
		}
	}
	var sh *shell.Shell
	k.onFirstThread(func() { sh, err = shell.Start(cfg) })
	if err != nil && k.box != nil && !k.box.Holds() {
		return k.ensureShell(c) // it went between two looks
	}
	if err != nil {
		return storageError(err)
	}
	k.sh = sh
	k.count.ShellStarts.Add(1)
	k.told = false
	k.armed = true
	k.changed()
	k.ready = false
	k.noise, k.noiseEnd = [2][]byte{}, [2]bool{}
	k.histSynced = 0
	k.watch[0] = openWatch(sh.PID)
	if k.watch[1] == nil {
		k.watch[1] = openWatch(os.Getpid())
	}
	return nil
}

// onFirstThread runs f where children are to be made.
func (k *Keeper) onFirstThread(f func()) {
	if k.forks == nil {
		f()
		return
	}
	done := make(chan struct{})
	k.forks <- func() { f(); close(done) }
	<-done
}

func openWatch(pid int) *proc.ChildWatch {
	w := new(proc.ChildWatch)
	if err := w.Open(pid); err != nil {
		return nil
	}
	return w
}

// existing is the nearest directory above dir that exists.
func (k *Keeper) existing(dir string) string {
	for d := dir; d != "" && d != "."; d = filepath.Dir(d) {
		if k.checkDir(d) == nil && (k.box != nil || unix.Access(d, unix.X_OK) == nil) {
			return d
		}
		if d == "/" {
			break
		}
	}
	return "/"
}

// onShellDeath handles a shell that ended: by a command (exit, exec, set -e,
// kill), by accident, or by our own hand.
func (k *Keeper) onShellDeath(ws syscall.WaitStatus) {
	for i := range k.noise {
		k.readNoise([2]int{k.sh.OutFD(), k.sh.ErrFD()}[i], i)
	}
	// The end of the command may have been reported before the shell went.
	for sh := k.sh; k.sh == sh; {
		end, ok := sh.ReadStatus()
		if !ok {
			break
		}
		k.onEnd(end)
	}
	if k.sh == nil {
		return
	}
	c := k.cur
	ready := k.ready
	k.dropShell()
	if k.ckpt != nil {
		told := k.closing != nil
		k.abandonCheckpoint()
		if told {
			return // the result of the command just before says so
		}
	}
	if c == nil && k.told {
		k.told = false
		return
	}
	if c == nil {
		k.log.Info("shell ended while idle", "status", int(ws))
		k.pending = k.deathReport(true)
		return
	}
	if c.end != nil { // ended, and its processes are being ended
		k.pending = k.deathReport(true)
		return
	}
	k.drain(c.out)
	k.drain(c.err)
	if c.ending == nil && !k.opened(c.out) {
		k.failures++
		k.log.Warn("shell died before the command ran", "status", int(ws), "ready", ready)
		k.closeStream(c.out)
		k.closeStream(c.err)
		c.report = *k.deathReport(ready)
		if c.attempt > maxFailures+2 {
			k.fail(c, conch.Errorf(conch.ShellFailed, "the shell ends before it runs the command").Hint("conch reset %s starts a clean one", k.spec.Label))
			return
		}
		k.launch(c)
		return
	}
	// An EXIT trap speaks after the command's redirections are undone.
	for i, s := range []*stream{c.out, c.err} {
		if len(k.noise[i]) > 0 && ready && k.mayTrapExit(c) {
			k.take(&stream{fd: -1, kind: noiseKinds[i], cmd: c}, k.noise[i])
			s.bytes += int64(len(k.noise[i]))
			s.head = append(s.head, k.noise[i][:min(len(k.noise[i]), max(0, headSize-len(s.head)))]...)
		}
	}
	c.report = *k.deathReport(true)
	c.dead = &ws
	if c.ending != nil && !c.ending.gone {
		return
	}
	k.finishDead(c)
}

// finishDead makes the result of a command that took its shell with it.
func (k *Keeper) finishDead(c *command) {
	r := k.newResult(c)
	if e := c.ending; e != nil {
		if e.why == byInterrupt {
			code := 130
			r.ExitCode, k.last = &code, code
		}
		k.finish(c, r)
		return
	}
	ws := *c.dead
	switch {
	case c.wedged:
		// Nobody saw how it ended.
		k.last = 0
	case ws.Signaled():
		code, name := 128+int(ws.Signal()), proc.SignalName(ws.Signal())
		r.ExitCode, r.Signal, k.last = &code, &name, code
	case mayExit(c.req.Command, k.state):
		code := ws.ExitStatus()
		r.ExitCode, k.last = &code, code
	default:
		k.log.Warn("shell ended for no reason that its command gives", "command", c.id, "status", ws.ExitStatus())
	}
	k.finish(c, r)
}

// trapsExit reports whether the shell has, or may have been given, an EXIT trap.
func (k *Keeper) trapsExit(c *command) bool {
	return k.state != nil && k.state.ExitTrap() != "" || exitTrap().MatchString(c.req.Command)
}

// Expressions are compiled when a shell has died or is wedged, which few ever do.
var exitTrap = lazily(`(?s)\btrap\b.*\b(EXIT|0)\b`)

func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// mayTrapExit reports whether words of a dying shell can be its EXIT trap's.
func (k *Keeper) mayTrapExit(c *command) bool {
	return k.state != nil && k.state.ExitTrap() != "" || strings.Contains(c.req.Command, "trap") ||
		k.debugTrap == "" && leaves().MatchString(c.req.Command)
}

// bareExec is `exec` with redirections only, which can take the driver's own
// descriptors away; the status the shell then ends with means nothing.
var bareExec = lazily(`(^|[;&|\n({])\s*exec\s+([0-9]*[<>]|\{)`)
var leaves = lazily(`\b(exit|exec|set|errexit|logout|eval|source|trap|kill|command|builtin|suspend|shopt|bash)\b|(^|[;&|\n({\s])\.\s`)

// mayExit reports whether a shell's exit status can be the command's own: its text
// holds something that ends a shell on purpose, or calls functions that might.
func mayExit(text string, st *shell.State) bool {
	if st != nil && (st.Errexit() || len(strings.TrimSpace(string(st.Functions))) > 0 || len(strings.TrimSpace(string(st.Aliases))) > 0) {
		return true
	}
	text = bareExec().ReplaceAllString(text, "$1 ")
	return leaves().MatchString(text)
}

// deathReport is what a result says after a shell was lost.
func (k *Keeper) deathReport(hadState bool) *conch.ShellReport {
	r := &conch.ShellReport{Restarted: true}
	if k.state != nil {
		r.Restored, r.Lost = k.state.Names()
	} else {
		r.Restored = []string{"cwd", "variables"}
	}
	if dir := k.existing(k.cwd); dir != k.cwd {
		r.Restored, r.Lost = without(r.Restored, "cwd"), append(r.Lost, "cwd")
		k.cwd = dir
	}
	if hadState && len(k.index.Entries()) > 1 {
		r.Restored = append(r.Restored, "history")
	}
	if k.others() {
		r.Lost = append(r.Lost, "jobs")
	}
	return r
}

// others reports whether the session has processes beside the shell that is going.
func (k *Keeper) others() bool {
	for _, id := range k.tree() {
		if m, ok := proc.MarkOf(id.PID); ok && k.procs[m.Command()] != nil {
			continue // a process of its own goes on
		}
		if !k.dying[id.PID] && (k.sh == nil || id.PID != k.sh.PID) {
			return true
		}
	}
	return false
}

// dropShell forgets a shell that is dead.
func (k *Keeper) dropShell() {
	k.sh.Close()
	k.sh = nil
	k.changed()
	if k.watch[0] != nil {
		k.watch[0].Close()
		k.watch[0] = nil
	}
}

// killShell ends the shell at once. Its pid stays ours until it is reaped.
func (k *Keeper) killShell() {
	if k.sh == nil {
		return
	}
	syscall.Kill(k.sh.PID, syscall.SIGKILL)
	k.dying[k.sh.PID] = true
	k.dropShell()
	if k.ckpt != nil {
		k.abandonCheckpoint()
	}
}

// shellStopped replaces a shell that was stopped: nothing would wake it.
func (k *Keeper) shellStopped() {
	c := k.cur
	if c == nil {
		k.killShell()
		k.pending = k.deathReport(true)
		return
	}
	k.wedge(c, "stopped")
}

// watchdog looks for a driver that a command managed to block: the shell sleeps
// outside of the command and yet does not report its end.
func (k *Keeper) watchdog(c *command, now time.Time) {
	c.watch = now.Add(watchNext)
	if c.end != nil {
		return // it has reported; only the command's other processes are waited for
	}
	if k.sh == nil || !k.ready && now.Sub(c.entry.Started) < 30*time.Second {
		return // an rc file may take its time
	}
	st, err := proc.State(k.sh.PID)
	if err != nil || st == 'R' || st == 'D' || !k.sh.Outside() {
		c.outside = false
		return
	}
	if k.trapsExit(c) && k.watch[0] != nil && k.watch[0].Any() {
		return // its EXIT trap runs outside, and may take its time
	}
	if !c.outside {
		c.outside = true
		return
	}
	k.drain(c.out)
	k.drain(c.err)
	if c.ending == nil && !k.opened(c.out) {
		k.notRun(c, "the shell's own input or builtins are blocked")
		c.report = *k.deathReport(true)
		return
	}
	k.wedge(c, "blocked")
}

// wedge ends a command whose shell can no longer be driven. What it changed goes
// with the shell; the words say which kind of thing that probably was.
func (k *Keeper) wedge(c *command, reason string) {
	k.log.Warn("shell is wedged", "command", c.id, "reason", reason)
	k.drain(c.out)
	k.drain(c.err)
	k.killShell()
	c.wedged = true
	c.report = *k.deathReport(true)
	for _, w := range wedgers {
		if regexp.MustCompile(w.text).MatchString(c.req.Command) {
			c.report.Lost = append(c.report.Lost, w.word)
		}
	}
	ws := syscall.WaitStatus(0)
	c.dead = &ws
	if c.ending != nil && !c.ending.gone {
		return
	}
	k.finishDead(c)
}

var wedgers = []struct{ word, text string }{
	{"variables", `PS[0-4]=|PROMPT_COMMAND|TMOUT`},
	{"traps", `\btrap\b`},
	{"functions", `\(\)|\bfunction\b`},
	{"options", `\b(enable|set|shopt|ulimit)\b`},
}

// A checkpoint is being written by the shell.
type checkpoint struct {
	fd      int
	debug   int // brings the DEBUG trap, before
	command uint32
	buf     []byte
	limit   time.Time
	pause   bool // see gathers
	after   []func()
}

// gathers reports whether to leave the checkpoint alone for a moment: bash writes it
// line by line, and would wake its reader with each.
func (ck *checkpoint) gathers() bool {
	ck.pause = !ck.pause
	return ck.pause
}

const (
	checkpointLimit = 4 * time.Second
	maxCheckpoint   = 64 << 20
)

// takeCheckpoint asks the shell for its state. The next command waits for it.
func (k *Keeper) takeCheckpoint(n uint32) {
	fd, debug, err := k.sh.OpenState()
	if err != nil {
		k.log.Warn("checkpoint", "err", err)
		return
	}
	if err := k.sh.AskState(); err != nil {
		unix.Close(fd)
		unix.Close(debug)
		if k.closing != nil {
			k.closing.unsaved = true // the shell has gone; its death is on its way to us
			k.told = true
		}
		return
	}
	k.ckpt = &checkpoint{fd: fd, debug: debug, command: n, limit: time.Now().Add(checkpointLimit)}
	k.changed()
}

// afterCheckpoint runs f when the checkpoint under way is done, or now.
func (k *Keeper) afterCheckpoint(f func()) {
	if k.ckpt == nil {
		f()
		return
	}
	k.ckpt.after = append(k.ckpt.after, f)
}

func (k *Keeper) readCheckpoint() {
	ck := k.ckpt
	for {
		n, err := unix.Read(ck.fd, k.buf)
		if n > 0 {
			ck.buf = append(ck.buf, k.buf[:n]...)
			if len(ck.buf) > maxCheckpoint {
				k.checkpointDone(nil, errors.New("state is larger than 64 MiB"))
				return
			}
			continue
		}
		if n == 0 && err == nil {
			// Written and closed before the state was begun.
			n, _ := unix.Read(ck.debug, k.buf)
			st, err := shell.ParseState(ck.buf, k.buf[:max(n, 0)])
			k.checkpointDone(st, err)
		}
		return
	}
}

func (k *Keeper) checkpointDone(st *shell.State, err error) {
	after, n := k.ckpt.after, k.ckpt.command
	k.ckpt.after = nil
	k.abandonCheckpoint()
	closing := k.closing
	defer func() {
		for _, f := range after {
			f()
		}
	}()
	if err != nil {
		// Without a checkpoint the promise that state survives cannot be
		// kept: better the state before than a shell that cannot be saved.
		k.log.Warn("checkpoint", "err", err)
		k.killShell()
		if closing != nil {
			closing.unsaved = true
		} else {
			k.pending = k.deathReport(true)
		}
		return
	}
	st.Last, st.Command = k.last, n
	st.Physical = k.sh.Cwd()
	st.Descriptors = k.sh.OpenDescriptors()
	if p := k.logicalCwd(st.Pwd); p != "" {
		st.Pwd, k.cwd = p, p
	}
	k.state = st
	k.learn(st)
	k.failures = 0
	if err := st.Save(k.statePath()); err != nil {
		k.log.Warn("save checkpoint", "err", err)
	}
	fault.Point("keeper.after-checkpoint")
}

// learn takes from a state what every command needs to know of it.
func (k *Keeper) learn(st *shell.State) {
	k.judge.Learn(st)
	k.debugTrap = st.DebugTrap()
	k.trapped = st.Trapped()
	k.armed = k.sh != nil && k.sh.Armed(st)
}

// abandonCheckpoint closes what a checkpoint holds.
func (k *Keeper) abandonCheckpoint() {
	ck := k.ckpt
	k.ckpt = nil
	if c := k.closing; c != nil && c.n == ck.command && len(ck.after) > 0 {
		c.unsaved = true // it ended, and then its shell did
	}
	unix.Close(ck.fd)
	unix.Close(ck.debug)
	for _, f := range ck.after {
		f()
	}
}

func (k *Keeper) checkpointStuck() {
	if st, err := proc.State(k.sh.PID); err == nil && (st == 'R' || st == 'D') && time.Since(k.ckpt.limit) < 30*time.Second {
		k.ckpt.limit = time.Now().Add(checkpointLimit) // slow, not stuck
		return
	}
	k.log.Warn("checkpoint does not come")
	told := k.closing != nil
	k.killShell()
	if !told {
		k.pending = k.deathReport(true)
	}
}

// restoreIntTrap puts the user's INT trap back, which the abort took away.
func (k *Keeper) restoreIntTrap() {
	// The abort may have come when the command was already through.
	k.sh.Disarm()
	if k.state == nil {
		return
	}
	if t := k.state.IntTrap(); t != "" {
		k.sh.Send(t)
	}
}

// The words whose use needs the shell's own history list; and those of them that
// show the command itself as well.
var (
	historyWords = []string{"history", "HISTCMD", "fc"}
	wholeHistory = []string{"history", "HISTCMD"}
)

// mentions reports whether one of words stands in text, as a word of its own.
func mentions(text string, words []string) bool {
	for _, w := range words {
		for rest := text; ; {
			i := strings.Index(rest, w)
			if i < 0 {
				break
			}
			at := len(text) - len(rest) + i
			if (at == 0 || !wordByte(text[at-1])) && (at+len(w) == len(text) || !wordByte(text[at+len(w)])) {
				return true
			}
			rest = rest[i+1:]
		}
	}
	return false
}

func wordByte(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// historyFor gives the commands to add to the shell's history before c runs, c
// itself last where bash would have it so. The list is only brought up to date when c can look at it.
func (k *Keeper) historyFor(c *command) []string {
	if c.step == nil && !mentions(c.req.Command, historyWords) || c.step != nil && !c.step.read {
		return nil
	}
	const most = 500
	list := k.index.Entries()
	if n := len(list); n > 0 && c.step == nil && !mentions(c.req.Command, wholeHistory) {
		list = list[:n-1] // `fc -s` means the command before it, not itself
	}
	from := max(k.histSynced, len(list)-most)
	var out []string
	for _, e := range list[min(from, len(list)):] {
		if text := k.text(e); len(text) <= maxHistory && strings.TrimSpace(text) != "" {
			out = append(out, text)
		}
	}
	k.histSynced = len(list)
	return out
}

// maxHistory is the longest command that goes into the shell's own history.
const maxHistory = 4 << 10

// text is a command's whole text.
func (k *Keeper) text(e *history.Entry) string {
	if e.Long {
		return k.longText(e)
	}
	return e.Text
}

func without(list []string, word string) []string {
	var out []string
	for _, w := range list {
		if w != word {
			out = append(out, w)
		}
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }

func isPipeError(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed)
}
