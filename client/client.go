// Package client talks to the conch daemon over its unix socket, and starts the
// daemon when there is none. The command line uses nothing else.
//
// New does nothing; the first call looks for the daemon. Every call takes a
// context. Cancelling it abandons the call, never the command: a command whose
// client is gone runs on, and its output can be fetched with Output or Result.
//
// Stream, Follow and Watch bring events as they happen, and go on by themselves
// where they were when a connection is cut or a daemon or keeper dies: every
// event comes once. What cannot be had any more is an error, never a silent gap.
//
// Sessions are named by a label, or by agent/label; the empty label is
// $CONCH_SESSION, else main. Errors are *conch.Error and match their kind with
// errors.Is. A Client may be used from any number of goroutines.
package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/conchsh/conch"
)

// Options are set before New. The zero value reaches the user's own daemon.
type Options struct {
	// Home is conch's state directory. Empty: see Home.
	Home string
	// Socket, when given, is dialled as it is: nothing is looked up or started,
	// assignments of agents neither, unless Home says where.
	Socket string
	// Agent is whose sessions bare labels mean. Empty: see Client.Agent.
	Agent string
	// NoStart makes calls fail with conch.NotRunning where there is no daemon.
	NoStart bool
	// NoCreate makes Exec and Stream fail with conch.SessionNotFound on a
	// label that no session has, instead of making the session.
	NoCreate bool
	// Cwd is where a session made by Exec or Stream starts. Empty: the
	// directory of this process.
	Cwd string
	// Exe is the conch binary that starts the daemon. Empty: this process's
	// own executable where that is conch, else the conch on PATH.
	Exe string
}

// A Client is a handle on one daemon.
type Client struct {
	o         Options
	noConfig  bool // a daemon that this client starts reads no configuration
	transport transport

	once    sync.Once // guards home and homeErr
	home    string
	homeErr error

	assigned assigned
}

// New gives a client. It touches neither disk nor network.
func New(o Options) *Client {
	c := &Client{o: o}
	c.transport.dial = c.dial
	return c
}

// CloseIdle gives back the connections that no call is using. The client
// stays usable.
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// Home is the client's state directory, absolute.
func (c *Client) Home() (string, error) {
	c.once.Do(func() { c.home, c.homeErr = Home(c.o.Home) })
	return c.home, c.homeErr
}

// Resolve gives the agent and label a session's name stands for.
func (c *Client) Resolve(name string) (agent, label string, err error) {
	agent, label, both := strings.Cut(name, "/")
	if !both {
		label = name
		if label == "" {
			label = os.Getenv("CONCH_SESSION")
		}
		if label == "" {
			label = conch.DefaultLabel
		}
		// $CONCH_SESSION may have an agent's name in front too.
		if agent, label, both = strings.Cut(label, "/"); !both {
			label = agent
			if agent, _, err = c.Agent(); err != nil {
				return "", "", err
			}
		}
	}
	return agent, label, check(agent, label)
}

func check(agent, label string) error {
	if err := conch.CheckAgent(agent); err != nil {
		return err
	}
	return conch.CheckLabel(label)
}

// A call is one request. The host decides the connection: the daemon hands a
// connection over to the session it first asks for, so each session has a
// host name, and with it a pool, of its own.
type call struct {
	method, url string
	body        any // nil, []byte as it is, or a value sent as JSON
	accept      string
	anyVersion  bool // neither side minds which protocol the other speaks
	// again, if set, makes the body anew for another try after a connection
	// that ended without an answer: doing it twice is doing it once.
	again func() any
}

// daemonURL is for what the daemon answers itself.
func daemonURL(path string, query url.Values) string {
	return "http://daemon.conch/v1" + path + encodeQuery(query)
}

// sessionURL is for what a session's keeper answers.
func (c *Client) sessionURL(name, path string, query url.Values) (string, error) {
	agent, label, err := c.Resolve(name)
	if err != nil {
		return "", err
	}
	return "http://s-" + hex.EncodeToString([]byte(agent+"/"+label)) + ".conch/v1/sessions/" +
		agent + "/" + label + path + encodeQuery(query), nil
}

func encodeQuery(q url.Values) string {
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// do sends a call and gives a response with a 2xx status; anything else is an
// error. The caller closes the body.
func (c *Client) do(ctx context.Context, k call) (*http.Response, error) {
	var body []byte
	contentType := "application/json"
	switch b := k.body.(type) {
	case nil:
	case []byte:
		body, contentType = b, "application/octet-stream"
	default:
		var err error
		if body, err = json.Marshal(b); err != nil {
			return nil, conch.Errorf(conch.InvalidRequest, "cannot encode the request: %v", err)
		}
	}
	for tries := 0; ; tries++ {
		var r io.Reader
		if k.body != nil {
			r = bytes.NewReader(body)
		}
		req, err := http.NewRequestWithContext(ctx, k.method, k.url, r)
		if err != nil {
			return nil, conch.Errorf(conch.InvalidRequest, "%v", err)
		}
		if k.body != nil {
			req.Header.Set("Content-Type", contentType)
		}
		resp, err := c.send(req, k)
		// A unix socket is reset, rather than ended, when its far end closed
		// without having read all that was sent: the daemon died, or left for
		// being idle, between our connect and its reading. The request was
		// then never whole in anybody's hands, so sending it again cannot run
		// anything twice. An ended connection (EOF) gives no such proof, but
		// what only reads may be asked again: a keeper that died while we
		// waited for a result has left a record of it.
		unread := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		ended := (k.method == http.MethodGet || k.again != nil) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
		if tries < 5 && (unread || ended) {
			if k.again != nil {
				if body, err = json.Marshal(k.again()); err != nil {
					return nil, conch.Errorf(conch.InvalidRequest, "cannot encode the request: %v", err)
				}
			}
			continue
		}
		if err != nil {
			return nil, c.explain(ctx, k, err)
		}
		return resp, nil
	}
}

// send makes one attempt.
func (c *Client) send(req *http.Request, k call) (*http.Response, error) {
	if k.accept != "" {
		req.Header.Set("Accept", k.accept)
	}
	req.Header.Set("User-Agent", "")
	if !k.anyVersion {
		req.Header.Set("Conch-Protocol", strconv.Itoa(conch.ProtocolVersion))
	}
	resp, err := c.transport.RoundTrip(req) // no redirects, no cookies
	if err != nil {
		return nil, err
	}
	if err := checkProtocol(resp, k); err != nil {
		resp.Body.Close()
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, decodeError(resp)
	}
	return resp, nil
}

// checkProtocol refuses an answer that this client might misread.
func checkProtocol(resp *http.Response, k call) error {
	got := resp.Header.Get("Conch-Protocol")
	if n, err := strconv.Atoi(got); k.anyVersion || err == nil && conch.Speaks(n) {
		return nil
	}
	if got == "" {
		got = "unknown"
	}
	version := resp.Header.Get("Conch-Version")
	if version == "" {
		version = "of another version"
	}
	e := conch.Errorf(conch.VersionMismatch, "conch %s answered with protocol %s, this client speaks %d",
		version, got, conch.ProtocolVersion)
	return e.Hint("conch down stops the other daemon and leaves its sessions running; then try again")
}

// decodeError reads the error a response stands for.
func decodeError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var b conch.ErrorBody
	if err := json.Unmarshal(data, &b); err == nil && b.Error.Code != "" {
		return b.Err()
	}
	return conch.Errorf(conch.Internal, "the daemon answered %s without a reason", resp.Status).
		Hint("conch doctor may say more")
}

// explain turns what net/http says into a *conch.Error, or the context's error
// when that is the cause.
func (c *Client) explain(ctx context.Context, k call, err error) error {
	if e, ok := errors.AsType[*conch.Error](err); ok {
		return e
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e := conch.Errorf(conch.Internal, "the connection was lost before the answer: %v", err)
	if k.method == http.MethodPost {
		return e.Hint("it may have been done all the same: conch history and conch sessions show what is")
	}
	return e.Hint("try again; daemon.log in conch's home may say why").Retry()
}

// json makes a call and decodes its answer into v (nil: thrown away).
func (c *Client) json(ctx context.Context, k call, v any) error {
	resp, err := c.do(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if v == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = decode(resp.Body, v)
	}
	if err != nil {
		return c.explain(ctx, k, err)
	}
	return nil
}

// decode reads one JSON value that is all of r: to the end, so that the
// connection can be used again.
func decode(r io.Reader, v any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return conch.Errorf(conch.Internal, "unreadable answer: %v", err)
	}
	return nil
}

// open makes a call whose answer is bytes.
func (c *Client) open(ctx context.Context, k call) (io.ReadCloser, error) {
	resp, err := c.do(ctx, k)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
