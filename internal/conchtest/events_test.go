package conchtest

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

// event is a line of --jsonl, whatever its type.
type event struct {
	conch.Event
	ExitCode    *int              `json:"exit_code"`
	StdoutBytes int64             `json:"stdout_bytes"`
	StderrBytes int64             `json:"stderr_bytes"`
	TimedOut    bool              `json:"timed_out"`
	Interrupted bool              `json:"interrupted"`
	Background  int               `json:"background"`
	Shell       conch.ShellReport `json:"shell"`
}

// events reads --jsonl: the two streams and the exit event. It checks the form:
// start first, exit last, rising numbers.
func events(t testing.TB, text string) (stdout, stderr string, exit event) {
	t.Helper()
	var out, errs strings.Builder
	var last uint64
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	for i, line := range lines {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %d: %v: %.200q", i, err, line)
		}
		if i > 0 && e.Seq <= last {
			t.Errorf("line %d: seq %d after %d", i, e.Seq, last)
		}
		last = e.Seq
		data := e.Data
		if e.Encoding == "base64" {
			b, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				t.Fatal(err)
			}
			data = string(b)
		}
		switch {
		case e.Type == "start" && i == 0:
		case e.Type == "stdout":
			out.WriteString(data)
		case e.Type == "stderr":
			errs.WriteString(data)
		case e.Type == "exit" && i == len(lines)-1:
			exit = e
		default:
			t.Errorf("line %d of %d is %q", i, len(lines), e.Type)
		}
	}
	if exit.Type != "exit" {
		t.Errorf("no exit event in %d lines", len(lines))
	}
	return out.String(), errs.String(), exit
}
