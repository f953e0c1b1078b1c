package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/conchsh/conch"
)

// settle is how long sessions are left alone before their memory is read: it
// is idle memory that is asked for, so idleness is part of what is measured
// and not a wait for something to happen.
const settle = time.Second

// memory is what sessions cost that do nothing.
func (r *run) memory(ctx context.Context) error {
	const name, what = "session-memory", "one idle session: keeper and bash (PSS)"
	if _, err := pssKB(os.Getpid()); err != nil {
		r.add(Row{Name: name, What: what, Unit: "MB", Skipped: err.Error()})
		return nil
	}
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	raw, err := r.startRaw(ctx)
	if err != nil {
		return err
	}
	defer raw.close()
	if err := raw.roundTrip("true", ""); err != nil {
		return err
	}
	n := pick(r.Quick, 3, 20)
	list := make([]*conch.SessionInfo, n)
	for i := range list {
		session := label("idle-", i+1)
		if err := h.exec(ctx, h.c, session, "true", ""); err != nil {
			return err
		}
		if list[i], err = h.c.Session(ctx, session); err != nil {
			return err
		}
	}
	h.c.CloseIdle() // a connection held is not idle
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	var both, keepers, shells []float64
	for _, s := range list {
		k, errK := pssKB(s.KeeperPID)
		b, errB := pssKB(s.ShellPID)
		if err := errors.Join(errK, errB); err != nil {
			return err
		}
		both, keepers, shells = append(both, mb(k+b)), append(keepers, mb(k)), append(shells, mb(b))
	}
	alone, err := pssKB(raw.cmd.Process.Pid)
	if err != nil {
		return err
	}
	// The daemon's pid comes from a new request, its memory is read after that.
	st, err := h.c.Status(ctx)
	if err != nil {
		return err
	}
	resident, err := processKB(st.DaemonPID, "VmRSS")
	if err != nil {
		return err
	}
	for i := range list {
		if _, err := h.c.Close(ctx, label("idle-", i+1)); err != nil {
			return err
		}
	}
	base := mb(alone)
	r.add(Row{
		Name: name, What: what, Value: median(both), Unit: "MB", Samples: n, Bar: valueAtMost(4),
		Against: "plain bash (PSS)", Baseline: &base, BaselineSamples: 1,
		Note: fmt.Sprintf("median of %d, idle for %v: keeper %.2f MB, bash %.2f MB", n, settle, median(keepers), median(shells)),
	})
	r.add(Row{
		Name: "daemon-memory-sessions", What: fmt.Sprintf("daemon memory (RSS), %d idle sessions", n),
		Value: mb(resident), Unit: "MB", Samples: 1, Bar: valueAtMost(40),
	})
	return nil
}

func mb(kb int64) float64 { return float64(kb) * 1024 / 1e6 }

// pssKB is a process's memory with what it shares counted in shares.
func pssKB(pid int) (int64, error) { return procField(pid, "smaps_rollup", "Pss") }

// processKB is a size in a process's status: VmRSS, now, or VmHWM, its peak.
func processKB(pid int, name string) (int64, error) { return procField(pid, "status", name) }

func procField(pid int, file, name string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, fmt.Errorf("memory cannot be read here: %w", err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				return strconv.ParseInt(string(f[0]), 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("memory cannot be read here: no %s in /proc/%d/%s", name, pid, file)
}

// resetPeak makes VmHWM start again from now. Where that is not allowed VmHWM
// stays the peak of the process's whole life, which is never too small.
func resetPeak(pid int) { os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }
