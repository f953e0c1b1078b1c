// The declarations of fork_linux.go have no bodies here: they are the runtime's.
