package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/session"
)

// process is a request by process id alone.
func (s *server) process(w http.ResponseWriter, r *http.Request) {
	id := conch.ProcessID(r.PathValue("id"))
	open, closed, n, err := s.h.Command(id)
	switch {
	case errors.Is(err, conch.CommandNotFound):
		fail(w, conch.Errorf(conch.ProcessNotFound, "no process %s", id).Hint("conch ps lists them"))
	case err != nil:
		fail(w, err)
	case closed != nil:
		serveProcess(w, r, closed, n)
	default:
		keeper := func(ctx context.Context) (*session.Session, error) {
			_, err := open.Keeper(ctx)
			return open, err
		}
		sess, err := keeper(r.Context())
		if err != nil {
			fail(w, err)
			return
		}
		s.handover(w, r, sess, keeper)
	}
}

// serveProcess answers for one process of a closed session.
func serveProcess(w http.ResponseWriter, r *http.Request, a *session.Archive, n uint32) {
	p, err := a.Process(n)
	if err != nil {
		fail(w, err)
		return
	}
	switch rest := r.PathValue("rest"); {
	case rest == "" && r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, p)
	case rest == "logs" && r.Method == http.MethodGet:
		q, err := logs.ParseQuery(r.URL.Query(), r.Header.Get("Accept"))
		if err != nil {
			fail(w, err)
			return
		}
		next, end, err := a.Frames(n)
		if err != nil {
			fail(w, err)
			return
		}
		defer end()
		started, err := q.Answer(w, logs.Source{Next: next}, func() (conch.Process, error) { return p, nil })
		if err != nil && !started {
			fail(w, err)
		} else if err != nil {
			panic(http.ErrAbortHandler) // the client must see that the body is not whole
		}
	case rest == "wait" && r.Method == http.MethodPost:
		var q conch.WaitRequest
		if err := decode(r, &q); err != nil {
			fail(w, err)
			return
		}
		m, err := logs.CheckWait(&q)
		if err != nil {
			fail(w, err)
			return
		}
		next, end, err := a.Frames(n)
		if err != nil {
			fail(w, err)
			return
		}
		defer end()
		res, err := logs.Past(q, m, next)
		if err != nil {
			fail(w, err)
			return
		}
		res.Process = p
		writeJSON(w, http.StatusOK, res)
	case rest == "signal" && r.Method == http.MethodPost:
		fail(w, conch.Errorf(conch.ProcessEnded, "process %s ended with its session", p.ProcessID))
	default:
		fail(w, conch.Errorf(conch.SessionClosed, "the session of this process is closed").
			Hint("what is known of it and its logs can still be read"))
	}
}
