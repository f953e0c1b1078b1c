package host

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/responder"
	"github.com/conchsh/conch/internal/sandbox"
	"github.com/conchsh/conch/internal/session"
)

// newResponder joins mail and sessions for those who are not there to answer.
func (h *Host) newResponder() *responder.Responder {
	c := h.Config
	return responder.New(responder.Options{
		Settings: responder.Settings{
			Command: c.Text(config.ResponderCommand), All: c.Text(config.ResponderMail) == "all", After: c.Time(config.ResponderAfter),
			Pool: int(c.Get(config.ResponderPool)), Time: c.Time(config.ResponderTime), Reply: c.Get(config.ResponderReply),
			PerPeer: int(c.Get(config.ResponderPerPeer)), PerDay: int(c.Get(config.ResponderPerDay)), Hops: int(c.Get(config.ResponderHops)),
			Sandboxed: h.sandboxed, Bare: c.Get(config.ResponderUnsandboxed) != 0,
		},
		Mail: h.Mail, Log: h.Log,
		Run: h.respond, Clear: h.clear, NewDir: newRunDir,
		Participant: func(agent string) string {
			if k, err := h.Agents.Get(agent); err == nil {
				return k.Address
			}
			return agent
		},
		Authority: h.authority,
	})
}

// authority is what an agent that writes may expect. Those of this home are the user's
// own.
func (h *Host) authority(agent, peer string) string {
	if h.agentHere(peer) {
		return string(conch.AuthorityOwn)
	}
	return string(h.Post.Authority(context.Background(), agent, peer))
}

// newRunDir names a directory that nothing is at.
func newRunDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("conch-responder-%d-%016x", os.Getuid(), rand.Uint64()))
}

// closeLimit is what ending a run's session may take, whoever waits for it.
const closeLimit = 30 * time.Second

// respond runs the responder's command in a session of its own, which is gone
// afterwards with all that it started.
func (h *Host) respond(ctx context.Context, j responder.Job) (res responder.Result, err error) {
	if err := os.Mkdir(j.Dir, 0o700); err != nil {
		return res, err
	}
	defer h.clear(context.WithoutCancel(ctx), j.Agent, j.Session, j.Dir)
	dir, err := filepath.EvalSymlinks(j.Dir)
	if err != nil {
		return res, err
	}
	spec := session.NewSpec{Agent: j.Agent, Label: j.Session, Cwd: dir, Env: j.Env, Clean: true, Only: splitWords(h.Config.Text(config.ResponderEnv))}
	if !j.Bare {
		spec.Sandbox = &session.Sandbox{Network: h.Config.Get(config.ResponderNetwork) != 0}
		for _, p := range splitWords(h.Config.Text(config.ResponderAllow)) {
			if rest, ok := strings.CutPrefix(p, "~/"); ok {
				p = filepath.Join(h.Store.UserHome(), rest)
			}
			if p, err = filepath.EvalSymlinks(p); err != nil {
				return res, fmt.Errorf("responder.allow: %w", err)
			}
			spec.Sandbox.Allow = append(spec.Sandbox.Allow, p)
		}
	}
	s, err := h.Store.Create(ctx, spec)
	if err != nil {
		return res, err
	}
	limit := h.Config.Time(config.ResponderTime)
	r, err := s.Exec(ctx, conch.ExecRequest{Command: h.Config.Text(config.ResponderCommand), Stdin: []byte(j.Stdin),
		TimeoutMS: limit.Milliseconds(), MaxOutput: h.Config.Get(config.ResponderReply) + 1})
	if err != nil {
		return res, err
	}
	res = responder.Result{Bytes: r.StdoutBytes, ExitCode: r.ExitCode, TimedOut: r.TimedOut, CommandID: r.CommandID}
	if res.Stdout = []byte(r.Stdout); r.Encoding == "base64" {
		res.Stdout, err = base64.StdEncoding.DecodeString(r.Stdout)
	}
	return res, err
}

// splitWords reads a list with commas; never nil.
func splitWords(text string) []string {
	list := []string{}
	for _, w := range strings.Split(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			list = append(list, w)
		}
	}
	return list
}

// clear ends a run's session, if it has one, and removes its directory.
func (h *Host) clear(ctx context.Context, agent, label, dir string) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	s, err := h.Store.Lookup(agent, label)
	if err == nil {
		_, err = s.Close(ctx)
	}
	if err != nil && !errors.Is(err, conch.SessionNotFound) && h.Log != nil {
		h.Log.Warn("responder: end a run's session", "label", label, "err", err)
	}
	if !strings.HasPrefix(filepath.Base(dir), "conch-responder-") {
		return
	}
	// What it made unreadable is its own.
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil && h.Log != nil {
		h.Log.Warn("responder: remove a run's directory", "dir", dir, "err", err)
	}
}

// sandboxed tries a sandbox, once.
func (h *Host) sandboxed() (string, error) {
	h.boxed.once.Do(func() { h.boxed.how, h.boxed.err = sandbox.Probe(h.Store.Exe()) })
	return h.boxed.how, h.boxed.err
}

// Responder is what an agent's responder is, did and cost.
func (h *Host) Responder(ctx context.Context, agent string) (conch.ResponderStatus, error) {
	return h.responder.Status(ctx, agent)
}

// SetResponder switches an agent's responder on or off.
func (h *Host) SetResponder(ctx context.Context, r conch.ResponderRequest) (conch.ResponderStatus, error) {
	if err := h.needAgent(r.Agent); err != nil {
		return conch.ResponderStatus{}, err
	}
	if err := h.responder.Set(ctx, r.Agent, r.On); err != nil {
		return conch.ResponderStatus{}, err
	}
	return h.responder.Status(ctx, r.Agent)
}

// Respond answers mail for those who are away until ctx ends.
func (h *Host) Respond(ctx context.Context) { h.responder.Serve(ctx) }

// Responding reports whether somebody counts on this daemon's answering mail.
func (h *Host) Responding() bool { return h.responder.Active() }
