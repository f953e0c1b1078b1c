package host

import (
	"context"
	"os"
	"time"

	"github.com/conchsh/conch"
)

// About says which conch this is.
func (h *Host) About() conch.VersionInfo {
	return conch.VersionInfo{Version: h.Version, Protocol: conch.ProtocolVersion}
}

// Status describes the daemon.
func (h *Host) Status(ctx context.Context) conch.StatusInfo {
	processes := 0
	for _, s := range h.Sessions(ctx) {
		processes += s.Processes
	}
	var page *string
	if u := h.Gate.PageURL(); u != "" {
		page = &u
	}
	return conch.StatusInfo{
		Version: h.Version, DaemonPID: os.Getpid(), Home: h.Home,
		UptimeS:   time.Since(h.started).Seconds(),
		Sessions:  len(h.Store.Sessions()),
		Processes: processes,
		Relay:     h.RelayInfo(),
		UIURL:     page,
		Listen:    h.Gate.Listening(),
	}
}
