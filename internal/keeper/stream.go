package keeper

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
)

func outputGone(id conch.CommandID) error {
	return conch.Errorf(conch.OutputGone, "part of the output of %s has fallen off the tape, which reached its limit", id).
		Hint("CONCH_TAPE_LIMIT sets the limit in bytes")
}

// waitTape waits for more tape, or for the command's failure, which may be that
// there can be no more tape. Without a command it waits for tape alone.
func (k *Keeper) waitTape(ctx context.Context, c *command, at tape.Cursor) error {
	if c == nil {
		return k.tape.Wait(ctx, at)
	}
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
	if r.URL.Query().Get("stream") == "stderr" {
		kind = tape.Stderr
	}
	follow := route.Bool(r, "follow") && live != nil
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
	if begun, err := k.copyOutput(ctx, w, e, kind, live, follow); err != nil && !begun {
		sendError(w, err)
	} else if err != nil {
		k.log.Warn("output", "command", id, "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

// copyOutput writes one stream. An error before it has begun can still be answered.
func (k *Keeper) copyOutput(ctx context.Context, w http.ResponseWriter, e history.Entry, kind tape.Kind, live *command, follow bool) (begun bool, err error) {
	rd := k.tape.NewReader(e.From)
	defer rd.Close()
	for {
		if !follow && !rd.Cursor().Less(e.To) {
			return begun, nil
		}
		f, err := rd.Next()
		switch {
		case errors.Is(err, io.EOF):
			if !follow {
				return begun, nil
			}
			http.NewResponseController(w).Flush()
			begun = true
			if err := k.waitTape(ctx, live, rd.Cursor()); err != nil {
				return begun, err
			}
			select {
			case <-live.done:
				follow = false
				k.do(func() { e.To = k.tape.End() })
			default:
			}
			continue
		case err != nil:
			return begun, err
		}
		if f.Kind == tape.Gap {
			return begun, outputGone(conch.NewCommandID(k.spec.ID, e.N))
		}
		if f.Command == e.N && f.Kind == kind {
			begun = true
			if _, err := w.Write(f.Data); err != nil {
				return true, nil // the client has left
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
	ctl := http.NewResponseController(w)
	ctx, stop := k.present(r)
	defer stop()
	rd := k.tape.NewReader(from)
	defer rd.Close()
	raw, err := rd.NextRaw(nil, chunk)
	if errors.Is(err, tape.ErrCursor) || errors.Is(err, tape.ErrCorrupt) && !from.IsZero() {
		sendError(w, conch.Errorf(conch.InvalidRequest, "no frame begins at %v: %v", from, err).Hint("a cursor is what a reader was given before"))
		return
	}
	w.Header().Set("Content-Type", route.TapeType)
	for ; ; raw, err = rd.NextRaw(nil, chunk) {
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
		if !route.Bool(r, "follow") {
			return
		}
		if err := k.tape.Wait(ctx, rd.Cursor()); err != nil {
			return
		}
	}
}
