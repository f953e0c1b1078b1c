package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/tape"
)

// frames gives a reader over one command's frames and what closes it. It reads no
// further than to, unless that is zero.
func (k *Keeper) frames(e history.Entry, to tape.Cursor) (rd *tape.Reader, next func() (tape.Frame, error)) {
	rd = k.tape.NewReader(e.From)
	return rd, func() (tape.Frame, error) {
		for {
			if !to.IsZero() && !rd.Cursor().Less(to) {
				return tape.Frame{}, io.EOF
			}
			f, n, err := rd.NextHeader()
			if err != nil {
				return f, err
			}
			if f.Kind == tape.Gap {
				return f, outputGone(conch.NewCommandID(k.spec.ID, e.N))
			}
			if f.Command != e.N {
				continue
			}
			rd.Again(rd.Cursor().Back(n))
			return rd.Next()
		}
	}
}

// getLogs gives the output of a process.
func (k *Keeper) getLogs(w http.ResponseWriter, r *http.Request) {
	q, err := logs.ParseQuery(r.URL.Query(), r.Header.Get("Accept"))
	if err != nil {
		sendError(w, err)
		return
	}
	e, live, err := k.findProcess(conch.ProcessID(r.PathValue("id")))
	if err != nil {
		sendError(w, err)
		return
	}
	ctx, stop := k.present(r)
	defer stop()
	src := logs.Source{}
	to := e.To
	if live != nil && q.Follow {
		to = tape.Cursor{}
	}
	rd, next := k.frames(e, to)
	defer rd.Close()
	src.Next = next
	if live != nil {
		src.Wait = func() error { return k.waitProcess(ctx, live, rd) }
	}
	started, err := q.Answer(w, src, func() (conch.Process, error) { return k.process(e.N) })
	if err == nil && !q.Page() && ctx.Err() == nil {
		err = k.whole(e.N)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if !started {
		sendError(w, err)
		return
	}
	k.log.Warn("logs", "process", e.N, "err", err)
	if q.Frames() {
		b, _ := json.Marshal(conch.AsError(err).Body())
		w.Write(tape.AppendFrame(nil, tape.Frame{Command: e.N, Kind: tape.Note, Data: b}))
		return
	}
	panic(http.ErrAbortHandler) // the client must not take it for whole
}

// whole reports, as an error, whether all that a process wrote could be kept.
func (k *Keeper) whole(n uint32) (err error) {
	k.do(func() {
		if p := k.procs[n]; p != nil {
			err = p.failed
		} else if e := k.index.Get(n); e != nil && e.Exit != nil && e.Exit.Error != "" {
			err = conch.Errorf(conch.StorageFull, "%s", e.Exit.Error)
		}
	})
	return err
}

// waitProcess waits for more output of a process. Its end is on the tape, unless that
// could not be written; then it is the reason.
func (k *Keeper) waitProcess(ctx context.Context, p *process, rd *tape.Reader) error {
	select {
	case <-p.done:
		if p.failed != nil {
			return p.failed
		}
	default:
	}
	err := k.waitTape(ctx, p.command, rd.Cursor())
	if errors.Is(err, context.Canceled) {
		return io.EOF
	}
	return err
}
