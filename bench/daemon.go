package bench

import (
	"context"
	"time"
)

// daemon is a daemon's start in an empty home, and its memory when it has
// nothing to do.
func (r *run) daemon(ctx context.Context) error {
	n := 0
	var resident []float64
	var noProc error
	// cold measures do in a home that is new each time, and gone afterwards.
	cold := func(do func(context.Context, *home) error) *subject {
		return &subject{per: 1, once: func(ctx context.Context) (time.Duration, error) {
			n++
			h := r.newHome(label("cold-", n))
			began := time.Now()
			if err := do(ctx, h); err != nil {
				return 0, err
			}
			took := time.Since(began)
			st, err := h.c.Status(ctx)
			if err != nil {
				return 0, err
			}
			if st.Sessions == 0 {
				kb, err := processKB(st.DaemonPID, "VmRSS")
				noProc = err
				resident = append(resident, mb(kb))
			}
			return took, h.close()
		}}
	}
	ready := cold(func(ctx context.Context, h *home) error {
		_, err := h.c.Start(ctx)
		return err
	})
	first := cold(func(ctx context.Context, h *home) error { return h.exec(ctx, h.c, "first", "true", "") })
	fork := r.forkExec(1)
	if err := interleave(ctx, pick(r.Quick, 1, 15), nil, ready, fork, first); err != nil {
		return err
	}
	const ms = time.Millisecond
	row := latency("daemon-start", "daemon, cold start to ready", ready, forkWords, fork, ms)
	row.Bar = valueAtMost(300)
	r.add(row)
	r.add(latency("daemon-start-exec", "exec true with no daemon running", first, forkWords, fork, ms))
	row = Row{Name: "daemon-memory", What: "daemon memory (RSS), just started", Unit: "MB", Bar: valueAtMost(40)}
	if noProc != nil {
		row.Skipped = noProc.Error()
	} else {
		row.Value, row.Samples = median(resident), len(resident)
	}
	r.add(row)
	return nil
}
