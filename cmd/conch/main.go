// Command conch runs shells that keep their state and never lie about what
// happened in them. `conch help` says what it can do; package client is its
// whole connection to the daemon.
package main

import "os"

// version is set by the build (-X main.version=…).
var version = "0.1.0-dev"

func main() { os.Exit(run(os.Args)) }

// run is main with a status. The two long-lived processes, a keeper per session
// and the daemon, are told apart before the command line's tables are built:
// a keeper's memory is paid once per session.
func run(args []string) int {
	if len(args) > 1 {
		switch args[1] {
		case "keeper":
			return keeperMain(args[2:])
		case "daemon":
			return daemonMain(args[2:])
		}
	}
	return commandLine(args[1:])
}
