package keeper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/events"
	"github.com/conchsh/conch/internal/route"
)

const (
	// changePause is the least time between two words on changes: a session may run
	// a thousand commands a second.
	changePause = 100 * time.Millisecond
	mostChanges = 200  // commands and processes in one word
	mostQueued  = 100  // waiting commands in it
	mostText    = 1000 // bytes of a command's text in it
)

// A watcher is a daemon that wants to know what changes.
type watcher struct {
	wake   chan struct{}   // holds one
	ns     map[uint32]bool // commands and processes it has not been told of
	missed bool            // there were too many
}

func (w *watcher) touch(n uint32) {
	if len(w.ns) < mostChanges {
		w.ns[n] = true
	} else if !w.ns[n] {
		w.missed = true
	}
}

// A sight is what of a session is worth a word when it changes, besides commands
// and processes that begin or end.
type sight struct {
	running       *command
	shell         int
	queue, people int
	cwd           string
	touched       uint64
	stopping      bool
}

func (k *Keeper) sight() sight {
	g := sight{running: k.running(), queue: len(k.queue), people: k.att.peopleThere(), cwd: k.cwd, touched: k.touched, stopping: k.stopping != nil}
	if k.sh != nil {
		g.shell = k.sh.PID
	}
	return g
}

// touch is the index's word that a command or process began, ended or was dropped.
func (k *Keeper) touch(n uint32) {
	k.touched++
	for _, w := range k.watchers {
		w.touch(n)
	}
}

// tellWatchers wakes them if there is something to tell.
func (k *Keeper) tellWatchers() {
	g := k.sight()
	if g == k.sighted {
		return
	}
	k.sighted = g
	for _, w := range k.watchers {
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// getChanges tells what changes in the session: it as it is now first, then again
// whenever something is different. It ends with the client, or with the session.
func (k *Keeper) getChanges(w http.ResponseWriter, r *http.Request) {
	// What came before is not told.
	self := &watcher{wake: make(chan struct{}, 1), ns: map[uint32]bool{}, missed: true}
	self.wake <- struct{}{}
	if !k.do(func() { k.watchers = append(k.watchers, self) }) {
		sendError(w, k.closedError())
		return
	}
	defer k.do(func() {
		k.watchers = slices.DeleteFunc(k.watchers, func(o *watcher) bool { return o == self })
	})
	ctx, stop := k.present(r)
	defer stop()
	h := w.Header()
	h["Content-Type"] = []string{route.EventType}
	h["Cache-Control"] = []string{"no-store"}
	ctl := http.NewResponseController(w)
	beat := time.NewTicker(route.Heartbeat)
	defer beat.Stop()
	for {
		var b bytes.Buffer
		select {
		case <-self.wake:
			c, ok := k.news(self)
			if !ok {
				return
			}
			text, _ := json.Marshal(c) // plain data
			fmt.Fprintf(&b, "event: session\ndata: %s\n\n", text)
		case <-beat.C:
			events.Beat(&b)
		case <-ctx.Done():
			return
		}
		if _, err := w.Write(b.Bytes()); err != nil || ctl.Flush() != nil {
			return
		}
		select {
		case <-time.After(changePause):
		case <-ctx.Done():
			return
		}
	}
}

// news is what a watcher has not been told; false: the session ends.
func (k *Keeper) news(w *watcher) (c conch.SessionChange, ok bool) {
	k.mu.Lock() // not do: looking changes nothing
	defer k.mu.Unlock()
	if k.exiting || k.stopping != nil {
		return c, false
	}
	c = conch.SessionChange{Session: k.info(), Commands: []conch.HistoryEntry{}, Processes: []conch.Process{},
		Queue: []conch.HistoryEntry{}, Forgotten: []conch.ProcessID{}, Missed: w.missed}
	for _, n := range slices.Sorted(maps.Keys(w.ns)) {
		switch e := k.index.Get(n); {
		case e == nil:
			c.Forgotten = append(c.Forgotten, conch.NewCommandID(k.spec.ID, n))
		case e.Process != nil:
			p := k.describeProcess(e)
			p.Command = short(p.Command)
			c.Processes = append(c.Processes, p)
		default:
			d := k.index.Describe(e, k.longText)
			d.Command = short(d.Command)
			c.Commands = append(c.Commands, d)
		}
	}
	for i, q := range k.queue[:min(len(k.queue), mostQueued)] {
		d := k.describeQueued(q, i+1)
		d.Command = short(d.Command)
		c.Queue = append(c.Queue, d)
	}
	clear(w.ns)
	w.missed = false
	return c, true
}

// short is the beginning of a command's text.
func short(text string) string { return text[:min(len(text), mostText)] }
