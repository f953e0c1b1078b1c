package keeper

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/logfile"
)

// What a session counts and logs of its commands. A line of the log names a
// command by its id and says how it went: never its text, its environment or
// what it wrote, since those hold people's secrets.

// maxLog is what each of a keeper's two log files may take.
const maxLog = 256 << 10

// openLog is the keeper's log, which is also its stderr: what the Go runtime says
// of a crash goes there.
func openLog(dir string) *slog.Logger {
	f, err := logfile.Open(filepath.Join(dir, "keeper.log"), maxLog)
	if err != nil {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	f.Moved = func(f *os.File) { dupOnto(int(f.Fd()), 2) }
	return slog.New(slog.NewTextHandler(f, nil)).With("keeper", os.Getpid())
}

// outcome is how a command went, in a word.
func outcome(c *command) string {
	r := c.result
	switch {
	case c.failed != nil && (r == nil || c.entry == nil):
		return "refused"
	case c.entry == nil:
		return "dropped" // from the queue
	case c.failed != nil:
		return "unknown"
	case r.TimedOut:
		return "timed_out"
	case r.Interrupted:
		return "interrupted"
	case r.ExitCode == nil:
		return "unknown"
	case *r.ExitCode == 0:
		return "ok"
	}
	return "failed"
}

// account counts a command that is over and writes its line. It comes after the
// result was given out: nobody waits for it.
func (k *Keeper) account(c *command) {
	n := &k.count
	word := outcome(c)
	switch word {
	case "ok":
		n.OK.Add(1)
	case "failed":
		n.Failed.Add(1)
	case "timed_out":
		n.TimedOut.Add(1)
	case "interrupted":
		n.Interrupted.Add(1)
	case "unknown":
		n.Unknown.Add(1)
	default:
		n.Refused.Add(1)
	}
	args := []any{"op", "command", "session", k.spec.ID, "label", k.spec.Label, "command", string(c.id), "outcome", word, "client", c.peer}
	if c.entry == nil {
		n.Wait.Observe(time.Since(c.queuedAt))
		if c.failed != nil {
			args = append(args, "code", string(conch.AsError(c.failed).Kind))
		}
		k.log.Info("command", args...)
		return
	}
	wait := c.entry.Started.Sub(c.queuedAt)
	n.Wait.Observe(wait)
	if r := c.result; r != nil {
		n.Duration.Observe(time.Duration(r.DurationMS * float64(time.Millisecond)))
		if r.ExitCode != nil {
			args = append(args, "exit", *r.ExitCode)
		}
		if r.Ended != nil {
			switch r.Ended.Signal {
			case "SIGKILL":
				n.ByKILL.Add(1)
			case "SIGTERM":
				n.ByTERM.Add(1)
			default:
				n.ByINT.Add(1)
			}
			args = append(args, "signal", r.Ended.Signal, "processes", r.Ended.Processes, "verified", r.Ended.Verified)
		}
		args = append(args, "ms", float64(int64(r.DurationMS*1000))/1000, "wait_ms", wait.Milliseconds(),
			"stdout", r.StdoutBytes, "stderr", r.StderrBytes, "background", r.Background)
		if r.Shell.Restarted {
			args = append(args, "restarted", true)
		}
	}
	if c.failed != nil {
		args = append(args, "code", string(conch.AsError(c.failed).Kind))
	}
	k.log.Info("command", args...)
}

// accountProcess is account for a background process.
func (k *Keeper) accountProcess(p *process, ex *history.Exit) {
	word := "failed"
	switch {
	case ex.Signal != nil:
		word = "killed"
		k.count.ProcessesKilled.Add(1)
	case ex.ExitCode != nil && *ex.ExitCode == 0:
		word = "ok"
		k.count.ProcessesOK.Add(1)
	default:
		k.count.ProcessesFailed.Add(1)
	}
	args := []any{"op", "process", "session", k.spec.ID, "label", k.spec.Label, "process", string(p.id), "outcome", word, "pid", p.self.PID,
		"ms", int64(ex.DurationMS), "stdout", ex.StdoutBytes, "stderr", ex.StderrBytes}
	if ex.ExitCode != nil {
		args = append(args, "exit", *ex.ExitCode)
	}
	if ex.Signal != nil {
		args = append(args, "signal", *ex.Signal)
	}
	k.log.Info("process", args...)
}

// getStats is what was counted so far, for the daemon's /metrics.
func (k *Keeper) getStats(w http.ResponseWriter, r *http.Request) {
	st := k.count.Read()
	ok := k.do(func() {
		st.Queue, st.Busy, st.Tape = len(k.queue), k.cur != nil, k.tape.Size()
		if k.sh != nil {
			st.Shell = k.sh.PID
		}
		if k.cur == nil && k.trimAt.IsZero() {
			k.trimAt = time.Now().Add(trimAfter) // answering has brought pages back
		}
	})
	if !ok {
		sendError(w, k.closedError())
		return
	}
	sendJSON(w, st)
}
