// Package logs reads a process's output as people ask for it: one stream or both,
// from a cursor on, the last lines, the lines that match; and finds a pattern in it
// as it comes.
//
// It works on the frames of a tape and keeps nothing but what an answer needs: the
// lines asked for, and the line that is not complete yet. A cursor is the sequence
// number of a frame; what follows it is given.
package logs

import (
	"bytes"
	"regexp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// MaxLine bounds what is kept to choose lines by: the longest line, and the last lines
// together. Reaching it is an error: a line that was cut would be another line.
const MaxLine = 64 << 20

func tooLong() error {
	return conch.Errorf(conch.TooLarge, "choosing lines holds at most %d MiB of them, and these are longer", MaxLine>>20).
		Hint("without tail and grep the output is given whole")
}

// A Filter chooses frames of one process. The zero Filter passes all output.
type Filter struct {
	Stream tape.Kind // 0: both
	After  uint64    // only frames with a higher sequence number
	Tail   int       // only the last lines; 0: all; -1: none, only what is still to come
	Grep   *regexp.Regexp

	part map[tape.Kind]*partial
	kept []tape.Frame // the last lines so far
	size int
	live bool // the past has been given: lines pass as they come
}

// partial is a line that has begun.
type partial struct {
	buf  []byte
	last tape.Frame // the frame that brought its last bytes
}

// wants reports whether a frame is among those asked for at all.
func (f *Filter) wants(fr tape.Frame) bool {
	return (fr.Kind == tape.Stdout || fr.Kind == tape.Stderr) && (f.Stream == 0 || f.Stream == fr.Kind) && fr.Seq > f.After
}

// byLine reports whether frames must be cut into lines.
func (f *Filter) byLine() bool { return f.Tail != 0 || f.Grep != nil }

// Add takes the next frame and calls emit for what is to be shown of it. What emit
// gets is valid during the call.
func (f *Filter) Add(fr tape.Frame, emit func(tape.Frame) error) error {
	if !f.wants(fr) {
		return nil
	}
	if !f.byLine() {
		return emit(fr)
	}
	if f.part == nil {
		f.part = map[tape.Kind]*partial{}
	}
	p := f.part[fr.Kind]
	if p == nil {
		p = &partial{}
		f.part[fr.Kind] = p
	}
	data := fr.Data
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		n := i + 1
		if i < 0 {
			n = len(data)
		}
		if len(p.buf)+n > MaxLine {
			return tooLong()
		}
		p.buf = append(p.buf, data[:n]...)
		whole := data[n-1] == '\n'
		data = data[n:]
		p.last = fr
		if whole {
			if err := f.line(p, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// line deals with a line that is complete, or all there is of it.
func (f *Filter) line(p *partial, emit func(tape.Frame) error) error {
	text := p.buf
	p.buf = p.buf[:0]
	if f.Grep != nil && !f.Grep.Match(bytes.TrimSuffix(text, []byte("\n"))) {
		return nil
	}
	fr := p.last
	fr.Data = text
	if f.Tail == 0 || f.live {
		return emit(fr)
	}
	if f.Tail < 0 {
		return nil
	}
	fr.Data = bytes.Clone(text)
	f.kept = append(f.kept, fr)
	f.size += len(text)
	for len(f.kept) > f.Tail {
		f.size -= len(f.kept[0].Data)
		f.kept = f.kept[1:]
	}
	if f.size > MaxLine {
		return tooLong()
	}
	return nil
}

// Now is called when all that is there has been added: the last lines are given,
// and what follows is given as it comes.
func (f *Filter) Now(emit func(tape.Frame) error) error {
	if f.live {
		return nil
	}
	if f.Tail != 0 {
		// A line that has only begun is the last one all the same.
		for _, k := range []tape.Kind{tape.Stdout, tape.Stderr} {
			if p := f.part[k]; p != nil && len(p.buf) > 0 {
				if err := f.line(p, emit); err != nil {
					return err
				}
			}
		}
	}
	f.live = true
	for _, fr := range f.kept {
		if err := emit(fr); err != nil {
			return err
		}
	}
	f.kept = nil
	return nil
}

// End is called when nothing can follow: lines that never ended are given too.
func (f *Filter) End(emit func(tape.Frame) error) error {
	if f.live || f.Tail == 0 {
		for _, k := range []tape.Kind{tape.Stdout, tape.Stderr} {
			if p := f.part[k]; p != nil && len(p.buf) > 0 {
				if err := f.line(p, emit); err != nil {
					return err
				}
			}
		}
	}
	return f.Now(emit)
}
