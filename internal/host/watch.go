package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

const (
	// watchLinger is for how long changes are followed when nobody listens any
	// more: a listener that was cut off comes back within it and has missed nothing.
	watchLinger = 30 * time.Second
	// watchKeep is how many changes are kept for those who come back or are slow.
	watchKeep = 4096
	// watchPause is the least time between two looks at the list of sessions.
	watchPause = 100 * time.Millisecond
	// followAgain is when a keeper that could not be followed is tried again; one
	// that is too old for it is asked so often instead.
	followAgain = 2 * time.Second
)

// An Update is one change on this machine: session, closed, mail or receipt, with a
// value of that kind. The first of every stream is watching.
type Update struct {
	ID    string // where to go on
	Type  string
	Value any
}

// watch is what all listeners share. Keepers are followed, and anything is kept here,
// only while there are listeners.
type watch struct {
	wanted  chan struct{} // holds one: there is a listener
	stirred chan struct{} // holds one: the list of sessions may have changed

	mu        sync.Mutex
	listeners int
	left      time.Time     // when the last one went
	epoch     string        // of the numbers; empty: nothing is followed
	last      uint64        // the newest's number
	ring      []Update      // the newest last
	changed   chan struct{} // closed by the next update, or by the end
}

func newWatch() *watch {
	return &watch{wanted: make(chan struct{}, 1), stirred: make(chan struct{}, 1), changed: make(chan struct{})}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is full, and will be looked at
	}
}

// stir says that sessions, or who is present, may have changed.
func (w *watch) stir() { nudge(w.stirred) }

func (w *watch) publish(kind string, v any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoch == "" { // nobody has been told anything
		return
	}
	w.last++
	w.ring = append(w.ring, Update{w.epoch + "." + strconv.FormatUint(w.last, 10), kind, v})
	if len(w.ring) > watchKeep {
		w.ring = append(w.ring[:0:0], w.ring[watchKeep/4:]...)
	}
	w.ringAll()
}

// ringAll wakes those who wait. Under mu.
func (w *watch) ringAll() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// since gives what came after a place, and where that leads. resumed is false if
// something in between is not kept. Under mu.
func (w *watch) since(epoch string, after uint64) (list []Update, resumed bool) {
	first := w.last - uint64(len(w.ring)) // the number before the oldest kept
	if epoch != w.epoch || after < first || after > w.last {
		return nil, false
	}
	return w.ring[after-first:], true
}

// Watch calls emit with what changes on this machine, beginning after the update
// that last names if that is still known: the first word says so. idle is called when
// nothing came for a while. It ends with ctx, or with an error of emit or idle.
func (h *Host) Watch(ctx context.Context, last string, emit func(Update) error, idle func() error) error {
	w := h.watch
	w.mu.Lock()
	w.listeners++
	w.mu.Unlock()
	nudge(w.wanted)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.listeners--
		w.left = time.Now()
	}()
	epoch, number, _ := strings.Cut(last, ".")
	after, _ := strconv.ParseUint(number, 10, 64)
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	began := false
	for {
		w.mu.Lock()
		changed, running := w.changed, w.epoch != ""
		list, resumed := w.since(epoch, after)
		if running && (!began || !resumed) {
			if !resumed {
				epoch, after = w.epoch, w.last
			}
			list = append([]Update{{w.epoch + "." + strconv.FormatUint(after, 10), "watching", conch.Watching{Resumed: resumed}}}, list...)
			began = true
		} else {
			list = list[:len(list):len(list)] // the ring grows behind it
		}
		if running {
			after = w.last
		}
		w.mu.Unlock()
		for _, u := range list {
			if err := emit(u); err != nil {
				return err
			}
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.Mail.Leaving():
			return conch.Errorf(conch.NotRunning, "the daemon is leaving").Retry()
		}
	}
}

// Follow serves Watch until ctx ends.
func (h *Host) Follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.watch.wanted:
			h.followAll(ctx)
		}
	}
}

// A follower is what is known of sessions while somebody listens.
type follower struct {
	h  *Host
	w  *watch
	wg sync.WaitGroup

	mu    sync.Mutex
	infos map[string]conch.SessionInfo // by session id, as their keepers told
	going map[string]bool              // whose keepers are followed
	// shown is what was last published, by address.
	shown map[[2]string]conch.SessionInfo
	held  map[[2]string]bool // those that mail says are live
	mail  bool               // mail is followed
}

// followAll follows everything until nobody has listened for a while.
func (h *Host) followAll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{h: h, w: h.watch, infos: map[string]conch.SessionInfo{}, going: map[string]bool{}, shown: map[[2]string]conch.SessionInfo{}}
	defer f.wg.Wait()
	defer cancel()
	unused := !h.Mail.Used()
	f.look(ctx, false)
	f.w.mu.Lock()
	f.w.epoch, f.w.last, f.w.ring = rand.Text()[:13], 0, nil
	f.w.ringAll()
	f.w.mu.Unlock()
	defer func() {
		f.w.mu.Lock()
		defer f.w.mu.Unlock()
		f.w.epoch, f.w.ring = "", nil
		f.w.ringAll()
	}()
	pause := time.NewTicker(watchPause)
	defer pause.Stop()
	for {
		if !f.mail && h.Mail.Used() {
			f.mail = true
			after := int64(-1)
			if unused {
				after = 0 // its first message is news
			}
			f.wg.Go(func() { f.followMail(ctx, after) }) // ends with ctx
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-f.w.stirred:
			f.look(ctx, true)
		default:
		}
		if f.unwanted() {
			return
		}
	}
}

// unwanted ends the epoch when nobody has listened for long. Who comes now waits for
// the next.
func (f *follower) unwanted() bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.w.listeners > 0 || time.Since(f.w.left) < watchLinger {
		return false
	}
	f.w.epoch, f.w.ring = "", nil
	return true
}

// look compares the sessions there are with those that were shown, and follows the
// keepers of new ones.
func (f *follower) look(ctx context.Context, publish bool) {
	sessions := f.h.Store.Sessions()
	list := make([]conch.SessionInfo, len(sessions))
	open := map[string]bool{}
	var wg sync.WaitGroup
	sem := make(chan struct{}, 32)
	for i, s := range sessions {
		open[s.ID()] = true
		f.mu.Lock()
		info, known := f.infos[s.ID()]
		if s.Running() && !f.going[s.ID()] {
			f.going[s.ID()] = true
			f.wg.Go(func() { f.follow(ctx, s, !publish) }) // ends with the keeper, or with ctx
		}
		f.mu.Unlock()
		if list[i] = info; known && s.Running() == (info.KeeperPID != 0) {
			continue
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			list[i], _ = s.Info(ctx)
			if list[i].KeeperPID == 0 { // it sleeps, and stays as it is
				f.mu.Lock()
				defer f.mu.Unlock()
				f.infos[s.ID()] = list[i]
			}
		})
	}
	wg.Wait()
	boxes := f.h.boxes(ctx)
	list = join(list, boxes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = map[[2]string]bool{}
	for _, b := range boxes {
		f.held[[2]string{b.Agent, b.Label}] = b.Live
	}
	for id := range f.infos {
		if !open[id] {
			delete(f.infos, id)
		}
	}
	now := map[[2]string]bool{}
	for _, info := range list {
		at := [2]string{info.Agent, info.Label}
		now[at] = true
		if f.shown[at] == info {
			continue
		}
		f.shown[at] = info
		if publish {
			f.w.publish("session", conch.SessionChange{Session: info, Commands: []conch.HistoryEntry{}, Processes: []conch.Process{},
				Queue: []conch.HistoryEntry{}, Forgotten: []conch.ProcessID{}})
		}
	}
	for at := range f.shown {
		if !now[at] {
			delete(f.shown, at)
			if publish {
				f.w.publish("closed", conch.SessionGone{Agent: at[0], Label: at[1]})
			}
		}
	}
}

// follow passes on what a keeper tells of its session. known is set for the first
// word, which tells listeners nothing new if they all came later.
func (f *follower) follow(ctx context.Context, s *session.Session, known bool) {
	err := s.Changes(ctx, func(c conch.SessionChange) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.infos[s.ID()] = c.Session
		at := [2]string{s.Agent(), s.Label()}
		// What mail knows of it comes from the last look; there is another when that
		// changes.
		shown := f.shown[at]
		c.Session.Mail, c.Session.Live = shown.Mail, c.Session.Live || f.held[at]
		if known && c.Session == shown {
			known = false
			return
		}
		known = false
		f.shown[at] = c.Session
		f.w.publish("session", c)
	})
	if err != nil && ctx.Err() == nil { // too old a keeper, or one that is on its way out
		select {
		case <-time.After(followAgain):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.going, s.ID())
	delete(f.infos, s.ID())
	f.w.stir()
}

// followMail passes on what happens to all mail.
func (f *follower) followMail(ctx context.Context, after int64) {
	err := f.h.Mail.Events(ctx, "", "", after, func(e conch.MailEvent) error {
		f.w.publish(e.Type, e)
		return nil
	}, func() error { return nil })
	if err != nil && ctx.Err() == nil && f.h.Log != nil {
		f.h.Log.Warn("mail is not followed", "op", "watch", "err", fmt.Sprint(err))
	}
}
