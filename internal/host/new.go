package host

import (
	"context"
	"maps"
	"path/filepath"
	"strings"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
)

// New makes a session. A label that has one is LabelTaken.
func (h *Host) New(ctx context.Context, r conch.NewRequest) (conch.SessionInfo, error) {
	if err := h.FillAgent(&r.Agent); err != nil {
		return conch.SessionInfo{}, err
	}
	if err := h.checkName(r.Agent, r.Label); err != nil {
		return conch.SessionInfo{}, err
	}
	if !h.agentHere(r.Agent) {
		return conch.SessionInfo{}, h.noAgent(r.Agent)
	}
	for k, v := range r.Env {
		if err := conch.CheckEnvName(k); err != nil {
			return conch.SessionInfo{}, err
		}
		if strings.ContainsRune(v, 0) {
			return conch.SessionInfo{}, conch.Errorf(conch.InvalidEnv, "the value of %s has a NUL byte", k)
		}
	}
	if _, err := h.Config.With(r.Limits); err != nil {
		return conch.SessionInfo{}, err
	}
	if r.Parent != "" {
		if err := h.inherit(ctx, &r); err != nil {
			return conch.SessionInfo{}, err
		}
	}
	if err := checkCwd(r.Cwd); err != nil {
		return conch.SessionInfo{}, err
	}
	box, err := h.sandboxOf(&r)
	if err != nil {
		return conch.SessionInfo{}, err
	}
	if err := h.needAgent(r.Agent); err != nil {
		return conch.SessionInfo{}, err
	}
	s, err := h.Store.Create(ctx, session.NewSpec{
		Agent: r.Agent, Label: r.Label, Cwd: r.Cwd, Env: r.Env, Parent: r.Parent, RC: r.RC, Limits: r.Limits, Sandbox: box,
	})
	if err != nil {
		return conch.SessionInfo{}, err
	}
	info, _ := s.Info(ctx) // it was made; a keeper slow to describe itself does not change that
	return info, nil
}

// sandboxOf checks what a sandbox is asked for. Its directory is taken by its real name:
// links that lead to it are not inside.
func (h *Host) sandboxOf(r *conch.NewRequest) (*session.Sandbox, error) {
	if !r.Sandbox {
		if len(r.SandboxAllow) > 0 {
			return nil, conch.Errorf(conch.InvalidRequest, "there is no sandbox that could be allowed something").Hint("--sandbox-allow needs --sandbox")
		}
		return nil, nil
	}
	if r.RC {
		return nil, conch.Errorf(conch.InvalidRequest, "a sandboxed session cannot load your rc file: your home is not in it").Hint("leave out one of --rc and --sandbox")
	}
	real := func(path string) (string, error) {
		p, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", conch.Errorf(conch.InvalidRequest, "cannot be in a sandbox: %v", err)
		}
		return p, nil
	}
	var err error
	if r.Cwd == "" {
		r.Cwd = h.Store.UserHome()
	}
	if r.Cwd, err = real(r.Cwd); err != nil {
		return nil, err
	}
	box := &session.Sandbox{}
	for _, p := range r.SandboxAllow {
		if !filepath.IsAbs(p) {
			return nil, conch.Errorf(conch.InvalidRequest, "%q is no absolute path", p)
		}
		if p, err = real(p); err != nil {
			return nil, err
		}
		box.Allow = append(box.Allow, p)
	}
	return box, nil
}

// inherit fills in what comes from the parent: the directory it is in at this
// moment and, if asked, its environment, in both of which the request's own
// words come first.
func (h *Host) inherit(ctx context.Context, r *conch.NewRequest) error {
	parent, err := h.Open(ctx, r.Agent, r.Parent, nil)
	if err != nil {
		return err
	}
	if r.Cwd == "" {
		info, err := parent.Info(ctx)
		if err != nil {
			return err
		}
		r.Cwd = info.Cwd
	}
	if r.InheritEnv {
		if parent.Sandboxed() && !r.Sandbox {
			return conch.Errorf(conch.InvalidRequest, "session %s is sandboxed: what it put into its environment must not run outside", r.Parent).
				Hint("add --sandbox, or leave out --inherit-env")
		}
		env, err := parent.Env(ctx)
		if err != nil {
			return err
		}
		maps.Copy(env, r.Env)
		r.Env = env
	}
	return nil
}
