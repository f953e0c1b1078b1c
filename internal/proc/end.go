package proc

import (
	"context"
	"maps"
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
	// settleLimit bounds the wait for a process to be seen stopped: on a loaded machine it must
	// first get to run.
	settleLimit = time.Second
	// sleepLimit is the same for one that sleeps in the kernel (state D; the parent of a vfork,
	// too): it stops only when it wakes, and runs nothing of its own until then.
	sleepLimit = 20 * time.Millisecond
	// againAfter is when End first looks for those that its signal came too early for.
	againAfter = 20 * time.Millisecond
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
	if e.killed {
		e.signal = SignalName(syscall.SIGKILL)
	}
	return Report{Signal: e.signal, Processes: e.count, Verified: e.none()}
}

// target is a process to be ended.
type target struct {
	handle
	info
	frozen bool // sent SIGSTOP and not continued since
	struck bool // given this step's signal
	held   bool // kept stopped until its children are gone

	copied      bool   // when struck it was a copy of its parent, perhaps before an exec
	struckImage uint64 // its image then
}

type ender struct {
	find    func() []ID
	targets map[ID]*target // those not known to be gone
	signal  string
	killed  bool // some needed KILL whatever the step
	count   int
}

// step applies one step and reports whether nothing is left.
func (e *ender) step(ctx context.Context, s Step) bool {
	for _, t := range e.targets {
		t.struck = false
	}
	deadline := time.Now().Add(s.Wait)
	for {
		e.freeze()
		if len(e.targets) == 0 && e.none() {
			return true
		}
		for pause := againAfter; len(e.targets) > 0; {
			e.signal = SignalName(s.Signal)
			e.strike(s.Signal)
			left := time.Until(deadline)
			if left <= 0 || ctx.Err() != nil {
				return false
			}
			if !e.await(ctx, min(left, pause)) {
				e.again(s.Signal)
				pause *= 2
			}
		}
		// All known ones are gone; what they have left behind is found next.
		if time.Now().After(deadline) {
			return e.none()
		}
	}
}

// none asks twice, since a process can slip through one look at a moving table.
func (e *ender) none() bool {
	for range 2 {
		if slices.ContainsFunc(e.find(), func(id ID) bool { return !spared(id) && id.Alive() }) {
			return false
		}
	}
	return true
}

// spared are those that End does not touch whatever find says.
func spared(id ID) bool { return id.PID <= 1 || id.PID == os.Getpid() }

// freeze stops all that find finds until it finds nothing that is not stopped. Known targets that find
// does not give any more are still to be ended.
func (e *ender) freeze() {
	deadline := time.Now().Add(freezeLimit)
	for {
		for _, id := range e.find() {
			if e.targets[id] != nil || spared(id) {
				continue
			}
			if h, err := open(id); err == nil {
				e.targets[id] = &target{handle: h}
				e.count++
			}
		}
		var fresh []*target
		for _, t := range e.targets {
			if !t.frozen && e.look(t) {
				fresh = append(fresh, t)
			}
		}
		if len(fresh) == 0 {
			return
		}
		e.parentsFirst(fresh)
		e.settle(slices.DeleteFunc(fresh, func(t *target) bool {
			t.frozen = true
			return t.handle.signal(syscall.SIGSTOP) != nil // gone, or not ours to signal
		}))
		if time.Now().After(deadline) {
			return
		}
	}
}

// settle waits until all are seen stopped. A fork under way when SIGSTOP comes is completed, so
// only then is the set of children final. Nothing tells when a process that is
// not one's own child stops: this looks again, at first almost at once.
func (e *ender) settle(ts []*target) {
	start := time.Now()
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		since := time.Since(start)
		ts = slices.DeleteFunc(ts, func(t *target) bool {
			return !e.look(t) || t.info.stopped(t.id.PID) || t.info.state == 'D' && since > sleepLimit
		})
		if len(ts) == 0 || since > settleLimit {
			return
		}
		awaitExit(context.Background(), nil, pause)
	}
}

// await waits for exits and drops the targets that are gone. It reports whether there were any.
func (e *ender) await(ctx context.Context, limit time.Duration) bool {
	before := len(e.targets)
	ts := slices.Collect(maps.Values(e.targets))
	hs := make([]handle, len(ts))
	for i, t := range ts {
		hs[i] = t.handle
	}
	for _, i := range awaitExit(ctx, hs, limit) {
		e.look(ts[i])
	}
	return len(e.targets) < before
}

// again gives sig once more to those that were struck between fork and exec: until it has put its
// signals in order, the child of a shell has the shell's handlers, which drop INT, and then it is another program that
// has never heard of it.
func (e *ender) again(sig syscall.Signal) {
	for _, t := range e.targets {
		if t.copied && e.look(t) && t.info.image != t.struckImage {
			t.copied = false
			t.handle.signal(sig)
		}
	}
}

// look refreshes what is known of a target; if it is gone, it drops it and returns false.
func (e *ender) look(t *target) bool {
	in, err := look(t.id.PID)
	if err == nil && in.start == t.id.Start && in.alive() {
		t.info = in
		return true
	}
	if err != nil && err != syscall.ESRCH {
		return true // could not be read, for want of descriptors perhaps: no proof of death
	}
	t.close()
	delete(e.targets, t.id)
	return false
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
			e.killed = e.killed || extra == syscall.SIGKILL
		}
		t.struck = true
		up, err := look(t.ppid)
		t.copied = err == nil && up.image == t.info.image && up.image != 0
		t.struckImage = t.info.image
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
	if t.held && parent {
		return 0, true
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

// release continues what is still stopped and lets go of all.
func (e *ender) release() {
	for id, t := range e.targets {
		t.resume()
		t.close()
		delete(e.targets, id)
	}
}
