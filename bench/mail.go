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
	if err := r.mailRate(ctx, h, text, fsync); err != nil {
		return err
	}
	return r.mailAway(ctx, text, fsync)
}

// mailAway is messages to an agent of another home, through a relay that is the
// first home's daemon: accepted and on disk here, on the relay's disk, and then in the
// inbox and on disk there.
func (r *run) mailAway(ctx context.Context, text string, fsync *subject) error {
	here, there := r.newHome("mail-here"), r.newHome("mail-there")
	for _, h := range []*home{here, there} {
		if _, err := h.c.Start(ctx); err != nil {
			return err
		}
		if _, err := h.c.Peek(ctx, conch.DefaultLabel, 1); err != nil {
			return err
		}
	}
	if _, err := here.c.RelayListen(ctx, "127.0.0.1:0"); err != nil {
		return err
	}
	invite, err := here.c.RelayInvite(ctx, time.Minute)
	if err != nil {
		return err
	}
	if _, err := there.c.RelayJoin(ctx, invite.Invite, ""); err != nil {
		return err
	}
	to, err := befriend(ctx, here, there)
	if err != nil {
		return err
	}
	p, err := there.c.Present(ctx, conch.PresenceRequest{Agent: conch.DefaultAgent, Label: conch.DefaultLabel})
	if err != nil {
		return err
	}
	defer p.Close()
	// Events tell when a message is in the inbox there, and it is on disk then.
	stored := make(chan string, 16)
	listen, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { // ends with stop
		ended <- there.c.MailEvents(listen, conch.DefaultAgent, "", -1, func(e conch.MailEvent) error {
			if e.Type == "mail" && e.Status == conch.ReceiptStored {
				stored <- e.ID
			}
			return nil
		})
	}()
	defer func() { stop(); <-ended }()
	away := timed(pick(r.Quick, 2, 20), func(ctx context.Context) error {
		id := conch.NewMessageID()
		if _, err := here.c.Send(ctx, conch.DefaultLabel, conch.SendRequest{To: to, Text: text, ID: id}); err != nil {
			return err
		}
		for {
			select {
			case got := <-stored:
				if got == id {
					return nil
				}
			case err := <-ended:
				ended <- err
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	sync := &subject{per: pick(r.Quick, 2, 20), once: fsync.once}
	if err := interleave(ctx, pick(r.Quick, 1, 12), nil, sync, away); err != nil {
		return err
	}
	row := latency("mail-away", "message to an agent of another home through the relay, 1 KiB, on disk at both ends", away, fsyncWords, sync, time.Microsecond)
	row.Bar = ratioAtMost(6)
	r.add(row)
	return nil
}

// befriend makes the agents of two homes contacts: both ask, so nobody has to
// accept. It gives where to write to.
func befriend(ctx context.Context, a, b *home) (to string, err error) {
	var who [2]string
	for i, h := range []*home{a, b} {
		w, err := h.c.WhoAmI(ctx, "")
		if err != nil {
			return "", err
		}
		who[i] = w.Address
	}
	deadline := time.Now().Add(30 * time.Second)
	for i, h := range []*home{a, b} {
		for {
			_, err := h.c.AddContact(ctx, "", conch.ContactRequest{Peer: who[1-i], Name: "other"})
			if err == nil {
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				return "", err
			}
			time.Sleep(10 * time.Millisecond) // until the other's keys are at the relay
		}
	}
	for _, h := range []*home{a, b} {
		for {
			list, err := h.c.Contacts(ctx, "")
			if err != nil {
				return "", err
			}
			if len(list) == 1 && list[0].State == conch.ContactAccepted {
				break
			}
			if time.Now().After(deadline) {
				return "", fmt.Errorf("the homes are no contacts after 30 s")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return who[1] + "/" + conch.DefaultLabel, nil
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
