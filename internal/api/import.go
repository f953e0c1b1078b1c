package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// importLog reads its body as it comes: a log may be larger than memory, and
// has no limit but the disk's.
func (s *server) importLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body := &upload{ctx: r.Context(), r: r.Body, ctl: http.NewResponseController(w)}
	// A read that waits does not see the daemon leave.
	stop := context.AfterFunc(r.Context(), func() { body.ctl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	v, err := s.h.Import(r.Context(), q.Get("agent"), q.Get("label"), body)
	var e *conch.Error
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, v)
	case body.err != nil && errors.As(context.Cause(r.Context()), &e):
		fail(w, e)
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		fail(w, conch.Errorf(conch.RequestTimeout, "the log paused for more than %v; nothing was kept", route.BodyTime).
			Hint("import it from a file"))
	case body.err != nil:
		fail(w, conch.Errorf(conch.InvalidRequest, "the log was cut off; nothing was kept"))
	default:
		fail(w, err)
	}
}

// An upload is a body that may take as long as it likes, and pause only so long.
type upload struct {
	ctx context.Context
	r   io.Reader
	ctl *http.ResponseController
	err error // why it ended early
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	u.ctl.SetReadDeadline(time.Now().Add(route.BodyTime))
	if u.err = u.ctx.Err(); u.err != nil { // its deadline may just have been undone
		return 0, u.err
	}
	n, err := u.r.Read(p)
	if err != nil && err != io.EOF {
		u.err = err
	}
	return n, err
}
