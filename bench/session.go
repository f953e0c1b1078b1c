package bench

import (
	"context"
	"time"
)

// newSession is a session's way from nothing to the result of its first
// command, the daemon up and the login environment captured.
func (r *run) newSession(ctx context.Context) error {
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	n := 0
	first := &subject{per: pick(r.Quick, 1, 5), once: func(ctx context.Context) (time.Duration, error) {
		n++
		session := label("new-", n)
		began := time.Now()
		if err := h.exec(ctx, h.c, session, "true", ""); err != nil {
			return 0, err
		}
		took := time.Since(began)
		_, err := h.c.Close(ctx, session)
		return took, err
	}}
	fork := r.forkExec(pick(r.Quick, 1, 5))
	if err := interleave(ctx, pick(r.Quick, 1, 12), nil, first, fork); err != nil {
		return err
	}
	row := latency("new-session", "new session and its first command", first, forkWords, fork, time.Microsecond)
	row.Bar = ratioAtMost(8)
	r.add(row)
	return nil
}
