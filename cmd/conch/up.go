package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/daemon"
	"github.com/conchsh/conch/internal/service"
)

func newUp(a *app) *cobra.Command {
	var foreground, install, uninstall bool
	var listen string
	cmd := &cobra.Command{
		Use:     "up [--listen ADDRESS] [--foreground | --install | --uninstall]",
		GroupID: groupDaemon,
		Short:   "Start the daemon",
		Long: `Start the daemon in the background and return when it serves. Other verbs start
it by themselves; one that was started so leaves when nothing is left to do.

--install has systemd (or launchd) start it at every login and restart it if it
fails. Sessions are not ended with the service. --uninstall undoes that.

--listen serves the network too, until the daemon leaves: TLS, and a token with
every request. There must be one (conch token new). The key listen in config.toml
does so every time. The certificate is one that conch makes, once, or yours: the keys
tls_cert and tls_key in config.toml name its files (PEM), and tls_key must be a file
that only you can read.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if foreground && (install || uninstall) || install && uninstall {
				return conch.Errorf(conch.InvalidRequest, "--foreground, --install and --uninstall exclude each other")
			}
			if listen != "" && (install || uninstall) {
				return conch.Errorf(conch.InvalidRequest, "--listen is not kept by --install").Hint("set the key listen in config.toml")
			}
			if foreground {
				return serve(cmd.Context(), daemon.Options{Listen: listen, Ready: func() {
					fmt.Fprintln(os.Stderr, "conch: serving; Ctrl-C stops the daemon and leaves sessions running")
				}})
			}
			if install || uninstall {
				return a.service(cmd.Context(), uninstall)
			}
			c := a.client(client.Options{})
			started, err := c.Start(cmd.Context())
			if err != nil {
				return err
			}
			if listen != "" {
				if _, err := c.Listen(cmd.Context(), listen); err != nil {
					return err
				}
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if started {
				fmt.Printf("started (pid %d, home %s)\n", s.DaemonPID, harmless(s.Home))
			} else {
				fmt.Printf("already running (pid %d, home %s)\n", s.DaemonPID, harmless(s.Home))
			}
			if l := s.Listen; l != nil {
				fmt.Printf("serving the network at %s (%s)\n", harmless(l.URL), harmless(l.Fingerprint))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "serve the network at `ADDRESS`, such as :7443 or 10.0.0.5:7443")
	cmd.Flags().BoolVar(&install, "install", false, "have the system start the daemon at every login")
	cmd.Flags().BoolVar(&uninstall, "uninstall", false, "undo --install")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "run the daemon in this process")
	return cmd
}

// service installs the daemon as one of the system's, or takes it out again.
func (a *app) service(ctx context.Context, remove bool) error {
	exe, err := os.Executable()
	if err != nil {
		return conch.Errorf(conch.Internal, "cannot find my own executable: %v", err)
	}
	c := a.client(client.Options{})
	home := ""
	if os.Getenv("CONCH_HOME") != "" || os.Getenv("XDG_STATE_HOME") != "" { // which the service would not have
		if home, err = c.Home(); err != nil {
			return err
		}
	}
	s := service.New(exe, home)
	var in service.Installed
	if remove {
		in, err = s.Uninstall(ctx)
	} else {
		in, err = s.Install(ctx, func(ctx context.Context) error {
			// The home has one daemon; its sessions go on.
			if err := c.Shutdown(ctx, false); err != nil && !errors.Is(err, conch.NotRunning) {
				return err
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	path := harmless(in.Path)
	switch {
	case remove && !in.Changed:
		fmt.Println("not installed")
	case remove:
		fmt.Printf("removed %s\n", path)
	case in.Changed:
		fmt.Printf("wrote %s\n", path)
	default:
		fmt.Printf("%s is as it should be\n", path)
	}
	if in.Running {
		fmt.Println("the daemon runs and starts at every login (without one: loginctl enable-linger)")
	}
	if len(in.Todo) > 0 {
		fmt.Printf("the rest could not be done from here (%s); run:\n", harmless(in.Why))
		for _, line := range in.Todo {
			fmt.Println("  " + harmless(line))
		}
	}
	return nil
}
