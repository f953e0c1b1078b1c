package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
)

// With a database that cannot be used there is no mail, and there are shells: each
// server has a label of its own, and says what does not work. When the file is right
// again, the label is kept.
func TestShellWithoutMail(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	h.Want("claude:1", "V=of-another", "") // a shell whose owner cannot be known
	db := filepath.Join(h.Path, "conch.db")
	h.OK("down")
	if err := os.WriteFile(db, []byte(strings.Repeat("this is no database. ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	one := h.With("CLAUDE_CODE_SESSION_ID=one")
	p, q := connect(one, withInitialize), connect(h.With("CLAUDE_CODE_SESSION_ID=two"), withoutInitialize)
	r, out := p.exec("V=mine; echo $V")
	if r.Stdout != "mine\n" || r.Session != "claude:2" {
		t.Errorf("%+v", r)
	}
	const line = "\n[conch: shells work, mail does not: "
	has(t, out.text, line, "conch.db is damaged")
	if r, out := q.exec("echo [$V]"); r.Stdout != "[]\n" || r.Session != "claude:3" {
		t.Errorf("%+v %s", r, out.text)
	}
	// The same harness session shares its label without a record of it too.
	again := connect(one, withoutInitialize)
	if r, _ := again.exec("echo $V"); r.Stdout != "mine\n" {
		t.Errorf("%+v", r)
	}
	var pr conch.Process
	p.ok(&pr, "shell_start", args{"command": "cat"})
	p.ok(nil, "shell_input", args{"id": pr.ProcessID, "text": "x\n", "close": true})
	has(t, p.ok(nil, "shell_wait", args{"id": pr.ProcessID}).text, "exited 0", line)
	has(t, p.ok(nil, "shell_output", args{"id": pr.ProcessID}).text, "\nx\n", line)
	has(t, p.ok(nil, "shell_screen", args{"id": pr.ProcessID}).text, "\nx\n", line)
	p.ok(nil, "shell_signal", args{"id": "claude:2"})
	has(t, p.ok(nil, "sessions", nil).text, "you are me/claude:2", line)
	has(t, p.ok(nil, "whoami", nil).text, "you are me/claude:2", line)
	for tool, a := range map[string]args{
		"send": {"to": "claude:3", "text": "x"}, "ask": {"to": "claude:3", "text": "x", "timeout_s": 1},
		"inbox": nil, "await_reply": {"timeout_s": 1}, "ack": {"ids": []string{"x"}},
	} {
		p.fails(conch.StoreDamaged, tool, a)
	}
	// Moved away, as the error says: mail begins anew, and the labels are kept.
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	until(t, "the claims are recorded", func() bool {
		_, a := p.exec("true")
		_, b := q.exec("true")
		return !strings.Contains(a.text+b.text, line)
	})
	var sent conch.SentMessage
	p.ok(&sent, "send", args{"to": "claude:3", "text": "it works again"})
	has(t, q.ok(nil, "inbox", nil).text, "it works again", sent.ID)
	p.Close()
	again.Close()
	if i := connect(one, withInitialize).whoami(); i.Label != "claude:2" {
		t.Errorf("after a restart: %+v", i)
	}
}

// An ask that nobody is left to answer says so, and not that the time was up.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	h.OK("agent", "new", "bob")
	p := connect(h, withInitialize)
	p.whoami()
	done := make(chan result, 1)
	go func() { done <- p.try("ask", args{"to": "bob", "text": "anybody?", "timeout_s": 60}) }()
	until(t, "it is held", func() bool {
		var found []conch.FoundMessage
		h.JSON(&found, "mail", "search", "anybody", "--json")
		return len(found) == 1
	})
	h.OK("mail", "policy", "drop", "--agent", "bob")
	r := <-done
	has(t, r.text, "nobody will answer: message ", " to bob is refused: ", "nobody read it")
	if r.IsError || strings.Contains(r.text, "within") || !strings.Contains(string(r.raw), `"timed_out":false`) {
		t.Errorf("%s %s", r.text, r.raw)
	}
}
