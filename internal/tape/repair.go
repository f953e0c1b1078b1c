package tape

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// damage is a stretch of a segment that is not frames and has frames behind it: not
// a write that a crash cut short, but bytes that changed on the disk.
type damage struct {
	from, to int64
	next     uint64 // sequence number that should stand at from
	seq      uint64 // the one that stands at to
}

// findDamage looks for a whole frame behind the place where a segment's frames stop
// being whole. Its sequence number tells it from output that looks like a frame.
func findDamage(f *os.File, from, size int64, next uint64) (d damage, found bool, err error) {
	if size-from < 2*HeaderSize || next == 0 {
		return d, false, nil
	}
	b := make([]byte, size-from)
	if _, err := f.ReadAt(b, from); err != nil {
		return d, false, err
	}
	for i := HeaderSize; i+HeaderSize <= len(b); i++ {
		seq := binary.LittleEndian.Uint64(b[i+8:])
		if seq <= next || seq-next > uint64(i/HeaderSize) || !bytes.Equal(b[i+29:i+32], []byte{0, 0, 0}) {
			continue
		}
		_, n, reason := parseHeader(b[i:])
		if reason == "" && i+HeaderSize+n <= len(b) && checksumOK(b[i:i+HeaderSize+n]) {
			return damage{from, from + int64(i), next, seq}, true, nil
		}
	}
	return d, false, nil
}

// mend puts gap frames where the damage is, so that all behind it can be read and what
// is missing is told. The bytes as they were found are kept in a file beside.
func (d damage) mend(dir string, num uint32, f *os.File) error {
	was := make([]byte, d.to-d.from)
	if _, err := f.ReadAt(was, d.from); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("damaged-%08d-%d", num, d.from)), was, 0o600); err != nil {
		return err
	}
	info, _ := json.Marshal(GapInfo{Bytes: d.to - d.from, Frames: d.seq - d.next, FirstSeq: d.next, LastSeq: d.seq - 1})
	now := time.Now().UnixNano()
	var b []byte
	for seq := d.next; seq < d.seq; seq++ {
		g := Frame{Seq: seq, Time: now, Kind: Gap}
		if seq == d.seq-1 { // the last one takes what room there is
			g.Data = bytes.Repeat([]byte(" "), len(was)-len(b)-HeaderSize)
			if len(info) <= len(g.Data) {
				copy(g.Data, info)
			}
		}
		b = AppendFrame(b, g)
	}
	_, err := f.WriteAt(b, d.from)
	return err
}
