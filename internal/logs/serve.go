package logs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// TapeType is the content type of tape frames: exact, both streams in order.
const TapeType = "application/vnd.conch.tape"

const (
	defPage = 1 << 20
	maxPage = 64 << 20
)

// A Query is a request for output: which, and in what form. Bytes as they were written
// are the plain form, with both streams in the order of their arrival; frames are for
// our own clients; a page is JSON with a cursor to go on from.
type Query struct {
	Filter
	Follow       bool
	frames, page bool
	most         int64
}

// ParseQuery reads a request's query and what it accepts.
func ParseQuery(v url.Values, accept string) (*Query, error) {
	q := &Query{frames: strings.Contains(accept, TapeType), most: defPage}
	q.page = !q.frames && strings.Contains(accept, "application/json")
	number := func(key string, limit int64, set func(int64)) error {
		s := v.Get(key)
		if s == "" {
			return nil
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return conch.Errorf(conch.InvalidRequest, "%s=%q is not a count", key, s)
		}
		if n > limit {
			return conch.Errorf(conch.TooLarge, "%s is limited to %d", key, limit)
		}
		set(n)
		return nil
	}
	var err error
	for key := range v {
		switch key {
		case "stream":
			q.Stream, err = ParseStream(v.Get(key))
		case "since":
			if q.After, err = strconv.ParseUint(v.Get(key), 10, 64); err != nil && v.Get(key) != "" {
				err = conch.Errorf(conch.InvalidRequest, "%q is not a cursor", v.Get(key)).Hint("a cursor is a number that logs --json gave")
			} else {
				err = nil
			}
		case "tail":
			err = number(key, 1_000_000, func(n int64) {
				if q.Tail = int(n); n == 0 {
					q.Tail = -1
				}
			})
		case "max_output":
			err = number(key, maxPage, func(n int64) {
				if n > 0 {
					q.most = n
				}
			})
		case "grep":
			if s := v.Get(key); s != "" {
				q.Grep, err = Compile(s)
			}
		case "follow":
			q.Follow = v.Get(key) == "1" || v.Get(key) == "true"
		default:
			err = conch.Errorf(conch.InvalidRequest, "unknown parameter %q", key).Hint("stream, since, tail, grep, follow, max_output")
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Follow && q.page {
		return nil, conch.Errorf(conch.InvalidRequest, "a page is of what there is; it cannot follow").Hint("leave out follow, or accept %s", TapeType)
	}
	return q, nil
}

// Page reports whether JSON was asked for, which says itself how things stand.
func (q *Query) Page() bool { return q.page }

// Frames reports whether frames were asked for.
func (q *Query) Frames() bool { return q.frames }

// ParseStream reads the name of a stream; empty is both.
func ParseStream(s string) (tape.Kind, error) {
	switch s {
	case "":
		return 0, nil
	case "stdout":
		return tape.Stdout, nil
	case "stderr":
		return tape.Stderr, nil
	}
	return 0, conch.Errorf(conch.InvalidRequest, "no stream %q", s).Hint("stream is stdout or stderr")
}

// A Source gives the frames of one process. Next gives io.EOF when there is nothing
// more now; Wait then waits for more, and gives io.EOF when there will be none. A nil
// Wait is a source to which nothing is added.
type Source struct {
	Next func() (tape.Frame, error)
	Wait func() error
}

// Answer writes what was asked for. An error of the source before the first byte is
// returned with started false, and can still be answered.
func (q *Query) Answer(w http.ResponseWriter, src Source, describe func() (conch.Process, error)) (started bool, err error) {
	if q.page {
		return q.answerPage(w, src, describe)
	}
	kind := "application/octet-stream"
	if q.frames {
		kind = TapeType
	}
	w.Header().Set("Content-Type", kind)
	var buf []byte
	var exit tape.Frame
	emit := func(f tape.Frame) error {
		started = true
		if !q.frames {
			_, err := w.Write(f.Data)
			return err
		}
		buf = tape.AppendFrame(buf[:0], f)
		_, err := w.Write(buf)
		return err
	}
	for {
		f, err := src.Next()
		if errors.Is(err, io.EOF) {
			if !q.Follow || src.Wait == nil {
				break
			}
			if err := q.Now(emit); err != nil {
				return started, over(err)
			}
			http.NewResponseController(w).Flush()
			started = true
			if err := src.Wait(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return started, err
			}
			continue
		}
		if err != nil {
			return started, err
		}
		if f.Kind == tape.Exit && src.Wait == nil {
			exit = f // what its children wrote after it comes first
			exit.Data = bytes.Clone(f.Data)
		}
		if f.Kind == tape.Exit && q.Follow && src.Wait != nil {
			if err := q.End(emit); err != nil {
				return started, over(err)
			}
			if q.frames {
				emit(f)
			}
			return true, nil
		}
		if err := q.Add(f, emit); err != nil {
			return started, over(err)
		}
	}
	if err := q.End(emit); err != nil {
		return started, over(err)
	}
	if q.Follow && q.frames && exit.Kind == tape.Exit {
		emit(exit)
	}
	return started, nil
}

// over is what remains of an error while writing: that the client has left is none.
func over(err error) error {
	if _, ours := errors.AsType[*conch.Error](err); ours {
		return err
	}
	return nil
}

// answerPage collects whole frames up to the limit, one at least.
func (q *Query) answerPage(w http.ResponseWriter, src Source, describe func() (conch.Process, error)) (bool, error) {
	var out, errs []byte
	page := conch.LogPage{Cursor: q.After, Encoding: "utf-8"}
	full := errors.New("page is full")
	emit := func(f tape.Frame) error {
		// A cursor stands between frames: lines of one frame stay together.
		if n := int64(len(out) + len(errs)); n > 0 && f.Seq != page.Cursor && n+int64(len(f.Data)) > q.most {
			page.More = true
			return full
		}
		if f.Kind == tape.Stdout {
			out = append(out, f.Data...)
		} else {
			errs = append(errs, f.Data...)
		}
		page.Cursor = max(page.Cursor, f.Seq)
		return nil
	}
	last := q.After
	for {
		f, err := src.Next()
		if errors.Is(err, io.EOF) {
			if err := q.End(emit); over(err) != nil {
				return false, err
			} else if err == nil && q.byLine() {
				page.Cursor = max(page.Cursor, last) // what did not match need not be looked at again
			}
			break
		}
		if err != nil {
			return false, err
		}
		if err := q.Add(f, emit); over(err) != nil {
			return false, err
		} else if err != nil {
			break
		}
		last = max(last, f.Seq)
	}
	p, err := describe()
	if err != nil {
		return false, err
	}
	page.ProcessID, page.Status, page.Error = p.ProcessID, p.Status, p.Error
	if utf8.Valid(out) && utf8.Valid(errs) {
		page.Stdout, page.Stderr = string(out), string(errs)
	} else {
		page.Encoding = "base64"
		page.Stdout, page.Stderr = base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errs)
	}
	return true, writePage(w, page)
}

func writePage(w http.ResponseWriter, page conch.LogPage) error {
	b, err := json.Marshal(page)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.Write(append(b, '\n'))
	return nil
}
