package proc

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"
)

// Step is one rung of the ladder: the signal, and how long to wait for it to work.
type Step struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// Report says what [End] did.
type Report struct {
	Signal    string // the last signal that was needed, such as "SIGTERM"; empty if nothing was there
	Processes int    // how many were found in all
	Verified  bool   // find, asked again at the end, found none
}

// shells are the programs that run a next command when a child is gone.
var shells = []string{"bash", "sh", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "yash", "fish", "busybox", "rbash", "posh"}

const (
	// freezeLimit bounds how long End chases processes that fork as fast as they are stopped.
	freezeLimit = 500 * time.Millisecond
	// settleLimit bounds the wait for a stopped process to be seen stopped. One that
	// sleeps in the kernel (state D; the parent of a vfork, too) stops only when it wakes, and
	// runs nothing of its own until then.
	settleLimit = 20 * time.Millisecond
	// lastWait is for a last step that gives no time: a killed process still needs some to go.
	lastWait = 2 * time.Second
)

// End ends all processes that find finds, by the steps given, the last of which should be SIGKILL.
// find is called again and again and must give living processes; the caller itself is left alone.
//
// Each step stops (SIGSTOP) everything, parents first, and asks find again until nothing new turns
// up and all have really stopped; then gives each its signal, lets it continue, children before
// parents, and waits. So no parent sees the death of a child before its own signal is pending. For most programs that is
// enough, but a parent may be made to outlive the signal and to go on after its child:
// bash drops INT when the child it waits for has caught INT and exited, and system(3) ignores INT. Such
// a parent, a shell or one that ignores the signal, stays stopped until its children are
// gone. Then it gets the signal alone only if each child was ended by that very signal, as the rule
// of these shells is to follow then; otherwise TERM as well, or KILL if it ignores TERM. What a
// script does in a trap of its own is its decision.
//
// A process that was stopped before is continued like the others, that it may act on the signal.
// What a dying process starts gets the step's signal too.
//
// When ctx ends, the waiting does: the last step follows at once and keeps its own time. Nothing is left stopped.
func End(ctx context.Context, find func() []ID, steps []Step) Report {
	e := &ender{find: find, targets: make(map[ID]*target)}
	defer e.release()
	for i, s := range steps {
		last := i == len(steps)-1
		if ctx.Err() != nil && !last {
			continue
		}
		if last {
			ctx = context.WithoutCancel(ctx)
			if s.Wait <= 0 {
				s.Wait = lastWait
			}
		}
		if e.step(ctx, s) {
			break
		}
	}
	return Report{Signal: e.signal, Processes: e.count, Verified: e.none()}
}

// target is a process to be ended.
type target struct {
	handle
	info
	frozen  bool // sent SIGSTOP and not continued since
	settled bool // seen stopped since
	struck  bool // given this step's signal
	held    bool // kept stopped until its children are gone
}

type ender struct {
	find    func() []ID
	targets map[ID]*target // those not known to be gone
	signal  string
	count   int
}

// step applies one step and reports whether nothing is left.
func (e *ender) step(ctx context.Context, s Step) bool {
	for _, t := range e.targets {
		t.struck = false
	}
	deadline := time.Now().Add(s.Wait)
	for {
		e.freeze(ctx)
		if len(e.targets) == 0 {
			if e.none() {
				return true
			}
			if time.Now().After(deadline) {
				return false
			}
			continue
		}
		e.signal = SignalName(s.Signal)
		for {
			e.strike(s.Signal)
			if e.look(); len(e.targets) == 0 {
				break
			}
			left := time.Until(deadline)
			if left <= 0 || ctx.Err() != nil {
				return false
			}
			awaitExit(ctx, e.handles(), left)
			e.look()
		}
		// All known ones are gone; what they have left behind is found next.
		if time.Now().After(deadline) {
			return e.none()
		}
	}
}

// none asks twice, since a process can slip through one look at a moving table.
func (e *ender) none() bool {
	return len(e.living()) == 0 && len(e.living()) == 0
}

// living is what find finds, less the caller and what is dead.
func (e *ender) living() []ID {
	self := os.Getpid()
	return slices.DeleteFunc(slices.Clone(e.find()), func(id ID) bool {
		return id.PID == self || id.PID <= 1 || !id.Alive()
	})
}

// freeze stops all that find finds until it finds nothing that is not stopped.
func (e *ender) freeze(ctx context.Context) {
	deadline := time.Now().Add(freezeLimit)
	for {
		var fresh []*target
		for _, id := range e.living() {
			t := e.targets[id]
			if t == nil {
				h, err := open(id)
				if err != nil {
					continue
				}
				t = &target{handle: h}
				e.targets[id] = t
				e.count++
			}
			if !t.frozen {
				fresh = append(fresh, t)
			}
		}
		// Known ones that find does not give any more are still ours to end.
		e.look()
		for _, t := range e.targets {
			if !t.frozen && !slices.Contains(fresh, t) {
				fresh = append(fresh, t)
			}
		}
		if len(fresh) == 0 {
			return
		}
		e.parentsFirst(fresh)
		for _, t := range fresh {
			t.handle.signal(syscall.SIGSTOP) // an error: gone, or not ours to signal
			t.frozen, t.settled = true, false
		}
		e.settle(ctx)
		if time.Now().After(deadline) {
			return
		}
	}
}

// settle waits until all are seen stopped. A fork under way when SIGSTOP comes is completed, so
// only then is the set of children final. Nothing tells when a process that is
// not one's own child stops: this looks again, at first without a pause.
func (e *ender) settle(ctx context.Context) {
	start := time.Now()
	pause := 20 * time.Microsecond
	for {
		e.look()
		waiting := false
		for _, t := range e.targets {
			t.settled = t.settled || !t.frozen || t.info.stopped(t.id.PID)
			waiting = waiting || !t.settled
		}
		if !waiting || time.Since(start) > settleLimit {
			return
		}
		awaitExit(context.WithoutCancel(ctx), nil, pause)
		pause = min(2*pause, time.Millisecond)
	}
}

// look refreshes what is known of the targets and drops the dead.
func (e *ender) look() {
	for id, t := range e.targets {
		in, err := look(id.PID)
		if err == nil && in.start == id.Start && in.alive() {
			t.info = in
			continue
		}
		if err != nil && err != syscall.ESRCH {
			continue // could not be read (descriptors used up): not a proof of death
		}
		t.close()
		delete(e.targets, id)
	}
}

// strike gives sig to the targets that have not had it and continues them, children first; held parents wait for a later call.
func (e *ender) strike(sig syscall.Signal) {
	var order []*target
	parent := make(map[int]bool) // of a living target
	for _, t := range e.targets {
		parent[t.ppid] = true
		if !t.struck {
			order = append(order, t)
		}
	}
	e.parentsFirst(order)
	slices.Reverse(order)
	var ready []*target
	for _, t := range order {
		extra, hold := e.extra(t, sig, parent[t.id.PID])
		if hold {
			t.held = true
			continue
		}
		t.handle.signal(sig)
		if extra != 0 {
			t.handle.signal(extra)
		}
		t.struck = true
		ready = append(ready, t)
	}
	for _, t := range ready {
		t.resume()
	}
}

// extra decides what a target gets besides sig, and whether it must wait for its children first.
func (e *ender) extra(t *target, sig syscall.Signal, parent bool) (extra syscall.Signal, hold bool) {
	if sig == syscall.SIGKILL {
		return 0, false
	}
	pid := t.id.PID
	ignored := ignores(pid, sig)
	if !ignored && !slices.Contains(shells, program(pid)) {
		return 0, false
	}
	if parent {
		return 0, true
	}
	// It was stopped while its children went, so they are still there as zombies.
	follows, zombies := true, 0
	for _, kid := range Children(pid) {
		in, err := look(kid)
		if err != nil || in.alive() {
			continue
		}
		zombies++
		if !in.wait.Signaled() || in.wait.Signal() != sig {
			follows = false
		}
	}
	switch {
	case zombies == 0 && !t.held, follows && zombies > 0 && !ignored:
		return 0, false
	case ignores(pid, syscall.SIGTERM):
		return syscall.SIGKILL, false
	case sig == syscall.SIGTERM:
		return 0, false
	}
	return syscall.SIGTERM, false
}

func (t *target) resume() {
	if t.frozen {
		t.handle.signal(syscall.SIGCONT)
		t.frozen, t.held = false, false
	}
}

// parentsFirst sorts by the distance from the top of the tree that the targets form.
func (e *ender) parentsFirst(ts []*target) {
	byPID := make(map[int]*target, len(e.targets))
	for id, t := range e.targets {
		byPID[id.PID] = t
	}
	depths := make(map[*target]int, len(ts))
	for _, t := range ts {
		depth := 0
		// The bound is for a circle that stale parents could make.
		for up := byPID[t.ppid]; up != nil && depth < len(byPID); up = byPID[up.ppid] {
			depth++
		}
		depths[t] = depth
	}
	slices.SortStableFunc(ts, func(a, b *target) int { return depths[a] - depths[b] })
}

func (e *ender) handles() []handle {
	hs := make([]handle, 0, len(e.targets))
	for _, t := range e.targets {
		hs = append(hs, t.handle)
	}
	return hs
}

// release continues what is still stopped and lets go of all.
func (e *ender) release() {
	for id, t := range e.targets {
		t.resume()
		t.close()
		delete(e.targets, id)
	}
}
