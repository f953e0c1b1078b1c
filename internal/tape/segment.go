package tape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	segmentHeader = 32
	formatVersion = 1
	suffix        = ".tape"
)

var magic = [4]byte{'c', 't', 'a', 'p'}

// A segment is one file of a tape. A segment that is not the last and has
// nothing but its header was dropped.
type segment struct {
	num   uint32
	first uint64 // sequence number of its first frame; 0: the header is damaged
	base  int64  // bytes of frames before it since the tape began
	size  int64  // of the file, as far as frames are whole
}

// noFollow keeps a link that somebody put in a segment's place from leading us to
// cut and overwrite what it points to.
const noFollow = syscall.O_NOFOLLOW

func openSegment(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|noFollow, 0) }

func (s segment) end() int64 { return s.base + s.size - segmentHeader }

func segmentPath(dir string, num uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d%s", num, suffix))
}

func (s segment) encode() []byte {
	b := make([]byte, segmentHeader)
	copy(b, magic[:])
	binary.LittleEndian.PutUint32(b[4:], formatVersion)
	binary.LittleEndian.PutUint64(b[8:], s.first)
	binary.LittleEndian.PutUint64(b[16:], uint64(s.base))
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli()))
	return b
}

var errHeader = errors.New("damaged segment header")

// readSegment reads the header and size of a segment file. The error is
// errHeader if the header is not whole; size is set even then.
func readSegment(dir string, num uint32) (segment, error) {
	s := segment{num: num}
	f, err := openSegment(segmentPath(dir, num))
	if err != nil {
		return s, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.size = fi.Size()
	b := make([]byte, segmentHeader)
	if _, err := io.ReadFull(f, b); err == io.EOF || err == io.ErrUnexpectedEOF {
		return s, errHeader
	} else if err != nil {
		return s, err
	}
	if [4]byte(b) != magic || binary.LittleEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli()) {
		return s, errHeader
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != formatVersion {
		return s, fmt.Errorf("%s has format version %d, this program reads %d", f.Name(), v, formatVersion)
	}
	s.first = binary.LittleEndian.Uint64(b[8:])
	s.base = int64(binary.LittleEndian.Uint64(b[16:]))
	return s, nil
}

// readSegments lists a tape's segments in order. Damaged headers in the middle
// are made up for, so that the rest stays readable; lastDamaged says that the
// last one's is not whole.
func readSegments(dir string) (segs []segment, lastDamaged bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false, err
	}
	var nums []uint32
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), suffix)
		n, err := strconv.ParseUint(digits, 10, 32)
		if ok && err == nil && n > 0 && e.Name() == filepath.Base(segmentPath(dir, uint32(n))) {
			nums = append(nums, uint32(n))
		}
	}
	slices.Sort(nums) // by number: past 99999999 the names do not sort
	for _, n := range nums {
		s, err := readSegment(dir, n)
		if err != nil && err != errHeader {
			return nil, false, err
		}
		if lastDamaged = err == errHeader; lastDamaged && len(segs) > 0 {
			s.base = segs[len(segs)-1].end()
		}
		s.size = max(s.size, segmentHeader)
		segs = append(segs, s)
	}
	return segs, lastDamaged, nil
}

// scan reads the frames of a segment and returns the place where they stop
// being whole, and the sequence numbers of the first and of the one that would
// follow the last; both are s.first if there is none.
func scan(dir string, s segment) (end int64, first, next uint64, err error) {
	r := &Reader{dir: dir, segs: []segment{s}, cur: Cursor{s.num, segmentHeader}, pos: -1}
	defer r.Close()
	first, next = s.first, s.first
	for n := 0; ; n++ {
		b, f, err := r.frame()
		if err == io.EOF {
			return max(r.cur.Offset, segmentHeader), first, next, nil
		} else if err != nil {
			return 0, 0, 0, err
		}
		if n == 0 {
			first = f.Seq
		}
		next = f.Seq + 1
		r.advance(len(b), f)
	}
}
