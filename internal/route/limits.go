package route

import "time"

// ByDaemon is the header by which a keeper knows what the daemon itself asks of it.
const ByDaemon = "Conch-By-Daemon"

// The limits of a request and its connection, for the daemon and for keepers.
// Reaching one is an error that names it.
const (
	// MaxHeader bounds a request's line and headers.
	MaxHeader = 64 << 10
	// MaxBody bounds a JSON body unless its route says otherwise. Environments
	// are the longest.
	MaxBody = 4 << 20
	// MaxMail bounds a message: one of 1 MiB whose every byte is escaped fits.
	MaxMail = 8 << 20
	// HeaderTime is what a request's header may take from its first byte on,
	// and how long a fresh connection may say nothing.
	HeaderTime = 10 * time.Second
	// BodyTime is what a JSON body may take, and how long a log that is being
	// sent may pause. A command's stdin has no such limit: a person may be
	// typing it.
	BodyTime = 60 * time.Second
	// IdleTime is how long a connection may wait for its next request.
	IdleTime = 5 * time.Minute
	// Heartbeat is how often a stream of events with nothing to tell says so.
	Heartbeat = 15 * time.Second
	// DaemonConns and KeeperConns bound the connections one process serves.
	// A keeper's is above the length of its queue.
	DaemonConns = 1024
	KeeperConns = 2048
)

// Limits of a command.
const (
	MaxExecBody = 64 << 20
	MaxCommand  = 16 << 20
	MaxResult   = 64 << 20
	DefResult   = 1 << 20
)
