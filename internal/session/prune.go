package session

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/conchsh/conch/internal/fault"
)

// trash begins the name of a directory that is being removed, so that what is
// half gone is never read as a session.
const trash = ".removed-"

// A Policy says which closed sessions go. The zero Policy: all of them.
type Policy struct {
	OlderThan time.Duration // those closed at least this long ago
	Keep      int           // but not the N closed last
	// MaxBytes, above zero, has the oldest go until the rest takes no more
	// than this.
	MaxBytes int64
}

// Prune removes the directories of all closed sessions.
func (st *Store) Prune() (removed int, bytes int64, err error) {
	return st.PruneBy(Policy{}, time.Now())
}

// PruneBy removes the directories of closed sessions that p names, tapes
// included, and says how many there were and how much their files held. What
// cannot be removed stays a closed session.
func (st *Store) PruneBy(p Policy, now time.Time) (removed int, bytes int64, err error) {
	var errs []error
	for _, c := range st.claim(p, now) {
		id := c.spec.ID
		gone := filepath.Join(st.home, "sessions", trash+id)
		err := os.Rename(st.dir(id), gone)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody else has removed it
		}
		if err != nil {
			errs = append(errs, err)
			st.mu.Lock()
			st.closed[id] = c.spec
			st.mu.Unlock()
			continue
		}
		fault.Point("prune.renamed")
		removed++
		bytes += c.size
		if err := os.RemoveAll(gone); err != nil {
			errs = append(errs, err) // no session any more; the next start tries again
		}
	}
	st.Tidy()
	return removed, bytes, errors.Join(errs...)
}

// candidate is a closed session and what it takes.
type candidate struct {
	spec Spec
	size int64
}

// claim takes those that p names out of the closed sessions, the oldest first.
func (st *Store) claim(p Policy, now time.Time) []candidate {
	st.mu.Lock()
	list := make([]candidate, 0, len(st.closed))
	for _, spec := range st.closed {
		list = append(list, candidate{spec: spec})
	}
	st.mu.Unlock()
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(a.spec.ClosedAt.Compare(*b.spec.ClosedAt), cmp.Compare(a.spec.ID, b.spec.ID))
	})
	total := int64(0)
	for i := range list {
		list[i].size = treeSize(st.dir(list[i].spec.ID))
		total += list[i].size
	}
	room := p.MaxBytes
	if room <= 0 {
		room = math.MinInt64 // whatever they take is too much
	}
	var out []candidate
	for _, c := range list[:max(0, len(list)-p.Keep)] {
		if p.OlderThan > 0 && now.Sub(*c.spec.ClosedAt) < p.OlderThan || total <= room {
			continue
		}
		st.mu.Lock()
		_, still := st.closed[c.spec.ID]
		delete(st.closed, c.spec.ID)
		st.mu.Unlock()
		if still {
			total -= c.size
			out = append(out, c)
		}
	}
	return out
}

// LastUsed is when the session last did something, as far as its files tell.
func (s *Session) LastUsed() time.Time {
	last := s.spec.CreatedAt
	paths, _ := filepath.Glob(filepath.Join(s.dir, tapeDir, "*"))
	for _, p := range append(paths, filepath.Join(s.dir, "checkpoint")) {
		if fi, err := os.Stat(p); err == nil && fi.ModTime().After(last) {
			last = fi.ModTime()
		}
	}
	return last.UTC()
}

// CloseAsleep closes the session unless it has a keeper by now. It reports
// whether it did.
func (s *Session) CloseAsleep(ctx context.Context) (bool, error) {
	if err := s.acquire(ctx); err != nil {
		return false, err
	}
	defer s.release()
	if s.gone || s.link.Load() != nil {
		return false, nil
	}
	_, err := s.close(context.WithoutCancel(ctx))
	return err == nil, err
}
