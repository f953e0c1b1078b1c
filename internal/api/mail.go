package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/route"
)

// decodeMail is decode for a body that may hold a message.
func decodeMail(r *http.Request, v any) error { return route.Decode(nil, r, route.MaxMail, false, v) }

// take reads a session's request, of which agent and session are fields. One that
// names neither means the default ones.
func (s *server) take(r *http.Request, q any, agent, session *string) error {
	if err := decodeMail(r, q); err != nil {
		return err
	}
	if *session == "" {
		*session = conch.DefaultLabel
	}
	return s.h.FillAgent(agent)
}

// agent is the one a query names, or the default.
func (s *server) agent(r *http.Request) (string, error) {
	name := r.URL.Query().Get("agent")
	return name, s.h.FillAgent(&name)
}

func (s *server) send(r *http.Request) (any, error) {
	var q conch.SendRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	if err := s.h.NeedSender(q.Agent); err != nil {
		return nil, err
	}
	return s.h.Mail.Send(r.Context(), q)
}

func (s *server) inbox(r *http.Request) (any, error) {
	var q conch.InboxRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	if q.Peek {
		return s.h.Mail.Peek(r.Context(), q.Agent, q.Session, q.After, q.Limit)
	}
	if q.After != 0 {
		return nil, conch.Errorf(conch.InvalidRequest, "after is given without peek").Hint("what is fetched is leased, so that the next call gives what follows")
	}
	return s.h.Mail.Fetch(r.Context(), q.Agent, q.Session, q.Limit)
}

func (s *server) ack(r *http.Request) (any, error) {
	var q conch.AckRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	return conch.Acked{OK: true}, s.h.Mail.Ack(r.Context(), q.Agent, q.Session, q.IDs)
}

func (s *server) reply(r *http.Request) (any, error) {
	var q conch.ReplyRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	if err := s.h.NeedSender(q.Agent); err != nil {
		return nil, err
	}
	return s.h.Mail.Reply(r.Context(), r.PathValue("message"), conch.SendRequest{
		Agent: q.Agent, Session: q.Session, Text: q.Text, ID: q.ID, Role: q.Role, ExpiresMS: q.ExpiresMS, Auto: q.Auto,
	})
}

func (s *server) ask(r *http.Request) (any, error) {
	var q conch.AskRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	if err := s.h.NeedSender(q.Agent); err != nil {
		return nil, err
	}
	return s.h.Mail.Ask(r.Context(), q)
}

func (s *server) await(r *http.Request) (any, error) {
	var q conch.AwaitRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	return s.h.Mail.Await(r.Context(), q)
}

func (s *server) receipts(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	return s.h.Mail.Receipts(r.Context(), agent, r.PathValue("message"))
}

func (s *server) thread(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	return s.h.Mail.Thread(r.Context(), agent, r.PathValue("message"))
}

// mailSnapshot sends the database as it stands, from a copy that is gone afterwards.
func (s *server) mailSnapshot(w http.ResponseWriter, r *http.Request) {
	f, err := s.h.MailSnapshot(r.Context())
	if err != nil {
		fail(w, because(r, err))
		return
	}
	w.Header().Set("Content-Type", route.BytesType)
	if f == nil {
		return
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		panic(http.ErrAbortHandler) // the client must see that the body is not whole
	}
}

func (s *server) search(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	return s.h.Mail.Search(r.Context(), agent, r.URL.Query().Get("text"), int(route.Int(r, "limit")))
}

func (s *server) messages(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	return s.h.Mail.Recent(r.Context(), agent, r.URL.Query().Get("before"), int(route.Int(r, "limit")))
}

func (s *server) responder(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	return s.h.Responder(r.Context(), agent)
}

func (s *server) setResponder(r *http.Request) (any, error) {
	var q conch.ResponderRequest
	if err := decodeMail(r, &q); err != nil {
		return nil, err
	}
	if err := s.h.FillAgent(&q.Agent); err != nil {
		return nil, err
	}
	return s.h.SetResponder(r.Context(), q)
}

func (s *server) policy(r *http.Request) (any, error) {
	agent, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	p, err := s.h.Mail.Policy(r.Context(), agent)
	return conch.PolicyInfo{Agent: agent, Policy: p}, err
}

func (s *server) setPolicy(r *http.Request) (any, error) {
	var q conch.PolicyInfo
	if err := decodeMail(r, &q); err != nil {
		return nil, err
	}
	if err := s.h.FillAgent(&q.Agent); err != nil {
		return nil, err
	}
	return q, s.h.Mail.SetPolicy(r.Context(), q.Agent, q.Policy)
}

func (s *server) setPriority(r *http.Request) (any, error) {
	var q conch.PriorityRequest
	if err := s.take(r, &q, &q.Agent, &q.Session); err != nil {
		return nil, err
	}
	return q, s.h.Mail.SetPriority(r.Context(), q.Agent, q.Session, q.Priority)
}

func (s *server) hook(r *http.Request) (any, error) {
	var q conch.HookRequest
	if err := decodeMail(r, &q); err != nil {
		return nil, err
	}
	if err := s.h.FillAgent(&q.Agent); err != nil {
		return nil, err
	}
	return s.h.Mail.Hook(r.Context(), q)
}

func (s *server) busy(r *http.Request) (any, error) {
	var q conch.BusyRequest
	if err := decodeMail(r, &q); err != nil {
		return nil, err
	}
	return q, s.h.Mail.SetBusy(q.Agent, q.Label, q.Holder, q.Busy)
}

// A stream writes server-sent events. Nothing is sent before the first, so
// that an error until then is an ordinary answer.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	began bool
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, rc: http.NewResponseController(w)}
}

func (s *stream) write(text string) error {
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-store")
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}

// event sends one; a seq of 0 has no id.
func (s *stream) event(name string, seq int64, v any) error {
	id := ""
	if seq > 0 {
		id = strconv.FormatInt(seq, 10)
	}
	return s.named(name, id, v)
}

func (s *stream) named(name, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, name, b))
}

// beat is a comment that shows both ends that the other lives.
func (s *stream) beat() error { return s.write(":\n\n") }

// end says why a stream ends, unless its reader is gone.
func (s *stream) end(r *http.Request, err error) {
	switch {
	case err == nil || r.Context().Err() != nil:
	case s.began:
		s.event("error", 0, conch.AsError(err).Body())
	default:
		fail(s.w, err)
	}
}

// mailEvents streams what happens to an agent's mail, from Last-Event-ID or
// ?after= on if given.
func (s *server) mailEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	after := int64(-1)
	last := r.Header.Get("Last-Event-ID")
	if v := q.Get("after"); v != "" {
		last = v
	}
	if last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			fail(w, conch.Errorf(conch.InvalidRequest, "%.40q is not the number of an event", last))
			return
		}
		after = n
	}
	agent, err := s.agent(r)
	if err != nil {
		fail(w, err)
		return
	}
	st := newStream(w)
	err = s.h.Mail.Events(r.Context(), agent, q.Get("session"), after,
		func(e conch.MailEvent) error { return st.event(e.Type, e.Seq, e) }, st.beat)
	st.end(r, err)
}

// presence lasts as long as its request: a connection that drops ends it.
func (s *server) presence(w http.ResponseWriter, r *http.Request) {
	var q conch.PresenceRequest
	if err := decodeMail(r, &q); err != nil {
		fail(w, err)
		return
	}
	if err := s.h.FillAgent(&q.Agent); err != nil {
		fail(w, err)
		return
	}
	if _, far := gate.From(r); far || q.PID == os.Getpid() {
		// A process says who holds a session only where it is the holder's own: not on
		// another machine, and not here, where all are who use the tools over HTTP.
		q.PID, q.Start, q.Boot = 0, 0, ""
	}
	p, err := s.h.Mail.Present(r.Context(), q)
	if err != nil {
		fail(w, err)
		return
	}
	defer p.End()
	st := newStream(w)
	if st.event("presence", 0, p.PresenceInfo) != nil {
		return
	}
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			if st.beat() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-p.Gone():
			st.end(r, conch.Errorf(conch.SessionClosed, "the process that held %s/%s is gone", p.Agent, p.Label))
			return
		case <-s.h.Mail.Leaving():
			st.end(r, conch.Errorf(conch.NotRunning, "the daemon is leaving").Retry())
			return
		}
	}
}
