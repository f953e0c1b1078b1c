package bench

import (
	"context"
	"errors"
	"time"
)

const (
	rawWords  = "plain bash on a pipe"
	forkWords = "fork/exec of bash -c true"
)

// exec is the round trip of the smallest commands.
func (r *run) exec(ctx context.Context) error {
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	// Each round has a new plain bash and a new session. Whether two processes
	// that answer each other share a core or not is the kernel's choice, made
	// early and kept: on two cores the same pipe takes 12 or 45 µs for as long as
	// a bash lives. One bash for all rounds would make the ratio a toss.
	var raw *rawBash
	defer func() { raw.close() }()
	var session string
	n := 0
	prepare := func(ctx context.Context) (err error) {
		raw.close()
		if raw, err = r.startRaw(ctx); err != nil {
			return err
		}
		if n > 0 {
			if _, err := h.c.Close(ctx, session); err != nil {
				return err
			}
		}
		n++
		session = label("exec-", n)
		for range 3 {
			err = errors.Join(err, raw.roundTrip("true", ""), h.exec(ctx, h.c, session, "true", ""))
		}
		return err
	}
	plain := func(per int, text, want string) *subject {
		return timed(per, func(context.Context) error { return raw.roundTrip(text, want) })
	}
	held := func(per int, text, want string) *subject {
		return timed(per, func(ctx context.Context) error { return h.exec(ctx, h.c, session, text, want) })
	}

	rounds, per, few := pick(r.Quick, 1, 40), pick(r.Quick, 2, 25), pick(r.Quick, 1, 5)
	var (
		rawTrue   = plain(per, "true", "")
		rawEcho   = plain(per, "echo hi", "hi\n")
		rawAssign = plain(per, "x=1", "")
		fork      = r.forkExec(per)
		heldTrue  = held(per, "true", "")
		heldEcho  = held(per, "echo hi", "hi\n")
		// Back to back: each has to wait until the state that the one before
		// it changed has been saved.
		heldAssign = held(per, "x=1", "")
		fresh      = timed(per, func(ctx context.Context) error {
			c := h.client()
			defer c.CloseIdle()
			return h.exec(ctx, c, session, "true", "")
		})
		process = timed(few, func(ctx context.Context) error {
			return h.cli(ctx, "exec", "-s", session, "true").Run()
		})
	)
	err = interleave(ctx, rounds, prepare, rawTrue, heldTrue, fork, rawEcho, heldEcho, fresh, rawAssign, heldAssign, process)
	if err != nil {
		return err
	}
	if _, err := h.c.Close(ctx, session); err != nil {
		return err
	}

	const us = time.Microsecond
	row := func(bar *Bar, row Row) {
		row.Bar = bar
		r.add(row)
	}
	pipeBar := func() *Bar {
		b, goal := ratioAtMost(15), 8.0
		b.Goal = &goal
		return b
	}
	row(pipeBar(), latency("exec-true", "exec true, connection held", heldTrue, rawWords, rawTrue, us))
	row(ratioAtMost(0.25), latency("exec-true-fork", "exec true, connection held", heldTrue, forkWords, fork, us))
	row(pipeBar(), latency("exec-true-fresh", "exec true, new connection each", fresh, rawWords, rawTrue, us))
	row(ratioAtMost(0.25), latency("exec-true-fresh-fork", "exec true, new connection each", fresh, forkWords, fork, us))
	row(nil, latency("exec-echo", "exec echo hi, connection held", heldEcho, rawWords, rawEcho, us))
	row(nil, latency("exec-assign", "exec x=1, back to back", heldAssign, rawWords, rawAssign, us))
	row(nil, latency("exec-assign-fork", "exec x=1, back to back", heldAssign, forkWords, fork, us))
	row(nil, latency("exec-cli", "conch exec true, a process each", process, forkWords, fork, us))
	return nil
}
