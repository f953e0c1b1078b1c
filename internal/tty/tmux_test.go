package tty

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pane of a real tmux, which has a terminal model that somebody else wrote.
type pane struct {
	t   *testing.T
	dir string
	in  *os.File
	n   int
}

func newPane(t *testing.T, cols, rows int) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux; scripts/tools.sh installs it")
	}
	p := &pane{t: t, dir: t.TempDir()}
	fifo := filepath.Join(p.dir, "in")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p.tmux("new-session", "-d", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows), "stty raw -echo; exec cat "+fifo)
	t.Cleanup(func() { p.tmux("kill-server") })
	p.tmux("set", "-g", "remain-on-exit", "on")
	p.tmux("set", "-g", "status", "off")
	p.tmux("set", "-g", "allow-set-title", "on")
	p.tmux("resize-window", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows))
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.in = f
	t.Cleanup(func() { f.Close() })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-L", "c", "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX_TMPDIR="+p.dir, "TMUX=", "LC_ALL=C.UTF-8", "TERM=xterm")
	out, err := cmd.CombinedOutput()
	if err != nil && args[0] != "set" {
		p.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// show writes to a new terminal and gives what it shows then, and its state.
func (p *pane) show(b []byte) (text, state string) {
	p.t.Helper()
	p.n++
	done := fmt.Sprintf("done-%d", p.n)
	if _, err := p.in.Write(append(append([]byte("\x1bc\x1b[?1049l\x1bc"), b...), "\x1b]2;"+done+"\x07"...)); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		title, rest, _ := strings.Cut(strings.TrimSpace(p.tmux("display", "-p", "#{pane_title} #{cursor_x},#{cursor_y} #{alternate_on}")), " ")
		if title == done {
			state = rest
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("tmux has not come to the end of %q", b)
		}
	}
	lines := strings.Split(p.tmux("capture-pane", "-p"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n"), state
}

func modelShows(b []byte, cols, rows int) (text, state string) {
	s := New(cols, rows)
	for len(b) > 0 { // cut anywhere
		n := 1 + rand.IntN(len(b))
		s.Feed(b[:n], time.Time{})
		b = b[n:]
	}
	x, y, _ := s.Cursor()
	if s.cur.wrap {
		x = cols // as tmux counts
	}
	alt := 0
	if s.Alternate() {
		alt = 1
	}
	return s.Text(), fmt.Sprintf("%d,%d %d", x, y, alt)
}

// A program that writes at random what programs write.
func scribble(r *rand.Rand, n int) []byte {
	var b strings.Builder
	other := false
	num := func(most int) int { return r.IntN(most) + 1 }
	for range n {
		switch r.IntN(24) {
		case 0, 1, 2, 3, 4:
			b.WriteString(strings.Repeat(string(rune('a'+r.IntN(26))), num(30)))
		case 5:
			b.WriteString([]string{"漢字", "é", "🙂", "e\u0301", "日本語テキスト"}[r.IntN(5)])
		case 6, 7:
			b.WriteString("\r\n")
		case 8:
			b.WriteString([]string{"\r", "\n", "\b", "\t"}[r.IntN(4)])
		case 9, 10:
			fmt.Fprintf(&b, "\x1b[%d;%dH", num(14), num(44))
		case 11:
			fmt.Fprintf(&b, "\x1b[%d%c", num(6), "ABCDEFGd"[r.IntN(8)])
		case 12:
			fmt.Fprintf(&b, "\x1b[%d%c", r.IntN(3), "JK"[r.IntN(2)])
		case 13:
			fmt.Fprintf(&b, "\x1b[%d%c", num(4), "@PX"[r.IntN(3)])
		case 14:
			// In the first column and inside the region: elsewhere tmux does
			// not do what DEC's terminals and xterm do.
			top := num(4)
			fmt.Fprintf(&b, "\x1b[%d;%dr\x1b[%d;1H\x1b[%d%c\x1b[r", top, top+5, top+r.IntN(6), num(3), "LM"[r.IntN(2)])
		case 15:
			fmt.Fprintf(&b, "\x1b[%dS", num(2))
		case 16:
			top := num(8)
			fmt.Fprintf(&b, "\x1b[%d;%dr", top, top+num(4))
		case 17:
			b.WriteString("\x1b[r")
		case 18:
			b.WriteString([]string{"\x1bM", "\x1bD", "\x1bE"}[r.IntN(3)])
		case 19:
			fmt.Fprintf(&b, "\x1b[%d;%dm", r.IntN(8), 30+r.IntN(8))
		case 20:
			fmt.Fprintf(&b, "\r\x1b7\x1b[%d;%dHsaved\x1b8", num(14), num(44))
		case 21:
			// In pairs: what the second alone does is nobody's agreement.
			if other = !other; other {
				b.WriteString("\x1b[?1049h")
			} else {
				b.WriteString("\x1b[?1049l")
			}
		case 22:
			b.WriteString([]string{"\x1b[?25l", "\x1b[?25h"}[r.IntN(2)])
		case 23:
			b.WriteString([]string{"\x1b[38;5;200mx", "\x1b[48;2;1;2;3my\x1b[0m", "\x1b]0;title\x07", "\x1b[1;2mz"}[r.IntN(4)])
		}
	}
	return []byte(b.String())
}

// The model and tmux see the same of what programs write. (Not of everything: with the
// cursor behind the last column, in insert mode, and of half an erased wide character
// terminals differ, and so do these two.) The seed of a difference is in its message.
func TestAgainstTmux(t *testing.T) {
	const cols, rows = 40, 12
	p := newPane(t, cols, rows)
	bad := 0
	for seed := range uint64(150) {
		b := scribble(rand.New(rand.NewPCG(seed, 1)), 30)
		wantText, wantState := p.show(b)
		gotText, gotState := modelShows(b, cols, rows)
		if gotText != wantText || gotState != wantState {
			t.Errorf("seed %d: %q\nmodel %s\n%s\n--- tmux %s\n%s", seed, b, gotState, gotText, wantState, wantText)
			if bad++; bad > 3 {
				t.FailNow()
			}
		}
	}
}
