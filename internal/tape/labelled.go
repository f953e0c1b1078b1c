package tape

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
)

// The labelled log is lines, each behind a marker of three bytes:
//
//	\x01\x01\x01 LINE \n    a line of stdout
//	\x02\x02\x02 LINE \n    a line of stderr
//
// That is the plain form, which others write and read. It cannot say that a line
// was left unfinished, at the end or because the other stream came in between.
// A third marker does, on lines of its own:
//
//	\x03\x03\x03 \n         the newline before this line is not in the output
//	\x03\x03\x03 gap JSON   output is missing here (GapInfo)
//
// So stdout "ab", stderr "x\n", stdout "c\n" are
//
//	\x01\x01\x01ab \x03\x03\x03 \x02\x02\x02x \x01\x01\x01c
//
// on four lines. Readers of the plain form skip lines without one of their two
// markers and see "ab" and "c" as two lines; logs in which every line is whole
// have no third marker and are the plain form. Since every line of output is
// behind a marker, output that has those bytes itself is not mistaken for one.
const (
	markStdout = "\x01\x01\x01"
	markStderr = "\x02\x02\x02"
	markOther  = "\x03\x03\x03"
	unfinished = "\n" + markOther + "\n"
	gapWord    = "gap "
)

const labelledChunk = 64 << 10

// WriteLabelled writes the output from the reader's place to the end of the tape
// as a labelled log: both streams, in the order in which they came, and a line for
// each gap. Commands, times and the borders between frames are not in it.
func WriteLabelled(w io.Writer, r *Reader) error {
	out := bufio.NewWriterSize(w, labelledChunk)
	var open Kind // the stream whose line is unfinished
	for {
		f, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if f.Kind != Stdout && f.Kind != Stderr && f.Kind != Gap {
			continue
		}
		if open != 0 && open != f.Kind && (len(f.Data) > 0 || f.Kind == Gap) {
			out.WriteString(unfinished)
			open = 0
		}
		if f.Kind == Gap {
			out.WriteString(markOther + gapWord)
			out.Write(oneLine(f.Data))
			out.WriteByte('\n')
			continue
		}
		for data := f.Data; len(data) > 0; {
			if open == 0 {
				out.WriteString(mark(f.Kind))
				open = f.Kind
			}
			n := bytes.IndexByte(data, '\n') + 1
			if n > 0 {
				open = 0
			} else {
				n = len(data)
			}
			// The writer keeps its first error; one look a line is enough to
			// stop early.
			if _, err := out.Write(data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
	}
	if open != 0 {
		out.WriteString(unfinished)
	}
	return out.Flush()
}

func mark(k Kind) string {
	if k == Stderr {
		return markStderr
	}
	return markStdout
}

// oneLine is JSON without newlines; what is not JSON becomes {}.
func oneLine(data []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte("{}")
	}
	return b.Bytes()
}

// ReadLabelled reads a labelled log and yields its output as frames, ready for
// Append: Stdout and Stderr with exactly the bytes and in exactly the order that
// were exported, in pieces of at most 64 KiB, and Gap. Logs in the plain form are
// read too. Of those, a line without any marker, which the plain form's own
// readers drop, is a Note, so that it is in neither stream and yet not lost; a
// last line without its newline is output without a newline. Lines behind the
// third marker that say something unknown are left out. An error, always the
// reader's own, ends it. A frame's Data is valid until the next one.
func ReadLabelled(r io.Reader) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		l := labelledReader{in: bufio.NewReaderSize(r, labelledChunk), yield: yield}
		if err := l.run(); err != nil && err != errStopped && l.flush() != errStopped {
			yield(Frame{}, err)
		}
	}
}

type labelledReader struct {
	in    *bufio.Reader
	yield func(Frame, error) bool
	kind  Kind   // of buf
	buf   []byte // output not yet yielded
	owed  Kind   // the stream whose line just ended; its newline is output unless the next line denies it
}

// errStopped: the caller wants no more.
var errStopped = errors.New("stopped")

func (l *labelledReader) run() error {
	for {
		piece, err := l.in.ReadSlice('\n')
		if err == io.EOF && len(piece) == 0 {
			break
		}
		if err := l.line(piece, err); err != nil && err != io.EOF {
			return err
		}
	}
	if err := l.pay(); err != nil {
		return err
	}
	return l.flush()
}

// line takes one line, whose first piece and the error that came with it are
// given.
func (l *labelledReader) line(piece []byte, err error) error {
	kind := Note
	for _, k := range []Kind{Stdout, Stderr} {
		if rest, ok := bytes.CutPrefix(piece, []byte(mark(k))); ok {
			kind, piece = k, rest
			break // what follows is output, whatever it looks like
		}
	}
	if rest, ok := bytes.CutPrefix(piece, []byte(markOther)); ok && kind == Note {
		return l.other(rest, err)
	}
	if perr := l.pay(); perr != nil {
		return perr
	}
	for {
		text, whole := bytes.CutSuffix(piece, []byte("\n"))
		if kind == Note {
			text, whole = piece, false // its newline is its own
		}
		if perr := l.put(kind, text); perr != nil {
			return perr
		}
		if err != bufio.ErrBufferFull {
			if whole {
				l.owed = kind
			}
			if kind == Note {
				// One frame a line.
				if perr := l.flush(); perr != nil {
					return perr
				}
			}
			return err
		}
		piece, err = l.in.ReadSlice('\n')
	}
}

// other takes a line behind the third marker.
func (l *labelledReader) other(text []byte, err error) error {
	if string(text) == "\n" || len(text) == 0 && err == io.EOF {
		l.owed = 0
		return err
	}
	if perr := l.pay(); perr != nil {
		return perr
	}
	data, ok := bytes.CutPrefix(bytes.TrimSuffix(text, []byte("\n")), []byte(gapWord))
	if ok && err != bufio.ErrBufferFull && json.Valid(data) {
		if perr := l.flush(); perr != nil {
			return perr
		}
		if !l.yield(Frame{Kind: Gap, Data: data}, nil) {
			return errStopped
		}
	}
	for err == bufio.ErrBufferFull {
		_, err = l.in.ReadSlice('\n')
	}
	return err
}

// pay puts the newline of the line before.
func (l *labelledReader) pay() error {
	if l.owed == 0 {
		return nil
	}
	k := l.owed
	l.owed = 0
	return l.put(k, []byte("\n"))
}

func (l *labelledReader) put(k Kind, data []byte) error {
	for len(data) > 0 {
		if k != l.kind || len(l.buf) == labelledChunk {
			if err := l.flush(); err != nil {
				return err
			}
		}
		l.kind = k
		n := min(len(data), labelledChunk-len(l.buf))
		l.buf = append(l.buf, data[:n]...)
		data = data[n:]
	}
	return nil
}

func (l *labelledReader) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	f := Frame{Kind: l.kind, Data: l.buf}
	l.buf = l.buf[:0]
	if !l.yield(f, nil) {
		return errStopped
	}
	return nil
}
