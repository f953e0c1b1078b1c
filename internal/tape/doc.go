// Package tape keeps the output of a session: an append-only, byte-exact
// record on disk that any number of readers follow by cursor.
//
// # What is on a tape
//
// A tape is a directory of segment files, 00000001.tape and up. A segment is a
// 32-byte header and then frames, back to back. A frame is a 32-byte header,
// little endian, and up to 16 MiB of data:
//
//	crc32c(4) len(4) seq(8) time(8) command(4) kind(1) flags(1) reserved(2) data(len)
//
// The checksum covers all that follows it. Sequence numbers start at 1 and have
// no holes. The same encoding travels over the wire (AppendFrame, Decoder).
//
// The segment header has a magic number, the format's version, the sequence
// number of its first frame, the number of bytes of frames that came before it
// since the tape began, and a checksum.
//
// # What it guarantees
//
// A frame is there whole or not at all: readers never look past End, which moves
// only after the whole batch was written, and Open cuts what a crash left of a
// half-written batch's last frame. An Append that fails (disk full) leaves the
// tape as it was and usable. What was appended survives the death of the process
// at once and that of the machine after Sync.
//
// Memory is bounded: a reader holds at most one frame or 256 KiB, whichever is
// more, the writer one batch. Opening reads the headers of all segments and the
// frames of the last one only. It cuts at the first frame that does not check;
// damage in earlier segments is left where it is and found by readers
// (ErrCorrupt).
//
// # Size and gaps
//
// When the tape would outgrow Options.MaxBytes its oldest segment is dropped:
// the file is cut down to its header, which frees the space even while readers
// hold it open and needs no space itself, so it works on a full disk. The header
// that stays says how much is gone. A reader that stood in a dropped segment, or
// that starts at the beginning (the zero Cursor), first gets one Gap frame, with
// the data GapInfo, then goes on at the oldest frame there is. That frame is made
// by the reader; its Seq is the last one that is missing. The headers of the last
// 256 dropped segments are kept; a cursor older than those is told of everything
// that was ever dropped.
//
// # Concurrency
//
// A Tape may be used by any number of goroutines. A Reader belongs to one
// goroutine at a time; any number of them run beside the writer without
// holding it up. A directory has one writer: the caller sees to that, with a
// lock of its own.
package tape
