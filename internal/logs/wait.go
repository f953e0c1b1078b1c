package logs

import (
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// MaxWait bounds times in a request: no timer overflows, and nobody means more.
const MaxWait = 365 * 24 * time.Hour

// CheckWait refuses a wait that cannot be meant, and gives its matcher, if it has one.
func CheckWait(q *conch.WaitRequest) (*Matcher, error) {
	bad := func(format string, args ...any) (*Matcher, error) {
		return nil, conch.Errorf(conch.InvalidRequest, format, args...)
	}
	stream, err := ParseStream(q.Stream)
	if err != nil {
		return nil, err
	}
	switch {
	case q.Port < 0 || q.Port > 65535:
		return bad("%d is not a port", q.Port)
	case q.IdleMS < 0 || q.TimeoutMS < 0 || q.IdleMS > MaxWait.Milliseconds() || q.TimeoutMS > MaxWait.Milliseconds():
		return bad("times are from 0 to %d milliseconds", MaxWait.Milliseconds())
	case q.HTTPStatus != 0 && (q.HTTPStatus < 100 || q.HTTPStatus > 599):
		return bad("%d is not an HTTP status", q.HTTPStatus)
	case q.HTTPStatus != 0 && q.HTTP == "":
		return bad("http_status needs http")
	case q.Stream != "" && q.Log == "":
		return bad("stream needs log")
	}
	if q.HTTP != "" {
		if u, err := url.Parse(q.HTTP); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return bad("%q is not an http address", q.HTTP)
		}
	}
	if !q.Exit && q.Log == "" && q.Port == 0 && q.HTTP == "" && q.IdleMS == 0 {
		q.Exit = true
	}
	if q.Log == "" {
		return nil, nil
	}
	return NewMatcher(q.Log, stream)
}

// Past answers a wait for a process that has ended, from what it wrote.
func Past(q conch.WaitRequest, m *Matcher, next func() (tape.Frame, error)) (conch.WaitResult, error) {
	if m != nil {
		var last tape.Frame
		for {
			f, err := next()
			if errors.Is(err, io.EOF) { // and not at its exit: what it left may have written since
				if got, ok := m.End(last); ok {
					return conch.WaitResult{Reason: conch.WaitLog, Match: got}, nil
				}
				break
			}
			if err != nil {
				return conch.WaitResult{}, err
			}
			if got, ok := m.Add(f); ok {
				return conch.WaitResult{Reason: conch.WaitLog, Match: got}, nil
			}
			last = f
		}
	}
	if q.Exit {
		return conch.WaitResult{Reason: conch.WaitExit}, nil
	}
	return conch.WaitResult{Reason: conch.WaitEnded}, nil
}
