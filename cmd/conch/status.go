package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status [--json]",
		GroupID: groupDaemon,
		Short:   "Say whether the daemon runs, and how it is",
		Long:    "Say whether the daemon runs, and how it is. Starts none: with --json, daemon_pid is then 0.",
		Args:    words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client(client.Options{NoStart: true})
			// One that is stopped, or wedged, must be told of and not waited for.
			_, err := c.Ping(cmd.Context())
			var s *conch.StatusInfo
			if err == nil {
				s, err = c.Status(cmd.Context())
			}
			running := true
			if errors.Is(err, conch.NotRunning) {
				running = false
				s = &conch.StatusInfo{Version: version, Relay: conch.RelayInfo{Mode: conch.RelayOff}}
				s.Home, err = c.Home()
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, s)
			}
			if !running {
				return table(os.Stdout, nil, [][]string{{"daemon", "not running (conch up starts it)"}, {"home", s.Home}})
			}
			up := time.Duration(s.UptimeS * float64(time.Second)).Round(time.Second)
			rows := [][]string{
				{"daemon", fmt.Sprintf("pid %d, conch %s, up %v", s.DaemonPID, s.Version, up)},
				{"home", s.Home},
				{"sessions", strconv.Itoa(s.Sessions)},
				{"processes", strconv.Itoa(s.Processes)},
				{"relay", relayLine(s.Relay)},
			}
			if s.UIURL != nil {
				rows = append(rows, []string{"page", *s.UIURL + " (conch ui lets a browser in)"})
			}
			if l := s.Listen; l != nil {
				rows = append(rows, []string{"network", l.URL}, []string{"certificate", l.Fingerprint})
			}
			if s.ListenError != "" {
				rows = append(rows, []string{"network", s.ListenError + " (conch token new makes one)"})
			}
			return table(os.Stdout, nil, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func relayLine(r conch.RelayInfo) string {
	line := r.Mode
	if r.URL != nil {
		line += " " + *r.URL
		if !r.Connected {
			line += " (not connected)"
		}
	}
	return line
}
