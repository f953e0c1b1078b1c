package main

import (
	"fmt"
	"os"
	"runtime"

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

// keeperMain is the hidden verb `keeper DIR`: the process that holds the shell
// of the session in DIR. It is started by the daemon and outlives it.
func keeperMain(args []string) int {
	if len(args) == 1 && (args[0] == keeper.ToFront || args[0] == keeper.ToNobody) {
		return keeper.Foreground(args[0])
	}
	if len(args) > 0 && args[0] == sandbox.Word {
		return sandbox.Init()
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "conch: keeper is started by the daemon (conch exec starts a session)")
		return statusFailed
	}
	return keeper.Main(args[0], version)
}
