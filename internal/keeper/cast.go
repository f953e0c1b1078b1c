package keeper

import (
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
	"github.com/conchsh/conch/internal/tty"
)

// getCast gives the recording of a process, as far as it has come.
func (k *Keeper) getCast(w http.ResponseWriter, r *http.Request) {
	e, _, err := k.findProcess(conch.ProcessID(r.PathValue("id")))
	if err != nil {
		sendError(w, err)
		return
	}
	rd, next := k.frames(e, e.To)
	defer rd.Close()
	w.Header().Set("Content-Type", route.CastType)
	k.castDone(tty.CastProcess(w, next))
}

// castSession gives the recording of the session's commands.
func (k *Keeper) castSession(w http.ResponseWriter) {
	rd := k.tape.NewReader(tape.Cursor{})
	defer rd.Close()
	w.Header().Set("Content-Type", route.CastType)
	k.castDone(tty.CastSession(w, rd.Next, k.spec.Agent+"/"+k.spec.Label))
}

func (k *Keeper) castDone(err error) {
	if err != nil {
		k.log.Warn("recording", "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}
