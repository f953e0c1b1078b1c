package keeper

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/tape"
)

const tapeType = "application/vnd.conch.tape"

// chunk is how much of the tape is handed on at once.
const chunk = 1 << 20

// follow calls send with the frames of one command, as ranges of the tape's files, from
// its start to its exit, as they come. A slow reader only makes itself late: it reads
// the tape, not the command.
func (k *Keeper) follow(ctx context.Context, c *command, send func(f *os.File, off, n int64) error) error {
	rd := k.tape.NewReader(c.entry.From)
	defer rd.Close()
	exited := false
	keep := func(f tape.Frame) bool {
		if f.Command != c.n || exited {
			return false
		}
		if exited = f.Kind == tape.Exit; exited {
			// The word that it failed goes out instead of its exit.
			<-c.done
			return c.failed == nil
		}
		return true
	}
	for !exited {
		f, off, n, err := rd.NextRange(keep, chunk)
		if n > 0 {
			if err := send(f, off, n); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, tape.ErrGone) {
			return outputGone(c.id)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case <-c.done:
			if c.failed != nil {
				return c.failed
			}
		default:
		}
		if err := k.waitTape(ctx, c, rd.Cursor()); err != nil {
			return err
		}
	}
	return c.failed
}

func outputGone(id conch.CommandID) error {
	return conch.Errorf(conch.OutputGone, "part of the output of %s has fallen off the tape, which reached its limit", id).
		Hint("CONCH_TAPE_LIMIT sets the limit in bytes")
}

// waitTape waits for more tape, or for the command's failure, which may be that
// there can be no more tape.
func (k *Keeper) waitTape(ctx context.Context, c *command, at tape.Cursor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with this call
		select {
		case <-c.done:
			cancel()
		case <-stop:
		}
	}()
	err := k.tape.Wait(ctx, at)
	select {
	case <-c.done:
		return nil
	default:
	}
	return err
}

// began waits until c starts or will not.
func began(ctx context.Context, c *command) error {
	select {
	case <-c.began:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.entry == nil {
		<-c.done
		if c.failed != nil {
			return c.failed
		}
	}
	return nil
}

// streamExec answers with tape frames: the fast way, for our own clients.
func (k *Keeper) streamExec(w http.ResponseWriter, r *http.Request, c *command) {
	w.Header().Set("Content-Type", tapeType)
	ctl := http.NewResponseController(w)
	ctl.Flush() // the id goes out while the command may still be queued
	fail := func(err error) {
		b, _ := json.Marshal(conch.AsError(err).Body())
		w.Write(tape.AppendFrame(nil, tape.Frame{Time: time.Now().UnixNano(), Command: c.n, Kind: tape.Note, Data: b}))
	}
	ctx, stop := k.present(r)
	defer stop()
	defer k.clientGone(c)
	if err := began(ctx, c); err != nil {
		fail(err)
		return
	}
	if c.entry == nil { // interrupted in the queue
		b, _ := json.Marshal(history.Exit{Result: *c.result})
		now := time.Now().UnixNano()
		w.Write(tape.AppendFrame(nil, tape.Frame{Time: now, Command: c.n, Kind: tape.Exit, Data: b}))
		return
	}
	err := k.follow(ctx, c, w.(*response).sendFile)
	if err != nil && ctx.Err() == nil {
		fail(err)
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

// eventsExec answers with server-sent events.
func (k *Keeper) eventsExec(w http.ResponseWriter, r *http.Request, c *command) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ctl := http.NewResponseController(w)
	ctl.Flush()
	var b bytes.Buffer
	fail := func(err error) {
		body, _ := json.Marshal(conch.AsError(err).Body())
		fmt.Fprintf(w, "event: error\ndata: %s\n\n", body)
	}
	ctx, stop := k.present(r)
	defer stop()
	defer k.clientGone(c)
	if err := began(ctx, c); err != nil {
		fail(err)
		return
	}
	if c.entry == nil {
		writeEvent(w, "exit", "", exitEvent(c.result, 0, 0))
		return
	}
	started := c.entry.Started.UnixNano()
	err := k.follow(ctx, c, func(file *os.File, off, n int64) error {
		b.Reset()
		d := tape.NewDecoder(io.NewSectionReader(file, off, n))
		for {
			f, err := d.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			k.frameEvent(&b, f, c, started)
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
		return ctl.Flush()
	})
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

func (k *Keeper) frameEvent(w io.Writer, f tape.Frame, c *command, started int64) {
	t := float64(max(0, f.Time-started)) / 1e9
	ev := conch.Event{Seq: f.Seq, T: t}
	switch f.Kind {
	case tape.Start:
		ev.Type, ev.T, ev.Session, ev.CommandID = "start", 0, k.spec.Label, c.id
	case tape.Stdout, tape.Stderr:
		ev.Type = f.Kind.String()
		ev.Data, ev.Encoding = encodeText(f.Data)
	case tape.Exit:
		var ex history.Exit
		if json.Unmarshal(f.Data, &ex) == nil {
			writeEvent(w, "exit", fmt.Sprint(f.Seq), exitEvent(&ex.Result, f.Seq, t))
		}
		return
	default:
		return
	}
	writeEvent(w, ev.Type, fmt.Sprint(f.Seq), ev)
}

func writeEvent(w io.Writer, name, id string, v any) {
	b, _ := json.Marshal(v)
	if id != "" {
		fmt.Fprintf(w, "id: %s\n", id)
	}
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, b)
}

// exitEvent is a result less its streams, as an event.
func exitEvent(r *conch.Result, seq uint64, t float64) map[string]any {
	b, _ := json.Marshal(r)
	m := map[string]any{}
	_ = json.Unmarshal(b, &m)
	for _, name := range []string{"stdout", "stderr"} {
		delete(m, name)
	}
	m["type"], m["seq"], m["t"] = "exit", seq, t
	return m
}

func encodeText(b []byte) (text, encoding string) {
	if utf8.Valid(b) {
		return string(b), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// part is what a result keeps of one stream: its first and its last bytes.
type part struct {
	head, tail []byte
	total      int64
	from, to   int64 // kept: [0,from) and [to,total)
	at         int64
}

func newPart(total, limit int64) *part {
	p := &part{total: total, from: total, to: total}
	if total > limit {
		p.from = limit / 2
		p.to = total - (limit - limit/2)
	}
	return p
}

func (p *part) add(b []byte) {
	n := int64(len(b))
	if p.at < p.from {
		p.head = append(p.head, b[:min(n, p.from-p.at)]...)
	}
	if end := p.at + n; end > p.to && p.to < p.total {
		p.tail = append(p.tail, b[max(0, p.to-p.at):min(n, p.total-p.at)]...)
	}
	p.at += n
}

// cut moves the cut away from the middle of a character, so that text stays text.
func (p *part) cut() *conch.Omitted {
	if p.from == p.total {
		return nil
	}
	for i := 1; i < utf8.UTFMax && i <= len(p.head); i++ {
		if b := p.head[len(p.head)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p.head[len(p.head)-i:]) {
				p.head = p.head[:len(p.head)-i]
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax-1 && len(p.tail) > 0 && !utf8.RuneStart(p.tail[0]); i++ {
		p.tail = p.tail[1:]
	}
	return &conch.Omitted{Offset: int64(len(p.head)), Bytes: p.total - int64(len(p.head)) - int64(len(p.tail))}
}

// fillStreams puts the streams of a finished command into its result: from memory
// when they are small, else from the tape.
func (k *Keeper) fillStreams(res *conch.Result, c *command, limit int64) error {
	if c.entry == nil || c.out == nil {
		return nil
	}
	if res.StdoutBytes <= int64(len(c.out.head)) && res.StderrBytes <= int64(len(c.err.head)) && res.StdoutBytes <= limit && res.StderrBytes <= limit {
		setStreams(res, c.out.head[:res.StdoutBytes], c.err.head[:res.StderrBytes])
		return nil
	}
	return k.readStreams(res, *c.entry, limit)
}

// readStreams reads a command's streams back, up to its exit.
func (k *Keeper) readStreams(res *conch.Result, e history.Entry, limit int64) error {
	out, errs := newPart(res.StdoutBytes, limit), newPart(res.StderrBytes, limit)
	rd := k.tape.NewReader(e.From)
	defer rd.Close()
	for {
		f, err := rd.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if f.Kind == tape.Gap {
			return outputGone(res.CommandID)
		}
		if f.Command != e.N {
			continue
		}
		if f.Kind == tape.Exit {
			break
		}
		switch f.Kind {
		case tape.Stdout:
			out.add(f.Data)
		case tape.Stderr:
			errs.add(f.Data)
		}
	}
	res.StdoutOmitted, res.StderrOmitted = out.cut(), errs.cut()
	res.Truncated = res.StdoutOmitted != nil || res.StderrOmitted != nil
	setStreams(res, append(out.head, out.tail...), append(errs.head, errs.tail...))
	return nil
}

func setStreams(res *conch.Result, out, errs []byte) {
	if utf8.Valid(out) && utf8.Valid(errs) {
		res.Stdout, res.Stderr, res.Encoding = string(out), string(errs), "utf-8"
		return
	}
	res.Stdout, res.Stderr, res.Encoding = base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errs), "base64"
}

// getOutput writes one stream of a command, whole.
func (k *Keeper) getOutput(w http.ResponseWriter, r *http.Request) {
	id := conch.CommandID(r.PathValue("id"))
	e, live, h, err := k.lookup(id)
	if err != nil {
		sendError(w, err)
		return
	}
	kind := tape.Stdout
	switch s := r.URL.Query().Get("stream"); s {
	case "", "stdout":
	case "stderr":
		kind = tape.Stderr
	default:
		sendError(w, conch.Errorf(conch.InvalidRequest, "no stream %q", s).Hint("stream is stdout or stderr"))
		return
	}
	follow := r.URL.Query().Get("follow") == "1" && live != nil
	ctx, stop := k.present(r)
	defer stop()
	if h.Status == conch.StatusQueued && !follow {
		w.Header().Set("Content-Type", "application/octet-stream")
		return
	}
	if follow {
		if err := began(ctx, live); err != nil {
			sendError(w, err)
			return
		}
		if live.entry == nil {
			return
		}
		e = *live.entry
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := k.copyOutput(ctx, w, e, kind, live, follow); err != nil {
		k.log.Warn("output", "command", id, "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

func (k *Keeper) copyOutput(ctx context.Context, w http.ResponseWriter, e history.Entry, kind tape.Kind, live *command, follow bool) error {
	rd := k.tape.NewReader(e.From)
	defer rd.Close()
	for {
		if !follow && !rd.Cursor().Less(e.To) {
			return nil
		}
		f, err := rd.Next()
		switch {
		case errors.Is(err, io.EOF):
			if !follow {
				return nil
			}
			http.NewResponseController(w).Flush()
			if err := k.waitTape(ctx, live, rd.Cursor()); err != nil {
				return err
			}
			select {
			case <-live.done:
				follow = false
				k.do(func() { e.To = k.tape.End() })
			default:
			}
			continue
		case err != nil:
			return err
		}
		if f.Kind == tape.Gap {
			return errors.New("part of the output has fallen off the tape")
		}
		if f.Command == e.N && f.Kind == kind {
			if _, err := w.Write(f.Data); err != nil {
				return nil // the client has left
			}
		}
	}
}

// getTape gives the session's tape from a cursor on.
func (k *Keeper) getTape(w http.ResponseWriter, r *http.Request) {
	from, err := tape.ParseCursor(r.URL.Query().Get("from"))
	if err != nil && r.URL.Query().Get("from") != "" {
		sendError(w, conch.Errorf(conch.InvalidRequest, "bad cursor: %v", err))
		return
	}
	w.Header().Set("Content-Type", tapeType)
	ctl := http.NewResponseController(w)
	ctx, stop := k.present(r)
	defer stop()
	rd := k.tape.NewReader(from)
	defer rd.Close()
	for {
		raw, err := rd.NextRaw(func(tape.Frame) bool { return true }, chunk)
		if len(raw) > 0 {
			if _, err := w.Write(raw); err != nil {
				return
			}
			continue
		}
		if !errors.Is(err, io.EOF) && err != nil {
			panic(http.ErrAbortHandler)
		}
		ctl.Flush()
		if r.URL.Query().Get("follow") != "1" {
			return
		}
		if err := k.tape.Wait(ctx, rd.Cursor()); err != nil {
			return
		}
	}
}
