package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
	"github.com/conchsh/conch/internal/tty"
)

// A view makes of the tape what a terminal shows: of one process, its output; of a
// session, what is typed and its output as it is, and the commands of others as in a
// recording, less what could act on the terminal.
type view struct {
	process uint32 // 0: the session
	typed   map[uint32]bool
	others  map[uint32]*tty.Cleaner
	line    bool // the last line is unfinished
}

func newView() *view { return &view{typed: map[uint32]bool{}, others: map[uint32]*tty.Cleaner{}} }

func (v *view) clone() *view {
	c := *v
	c.typed = maps.Clone(v.typed)
	c.others = maps.Clone(v.others)
	for n, cl := range c.others {
		copied := *cl
		c.others[n] = &copied
	}
	return &c
}

// began notes that a command has begun.
func (v *view) began(n uint32, typed bool) {
	if typed {
		v.typed[n] = true
	} else {
		v.others[n] = new(tty.Cleaner)
	}
}

// bytes are what a frame brings to the terminal.
func (v *view) bytes(f tape.Frame) []byte {
	if v.process != 0 {
		if f.Command == v.process && (f.Kind == tape.Stdout || f.Kind == tape.Stderr) {
			return f.Data
		}
		return nil
	}
	switch f.Kind {
	case tape.Prompt:
		return f.Data
	case tape.Start:
		var s history.Start
		if json.Unmarshal(f.Data, &s) != nil || s.Process != nil {
			return nil
		}
		v.began(f.Command, s.TTY)
		if s.TTY {
			return nil
		}
		out := "\x1b[1m$\x1b[0m " + string(v.others[f.Command].Clean(tty.Lines(s.Command))) + "\r\n"
		if v.line {
			v.line, out = false, "\r\n"+out
		}
		return []byte(out)
	case tape.Stdout, tape.Stderr:
		if v.typed[f.Command] {
			return f.Data
		}
		if cl := v.others[f.Command]; cl != nil && len(f.Data) > 0 {
			v.line = f.Data[len(f.Data)-1] != '\n'
			return cl.Clean(tty.Lines(string(f.Data)))
		}
	case tape.Exit:
		var out []byte
		if cl := v.others[f.Command]; cl != nil {
			if out = cl.End(); v.line {
				v.line, out = false, append(out, "\r\n"...)
			}
		}
		delete(v.typed, f.Command)
		delete(v.others, f.Command)
		return out
	}
	return nil
}

// resized reports whether a frame is the terminal's new size.
func (v *view) resized(f tape.Frame) bool { return f.Kind == tape.Resize && f.Command == v.process }

// apply draws a frame on a screen.
func (v *view) apply(s *tty.Screen, f tape.Frame) {
	if v.resized(f) || f.Kind == tape.Start && f.Command == v.process {
		tty.Apply(s, f)
		return
	}
	if b := v.bytes(f); len(b) > 0 {
		s.Feed(b, time.Unix(0, f.Time).UTC())
	}
}

func resizeFrame(n uint32, size conch.TerminalSize) tape.Frame {
	b, _ := json.Marshal(size)
	return tape.Frame{Time: time.Now().UnixNano(), Command: n, Kind: tape.Resize, Data: b}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) }

// watchTerminal sends what a terminal shows, and then what it comes to show, as frames: its
// size, the screen as it stands, output and new sizes. It ends with the client, with
// the process, or when done is closed; a note says that this was the session's end.
// A viewer that asks for it (skip) and falls far behind gets, instead of what it
// missed, a gap and the screen as the model has it then.
func (k *Keeper) watchTerminal(w http.ResponseWriter, r *http.Request, t *terminal, readOnly bool, done <-chan struct{}) {
	ctx, stop := k.present(r)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with this call
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if t.caughtUp(ctx, k.tape.End()) != nil {
		return
	}
	t.mu.Lock()
	v, at, drawn := t.view.clone(), t.read, t.screen.Render()
	cols, rows := t.screen.Size()
	if !readOnly {
		t.viewers++
	}
	t.mu.Unlock()
	defer func() {
		if !readOnly {
			t.mu.Lock()
			t.viewers--
			t.mu.Unlock()
		}
	}()
	w.Header().Set("Content-Type", route.TapeType)
	ctl := http.NewResponseController(w)
	var buf []byte
	send := func(f tape.Frame) bool {
		buf = tape.AppendFrame(buf[:0], f)
		_, err := w.Write(buf)
		return err == nil
	}
	draw := func() bool {
		return send(resizeFrame(0, conch.TerminalSize{Cols: cols, Rows: rows})) && send(tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Stdout, Data: drawn})
	}
	if !draw() {
		return
	}
	skip := route.Bool(r, "skip")
	rd := k.tape.NewReader(at)
	defer func() { rd.Close() }()
	for {
		if skip && far(rd.Cursor(), k.tape.End(), slack) {
			t.mu.Lock()
			jump := !t.over && far(rd.Cursor(), t.read, slack/4)
			if jump {
				v, at, drawn = t.view.clone(), t.read, append([]byte("\x1b[?1049l"), t.screen.Render()...)
				cols, rows = t.screen.Size()
			}
			t.mu.Unlock()
			if jump {
				rd.Close()
				rd = k.tape.NewReader(at)
				if !send(tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Gap, Data: []byte("{}")}) || !draw() {
					return
				}
			}
		}
		f, err := rd.Next()
		if atEnd(err) {
			if ctl.Flush() != nil {
				return
			}
			if k.tape.Wait(ctx, rd.Cursor()) != nil {
				if v.process == 0 && r.Context().Err() == nil && k.ending() {
					send(tape.Frame{Time: time.Now().UnixNano(), Kind: tape.Note, Data: []byte("{}")})
				}
				return
			}
			continue
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client sees that it was cut off
		}
		if v.resized(f) && !send(f) {
			return
		}
		if b := v.bytes(f); len(b) > 0 && !send(tape.Frame{Time: f.Time, Seq: f.Seq, Kind: tape.Stdout, Data: b}) {
			return
		}
		if f.Kind == tape.Exit && v.process != 0 && f.Command == v.process {
			send(f)
			return
		}
	}
}

// slack is how far behind the tape's end a viewer may be before it skips.
const slack = 1 << 20

// far reports whether one place is more than n bytes before another.
func far(a, b tape.Cursor, n int64) bool {
	return a.Less(b) && (a.Segment != b.Segment || b.Offset-a.Offset > n)
}

// getProcessAttach shows a process's terminal, live.
func (k *Keeper) getProcessAttach(w http.ResponseWriter, r *http.Request) {
	id := conch.ProcessID(r.PathValue("id"))
	readOnly, size, err := parseAttach(r)
	if err != nil {
		sendError(w, err)
		return
	}
	_, live, err := k.findTerminal(id)
	if err == nil {
		err = running(id, live)
	}
	if err == nil && !readOnly && size.Cols > 0 {
		err = k.resize(live, size)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	k.watchTerminal(w, r, live.tty, readOnly, nil)
}

// getAttach shows the session's terminal, live, and unless it is only to be read, makes
// the client one of those at its prompt as long as it stays.
func (k *Keeper) getAttach(w http.ResponseWriter, r *http.Request) {
	readOnly, size, err := parseAttach(r)
	if err != nil {
		sendError(w, err)
		return
	}
	if k.do(func() { err = k.askedByItself(peer(r)) }); err != nil {
		sendError(w, err)
		return
	}
	t, done, leave, err := k.enter(readOnly, size)
	if err != nil {
		sendError(w, err)
		return
	}
	defer leave()
	k.watchTerminal(w, r, t, readOnly, done)
}

func parseAttach(r *http.Request) (readOnly bool, size conch.TerminalSize, err error) {
	q := r.URL.Query()
	for name, v := range map[string]*int{"cols": &size.Cols, "rows": &size.Rows} {
		if s := q.Get(name); s != "" {
			if *v, err = strconv.Atoi(s); err != nil {
				return false, size, conch.Errorf(conch.InvalidRequest, "%s=%q is not a number", name, s)
			}
		}
	}
	if size != (conch.TerminalSize{}) {
		err = checkSize(size)
	}
	return route.Bool(r, "read_only"), size, err
}
