package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// command is a child of the benchmark. It has a process group of its own, so
// that a Ctrl-C reaches the benchmark alone and is dealt with in one place.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// forkExec starts `bash -c true` and waits for it: what running a command
// costs without any session.
func (r *run) forkExec(per int) *subject {
	return timed(per, func(ctx context.Context) error {
		return command(ctx, r.bash, "-c", "true").Run()
	})
}

// rawBash is a bash that reads commands from a pipe and answers on another: the
// least a persistent shell can cost. It frames nothing and survives nothing.
//
// Its pipes block, which spares it the runtime's poller: the baseline is the
// fastest there is, not one that shares conch's costs.
type rawBash struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
	rd  *os.File
}

func (r *run) startRaw(ctx context.Context) (*rawBash, error) {
	inR, inW, err := blockingPipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := blockingPipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, err
	}
	cmd := command(ctx, r.bash, "--norc", "--noprofile")
	cmd.Stdin, cmd.Stdout = inR, outW
	err = cmd.Start()
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, err
	}
	return &rawBash{cmd: cmd, in: inW, out: bufio.NewReader(outR), rd: outR}, nil
}

// blockingPipe is os.Pipe without the runtime's poller.
func blockingPipe() (r, w *os.File, err error) {
	var p [2]int
	syscall.ForkLock.RLock() // a fork in between would leak the ends
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(p[:]); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// roundTrip runs text and reads what it prints and its status.
func (b *rawBash) roundTrip(text, want string) error {
	if _, err := b.in.WriteString(text + ";echo $?\n"); err != nil {
		return err
	}
	for _, w := range []string{want, "0\n"} {
		if w == "" {
			continue
		}
		if line, err := b.out.ReadSlice('\n'); err != nil || string(line) != w {
			return fmt.Errorf("plain bash answered %q to %q: %w", line, text, err)
		}
	}
	return nil
}

// close ends the bash, if there is one, by the end of its input.
func (b *rawBash) close() {
	if b == nil {
		return
	}
	b.in.Close()
	b.rd.Close()
	b.cmd.Wait()
}

// count runs cmd and counts what it prints, and times it to its end.
func count(cmd *exec.Cmd) (n int64, took time.Duration, err error) {
	rd, wr, err := blockingPipe()
	if err != nil {
		return 0, 0, err
	}
	defer rd.Close()
	cmd.Stdout = wr
	began := time.Now()
	err = cmd.Start()
	wr.Close()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 128<<10)
	for {
		m, err := rd.Read(buf)
		n += int64(m)
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, 0, errors.Join(err, cmd.Wait())
		}
	}
	err = cmd.Wait()
	return n, time.Since(began), err
}

// startLoad keeps n cores busy until the returned function is called. Each loop
// ends with its standard input, so that none can outlive this process.
func (r *run) startLoad(ctx context.Context, n int) (stop func(), err error) {
	var running []func()
	stop = func() {
		for _, f := range running {
			f()
		}
	}
	for range n {
		cmd := command(ctx, r.bash, "-c", `while ! read -t 0; do for ((i = 0; i < 10000; i++)); do :; done; done`)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		running = append(running, func() {
			in.Close()
			cmd.Wait()
		})
	}
	return stop, nil
}
