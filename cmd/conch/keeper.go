package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/conchsh/conch/internal/keeper"
	"github.com/conchsh/conch/internal/sandbox"
)

// The keeper forks its shells on the process's first thread, to which every orphan of
// the session is given as well; only an init function is sure to run there.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "keeper" {
		runtime.LockOSThread()
	}
}

// keeperMain is the hidden verb `keeper`: the process that holds a session's shell. It
// is started by the daemon, which tells it on stdin what session that is, and outlives
// it. `keeper DIR` needs to be told nothing.
func keeperMain(args []string) int {
	if len(args) == 1 && (args[0] == keeper.ToFront || args[0] == keeper.ToNobody) {
		return keeper.Foreground(args[0])
	}
	if len(args) > 0 && args[0] == sandbox.Word {
		return sandbox.Init()
	}
	status := keeper.NoOrder
	fi, err := os.Stdin.Stat()
	if ordered := err == nil && fi.Mode()&os.ModeNamedPipe != 0; len(args) == 1 || len(args) == 0 && ordered {
		status = keeper.Main(strings.Join(args, ""), version)
	}
	if status == keeper.NoOrder {
		fmt.Fprintln(os.Stderr, "conch: keeper is started by the daemon (conch exec starts a session)")
		return statusFailed
	}
	return status
}
