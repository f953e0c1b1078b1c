// Package doctor looks for what keeps conch from working well, and says what to
// do about it. It needs no daemon: it reads the home's files, tries what the
// system can do, and changes nothing. The daemon runs it for its clients; the
// command line runs it where no daemon answers.
package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/tape"
)

// A Check is one thing that was looked at. One that is OK may have a hint too:
// what could be better.
type Check = conch.Check

// Options say what to look at.
type Options struct {
	Home    string
	Version string
	// Socket is the daemon's own, where the daemon asks; empty: none answers.
	Socket string
	// Exe is conch, to try a sandbox with; empty: none is tried.
	Exe string
	// Deep reads every byte of every tape.
	Deep bool
}

// quickLimit and deepLimit bound an examination.
const (
	quickLimit = 20 * time.Second
	deepLimit  = 10 * time.Minute
)

// Examine looks at everything conch stands on.
func Examine(ctx context.Context, o Options) []Check {
	limit := quickLimit
	if o.Deep {
		limit = deepLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sessions, listErr := session.List(o.Home)
	checks := []func() Check{
		func() Check { return checkHome(o.Home) },
		func() Check { return checkPermissions(o.Home) },
		func() Check { return checkNetwork(o.Home) },
		func() Check { return checkConfig(o.Home) },
		func() Check { return checkLock(o) },
		func() Check { return checkSocket(o) },
		func() Check { return checkBash(ctx) },
		func() Check { return checkLogin(ctx, o.Home) },
		checkMarks, checkSubreaper, checkCgroup,
		func() Check { return checkSandbox(o.Exe) },
		func() Check { return checkMemory(o.Home) },
		func() Check { return checkSpace(o.Home) },
		func() Check { return checkClock(o.Home, sessions, time.Now()) },
		func() Check { return checkLeftovers(o, sessions) },
		func() Check { return checkSessions(sessions, listErr) },
		func() Check { return checkKeepers(o, sessions) },
		func() Check { return checkTapes(ctx, sessions, o.Deep) },
	}
	out := make([]Check, len(checks))
	var wg sync.WaitGroup // a slow login shell does not hold up the rest
	for i, f := range checks {
		wg.Go(func() { out[i] = f() })
	}
	wg.Wait()
	return slices.DeleteFunc(out, func(c Check) bool { return c.Name == "" })
}

// Good is a check that found nothing.
func Good(name, format string, args ...any) Check { return good(name, format, args...) }

// Bad is one that did; the hint says what to do.
func Bad(name, hint, format string, args ...any) Check { return bad(name, hint, format, args...) }

func good(name, format string, args ...any) Check {
	return Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, hint, format string, args ...any) Check {
	return Check{Name: name, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func checkHome(home string) Check {
	if _, err := os.Stat(home); os.IsNotExist(err) {
		return good("home", "%s is not there yet; the first command makes it", home)
	}
	f, err := os.CreateTemp(home, ".doctor-")
	if err != nil {
		return bad("home", "make it writable, or set CONCH_HOME to another directory", "%s: %v", home, err)
	}
	f.Close()
	os.Remove(f.Name())
	return good("home", "%s is writable", home)
}

// checkPermissions looks for what others could read or change.
func checkPermissions(home string) Check {
	var wrong, mend []string
	look := func(name string, forbidden os.FileMode, mode string) {
		path := filepath.Join(home, name)
		fi, err := os.Lstat(path)
		if err != nil {
			return
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
			wrong = append(wrong, path+" belongs to another user")
			mend = append(mend, "chown it")
		}
		if fi.Mode().Perm()&forbidden != 0 && fi.Mode()&os.ModeSymlink == 0 {
			wrong = append(wrong, fmt.Sprintf("%s has mode %v", path, fi.Mode().Perm()))
			mend = append(mend, "chmod "+mode+" "+path)
		}
	}
	look("", 0o022, "700")
	for _, d := range []string{"run", "sessions", "keys", "relay"} {
		look(d, 0o077, "700")
	}
	for _, f := range []string{"lock", "daemon.json", "daemon.log", "conch.db"} {
		look(f, 0o022, "600")
	}
	look(config.File, 0o022, "600")
	if len(wrong) > 0 {
		return bad("permissions", strings.Join(mend, "; "), "%s", strings.Join(wrong, "; "))
	}
	return good("permissions", "what is yours is only yours to change")
}

func checkNetwork(home string) Check {
	name, err := NetworkFS(existing(home))
	switch {
	case err != nil:
		return bad("filesystem", "", "%v", err)
	case name != "":
		return bad("filesystem", "set CONCH_HOME to a local directory", "%s is on a network file system (%s): locks and process numbers of another machine mean nothing here", home, name)
	}
	return good("filesystem", "local")
}

// existing is path, or the nearest directory above it that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

func checkConfig(home string) Check {
	c, err := config.Load(home, os.LookupEnv)
	if err != nil {
		e := conch.AsError(err)
		return bad("config", e.HintText, "%s", e.Message)
	}
	var set []string
	for _, k := range config.Keys() {
		if src := c.Source(k.Name); src != "default" {
			set = append(set, fmt.Sprintf("%s = %s", k.Name, c.Shown(k)))
		}
	}
	if len(set) == 0 {
		return good("config", "nothing is set; the defaults hold")
	}
	return good("config", "%s", strings.Join(set, ", "))
}

// checkLock proves that the lock file on disk is the one the daemon holds:
// whoever removes it lets a second daemon in. Only the daemon may try.
func checkLock(o Options) Check {
	if o.Socket == "" {
		return Check{}
	}
	path := filepath.Join(o.Home, "lock")
	l, err := session.TryLock(path)
	if session.Held(err) {
		return good("lock", "held")
	}
	if err != nil {
		return bad("lock", "", "%v", err)
	}
	l.Unlock()
	return bad("lock", "conch down, then any command starts a daemon that holds it", "nobody holds %s: it was removed and made again", path)
}

func checkSocket(o Options) Check {
	if o.Socket == "" {
		return Check{}
	}
	fi, err := os.Lstat(o.Socket)
	if err != nil {
		return bad("socket", "conch down, then any command makes it again", "%v", err)
	}
	if fi.Mode().Perm() != 0o600 {
		return bad("socket", "chmod 600 "+o.Socket, "%s has mode %v", o.Socket, fi.Mode().Perm())
	}
	return good("socket", "%s", o.Socket)
}

// checkMemory looks for a file system in memory for commands and FIFOs.
func checkMemory(home string) Check {
	dir := sock.MemoryPath(home)
	parent := filepath.Dir(dir)
	fi, err := os.Lstat(dir)
	switch {
	case err == nil && (!fi.IsDir() || fi.Mode().Perm() != 0o700):
		return bad("memory", "remove it, or make it a directory of yours with mode 700: run files go to the disk until then", "%s is %v", dir, fi.Mode())
	case err == nil:
		return good("memory", "%s", dir)
	}
	if _, err := os.Stat(parent); err != nil {
		c := good("memory", "run files go to the disk: %v", err)
		c.Hint = "a /dev/shm makes commands start faster"
		return c
	}
	return good("memory", "%s, made when it is needed", dir)
}

// checkClock compares the clock with what was written last.
func checkClock(home string, sessions []session.Found, now time.Time) Check {
	const hint = "set the clock; times in history and on tapes are wrong from here on, and files look younger than they are"
	if now.Year() < 2025 {
		return bad("clock", hint, "it is %s, before conch was written", now.UTC().Format(time.RFC3339))
	}
	var last time.Time
	var where string
	paths := []string{filepath.Join(home, "daemon.log")}
	for _, s := range sessions {
		segs, _ := filepath.Glob(filepath.Join(s.Tape(), "*"))
		paths = append(paths, segs...)
	}
	for _, p := range paths {
		if fi, err := os.Stat(p); err == nil && fi.ModTime().After(last) {
			last, where = fi.ModTime(), p
		}
	}
	if ahead := last.Sub(now); ahead > time.Minute {
		return bad("clock", hint, "%s was written %v in the future: the clock went back", where, ahead.Round(time.Second))
	}
	return good("clock", "%s", now.UTC().Format(time.RFC3339))
}

// checkLeftovers looks for run files whose session is not open.
func checkLeftovers(o Options, sessions []session.Found) Check {
	open := map[string]bool{}
	for _, s := range sessions {
		if s.Spec.ClosedAt == nil {
			open[s.ID] = true
		}
	}
	daemon := o.Socket
	if daemon == "" {
		daemon, _ = sock.Path(o.Home, "d.sock") // one that was killed left it; the next takes it
	}
	var left []string
	for _, dir := range []string{filepath.Join(o.Home, "run"), sock.MemoryPath(o.Home)} {
		ents, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range ents {
			path := filepath.Join(dir, e.Name())
			id := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".sock"), ".d")
			if path != daemon && !open[id] {
				left = append(left, path)
			}
		}
	}
	if len(left) > 0 {
		return bad("leftovers", "they belong to no open session and may be removed", "%s", strings.Join(left, ", "))
	}
	return good("leftovers", "none")
}

// checkSessions names directories that cannot be read as sessions.
func checkSessions(sessions []session.Found, err error) Check {
	if err != nil {
		return bad("sessions", "make it readable", "%v", err)
	}
	open, closed := 0, 0
	var wrong []string
	for _, s := range sessions {
		switch {
		case s.Err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", s.Dir, s.Err))
		case s.Spec.ClosedAt == nil:
			open++
		default:
			closed++
		}
	}
	if len(wrong) > 0 {
		return bad("sessions", "conch leaves these alone: put spec.json back from a backup, or remove the directory", "%s", strings.Join(wrong, "; "))
	}
	return good("sessions", "%d open, %d closed", open, closed)
}

// checkKeepers looks at the processes that hold sessions.
func checkKeepers(o Options, sessions []session.Found) Check {
	running := 0
	var older, wrong, mend []string
	say := func(hint, format string, args ...any) {
		wrong, mend = append(wrong, fmt.Sprintf(format, args...)), append(mend, hint)
	}
	for _, s := range sessions {
		k := s.Keeper
		if k == nil || s.Spec.ClosedAt != nil {
			continue
		}
		if !s.Alive() {
			if o.Socket == "" {
				say("conch up, or any command, ends what it left and starts the session again from its checkpoint", "the keeper of session %s (process %d) is dead", s.Spec.Label, k.PID)
			} else if stillThere(s) {
				say("conch close "+s.Spec.Label+" ends it; conch down and conch up sweep again", "the keeper of session %s (process %d) is dead and was not swept", s.Spec.Label, k.PID)
			}
			continue
		}
		running++
		switch st, err := proc.State(k.PID); {
		case err == nil && (st == 'T' || st == 't'):
			say(fmt.Sprintf("kill -CONT %d has it go on", k.PID), "the keeper of session %s (process %d) is stopped", s.Spec.Label, k.PID)
		case !conch.Speaks(k.Protocol):
			say("conch close "+s.Spec.Label+" ends it; its commands run on until then", "session %s has a keeper of protocol %d (conch %s), which this conch (%d to %d) cannot talk to",
				s.Spec.Label, k.Protocol, k.Version, conch.OldestProtocol, conch.ProtocolVersion)
		case k.Version != o.Version:
			older = append(older, s.Spec.Label+" ("+k.Version+")")
		}
	}
	if len(wrong) > 0 {
		slices.Sort(mend)
		return bad("keepers", strings.Join(slices.Compact(mend), "; "), "%d; %s", running, strings.Join(wrong, "; "))
	}
	if len(older) > 0 {
		c := good("keepers", "%d; of another version: %s", running, strings.Join(older, ", "))
		c.Hint = "they work; a session that is closed and made again gets this version"
		return c
	}
	return good("keepers", "%d", running)
}

// sweepTime is what the daemon's sweep after a dead keeper may take.
const sweepTime = 2 * time.Second

// stillThere reports whether a dead keeper's record stays: the daemon removes
// it within moments.
func stillThere(s session.Found) bool {
	path := filepath.Join(s.Dir, "keeper.json")
	for end := time.Now().Add(sweepTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), fmt.Sprintf(`"pid":%d`, s.Keeper.PID)) {
			return false
		}
	}
	return true
}

// checkTapes looks for damage in the tapes of open sessions, or of all.
func checkTapes(ctx context.Context, sessions []session.Found, deep bool) Check {
	looked, torn := 0, 0
	var bytes int64
	var wrong []string
	for _, s := range sessions {
		if s.Err != nil || !deep && s.Spec.ClosedAt != nil {
			continue
		}
		if ctx.Err() != nil {
			wrong = append(wrong, fmt.Sprintf("%d of %d were not looked at: it took too long", len(sessions)-looked, len(sessions)))
			break
		}
		rep, err := checkTape(s, deep)
		looked++
		bytes += rep.Bytes
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("session %s: %v", s.Spec.Label, err))
		case len(rep.Damaged) > 0:
			wrong = append(wrong, fmt.Sprintf("session %s: %s", s.Spec.Label, strings.Join(rep.Damaged, ", ")))
		case rep.Torn > 0:
			torn++
		}
	}
	how := "beginning and end of"
	if deep {
		how = "every byte of"
	}
	if len(wrong) > 0 {
		return bad("tapes", "the rest of the tape can be read; what is damaged is reported as such. A disk that changes bytes will change more: back up, and look at the system's log", "%s", strings.Join(wrong, "; "))
	}
	c := good("tapes", "looked at %s %d", how, looked)
	if torn > 0 {
		c.Detail += fmt.Sprintf("; %d with an unfinished write at the end, which is cut when the session starts again", torn)
	}
	if !deep {
		c.Hint = ""
	}
	return c
}

// checkTape looks again if the end is not whole while somebody writes.
func checkTape(s session.Found, deep bool) (tape.Report, error) {
	for try := 0; ; try++ {
		rep, err := tape.Check(s.Tape(), deep)
		if err != nil || rep.Torn == 0 || !s.Alive() || try == 5 {
			if rep.Torn > 0 && s.Alive() && err == nil {
				rep.Damaged = append(rep.Damaged, fmt.Sprintf("the last %d bytes are not whole frames", rep.Torn))
			}
			return rep, err
		}
		time.Sleep(20 * time.Millisecond) // a write is under way
	}
}
