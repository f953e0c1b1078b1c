package conchtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conchsh/conch"
)

// A new version's daemon takes over what an older one's keepers hold: the
// command that runs through the change ends as if there had been none.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string][]string{
		// Another version of the same protocol, and one of the next that still
		// understands this one.
		"v-next":     {"// NewCommandID joins", "// NewCommandID  joins"},
		"v-protocol": {fmt.Sprintf("ProtocolVersion = %d\n", conch.ProtocolVersion), fmt.Sprintf("ProtocolVersion = %d\n", conch.ProtocolVersion+1)},
	} {
		t.Run(name, func(t *testing.T) {
			h := New(t)
			next := *h
			next.Exe = Variant(t, name, "conch.go", edit...)
			h.Want("main", "KEEP=kept; f() { echo f; }", "")
			shell := h.Session("main").ShellPID
			path, open := gate(h, "gate")
			r := h.Start("exec", "--jsonl", "-s", "main", "echo begin; read x < "+path+"; echo end; exit 4")
			for line := ""; !strings.Contains(line, `"begin\n"`); {
				var err error
				if line, err = r.Out.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			id := h.Last("main").CommandID
			h.OK("down")
			next.OK("up")
			if got := next.Session("main"); got.ShellPID != shell || got.Running != id {
				t.Errorf("the new daemon sees %+v", got)
			}
			waiting := next.Start("exec", "-s", "main", "echo $KEEP")
			open()
			if o := r.End(); o.Status != 4 || !strings.Contains(o.Stdout, `"end\n"`) {
				t.Errorf("the command that ran through it: %v", o)
			}
			if o := waiting.End(); o.Stdout != "kept\n" {
				t.Errorf("what waited behind it: %v", o)
			}
			if got := next.OK("output", string(id)); got != "begin\nend\n" {
				t.Errorf("fetched %q", got)
			}
			if e := next.Last("main"); e.Status != conch.StatusDone {
				t.Errorf("%+v", e)
			}
			next.Want("main", "f", "f\n")
			next.Want("new", "echo new", "new\n")
			if status, text, _ := get(t, &next, "/metrics"); status != 200 || parseMetrics(t, text)["conch_keepers_silent{}"] != 0 {
				t.Errorf("%d %s", status, text)
			}
			o := next.Conch("doctor")
			if o.Status != 0 || !strings.Contains(o.Stdout, "of another version: main") {
				t.Errorf("doctor: %v", o)
			}
			next.OK("down", "--all")
		})
	}
}

// A keeper that names a protocol nobody knows is left alone: what it runs goes
// on, what it recorded can be read, and it can be closed.
func TestLyingKeeper(t *testing.T) {
	t.Parallel()
	h := New(t)
	liar := *h
	liar.Exe = Variant(t, "v-liar", "internal/keeper/keeper.go", "Protocol: conch.ProtocolVersion})", "Protocol: 99})")
	refused(t, "its own daemon cannot use it", liar.Conch("exec", "-s", "x", "true"), "protocol 99")
	liar.OK("down")
	// One that was good when it was started.
	h.Want("main", "x=1", "")
	shell := h.Session("main").ShellPID
	h.OK("down")
	next := *h
	next.Exe = Variant(t, "v-strict", "conch.go", fmt.Sprintf("OldestProtocol = %d\n", conch.OldestProtocol), "OldestProtocol = 50\n",
		fmt.Sprintf("ProtocolVersion = %d\n", conch.ProtocolVersion), "ProtocolVersion = 50\n")
	refused(t, "too old", next.Conch("exec", "true"), fmt.Sprintf("protocol %d", conch.ProtocolVersion), "50 to 50", "run on", "conch close main")
	if o := next.Conch("doctor"); o.Status != 1 || !strings.Contains(o.Stdout, "cannot talk to") {
		t.Errorf("doctor: %v", o)
	}
	next.OK("down")
	if got := h.Session("main").ShellPID; got != shell {
		t.Errorf("shell %d, was %d", got, shell)
	}
	h.Want("main", "echo $x", "1\n")
	h.OK("down")
	next.OK("close", "main")
	if Alive(shell) {
		t.Error("close left the old version's shell")
	}
	next.OK("down", "--all")
}
