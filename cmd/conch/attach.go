package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/tty"
)

func newAttach(a *app) *cobra.Command {
	var readOnly, noCreate bool
	cmd := &cobra.Command{
		Use:     "attach LABEL|ID [--read-only]",
		GroupID: groupSession,
		Short:   "Join a session's shell, or a program's terminal, on this terminal",
		Long: `Work in a session's own shell from this terminal: the same shell that conch exec
runs commands in, its state shared both ways, with line editing and the session's
commands as history. As long as somebody is at the prompt, commands of others
wait; who waits is shown. A process id means that process's own terminal.

Ctrl-\ d leaves, Ctrl-\ Ctrl-\ types one Ctrl-\. At the prompt Ctrl-D and exit
(or exit N) leave too. Leaving ends nothing: what runs goes on. There is no job control
(Ctrl-Z). With --read-only one sees what others do, and types nothing; several
people may be there at once, and the last who came or changed it gives the size;
who looks on in a smaller window sees a part, and is told so.`,
		Example: "  conch attach main\n  conch attach build --read-only",
		Args:    words("LABEL|ID"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeLabel(cmd, args, to)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !isTerminal(os.Stdin) || !isTerminal(os.Stdout) {
				return conch.Errorf(conch.NoTerminal, "attach needs a terminal").Hint("conch exec runs commands, conch screen and conch keys do without one")
			}
			return a.attach(cmd.Context(), args[0], client.AttachOptions{ReadOnly: readOnly, Size: ownSize()}, noCreate)
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "look on, and type nothing")
	cmd.Flags().BoolVar(&noCreate, "no-create", false, "fail if there is no such session")
	return cmd
}

// ownSize is this terminal's, as far as conch can have one like it.
func ownSize() conch.TerminalSize {
	w, h, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil || w < tty.MinCols || h < tty.MinRows {
		return conch.TerminalSize{}
	}
	return conch.TerminalSize{Cols: min(w, tty.MaxCols), Rows: min(h, tty.MaxRows)}
}

// detached is why the terminal was left.
type detached string

func (d detached) Error() string { return string(d) }

func (a *app) attach(ctx context.Context, word string, o client.AttachOptions, noCreate bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := a.client(client.Options{NoCreate: noCreate})
	var at *client.Attachment
	var err error
	if _, _, bad := conch.ProcessID(word).Split(); bad == nil {
		at, err = c.AttachProcess(ctx, conch.ProcessID(word), o)
	} else {
		at, err = c.Attach(ctx, word, o)
	}
	if err != nil {
		return err
	}
	defer at.Close()
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return conch.Errorf(conch.NoTerminal, "this terminal cannot be used: %v", err)
	}
	// What the screen shows at the end says what must be taken back from ours.
	shown := tty.New(tty.DefaultCols, tty.DefaultRows)
	v := &viewer{readOnly: o.ReadOnly, shown: shown}
	result, err := v.show(at, func() {
		go v.watchSize(ctx, at)                       // ends with ctx
		go typing(ctx, at, o.ReadOnly, cancel)        // ends with ctx, or the process
		go func() { <-ctx.Done(); at.Close() }()      // ends with ctx
		go leaveOnSignal(ctx, func() { cancel(nil) }) // ends with ctx
	})
	v.mu.Lock() // for good: a new size draws nothing any more
	os.Stdout.Write(shown.Leave())
	term.Restore(int(os.Stdin.Fd()), before)
	why := context.Cause(ctx)
	cancel(nil)
	_, rows := shown.Size()
	_, row, _ := shown.Cursor()
	if row < rows { // below what is there
		fmt.Fprint(os.Stdout, "\r\n")
	}
	var d detached
	switch {
	case result != nil:
		fmt.Fprintf(os.Stderr, "[%s has ended]\n", word)
		return nil
	case errors.Is(err, conch.SessionClosed):
		return conch.Errorf(conch.SessionClosed, "session %s was closed by somebody else, or conch was stopped", word).Hint("conch sessions lists what there is")
	case errors.As(why, &d):
		fmt.Fprintf(os.Stderr, "[detached from %s: %s]\n", word, string(d))
		return nil
	case client.Left(err), why != nil:
		fmt.Fprintf(os.Stderr, "[detached from %s]\n", word)
		return nil
	}
	return conch.Errorf(conch.Internal, "the connection was lost: %v", err).Hint("the session goes on: conch attach %s", word)
}

// A viewer is this terminal as it shows another.
type viewer struct {
	readOnly bool
	cl       tty.Cleaner

	mu      sync.Mutex // guards what follows, and our terminal
	shown   *tty.Screen
	clipped bool // our terminal is the smaller one
}

// show writes what comes to this terminal, until it ends. begun is called once the
// screen is drawn. Who only looks on gets nothing that could act on the terminal.
func (v *viewer) show(at *client.Attachment, begun func()) (*conch.Result, error) {
	first := true
	for {
		e, err := at.Next()
		if err != nil {
			return nil, err
		}
		if e.Result != nil {
			return e.Result, nil
		}
		if err := v.take(e); err != nil {
			return nil, written(err)
		}
		if first && e.Size == nil {
			first = false
			begun()
		}
	}
}

// take brings one event to the terminal.
func (v *viewer) take(e client.AttachEvent) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b []byte
	if e.Size != nil {
		v.shown.Resize(e.Size.Cols, e.Size.Rows, v.shown.Changed())
	} else {
		if b = e.Output; v.readOnly {
			b = v.cl.Clean(b)
		}
		v.shown.Feed(b, v.shown.Changed())
		v.shown.Replies()
	}
	if v.readOnly {
		if drawn := v.fit(); drawn != nil {
			b = drawn
		}
	}
	_, err := os.Stdout.Write(b)
	return err
}

// fit gives what draws all of the screen anew if it is larger than this terminal, where
// what a program writes for its own size would stand in wrong places; or if it was and
// is no more.
func (v *viewer) fit() []byte {
	w, h, err := term.GetSize(int(os.Stdout.Fd()))
	cols, rows := v.shown.Size()
	if err == nil && w > 0 && h > 0 && (w < cols || h < rows) {
		v.clipped = true
		return v.shown.Clip(w, h, fmt.Sprintf("conch: cut off; the session is %dx%d, this window %dx%d", cols, rows, w, h))
	}
	if !v.clipped {
		return nil
	}
	v.clipped = false
	return v.shown.Render()
}

// prefix begins what is meant for us and not for the shell: Ctrl-\.
const prefix = 0x1c

// typing passes on what is typed. It says why it ends.
func typing(ctx context.Context, at *client.Attachment, readOnly bool, end func(error)) {
	buf := make([]byte, 4096)
	held := false
	for {
		n, err := os.Stdin.Read(buf)
		if err != nil {
			end(detached("the terminal has gone"))
			return
		}
		var out []byte
		for _, b := range buf[:n] {
			switch {
			case !held && b == prefix:
				held = true
				continue
			case held && b == 'd' || readOnly && b == 0x03:
				if len(out) > 0 && !readOnly {
					at.Input(ctx, out)
				}
				end(detached("you left"))
				return
			case held && b != prefix:
				out = append(out, prefix)
			}
			held = false
			out = append(out, b)
		}
		if len(out) == 0 || readOnly {
			continue
		}
		if err := at.Input(ctx, out); err != nil {
			if ctx.Err() == nil && !errors.Is(err, conch.NoTerminal) && !errors.Is(err, conch.StdinClosed) && !errors.Is(err, conch.ProcessEnded) {
				end(detached(conch.AsError(err).Message))
			}
			return
		}
	}
}

// watchSize passes on the terminal's new sizes, or of one who looks on, draws for them.
func (v *viewer) watchSize(ctx context.Context, at *client.Attachment) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	defer signal.Stop(ch)
	for {
		select {
		case <-ch:
			if v.readOnly {
				v.mu.Lock()
				os.Stdout.Write(v.fit()) // a terminal that has gone is noticed by show
				v.mu.Unlock()
			} else if s := ownSize(); s.Cols > 0 {
				at.Resize(ctx, s) // one that fails is followed by the end
			}
		case <-ctx.Done():
			return
		}
	}
}

// leaveOnSignal leaves well when this program is told to end.
func leaveOnSignal(ctx context.Context, leave func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(ch)
	select {
	case <-ch:
		leave()
	case <-ctx.Done():
	}
}
