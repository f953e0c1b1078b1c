package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// stream is bulk output: lines of 64 bytes from the same producer through a
// plain pipe, through the client's stream, and through the command line.
func (r *run) stream(ctx context.Context) error {
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	size := pick[int64](r.Quick, 1_000_000, 100_000_000)
	producer := fmt.Sprintf("yes %s | head -c %d", strings.Repeat("x", 63), size)
	st, err := h.c.Status(ctx)
	if err != nil {
		return err
	}
	grown := &growth{daemon: st.DaemonPID}
	grown.daemonBase, grown.err = processKB(st.DaemonPID, "VmRSS")

	least := func(got *int64, n int64) { *got = min(*got, n) }
	gotRaw, gotStream, gotCLI := size, size, size
	raw := &subject{per: 1, once: func(ctx context.Context) (time.Duration, error) {
		n, took, err := count(command(ctx, r.bash, "-c", producer))
		least(&gotRaw, n)
		return took, err
	}}
	n := 0
	// inSession measures in a session of its own, which has run a command and
	// whose tape is removed afterwards: the disk need hold one at a time.
	inSession := func(got *int64, do func(context.Context, string) (int64, time.Duration, error)) *subject {
		return &subject{per: 1, once: func(ctx context.Context) (time.Duration, error) {
			n++
			session := label("stream-", n)
			if err := h.exec(ctx, h.c, session, "true", ""); err != nil {
				return 0, err
			}
			info, err := h.c.Session(ctx, session)
			if err != nil {
				return 0, err
			}
			grown.before(info.KeeperPID)
			bytes, took, err := do(ctx, session)
			if err != nil {
				return 0, err
			}
			grown.after(info.KeeperPID)
			least(got, bytes)
			if _, err := h.c.Close(ctx, session); err != nil {
				return 0, err
			}
			_, err = h.c.Prune(ctx, client.PruneOptions{})
			return took, err
		}}
	}
	live := inSession(&gotStream, func(ctx context.Context, session string) (int64, time.Duration, error) {
		began := time.Now()
		n, err := countStream(ctx, h.c, session, producer)
		return n, time.Since(began), err
	})
	cli := inSession(&gotCLI, func(ctx context.Context, session string) (int64, time.Duration, error) {
		return count(h.cli(ctx, "exec", "-s", session, producer))
	})
	if err := interleave(ctx, pick(r.Quick, 1, 7), nil, raw, live, cli); err != nil {
		return err
	}
	if gotRaw != size {
		return fmt.Errorf("the plain pipe gave %d bytes of %d", gotRaw, size)
	}

	speed := func(s *subject) float64 { return float64(size) / 1e6 / quantile(s.times, 0.5, time.Second) }
	base := speed(raw)
	row := func(name, what string, s *subject, got int64) {
		r.add(Row{
			Name: name, What: what, Value: speed(s), Unit: "MB/s", Samples: len(s.times),
			Against: "plain pipe", Baseline: &base, BaselineSamples: len(raw.times),
			Bar: ratioAtLeast(0.5), Got: &got, Of: &size,
		})
	}
	amount := fmt.Sprintf("%d MB of lines", size/1e6)
	row("stream", amount+", client's stream", live, gotStream)
	row("stream-cli", amount+", conch exec to a pipe", cli, gotCLI)
	mem := Row{Name: "stream-memory", What: "daemon and keeper growth in that", Unit: "MB", Bar: valueAtMost(32)}
	if grown.err != nil {
		mem.Skipped = grown.err.Error()
	} else {
		mem.Value, mem.Samples = mb(grown.most), grown.n
		mem.Note = fmt.Sprintf("largest of %d: keeper %.1f MB, daemon %.1f MB", grown.n, mb(grown.keeperMost), mb(grown.most-grown.keeperMost))
	}
	r.add(mem)
	return nil
}

// countStream follows a command to its end. The bytes that arrived and those
// that the session says it saw must be the same.
func countStream(ctx context.Context, c *client.Client, session, text string) (n int64, err error) {
	s, err := c.Stream(ctx, session, conch.ExecRequest{Command: text})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err == io.EOF {
			return n, io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, err
		}
		switch e.Kind {
		case client.Stdout:
			n += int64(len(e.Data))
		case client.Exited:
			if e.Result.StdoutBytes != n {
				return n, fmt.Errorf("the session wrote %d bytes, %d arrived", e.Result.StdoutBytes, n)
			}
			return n, nil
		}
	}
}

// growth is how much the daemon and a keeper grow while output passes: from
// their resident size before to their peak. The daemon's base is its size before
// the first round, a keeper is new in each.
type growth struct {
	daemon           int
	daemonBase, base int64
	most, keeperMost int64
	n                int
	err              error // the first
}

func (g *growth) before(keeper int) {
	resetPeak(g.daemon)
	resetPeak(keeper)
	g.base = g.read(keeper, "VmRSS")
}

func (g *growth) after(keeper int) {
	k := g.read(keeper, "VmHWM") - g.base
	if both := k + g.read(g.daemon, "VmHWM") - g.daemonBase; both > g.most {
		g.most, g.keeperMost = both, k
	}
	g.n++
}

func (g *growth) read(pid int, name string) int64 {
	kb, err := processKB(pid, name)
	if g.err == nil {
		g.err = err
	}
	return kb
}
