package tty

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func shown(text string) *Screen {
	s := New(20, 5)
	s.Feed([]byte(text), time.Unix(1, 0))
	return s
}

func TestScreen(t *testing.T) {
	for _, c := range []struct{ name, in, text, cursor string }{
		{"text", "hello\r\nworld", "hello\nworld", "5,1"},
		{"wrap", strings.Repeat("x", 21), strings.Repeat("x", 20) + "\nx", "1,1"},
		{"wrap waits", strings.Repeat("x", 20) + "\r\ny", strings.Repeat("x", 20) + "\ny", "1,1"},
		{"no wrap", "\x1b[?7l" + strings.Repeat("x", 25) + "y", strings.Repeat("x", 19) + "y", "19,0"},
		{"scroll", "1\r\n2\r\n3\r\n4\r\n5\r\n6", "2\n3\n4\n5\n6", "1,4"},
		{"region", "1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n", "1\n3\n4\n\n5", "0,3"},
		{"origin", "\x1b[2;4r\x1b[?6h\x1b[1;1Hx\x1b[9;1Hy", "\nx\n\ny", "1,3"},
		{"insert", "abc\r\x1b[4hX\x1b[4l", "Xabc", "1,0"},
		{"wide", "漢\x1b[1;2Hx", " x", "2,0"},
		{"wide at the edge", strings.Repeat("x", 19) + "漢", strings.Repeat("x", 19) + "\n漢", "2,1"},
		{"combining", "e\u0301x", "e\u0301x", "2,0"},
		{"combining at the edge", strings.Repeat("x", 19) + "e\u0301", strings.Repeat("x", 19) + "e\u0301", "19,0"},
		{"lines", "\x1b(0lqk\x1b(Bq", "┌─┐q", "4,0"},
		{"shift", "\x1b)0\x0eq\x0fq", "─q", "2,0"},
		{"repeat", "a\x1b[3b", "aaaa", "4,0"},
		{"other screen", "main\x1b[?1049hother\x1b[?1049l!", "main!", "5,0"},
		{"hidden", "pass\x1b[8mword\x1b[m!", "pass    !", "9,0"},
		{"tabs", "a\tb\x1b[3g\tc", "a       b          c", "19,0"},
		{"invalid", "a\xffb\xe6\xbcc\xf0\x9f", "a\ufffdb\ufffdc", "5,0"},
		{"strings are no text", "a\x1bPqdata\x1b\\b\x1b_x\x1b\\c\x1b]8;;http://x\x07d", "abcd", "4,0"},
		{"a string called off", "a\x1b]0;never ends\x18b", "ab", "2,0"},
		{"a sequence called off", "a\x1b[3\x1a1b", "a1b", "3,0"},
		{"controls inside", "a\x1b[\r2Cb", "a b", "3,0"},
		{"too many numbers", "a\x1b[" + strings.Repeat("1;", 100) + "mb", "ab", "2,0"},
		{"reset", "junk\x1bcx", "x", "1,0"},
		{"picture", "\x1b#8\x1b[2J", "", "0,0"},
	} {
		s := shown(c.in)
		x, y, _ := s.Cursor()
		if got := fmt.Sprintf("%d,%d", x, y); s.Text() != c.text || got != c.cursor {
			t.Errorf("%s: %q at %s, want %q at %s", c.name, s.Text(), got, c.text, c.cursor)
		}
	}
	s := shown("\x1b]2;a\x1b[31mb\x07x\x1b]0;new \xff\u009btitle\x1b\\\x1b[?25l\x1b[?1h")
	if _, _, on := s.Cursor(); s.Title() != "new title" || on || !s.CursorKeys() || !s.Changed().Equal(time.Unix(1, 0)) {
		t.Errorf("title %q, cursor %v, keys %v, changed %v", s.Title(), on, s.CursorKeys(), s.Changed())
	}
}

func TestReplies(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[6n":          "\x1b[1;1R",
		"ab\r\nc\x1b[6n":   "\x1b[2;2R",
		"\x1b[5n":          "\x1b[0n",
		"\x1b[c":           deviceAttributes,
		"\x1b[0c\x1b[>c":   deviceAttributes + secondAttributes,
		"\x1b[?2004$p":     "\x1b[?2004;2$y",
		"\x1b[?25$p":       "\x1b[?25;1$y",
		"\x1b[?12345$p":    "\x1b[?12345;0$y",
		"\x1b[18t":         "\x1b[8;5;20t",
		"\x1b]11;?\x07":    "\x1b]11;rgb:0000/0000/0000\x1b\\",
		"\x1b]52;c;?\x07":  "", // the clipboard is nobody's
		"\x1b[21t\x1b[20t": "", // nor is the title, which may hold anything
		"\x1bP$qm\x1b\\":   "",
	} {
		s := shown(in)
		if got := string(s.Replies()); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if s.Replies() != nil {
			t.Errorf("%q: answered twice", in)
		}
	}
	s := New(80, 24)
	for range 10000 {
		s.Feed([]byte("\x1b[6n"), time.Time{}) // nobody takes them, and nothing waits
	}
	if n := len(s.Replies()); n > maxReplies {
		t.Errorf("%d bytes of answers are kept", n)
	}
}

// What Render draws is the screen it was made from, on any terminal of its size.
func TestRender(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, again := New(40, 12), New(40, 12)
		s.Feed(scribble(r, 40), time.Time{})
		again.Feed(scribble(r, 10), time.Time{})
		again.Feed(again.Leave(), time.Time{})
		again.Feed(s.Render(), time.Time{})
		x, y, on := s.Cursor()
		x2, y2, on2 := again.Cursor()
		if s.Text() != again.Text() || x != x2 || y != y2 || on != on2 || s.Alternate() != again.Alternate() {
			t.Fatalf("seed %d: at %d,%d %v %v\n%s\n--- drawn at %d,%d %v %v\n%s", seed, x, y, on, s.Alternate(), s.Text(), x2, y2, on2, again.Alternate(), again.Text())
		}
		for i, row := range s.page.rows {
			for j, c := range row {
				d := again.page.rows[i][j]
				if c.r == 0 {
					c.r = ' '
				}
				if d.r == 0 {
					d.r = ' '
				}
				if c.r != ' ' && c != d {
					t.Fatalf("seed %d: cell %d,%d is %+v, drawn %+v", seed, i, j, c, d)
				}
			}
		}
	}
}

func TestResize(t *testing.T) {
	s := shown("1\r\n2\r\n3\r\n4\r\n5 漢")
	s.Resize(3, 3, time.Unix(2, 0))
	if got := s.Text(); got != "3\n4\n5" {
		t.Errorf("%q", got)
	}
	s.Resize(10, 6, time.Unix(3, 0))
	s.Feed([]byte("\x1b[6;10Hx\r\ny"), time.Unix(3, 0))
	if got := s.Text(); !strings.HasSuffix(got, "x\ny") {
		t.Errorf("%q", got)
	}
	s.Resize(0, 1<<30, time.Unix(4, 0))
	if c, r := s.Size(); c != MinCols || r != MaxRows {
		t.Errorf("size %d×%d", c, r)
	}
}

func TestKeys(t *testing.T) {
	for in, want := range map[string]string{
		"abc":            "abc",
		"ls<Enter>":      "ls\r",
		"a\nb":           "a\rb",
		"<C-c><C-C>":     "\x03\x03",
		"<c-x>":          "\x18",
		"<Esc>:wq<CR>":   "\x1b:wq\r",
		"<Up><down>":     "\x1b[A\x1b[B",
		"<F1><F5><F12>":  "\x1bOP\x1b[15~\x1b[24~",
		"<C-Left>":       "\x1b[1;5D",
		"<S-Tab>":        "\x1b[Z",
		"<M-x><A-X>":     "\x1bx\x1bX",
		"<C-M-a>":        "\x1b\x01",
		"<PageDown>":     "\x1b[6~",
		"<BS><Del>":      "\x7f\x1b[3~",
		"<C-Space><C-]>": "\x00\x1d",
		"<lt>b<gt>":      "<b>",
		"a < b > c":      "a < b > c",
		"1<2":            "1<2",
		"<-5>":           "<-5>",
		"<a long word>":  "<a long word>",
		"é漢":             "é漢",
		"\xff\x00":       "\xff\x00",
	} {
		got, err := Keys(in, false)
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	if got, _ := Keys("<Up><End><C-Up>", true); string(got) != "\x1bOA\x1bOF\x1b[1;5A" {
		t.Errorf("cursor keys' other codes: %q", got)
	}
	for _, in := range []string{"<b>", "<Entr>", "x<C-Foo>", "<F13>", "<Q-x>", "<C-é>"} {
		if got, err := Keys(in, false); err == nil {
			t.Errorf("%q was typed as %q", in, got)
		}
	}
	for _, name := range KeyNames() {
		if _, err := Keys("<"+name+">", false); err != nil {
			t.Error(err)
		}
	}
}

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"text and colours", "a\x1b[1;38;5;3mb\x1b[m漢\r\n", "a\x1b[1;38;5;3mb\x1b[m漢\r\n"},
		{"moves", "\x1b[2J\x1b[3;4Hx\x1b[K", "\x1b[2J\x1b[3;4Hx\x1b[K"},
		{"clipboard", "a\x1b]52;c;cm0gLXJmIC8=\x07b", "ab"},
		{"title", "a\x1b]0;rm -rf\x1b\\b", "ab"},
		{"link", "\x1b]8;;http://evil\x07here\x1b]8;;\x07", "here"},
		{"questions", "a\x1b[6n\x1b[c\x1b[>c\x1b[21t\x1b[?2004$p\x1bZ\x05b", "ab"},
		{"device strings", "a\x1bP$q\"p\x1b\\\x1b_Gx\x1b\\\x1b^p\x1b\\\x1bXs\x1b\\b", "ab"},
		{"modes", "\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?1h\x1b=x", "x"},
		{"reset", "\x1bc\x1b[!px", "x"},
		{"two modes in one", "\x1b[?1049;1000hx", "\x1b[?1049hx"},
		{"eight bits", "a\u009b6nb\u0090q", "a6nbq"},
		{"scrollback", "\x1b[3Jx", "x"},
		{"bell", "a\ab", "ab"},
		{"unfinished", "a\x1b]52;c;", "a"},
		{"keyboard", "\x1b[>1u\x1b[?u\x1b[=1;1u\x1b[>4;2mx", "x"},
		{"window", "\x1b[8;1;1tx", "x"},
	} {
		for cut := range len(c.in) + 1 { // however it is cut
			var cl Cleaner
			got := string(cl.Clean([]byte(c.in[:cut]))) + string(cl.Clean([]byte(c.in[cut:])))
			if got != c.want {
				t.Errorf("%s, cut at %d: %q, want %q", c.name, cut, got, c.want)
				break
			}
		}
	}
	var cl Cleaner
	cl.Clean([]byte("\x1b[?1049h\x1b[31m\x1b[2;3r\x1b]52;"))
	if got := string(cl.End()); !strings.Contains(got, "\x1b[?1049l") || !strings.Contains(got, "\x1b[0m") {
		t.Errorf("left behind: %q", got)
	}
}

// Whatever comes, nothing panics, nothing grows, the cursor is on the screen, and what
// is passed on has nothing in it that acts on the viewer.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("hello\x1b[31m\x1b[?1049h漢\x1b]0;t\x07"), uint8(3))
	f.Add([]byte("\x1b[5;2r\x1b[999999999S\x1b[99999L\x1b[65535b"), uint8(1))
	f.Add([]byte("\x1b(0\x1b[4h漢\x1b[2@\x1b[P\x1b[X\x1b[1K"), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		s := New(2+int(n%40), 1+int(n%7))
		var cl Cleaner
		half := len(b) / 2
		for _, part := range [][]byte{b[:half], b[half:]} {
			s.Feed(part, time.Time{})
			if x, y, _ := s.Cursor(); x < 0 || x >= s.cols || y < 0 || y >= s.rows {
				t.Fatalf("cursor at %d,%d of %d×%d", x, y, s.cols, s.rows)
			}
			s.Resize(2+int(n%13), 1+int(n%5), time.Time{})
			out := cl.Clean(part)
			for _, bad := range []string{"\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x1bc", "\x1bZ", "\a", "\x05", "\u009b", "\u009d"} {
				if bytes.Contains(out, []byte(bad)) {
					t.Fatalf("%q passes: %q", bad, out)
				}
			}
		}
		s.Text()
		again := New(s.cols, s.rows)
		again.Feed(s.Render(), time.Time{})
	})
}

func TestPTY(t *testing.T) {
	p, err := Open(-1, 100, 30)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ws, err := unix.IoctlGetWinsize(p.Slave, unix.TIOCGWINSZ)
	if err != nil || ws.Col != 100 || ws.Row != 30 {
		t.Fatalf("%+v, %v", ws, err)
	}
	if _, err := unix.Read(p.Master, make([]byte, 10)); err != unix.EAGAIN {
		t.Fatalf("a read with nothing to read gives %v", err)
	}
	if err := p.Resize(90, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Read(p.Master, make([]byte, 10)); err != unix.EAGAIN {
		t.Fatalf("after a resize it gives %v", err)
	}
	for _, fd := range []int{p.Master, p.Slave} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would be inherited: %x, %v", fd, flags, err)
		}
	}
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Error(err)
	}
}

func BenchmarkFeed(b *testing.B) {
	text := bytes.Repeat([]byte("\x1b[31mhello\x1b[0m world 漢字 \x1b[1;32mabc\x1b[m line of text here\r\n"), 1000)
	s := New(80, 24)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.Feed(text, time.Time{})
	}
}
