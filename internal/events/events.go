// Package events tells a tape as server-sent events. Keepers do so for sessions
// that live and the daemon for closed ones, in the same words.
//
// An event's id is its frame's sequence number, so that a reader who was cut off
// goes on where it was. A Teller is for one stream and one goroutine.
package events

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

// A Teller turns frames into events.
type Teller struct {
	Session string // the label
	ID      string // the session's, of which command ids are made
	// All is set for a stream of all commands: each event then names its own.
	All bool
	// Started gives the time of a command's start, in ns, where its frame is
	// not in the stream; 0 when nobody knows.
	Started func(n uint32) int64

	n     uint32 // whose start is start
	start int64
}

// Begin is what goes before the first event: how soon to come back after a cut.
func Begin(b *bytes.Buffer) { b.WriteString("retry: 1000\n\n") }

// Beat is a word that says nothing but that the teller lives.
func Beat(b *bytes.Buffer) { b.WriteString(": still here\n\n") }

// Failed tells an error. after is where a reader who comes back goes on; 0
// leaves it where it was.
func Failed(b *bytes.Buffer, err error, after uint64) {
	body, _ := json.Marshal(conch.AsError(err).Body()) // plain data
	if after > 0 {
		fmt.Fprintf(b, "id: %d\n", after)
	}
	fmt.Fprintf(b, "event: error\ndata: %s\n\n", body)
}

// Frame adds the event of a frame; some frames are none.
func (t *Teller) Frame(b *bytes.Buffer, f tape.Frame) {
	ev := conch.Event{Seq: f.Seq, T: t.since(f)}
	if t.All {
		ev.CommandID = conch.NewCommandID(t.ID, f.Command)
	}
	switch f.Kind {
	case tape.Start:
		ev.Type, ev.T, ev.Session, ev.CommandID = "start", 0, t.Session, conch.NewCommandID(t.ID, f.Command)
		if t.All {
			ev.Command = history.TextOf(f)
		}
	case tape.Stdout, tape.Stderr:
		ev.Type = f.Kind.String()
		ev.Data, ev.Encoding = Text(f.Data)
	case tape.Exit:
		var ex history.Exit
		if json.Unmarshal(f.Data, &ex) == nil {
			Exit(b, &ex.Result, f.Seq, ev.T)
		}
		return
	default:
		return
	}
	write(b, ev.Type, f.Seq, ev)
}

// since is a frame's time in seconds since its command's start.
func (t *Teller) since(f tape.Frame) float64 {
	switch {
	case f.Kind == tape.Start:
		t.n, t.start = f.Command, f.Time
	case t.n != f.Command && t.Started != nil:
		t.n, t.start = f.Command, t.Started(f.Command)
	}
	if t.n != f.Command || t.start == 0 {
		return 0
	}
	return float64(max(0, f.Time-t.start)) / 1e9
}

// Exit adds the event of a command's end: its result less the streams.
func Exit(b *bytes.Buffer, r *conch.Result, seq uint64, t float64) {
	raw, _ := json.Marshal(r)
	m := map[string]any{}
	_ = json.Unmarshal(raw, &m)
	delete(m, "stdout")
	delete(m, "stderr")
	m["type"], m["seq"], m["t"] = "exit", seq, t
	write(b, "exit", seq, m)
}

func write(b *bytes.Buffer, name string, seq uint64, v any) {
	data, _ := json.Marshal(v)
	if seq > 0 {
		fmt.Fprintf(b, "id: %d\n", seq)
	}
	fmt.Fprintf(b, "event: %s\ndata: %s\n\n", name, data)
}

// Text makes bytes a JSON string, and says how.
func Text(p []byte) (text, encoding string) {
	if utf8.Valid(p) {
		return string(p), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(p), "base64"
}

// After is the event that a request goes on behind: the parameter after, else
// the header Last-Event-ID. An id that is not ours is refused; given says
// whether there was one.
func After(r *http.Request) (seq uint64, given bool, err error) {
	v := r.URL.Query().Get("after")
	if v == "" {
		v = r.Header.Get("Last-Event-ID")
	}
	if v == "" {
		return 0, false, nil
	}
	seq, perr := strconv.ParseUint(v, 10, 63)
	if perr != nil {
		return 0, true, conch.Errorf(conch.InvalidRequest, "%q is not the id of an event", v).Hint("ids are the numbers that came with events")
	}
	return seq, true, nil
}

// Ahead is the error for an id that no event has had yet.
func Ahead(after, last uint64) error {
	return conch.Errorf(conch.InvalidRequest, "event %d has not happened; the last is %d", after, last).
		Hint("ids belong to one session")
}

// Lost is the error for a cursor that has fallen off the tape, whose oldest
// frame is the one given.
func Lost(oldest uint64) error {
	return conch.Errorf(conch.OutputGone, "what came before event %d has fallen off the tape, which reached its limit", oldest).
		Hint("after=%d goes on with what is left; CONCH_TAPE_LIMIT sets the limit in bytes", oldest-1)
}
