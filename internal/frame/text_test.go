package frame

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain\ttext\n", "plain\ttext\n"},
		{"grüße 日本 👩\u200d💻 ﷽ a\u00a0b", "grüße 日本 👩\u200d💻 ﷽ a\u00a0b"},
		{"\x1b[1;31mred\x1b[0m.", "red."},
		{"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"},
		{"\x1bPq...\x1b\\x\x1b_app\x1b\\y\x1b^pm\x07z", "xyz"},
		{"\x1b(Ba\x1b=b\x1b7c\x1b#8d", "abcd"},
		{"\x1b", ""},
		{"a\x1b[", "a"},
		{"\x1b[31\ntext", "\ntext"},          // a broken sequence takes no line with it
		{"\x1b]0;never ends\nx", "\nx"},      // nor a string that does not end
		{"\x1b]2;a\x1b[31mb", "b"},           // nor one that another breaks off
		{"a\rb\r\nc\r", "a\nb\nc\n"},         // nothing is overwritten
		{"\x00\x08\x7f", `\u{0}\u{8}\u{7f}`}, // controls
		{"\u009b31m", `\u{9b}31m`},           // the one-character CSI of old terminals
		{"\xff\xc3(\xe2\x82", `\xff\xc3(\xe2\x82`},
		{"\u202eabc\u2066\u200b\ufeff\u2028\U000e0041", `\u{202e}abc\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}`},
		{"❤\ufe0f\u200d🔥 👩🏽\u200d💻 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3 ‼\ufe0f", "❤\ufe0f\u200d🔥 👩🏽\u200d💻 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3 ‼\ufe0f"},
		// The same two hide nothing elsewhere.
		{"a\ufe0fb\u200dc❤\ufe0f\ufe0f👩\u200d\u200d👩 1\ufe0f2\u200d3", `a\u{fe0f}b\u{200d}c` + "❤\ufe0f" + `\u{fe0f}👩\u{200d}\u{200d}👩 1\u{fe0f}2\u{200d}3`},
		{"\ufe0f\u200d", `\u{fe0f}\u{200d}`},
		{"x\ufe00\ufe0e\U000e0100\U000e01ef", `x\u{fe00}\u{fe0e}\u{e0100}\u{e01ef}`},
		{"\u115f\u1160\u3164\uffa0\u2800\u034f\u180b\u180e\u180f\u17b4\u17b5", `\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2800}\u{34f}\u{180b}\u{180e}\u{180f}\u{17b4}\u{17b5}`},
	} {
		if got, _ := Plain([]byte(c.in)); got != c.want {
			t.Errorf("%q reads %q, want %q", c.in, got, c.want)
		}
	}
	// A string without an end does not swallow what is far behind it.
	long := "\x1b]0;" + strings.Repeat("x", 10_000) + "end"
	if got, _ := Plain([]byte(long)); !strings.HasSuffix(got, "end") {
		t.Errorf("…%q", got[max(0, len(got)-20):])
	}
}
