package proc

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pidfdOpen is replaced by tests to be a kernel without pidfds.
var pidfdOpen = unix.PidfdOpen

// handle is a process held such that a signal cannot reach another one.
type handle struct {
	id ID
	fd int // pidfd, or -1
}

// open holds the process. The look comes after the pidfd: if the start time still fits then, the pid belonged to that
// process when the descriptor was made.
func open(id ID) (handle, error) {
	h := handle{id, -1}
	if fd, err := pidfdOpen(id.PID, 0); err == nil {
		h.fd = fd
	} else if err == unix.ESRCH {
		return h, syscall.ESRCH
	}
	if !id.Alive() {
		h.close()
		return h, syscall.ESRCH
	}
	return h, nil
}

func (h handle) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
}

func (h handle) signal(sig syscall.Signal) error {
	var err error
	if h.fd >= 0 {
		err = unix.PidfdSendSignal(h.fd, sig, nil, 0)
	} else if h.id.Alive() {
		err = unix.Kill(h.id.PID, sig)
	} else {
		err = unix.ESRCH
	}
	if err != nil {
		return fmt.Errorf("proc: signal process %d: %w", h.id.PID, err)
	}
	return nil
}

// lookAgain is how often processes without a pidfd are looked at: an exit that is not the
// caller's own child's makes no other event.
const lookAgain = 5 * time.Millisecond

// awaitExit returns when one of hs has exited, the limit has passed or ctx has ended, with the indices of those
// that have exited or cannot be told without a look.
func awaitExit(ctx context.Context, hs []handle, limit time.Duration) (exited []int) {
	fds := make([]unix.PollFd, len(hs), len(hs)+1)
	for i, h := range hs {
		fds[i] = unix.PollFd{Fd: int32(h.fd), Events: unix.POLLIN} // poll leaves -1 out
		if h.fd < 0 {
			exited = append(exited, i)
		}
	}
	if len(exited) > 0 {
		limit = min(limit, lookAgain)
	}
	if ctx.Done() != nil {
		wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			limit = min(limit, lookAgain)
		} else {
			fds = append(fds, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
			woken := make(chan struct{})
			stop := context.AfterFunc(ctx, func() {
				one := [8]byte{0: 1}
				unix.Write(wake, one[:])
				close(woken)
			})
			defer func() {
				if !stop() {
					<-woken
				}
				unix.Close(wake)
			}()
		}
	}
	ts := unix.NsecToTimespec(int64(limit))
	unix.Ppoll(fds, &ts, nil) // EINTR: nothing is ready and the caller comes back
	for i := range hs {
		if fds[i].Revents != 0 {
			exited = append(exited, i)
		}
	}
	return exited
}

// SignalName returns the name of a signal, such as SIGKILL or SIGRTMIN+5.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	// The C library keeps 32 and 33 to itself, so that users count from 34.
	switch n := int(sig) - 34; {
	case n == 0:
		return "SIGRTMIN"
	case n > 0 && n <= 30:
		return "SIGRTMIN+" + strconv.Itoa(n)
	}
	return "signal " + strconv.Itoa(int(sig))
}
