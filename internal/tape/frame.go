package tape

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// HeaderSize is what a frame takes beyond its data.
	HeaderSize = 32
	// MaxData is the most data one frame holds.
	MaxData = 16 << 20
)

// A Kind says what a frame's data is.
type Kind uint8

const (
	Stdout Kind = 1 + iota
	Stderr
	Start // a command began; the data is the writer's business
	Exit  // a command ended
	Gap   // frames are missing here; the data is a GapInfo in JSON
	Note
	Stdin  // reserved
	Resize // a terminal has a new size; the data is the writer's business
	Prompt // what a session's terminal shows beside its commands' output
)

func (k Kind) String() string {
	switch k {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Start:
		return "start"
	case Exit:
		return "exit"
	case Gap:
		return "gap"
	case Note:
		return "note"
	case Stdin:
		return "stdin"
	case Resize:
		return "resize"
	case Prompt:
		return "prompt"
	}
	return "kind " + strconv.Itoa(int(k))
}

// A Frame is one record of a tape.
type Frame struct {
	Seq     uint64 // given by Append
	Time    int64  // Unix time in nanoseconds; Append sets it where it is 0
	Command uint32
	Kind    Kind
	Data    []byte
}

// GapInfo is the data of a Gap frame. Bytes counts the missing frames with
// their headers. A reader that was given a cursor inside a segment that is gone
// cannot know which frame stood there: FirstSeq is then the first of that
// segment and Frames too high, never too low. Bytes is exact.
type GapInfo struct {
	Bytes    int64  `json:"bytes"`
	Frames   uint64 `json:"frames"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// A Cursor is a place between two frames of a tape. The zero Cursor is the
// beginning, whatever has been dropped since.
type Cursor struct {
	Segment uint32
	Offset  int64
}

// IsZero reports whether c is the beginning of the tape.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Less reports whether c is before d.
func (c Cursor) Less(d Cursor) bool {
	return cmp.Or(cmp.Compare(c.Segment, d.Segment), cmp.Compare(c.Offset, d.Offset)) < 0
}

// String is the form ParseCursor reads: "2.1048576".
func (c Cursor) String() string {
	return strconv.FormatUint(uint64(c.Segment), 10) + "." + strconv.FormatInt(c.Offset, 10)
}

// ParseCursor reads what Cursor.String wrote. The empty string is the zero
// Cursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	seg, off, ok := strings.Cut(s, ".")
	n, err1 := strconv.ParseUint(seg, 10, 32)
	o, err2 := strconv.ParseInt(off, 10, 64)
	c := Cursor{Segment: uint32(n), Offset: o}
	// Only the canonical form: no signs, no leading zeros.
	if !ok || err1 != nil || err2 != nil || o < 0 || c.String() != s {
		return Cursor{}, fmt.Errorf("%w: %q is not of the form SEGMENT.OFFSET", ErrCursor, s)
	}
	return c, nil
}

var (
	// ErrCorrupt is matched by a CorruptError.
	ErrCorrupt = errors.New("tape: damaged frame")
	// ErrCursor is returned for a cursor that is not a place on the tape.
	ErrCursor = errors.New("tape: no such place")
	// ErrClosed is returned by a closed tape.
	ErrClosed = errors.New("tape: closed")
	// ErrTooLarge is returned for a frame with more than MaxData bytes.
	ErrTooLarge = errors.New("tape: more than 16 MiB in one frame")
)

// A CorruptError says where a frame is damaged and how. Segment is 0 for a
// Decoder, whose offsets are those of its stream.
type CorruptError struct {
	Cursor Cursor
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("tape: damaged frame at %v: %s", e.Cursor, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// castagnoli is the checksums' table, which is made at its first use: not every call
// of conch reads a tape.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// AppendFrame appends the encoded form of f, whose Data must not exceed
// MaxData, to dst.
func AppendFrame(dst []byte, f Frame) []byte {
	n := len(dst)
	dst = slices.Grow(dst, HeaderSize+len(f.Data))[:n+HeaderSize]
	h := dst[n:]
	binary.LittleEndian.PutUint32(h[4:], uint32(len(f.Data)))
	binary.LittleEndian.PutUint64(h[8:], f.Seq)
	binary.LittleEndian.PutUint64(h[16:], uint64(f.Time))
	binary.LittleEndian.PutUint32(h[24:], f.Command)
	binary.LittleEndian.PutUint32(h[28:], uint32(f.Kind)) // flags and reserved are 0
	dst = append(dst, f.Data...)
	binary.LittleEndian.PutUint32(dst[n:], crc32.Checksum(dst[n+4:], castagnoli()))
	return dst
}

// parseHeader reads the HeaderSize bytes at b. The reason is empty when they can
// be a header.
func parseHeader(b []byte) (f Frame, n int, reason string) {
	size := binary.LittleEndian.Uint32(b[4:])
	f = Frame{
		Seq:     binary.LittleEndian.Uint64(b[8:]),
		Time:    int64(binary.LittleEndian.Uint64(b[16:])),
		Command: binary.LittleEndian.Uint32(b[24:]),
		Kind:    Kind(b[28]),
	}
	switch {
	case size > MaxData:
		return f, 0, "impossible length"
	case f.Kind == 0:
		return f, 0, "no kind"
	}
	return f, int(size), ""
}

// checksumOK reports whether b, one whole encoded frame, is what was written.
func checksumOK(b []byte) bool {
	return binary.LittleEndian.Uint32(b) == crc32.Checksum(b[4:], castagnoli())
}

// A Decoder reads encoded frames from a stream.
type Decoder struct {
	r        io.Reader
	buf      []byte // buf[from:to] is read and not yet returned
	from, to int
	offset   int64 // of buf[from] in the stream
	err      error // of r
	corrupt  error
}

// NewDecoder returns a Decoder that reads r as far as it must and at most
// 64 KiB, or a frame, further.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Next returns the next frame. Its Data is valid until the next call. The error
// is io.EOF where the stream ends between frames, io.ErrUnexpectedEOF where it
// ends inside one, a CorruptError, or the reader's own; it stays.
func (d *Decoder) Next() (Frame, error) {
	if d.corrupt != nil {
		return Frame{}, d.corrupt
	}
	if err := d.fill(HeaderSize); err != nil {
		return Frame{}, err
	}
	f, n, reason := parseHeader(d.buf[d.from:])
	if reason == "" {
		if err := d.fill(HeaderSize + n); err != nil {
			return Frame{}, err
		}
		if !checksumOK(d.buf[d.from : d.from+HeaderSize+n]) {
			reason = "wrong checksum"
		}
	}
	if reason != "" {
		d.corrupt = &CorruptError{Cursor{Offset: d.offset}, reason}
		return Frame{}, d.corrupt
	}
	f.Data = d.buf[d.from+HeaderSize : d.from+HeaderSize+n : d.from+HeaderSize+n]
	d.from += HeaderSize + n
	d.offset += int64(HeaderSize + n)
	return f, nil
}

// fill reads until need bytes are there. It grows the buffer only as bytes
// arrive, so a header that lies about its length costs nothing.
func (d *Decoder) fill(need int) error {
	idle := 0
	for d.to-d.from < need {
		if d.err != nil {
			if d.err == io.EOF && d.to > d.from {
				return io.ErrUnexpectedEOF
			}
			return d.err
		}
		if d.from > 0 && (d.from == d.to || d.from+need > len(d.buf)) {
			d.to = copy(d.buf, d.buf[d.from:d.to])
			d.from = 0
		}
		if d.to == len(d.buf) {
			grown := make([]byte, min(max(2*len(d.buf), 64<<10), max(need, 64<<10)))
			d.to = copy(grown, d.buf[d.from:d.to])
			d.buf, d.from = grown, 0
		}
		n, err := d.r.Read(d.buf[d.to:])
		d.to += n
		d.err = err
		if n > 0 {
			idle = 0
		} else if idle++; err == nil && idle == 100 {
			d.err = io.ErrNoProgress
		}
	}
	return nil
}
