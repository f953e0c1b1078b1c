package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

const (
	// replyTimeout is how long an answer is waited for unless asked otherwise.
	replyTimeout = 60 * time.Second
	// inboxLimit is how many messages are fetched unless asked otherwise, and
	// inboxMost the most.
	inboxLimit = 20
	inboxMost  = 100
)

type sendIn struct {
	To       string  `json:"to" jsonschema:"label, agent/label, agent, contact or address"`
	Text     string  `json:"text"`
	ReplyTo  string  `json:"reply_to,omitempty" jsonschema:"id of the message this answers"`
	Role     string  `json:"role,omitempty" jsonschema:"agent (default), or user for your user's words"`
	Auto     bool    `json:"auto,omitempty" jsonschema:"written without a person or a question behind it"`
	ExpiresS float64 `json:"expires_s,omitempty" jsonschema:"default never"`
}

// send sends a message from the caller's own session.
func send(ctx context.Context, c *call, in sendIn) (reply, error) {
	ms, err := millis("expires_s", in.ExpiresS)
	if err != nil {
		return reply{}, err
	}
	own, err := c.mailbox(ctx)
	if err != nil {
		return reply{}, err
	}
	sent, err := c.s.client.Send(ctx, own.name, conch.SendRequest{
		To: in.To, Text: in.Text, InReplyTo: in.ReplyTo, Role: in.Role, Auto: in.Auto, ExpiresMS: ms,
	})
	c.s.stirred()
	if err != nil {
		return reply{}, err
	}
	return reply{sent, fmt.Sprintf("%s · message %s from %s to %s\n", standing(sent.Status), sent.ID, own.name, recipient(sent.To, sent.ToSession))}, nil
}

// standing is where a message stands, in words.
func standing(r conch.Receipt) string {
	switch r {
	case conch.ReceiptQueued:
		return "queued: on its way to another home, or waiting for it to accept you as a contact; it is kept"
	case conch.ReceiptSent:
		return "sent: on the relay, not yet taken by the other home"
	case conch.ReceiptHeld:
		return "held: the session is away and gets it when it is back"
	case conch.ReceiptStored:
		return "stored: in the session's inbox, not yet fetched"
	case conch.ReceiptOffered:
		return "offered: the session was told of it and has not fetched it"
	case conch.ReceiptSeen:
		return "seen: fetched, and not yet done with"
	}
	return string(r)
}

func recipient(to string, session *string) string {
	if session != nil {
		return frame.OneLine(to+"/"+*session, 200)
	}
	return frame.OneLine(to, 200)
}

type askIn struct {
	To       string   `json:"to" jsonschema:"label, agent/label or agent"`
	Text     string   `json:"text"`
	Role     string   `json:"role,omitempty"`
	TimeoutS *float64 `json:"timeout_s,omitempty" jsonschema:"default 60; 0 for none"`
}

// ask sends a message and waits for its answer.
func ask(ctx context.Context, c *call, in askIn) (reply, error) {
	limit, err := waitLimit(in.TimeoutS)
	if err != nil {
		return reply{}, err
	}
	own, err := c.mailbox(ctx)
	if err != nil {
		return reply{}, err
	}
	// Made here, so that a call that is cancelled can say what it sent.
	m := conch.SendRequest{To: in.To, Text: in.Text, Role: in.Role, ID: conch.NewMessageID()}
	// Sent for itself, so that the message behind it need not wait for the answer;
	// asking under its id is then only the waiting.
	if _, err := c.s.client.Send(ctx, own.name, m); err != nil {
		return reply{}, notAsked(ctx, m.ID, err)
	}
	c.ticket.leave()
	p := c.progress(ctx)
	asked, err := c.s.client.Ask(ctx, own.name, m, limit)
	p.close()
	c.s.stirred()
	if err != nil {
		return reply{}, notAsked(ctx, m.ID, err)
	}
	to := recipient(asked.Sent.To, asked.Sent.ToSession)
	if asked.Reply == nil && !asked.TimedOut {
		text := fmt.Sprintf("nobody will answer: message %s to %s is %s", asked.Sent.ID, to, asked.Sent.Status)
		if asked.Sent.Reason != "" {
			text += ": " + frame.OneLine(asked.Sent.Reason, 300)
		}
		return reply{asked, text + "\nnobody read it; the tool sessions shows who is here, and asking again sends a new message\n"}, nil
	}
	if asked.Reply == nil {
		text := fmt.Sprintf("no reply within %v · message %s to %s\n", limit, asked.Sent.ID, to)
		if r, err := c.s.client.Receipts(ctx, own.name, asked.Sent.ID); err == nil {
			text += standing(r.Status) + "\n"
		}
		return reply{asked, text + fmt.Sprintf("await_reply {\"reply_to\":%q} waits on; a late reply is in the inbox\n", asked.Sent.ID)}, nil
	}
	framed(asked.Reply)
	return reply{asked, fmt.Sprintf("reply to message %s to %s:\n\n%s\n%s", asked.Sent.ID, to, asked.Reply.Text, doneHint(1))}, nil
}

// notAsked is why there is no answer.
func notAsked(ctx context.Context, id string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return conch.Errorf(conch.Internal, "the call was cancelled; message %s may have been sent", id).
		Hint(`await_reply {"reply_to":%q} waits for its answer`, id)
}

func waitLimit(s *float64) (time.Duration, error) {
	if s == nil {
		return replyTimeout, nil
	}
	ms, err := millis("timeout_s", *s)
	return time.Duration(ms) * time.Millisecond, err
}

func doneHint(n int) string {
	if n == 1 {
		return "It comes again after 120 s unless you ack it or answer it (send with reply_to).\n"
	}
	return "They come again after 120 s unless you ack them or answer them (send with reply_to).\n"
}

type inboxIn struct {
	Peek  bool `json:"peek,omitempty" jsonschema:"show all, also those fetched and not done with, and lease nothing"`
	Limit int  `json:"limit,omitempty" jsonschema:"default 20"`
}

// fetched is the result of inbox.
type fetched struct {
	You      string             `json:"you"`
	Messages []conch.InboxEntry `json:"messages"`
}

// inbox fetches the caller's messages, or shows them.
func inbox(ctx context.Context, c *call, in inboxIn) (reply, error) {
	if in.Limit < 0 || in.Limit > inboxMost {
		return reply{}, conch.Errorf(conch.InvalidRequest, "limit is 1 to %d messages", inboxMost).Hint("what is left is for the next call")
	}
	if in.Limit == 0 {
		in.Limit = inboxLimit
	}
	own, err := c.mailbox(ctx)
	if err != nil {
		return reply{}, err
	}
	get := c.s.client.Inbox
	if in.Peek {
		get = c.s.client.Peek
	}
	list, err := get(ctx, own.name, in.Limit)
	c.s.stirred()
	if err != nil {
		return reply{}, err
	}
	text := inboxText(own.name, list)
	if len(list) > 0 && !in.Peek {
		text += "\n" + doneHint(len(list))
	}
	return reply{fetched{own.name, list}, text}, nil
}

// inboxText shows messages, and leaves each entry with its text in the frame: some
// programs give their model the structured result in place of this.
func inboxText(own string, list []conch.InboxEntry) string {
	if len(list) == 0 {
		return fmt.Sprintf("no messages for %s\n", own)
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].Text
	}
	f := frame.New(texts...)
	var b strings.Builder
	fmt.Fprintf(&b, "%s for %s\n", messages(len(list)), own)
	for i := range list {
		list[i].Text = f.Message(&list[i])
		b.WriteString("\n" + list[i].Text)
	}
	return b.String()
}

// framed puts the text of one message into its frame.
func framed(e *conch.InboxEntry) { e.Text = frame.New(e.Text).Message(e) }

// showInbox is the resource: nothing is leased by reading it.
func (s *Server) showInbox(ctx context.Context) (string, error) {
	own, err := (&call{s: s}).own(ctx)
	if err != nil {
		return "", err
	}
	list, err := s.client.Peek(ctx, own.name, inboxLimit)
	if err != nil {
		return "", err
	}
	return inboxText(own.name, list), nil
}

type awaitIn struct {
	ReplyTo  string   `json:"reply_to,omitempty" jsonschema:"id of a message you sent; default any message"`
	From     string   `json:"from,omitempty" jsonschema:"only from this label, agent/label or agent"`
	TimeoutS *float64 `json:"timeout_s,omitempty" jsonschema:"default 60; 0 for none"`
}

// awaited is the result of await_reply.
type awaited struct {
	Message  *conch.InboxEntry `json:"message"`
	TimedOut bool              `json:"timed_out"`
}

// awaitReply gives the next message, now or when it comes.
func awaitReply(ctx context.Context, c *call, in awaitIn) (reply, error) {
	limit, err := waitLimit(in.TimeoutS)
	if err != nil {
		return reply{}, err
	}
	own, err := c.mailbox(ctx)
	if err != nil {
		return reply{}, err
	}
	c.ticket.leave()
	p := c.progress(ctx)
	e, err := c.s.client.Await(ctx, own.name, in.From, in.ReplyTo, limit)
	p.close()
	c.s.stirred()
	if err != nil {
		return reply{}, err
	}
	if e == nil {
		text := fmt.Sprintf("no message within %v\n", limit)
		if in.ReplyTo != "" {
			if r, err := c.s.client.Receipts(ctx, own.name, in.ReplyTo); err == nil {
				text += fmt.Sprintf("message %s is %s\n", in.ReplyTo, standing(r.Status))
			}
		}
		return reply{awaited{nil, true}, text}, nil
	}
	framed(e)
	return reply{awaited{e, false}, e.Text + "\n" + doneHint(1)}, nil
}

type ackIn struct {
	IDs []string `json:"ids"`
}

// acked is the result of ack.
type acked struct {
	Acked []string `json:"acked"`
}

// ack says that messages are done with: all, or with an error none.
func ack(ctx context.Context, c *call, in ackIn) (reply, error) {
	own, err := c.mailbox(ctx)
	if err != nil {
		return reply{}, err
	}
	if len(in.IDs) == 0 {
		return reply{}, conch.Errorf(conch.InvalidRequest, "ids is empty").Hint("ids are those of inbox")
	}
	err = c.s.client.Ack(ctx, own.name, in.IDs...)
	c.s.stirred()
	if err != nil {
		return reply{}, err
	}
	return reply{acked{in.IDs}, fmt.Sprintf("done with %s\n", messages(len(in.IDs)))}, nil
}

// stirred says that the caller did something to its inbox.
func (s *Server) stirred() {
	if me := s.current(); me != nil {
		me.spoil()
	}
}
