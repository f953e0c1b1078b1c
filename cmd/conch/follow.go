package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

// A follower brings one command's events to stdout and stderr.
type follower struct {
	c *client.Client
	f *execFlags

	id   conch.CommandID
	line bytes.Buffer // of --jsonl
}

// follow runs the command to its end. The stream is handed to accepted as soon
// as there is one.
func (fo *follower) follow(ctx context.Context, req conch.ExecRequest, accepted chan<- *client.Stream) (*conch.Result, error) {
	s, err := fo.c.Stream(ctx, fo.f.session, req)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	fo.id = s.ID()
	accepted <- s
	waiting, begun := context.WithCancel(ctx)
	defer begun()
	if !fo.f.json && !fo.f.jsonl && isTerminal(os.Stderr) {
		go fo.tellWaiting(waiting) // ends with waiting
	}
	for {
		e, err := s.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, conch.Errorf(conch.Internal, "the connection to the session was lost and could not be had again").
				Hint("conch history says what became of the command; conch output %s has its output", fo.id)
		}
		if err != nil {
			return nil, err
		}
		switch e.Kind {
		case client.Started:
			begun()
			if fo.f.stdin {
				// Ends with the command's reading or with this process.
				go fo.feed(s.Stdin(ctx))
			}
			if fo.f.json {
				// From here on only the result counts, and the session makes
				// that itself, cut to size. What stops a command before its
				// start has come through the stream.
				if !fo.f.stdin {
					s.Close() // with -i it stays: the session takes our leaving for the end of the input
				}
				return fo.c.Result(ctx, fo.id, fo.f.maxOutput)
			}
		case client.Exited:
			return e.Result, fo.show(e)
		}
		if err := fo.show(e); err != nil {
			return nil, err
		}
	}
}

// waitQuietly is how long a command waits before a person is told for what.
const waitQuietly = 2 * time.Second

// tellWaiting says for what a command waits that does not begin.
func (fo *follower) tellWaiting(ctx context.Context) {
	select {
	case <-time.After(waitQuietly):
	case <-ctx.Done():
		return
	}
	i, err := fo.c.Session(ctx, fo.f.session)
	switch {
	case err != nil || ctx.Err() != nil:
	case i.Running != "":
		say(os.Stderr, fmt.Sprintf("waits for %s (%.60q)", i.Running, i.Command), "conch interrupt -s "+i.Label+" ends it; Ctrl-C gives up")
	case i.Attached > 0:
		say(os.Stderr, "waits: somebody is attached to session "+i.Label+" and holds its prompt", "it runs when they leave; Ctrl-C gives up")
	}
}

// feed gives the command our stdin, and the end of it.
func (fo *follower) feed(w io.WriteCloser) {
	buf := make([]byte, 256<<10)
	for {
		n, err := os.Stdin.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				fo.unfed(err)
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				say(os.Stderr, "cannot read stdin: "+err.Error(), "")
			}
			if err := w.Close(); err != nil {
				fo.unfed(err)
			}
			return
		}
	}
}

// unfed speaks of input that did not arrive, unless the command did not want
// it, which is its own business.
func (fo *follower) unfed(err error) {
	if errors.Is(err, conch.StdinClosed) || errors.Is(err, conch.CommandNotFound) {
		return
	}
	e := conch.AsError(err)
	say(os.Stderr, "the command's stdin was cut: "+e.Message, e.HintText)
}

// show writes one event in the form asked for.
func (fo *follower) show(e client.Event) error {
	var w io.Writer = os.Stdout
	if e.Kind == client.Stderr {
		w = os.Stderr
	}
	if fo.f.jsonl {
		return fo.showLine(e)
	}
	if len(e.Data) == 0 || fo.f.json {
		return nil
	}
	_, err := w.Write(e.Data)
	return fo.detached(err)
}

// detached is what a failed write means: nobody, or no disk, takes the output;
// the command itself goes on.
func (fo *follower) detached(err error) error {
	if err == nil {
		return nil
	}
	if brokenPipe(err) {
		return exitStatus(statusPipe)
	}
	return conch.Errorf(conch.Internal, "cannot write the output: %v", err).
		Hint("the command goes on; conch output %s has all of it", fo.id)
}

// exitLine is the last line of --jsonl: the result less the streams.
type exitLine struct {
	Type        string          `json:"type"`
	Seq         uint64          `json:"seq"`
	T           float64         `json:"t"`
	Session     string          `json:"session"`
	CommandID   conch.CommandID `json:"command_id"`
	ExitCode    *int            `json:"exit_code"`
	Signal      *string         `json:"signal"`
	StdoutBytes int64           `json:"stdout_bytes"`
	StderrBytes int64           `json:"stderr_bytes"`
	Encoding    string          `json:"encoding"`
	Truncated   bool            `json:"truncated"`
	TimedOut    bool            `json:"timed_out"`
	Interrupted bool            `json:"interrupted"`
	// Nothing is cut from the events, so these are null.
	StdoutOmitted *conch.Omitted    `json:"stdout_omitted"`
	StderrOmitted *conch.Omitted    `json:"stderr_omitted"`
	Background    int               `json:"background"`
	Shell         conch.ShellReport `json:"shell"`
	Cwd           string            `json:"cwd"`
	DurationMS    float64           `json:"duration_ms"`
	StartedAt     time.Time         `json:"started_at"`
	Ended         *conch.Ended      `json:"ended,omitempty"`
}

// startLine is the first line of --jsonl.
type startLine struct {
	Type      string          `json:"type"`
	Seq       uint64          `json:"seq"`
	T         float64         `json:"t"`
	Session   string          `json:"session"`
	CommandID conch.CommandID `json:"command_id"`
}

// outputLine is a line of --jsonl with output.
type outputLine struct {
	Type     string  `json:"type"`
	Seq      uint64  `json:"seq"`
	T        float64 `json:"t"`
	Data     string  `json:"data"`
	Encoding string  `json:"encoding"`
}

// showLine writes one line of --jsonl with one write.
func (fo *follower) showLine(e client.Event) error {
	kind, t := e.Kind.String(), seconds(e.T)
	var v any
	switch e.Kind {
	case client.Started:
		_, label, err := fo.c.Resolve(fo.f.session)
		if err != nil {
			return err
		}
		v = startLine{kind, e.Seq, t, label, fo.id}
	case client.Exited:
		r := e.Result
		// Nothing is cut from events, whatever a result would have room for.
		v = exitLine{
			kind, e.Seq, t, r.Session, r.CommandID, r.ExitCode, r.Signal, r.StdoutBytes, r.StderrBytes, "utf-8", false,
			r.TimedOut, r.Interrupted, nil, nil, r.Background, r.Shell, r.Cwd, r.DurationMS, r.StartedAt, r.Ended,
		}
	default:
		data, encoding := encodeData(e.Data)
		v = outputLine{kind, e.Seq, t, data, encoding}
	}
	fo.line.Reset()
	enc := json.NewEncoder(&fo.line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return conch.Errorf(conch.Internal, "cannot encode an event: %v", err)
	}
	_, err := os.Stdout.Write(fo.line.Bytes())
	return fo.detached(err)
}

// encodeData makes bytes a JSON string. A chunk that ends inside a character
// is base64 too: each line stands for itself.
func encodeData(p []byte) (data, encoding string) {
	if utf8.Valid(p) {
		return string(p), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(p), "base64"
}

// seconds is d with microseconds, as events have it.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e6 }
