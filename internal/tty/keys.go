package tty

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Keys gives what a terminal sends when text is typed. Names of keys stand in angle
// brackets: <Enter>, <Esc>, <Up>, <F1>, <C-c>, <M-x>, <S-Tab>, <C-Left>. <lt> is "<".
// A newline is Enter. A "<" that no name can follow (a letter first, no space, a ">" at
// the end) is itself; a name nobody knows is an error, never typed. cursorKeys says that
// the program asked for the cursor keys' other codes.
func Keys(text string, cursorKeys bool) ([]byte, error) {
	var out []byte
	for text != "" {
		if text[0] == '\n' {
			out, text = append(out, '\r'), text[1:]
			continue
		}
		name, ok := keyName(text)
		if !ok {
			_, n := utf8.DecodeRuneInString(text)
			out, text = append(out, text[:n]...), text[n:]
			continue
		}
		b, err := key(name, cursorKeys)
		if err != nil {
			return nil, err
		}
		out, text = append(out, b...), text[len(name)+2:]
	}
	return out, nil
}

// longestName bounds what is taken for a name.
const longestName = 20

// keyName is the name in front of text, if it could be one.
func keyName(text string) (string, bool) {
	if len(text) < 3 || text[0] != '<' || !isLetter(text[1]) {
		return "", false
	}
	end := strings.IndexAny(text[1:min(len(text), longestName+2)], "> \t\n<")
	if end < 0 || text[1+end] != '>' {
		return "", false
	}
	name := text[1 : 1+end]
	// <C->> is Ctrl and >.
	if strings.HasSuffix(name, "-") && strings.HasPrefix(text[1+end:], ">>") {
		name += ">"
	}
	return name, true
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// Keys that are one byte or one sequence, whatever modifier.
var fixed = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"enter": "\r", "return": "\r", "cr": "\r", "tab": "\t", "esc": "\x1b", "escape": "\x1b", "space": " ",
		"bs": "\x7f", "backspace": "\x7f", "lt": "<", "gt": ">", "nul": "\x00",
	}
})

// Keys whose code is CSI letter, or SS3 letter when the program wants that.
var lettered = sync.OnceValue(func() map[string]byte {
	return map[string]byte{
		"up": 'A', "down": 'B', "right": 'C', "left": 'D', "home": 'H', "end": 'F',
		"f1": 'P', "f2": 'Q', "f3": 'R', "f4": 'S',
	}
})

// Keys whose code is CSI number ~.
var numbered = sync.OnceValue(func() map[string]int {
	return map[string]int{
		"insert": 2, "ins": 2, "delete": 3, "del": 3, "pageup": 5, "pgup": 5, "pagedown": 6, "pgdn": 6,
		"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
	}
})

// KeyNames are the names that Keys knows, without modifiers.
func KeyNames() []string {
	var out []string
	for name := range fixed() {
		out = append(out, name)
	}
	for name := range lettered() {
		out = append(out, name)
	}
	for name := range numbered() {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// key is the code of one named key with its modifiers.
func key(name string, cursorKeys bool) ([]byte, error) {
	rest := name
	var shift, alt, ctrl bool
	for len(rest) > 2 && rest[1] == '-' {
		switch rest[0] | 0x20 {
		case 's':
			shift = true
		case 'm', 'a':
			alt = true
		case 'c':
			ctrl = true
		default:
			return nil, unknownKey(name)
		}
		rest = rest[2:]
	}
	modifier := 1
	for i, on := range []bool{shift, alt, ctrl} {
		if on {
			modifier += 1 << i
		}
	}
	word := strings.ToLower(rest)
	if n, ok := numbered()[word]; ok {
		if modifier > 1 {
			return fmt.Appendf(nil, "\x1b[%d;%d~", n, modifier), nil
		}
		return fmt.Appendf(nil, "\x1b[%d~", n), nil
	}
	if c, ok := lettered()[word]; ok {
		switch {
		case modifier > 1:
			return fmt.Appendf(nil, "\x1b[1;%d%c", modifier, c), nil
		case cursorKeys || word[0] == 'f' && len(word) == 2:
			return []byte{0x1b, 'O', c}, nil
		}
		return []byte{0x1b, '[', c}, nil
	}
	if word == "tab" && shift && !ctrl && !alt {
		return []byte("\x1b[Z"), nil
	}
	text, ok := fixed()[word]
	if !ok {
		if utf8.RuneCountInString(rest) != 1 || modifier == 1 {
			return nil, unknownKey(name)
		}
		text = rest
	}
	if shift {
		text = strings.ToUpper(text)
	}
	if ctrl {
		c, ok := controlOf(text)
		if !ok {
			return nil, unknownKey(name)
		}
		text = c
	}
	if alt {
		text = "\x1b" + text
	}
	return []byte(text), nil
}

// controlOf is what a key gives with Ctrl.
func controlOf(text string) (string, bool) {
	if len(text) != 1 {
		return "", false
	}
	switch c := text[0]; {
	case isLetter(c) || c >= '@' && c <= '_':
		return string(rune(c & 0x1f)), true
	case c == ' ':
		return "\x00", true
	case c == '?':
		return "\x7f", true
	case c == '\r' || c == '\t' || c == 0x1b:
		return text, true // terminals send the same with Ctrl
	}
	return "", false
}

func unknownKey(name string) error {
	return fmt.Errorf("no key is called %s", strconv.Quote("<"+name+">"))
}
