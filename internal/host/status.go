package host

import (
	"os"
	"time"

	"github.com/conchsh/conch"
)

// VersionInfo is what a client compares before it talks.
type VersionInfo struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

// About says which conch this is.
func (h *Host) About() VersionInfo {
	return VersionInfo{h.Version, conch.ProtocolVersion}
}

// Status describes the daemon.
func (h *Host) Status() conch.StatusInfo {
	return conch.StatusInfo{
		Version: h.Version, DaemonPID: os.Getpid(), Home: h.Home,
		UptimeS:  time.Since(h.started).Seconds(),
		Sessions: len(h.Store.Sessions()),
		Relay:    conch.RelayInfo{Mode: "off"},
	}
}
