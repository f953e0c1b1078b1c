package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

const (
	// countLimit is how far waiting messages are counted.
	countLimit = 100
	// countTime is what a result may wait for that count.
	countTime = 2 * time.Second
	// mutePause is how often mail that cannot be used is tried again.
	mutePause = 5 * time.Second
)

// listen hears of the caller's mail, which the daemon records as offered, and passes
// it on, until the claim ends. A daemon that has gone is looked for and not started:
// one that was told to leave stays away until a tool needs it.
func (s *Server) listen(ctx context.Context, me *self) {
	for {
		pause := lookAgain
		if me.mute() != "" {
			// What keeps mail from being used may be over, and then the claim
			// is recorded.
			s.again(ctx, s.quiet, me)
			pause = mutePause
		}
		s.quiet.MailEvents(ctx, me.Agent, me.Label, me.heard(), func(e conch.MailEvent) error {
			if me.hear(e) {
				s.ring(ctx, me, e)
			}
			return nil
		}) // its end, whatever the reason, is the daemon's or ours
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			now, err := s.own(ctx, s.quiet, me.Harness)
			if err == nil && now == me {
				break
			}
			if err == nil {
				return // another label, with a listener of its own
			}
		}
	}
}

func (m *self) heard() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seq
}

// hear notes an event, and says whether it is new mail.
func (m *self) hear(e conch.MailEvent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq = e.Seq
	m.mail.stale = true
	return e.Type == "mail"
}

// ring tells the client of new mail. It is a doorbell: who wrote, and not what, which
// is fetched. Claude Code takes it as a channel's event, if it is allowed to; who has
// subscribed to the inbox gets the protocol's notice.
func (s *Server) ring(ctx context.Context, me *self, e conch.MailEvent) {
	s.sdk.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: inboxURI})
	s.mu.Lock()
	greeted := s.greeted
	s.mu.Unlock()
	if !greeted || me.Harness != "claude" || s.wire == nil {
		return
	}
	from := e.From
	if e.FromSession != "" {
		from += "/" + e.FromSession
	}
	meta := map[string]string{"message_id": e.ID, "from": from, "to": me.name()}
	what := "a message"
	if e.InReplyTo != "" {
		what, meta["in_reply_to"] = "a reply", e.InReplyTo
	}
	// A write that fails shows as the end of the input as well.
	s.wire.notify("notifications/claude/channel", map[string]any{
		"content": fmt.Sprintf("%s from %s waits (%d bytes): the conch tool inbox shows it", what, frame.OneLine(from, 120), e.Bytes),
		"meta":    meta,
	})
}

// waiting is what is known of an inbox.
type waiting struct {
	stale bool
	n     int       // not leased
	until time.Time // when a lease ends, and the number grows
}

// waitingLine is added to results: "2 messages waiting: inbox". The inbox is only
// looked at when something happened to it.
func (s *Server) waitingLine(ctx context.Context) string {
	me := s.current()
	if me == nil || !s.may("mail") {
		return ""
	}
	if why := me.mute(); why != "" {
		return noMail(why)
	}
	me.mu.Lock()
	w := me.mail
	me.mail.stale = false // what happens from here on is seen the next time
	me.mu.Unlock()
	if w.stale || !w.until.IsZero() && time.Now().After(w.until) {
		ctx, cancel := context.WithTimeout(ctx, countTime)
		defer cancel()
		list, err := s.quiet.Peek(ctx, me.name(), countLimit)
		if err != nil {
			me.spoil()
			switch e := conch.AsError(err); e.Kind {
			case conch.StorageFull, conch.StoreDamaged, conch.HomeUnusable, conch.VersionMismatch:
				return noMail(e.Message)
			}
			return "" // no daemon, or one that is slow: the next result says it
		}
		w = waiting{}
		for _, m := range list {
			switch {
			case m.LeasedUntil == nil:
				w.n++
			case w.until.IsZero() || m.LeasedUntil.Before(w.until):
				w.until = *m.LeasedUntil
			}
		}
		me.mu.Lock()
		me.mail.n, me.mail.until = w.n, w.until
		me.mu.Unlock()
	}
	switch {
	case w.n == 0:
		return ""
	case w.n >= countLimit:
		return fmt.Sprintf("[conch: %d messages or more waiting: inbox]\n", countLimit)
	}
	return fmt.Sprintf("[conch: %s waiting: inbox]\n", messages(w.n))
}

// noMail is the line of a result where mail cannot be used. The shell can.
func noMail(why string) string {
	return fmt.Sprintf("[conch: shells work, mail does not: %s]\n", frame.OneLine(why, 200))
}

// spoil says that the inbox is not as it was.
func (m *self) spoil() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail.stale = true
}

func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
