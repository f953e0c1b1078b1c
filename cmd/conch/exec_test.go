package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

func TestStatusOf(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		name string
		r    conch.Result
		want int
	}{
		{"own", conch.Result{ExitCode: code(3)}, 3},
		{"success", conch.Result{ExitCode: code(0)}, 0},
		{"timed out", conch.Result{TimedOut: true}, 124},
		{"a command's own 124", conch.Result{ExitCode: code(124)}, 124},
		{"interrupted", conch.Result{Interrupted: true, ExitCode: code(130)}, 130},
		{"interrupted in the queue", conch.Result{Interrupted: true}, 130},
		{"lost", conch.Result{}, 125},
		{"killed shell", conch.Result{ExitCode: code(137)}, 137},
	} {
		if got := statusOf(&c.r); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFailIsOneLine(t *testing.T) {
	for _, err := range []error{
		conch.Errorf(conch.InvalidLabel, "bad\nlabel \x1b]0;x\x07").Hint("a\r\nhint"),
		errors.New("plain"),
	} {
		var b bytes.Buffer
		if got := fail(&b, err); got != 125 {
			t.Errorf("status %d", got)
		}
		s := b.String()
		if !strings.HasPrefix(s, "conch: ") || strings.Count(s, "\n") != 1 || strings.ContainsAny(s, "\x1b\x07\r") {
			t.Errorf("%q", s)
		}
	}
}

func TestEncodeData(t *testing.T) {
	if d, e := encodeData([]byte("é\x00")); d != "é\x00" || e != "utf-8" {
		t.Errorf("%q %s", d, e)
	}
	if d, e := encodeData([]byte("\xc3")); d != "ww==" || e != "base64" {
		t.Errorf("%q %s", d, e)
	}
}
