package tape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxBytes     = 4 << 30
	defaultSegmentBytes = 64 << 20
	keptStubs           = 256     // headers of dropped segments
	keptBuffer          = 1 << 20 // larger buffers are not kept
	maxUnsynced         = 16      // sealed segments that wait for Sync
)

// Options of a tape. A zero field means its default.
type Options struct {
	// MaxBytes limits the tape on disk, 4 GiB by default: the oldest segments
	// are dropped. Only a single batch larger than that exceeds it.
	MaxBytes int64
	// SegmentBytes is when a new segment is begun, 64 MiB by default and never
	// more than a quarter of MaxBytes. A batch is never split.
	SegmentBytes int64
}

// A Tape is the writer's end. Lock order: wmu, then mu.
type Tape struct {
	dir string
	opt Options

	// wmu is held while writing, so that mu, which readers need, never waits
	// for the disk.
	wmu      sync.Mutex
	file     *os.File // the last segment; nil when closed
	seq      uint64   // of the next frame
	buf      []byte
	cut      bool // a failed write may have left bytes after the end
	writeAt  func(f *os.File, b []byte, off int64) (int, error)
	unsynced []*os.File // sealed segments that were not synced, oldest first
	dirty    bool       // something was written since the last Sync
	newFiles bool       // the directory changed since the last Sync

	mu     sync.Mutex
	segs   []segment // never empty; the last is being written
	total  int64     // bytes of all segments that were not dropped
	closed bool
	wake   chan struct{} // closed at the next change of the end; nil: nobody waits

	// oldest is the number of the first segment not dropped. It moves before
	// the file is cut, so that a reader that finds it unmoved after a read
	// knows that what it read was whole.
	oldest atomic.Uint32
}

// Open opens the tape in dir for writing, making it if there is none. What a
// crash left of an unfinished write is cut off.
func Open(dir string, o Options) (*Tape, error) {
	t, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	return t, nil
}

func open(dir string, o Options) (*Tape, error) {
	if o.MaxBytes < 0 || o.SegmentBytes < 0 {
		return nil, errors.New("negative size limit")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	o.SegmentBytes = min(o.SegmentBytes, max(o.MaxBytes/4, 1))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	t := &Tape{dir: dir, opt: o, writeAt: (*os.File).WriteAt}
	segs, damaged, err := readSegments(dir)
	if err != nil {
		return nil, err
	}
	// A segment that died at birth has no frames.
	for damaged && segs[len(segs)-1].size <= segmentHeader {
		last := len(segs) - 1
		if err := os.Remove(segmentPath(dir, segs[last].num)); err != nil {
			return nil, err
		}
		segs = segs[:last]
		damaged = last > 0 && segs[last-1].first == 0
	}
	if len(segs) == 0 {
		s := segment{num: 1, first: 1, size: segmentHeader}
		if t.file, err = t.create(s); err != nil {
			return nil, err
		}
		t.segs, t.seq = []segment{s}, 1
	} else if err := t.adopt(segs, damaged); err != nil {
		return nil, err
	}
	for i, s := range t.segs {
		if live := s.size > segmentHeader || i == len(t.segs)-1; live {
			if t.total == 0 {
				t.oldest.Store(s.num)
			}
			t.total += s.size
		}
	}
	// What was made or cut here waits for the first Sync: a crash before that
	// only makes the next Open do it again.
	return t, nil
}

// adopt goes on with the last of segs, which may need its tail cut or its header
// written again.
func (t *Tape) adopt(segs []segment, damaged bool) error {
	s := &segs[len(segs)-1]
	end, first, next, err := scan(t.dir, *s)
	if err != nil {
		return err
	}
	// A damaged header over no frames: the segment before has the number.
	for i := len(segs) - 2; i >= 0 && next == 0; i-- {
		if _, _, next, err = scan(t.dir, segs[i]); err != nil {
			return err
		}
	}
	next = max(next, 1)
	f, err := os.OpenFile(segmentPath(t.dir, s.num), os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	for err == nil && fi.Size() > end {
		d, found, ferr := findDamage(f, end, fi.Size(), next)
		if err = ferr; err != nil {
			break
		}
		t.dirty = true
		if !found { // an unfinished write
			err = f.Truncate(end)
			break
		}
		if err = d.mend(t.dir, s.num, f); err == nil {
			end, first, next, err = scan(t.dir, *s)
		}
	}
	s.size = end
	if err == nil && damaged {
		t.dirty = true
		if s.first = first; first == 0 {
			s.first = next
		}
		_, err = f.WriteAt(s.encode(), 0)
	}
	if err != nil {
		f.Close()
		return err
	}
	t.segs, t.seq, t.file = segs, next, f
	return nil
}

// create makes a segment file.
func (t *Tape) create(s segment) (*os.File, error) {
	// A file that is there is the left-over of a create that failed.
	f, err := os.OpenFile(segmentPath(t.dir, s.num), os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := t.writeAt(f, s.encode(), 0); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	t.dirty, t.newFiles = true, true
	return f, nil
}

// Append writes frames, all or none, with one write. It gives them their
// sequence numbers and, where Time is 0, the time; both are set in frames. The
// cursor is that of the first frame; a following frame is HeaderSize and the
// data of the one before further on. After an error nothing has changed and
// Append may be tried again.
func (t *Tape) Append(frames ...Frame) (Cursor, error) {
	need := int64(0)
	for i := range frames {
		if len(frames[i].Data) > MaxData {
			return Cursor{}, ErrTooLarge
		}
		if frames[i].Kind == 0 {
			return Cursor{}, errors.New("tape: frame without a kind")
		}
		need += HeaderSize + int64(len(frames[i].Data))
	}
	t.wmu.Lock()
	defer t.wmu.Unlock()
	if t.file == nil {
		return Cursor{}, ErrClosed
	}
	if need == 0 {
		return t.End(), nil
	}
	if err := t.makeRoom(need); err != nil {
		return Cursor{}, fmt.Errorf("tape: append: %w", err)
	}

	if int64(cap(t.buf)) < need {
		t.buf = make([]byte, 0, max(need, 4096))
	}
	b, now := t.buf[:0], int64(0)
	for i := range frames {
		f := &frames[i]
		if f.Time == 0 {
			if now == 0 {
				now = time.Now().UnixNano()
			}
			f.Time = now
		}
		f.Seq = t.seq + uint64(i)
		b = AppendFrame(b, *f)
	}
	if cap(t.buf) > keptBuffer {
		t.buf = nil
	}

	at := t.segs[len(t.segs)-1] // only written under wmu
	if _, err := t.writeAt(t.file, b, at.size); err != nil {
		t.cut = true
		t.cutBack() // if this fails the next Append tries again
		return Cursor{}, fmt.Errorf("tape: append: %w", err)
	}
	t.dirty = true
	t.seq += uint64(len(frames))
	t.mu.Lock()
	t.segs[len(t.segs)-1].size += need
	t.total += need
	t.wakeLocked()
	t.mu.Unlock()
	return Cursor{at.num, at.size}, nil
}

// makeRoom sees to it that need bytes can be written at the end of the last
// segment: it begins a new one if this one is full and drops the oldest.
func (t *Tape) makeRoom(need int64) error {
	if err := t.cutBack(); err != nil {
		return err
	}
	last := t.segs[len(t.segs)-1]
	if last.size > segmentHeader && last.size-segmentHeader+need > t.opt.SegmentBytes {
		if err := t.roll(last); err != nil {
			return err
		}
	}
	for t.total+need > t.opt.MaxBytes && t.oldest.Load() != t.segs[len(t.segs)-1].num {
		if err := t.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// cutBack removes what a failed write left after the end. Until that is done
// nothing may be written: remains behind a shorter frame could pass for frames.
func (t *Tape) cutBack() error {
	if !t.cut {
		return nil
	}
	if err := t.file.Truncate(t.segs[len(t.segs)-1].size); err != nil {
		return err
	}
	t.cut = false
	return nil
}

func (t *Tape) roll(last segment) error {
	s := segment{num: last.num + 1, first: t.seq, base: last.end(), size: segmentHeader}
	f, err := t.create(s)
	if err != nil {
		return err
	}
	// Syncing takes long and is Sync's work, but descriptors are not endless.
	t.unsynced = append(t.unsynced, t.file)
	t.file = f
	if len(t.unsynced) > maxUnsynced {
		err = syncAndClose(t.unsynced)
		t.unsynced = nil
	}
	t.mu.Lock()
	t.segs = append(t.segs, s)
	t.total += s.size
	t.wakeLocked()
	t.mu.Unlock()
	return err
}

// dropOldest cuts the oldest segment down to its header.
func (t *Tape) dropOldest() error {
	oldest := t.oldest.Load()
	i := slices.IndexFunc(t.segs, func(s segment) bool { return s.num == oldest })
	next := i + 1
	for t.segs[next].size <= segmentHeader && next < len(t.segs)-1 {
		next++
	}
	t.oldest.Store(t.segs[next].num)
	if err := os.Truncate(segmentPath(t.dir, oldest), segmentHeader); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.oldest.Store(oldest)
		return err
	}
	t.mu.Lock()
	t.total -= t.segs[i].size
	t.segs[i].size = segmentHeader
	var forgotten []segment
	if n := next - keptStubs; n > 0 {
		forgotten = slices.Clone(t.segs[:n])
		t.segs = slices.Delete(t.segs, 0, n)
	}
	t.mu.Unlock()
	for _, s := range forgotten {
		os.Remove(segmentPath(t.dir, s.num)) // if it stays, the next drop after an Open removes it
	}
	return nil
}

func (t *Tape) wakeLocked() {
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// End is the cursor after the last frame.
func (t *Tape) End() Cursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked()
}

func (t *Tape) endLocked() Cursor {
	s := t.segs[len(t.segs)-1]
	return Cursor{s.num, s.size}
}

// Oldest is the cursor of the oldest frame that was not dropped. A reader
// that starts there is not told of a gap.
func (t *Tape) Oldest() Cursor { return Cursor{t.oldest.Load(), segmentHeader} }

// Size is the number of bytes the tape takes on disk, dropped segments not
// counted.
func (t *Tape) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// Wait returns nil when End is not, or no longer, after. It returns ErrClosed if
// the tape is closed and nothing came, and the context's cause if that ends.
func (t *Tape) Wait(ctx context.Context, after Cursor) error {
	for {
		t.mu.Lock()
		if t.endLocked() != after {
			t.mu.Unlock()
			return nil
		}
		if t.closed {
			t.mu.Unlock()
			return ErrClosed
		}
		if t.wake == nil {
			t.wake = make(chan struct{})
		}
		wake := t.wake
		t.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Sync makes all that was appended before it survive a crash of the machine.
// Appends go on meanwhile. It does nothing if nothing was written since the last.
func (t *Tape) Sync() error {
	t.wmu.Lock()
	if t.file == nil {
		t.wmu.Unlock()
		return ErrClosed
	}
	if !t.dirty && len(t.unsynced) == 0 {
		t.wmu.Unlock()
		return nil
	}
	file, sealed, newFiles := t.file, t.unsynced, t.newFiles
	t.unsynced, t.dirty, t.newFiles = nil, false, false
	t.wmu.Unlock()

	err := syncAndClose(sealed)
	// Closed meanwhile: whoever closed it has synced it.
	if err2 := file.Sync(); err2 != nil && !errors.Is(err2, os.ErrClosed) {
		err = errors.Join(err, err2)
	}
	if newFiles {
		err = errors.Join(err, syncDir(t.dir))
	}
	if err != nil {
		t.wmu.Lock()
		t.dirty, t.newFiles = true, t.newFiles || newFiles
		t.wmu.Unlock()
		return fmt.Errorf("tape: sync: %w", err)
	}
	return nil
}

func syncAndClose(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Sync(), f.Close())
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close syncs and closes the tape. Whoever waits gets ErrClosed; readers stay
// usable. A second Close does nothing.
func (t *Tape) Close() error {
	t.wmu.Lock()
	defer t.wmu.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.cutBack()
	err = errors.Join(err, syncAndClose(append(t.unsynced, t.file)))
	if t.newFiles {
		err = errors.Join(err, syncDir(t.dir))
	}
	t.file, t.unsynced, t.buf = nil, nil, nil
	t.mu.Lock()
	t.closed = true
	t.wakeLocked()
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("tape: close: %w", err)
	}
	return nil
}
