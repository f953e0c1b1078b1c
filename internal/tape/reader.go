package tape

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"time"
)

const (
	readAhead      = 256 << 10
	headerAheadMin = 4 << 10
	headerAheadMax = 64 << 10
)

// A Reader reads a tape from a cursor on. It is used by one goroutine at a time.
type Reader struct {
	dir  string
	tape *Tape     // nil: nobody writes
	segs []segment // without a tape: what was there when it was opened

	cur     Cursor // of the next frame
	pos     int64  // the same in bytes of frames since the tape began, while no file is open; -1: unknown
	nextSeq uint64 // of the next frame; 0: unknown

	file  *os.File // of segment cur.Segment; nil: not opened yet
	seg   segment  // of file, as of its opening
	limit int64    // frames of file end here, as far as is known

	buf    []byte // what file has at bufOff
	bufOff int64
	ahead  int64 // how much NextHeader reads

	gap []byte // a Gap frame to be returned before cur, in the call that finds it
	err error  // stays until Skip or Close
}

// NewReader returns a reader of the tape as it is being written. A cursor that
// is no place on the tape is an error of the first read.
func (t *Tape) NewReader(from Cursor) *Reader {
	return &Reader{dir: t.dir, tape: t, cur: from, pos: -1}
}

// OpenReader returns a reader of a tape that nobody writes. It changes nothing
// in dir: an unfinished write at the end, which Open would cut, is where
// reading ends.
func OpenReader(dir string, from Cursor) (*Reader, error) {
	segs, damaged, err := readSegments(dir)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	if damaged && segs[len(segs)-1].size <= segmentHeader {
		segs = segs[:len(segs)-1]
	}
	return &Reader{dir: dir, segs: segs, cur: from, pos: -1}, nil
}

// Cursor is where the next frame will be read. A reader opened there goes on
// without loss or repetition. After io.EOF it is the End that Wait wants.
func (r *Reader) Cursor() Cursor { return r.cur }

// Close releases the reader's file.
func (r *Reader) Close() error {
	r.leave()
	r.buf, r.gap = nil, nil
	r.err = os.ErrClosed
	return nil
}

// Next returns the next frame. Its Data is valid until the next call. The error
// is io.EOF at the end of the tape, and more may come: Wait, then call again. A
// damaged frame is a CorruptError, which is repeated until Skip.
func (r *Reader) Next() (Frame, error) {
	b, f, err := r.frame()
	if err != nil {
		return Frame{}, err
	}
	r.advance(len(b), f)
	return f, nil
}

// NextRaw returns the next frames that keep accepts in their encoded form, one
// after the other as they are on the tape and at least one: up to the first that
// is not accepted, to about max bytes, or to the end of what one read gave. keep
// sees every frame once; nil accepts all. The bytes are valid until the next
// call. Errors are those of Next.
func (r *Reader) NextRaw(keep func(Frame) bool, max int) ([]byte, error) {
	var b []byte
	for {
		var f Frame
		var err error
		if b, f, err = r.frame(); err != nil {
			return nil, err
		}
		gap := r.gap != nil
		r.advance(len(b), f)
		if keep != nil && !keep(f) {
			continue
		}
		if gap {
			return b, nil
		}
		break
	}
	// What follows in the buffer is checked in place.
	from := r.cur.Offset - r.bufOff - int64(len(b))
	for r.cur.Offset-r.bufOff-from < int64(max) {
		w := r.window()
		if len(w) < HeaderSize {
			break
		}
		f, n, reason := parseHeader(w)
		if reason != "" || len(w) < HeaderSize+n || r.check(w[:HeaderSize+n], f) != "" {
			break // the next call reads on or says what is wrong
		}
		f.Data = w[HeaderSize : HeaderSize+n : HeaderSize+n]
		r.advance(HeaderSize+n, f)
		if keep != nil && !keep(f) {
			to := r.cur.Offset - r.bufOff - int64(HeaderSize+n)
			return r.buf[from:to:to], nil
		}
	}
	to := r.cur.Offset - r.bufOff
	return r.buf[from:to:to], nil
}

// NextHeader returns the next frame without its Data, and how long that is. It
// reads little more than the headers and verifies no checksum, so it is fit to
// make an index of a large tape. Errors are those of Next.
func (r *Reader) NextHeader() (f Frame, length int, err error) {
	for {
		if err := r.ready(); err != nil {
			return Frame{}, 0, err
		}
		if r.gap != nil {
			f, n, _ := parseHeader(r.gap)
			r.advance(len(r.gap), f)
			return f, n, nil
		}
		// Small frames: read on, in larger and larger steps. Large ones: only
		// what is around the header.
		if w := r.cur.Offset - r.bufOff; w < 0 || w > int64(len(r.buf)) {
			r.ahead = headerAheadMin
		} else if int64(len(r.buf))-w < HeaderSize {
			r.ahead = min(max(2*r.ahead, headerAheadMin), headerAheadMax)
		}
		b, err := r.fill(HeaderSize, r.ahead)
		if err == errDropped {
			continue
		} else if err != nil {
			return Frame{}, 0, err
		}
		f, n, reason := parseHeader(b)
		switch {
		case reason != "":
		case r.nextSeq != 0 && f.Seq != r.nextSeq:
			reason = "wrong sequence number"
		case r.cur.Offset+HeaderSize+int64(n) > r.limit:
			reason = "cut short"
		}
		if reason != "" {
			return Frame{}, 0, r.corrupt(reason)
		}
		r.advance(HeaderSize+n, f)
		return f, n, nil
	}
}

// Skip goes on after a CorruptError at the next segment; a Gap frame then says
// how much was passed over. In the last segment it goes to the end.
func (r *Reader) Skip() {
	if !errors.Is(r.err, ErrCorrupt) {
		return
	}
	r.err = nil
	if s, last, ok := r.find(r.cur.Segment); ok && last {
		r.cur.Offset, r.limit, r.nextSeq = s.size, s.size, 0
		return
	}
	r.leave()
	r.cur = Cursor{r.cur.Segment + 1, segmentHeader}
}

// frame returns the next frame, encoded and decoded, without advancing.
func (r *Reader) frame() ([]byte, Frame, error) {
	for {
		if err := r.ready(); err != nil {
			return nil, Frame{}, err
		}
		if r.gap != nil {
			f, _, _ := parseHeader(r.gap)
			f.Data = r.gap[HeaderSize:]
			return r.gap, f, nil
		}
		b, err := r.fill(HeaderSize, readAhead)
		if err == errDropped {
			continue
		} else if err != nil {
			return nil, Frame{}, err
		}
		f, n, reason := parseHeader(b)
		if reason != "" {
			return nil, Frame{}, r.corrupt(reason)
		}
		b, err = r.fill(HeaderSize+int64(n), readAhead)
		if err == errDropped {
			continue
		} else if err != nil {
			return nil, Frame{}, err
		}
		b = b[: HeaderSize+n : HeaderSize+n]
		if reason := r.check(b, f); reason != "" {
			return nil, Frame{}, r.corrupt(reason)
		}
		f.Data = b[HeaderSize:]
		return b, f, nil
	}
}

// check says what is wrong with a whole frame.
func (r *Reader) check(b []byte, f Frame) string {
	if !checksumOK(b) {
		return "wrong checksum"
	}
	if r.nextSeq != 0 && f.Seq != r.nextSeq {
		return "wrong sequence number"
	}
	return ""
}

// advance goes past a frame of n bytes.
func (r *Reader) advance(n int, f Frame) {
	if r.gap != nil {
		r.gap = nil
		return
	}
	r.cur.Offset += int64(n)
	r.nextSeq = f.Seq + 1
}

// corrupt is the error for the frame at the cursor. At the end of a tape that
// nobody writes it is a write that a crash cut short.
func (r *Reader) corrupt(reason string) error {
	if _, last, ok := r.find(r.cur.Segment); r.tape == nil && ok && last {
		return io.EOF
	}
	r.err = &CorruptError{r.cur, reason}
	return r.err
}

// errDropped: the segment went away while it was read.
var errDropped = errors.New("segment dropped")

// ready sees to it that a frame begins at the cursor in the open file, or that
// there is a gap to be told of.
func (r *Reader) ready() error {
	for {
		if r.err != nil {
			return r.err
		}
		if r.file == nil && r.gap == nil {
			if err := r.enter(); err != nil {
				return err
			}
		}
		if r.gap != nil || r.cur.Offset < r.limit {
			return nil
		}
		s, last, ok := r.find(r.cur.Segment)
		switch {
		case ok && s.size > r.limit:
			r.limit = s.size
		case ok && last:
			return io.EOF
		default: // full or dropped: nothing more will come in it
			r.leave()
			r.cur = Cursor{r.cur.Segment + 1, segmentHeader}
		}
	}
}

// find returns segment num, if it was not dropped, and whether it is the last.
func (r *Reader) find(num uint32) (s segment, last, ok bool) {
	r.view(func(segs []segment) {
		i := sort.Search(len(segs), func(i int) bool { return segs[i].num >= num })
		if i < len(segs) && segs[i].num == num {
			s, last = segs[i], i == len(segs)-1
			ok = last || s.size > segmentHeader
		}
	})
	return s, last, ok
}

func (r *Reader) view(do func(segs []segment)) {
	if r.tape == nil {
		do(r.segs)
		return
	}
	r.tape.mu.Lock()
	defer r.tape.mu.Unlock()
	do(r.tape.segs)
}

// enter opens the segment of the cursor, or the first one after it that is
// there, with a gap for what is missing between.
func (r *Reader) enter() error {
	var target segment
	var missing GapInfo
	var err error
	r.view(func(segs []segment) { target, missing, err = r.locate(segs) })
	if err != nil {
		if err != io.EOF {
			r.err = err // what is written there later is still no place to begin
		}
		return err
	}
	f, err := openSegment(segmentPath(r.dir, target.num))
	if errors.Is(err, os.ErrNotExist) && r.tape != nil && target.num < r.tape.oldest.Load() {
		return r.enter() // dropped and forgotten since; locate looks further on
	} else if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	r.file, r.seg, r.limit = f, target, target.size
	if target.num != r.cur.Segment {
		r.cur = Cursor{target.num, segmentHeader}
	}
	r.cur.Offset = max(r.cur.Offset, segmentHeader)
	r.pos, r.buf, r.bufOff = -1, r.buf[:0], 0
	if r.cur.Offset == segmentHeader {
		r.nextSeq = target.first
	}
	if missing.Bytes > 0 {
		data, err := json.Marshal(missing)
		if err != nil {
			return err
		}
		r.gap = AppendFrame(nil, Frame{Seq: missing.LastSeq, Time: time.Now().UnixNano(), Kind: Gap, Data: data})
	}
	return nil
}

// locate finds the segment to enter and what is missing between the cursor and
// it.
func (r *Reader) locate(segs []segment) (target segment, missing GapInfo, err error) {
	if len(segs) == 0 {
		return target, missing, io.EOF
	}
	i := sort.Search(len(segs), func(i int) bool { return segs[i].num >= r.cur.Segment })
	if i == len(segs) {
		return target, missing, fmt.Errorf("%w: %v is after the end", ErrCursor, r.cur)
	}
	// Where the cursor stands, in bytes and frames since the tape began.
	pos, seq, s := r.pos, r.nextSeq, segs[i]
	here := s.num == r.cur.Segment
	live := s.size > segmentHeader || i == len(segs)-1
	switch {
	case here && live && r.cur.Offset > s.size:
		return target, missing, fmt.Errorf("%w: %v is after the end", ErrCursor, r.cur)
	case pos >= 0:
	case here:
		pos = s.base + max(r.cur.Offset, segmentHeader) - segmentHeader
	case i > 0:
		pos, seq = segs[i-1].end(), segs[i-1].first
	default:
		pos, seq = 0, 1
	}
	if seq == 0 {
		seq = s.first
	}
	if !here || !live {
		for i < len(segs)-1 && segs[i].size <= segmentHeader {
			i++
		}
	}
	target = segs[i]
	start := target.base
	if target.num == r.cur.Segment {
		start += max(r.cur.Offset, segmentHeader) - segmentHeader
	}
	if missing.Bytes = start - pos; missing.Bytes > 0 {
		missing.FirstSeq, missing.LastSeq = seq, target.first-1
		if target.first > seq {
			missing.Frames = target.first - seq
		}
	}
	return target, missing, nil
}

// leave closes the file and remembers where in the tape it was.
func (r *Reader) leave() {
	if r.file == nil {
		return
	}
	r.file.Close() // only read from
	r.file = nil
	r.pos = r.seg.base + r.cur.Offset - segmentHeader
}

// window is what the buffer has from the cursor on.
func (r *Reader) window() []byte {
	i := r.cur.Offset - r.bufOff
	if i < 0 || i > int64(len(r.buf)) {
		return nil
	}
	return r.buf[i:]
}

// fill returns at least need bytes from the cursor on, reading as many as ahead
// if it must read.
func (r *Reader) fill(need, ahead int64) ([]byte, error) {
	have := r.window()
	if int64(len(have)) >= need {
		return have, nil
	}
	if r.cur.Offset+need > r.limit {
		return nil, r.corrupt("cut short")
	}
	want := int(min(max(need, ahead), r.limit-r.cur.Offset))
	if cap(r.buf) < want || cap(r.buf) > keptBuffer && want <= readAhead {
		size := headerAheadMin // small followers stay small
		for size < want {
			size *= 2
		}
		buf := make([]byte, size)
		copy(buf, have)
		r.buf = buf
	} else {
		copy(r.buf[:cap(r.buf)], have)
	}
	n := len(have)
	r.buf, r.bufOff = r.buf[:want], r.cur.Offset
	m, err := r.file.ReadAt(r.buf[n:], r.cur.Offset+int64(n))
	r.buf = r.buf[:n+m]
	if r.tape != nil && r.cur.Segment < r.tape.oldest.Load() {
		// Cut while being read: what came may be anything.
		r.buf = r.buf[:0]
		r.leave()
		return nil, errDropped
	}
	if int64(len(r.buf)) >= need {
		return r.buf, nil
	}
	if err == io.EOF {
		return nil, r.corrupt("cut short")
	}
	return nil, fmt.Errorf("tape: %w", err)
}
