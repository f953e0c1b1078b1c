package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/session"
)

// Prune removes the records of closed sessions, and takes the ended processes of open
// ones off their lists.
func (h *Host) Prune(ctx context.Context, r conch.PruneRequest) (conch.Pruned, error) {
	if r.OlderThanMS < 0 || r.Keep < 0 {
		return conch.Pruned{}, conch.Errorf(conch.InvalidRequest, "older_than_ms and keep cannot be negative")
	}
	var p conch.Pruned
	var err error
	by := session.Policy{OlderThan: time.Duration(r.OlderThanMS) * time.Millisecond, Keep: r.Keep}
	if p.Removed, p.Bytes, err = h.Store.PruneBy(by, time.Now()); err != nil {
		return p, conch.Errorf(conch.Internal, "%d removed, then: %v", p.Removed, err)
	}
	p.Processes, err = h.forgetProcesses(ctx)
	return p, err
}

// tendEvery is how often the policies of the configuration are applied.
const tendEvery = time.Hour

// Tend applies the policies until ctx ends: at once, and every hour.
func (h *Host) Tend(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(tendEvery)
	defer t.Stop()
	for {
		h.tend(ctx, log, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// tend applies the policies once: sessions that sleep for too long are closed,
// closed ones removed when they are old or take too much room.
func (h *Host) tend(ctx context.Context, log *slog.Logger, now time.Time) {
	if d := h.Config.Time(config.IdleClose); d > 0 {
		for _, s := range h.Store.Sessions() {
			if ctx.Err() != nil {
				return
			}
			if s.Running() || now.Sub(s.LastUsed()) < d {
				continue
			}
			_, err := s.CloseAsleep(ctx)
			log.Info("closed for idleness", "op", "tend", "session", s.ID(), "label", s.Label(), "idle_close", d.String(), "err", err)
		}
	}
	p := session.Policy{}
	for _, rule := range []func() bool{
		func() bool { p = session.Policy{OlderThan: h.Config.Time(config.PruneAfter)}; return p.OlderThan > 0 },
		func() bool { p = session.Policy{MaxBytes: h.Config.Get(config.PruneSize)}; return p.MaxBytes > 0 },
	} {
		if !rule() || ctx.Err() != nil {
			continue
		}
		if n, bytes, err := h.Store.PruneBy(p, now); n > 0 || err != nil {
			log.Info("pruned", "op", "tend", "sessions", n, "bytes", bytes, "older_than", p.OlderThan.String(), "max_bytes", p.MaxBytes, "err", err)
		}
	}
}
