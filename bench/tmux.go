package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tmux compares with the way scripts drive a persistent shell today: type the
// command into a pane and wait for a channel that the command's end signals.
func (r *run) tmux(ctx context.Context) (err error) {
	name, what := "exec-true-tmux", "exec true, connection held"
	path, err := exec.LookPath("tmux")
	if err != nil {
		r.add(Row{Name: name, What: what, Unit: "µs", Against: "tmux send-keys, wait-for", Skipped: "tmux is not installed"})
		return nil
	}
	h, err := r.shared(ctx)
	if err != nil {
		return err
	}
	t := &tmux{path: path, dir: filepath.Join(r.dir, "tmux"), bash: r.bash}
	defer func() { err = errors.Join(err, t.kill()) }()
	if err := t.start(ctx); err != nil {
		return err
	}
	const session = "tmux"
	per := pick(r.Quick, 1, 5)
	held := timed(per, func(ctx context.Context) error { return h.exec(ctx, h.c, session, "true", "") })
	pane := timed(per, t.roundTrip)
	if err := interleave(ctx, pick(r.Quick, 1, 20), nil, held, pane); err != nil {
		return err
	}
	if _, err := h.c.Close(ctx, session); err != nil {
		return err
	}
	r.add(latency(name, what, held, "tmux send-keys, wait-for", pane, time.Microsecond))
	return nil
}

// tmux is a server of our own, on a socket in a directory of our own.
type tmux struct {
	path, dir, bash string
	pid             int
}

func (t *tmux) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := command(ctx, t.path, append([]string{"-L", "bench", "-f", "/dev/null"}, args...)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TMUX") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "TMUX_TMPDIR="+t.dir, "LC_ALL=C.UTF-8", "TERM=xterm",
		"HISTFILE=") // an interactive bash would write to the user's history
	return cmd
}

func (t *tmux) start(ctx context.Context) error {
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return err
	}
	out, err := t.command(ctx, "new-session", "-d", "-x", "80", "-y", "24", "-P", "-F", "#{pid}",
		t.bash+" --norc --noprofile").CombinedOutput()
	if err != nil {
		return fmt.Errorf("tmux new-session: %w: %s", err, out)
	}
	t.pid, err = strconv.Atoi(strings.TrimSpace(string(out)))
	return err
}

func (t *tmux) roundTrip(ctx context.Context) error {
	if err := t.command(ctx, "send-keys", "true; "+t.path+" wait-for -S done", "Enter").Run(); err != nil {
		return fmt.Errorf("tmux send-keys: %w", err)
	}
	if err := t.command(ctx, "wait-for", "done").Run(); err != nil {
		return fmt.Errorf("tmux wait-for: %w", err)
	}
	return nil
}

// kill ends the server and sees it gone.
func (t *tmux) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t.command(ctx, "kill-server").Run() // fails where none was started
	return gone(t.pid)
}
