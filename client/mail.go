package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
)

// Send sends a message from a session. Who it is from is the session's; To,
// Text and the rest are m's. A message without an id gets one here, so that it
// is sent again, and not twice, when the daemon dies before it answers.
func (c *Client) Send(ctx context.Context, session string, m conch.SendRequest) (*conch.SentMessage, error) {
	if err := c.from(session, &m); err != nil {
		return nil, err
	}
	var sent conch.SentMessage
	if err := c.post(ctx, "/mail/send", func() any { return m }, &sent); err != nil {
		return nil, err
	}
	return &sent, nil
}

// from makes a session the sender, and checks what can be checked here.
func (c *Client) from(session string, m *conch.SendRequest) (err error) {
	if m.Agent, m.Session, err = c.Resolve(session); err != nil {
		return err
	}
	if len(m.Text) > conch.MaxText {
		return conch.Errorf(conch.TooLarge, "the text has %d bytes, more than the limit of %d (1 MiB); nothing was sent", len(m.Text), conch.MaxText).
			Hint("put it into a file and send its name")
	}
	if strings.ToValidUTF8(m.Text, "") != m.Text { // JSON would change it silently
		return conch.Errorf(conch.InvalidRequest, "the text is not valid UTF-8; nothing was sent").
			Hint("bytes that are not text: encode them, or send a file's name")
	}
	if m.ID == "" {
		m.ID = conch.NewMessageID()
	}
	return nil
}

// post sends what may be sent again.
func (c *Client) post(ctx context.Context, path string, body func() any, v any) error {
	var until time.Time
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		began := time.Now()
		err := c.json(ctx, call{method: http.MethodPost, url: daemonURL(path, nil), body: body(), again: body}, v)
		// A daemon that leaves says so to who waits. The next one takes the
		// same request; a pause, since this one may still answer for a while.
		if !errors.Is(err, conch.NotRunning) || !conch.AsError(err).Retryable || c.o.NoStart {
			return err
		}
		if until.IsZero() || time.Since(began) > time.Second {
			until, pause = time.Now().Add(resumeLimit), 5*time.Millisecond
		} else if time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reply answers a message in a session's inbox and is done with it. Of m, Text
// counts, and optionally ID, Role, Auto and ExpiresMS.
func (c *Client) Reply(ctx context.Context, session, id string, m conch.SendRequest) (*conch.SentMessage, error) {
	if err := conch.CheckMessageID(id); err != nil {
		return nil, err
	}
	if err := c.from(session, &m); err != nil {
		return nil, err
	}
	r := conch.ReplyRequest{Agent: m.Agent, Session: m.Session, Text: m.Text, ID: m.ID, Role: m.Role, ExpiresMS: m.ExpiresMS, Auto: m.Auto}
	var sent conch.SentMessage
	if err := c.post(ctx, "/mail/reply/"+url.PathEscape(id), func() any { return r }, &sent); err != nil {
		return nil, err
	}
	return &sent, nil
}

// Inbox fetches what waits for a session, at most limit messages (0: as many
// as one answer holds, 1000 or 16 MiB of text). They are leased for 120 s: not
// given out again in that time, and then again, marked as repeated, unless Ack or
// Reply was called. What is left waits for the next call.
func (c *Client) Inbox(ctx context.Context, session string, limit int) ([]conch.InboxEntry, error) {
	p, err := c.InboxPage(ctx, session, limit)
	return p.Messages, err
}

// InboxPage is Inbox, and says whether there is more.
func (c *Client) InboxPage(ctx context.Context, session string, limit int) (conch.InboxPage, error) {
	return c.inbox(ctx, session, conch.InboxRequest{Limit: limit})
}

// Responder says what the agent's auto-responder is, did and cost.
func (c *Client) Responder(ctx context.Context) (*conch.ResponderStatus, error) {
	agent, _, err := c.Resolve("")
	if err != nil {
		return nil, err
	}
	var st conch.ResponderStatus
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/responder", url.Values{"agent": {agent}})}, &st); err != nil {
		return nil, err
	}
	return &st, nil
}

// SetResponder switches the agent's auto-responder on or off.
func (c *Client) SetResponder(ctx context.Context, on bool) (*conch.ResponderStatus, error) {
	agent, _, err := c.Resolve("")
	if err != nil {
		return nil, err
	}
	var st conch.ResponderStatus
	body := conch.ResponderRequest{Agent: agent, On: on}
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/responder", nil), body: body}, &st); err != nil {
		return nil, err
	}
	return &st, nil
}

// Peek shows a session's inbox, what is leased included, and leases nothing. It
// shows all of it unless there is a limit.
func (c *Client) Peek(ctx context.Context, session string, limit int) ([]conch.InboxEntry, error) {
	list := []conch.InboxEntry{}
	for r := (conch.InboxRequest{Peek: true, Limit: limit}); ; {
		p, err := c.inbox(ctx, session, r)
		if err != nil {
			return nil, err
		}
		list = append(list, p.Messages...)
		if !p.More || len(p.Messages) == 0 || limit > 0 && len(list) >= limit {
			return list, nil
		}
		if r.After = p.Next; limit > 0 {
			r.Limit = limit - len(list)
		}
	}
}

func (c *Client) inbox(ctx context.Context, session string, r conch.InboxRequest) (p conch.InboxPage, err error) {
	if r.Agent, r.Session, err = c.Resolve(session); err != nil {
		return p, err
	}
	err = c.json(ctx, call{method: http.MethodPost, url: daemonURL("/mail/inbox", nil), body: r}, &p)
	return p, err
}

// Ack says that messages of a session's inbox are done with.
func (c *Client) Ack(ctx context.Context, session string, ids ...string) error {
	agent, label, err := c.Resolve(session)
	if err != nil {
		return err
	}
	return c.post(ctx, "/mail/ack", func() any { return conch.AckRequest{Agent: agent, Session: label, IDs: ids} }, nil)
}

// Ask sends a message and waits for the reply to it from the session that was
// asked; timeout 0 waits for ever. It goes on when the daemon dies or leaves
// meanwhile. A reply that comes later is in the inbox. Without a reply, TimedOut
// says whether one may come yet; if not, Sent has the status and the reason.
func (c *Client) Ask(ctx context.Context, session string, m conch.SendRequest, timeout time.Duration) (*conch.Asked, error) {
	if err := c.from(session, &m); err != nil {
		return nil, err
	}
	left, token := remaining(timeout), conch.NewMessageID()
	var asked conch.Asked
	err := c.post(ctx, "/mail/ask", func() any { return conch.AskRequest{SendRequest: m, TimeoutMS: left(), Token: token} }, &asked)
	if err != nil {
		return nil, err
	}
	return &asked, nil
}

// remaining gives what is left of a time limit, in milliseconds, at least 1; 0
// for none.
func remaining(limit time.Duration) func() int64 {
	if limit <= 0 {
		return func() int64 { return 0 }
	}
	end := time.Now().Add(limit)
	return func() int64 { return max(1, (time.Until(end) + time.Millisecond - 1).Milliseconds()) }
}

// Await gives the next message of a session's inbox, now or when it comes, and
// nil when the time is up (0: none). from and inReplyTo, if not empty, say
// which messages count.
func (c *Client) Await(ctx context.Context, session, from, inReplyTo string, timeout time.Duration) (*conch.InboxEntry, error) {
	r := conch.AwaitRequest{From: from, InReplyTo: inReplyTo, Token: conch.NewMessageID()}
	var err error
	if r.Agent, r.Session, err = c.Resolve(session); err != nil {
		return nil, err
	}
	left := remaining(timeout)
	var e *conch.InboxEntry
	err = c.post(ctx, "/mail/await", func() any { r.TimeoutMS = left(); return r }, &e)
	return e, err
}

// Receipts is all that became of a message that the session's agent sent or got.
func (c *Client) Receipts(ctx context.Context, session, id string) (*conch.Receipts, error) {
	var r conch.Receipts
	if err := c.message(ctx, "receipts", session, id, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Thread is the chain of replies that a message of the session's agent belongs
// to, oldest first.
func (c *Client) Thread(ctx context.Context, session, id string) ([]conch.FoundMessage, error) {
	var list []conch.FoundMessage
	err := c.message(ctx, "thread", session, id, &list)
	return list, err
}

func (c *Client) message(ctx context.Context, what, session, id string, v any) error {
	if err := conch.CheckMessageID(id); err != nil {
		return err
	}
	agent, _, err := c.Resolve(session)
	if err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodGet, url: daemonURL("/mail/"+what+"/"+url.PathEscape(id), url.Values{"agent": {agent}})}, v)
}

// Search finds the agent's own mail that has all words of text, newest first.
func (c *Client) Search(ctx context.Context, text string, limit int) ([]conch.FoundMessage, error) {
	agent, _, err := c.Resolve("")
	if err != nil {
		return nil, err
	}
	list := []conch.FoundMessage{}
	q := url.Values{"agent": {agent}, "text": {text}, "limit": {strconv.Itoa(limit)}}
	err = c.json(ctx, call{method: http.MethodGet, url: daemonURL("/mail/search", q)}, &list)
	return list, err
}

// Policy is what the agent does with mail that names no session.
func (c *Client) Policy(ctx context.Context) (conch.Policy, error) {
	agent, _, err := c.Resolve("")
	if err != nil {
		return "", err
	}
	var p conch.PolicyInfo
	err = c.json(ctx, call{method: http.MethodGet, url: daemonURL("/mail/policy", url.Values{"agent": {agent}})}, &p)
	return p.Policy, err
}

// SetPolicy changes it.
func (c *Client) SetPolicy(ctx context.Context, p conch.Policy) error {
	agent, _, err := c.Resolve("")
	if err != nil {
		return err
	}
	return c.post(ctx, "/mail/policy", func() any { return conch.PolicyInfo{Agent: agent, Policy: p} }, nil)
}

// SetPriority decides which live session is the agent's primary: that of the
// highest priority, then that of the lowest label.
func (c *Client) SetPriority(ctx context.Context, session string, priority int) error {
	agent, label, err := c.Resolve(session)
	if err != nil {
		return err
	}
	return c.post(ctx, "/mail/priority", func() any { return conch.PriorityRequest{Agent: agent, Session: label, Priority: priority} }, nil)
}

// A Presence is a session that this process works as: live until Close, the
// death of the process, or the loss of the connection, which Done tells.
type Presence struct {
	conch.PresenceInfo
	c    *Client
	body *http.Response
	done chan struct{}
}

// Present joins or claims a session. The process in r is this one unless given.
func (c *Client) Present(ctx context.Context, r conch.PresenceRequest) (*Presence, error) {
	if r.Agent == "" {
		var err error
		if r.Agent, _, err = c.Resolve(""); err != nil {
			return nil, err
		}
	}
	if r.PID == 0 {
		self := proc.Self()
		r.PID, r.Start, r.Boot = self.PID, self.Start, proc.BootID()
	}
	if r.Cwd == "" {
		r.Cwd, _ = os.Getwd()
	}
	// The connection lives as long as the presence, not as ctx.
	resp, err := c.do(context.WithoutCancel(ctx), call{method: http.MethodPost, url: daemonURL("/presence", nil), body: r, accept: "text/event-stream"})
	if err != nil {
		return nil, err
	}
	p := &Presence{c: c, body: resp, done: make(chan struct{})}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &p.PresenceInfo); err != nil {
				break
			}
			go func() { // ends with the connection
				defer close(p.done)
				for lines.Scan() {
				}
			}()
			return p, nil
		}
	}
	resp.Body.Close()
	return nil, conch.Errorf(conch.Internal, "the daemon ended the presence before it began").Retry()
}

// Done is closed when the presence is over.
func (p *Presence) Done() <-chan struct{} { return p.done }

// Close ends it.
func (p *Presence) Close() error { return p.body.Body.Close() }

// SetBusy says whether this session is at work.
func (p *Presence) SetBusy(ctx context.Context, busy bool) error {
	return p.c.json(ctx, call{method: http.MethodPost, url: daemonURL("/presence/busy", nil), body: conch.BusyRequest{Agent: p.Agent, Label: p.Label, Holder: p.Holder, Busy: busy}}, nil)
}

// Hook asks what a harness's hook should tell its model.
func (c *Client) Hook(ctx context.Context, r conch.HookRequest) (*conch.HookAnswer, error) {
	if r.Agent == "" {
		var err error
		if r.Agent, _, err = c.Agent(); err != nil {
			return nil, err
		}
	}
	var a conch.HookAnswer
	if err := c.json(ctx, call{method: http.MethodPost, url: daemonURL("/mail/hook", nil), body: r}, &a); err != nil {
		return nil, err
	}
	return &a, nil
}

// MailEvents calls f with everything that happens to the agent's mail after the
// event number after (-1: from now on); with a session, to that session's only.
// It returns when ctx ends, f fails, or the stream does: the last event's Seq
// is where to go on.
func (c *Client) MailEvents(ctx context.Context, agent, label string, after int64, f func(conch.MailEvent) error) error {
	q := url.Values{"agent": {agent}}
	if label != "" {
		q.Set("session", label)
	}
	if after >= 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	k := call{method: http.MethodGet, url: daemonURL("/mail/events", q), accept: "text/event-stream"}
	resp, err := c.do(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	name := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = v
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if name == "error" {
			var b conch.ErrorBody
			if err := json.Unmarshal([]byte(data), &b); err != nil {
				return err
			}
			return b.Err()
		}
		var e conch.MailEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return c.explain(ctx, k, err)
	}
	return conch.Errorf(conch.NotRunning, "the daemon ended the stream").Retry()
}

// MailSnapshot reads all mail of the home as one database file, for a backup. It is
// empty if there is none.
func (c *Client) MailSnapshot(ctx context.Context) (io.ReadCloser, error) {
	return c.open(ctx, call{method: http.MethodGet, url: daemonURL("/mail/snapshot", nil)})
}
