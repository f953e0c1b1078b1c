// Package keeper is the process that holds one session's shell.
//
// It is the same binary as everything else, started by the daemon, which gives it its
// session on standard input, and it outlives the daemon: it needs nobody to go on. It
// owns the session's
// bash, runs its commands one at a time in order, writes all output to the tape
// before anybody else sees it, ends commands with everything they started, keeps a
// checkpoint of the shell's state and starts the shell again from it when a command
// took it down.
//
// All of that is one state, guarded by one lock. The loop goroutine sleeps in
// poll(2), without the lock, on the wake pipe, the shell's status, its sinks and
// every stream that still has a writer, and holds the lock whenever it is awake;
// whatever others want, they do as one step between two of its rounds (Keeper.do),
// so a request reaches the shell without waiting for a thread to wake. A command's
// fields are read without the lock only after its done channel is closed.
//
// Goroutines: the main one, on the process's first thread, forks shells; one per HTTP
// connection (ends with the connection, or with the process), one per control
// connection of a daemon (ends with it), one that turns SIGCHLD and SIGTERM into steps
// (ends with the process), one per command that is being ended (ends when its
// processes are gone), one per stdin that waits for its reader (ends when it is opened
// or closed), and short ones that sync the tape and give memory back.
package keeper
