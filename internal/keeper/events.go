package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/events"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
)

// chunk is how much of the tape is handed on at once.
const chunk = 1 << 20

// A tail is what a follower wants of the tape.
type tail struct {
	n     uint32      // of this command, to its exit; 0: of all, for ever
	live  *command    // n's, while it has not been forgotten
	from  tape.Cursor // where to look
	after uint64      // frames up to here are known
	once  bool        // of all: end where the tape ends
}

// errGone: the follower's place has fallen off the tape.
var errGone = errors.New("fallen off the tape")

// follow calls send with the frames that t wants, as ranges of the tape's files, as
// they come; beat, if there is one, when none came for a while. A slow reader only
// makes itself late: it reads the tape, not the command.
func (k *Keeper) follow(ctx context.Context, t tail, send func(f *os.File, off, n int64) error, beat func() error) error {
	rd := k.tape.NewReader(t.from)
	defer rd.Close()
	exited, gone := false, false
	keep := func(f tape.Frame) bool {
		if f.Kind == tape.Gap && t.n != 0 {
			gone = true // what was there may have been the command's
		}
		if gone {
			return false
		}
		if f.Seq <= t.after && f.Kind != tape.Exit || exited {
			return false
		}
		if t.n == 0 {
			return f.Seq > t.after
		}
		if f.Command != t.n {
			return false
		}
		if exited = f.Kind == tape.Exit; exited && t.live != nil {
			// The word that it failed goes out instead of its exit.
			<-t.live.done
			return t.live.failed == nil && f.Seq > t.after
		}
		return f.Seq > t.after
	}
	for !exited {
		f, off, n, err := rd.NextRange(keep, chunk)
		if n > 0 {
			if err := send(f, off, n); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, tape.ErrGone) || gone {
			return errGone
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if exited || t.once || t.n != 0 && t.live == nil {
			break
		}
		if t.live != nil {
			select {
			case <-t.live.done:
				if t.live.failed != nil {
					return t.live.failed
				}
			default:
			}
		}
		if err := k.waitBeating(ctx, t.live, rd.Cursor(), beat); err != nil {
			if errors.Is(err, tape.ErrClosed) && t.n == 0 {
				return nil // the session has ended
			}
			return err
		}
	}
	if t.live != nil {
		return t.live.failed
	}
	return nil
}

// waitBeating is waitTape with a word in between when it takes long.
func (k *Keeper) waitBeating(ctx context.Context, c *command, at tape.Cursor, beat func() error) error {
	for {
		if beat == nil {
			return k.waitTape(ctx, c, at)
		}
		short, cancel := context.WithTimeout(ctx, route.Heartbeat)
		err := k.waitTape(short, c, at)
		late := short.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
		if err := beat(); err != nil {
			return err
		}
	}
}

// oldest is the number of the oldest frame on the tape.
func (k *Keeper) oldest() uint64 {
	rd := k.tape.NewReader(k.tape.Oldest())
	defer rd.Close()
	f, _, err := rd.NextHeader()
	if err != nil {
		return k.tape.Last() + 1
	}
	return f.Seq
}

// A telling is frames on their way to a client: as events, or as they are, which is
// the fast way and our own client's.
type telling struct {
	k      *Keeper
	w      *response
	raw    bool
	teller events.Teller
	b      bytes.Buffer
}

func (k *Keeper) telling(w http.ResponseWriter, raw bool) *telling {
	o := &telling{k: k, w: w.(*response), raw: raw, teller: events.Teller{Session: k.spec.Label, ID: k.spec.ID, Started: k.startOf}}
	h := w.Header()
	if raw {
		h["Content-Type"] = []string{route.TapeType}
		return o
	}
	h["Content-Type"] = []string{route.EventType}
	h["Cache-Control"] = []string{"no-store"}
	return o
}

func (k *Keeper) startOf(n uint32) (ns int64) {
	k.do(func() {
		if e := k.index.Get(n); e != nil {
			ns = e.Started.UnixNano()
		}
	})
	return ns
}

// begin sends the header: what is told may be long in coming.
func (o *telling) begin() error {
	if !o.raw {
		events.Begin(&o.b)
	}
	return o.flush()
}

func (o *telling) flush() error {
	if o.b.Len() > 0 {
		_, err := o.w.Write(o.b.Bytes())
		o.b.Reset()
		if o.b.Cap() > chunk {
			o.b = bytes.Buffer{}
		}
		if err != nil {
			return err
		}
	}
	return o.w.FlushError()
}

func (o *telling) send(f *os.File, off, n int64) error {
	if o.raw {
		return o.w.sendFile(f, off, n)
	}
	d := tape.NewDecoder(io.NewSectionReader(f, off, n))
	for {
		f, err := d.Next()
		if errors.Is(err, io.EOF) {
			return o.flush()
		}
		if err != nil {
			return errGone // cut from under us
		}
		o.teller.Frame(&o.b, f)
	}
}

// beat is nil where there is no word for it: a client that reads frames is ours, and
// has a socket that tells of its end.
func (o *telling) beat() func() error {
	if o.raw {
		return nil
	}
	return func() error {
		events.Beat(&o.b)
		return o.flush()
	}
}

// fail tells an error in the stream. Of command n, 0: of none.
func (o *telling) fail(err error, n uint32) {
	after := uint64(0)
	if errors.Is(err, errGone) {
		oldest := o.k.oldest()
		err, after = events.Lost(oldest), oldest-1
	}
	if o.raw {
		b, _ := json.Marshal(conch.AsError(err).Body())
		o.b.Write(tape.AppendFrame(nil, tape.Frame{Time: time.Now().UnixNano(), Command: n, Kind: tape.Note, Data: b}))
	} else {
		events.Failed(&o.b, err, after)
	}
	o.flush()
}

// exit tells the end of a command that never ran and is not on the tape.
func (o *telling) exit(c *command) {
	if o.raw {
		b, _ := json.Marshal(history.Exit{Result: *c.result})
		o.b.Write(tape.AppendFrame(nil, tape.Frame{Time: time.Now().UnixNano(), Command: c.n, Kind: tape.Exit, Data: b}))
	} else {
		events.Exit(&o.b, c.result, 0, 0)
	}
	o.flush()
}

// tellExec answers a request to run c with what c does.
func (k *Keeper) tellExec(w http.ResponseWriter, r *http.Request, c *command, raw bool) {
	o := k.telling(w, raw)
	o.begin() // the id goes out while the command may still be queued
	ctx, stop := k.present(r)
	defer stop()
	defer k.clientGone(c)
	k.tell(ctx, o, c, 0)
}

// tell follows a command that lives.
func (k *Keeper) tell(ctx context.Context, o *telling, c *command, after uint64) {
	if err := began(ctx, c); err != nil {
		o.fail(err, c.n)
		return
	}
	if c.entry == nil { // interrupted in the queue
		o.exit(c)
		return
	}
	t := tail{n: c.n, live: c, from: k.place(c.entry.From, after), after: after}
	err := k.follow(ctx, t, o.send, o.beat())
	if err != nil && ctx.Err() == nil {
		if errors.Is(err, errGone) && after == 0 {
			err = outputGone(c.id)
		}
		o.fail(err, c.n)
	}
}

// clientGone closes the stdin of a command whose starter does not follow it to its end,
// however that was noticed: nobody else is sure to write to it, and a command that waits
// for it would hold up the session for ever.
func (k *Keeper) clientGone(c *command) {
	if !c.req.OpenStdin {
		return
	}
	select {
	case <-c.done:
	default:
		k.do(func() {
			if c.stdin != nil {
				c.stdin.drop()
			}
		})
	}
}

func wantsFrames(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), route.TapeType)
}

// getCommandEvents tells what a command does and did, from its start or from behind
// an event on, to its exit.
func (k *Keeper) getCommandEvents(w http.ResponseWriter, r *http.Request) {
	id := conch.CommandID(r.PathValue("id"))
	e, live, _, err := k.lookup(id)
	if err != nil {
		sendError(w, err)
		return
	}
	after, err := k.behind(r)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header()["Conch-Command-Id"] = []string{string(id)}
	w.Header()["Conch-Session"] = []string{k.spec.Agent + "/" + k.spec.Label}
	ctx, stop := k.present(r)
	defer stop()
	if live != nil {
		o := k.telling(w, wantsFrames(r))
		o.begin()
		k.tell(ctx, o, live, after)
		return
	}
	t := tail{n: e.N, from: k.place(e.From, after), after: after}
	errMore := errors.New("there is something to tell")
	if k.follow(ctx, t, func(*os.File, int64, int64) error { return errMore }, nil) == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	o := k.telling(w, wantsFrames(r))
	o.begin()
	if err := k.follow(ctx, t, o.send, nil); err != nil && ctx.Err() == nil {
		if errors.Is(err, errGone) && after == 0 {
			err = outputGone(id)
		}
		o.fail(err, e.N)
	}
}

// getEvents tells what happens in the session, all commands.
func (k *Keeper) getEvents(w http.ResponseWriter, r *http.Request) {
	after, err := k.behind(r)
	if err != nil {
		sendError(w, err)
		return
	}
	if _, given, _ := events.After(r); !given && route.Bool(r, "live") {
		after = k.tape.Last()
	}
	w.Header()["Conch-Session-Id"] = []string{k.spec.ID}
	o := k.telling(w, wantsFrames(r))
	o.teller.All = true
	o.begin()
	ctx, stop := k.present(r)
	defer stop()
	t := tail{from: k.place(tape.Cursor{}, after), after: after, once: r.URL.Query().Has("follow") && !route.Bool(r, "follow")}
	if err := k.follow(ctx, t, o.send, o.beat()); err != nil && ctx.Err() == nil {
		o.fail(err, 0)
	}
}

// behind is the event a request goes on behind, which must have happened.
func (k *Keeper) behind(r *http.Request) (uint64, error) {
	after, _, err := events.After(r)
	if err != nil {
		return 0, err
	}
	if last := k.tape.Last(); after > last {
		return 0, events.Ahead(after, last)
	}
	return after, nil
}

// place is where to begin reading for what comes behind an event, not before from.
func (k *Keeper) place(from tape.Cursor, after uint64) tape.Cursor {
	if after == 0 {
		return from
	}
	rd := k.tape.NewReader(tape.Cursor{})
	defer rd.Close()
	at := rd.Find(after + 1)
	if at.Less(from) {
		return from
	}
	return at
}
