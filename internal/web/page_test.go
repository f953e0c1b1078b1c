package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/conchtest"
	"github.com/conchsh/conch/internal/web"
)

func TestRunAndWatch(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	p := open(t, h)
	p.click(".item", "work")
	p.text("h1", "work")
	// Its output appears while it runs, before its end.
	gate := filepath.Join(h.Work, "gate")
	p.fill("#run", fmt.Sprintf(`echo first; printf '\033[31mred\033[0m and <b>bold</b>\n' >&2; until [ -e %s ]; do sleep 0.05; done; echo last; exit 3`, gate)+kb.Enter)
	p.click(".command.running", "echo first")
	p.text(".lines", "first")
	p.text(".lines .err", "red and <b>bold</b>") // as text
	if p.eval(`document.querySelectorAll(".lines b").length`) != "0" {
		t.Error("output became markup")
	}
	if c := p.eval(`getComputedStyle(document.querySelector(".lines .err span")).color`); c == p.eval(`getComputedStyle(document.querySelector(".lines")).color`) {
		t.Errorf("red is %s, like everything", c)
	}
	p.text(".state", "running")
	if strings.Contains(p.eval(`document.querySelector(".lines").innerText`), "last") {
		t.Error("it shows what has not been written")
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.text(".lines", "last")
	p.text(".state", "exit 3")
	p.text("dl.facts", "restarted")
	p.click(".choice button", "stderr")
	p.until("stderr alone", `document.querySelector(".lines").innerText.trim() === "red and <b>bold</b>"`)
	// One stream as a file, byte for byte.
	if got := p.eval(`await (await fetch(document.querySelector("a[download]").href)).text()`); got != "\x1b[31mred\x1b[0m and <b>bold</b>\n" {
		t.Errorf("the download is %q", got)
	}
	// The picture and the list have it, and the search finds it by how it ended.
	p.click("header a.button", "")
	p.fill("#search", "exit 3")
	p.until("one command", `document.querySelectorAll(".command").length === 1 && document.querySelectorAll(".barre").length === 1`)
	p.until("its marks", `!!document.querySelector(".barre.failed .restart")`)
	// What a command line starts is seen as well, and can be interrupted.
	run := h.Start("exec", "-s", "work", "--json", "sleep 1000")
	p.click("header button", "Interrupt")
	if out := run.End(); out.Status != 130 {
		t.Errorf("interrupted: %v", out)
	}
	p.text(".notice", "Interrupted")
}

func TestTerminal(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "secret=pearl")
	p := open(t, h)
	p.eval(`location.hash = "#/s/me/work/terminal"`)
	p.text(".terminal .state", "looking on")
	p.until("the screen", `!!document.querySelector(".xterm-rows")`)
	// A viewer's keys go nowhere.
	p.do(chromedp.Click(chromedp.CSS(".xterm-screen")))
	p.keys("echo lost\r")
	p.click(".terminal button", "Take over")
	p.text(".terminal .state", "You are at the prompt")
	p.until("a prompt", `document.querySelector(".xterm-rows").innerText.includes("$")`)
	conchtest.Until(t, 10*time.Second, "a person at the prompt", func() bool { return h.Session("work").Attached == 1 })
	p.keys("echo a $secret; printf '\\033]52;c;c3RvbGVu\\007\\033]0;title\\007\\033]8;;http://example.com/\\007link\\033]8;;\\007\\n'\r")
	p.until("what it printed", `document.querySelector(".xterm-rows").innerText.includes("a pearl")`)
	p.until("the link's text", `document.querySelector(".xterm-rows").innerText.includes("link")`)
	if title := p.eval("document.title"); title != "me/work – conch" {
		t.Errorf("a program named the page %q", title)
	}
	p.shot("terminal")
	if got := h.Last("work").Command; !strings.Contains(got, "$secret") || strings.Contains(got, "lost") {
		t.Errorf("the history has %q", got)
	}
	// It is as wide as its place.
	cols, _ := strconv.Atoi(strings.TrimSpace(func() string {
		p.keys("tput cols > cols\r")
		var b []byte
		conchtest.Until(t, 10*time.Second, "the columns", func() bool { b, _ = os.ReadFile(filepath.Join(h.Work, "cols")); return len(b) > 1 })
		return string(b)
	}()))
	if cols < 90 || cols > 140 {
		t.Errorf("the terminal has %d columns in 960 pixels", cols)
	}
	p.click(".terminal button", "Release")
	p.text(".terminal .state", "looking on")
	conchtest.Until(t, 10*time.Second, "nobody at the prompt", func() bool { return h.Session("work").Attached == 0 })
	h.Want("work", "echo $secret again", "pearl again\n")
	p.until("others' commands", `document.querySelector(".xterm-rows").innerText.includes("pearl again")`)
}

func TestProcesses(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	p := open(t, h)
	p.eval(`location.hash = "#/p"`)
	p.text("main", "No process")
	p.fill(".start input.mono", "while read -r line; do echo got $line; done; sleep 1000")
	p.fill(".start input[pattern]", "reader")
	p.click(".start button", "Start")
	p.text("h1", "reader")
	p.text(".state", "running")
	p.fill(".run input", "hello"+kb.Enter)
	p.text(".lines", "got hello")
	p.until("what it uses", `[...document.querySelectorAll(".spark b")].every(b => /\d/.test(b.innerText))`)
	p.click("header button", "Kill")
	p.text(".state", "SIGTERM")
	p.text(".notice", "seen gone")
	var list []conch.Process
	h.JSON(&list, "ps", "--json")
	if len(list) != 1 || list[0].Status != conch.ProcessKilled {
		t.Errorf("ps: %+v", list)
	}
	// One that another starts and that fails is told of, wherever one looks.
	p.eval(`location.hash = "#/"`)
	h.OK("run", "-s", "work", "--name", "doomed", "sleep 0.4; exit 7")
	p.text(".notice.error", "doomed failed with status 7")
}

func TestMail(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "a", "true")
	h.OK("exec", "-s", "b", "true")
	p := open(t, h)
	p.eval(`location.hash = "#/m"`)
	p.text("main", "No message yet")
	p.click("a.button", "Write")
	p.eval(`document.querySelector(".compose select").value = "me/a", document.querySelector(".compose select").dispatchEvent(new Event("change", {bubbles: true}))`)
	p.fill("#to", "b")
	p.fill("#text", "are you <img src=x onerror=alert(1)> there?")
	p.click(".compose button", "Send")
	p.text(".message .text", "<img src=x onerror=alert(1)>")
	p.text(".message .receipt", "held")
	// Receipts change as it is read and answered elsewhere.
	var got []conch.InboxEntry
	h.JSON(&got, "inbox", "-s", "b", "--json")
	p.text(".message .receipt", "seen")
	h.OK("reply", got[0].ID, "I am", "-s", "b")
	p.text(".message .text", "I am")
	p.text(".message .receipt", "done")
	// And the page answers.
	p.text(".reply", "Reply as me/a to me/b")
	p.fill("#reply", "good")
	p.click(".reply button", "Reply")
	p.text(".message:last-of-type .text", "good")
	h.JSON(&got, "inbox", "-s", "b", "--json")
	if len(got) != 1 || got[0].Text != "good" || got[0].Role != "user" {
		t.Errorf("b got %+v", got)
	}
	p.click(".message:last-of-type button", "Mark as done")
	p.text(".message:last-of-type .receipt", "done")
	p.click(".message:last-of-type button", "Steps")
	p.text(".steps", "in the inbox")
	// A file goes with it, and comes out again as it was.
	notes := filepath.Join(h.Work, "notes.bin")
	if err := os.WriteFile(notes, []byte("\x00notes\xff\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.eval(`location.hash = "#/m/new"`)
	p.fill("#to", "a")
	p.fill("#text", "see the file")
	p.do(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{notes}))
	p.click(".compose button", "Send")
	p.text(".files", "notes.bin")
	if got := p.eval(`[...new Uint8Array(await (await fetch(document.querySelector(".files a").href)).arrayBuffer())].join()`); got != "0,110,111,116,101,115,255,10" {
		t.Errorf("the file came as %s", got)
	}
	h.JSON(&got, "inbox", "-s", "a", "--json")
	h.OK("ack", "-s", "a", got[len(got)-1].ID)
	// New mail rings wherever one is, and is counted.
	p.eval(`location.hash = "#/"`)
	h.OK("send", "a", "ping", "-s", "b")
	p.text(".notice", "for me/a from me/b")
	p.text(".views .count", "1")
}

// Another home asks to be a contact, and who looks at the page decides; the safety number
// is the same on both sides.
func TestContacts(t *testing.T) {
	h, there := conchtest.New(t), conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	h.OK("relay", "listen", "127.0.0.1:0")
	if out := there.Feed(strings.NewReader(h.OK("relay", "invite")), "relay", "join", "-"); out.Status != 0 {
		t.Fatal(out)
	}
	var me, other conch.WhoAmI
	h.JSON(&me, "whoami", "--json")
	there.JSON(&other, "whoami", "--json")
	p := open(t, h)
	p.eval(`location.hash = "#/contacts"`)
	p.text("main", "No contact yet")
	there.OK("contacts", "add", "ann", me.Address, "--text", "it is <b>Bob</b>")
	p.text(".contact", "asks to be a contact")
	p.text(".contact .text", "it is <b>Bob</b>")
	p.text(".contact", other.Address)
	p.shot("contact-request")
	// An agent that gets itself an address can look at it.
	agent := blank(t, h)
	agent.forgive("403")
	agent.visit(strings.TrimSpace(h.OK("ui", "--print")))
	agent.text(".link", "live")
	agent.eval(`location.hash = "#/contacts"`)
	agent.text(".warn", "not made by a person")
	agent.click(".contact button", "Accept")
	agent.text(".notice.error", "run conch ui in a terminal")
	agent.text(".contact", "asks to be a contact")
	p.fill(".contact input", "bob")
	p.click(".contact button", "Accept")
	p.text(".contact h3", "bob")
	p.text(".contact .state", "contact")
	p.eval(`(s => (s.value = "ask", s.dispatchEvent(new Event("change", {bubbles: true}))))(document.querySelector(".contact select"))`)
	var list []conch.Contact
	conchtest.Until(t, 10*time.Second, "the decision", func() bool {
		h.JSON(&list, "contacts", "--json")
		return len(list) == 1 && list[0].State == conch.ContactAccepted && list[0].Authority == conch.AuthorityAsk && list[0].Name == "bob"
	})
	there.OK("send", "ann/work", "hello from afar")
	p.text(".notice", "from bob/main")
	p.eval(`location.hash = "#/m"`)
	p.click(".thread", "bob/main")
	p.text(".message .text", "hello from afar")
	p.fill("#reply", "hello back")
	p.click(".reply button", "Reply")
	p.text(".message:last-of-type .receipt", "held") // there, nobody is at main
	if said := p.eval(`[...document.querySelectorAll(".notice")].map(n => n.innerText).join()`); strings.Contains(said, other.Address) {
		t.Errorf("our own message is news: %q", said)
	}
	p.eval(`location.hash = "#/contacts"`)
	p.click(".contact button", "Safety number")
	var safety conch.ContactSafety
	there.JSON(&safety, "contacts", "verify", "ann", "--json")
	p.text(".safety .number", safety.Number)
	p.click(".safety button", "They are the same")
	p.text(".contact .badge", "verified")
	p.shot("contact")
	p.click(".contact button", "Block")
	p.click(".contact button", "Block bob?")
	p.text(".contact .state", "blocked")
}

// A page that is left open over the death of the daemon is right again by itself.
func TestDaemonDies(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	p := open(t, h)
	p.click(".item", "work")
	p.fill("#run", "for i in $(seq 1000); do echo line $i; sleep 0.05; done"+kb.Enter)
	p.click(".command.running", "line")
	p.text(".lines", "line 5")
	p.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
	conchtest.Kill(t, h.Daemon())
	p.text(".link", "away")
	h.OK("exec", "-s", "other", "true") // starts the next one, which serves the page again
	p.text(".link", "live")
	p.text(".notice", "daemon is back")
	p.text(".item", "other")
	at := p.eval(`document.querySelector(".log .facts").innerText`)
	p.until("more output", fmt.Sprintf(`document.querySelector(".log .facts").innerText !== %q`, at))
	rows := p.eval(`[...document.querySelectorAll(".lines .row")].map(r => r.innerText).filter(Boolean).join("|")`)
	list := strings.Split(rows, "|")
	for i := 1; i < len(list); i++ {
		var a, b int
		fmt.Sscanf(list[i-1], "line %d", &a)
		fmt.Sscanf(list[i], "line %d", &b)
		if b != a+1 {
			t.Errorf("%q comes after %q", list[i], list[i-1])
		}
	}
	h.OK("interrupt", "-s", "work")
	p.text(".state", "interrupted")
}

func TestReadOnly(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "echo seen")
	p := open(t, h, "--read-only")
	p.text(".top", "read-only")
	p.click(".item", "work")
	p.click(".command", "echo seen")
	p.text(".lines", "seen")
	for _, hash := range []string{"#/s/me/work", "#/s/me/work/processes", "#/p", "#/m"} {
		p.eval(fmt.Sprintf("location.hash = %q", hash))
		p.until(hash, `!!document.querySelector("main h1, main h2")`)
		if n := p.eval(`[...document.querySelectorAll("form, button, a")].filter(e => !e.closest("dialog")).filter(e => e.matches("form") || /Interrupt|Run|Reset|Close|Start|Write|New session/.test(e.innerText + e.ariaLabel)).length`); n != "0" {
			t.Errorf("%s: %s things that it may not do", hash, n)
		}
	}
	p.eval(`location.hash = "#/s/me/work/terminal"`)
	p.text(".terminal", "looking on")
	p.text(".terminal", "read-only")
	p.forgive("403")
	if got := p.eval(`(await fetch("/v1/sessions/me/work/exec", {method: "POST", body: '{"command":"true"}', headers: {"Content-Type": "application/json"}})).status`); got != "403" {
		t.Errorf("a read-only page's exec answered %s", got)
	}
}

// An address lets one browser in, once; its secret does not stay in the address.
func TestLogin(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "true")
	p := blank(t, h)
	link := p.link()
	p.visit(link)
	p.text(".link", "live")
	if at := p.eval("location.href"); strings.Contains(at, "login") {
		t.Errorf("the address is %s", at)
	}
	if c := p.eval("document.cookie"); c != "" {
		t.Errorf("scripts see the cookie %q", c)
	}
	p.do(chromedp.Reload()) // the cookie is enough
	p.text(".link", "live")
	other := blank(t, h)
	other.forgive("401")
	other.visit(link)
	other.text("h1", "needs a login")
	other.text(".code", "conch ui")

	// One that is in by another address is told that this one did nothing.
	reader := open(t, h, "--read-only")
	reader.text(".top", "read-only")
	reader.forgive("401")
	used := func() {
		t.Helper()
		reader.text(".notice.error", "This address let nobody in: this address was used before")
		reader.text(".notice.error", "conch ui prints another")
		reader.text(".top", "read-only")
	}
	reader.visit("about:blank")
	reader.visit(link)
	used()
	reader.click(".notice button", "")
	reader.until("no notice", `!document.querySelector(".notice")`)
	reader.eval(fmt.Sprintf(`(window.old = true, setTimeout(() => location.href = %q))`, link)) // of which only the fragment is new
	conchtest.Until(t, 15*time.Second, "the page is loaded again", func() bool {
		at, err := chromedp.Run(reader.ctx, chromedp.Evaluate[string](`window.old + document.readyState`))
		return err == nil && at == "undefinedcomplete"
	})
	used()

	reader.click(`.top button[aria-label="Log out"]`, "")
	reader.text("h1", "needs a login")
	reader.do(chromedp.Reload())
	reader.text("h1", "needs a login")
	p.text(".link", "live") // the other stays
}

// A thousand sessions, of which only those that are seen exist on the page.
func TestThousandSessions(t *testing.T) {
	h := conchtest.New(t)
	for i := range 1000 {
		id := fmt.Sprintf("zz%c%c%caaa", 'a'+i%26, 'a'+i/26%26, 'a'+i/676)
		dir := filepath.Join(h.Path, "sessions", id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(map[string]any{"id": id, "agent": "me", "label": fmt.Sprintf("s:%d", i), "cwd": "/tmp", "env": map[string]string{}, "created_at": time.Now().UTC()})
		if err := os.WriteFile(filepath.Join(dir, "spec.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.OK("agent", "ls")
	p := open(t, h)
	p.text(".tile.asleep", "1000")
	p.until("numeric order", `document.querySelector("aside .row:nth-child(3) b").innerText === "s:1"`)
	if n := p.eval(`document.querySelectorAll("aside .row").length`); n == "" || len(n) > 2 {
		t.Errorf("%s rows are on the page", n)
	}
	// Scrolling through all of it draws frames without a long stop.
	longest, _ := strconv.ParseFloat(p.eval(`await (async () => {
		const list = document.querySelector("aside .list");
		let last = performance.now(), longest = 0;
		for (let i = 0; i <= 100; i++) {
			list.scrollTop = i / 100 * list.scrollHeight;
			await new Promise(r => requestAnimationFrame(r));
			const now = performance.now();
			longest = Math.max(longest, now - last);
			last = now;
		}
		return longest;
	})()`), 64)
	t.Logf("the longest frame while scrolling through 1,000 sessions: %.0f ms", longest)
	if longest > 500 {
		t.Errorf("a frame took %.0f ms", longest)
	}
	p.text("aside", "s:999")
	p.fill("#filter", "s:777")
	p.until("one left", `document.querySelectorAll("aside .item").length === 1`)
}

// Output of any size is followed in bounded memory, and any part of it can be read.
func TestLongOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MB")
	}
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	p := open(t, h)
	p.click(".item", "work")
	const lines = 1_000_000 // of 105 bytes
	p.fill("#run", fmt.Sprintf(`seq -f '%%09.0f %s' %d`, strings.Repeat("x", 94), lines)+kb.Enter)
	p.click(".command", "seq")
	begin := time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, 40*time.Second)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`document.querySelector(".log .facts")?.innerText.startsWith("1,000,000 lines")`)); err != nil {
		t.Fatalf("all of it never came: %v", err)
	}
	p.text(".state", "exit 0")
	t.Logf("105 MB followed in %v", time.Since(begin).Round(time.Millisecond))
	memory := p.memory()
	t.Logf("the tab has %d MB", memory>>20)
	if memory > 300<<20 {
		t.Errorf("the tab has %d MB", memory>>20)
	}
	// The beginning was let go, and is fetched again; likewise the middle.
	for _, part := range []float64{0, 0.5, 1} {
		p.eval(fmt.Sprintf(`document.querySelector(".lines").scrollTop = %v * document.querySelector(".lines").scrollHeight`, part))
		want := fmt.Sprintf("%09d", max(1, min(lines, int(part*lines))))
		if part == 0.5 {
			p.until("the middle", `[...document.querySelectorAll(".lines .line")].some(l => Math.abs(parseInt(l.innerText) - 500000) < 200)`)
		} else {
			p.text(".lines", want)
		}
	}
	p.fill(".log .find input", "000777777 x")
	p.text(".lines .hit", "000777777")
	memory = p.memory()
	t.Logf("after reading here and there and a search it has %d MB", memory>>20)
	if memory > 300<<20 {
		t.Errorf("the tab has %d MB", memory>>20)
	}
}

// A daemon that dies while output flows costs the page no byte, and doubles none.
func TestCutOutput(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	p := open(t, h)
	p.click(".item", "work")
	p.fill("#run", fmt.Sprintf(`for i in 1 2 3 4; do seq -f '%%09.0f %s' 100000; sleep 0.3; done`, strings.Repeat("x", 94))+kb.Enter)
	p.click(".command", "seq")
	p.until("some output", `/^\d/.test(document.querySelector(".log .facts")?.innerText) && !document.querySelector(".log .facts").innerText.startsWith("0 ")`)
	p.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
	conchtest.Kill(t, h.Daemon())
	h.OK("exec", "-s", "other", "true")
	p.text(".state", "exit 0")
	p.until("all of it, once", `document.querySelector(".log .facts").innerText.startsWith("400,000 lines, 42 MB")`)
	p.fill(".log .find input", "000100000 ")
	p.text(".log .bar", "1 of 4")
	if got := p.eval(`[...document.querySelectorAll(".lines .line")].filter(l => l.innerText.length !== 104).length`); got != "0" {
		t.Errorf("%s lines are not whole", got)
	}
}

// memory is what the page's process has, as far as the browser tells: its script's and
// its documents' memory, buffers included.
func (p *page) memory() int64 {
	p.Helper()
	pid := p.renderer()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		p.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "RssAnon:")
	kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		p.Fatal(err)
	}
	return kb << 10
}

// TestFirstPaint measures what a person waits for, and what is sent for it.
func TestFirstPaint(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "work", "true")
	var p *page
	for try := 1; ; try++ { // a machine may have other things to do
		p = blank(t, h)
		p.visit(p.link())
		p.text(".item", "work")
		paint, _ := strconv.ParseFloat(p.eval(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`), 64)
		t.Logf("first paint after %.0f ms", paint)
		if paint > 0 && paint < 1000 {
			break
		}
		if try == 3 {
			t.Fatalf("first paint after %.0f ms", paint)
		}
	}
	p.eval(`location.hash = "#/s/me/work/terminal"`) // which brings the rest
	p.text(".terminal .state", "looking on")
	p.mu.Lock()
	defer p.mu.Unlock()
	var total int64
	for path, n := range p.loads {
		if !strings.HasPrefix(path, "/v1/") {
			total += n
		}
	}
	t.Logf("the page weighs %d bytes", total)
	if total < 50_000 || total > 500_000 {
		t.Errorf("the page weighs %d bytes", total)
	}
}

// TestViews looks at every view in both colour schemes and both widths: has axe-core, a
// second opinion on whether everybody can use it, something against it; is it wider than
// the window. It keeps a picture of each, two of which are the README's.
func TestViews(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join(root, "web", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		missing(t, "axe-core is not there: run npm ci in web")
	}
	h := conchtest.New(t)
	furnish(h)
	var procs []conch.Process
	h.JSON(&procs, "ps", "--json")
	p := open(t, h)
	p.text(".tile.busy", "1")
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[json.RawMessage](string(axe)+";1")); err != nil {
		t.Fatal(err)
	}
	views := []struct{ name, hash, selector, text string }{
		{"overview", "#/", ".glance, aside", "api"},
		{"session", "#/s/me/api", ".command", "pytest"},
		{"command", "#/s/me/api/c/" + string(h.Last("api").CommandID), ".lines", "case 001"},
		{"terminal", "#/s/me/api/terminal", ".terminal .state", "looking on"},
		{"session-processes", "#/s/me/docs/processes", "main", "clock"},
		{"session-mail", "#/s/me/api/mail", "main", "report job"},
		{"processes", "#/p", "main", "server"},
		{"process", "#/p/" + string(procs[0].ProcessID), ".state", "running"},
		{"mail", "#/m", ".thread", "report job"},
		{"compose", "#/m/new", "main", "New message"},
		{"contacts", "#/contacts", "main", "No contact yet"},
	}
	look := func(name, hash, selector, text string, width int64) {
		t.Helper()
		p.eval(fmt.Sprintf("location.hash = %q", hash))
		p.text(selector, text)
		p.shot(name)
		got := p.eval(`JSON.stringify((await axe.run(document, {resultTypes: ["violations"]})).violations.map(v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0]?.message ?? ""))]))`)
		if got != "[]" {
			t.Errorf("%s: %s", name, strings.ReplaceAll(got, `],[`, "],\n["))
		}
		if over := p.eval(`document.documentElement.scrollWidth > innerWidth`); over != "false" {
			t.Errorf("%s is wider than %d", name, width)
		}
	}
	for _, v := range views {
		look(v.name, v.hash, v.selector, v.text, 1280)
	}
	p.colours("dark")
	for _, v := range views {
		look(v.name+"-dark", v.hash, v.selector, v.text, 1280)
	}
	p.size(360, 740)
	for _, v := range views {
		look(v.name+"-phone", v.hash, v.selector, v.text, 360)
	}
	p.click(".threads .thread, .views a", "Messages")
	p.click(".thread", "report job")
	p.text(".message", "v3")
	p.shot("thread-phone")
}

// Everything that matters can be done from the keyboard.
func TestKeyboard(t *testing.T) {
	h := conchtest.New(t)
	h.OK("exec", "-s", "a", "true")
	h.OK("exec", "-s", "b", "true")
	p := open(t, h)
	p.text(".item", "a")
	p.keys("j")
	p.text("h1", "a")
	p.keys("j")
	p.text("h1", "b")
	p.keys("r")
	p.until("the field", `document.activeElement.id === "run"`)
	p.keys("echo jkr" + kb.Enter)
	p.text(".command", "echo jkr")
	p.keys(kb.Escape + "gm")
	p.text("h1", "Messages")
	p.keys("?")
	p.text("dialog[open]", "Keyboard")
	p.keys(kb.Escape)
	p.until("closed", `!document.querySelector("dialog[open]")`)
	p.keys("go")
	p.text("h1", "Overview")
	// Tab goes through the page in the order in which it is read, and shows where it is.
	p.eval("document.activeElement.blur(), scrollTo(0, 0)")
	var order []string
	for range 12 {
		p.keys(kb.Tab)
		order = append(order, p.eval(`(document.activeElement.innerText || document.activeElement.getAttribute("aria-label") || document.activeElement.id).trim().split("\n")[0]`))
		if seen := p.eval(`(e => e.matches(":focus-visible") && getComputedStyle(e).outlineStyle !== "none")(document.activeElement)`); seen != "true" {
			t.Errorf("nobody sees that %q has the focus", order[len(order)-1])
		}
	}
	got := strings.Join(order, " ")
	for i, want := range []string{"Skip", "conch", "Sessions", "Processes", "Messages", "filter"} {
		at := strings.Index(got, want)
		if at < 0 {
			t.Errorf("%d: %q is not reached: %q", i, want, order)
			continue
		}
		got = got[at:]
	}
}

// setup is what the commands of furnish call.
const setup = `make() { sleep 0.12; printf 'cc -O2 -o shop main.c\n'; [ "$1" != deploy ] || sleep 5; }
npm() { sleep 0.3; printf '\033[32m✓\033[0m 41 modules\n'; }
pytest() { printf 'tests/test_api.py ..\033[31mF\033[0m.\n'; for i in $(seq 40); do printf 'case %03d \033[32mok\033[0m\n' $i; done; echo 'FAILED test_login - AssertionError: 401 != 200' >&2; sleep 0.2; return 1; }
claude() { for i in $(seq 600); do echo "step $i"; sleep 0.1; done; }
cd /srv
`

// furnish gives a home agents and sessions that have done something.
func furnish(h *conchtest.Home) {
	h.T.Helper()
	if err := os.WriteFile(filepath.Join(h.Work, "setup"), []byte(setup), 0o644); err != nil {
		h.T.Fatal(err)
	}
	h.OK("exec", "-s", "api", "source ./setup")
	for _, text := range []string{"git status --short 2>/dev/null || true", "make", "npm run build", "grep -rn handler . || true", "sleep 0.15"} {
		h.OK("exec", "-s", "api", text)
	}
	h.Exec("api", "set -e; test -e shop.lock")
	h.Exec("api", "make deploy", "-t", "400ms")
	h.Exec("api", "pytest -q tests/test_api.py")
	h.OK("exec", "-s", "docs", "echo 'built 12 pages'")
	h.OK("exec", "-s", "claude:1", "cd /srv && pwd")
	h.OK("exec", "-s", "claude:2", "source ./setup")
	h.OK("agent", "new", "reviewer")
	h.OK("exec", "--agent", "reviewer", "-s", "lint", "echo no findings")
	h.OK("exec", "--agent", "reviewer", "-s", "audit", "true")
	h.OK("run", "-s", "docs", "--name", "clock", "while sleep 0.3; do date; done")
	h.OK("run", "-s", "api", "--name", "server", "sleep 1000")
	h.OK("send", "claude:1", "Does anything else read the schema of the users table?", "-s", "api")
	var list []conch.InboxEntry
	h.JSON(&list, "inbox", "-s", "claude:1", "--json")
	h.OK("reply", list[0].ID, "Only the report job. It is on v3 already, go ahead.", "-s", "claude:1")
	h.OK("send", "docs", "The API changed: /v2/users is paged now.", "-s", "api")
	h.Start("exec", "-s", "claude:2", "claude -p 'port the report job to v3'")
}

// Without a build there is a page that says how to make one; with one, every file that
// the page names is there.
func TestDist(t *testing.T) {
	dist := os.DirFS("dist")
	index, err := fs.ReadFile(dist, "index.html")
	if err != nil {
		t.Skip("the page was not built")
	}
	n := 0
	for part := range strings.SplitSeq(string(index), `"`) {
		if !strings.HasSuffix(part, ".js") && !strings.HasSuffix(part, ".css") {
			continue
		}
		n++
		if _, err := fs.Stat(dist, part+".gz"); err != nil {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Errorf("the page names %d files", n)
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://x/licences.txt", nil))
	if w.Code != 200 || strings.Count(w.Body.String(), "Permission is hereby granted") < 5 {
		t.Errorf("the notices of what is built in are not there: %d", w.Code)
	}
}
