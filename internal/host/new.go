package host

import (
	"context"
	"maps"
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
	if err := h.needAgent(r.Agent); err != nil {
		return conch.SessionInfo{}, err
	}
	s, err := h.Store.Create(ctx, session.NewSpec{
		Agent: r.Agent, Label: r.Label, Cwd: r.Cwd, Env: r.Env, Parent: r.Parent, RC: r.RC, Limits: r.Limits,
	})
	if err != nil {
		return conch.SessionInfo{}, err
	}
	info, _ := s.Info(ctx) // it was made; a keeper slow to describe itself does not change that
	return info, nil
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
		env, err := parent.Env(ctx)
		if err != nil {
			return err
		}
		maps.Copy(env, r.Env)
		r.Env = env
	}
	return nil
}
