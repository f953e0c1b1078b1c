package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/gate"
	"github.com/conchsh/conch/internal/route"
)

type peerKey struct{}

// WithPeer notes which process is at the other end of a connection.
func WithPeer(ctx context.Context, pid int) context.Context {
	return context.WithValue(ctx, peerKey{}, pid)
}

// person refuses a request that is for a person to make, if no person makes it.
// Who comes by the page or with a token is one if one made the login or the token:
// anybody could make them.
func (s *server) person(r *http.Request) error {
	if grant, ok := gate.From(r); ok {
		switch {
		case grant.Decides:
			return nil
		case grant.Via == conch.ViaPage:
			return conch.Errorf(conch.NotHuman, "this is for a person to decide, and no person was seen to make this login").
				Hint("run conch ui in a terminal of your own, and open the address it gives")
		}
		return conch.Errorf(conch.NotHuman, "this is for a person to decide, and no person was seen to make the token %s for it", grant.Name).
			Hint("do it in a terminal, on the page (conch ui in a terminal), or with a token of scope admin that was made in a terminal")
	}
	pid, _ := r.Context().Value(peerKey{}).(int)
	return s.h.Person(pid)
}

// outside is local for what is refused to processes in sessions of conch's.
func (s *server) outside(r *http.Request, v any) error {
	if err := local(r, v); err != nil {
		return err
	}
	pid, _ := r.Context().Value(peerKey{}).(int)
	return s.h.Outside(pid)
}

func (s *server) contacts(r *http.Request) (any, error) {
	q := conch.ContactRequest{Agent: r.URL.Query().Get("agent")}
	if err := s.h.FillContact(&q); err != nil {
		return nil, err
	}
	return s.h.Post.Contacts(r.Context(), q.Agent)
}

// contact makes a handler of what is done to one.
func (s *server) contact(f func(*http.Request, conch.ContactRequest) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var q conch.ContactRequest
		if err := decodeMail(r, &q); err != nil {
			return nil, err
		}
		if err := s.h.FillContact(&q); err != nil {
			return nil, err
		}
		return f(r, q)
	}
}

func (s *server) addContact(r *http.Request, q conch.ContactRequest) (any, error) {
	return s.h.AddContact(r.Context(), q)
}

func (s *server) acceptContact(r *http.Request, q conch.ContactRequest) (any, error) {
	if err := s.person(r); err != nil {
		return nil, err
	}
	return s.h.Post.AcceptContact(r.Context(), q)
}

func (s *server) blockContact(r *http.Request, q conch.ContactRequest) (any, error) {
	return s.h.Post.BlockContact(r.Context(), q)
}

func (s *server) verifyContact(r *http.Request, q conch.ContactRequest) (any, error) {
	if q.Confirm {
		if err := s.person(r); err != nil {
			return nil, err
		}
	}
	return s.h.Post.VerifyContact(r.Context(), q)
}

func (s *server) resetContact(r *http.Request, q conch.ContactRequest) (any, error) {
	return s.h.Post.ResetContact(r.Context(), q)
}

func (s *server) contactAuthority(r *http.Request, q conch.ContactRequest) (any, error) {
	return s.h.Post.SetAuthority(r.Context(), q, func() error { return s.person(r) })
}

func (s *server) quarantine(r *http.Request) (any, error) {
	q := conch.ContactRequest{Agent: r.URL.Query().Get("agent")}
	if err := s.h.FillContact(&q); err != nil {
		return nil, err
	}
	return s.h.Post.Quarantine(r.Context(), q.Agent)
}

func (s *server) clearQuarantine(r *http.Request) (any, error) {
	var q conch.ContactRequest
	if err := decodeMail(r, &q); err != nil {
		return nil, err
	}
	if err := s.h.FillContact(&q); err != nil {
		return nil, err
	}
	return conch.Acked{OK: true}, s.h.Post.ClearQuarantine(r.Context(), q.Agent)
}

// upload keeps a file for a message that is about to be sent, as it comes.
func (s *server) uploadFile(w http.ResponseWriter, r *http.Request) {
	body := &upload{ctx: r.Context(), r: r.Body, ctl: http.NewResponseController(w)}
	stop := context.AfterFunc(r.Context(), func() { body.ctl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	a, err := s.h.Mail.Upload(r.Context(), r.URL.Query().Get("name"), body)
	var e *conch.Error
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, a)
	case body.err != nil && errors.As(context.Cause(r.Context()), &e):
		fail(w, e)
	case body.err != nil:
		fail(w, conch.Errorf(conch.InvalidRequest, "the file was cut off; nothing was kept"))
	default:
		fail(w, err)
	}
}

// attachment sends a file of a message.
func (s *server) attachment(w http.ResponseWriter, r *http.Request) {
	agent, err := s.agent(r)
	if err != nil {
		fail(w, err)
		return
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		fail(w, conch.Errorf(conch.InvalidRequest, "%.40q is not the number of an attachment", r.PathValue("n")))
		return
	}
	a, f, err := s.h.Attachment(r.Context(), agent, r.PathValue("message"), n)
	if err != nil {
		fail(w, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", route.BytesType)
	w.Header().Set("Content-Length", strconv.FormatInt(a.Size, 10))
	if _, err := io.Copy(w, f); err != nil {
		panic(http.ErrAbortHandler) // the client must see that the body is not whole
	}
}
