package conchtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// responding is a home whose responder runs a program, with more lines of config.
func responding(t *testing.T, program string, lines ...string) *Home {
	t.Helper()
	h := New(t)
	setResponder(h, program, lines...)
	return h
}

func setResponder(h *Home, program string, lines ...string) {
	h.T.Helper()
	if err := os.MkdirAll(h.Path, 0o700); err != nil {
		h.T.Fatal(err)
	}
	text := "[responder]\ncommand = '''" + program + "'''\n"
	if !strings.Contains(strings.Join(lines, "\n"), "mail") {
		text += "after = \"off\"\n"
	}
	if err := os.WriteFile(filepath.Join(h.Path, "config.toml"), []byte(text+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		h.T.Fatal(err)
	}
}

func (h *Home) responder(flags ...string) (st conch.ResponderStatus) {
	h.T.Helper()
	h.JSON(&st, append([]string{"responder", "status", "--json"}, flags...)...)
	return st
}

// settled waits until the responder has done so many runs, and gives the status.
func (h *Home) settled(runs int, flags ...string) (st conch.ResponderStatus) {
	h.T.Helper()
	Until(h.T, 30*time.Second, fmt.Sprintf("%d runs are over", runs), func() bool {
		st = h.responder(flags...)
		return len(st.Runs) >= runs && st.Running == 0 && st.Runs[0].Status != conch.RunRunning
	})
	return st
}

func TestResponderAnswers(t *testing.T) {
	t.Parallel()
	// A Python program that reads the frame, and tells what it sees of the world.
	h := responding(t, `python3 -c '
import sys, os
text = sys.stdin.read()
body = text.split("<<<text ")[1].split("\n", 1)[1].split("\n>>>end ")[0]
print("you wrote:", body)
print("from", os.environ["CONCH_FROM"], "secret", os.environ.get("SECRET"), "given", os.environ.get("GIVEN"), "home", os.listdir(os.environ["HOME"]))
'`, `env = "GIVEN"`)
	h = h.With("SECRET=x")
	home := filepath.Join(filepath.Dir(h.Path), "home")
	if err := os.WriteFile(filepath.Join(home, ".profile"), []byte("export SECRET=hidden GIVEN=shown\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.OK("exec", "-s", "away", "true") // a session that nobody holds
	if st := h.responder(); st.On || st.Totals.Runs != 0 || st.NotReady != "" {
		t.Errorf("before: %+v", st)
	}
	h.OK("send", "-s", "asker", "away", "too early")
	if st := h.responder(); st.On || len(st.Runs) != 0 {
		t.Errorf("while off: %+v", st)
	}
	h.OK("responder", "on")
	var asked conch.Asked
	h.JSON(&asked, "ask", "--json", "-s", "asker", "-t", "30s", "away", "what is 6 x 7? $(id)")
	if asked.Reply == nil {
		t.Fatalf("no reply: %+v; %+v", asked, h.responder())
	}
	want := "you wrote: what is 6 x 7? $(id)\nfrom me/asker secret None given shown home []"
	if asked.Reply.Text != want || !asked.Reply.Auto || asked.Reply.From != "me" || asked.Reply.FromSession == nil || *asked.Reply.FromSession != "away" {
		t.Errorf("reply %+v\n%q\nwant %q", asked.Reply, asked.Reply.Text, want)
	}
	var r conch.Receipts
	h.JSON(&r, "receipts", asked.Sent.ID, "--json", "-s", "asker")
	if r.Status != conch.ReceiptDone {
		t.Errorf("the question is %s", r.Status)
	}
	// To the agent, when no session of it is there.
	h.JSON(&asked, "ask", "--json", "-s", "asker", "-t", "30s", "me", "anybody?")
	if asked.Reply == nil || !strings.Contains(asked.Reply.Text, "anybody?") {
		t.Errorf("to the agent: %+v", asked)
	}
	st := h.settled(2)
	if st.Totals.Runs != 2 || st.Totals.Answered != 2 || st.Totals.BytesOut == 0 || st.Totals.Seconds <= 0 || st.Runs[0].From != "me/asker" || st.Runs[1].To != "me/away" || len(st.Runs[1].Messages) != 1 {
		t.Errorf("status: %+v", st)
	}
	if out := h.OK("output", string(st.Runs[1].CommandID)); !strings.Contains(out, "6 x 7") {
		t.Errorf("its output is not kept: %q", out)
	}
	// What came before it was on is still there, unanswered.
	var inbox []conch.InboxEntry
	h.JSON(&inbox, "inbox", "--peek", "--json", "-s", "away")
	if len(inbox) != 1 || inbox[0].Text != "too early" {
		t.Errorf("inbox: %+v", inbox)
	}
	// Off is off.
	h.OK("responder", "off")
	h.OK("send", "-s", "asker", "away", "late")
	if st := h.responder(); st.On || st.Waiting != 0 || st.Totals.Runs != 2 {
		t.Errorf("off: %+v", st)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "conch-responder-*")); len(left) > 0 {
		for _, dir := range left { // of this test, or of one beside it
			Until(t, 20*time.Second, dir+" is removed", func() bool { _, err := os.Stat(dir); return err != nil })
		}
	}
}

// Whatever goes wrong is on record, and the message is where it was.
func TestResponderFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ program, want string }{
		"status":  {`echo half; exit 3`, "status 3"},
		"empty":   {`cat >/dev/null`, "nothing"},
		"hangs":   {`sleep 1000`, "time limit"},
		"forks":   {`cat >/dev/null; for i in 1 2 3; do (setsid sleep 1000 &) ; done; sleep 1000`, "time limit"},
		"large":   {`head -c 10000000 /dev/zero | tr '\0' x`, "10000000 bytes"},
		"bytes":   {`printf '\xff\xfe'`, "UTF-8"},
		"killed":  {`kill -9 $$`, "status 137"},
		"nothing": {`/nonexistent/program`, "status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := responding(t, c.program, `time_limit = "2s"`)
			h.OK("exec", "-s", "away", "true")
			h.OK("responder", "on")
			h.OK("send", "-s", "asker", "away", "hello")
			st := h.settled(1)
			if st.Runs[0].Status != conch.RunFailed || !strings.Contains(st.Runs[0].Reason, c.want) || st.Totals.Failed != 1 || st.Waiting != 0 {
				t.Errorf("%+v", st)
			}
			var inbox []conch.InboxEntry
			h.JSON(&inbox, "inbox", "--json", "-s", "away")
			if len(inbox) != 1 || inbox[0].Text != "hello" {
				t.Errorf("inbox: %+v", inbox)
			}
			h.JSON(&inbox, "inbox", "--peek", "--json", "-s", "asker")
			if len(inbox) != 0 {
				t.Errorf("a failure was sent: %+v", inbox)
			}
			for _, p := range h.Processes() {
				if strings.Contains(p.Args, "sleep 1000") {
					t.Errorf("left: %+v", p)
				}
			}
		})
	}
}

// A live session that takes its mail is not answered for; one that does not, is.
func TestResponderWaits(t *testing.T) {
	t.Parallel()
	h := New(t)
	if err := os.MkdirAll(h.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.Path, "config.toml"), []byte("[responder]\ncommand = 'echo auto'\nafter = '2s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.OK("exec", "-s", "here", "true")
	h.OK("responder", "on")
	h.OK("send", "-s", "asker", "here", "one")
	var inbox []conch.InboxEntry
	h.JSON(&inbox, "inbox", "--json", "-s", "here")
	h.OK("send", "-s", "asker", "here", "two")
	st := h.settled(1)
	if len(inbox) != 1 || len(st.Runs) != 1 || len(st.Runs[0].Messages) != 1 || st.Runs[0].Messages[0] == inbox[0].ID {
		t.Errorf("fetched %+v, runs %+v", inbox, st.Runs)
	}
	h.JSON(&inbox, "inbox", "--json", "-s", "asker")
	if len(inbox) != 1 || inbox[0].Text != "auto" || !inbox[0].Auto {
		t.Errorf("replies: %+v", inbox)
	}
}

// Messages that are due together are one run; more than the budget allows wait.
func TestResponderBudget(t *testing.T) {
	t.Parallel()
	h := responding(t, `grep -c '^message '`, "per_peer = 2", "per_day = 3", "pool = 1")
	h.OK("agent", "new", "bob")
	h.OK("agent", "new", "eve")
	for _, s := range []string{"bob/b", "eve/e"} {
		h.OK("exec", "-s", s, "true")
	}
	h.OK("exec", "-s", "away", "true")
	h.OK("responder", "on")
	for i := range 4 {
		var a conch.Asked
		h.JSON(&a, "ask", "--json", "--agent", "bob", "-s", "b", "-t", "3s", "me/away", fmt.Sprint("q", i))
		if got := a.Reply != nil; got != (i < 2) {
			t.Errorf("question %d of bob: answered %v", i, got)
		}
	}
	st := h.responder()
	if st.Totals.Runs != 2 || st.Budget.Over != 2 || st.Budget.Used != 2 {
		t.Errorf("over the peer's budget: %+v", st)
	}
	for i := range 2 {
		h.OK("send", "--agent", "eve", "-s", fmt.Sprint("e", i), "me/away", "hi")
	}
	st = h.settled(3)
	if st.Totals.Runs != 3 {
		t.Errorf("over the day's budget: %+v", st)
	}
	Until(t, 10*time.Second, "three wait", func() bool { return h.responder().Budget.Over == 3 })
	// A batch: six at once.
	h2 := responding(t, `grep -c '^message '`, `mail = "all"`)
	h2.OK("exec", "-s", "away", "true")
	for i := range 6 {
		h2.OK("send", "-s", "asker", "away", fmt.Sprint("m", i))
	}
	h2.OK("responder", "on")
	if st := h2.responder(); st.Waiting != 0 {
		t.Errorf("mail from before is its to answer: %+v", st)
	}
	p := h2.Start("exec", "-s", "asker", "for i in 1 2 3 4 5 6; do "+h2.Exe+" send away hello$i; done")
	p.End()
	Until(t, 20*time.Second, "all six are answered", func() bool {
		st = h2.responder()
		total := 0
		for _, r := range st.Runs {
			total += len(r.Messages)
		}
		return total == 6 && st.Running == 0
	})
	if len(st.Runs) > 5 {
		t.Errorf("six messages took %d runs", len(st.Runs))
	}
}

// noNamespaces runs conch's daemon where there are no user namespaces, so that a
// responder runs unsandboxed and can use conch itself.
func noNamespaces(h *Home, script string) string {
	h.T.Helper()
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "true").CombinedOutput(); err != nil {
		h.T.Skipf("%v: %s", err, out)
	}
	cmd := exec.Command("unshare", "--user", "--map-root-user", "bash", "-c",
		"echo 0 >/proc/sys/user/max_user_namespaces && cd "+h.Work+" && conch() { "+h.Exe+" \"$@\"; }\n"+script+"\nconch down --all")
	cmd.Env = append(h.Env[:len(h.Env):len(h.Env)], "CONCH_EXE="+h.Exe)
	b, err := cmd.CombinedOutput()
	if err != nil {
		h.T.Errorf("%v: %s", err, b)
	}
	return string(b)
}

// Without a sandbox it does not run, unless the user says so.
func TestResponderNeedsSandbox(t *testing.T) {
	t.Parallel()
	h := responding(t, "echo hi")
	out := noNamespaces(h, "conch responder on; conch responder status --json")
	if !strings.Contains(out, "the responder cannot run") || !strings.Contains(out, `"on":false`) || !strings.Contains(out, "cannot sandbox") {
		t.Errorf("%s", out)
	}
	h = responding(t, "echo hi", "allow_unsandboxed = true")
	out = noNamespaces(h, "conch exec -s away true; conch responder on >/dev/null; conch ask -s asker -t 20s away hello; conch responder")
	if !strings.Contains(out, "hi\n") || !strings.Contains(out, "as allow_unsandboxed says") {
		t.Errorf("%s", out)
	}
}

// Responders that write to each other, in a pair and in a triangle, stop.
func TestResponderLoops(t *testing.T) {
	t.Parallel()
	// By reply alone: what a responder answers is automatic, and is not answered.
	h := responding(t, `echo "and what do you say?"`)
	h.OK("agent", "new", "bob")
	h.OK("exec", "-s", "bob/b", "true")
	h.OK("exec", "-s", "a", "true")
	h.OK("responder", "on")
	h.OK("responder", "on", "--agent", "bob")
	h.OK("send", "-s", "a", "bob/b", "hello")
	h.settled(1, "--agent", "bob")
	var inbox []conch.InboxEntry
	h.JSON(&inbox, "inbox", "--json", "-s", "a")
	if len(inbox) != 1 || !inbox[0].Auto {
		t.Errorf("%+v", inbox)
	}
	if st := h.responder(); len(st.Runs) != 0 || st.Waiting != 0 {
		t.Errorf("an automatic reply was answered: %+v", st)
	}
	// By programs that write on: each agent's responder sends to the next agent's, as a
	// person would.
	for name, ring := range map[string][]string{"pair": {"ann", "bob"}, "triangle": {"ann", "bob", "cid"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := "case $CONCH_AGENT in "
			for i, a := range ring {
				next += a + ") to=" + ring[(i+1)%len(ring)] + ";; "
			}
			h := responding(t, `cat >/dev/null; `+next+`esac; echo "$CONCH_AGENT" >>`+`$HOME/trail; `+Binary(t)+` send $to/x "go on" >/dev/null; echo passed on`,
				"allow_unsandboxed = true", "hops = 10")
			script := ""
			for _, a := range ring {
				script += "conch agent new " + a + " >/dev/null; conch exec -s " + a + "/x true; conch responder on --agent " + a + " >/dev/null;\n"
			}
			script += "conch send -s asker ann/x begin >/dev/null;\n"
			// It is over when the first is asked again, which is refused.
			script += `for i in $(seq 300); do conch responder status --agent ann --json | grep -q '"refused":1' && break; sleep 0.1; done
conch responder status --agent ann --json
cat $HOME/trail`
			out := noNamespaces(h, script)
			if want := strings.Join(ring, "\n") + "\n"; !strings.Contains(out, want) || strings.Contains(out, want+"ann") || !strings.Contains(out, "set off") {
				t.Errorf("%s", out)
			}
		})
	}
}

// One reply to a message, wherever the daemon dies.
func TestResponderKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"responder.begun", "responder.answered", "mail.accepted"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			h := responding(t, `cat >/dev/null; echo ran >&2; sleep 0.2; echo answer`)
			h.OK("exec", "-s", "away", "true")
			h.OK("responder", "on")
			h.OK("down")
			fault := h.With("CONCH_FAULT=" + point)
			if point == "mail.accepted" {
				fault = h.With("CONCH_FAULT=mail.accepted:2") // the first is the question
			}
			fault.Conch("send", "-s", "asker", "--id", "q1", "away", "hello")
			Until(t, 20*time.Second, "the daemon dies", func() bool { return len(daemons(h)) == 0 })
			h.OK("up")
			var inbox []conch.InboxEntry
			Until(t, 30*time.Second, "the reply is there", func() bool {
				h.JSON(&inbox, "inbox", "--peek", "--json", "-s", "asker")
				return len(inbox) > 0
			})
			st := h.settled(1)
			if len(inbox) != 1 || inbox[0].Text != "answer" || st.Totals.Runs > 2 || st.Totals.Answered != 1 {
				t.Errorf("inbox %+v, status %+v", inbox, st)
			}
			if list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "keeper.json")); len(list) > 1 {
				t.Errorf("sessions are left open: %v", list)
			}
		})
	}
}

// daemons are the processes that serve a home.
func daemons(h *Home) (list []Process) {
	for _, p := range h.Processes() {
		if strings.Contains(p.Args, " daemon") {
			list = append(list, p)
		}
	}
	return list
}

// With the network left to it, it still has neither the sockets nor the files of others.
func TestResponderNetwork(t *testing.T) {
	t.Parallel()
	h := New(t)
	o := newOutside(h)
	tool := filepath.Join(filepath.Dir(h.Path), "home", "tool")
	if err := os.WriteFile(tool, []byte("a tool"), 0o644); err != nil {
		t.Fatal(err)
	}
	setResponder(h, `cat >/dev/null; (echo >/dev/tcp/`+strings.ReplaceAll(o.tcp4.Addr().String(), ":", "/")+`) && echo network
python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.connect("\0`+o.abstract+`"); print("SECRET")'
cat `+o.secret+` ~/.ssh/id; ls -A `+h.Path+`; cat ~/tool; kill -0 `+fmt.Sprint(o.victim.Process.Pid)+` && echo SECRET; true`,
		"network = true", `allow = "~/tool"`)
	h.OK("exec", "-s", "away", "true")
	h.OK("responder", "on")
	var a conch.Asked
	h.JSON(&a, "ask", "--json", "-s", "asker", "-t", "30s", "away", "hello")
	if a.Reply == nil || a.Reply.Text != "network\na tool" {
		t.Errorf("%+v; %+v", a.Reply, h.responder())
	}
	if what := o.touched(); what != "tcp4" {
		t.Errorf("reached %q", what)
	}
	if what := o.touched(); what != "" {
		t.Errorf("reached %q", what)
	}
}
