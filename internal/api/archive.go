package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/events"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tape"
)

// serveArchive answers for a closed session what can still be asked of it.
func serveArchive(w http.ResponseWriter, r *http.Request, rt route.Route, a *session.Archive) {
	var n uint32
	if id := r.PathValue("id"); id != "" {
		_, n, _ = conch.CommandID(id).Split() // it was found by it
	}
	v, err := any(nil), error(nil)
	switch rt.Name {
	case "history":
		v, err = a.History(int(route.Int(r, "limit")))
	case "log":
		write := a.Log
		w.Header().Set("Content-Type", route.BytesType)
		if r.URL.Query().Get("format") == "asciicast" {
			write = a.Cast
			w.Header().Set("Content-Type", route.CastType)
		}
		if err = write(w); err != nil && !errors.Is(err, conch.OutputGone) { // which comes before anything was written
			panic(http.ErrAbortHandler) // the client must see that the body is not whole
		}
		if err == nil {
			return
		}
	case "command", "sessionCommand":
		if route.Bool(r, "wait") {
			v, err = a.Result(n, route.Int(r, "max_output"))
		} else {
			v, err = a.Command(n)
		}
	case "output", "sessionOutput":
		serveOutput(w, r, a, n)
		return
	case "events", "commandEvents", "sessionCommandEvents":
		serveEvents(w, r, a, n)
		return
	case "sessionProcesses":
		v, err = a.Processes()
	case "process", "sessionProcess", "logs", "sessionLogs", "wait", "sessionWait", "signal", "sessionSignal",
		"screen", "sessionScreen", "cast", "sessionCast", "keys", "sessionKeys", "resize", "sessionResize":
		serveProcess(w, r, rt.Name, a, n)
		return
	default:
		err = conch.Errorf(conch.SessionClosed, "the session of this command is closed").
			Hint("its history, output, events and log can still be read")
	}
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

func serveOutput(w http.ResponseWriter, r *http.Request, a *session.Archive, n uint32) {
	kind := tape.Stdout
	if r.URL.Query().Get("stream") == "stderr" {
		kind = tape.Stderr
	}
	out, err := a.Output(n, kind)
	if err != nil {
		fail(w, err)
		return
	}
	defer out.Close()
	w.Header().Set("Content-Type", route.BytesType)
	if _, err := io.Copy(w, out); err != nil {
		panic(http.ErrAbortHandler) // the client must see that the body is not whole
	}
}

// serveEvents tells the tape of a closed session, or one command of it, as its
// keeper would have.
func serveEvents(w http.ResponseWriter, r *http.Request, a *session.Archive, n uint32) {
	after, _, err := events.After(r)
	if err != nil {
		fail(w, err)
		return
	}
	t := &telling{w: w, raw: strings.Contains(r.Header.Get("Accept"), route.TapeType)}
	t.teller = events.Teller{Session: a.Spec.Label, ID: a.Spec.ID, All: n == 0, Started: a.Starts()}
	last, err := a.Replay(n, after, t.frame)
	var gone *session.GoneError
	switch {
	case errors.As(err, &gone):
		t.fail(events.Lost(gone.Oldest), gone.Oldest-1)
	case err != nil && !t.begun:
		fail(w, err)
	case err != nil:
		t.fail(err, 0)
	case after > last:
		fail(w, events.Ahead(after, last))
	case !t.begun:
		w.WriteHeader(http.StatusNoContent)
	default:
		t.flush()
	}
}

// A telling is a closed tape on its way to a client, as events or as frames.
type telling struct {
	w      http.ResponseWriter
	raw    bool
	begun  bool
	teller events.Teller
	b      bytes.Buffer
}

func (t *telling) begin() {
	if t.begun {
		return
	}
	t.begun = true
	h := t.w.Header()
	h.Set("Conch-Session-Id", t.teller.ID)
	if t.raw {
		h.Set("Content-Type", route.TapeType)
		return
	}
	h.Set("Content-Type", route.EventType)
	h.Set("Cache-Control", "no-store")
	events.Begin(&t.b)
}

func (t *telling) frame(f tape.Frame) error {
	t.begin()
	if t.raw {
		t.b.Write(tape.AppendFrame(nil, f))
	} else {
		t.teller.Frame(&t.b, f)
	}
	if t.b.Len() < 64<<10 {
		return nil
	}
	return t.flush()
}

func (t *telling) flush() error {
	_, err := t.w.Write(t.b.Bytes())
	t.b.Reset()
	return err
}

func (t *telling) fail(err error, after uint64) {
	t.begin()
	if t.raw {
		b, _ := json.Marshal(conch.AsError(err).Body())
		t.b.Write(tape.AppendFrame(nil, tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Note, Data: b}))
	} else {
		events.Failed(&t.b, err, after)
	}
	t.flush()
}
