package api

import (
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tty"
)

// serveProcess answers for one process of a closed session.
func serveProcess(w http.ResponseWriter, r *http.Request, name string, a *session.Archive, n uint32) {
	p, err := a.Process(n)
	if err != nil {
		fail(w, err)
		return
	}
	switch name {
	case "process", "sessionProcess":
		writeJSON(w, http.StatusOK, p)
	case "logs", "sessionLogs":
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
	case "wait", "sessionWait":
		var q conch.WaitRequest
		if err := route.Decode(w, r, route.MaxBody, true, &q); err != nil {
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
	case "screen", "sessionScreen":
		s, err := pastScreen(r, a, n)
		if err != nil {
			fail(w, err)
			return
		}
		s.ProcessID, s.Status = p.ProcessID, p.Status
		writeJSON(w, http.StatusOK, s)
	case "cast", "sessionCast":
		next, end, err := a.Frames(n)
		if err != nil {
			fail(w, err)
			return
		}
		defer end()
		w.Header().Set("Content-Type", route.CastType)
		if tty.CastProcess(w, next) != nil {
			panic(http.ErrAbortHandler) // the client must see that the body is not whole
		}
	default: // signal, keys, resize
		fail(w, conch.Errorf(conch.ProcessEnded, "process %s ended with its session", p.ProcessID))
	}
}
