// Package keeper is the process that holds one session's shell.
//
// It is the same binary as everything else, started by the daemon as `conch keeper
// DIR`, and it outlives the daemon: it needs nobody to go on. It owns the session's
// bash, runs its commands one at a time in order, writes all output to the tape
// before anybody else sees it, ends commands with everything they started, keeps a
// checkpoint of the shell's state and starts the shell again from it when a command
// took it down.
//
// One goroutine, the loop, owns all of that. It runs on the process's first thread,
// so that every child and every orphan belongs to that thread, and sleeps in poll(2)
// on the wake pipe, the shell's status, its sinks, and every stream that still has a
// writer. Whatever others want, they hand to it as a function (Keeper.do); they read
// a command's fields only after its done channel is closed.
//
// Other goroutines: one per HTTP connection (ends with the connection, or with the
// process), one per control connection of a daemon (ends with it), one that turns
// SIGCHLD and SIGTERM into work for the loop (ends with the process), one per command
// that is being ended (ends when its processes are gone), one per open stdin (ends
// when it is closed), and the syncer (ends with the process).
package keeper
