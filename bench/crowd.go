package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/sock"
)

// crowdSettle is how long a crowd of sessions is left alone: their keepers give
// memory back after three seconds of idleness.
const crowdSettle = 5 * time.Second

// crowd is what many sessions cost that do nothing, and how many can work at
// the same time.
func (r *run) crowd(ctx context.Context) error {
	h := r.newHome("crowd")
	if _, err := h.c.Start(ctx); err != nil {
		return err
	}
	n := r.Sessions
	if n == 0 {
		n = pick(r.Quick, 4, 1000)
	}
	list := make([]*conch.SessionInfo, n)
	began := time.Now()
	err := parallel(ctx, 8, n, func(ctx context.Context, i int) error {
		session := label("c-", i+1)
		if err := h.exec(ctx, h.c, session, "true", ""); err != nil {
			return err
		}
		var err error
		list[i], err = h.c.Session(ctx, session)
		return err
	})
	if err != nil {
		return err
	}
	made := time.Since(began)
	h.c.CloseIdle() // a connection held is not idle
	if err := r.crowdMemory(ctx, h, list, made); err != nil {
		return err
	}
	if err := r.crowdMetrics(ctx, h, n); err != nil {
		return err
	}
	return r.crowdExec(ctx, h, min(n, 200))
}

// crowdMetrics asks the daemon for what all keepers have counted, which it asks
// them for.
func (r *run) crowdMetrics(ctx context.Context, h *home, n int) error {
	path, err := sock.Path(h.path, "d.sock")
	if err != nil {
		return err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	var text string
	scrape := timed(1, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon.conch/metrics", nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		text = string(b)
		return err
	})
	if err := interleave(ctx, pick(r.Quick, 1, 5), nil, scrape); err != nil {
		return err
	}
	row := latency("crowd-metrics", fmt.Sprintf("/metrics of %d sessions", n), scrape, "", nil, time.Millisecond)
	got, of := int64(0), int64(n)
	if strings.Contains(text, "\nconch_keepers_silent 0\n") {
		got = of
	}
	row.Got, row.Of = &got, &of
	r.add(row)
	return nil
}

// crowdMemory reads what all of them take.
func (r *run) crowdMemory(ctx context.Context, h *home, list []*conch.SessionInfo, made time.Duration) error {
	n := len(list)
	what := fmt.Sprintf("%d idle sessions: keepers and bashes (PSS)", n)
	if _, err := pssKB(os.Getpid()); err != nil {
		r.add(Row{Name: "crowd-memory", What: what, Unit: "MB", Skipped: err.Error()})
		return nil
	}
	select {
	case <-time.After(crowdSettle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	total, keepers := int64(0), int64(0)
	for _, s := range list {
		k, err := pssKB(s.KeeperPID)
		if err != nil {
			return err
		}
		b, err := pssKB(s.ShellPID)
		if err != nil {
			return err
		}
		total, keepers = total+k+b, keepers+k
	}
	st, err := h.c.Status(ctx)
	if err != nil {
		return err
	}
	resident, err := processKB(st.DaemonPID, "VmRSS")
	if err != nil {
		return err
	}
	row := Row{
		Name: "crowd-memory", What: what, Value: mb(total), Unit: "MB", Samples: n,
		Note: fmt.Sprintf("%.2f MB each, of which the keeper %.2f MB; idle for %v; making them, 8 at a time, took %v",
			mb(total)/float64(n), mb(keepers)/float64(n), crowdSettle, made.Round(10*time.Millisecond)),
	}
	row.Bar = valueAtMost(4 * float64(n)) // 4 GB for 1,000
	r.add(row)
	r.add(Row{
		Name: "crowd-daemon-memory", What: fmt.Sprintf("daemon memory (RSS), %d idle sessions", n),
		Value: mb(resident), Unit: "MB", Samples: 1,
	})
	return nil
}

// crowdExec has many sessions run commands at once, against as many forks.
func (r *run) crowdExec(ctx context.Context, h *home, n int) error {
	each := pick(r.Quick, 2, 20)
	storm := func(per int, f func(ctx context.Context, i int) error) (*subject, float64, error) {
		times := make([]time.Duration, n*per)
		began := time.Now()
		err := parallel(ctx, n, n, func(ctx context.Context, i int) error {
			for k := range per {
				at := time.Now()
				if err := f(ctx, i); err != nil {
					return err
				}
				times[i*per+k] = time.Since(at)
			}
			return nil
		})
		return &subject{times: times}, float64(len(times)) / time.Since(began).Seconds(), err
	}
	exec := func(ctx context.Context, i int) error { return h.exec(ctx, h.c, label("c-", i+1), "true", "") }
	fork := func(ctx context.Context, _ int) error { return command(ctx, r.bash, "-c", "true").Run() }
	// Once for nothing: keepers have given their memory back, and connections
	// are to be made.
	if _, _, err := storm(1, exec); err != nil {
		return err
	}
	conchTimes, conchRate, err := storm(each, exec)
	if err != nil {
		return err
	}
	forkTimes, forkRate, err := storm(max(1, each/4), fork)
	if err != nil {
		return err
	}
	const against = "as many fork/exec of bash -c true"
	r.add(latency("crowd-exec", fmt.Sprintf("exec true, %d sessions at once", n), conchTimes, against, forkTimes, time.Millisecond))
	got, of := int64(len(conchTimes.times)), int64(n*each)
	r.add(Row{
		Name: "crowd-rate", What: fmt.Sprintf("exec true, %d sessions at once, all together", n), Value: conchRate, Unit: "/s", Samples: 1,
		Against: against, Baseline: &forkRate, BaselineSamples: 1, Got: &got, Of: &of,
	})
	return nil
}

// parallel calls f for 0 to n-1, at most so many at a time, and gives the first
// error, after all have returned.
func parallel(ctx context.Context, atOnce, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	sem := make(chan struct{}, atOnce)
	for i := range n {
		sem <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-sem }()
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
