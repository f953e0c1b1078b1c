package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newNew(a *app) *cobra.Command {
	var n client.NewSession
	var env, limits []string
	cmd := &cobra.Command{
		Use:     "new LABEL [--cwd DIR] [-e K=V] [--parent LABEL] [--limit NAME=VALUE] [--sandbox]",
		GroupID: groupSession,
		Short:   "Make a session",
		Long: `Make a session with a label of its own. A label that is in use is an error
(exec makes sessions as needed).

With --sandbox, all that ever runs in the session is kept to its starting
directory: it can change that, read the system's programs and settings, and use
an empty home and /tmp that are gone with it. There is no network, no other
process, nothing else of your files, and no way to conch itself. Where the
machine cannot do that, no session is made; conch doctor says why.`,
		Example: "  conch new build --cwd ~/src -e MODE=release\n  conch new try --cwd ~/src/app --sandbox\n  conch new build:2 --parent build",
		Args:    words("LABEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return conch.CheckLabel("")
			}
			if cmd.Flags().Changed("cwd") && n.Cwd == "" {
				return conch.Errorf(conch.InvalidRequest, "--cwd is empty")
			}
			if n.InheritEnv && n.Parent == "" {
				return conch.Errorf(conch.InvalidRequest, "--inherit-env needs a --parent")
			}
			var err error
			if n.Env, err = parseEnv(env); err != nil {
				return err
			}
			if n.Limits, err = parseLimits(limits); err != nil {
				return err
			}
			if n.Cwd, err = absolute(n.Cwd); err != nil {
				return err
			}
			for i, p := range n.SandboxAllow {
				if n.SandboxAllow[i], err = absolute(p); err != nil {
					return err
				}
			}
			s, err := a.client(client.Options{}).New(cmd.Context(), args[0], n)
			if err != nil {
				return err
			}
			fmt.Println(s.Label)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&n.Cwd, "cwd", "", "starting directory (default: the parent's, or this one)")
	fl.StringArrayVarP(&env, "env", "e", nil, "add `NAME=VALUE` to the session's environment (repeatable)")
	fl.StringVar(&n.Parent, "parent", "", "start in the current directory of session `LABEL`")
	fl.BoolVar(&n.InheritEnv, "inherit-env", false, "start with the parent's environment too")
	fl.StringArrayVar(&limits, "limit", nil, "a limit of its own, `NAME=VALUE` as in config.toml (repeatable)")
	fl.BoolVar(&n.Sandbox, "sandbox", false, "keep what runs in it to its starting directory")
	fl.StringArrayVar(&n.SandboxAllow, "sandbox-allow", nil, "a file or directory `PATH` that a sandboxed session may read besides (repeatable)")
	fl.BoolVar(&n.RC, "rc", false, "load the user's rc file")
	cmd.RegisterFlagCompletionFunc("parent", a.completeLabel)
	return cmd
}

// parseLimits reads what --limit was given. The daemon knows the names.
func parseLimits(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, conch.Errorf(conch.InvalidRequest, "--limit %q has no value", l).Hint("--limit tape_limit=1GiB")
		}
		out[name] = value
	}
	return out, nil
}
