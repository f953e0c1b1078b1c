package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conchsh/conch"
)

const fsyncWords = "4 KiB appended and fsync"

// mail is messages between sessions of one agent. What they cost is the disk's
// fsync, so that is the baseline, on the same disk.
func (r *run) mail(ctx context.Context) error {
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	for _, session := range []string{"mail-a", "mail-b"} {
		if err := h.exec(ctx, h.c, session, "true", ""); err != nil {
			return err
		}
		defer h.c.Close(ctx, session)
	}
	f, err := os.Create(filepath.Join(r.dir, "fsync"))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	per := pick(r.Quick, 2, 20)
	fsync := timed(per, func(context.Context) error {
		if _, err := f.Write(block); err != nil {
			return err
		}
		return f.Sync()
	})
	text := string(make([]byte, 1024))
	// Somebody is there to receive, as in use: routing then asks no keeper.
	p, err := h.c.Present(ctx, conch.PresenceRequest{Agent: conch.DefaultAgent, Label: "mail-b"})
	if err != nil {
		return err
	}
	defer p.Close()
	send := timed(per, func(ctx context.Context) error {
		_, err := h.c.Send(ctx, "mail-a", conch.SendRequest{To: "mail-b", Text: text})
		return err
	})
	// read is until a reader that waits has the message, and with it the lease.
	reader := h.client()
	defer reader.CloseIdle()
	read := timed(per, func(ctx context.Context) error {
		id := conch.NewMessageID()
		got := make(chan error, 1)
		go func() {
			_, err := reader.Await(ctx, "mail-b", "", "about-"+id, time.Minute)
			got <- err
		}()
		if _, err := h.c.Send(ctx, "mail-a", conch.SendRequest{To: "mail-b", Text: text, InReplyTo: "about-" + id}); err != nil {
			return err
		}
		return <-got
	})
	if err := interleave(ctx, pick(r.Quick, 1, 12), nil, fsync, send, read); err != nil {
		return err
	}
	row := latency("mail-send", "message to a session of the same agent, 1 KiB, in its inbox", send, fsyncWords, fsync, time.Microsecond)
	row.Bar = ratioAtMost(2)
	r.add(row)
	r.add(latency("mail-read", "the same, until a waiting reader has it, leased", read, fsyncWords, fsync, time.Microsecond))
	return r.mailRate(ctx, h, text, fsync)
}

// mailRate is messages a second of many senders at once.
func (r *run) mailRate(ctx context.Context, h *home, text string, fsync *subject) error {
	const senders = 16
	total := int64(pick(r.Quick, 64, 8000))
	var next, got atomic.Int64
	errs := make([]error, senders)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range senders {
		wg.Go(func() {
			c := h.client()
			defer c.CloseIdle()
			for next.Add(1) <= total {
				if _, err := c.Send(ctx, fmt.Sprint("mail-s", i), conch.SendRequest{To: "mail-b", Text: text}); err != nil {
					errs[i] = err
					return
				}
				got.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	done := got.Load()
	base := float64(time.Second) / quantile(fsync.times, 0.5, 1)
	r.add(Row{
		Name: "mail-rate", What: "messages of 16 senders at once", Value: float64(done) / took.Seconds(), Unit: "/s", Samples: int(done),
		Against: fsyncWords + ", a second", Baseline: &base, BaselineSamples: len(fsync.times), Got: &done, Of: &total,
	})
	return nil
}
