package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tty"
)

func newReplay() *cobra.Command {
	var (
		speed float64
		idle  duration
	)
	cmd := &cobra.Command{
		Use:     "replay FILE [--speed N] [--idle-limit D]",
		GroupID: groupSession,
		Short:   "Play a recording on this terminal",
		Long: `Play an asciicast (version 2 or 3; - is stdin), such as log export --asciicast
writes, as fast as it was recorded. Only text, colours, cursor moves and erasing
reach the terminal: what would set its title or the clipboard, ask it something
or change how its keys and mouse work is left out. Where the output is not a
terminal nothing is waited for. Ctrl-C ends it.`,
		Example: "  conch log export --asciicast -s build -o build.cast\n  conch replay build.cast --speed 2 --idle-limit 1s",
		Args:    words("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(speed > 0 && speed <= 1e6) { // nor NaN
				return conch.Errorf(conch.InvalidRequest, "--speed %v is not a speed", speed).Hint("2 is twice as fast, 0.5 half as fast")
			}
			in := os.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return conch.Errorf(conch.InvalidRequest, "cannot read the recording: %v", err)
				}
				defer f.Close()
				in = f
			}
			return replay(in, speed, time.Duration(idle.ms())*time.Millisecond)
		},
	}
	cmd.Flags().Float64Var(&speed, "speed", 1, "so many times as fast")
	cmd.Flags().Var(&idle, "idle-limit", "make pauses no longer than this")
	return cmd
}

// replay plays a recording. The terminal is left as it was, also when a signal ends it.
func replay(in io.Reader, speed float64, idle time.Duration) (err error) {
	bad := func(err error) error {
		return conch.Errorf(conch.InvalidRequest, "not a recording: %v", err).Hint("FILE is an asciicast, version 2 or 3")
	}
	r, err := tty.NewCastReader(in)
	if err != nil {
		return bad(err)
	}
	live := isTerminal(os.Stdout)
	if live {
		if w, h, err := term.GetSize(int(os.Stdout.Fd())); err == nil && (w < r.Width || h < r.Height) {
			fmt.Fprintf(os.Stderr, "conch: recorded on %dx%d, shown on %dx%d: it may look wrong\n", r.Width, r.Height, w, h)
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(stop)
	var clean tty.Cleaner
	defer func() {
		if _, werr := os.Stdout.Write(clean.End()); err == nil {
			err = written(werr)
		}
	}()
	var last time.Duration
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bad(err)
		}
		if e.Kind != "o" {
			continue
		}
		pause := e.At - last
		last = e.At
		if idle > 0 {
			pause = min(pause, idle)
		}
		if !live {
			pause = 0
		}
		t := time.NewTimer(time.Duration(float64(pause) / speed))
		select {
		case <-t.C:
		case <-stop:
			t.Stop()
			return exitStatus(statusInterrupted)
		}
		if _, err := os.Stdout.Write(clean.Clean([]byte(e.Data))); err != nil {
			return written(err)
		}
	}
}
