package client

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// Exec runs a command in a session's shell and waits for its result, which
// holds at most req.MaxOutput bytes of each stream. A command that fails, times
// out or is interrupted is a result; an error means that conch could not run it.
func (c *Client) Exec(ctx context.Context, session string, req conch.ExecRequest) (*conch.Result, error) {
	u, err := c.startURL(session, "/exec")
	if err != nil {
		return nil, err
	}
	var r conch.Result
	k := call{method: http.MethodPost, url: u, body: encodeExec(req), accept: "application/json"}
	if err := c.json(ctx, k, &r); err != nil {
		return nil, err
	}
	return whole(&r), nil
}

// Result waits until a command is done and gives its result, as Exec would
// have. maxOutput 0 stands for 1 MiB.
func (c *Client) Result(ctx context.Context, id conch.CommandID, maxOutput int64) (*conch.Result, error) {
	u, err := commandURL(id, "", url.Values{"wait": {"1"}, "max_output": {strconv.FormatInt(maxOutput, 10)}})
	if err != nil {
		return nil, err
	}
	var r conch.Result
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &r); err != nil {
		return nil, err
	}
	return whole(&r), nil
}

// startURL is where commands and processes go; it says whether the session may be
// made, and in which directory.
func (c *Client) startURL(session, path string) (string, error) {
	q := url.Values{}
	if !c.o.NoCreate {
		q.Set("create", "1")
		if dir := c.startDir(); dir != "" {
			q.Set("cwd", dir)
		}
	}
	return c.sessionURL(session, path, q)
}

// startDir is where sessions made by this client start. A caller whose own
// directory has been removed leaves the choice to the daemon.
func (c *Client) startDir() string {
	if c.o.Cwd != "" {
		return c.o.Cwd
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}

// encodeExec is req as JSON can carry it.
func encodeExec(req conch.ExecRequest) conch.ExecBody {
	plain := utf8.ValidString(req.Command) && utf8.ValidString(req.Cwd)
	for _, v := range req.Env {
		plain = plain && utf8.ValidString(v)
	}
	if plain {
		return conch.ExecBody{ExecRequest: req}
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	req.Command, req.Cwd = b64(req.Command), b64(req.Cwd)
	env := make(map[string]string, len(req.Env))
	for k, v := range req.Env {
		env[k] = b64(v)
	}
	req.Env = env
	return conch.ExecBody{ExecRequest: req, Encoding: "base64"}
}

// whole makes absent lists empty, so that they print as [] and not as null.
func whole(r *conch.Result) *conch.Result {
	if r.Shell.Restored == nil {
		r.Shell.Restored = []string{}
	}
	if r.Shell.Lost == nil {
		r.Shell.Lost = []string{}
	}
	return r
}

// commandURL is for a command by its id alone, whichever session ran it.
func commandURL(id conch.CommandID, path string, q url.Values) (string, error) {
	if _, _, err := id.Split(); err != nil {
		return "", err
	}
	return daemonURL("/commands/"+string(id)+path, q), nil
}
