package conchtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

// wordIn is the word of a text that begins so.
func wordIn(t *testing.T, text, prefix string) string {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, prefix) {
			return word
		}
	}
	t.Fatalf("no %s in %q", prefix, text)
	return ""
}

// person runs conch as a person does, and gives what the terminal shows.
func (h *Home) person(args ...string) string {
	h.T.Helper()
	w := onTerminal(h, args...)
	if got := w.wait(); got != 0 {
		h.T.Fatalf("at a terminal: %v: %d %s", args, got, w.text())
	}
	return w.text()
}

// decided has a browser or a program decide what is a person's.
func (d *door) decided(what, peer string, may bool) {
	d.h.T.Helper()
	d.gives(what, "GET", "/v1/access", "", fmt.Sprintf(`"decides":%v`, may))
	body := fmt.Sprintf(`{"peer":%q`, peer)
	for path, body := range map[string]string{"accept": body + "}", "authority": body + `,"authority":"act"}`, "verify": body + `,"confirm":true}`} {
		if path = "/v1/contacts/" + path; may {
			d.gives(what, "POST", path, body, peer[:6])
		} else {
			d.refuses(what, 403, conch.NotHuman, "POST", path, body)
		}
	}
}

// What a person decides is decided on the page by one who came by a person's address,
// and with a person's token, not with those that an agent made itself.
func TestPageDecidesForAPerson(t *testing.T) {
	t.Parallel()
	_, homes := homesAtARelay(t, 2)
	h, peer := homes[1], homes[0].address()
	command := h.Exe + " ui --print"
	run := strings.TrimSpace(h.OK("run", "--tty", command))
	h.OK("wait", run, "--exit")
	n := network(t, h)
	agents := map[string]*door{
		"without a terminal":       page(t, h, ""),
		"in a session":             login(t, h, wordIn(t, h.Exec("main", command).Stdout, "http://")),
		"on a session's terminal":  login(t, h, wordIn(t, h.OK("logs", run), "http://")),
		"by a harness":             login(t, h, wordIn(t, h.With("CLAUDE_CODE_SESSION_ID=x").person("ui", "--print"), "http://")),
		"by the API":               nil,
		"a token, not by a person": n.token("agent", "admin"),
	}
	link, err := h.client().Page(t.Context(), conch.PageRequest{})
	if err != nil || link.Decides {
		t.Fatalf("%+v %v", link, err)
	}
	agents["by the API"] = login(t, h, link.URL)
	people := map[string]*door{
		"a person":         login(t, h, wordIn(t, h.person("ui", "--print"), "http://")),
		"a person's token": n.as(wordIn(t, h.person("token", "new", "mine", "--scope", "admin"), "conch_")),
	}
	check := func() {
		t.Helper()
		h.OK("contacts", "authority", peer, "inform") // so that more would be a raise
		for what, d := range agents {
			d.decided(what, peer, false)
			d.gives("the rest it may", "GET", "/v1/contacts", "", peer)
		}
		for what, d := range people {
			d.decided(what, peer, true)
		}
	}
	check()
	if status, text := agents["in a session"].ask("POST", "/v1/contacts/accept", fmt.Sprintf(`{"peer":%q}`, peer)); !strings.Contains(text, "run conch ui in a terminal") {
		t.Errorf("%d %s", status, text)
	}
	out := h.Conch("ui", "--print")
	if !strings.Contains(out.Stderr, "cannot decide what is for a person") {
		t.Error(out)
	}
	// It stays so in the next daemon.
	h.OK("down")
	h.OK("up", "--listen", strings.TrimPrefix(n.base, "https://"))
	for _, d := range []map[string]*door{agents, people} {
		for _, d := range d {
			d.client.CloseIdleConnections()
		}
	}
	check()
}
