package tape

import (
	"errors"
	"os"
)

// ErrGone is what NextRange says where frames have left the tape.
var ErrGone = errors.New("tape: part of it has been dropped")

// NextRange finds the next frames that keep accepts, as a range of a file: up to about
// max bytes that stand together. Only their headers are read, so that whoever sends
// them on can leave the copying to the kernel; whoever receives them checks them. The
// file is the reader's, and good until its next call. A range that is cut from under
// its reader, by a tape that reached its limit, comes out short.
func (r *Reader) NextRange(keep func(Frame) bool, max int64) (f *os.File, off, n int64, err error) {
	for n < max {
		if n > 0 && r.cur.Offset >= r.limit {
			break // the next frame may be in another file
		}
		at := r.cur
		fr, length, err := r.NextHeader()
		wanted := err == nil && keep(fr)
		switch {
		case n > 0 && r.file != f:
			return nil, 0, 0, ErrGone
		case err != nil && n > 0:
			return f, off, n, nil // said again by the next call
		case err != nil:
			return nil, 0, 0, err
		case fr.Kind == Gap && r.cur == at:
			return nil, 0, 0, ErrGone
		case !wanted && n > 0:
			return f, off, n, nil
		case !wanted:
			continue
		}
		if n == 0 {
			f, off = r.file, r.cur.Offset-HeaderSize-int64(length)
		}
		n += HeaderSize + int64(length)
	}
	return f, off, n, nil
}

// Find is where to begin reading for the frame with a sequence number: the
// beginning of its segment. Where that has been dropped, reading there tells of
// the gap.
func (r *Reader) Find(seq uint64) Cursor {
	at := Cursor{}
	r.view(func(segs []segment) {
		for _, s := range segs {
			if s.first > seq {
				break
			}
			at = Cursor{s.num, segmentHeader}
		}
	})
	return at
}

// Last is the sequence number of the last frame, 0 when there is none.
func (t *Tape) Last() uint64 {
	t.wmu.Lock()
	defer t.wmu.Unlock()
	return t.seq - 1
}
