package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conchsh/conch"
)

// seq looks for lost output where it is lost elsewhere: many short bursts, in
// several sessions at once, on a machine whose cores are all taken.
func (r *run) seq(ctx context.Context) error {
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	const sessions, load = 4, 2
	stop, err := r.startLoad(ctx, load)
	if err != nil {
		return err
	}
	defer stop()
	var b strings.Builder
	for i := 1; i <= 5000; i++ {
		fmt.Fprintln(&b, i)
	}
	want := b.String()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, complete atomic.Int64
	var once sync.Once
	var wrong string // what the first bad run was
	began := time.Now()
	var wg sync.WaitGroup
	for i := range sessions {
		session := label("seq-", i+1)
		wg.Go(func() {
			for next.Add(1) <= int64(r.Seq) {
				res, err := h.c.Exec(ctx, session, conch.ExecRequest{Command: "seq 1 5000"})
				if err != nil {
					cancel(err)
					return
				}
				if res.Stdout == want && res.StdoutBytes == int64(len(want)) && res.Stderr == "" && res.ExitCode != nil && *res.ExitCode == 0 {
					complete.Add(1)
					continue
				}
				once.Do(func() {
					wrong = fmt.Sprintf("%s: %d of %d bytes, the first %d right", res.CommandID, len(res.Stdout), len(want), common(res.Stdout, want))
				})
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	took := time.Since(began)
	for i := range min(sessions, r.Seq) {
		if _, err := h.c.Close(ctx, label("seq-", i+1)); err != nil {
			return err
		}
	}
	got, of := complete.Load(), int64(r.Seq)
	all := float64(of)
	row := Row{
		Name: "seq", What: fmt.Sprintf("seq 1 5000 complete, %d sessions under load", sessions), Value: float64(got), Unit: "runs",
		Samples: r.Seq, Against: "all", Baseline: &all, BaselineSamples: r.Seq, Bar: ratioAtLeast(1), Got: &got, Of: &of,
		Note: fmt.Sprintf("%.0f runs a second beside %d busy loops", all/took.Seconds(), load),
	}
	if wrong != "" {
		row.Note = wrong
	}
	r.add(row)
	return nil
}

// common is the length of what two strings begin with alike.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
