package main

import (
	"fmt"
	"os"
)

// keeperMain is the hidden verb `keeper DIR`: the process that holds the shell
// of the session in DIR. It is started by the daemon and outlives it.
func keeperMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "conch: keeper is started by the daemon (conch exec starts a session)")
		return statusFailed
	}
	return runKeeper(args[0])
}

func runKeeper(dir string) int {
	panic("keeper: not wired")
}
