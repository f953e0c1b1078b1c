package tape

import (
	"fmt"
	"io"
	"os"
)

// A Report is what Check found.
type Report struct {
	Frames int64
	Bytes  int64
	// Torn is how many bytes at the end are not whole frames: a write that a
	// crash cut short, or one under way. Opening the tape cuts them.
	Torn    int64
	Damaged []string // places that cannot be read, in words
}

// Check looks for damage in a tape, which may be written meanwhile, and changes
// nothing: at the headers of all segments, the first frame and the frames'
// headers of the last segment, or, deep, at every byte.
func Check(dir string, deep bool) (Report, error) {
	var rep Report
	segs, lastDamaged, err := readSegments(dir)
	if os.IsNotExist(err) {
		return rep, nil // nothing was ever written
	}
	if err != nil {
		return rep, err
	}
	for i, s := range segs {
		last := i == len(segs)-1
		name := fmt.Sprintf("segment %d", s.num)
		if _, err := readSegment(dir, s.num); err != nil && !(last && lastDamaged) {
			rep.Damaged = append(rep.Damaged, name+": "+err.Error())
			continue
		}
		if s.size <= segmentHeader || !deep && i > 0 && !last {
			continue // dropped, or not looked at
		}
		end, err := checkSegment(dir, s, deep, !deep && !last, &rep)
		switch {
		case err != nil:
			rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s: %v", name, err))
		case last:
			if at, ok := damaged(dir, s, end); ok {
				rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s at offset %d: %d bytes are not as they were written", name, at.from, at.to-at.from))
				continue
			}
			rep.Torn = s.size - end
		case deep && end < s.size:
			rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s at offset %d of %d: a frame does not check", name, end, s.size))
		case !deep && end <= segmentHeader:
			rep.Damaged = append(rep.Damaged, name+": its first frame does not check")
		}
	}
	return rep, nil
}

// checkSegment reads frames until one is not whole and says where that is. It
// verifies checksums if deep, and of the first frame always.
func checkSegment(dir string, s segment, deep, firstOnly bool, rep *Report) (int64, error) {
	// As its tape's only segment, so that a bad frame is an end and no error.
	r := &Reader{dir: dir, segs: []segment{s}, cur: Cursor{s.num, segmentHeader}, pos: -1}
	defer r.Close()
	for n := 0; ; n++ {
		if n == 1 && firstOnly {
			return r.cur.Offset, nil
		}
		var err error
		var size int
		if deep || n == 0 {
			var f Frame
			f, err = r.Next()
			size = len(f.Data)
		} else {
			_, size, err = r.NextHeader()
		}
		if err == io.EOF {
			return max(r.cur.Offset, segmentHeader), nil
		}
		if err != nil {
			return 0, err
		}
		rep.Frames++
		rep.Bytes += int64(size)
	}
}

// damaged looks behind the place where a segment's frames stop being whole.
func damaged(dir string, s segment, end int64) (damage, bool) {
	if end >= s.size {
		return damage{}, false
	}
	stop, _, next, err := scan(dir, s)
	if err != nil {
		return damage{}, false
	}
	f, err := openSegment(segmentPath(dir, s.num))
	if err != nil {
		return damage{}, false
	}
	defer f.Close()
	d, found, err := findDamage(f, stop, s.size, next)
	return d, found && err == nil
}
