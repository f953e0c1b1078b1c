package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tape"
)

// archived answers for the closed session of a label what can still be asked
// of it. False: nothing was answered.
func (s *server) archived(w http.ResponseWriter, r *http.Request, agent, label, rest string) bool {
	if id, sub, ok := commandPath(rest); ok {
		_, a, n, err := s.h.Command(id)
		if err != nil || a == nil || a.Spec.Agent != agent || a.Spec.Label != label {
			return false
		}
		serveCommand(w, r, a, n, sub)
		return true
	}
	if rest != "history" && rest != "log" {
		return false
	}
	a, err := s.h.Archive(agent, label)
	if err != nil {
		return false
	}
	if rest == "log" {
		w.Header().Set("Content-Type", "application/octet-stream")
		err := a.Log(w)
		if errors.Is(err, conch.OutputGone) { // before anything was written
			fail(w, err)
		} else if err != nil {
			panic(http.ErrAbortHandler) // the client must see that the body is not whole
		}
		return true
	}
	limit, err := number(r, "limit")
	if err != nil {
		fail(w, err)
		return true
	}
	list, err := a.History(int(limit))
	if err != nil {
		fail(w, err)
		return true
	}
	writeJSON(w, http.StatusOK, list)
	return true
}

// commandPath takes "commands/ID" or "commands/ID/SUB" apart.
func commandPath(rest string) (id conch.CommandID, sub string, ok bool) {
	rest, ok = strings.CutPrefix(rest, "commands/")
	if !ok {
		return "", "", false
	}
	first, sub, _ := strings.Cut(rest, "/")
	return conch.CommandID(first), sub, true
}

// command is a request by command id alone.
func (s *server) command(w http.ResponseWriter, r *http.Request) {
	id := conch.CommandID(r.PathValue("id"))
	open, closed, n, err := s.h.Command(id)
	switch {
	case err != nil:
		fail(w, err)
	case closed != nil:
		serveCommand(w, r, closed, n, r.PathValue("rest"))
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

// serveCommand answers for one command of a closed session.
func serveCommand(w http.ResponseWriter, r *http.Request, a *session.Archive, n uint32, sub string) {
	switch sub {
	case "":
		if r.URL.Query().Get("wait") != "1" {
			h, err := a.Command(n)
			if err != nil {
				fail(w, err)
				return
			}
			writeJSON(w, http.StatusOK, h)
			return
		}
		most, err := number(r, "max_output")
		if err != nil {
			fail(w, err)
			return
		}
		res, err := a.Result(n, most)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, res)
	case "output":
		var kind tape.Kind
		switch stream := r.URL.Query().Get("stream"); stream {
		case "", "stdout":
			kind = tape.Stdout
		case "stderr":
			kind = tape.Stderr
		default:
			fail(w, conch.Errorf(conch.InvalidRequest, "stream %q is neither stdout nor stderr", stream))
			return
		}
		out, err := a.Output(n, kind)
		if err != nil {
			fail(w, err)
			return
		}
		defer out.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		if _, err := io.Copy(w, out); err != nil {
			panic(http.ErrAbortHandler) // the client must see that the body is not whole
		}
	default:
		fail(w, conch.Errorf(conch.SessionClosed, "the session of this command is closed").
			Hint("its history, output and log can still be read"))
	}
}

// number reads a query value that is a count; 0 when it is not given.
func number(r *http.Request, key string) (int64, error) {
	v := r.URL.Query().Get(key)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, conch.Errorf(conch.InvalidRequest, "%s=%q is not a count", key, v)
	}
	return n, nil
}
