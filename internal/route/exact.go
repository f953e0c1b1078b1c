package route

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// exact refuses what encoding/json repairs in silence. Text that is no text,
// bytes that are not UTF-8 or half of a surrogate pair, would reach its reader
// changed; a name in other letters (TEXT for text) is another name. b is one
// valid JSON value and was decoded as t; names are looked at where t has them,
// in the outermost object.
func exact(b []byte, t reflect.Type) error {
	if !utf8.Valid(b) {
		return conch.Errorf(conch.InvalidRequest, "request body: it is not valid UTF-8").
			Hint("nothing was done; bytes that are not text must be encoded")
	}
	var names map[string]bool
	if t.Kind() == reflect.Struct {
		names = namesOf(t)
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end, whole := str(b, i)
			if !whole {
				return conch.Errorf(conch.InvalidRequest, "request body: half of a surrogate pair at byte %d", i).
					Hint("nothing was done; \\ud800 to \\udfff stand for a character in twos only")
			}
			if depth == 1 && names != nil && isName(b[end:]) {
				name := string(b[i+1 : end-1])
				if strings.Contains(name, `\`) {
					json.Unmarshal(b[i:end], &name)
				}
				if !names[name] {
					return conch.Errorf(conch.InvalidRequest, "request body: unknown field %q", name).Hint("names are told apart by upper and lower case")
				}
			}
			i = end - 1
		}
	}
	return nil
}

// str gives the end of the string that begins at b[i], and whether every
// surrogate in it has its other half.
func str(b []byte, i int) (end int, whole bool) {
	whole = true
	for i++; b[i] != '"'; i++ {
		if b[i] != '\\' {
			continue
		}
		if i++; b[i] != 'u' {
			continue
		}
		switch r := unit(b[i+1:]); {
		case r >= 0xd800 && r < 0xdc00 && b[i+5] == '\\' && b[i+6] == 'u' && unit(b[i+7:])>>10 == 0xdc00>>10:
			i += 6
		case r >= 0xd800 && r < 0xe000:
			whole = false
		}
		i += 4
	}
	return i + 1, whole
}

// unit is four digits of an escape.
func unit(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 32)
	return n
}

// isName reports whether what stands before b is the name of a field.
func isName(b []byte) bool {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return c == ':'
	}
	return false
}

var namesByType sync.Map // reflect.Type: map[string]bool

func namesOf(t reflect.Type) map[string]bool {
	if m, ok := namesByType.Load(t); ok {
		return m.(map[string]bool)
	}
	m := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		m[name] = true
	}
	namesByType.Store(t, m)
	return m
}
