package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/proc"
)

// Version says what a daemon is.
type Version = conch.VersionInfo

// Version asks the daemon for its version, whatever protocol it speaks.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	var v Version
	k := call{method: http.MethodGet, url: daemonURL("/version", nil), anyVersion: true}
	if err := c.json(ctx, k, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

// Status asks the daemon how it is.
func (c *Client) Status(ctx context.Context) (*conch.StatusInfo, error) {
	var s conch.StatusInfo
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/status", nil)}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// A Check is one thing the doctor looked at.
type Check = conch.Check

// Doctor has the daemon look at what it stands on; deep, at every byte of every
// tape, which may take minutes.
func (c *Client) Doctor(ctx context.Context, deep bool) ([]Check, error) {
	var r conch.Checkup
	var q url.Values
	if deep {
		q = url.Values{"deep": {"1"}}
	}
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/doctor", q)}, &r); err != nil {
		return nil, err
	}
	return r.Checks, nil
}

// OpenAPI is the daemon's description of its HTTP interface, as JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	var doc json.RawMessage
	u := strings.TrimSuffix(daemonURL("", nil), "/v1") + "/openapi.json"
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// answerLimit is how long a daemon may take to say that it is there.
const answerLimit = 2500 * time.Millisecond

// Ping asks the daemon that runs whether it answers, and starts none: the error is
// conch.NotRunning where there is none, and says what is known of one that
// does not answer in time.
func (c *Client) Ping(ctx context.Context) (*Version, error) {
	quiet := New(c.o)
	quiet.o.NoStart = true
	defer quiet.CloseIdle()
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errSilent)
	defer cancel()
	v, err := quiet.Version(ctx)
	if !errors.Is(err, errSilent) {
		return v, err
	}
	e := conch.Errorf(conch.Unresponsive, "the daemon does not answer").
		Hint("conch down ends it if it can; sessions go on without a daemon")
	if pid := quiet.silentPID(); pid > 0 {
		e = conch.Errorf(conch.Unresponsive, "the daemon (process %d) does not answer", pid).
			Hint("kill -9 %d ends it, sessions go on, and the next command starts another", pid)
		if st, err := proc.State(pid); err == nil && (st == 'T' || st == 't') {
			e = conch.Errorf(conch.Unresponsive, "the daemon (process %d) is stopped", pid).
				Hint("kill -CONT %d has it go on; sessions are not affected", pid)
		}
	}
	return nil, e.Retry()
}

var errSilent = errors.New("no answer in time")

// silentPID is the process that listens, 0 if it cannot be told.
func (c *Client) silentPID() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	id, err := c.daemon(ctx)
	if err != nil {
		return 0
	}
	return id.PID
}
