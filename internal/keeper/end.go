package keeper

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/shell"
	"github.com/conchsh/conch/internal/sock"
)

// ladder ends a command: asked to, told to, made to.
var ladder = []proc.Step{
	{Signal: syscall.SIGINT, Wait: 2 * time.Second},
	{Signal: syscall.SIGTERM, Wait: 5 * time.Second},
	{Signal: syscall.SIGKILL, Wait: 5 * time.Second},
}

// sessionLadder ends all of a session, its shell too, which ignores TERM.
var sessionLadder = []proc.Step{
	{Signal: syscall.SIGHUP, Wait: time.Second},
	{Signal: syscall.SIGTERM, Wait: 2 * time.Second},
	{Signal: syscall.SIGKILL, Wait: 5 * time.Second},
}

// endCommand ends the current command: the shell is told to drop the rest of it,
// then its processes go by the ladder. The result comes when both are through.
func (k *Keeper) endCommand(c *command, w why) {
	if c.ending != nil {
		return
	}
	c.ending = &ending{why: w}
	c.deadline = time.Time{}
	switch {
	case k.sh == nil:
	case k.sh.CanAbort():
		// Before its children are touched: a shell whose child dies goes on
		// with the rest unless this is pending.
		syscall.Kill(k.sh.PID, shell.AbortSignal)
	default:
		// The command took the trap away: only ending the shell keeps the
		// rest from running.
		k.endShell(c)
	}
	fault.Point("keeper.ending")
	k.climb(c)
}

// endShell ends the shell under a command that is being ended.
func (k *Keeper) endShell(c *command) {
	k.log.Info("ending the shell with its command", "command", c.id, "tries", c.ending.hard)
	k.drain(c.out)
	k.drain(c.err)
	k.killShell()
	c.report = *k.deathReport(true)
	ws := syscall.WaitStatus(syscall.SIGKILL)
	c.dead = &ws
}

// climb ends the command's processes by the ladder.
func (k *Keeper) climb(c *command) {
	c.ending.gone = false
	find := k.finder(c)
	go func() { // ends when the processes are gone or cannot be ended
		rep := proc.End(context.Background(), find, ladder)
		k.do(func() { k.processesGone(c, rep) })
	}()
}

func (k *Keeper) processesGone(c *command, rep proc.Report) {
	e := c.ending
	e.gone = true
	if rep.Signal != "" {
		e.report.Signal = rep.Signal
	} else if e.report.Signal == "" {
		e.report.Signal = proc.SignalName(syscall.SIGINT)
	}
	e.report.Processes += rep.Processes
	e.report.Verified = rep.Verified
	if k.cur != c {
		return
	}
	switch {
	case c.end != nil:
		k.finishWith(c, *c.end)
	case c.dead != nil:
		k.finishDead(c)
	default:
		e.next = time.Now().Add(300 * time.Millisecond)
	}
}

// endHarder deals with a shell that does not come back although nothing it could
// wait for was left: it may have taken the signal before it began (then it is sent
// again, and what has begun since goes too), a builtin may read for ever (then a
// direct interrupt helps), and at last the shell goes.
func (k *Keeper) endHarder(c *command) {
	e := c.ending
	e.next = time.Time{}
	if k.sh == nil {
		return
	}
	e.hard++
	if e.hard == 1 {
		syscall.Kill(k.sh.PID, shell.AbortSignal)
		syscall.Kill(k.sh.PID, syscall.SIGINT)
	} else {
		e.report.Signal = proc.SignalName(syscall.SIGKILL)
		k.endShell(c)
	}
	k.climb(c)
}

// interrupt ends the command with the given id, or whatever runs. ch receives the
// report once; it is closed at once when there was nothing to interrupt.
func (k *Keeper) interrupt(id conch.CommandID, ch chan conch.Ended) (conch.CommandID, bool) {
	if id != "" {
		for i, c := range k.queue {
			if c.id == id {
				k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
				k.dropQueued(c)
				ch <- conch.Ended{Verified: true}
				return id, true
			}
		}
	}
	c := k.running()
	if c == nil || id != "" && c.id != id {
		return "", false
	}
	k.endCommand(c, byInterrupt)
	c.ending.notified = append(c.ending.notified, ch)
	return c.id, true
}

// dropQueued ends a command that never ran.
func (k *Keeper) dropQueued(c *command) {
	c.status = conch.StatusDone
	now := time.Now().UTC()
	c.result = &conch.Result{Session: k.spec.Label, CommandID: c.id, Interrupted: true, Encoding: "utf-8", Cwd: k.cwd, StartedAt: now,
		Shell: conch.ShellReport{Restored: []string{}, Lost: []string{}}}
	close(c.began)
	close(c.done)
	k.account(c)
}

func (k *Keeper) queueTimeout(c *command) {
	for i, q := range k.queue {
		if q == c {
			k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
			break
		}
	}
	e := conch.Errorf(conch.QueueTimeout, "session %s was busy for the whole queue timeout; the command was not run", k.spec.Label).Retry()
	if k.att.holds() && k.running() == nil {
		e.Hint("somebody is attached to session %s and holds its prompt", k.spec.Label)
	} else if k.cur != nil {
		e.Hint("running: %s (%.60q); conch interrupt -s %s ends it", k.cur.id, k.cur.req.Command, k.spec.Label)
	}
	k.refuse(c, e)
}

// everything ends all that commands of the session's shell started, and with processes
// also what runs in the background, and reports on the loop.
func (k *Keeper) everything(processes bool, then func(proc.Report)) {
	for _, c := range k.queue {
		k.dropQueued(c)
	}
	k.queue = nil
	k.blocked = true
	if c := k.cur; c != nil && c.ending == nil {
		c.ending = &ending{why: byReset}
		c.deadline = time.Time{}
	}
	if k.sh != nil && k.cur == nil {
		k.sh.HangUp() // an idle shell runs its EXIT trap and leaves by itself
	}
	spared := map[proc.Mark]bool{}
	if !processes {
		for _, n := range k.processNumbers() {
			spared[proc.MakeMark(k.mark, n)] = true
		}
	}
	find := func() []proc.ID {
		return slices.DeleteFunc(k.tree(), func(id proc.ID) bool {
			m, ok := proc.MarkOf(id.PID)
			return ok && spared[m]
		})
	}
	go func() { // ends when the processes are gone or cannot be ended
		rep := proc.End(context.Background(), find, sessionLadder)
		k.do(func() {
			k.reap()
			if c := k.cur; c != nil {
				c.ending.gone = true
				c.ending.report = conch.Ended{Signal: rep.Signal, Processes: rep.Processes, Verified: rep.Verified}
				if k.sh != nil {
					k.drain(c.out)
					k.drain(c.err)
					k.killShell()
				}
				if c.dead == nil {
					ws := syscall.WaitStatus(syscall.SIGKILL)
					c.dead = &ws
				}
				c.report = conch.ShellReport{Restarted: true, Lost: []string{"cwd", "variables", "functions", "aliases", "options", "traps", "umask"}}
				k.finishDead(c)
			}
			k.killShell()
			then(rep)
		})
	}()
}

// reset makes the session's shell new: no jobs, no state, the same label and tape. What
// `run` started is not the shell's and goes on.
func (k *Keeper) reset(then func(proc.Report)) {
	k.everything(false, func(rep proc.Report) {
		k.state = nil
		k.judge, k.debugTrap = shell.Judge{}, ""
		os.Remove(k.statePath())
		os.Remove(shell.Previous(k.statePath()))
		k.last, k.cwd, k.pending, k.failures = 0, k.spec.Cwd, nil, 0
		k.blocked = false
		then(rep)
	})
}

// shutdown ends the session's processes and then this one.
func (k *Keeper) shutdown(then func(proc.Report)) {
	if k.stopping != nil {
		then(proc.Report{Verified: true})
		return
	}
	if k.att != nil {
		k.att.ended = true
	}
	k.closeAttachment()
	if k.state != nil && k.sh != nil && k.others() {
		// A session that is not closed by this comes back, and says so.
		k.state.Jobs = true
		if err := k.state.Save(k.statePath()); err != nil {
			k.log.Warn("save checkpoint", "err", err)
		}
	}
	k.everything(true, func(rep proc.Report) {
		for _, s := range append([]*stream(nil), k.streams...) {
			k.drain(s)
			k.closeStream(s)
		}
		// Those that came since; they would wait for ever, and we for them.
		for _, c := range k.queue {
			k.refuse(c, k.closedError())
		}
		k.queue = nil
		k.stopping = func() {
			k.closeBox()
			if err := k.tape.Sync(); err != nil {
				k.log.Warn("sync tape", "err", err)
			}
			k.tape.Close()
			os.RemoveAll(k.runDir)
			os.Remove(sock.MemoryPath(k.home)) // if it was the last
			os.Remove(filepath.Join(k.dir, "keeper.json"))
		}
		k.changed() // the loop, which ends by it, sleeps
		then(rep)
	})
}
