package mcp_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

// A pipeline writes calls one behind the other, and does not wait for answers.
type pipeline struct {
	*raw
	revision string
	last     int
}

func pipe(h *conchtest.Home, revision string, args ...string) *pipeline {
	h.T.Helper()
	p := &pipeline{start(h, args...), revision, 1}
	if revision == withInitialize {
		p.send(fmt.Sprintf(hello, revision))
		p.answer()
		p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return p
}

// line is a call as a line.
func (p *pipeline) line(tool string, a args) string {
	p.t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		p.t.Fatal(err)
	}
	more := ""
	if p.revision == withoutInitialize {
		more = meta + ","
	}
	p.last++
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s"name":%q,"arguments":%s}}`, p.last, more, tool, b)
}

// all gives the texts of n answers by their ids.
func (p *pipeline) all(n int) map[int]string {
	p.t.Helper()
	texts := map[int]string{}
	for len(texts) < n {
		a := p.answer()
		id, ok := a.ID.(float64)
		switch {
		case !ok: // a notification
		case len(a.Result.Content) == 1:
			texts[int(id)] = a.Result.Content[0].Text
		case a.Error != nil:
			texts[int(id)] = "refused: " + a.Error.Message
		default:
			p.t.Fatalf("%+v", a)
		}
	}
	return texts
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()
}

// Calls that are sent one behind the other reach a session's queue in that order, by
// whichever of its names they call it, and also the first of all, that make it.
func TestOrderOfCommands(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		const each, rounds = 30, 4
		for round := range rounds {
			label := fmt.Sprintf("own%d", round)
			p := pipe(h, revision, "--session", label)
			file := fmt.Sprintf("%s/order%d", t.TempDir(), round)
			var lines []string
			for i := range each {
				a := args{"command": fmt.Sprintf("echo %d >>%s", i, file)}
				switch i % 4 {
				case 1:
					a["session"] = label
				case 2:
					a["session"] = "me/" + label
				case 3: // what fails, fails in its turn
					lines = append(lines, p.line("shell_exec", args{"command": "true", "session": "nobody"}))
				}
				lines = append(lines, p.line("shell_exec", a))
			}
			p.send(strings.Join(lines, "\n"))
			p.all(len(lines))
			if got := h.OK("exec", "-s", "reader", "cat "+file); got != numbers(each) {
				t.Fatalf("round %d: %q", round, got)
			}
			// The state is that of the one before.
			first := p.last
			p.send(strings.Join([]string{
				p.line("shell_exec", args{"command": "cd /usr"}), p.line("shell_exec", args{"command": "pwd"}),
				p.line("shell_exec", args{"command": "cd /etc"}), p.line("shell_exec", args{"command": "pwd"}),
			}, "\n"))
			texts := p.all(4)
			has(t, texts[first+2], "\n/usr\n")
			has(t, texts[first+4], "\n/etc\n")
		}
	})
}

// What changes a session waits for what makes it, names a process, or takes a label.
func TestOrderOfOthers(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		p := pipe(h, revision, "--session", "first")
		p.send(strings.Join([]string{
			p.line("shell_exec", args{"command": "V=made", "session": "new:made"}),
			p.line("shell_exec", args{"command": "echo is $V", "session": "made"}),
			p.line("shell_start", args{"command": "cat", "name": "cat"}),
			p.line("shell_input", args{"id": "cat", "text": "one\n"}),
			p.line("shell_input", args{"id": "cat", "text": "two\n"}),
			p.line("shell_input", args{"id": "cat", "text": "three\n", "close": true}),
			p.line("shell_wait", args{"id": "cat"}),
			p.line("use", args{"label": "second"}),
			p.line("shell_exec", args{"command": "echo in $CONCH_SESSION"}),
			p.line("shell_exec", args{"command": "sleep 299", "session": "made", "timeout_s": 0}),
			p.line("shell_signal", args{"id": "made"}),
		}, "\n"))
		texts := p.all(11)
		has(t, texts[3], "\nis made\n")
		has(t, texts[8], "one\ntwo\nthree\n")
		has(t, texts[10], "\nin second\n")
		has(t, texts[11], "interrupted")
		has(t, texts[12], "interrupted")
	})
}

// One that waits and is cancelled holds nobody up, and does not run; nor does one that
// nothing reads from.
func TestOrderGoesOn(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		file := t.TempDir() + "/order"
		p := pipe(h, revision)
		p.send(p.line("shell_start", args{"command": "sleep 299", "name": "deaf"}))
		p.all(1)
		deaf := p.last + 1
		p.send(p.line("shell_input", args{"id": "deaf", "text": strings.Repeat("x", 1<<20)}))
		behind := p.line("shell_input", args{"id": "deaf", "text": "behind it"})
		p.send(behind)
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, p.last))
		p.send(p.line("shell_exec", args{"command": "echo after >>" + file}))
		done := p.last
		p.send(p.line("shell_signal", args{"id": "deaf", "signal": "KILL"}))
		killed := p.last
		texts := map[int]string{}
		for texts[deaf] == "" || texts[done] == "" || texts[killed] == "" { // a cancelled call need not be answered
			maps.Copy(texts, p.all(1))
		}
		has(t, texts[done], "exit 0")
		has(t, texts[killed], "sent KILL")
		has(t, texts[deaf], "error ")
		if got := h.OK("exec", "cat "+file); got != "after\n" {
			t.Errorf("%q", got)
		}
	})
}

// Messages are in the inbox in the order in which they were sent, questions too.
func TestOrderOfMail(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, revision string) {
		h := conchtest.New(t)
		h.OK("exec", "-s", "reader", "true")
		const each, rounds = 30, 3
		for round := range rounds {
			p := pipe(h, revision, "--session", fmt.Sprintf("writer%d", round))
			var lines []string
			for i := range each {
				if text := fmt.Sprint(i); i%5 == 4 {
					lines = append(lines, p.line("ask", args{"to": "reader", "text": text, "timeout_s": 0.2}))
				} else {
					lines = append(lines, p.line("send", args{"to": "reader", "text": text}))
				}
			}
			p.send(strings.Join(lines, "\n"))
			p.all(each)
			var list []conch.InboxEntry
			h.JSON(&list, "inbox", "-s", "reader", "--limit", "100", "--json")
			var got, want []string
			for i, e := range list {
				got, want = append(got, e.Text), append(want, fmt.Sprint(i))
			}
			if len(got) != each || !slices.Equal(got, want) {
				t.Fatalf("round %d: %v", round, got)
			}
			ids := []string{"ack", "-s", "reader"}
			for _, e := range list {
				ids = append(ids, e.ID)
			}
			h.OK(ids...)
		}
	})
}
