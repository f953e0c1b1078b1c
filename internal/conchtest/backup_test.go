package conchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// A backup is made while commands run and state changes; restored elsewhere, the
// sessions come back with a state that fits their history.
func TestBackupRestore(t *testing.T) {
	h := New(t)
	configure(t, h, "queue_limit = 77\n")
	h.Want("a", "cd /usr; x=kept; f() { echo f$x; }", "")
	h.Want("closed", "echo of old", "of old\n")
	h.OK("close", "closed")
	r := h.Start("exec", "-s", "b", "echo begin; sleep 60")
	r.Line("begin")
	// One that changes its state all the while.
	h.Want("busy", "n=0", "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.OK("exec", "-s", "busy", fmt.Sprintf("n=%d; echo out$n", i))
			}
		}
	})
	Until(t, 10*time.Second, "it is busy", func() bool { return len(h.History("busy")) > 3 })
	dir := filepath.Dir(h.Path)
	var files []string
	for i := range 5 {
		f := filepath.Join(dir, fmt.Sprintf("b%d.tar.gz", i))
		var s struct{ Open, Closed int }
		h.JSON(&s, "backup", "--json", f)
		if s.Open != 3 || s.Closed != 1 {
			t.Errorf("%+v", s)
		}
		files = append(files, f)
	}
	close(stop)
	wg.Wait()
	atLimit(t, h, []string{"exists already", "--force"}, "backup", files[0])
	atLimit(t, h, []string{"a daemon runs", "conch down --all"}, "restore", files[0])

	for _, f := range files {
		to := New(t)
		out := to.OK("restore", f)
		if !strings.HasPrefix(out, "restored 3 open sessions, 1 closed, of ") {
			t.Errorf("%q", out)
		}
		res := to.Exec("a", "pwd; f")
		if res.Stdout != "/usr\nfkept\n" || !res.Shell.Restarted {
			t.Errorf("%q %+v", res.Stdout, res.Shell)
		}
		// The numbers go up by one, and the state is that of the last that is
		// recorded as done.
		last := 0
		for _, e := range to.History("busy") {
			if e.Status == conch.StatusDone {
				fmt.Sscanf(e.Command, "n=%d;", &last)
			}
		}
		if res := to.Exec("busy", "echo $n"); res.Stdout != fmt.Sprintf("%d\n", last) && !strings.Contains(strings.Join(res.Shell.Lost, " "), "variables") {
			t.Errorf("n is %q, the history ends with %d, and the result says %+v", res.Stdout, last, res.Shell)
		}
		b := to.History("b")
		if len(b) != 1 || b[0].Status != conch.StatusLost {
			t.Errorf("what was running: %+v", b)
		}
		if got := to.OK("output", string(b[0].CommandID)); got != "begin\n" {
			t.Errorf("its output: %q", got)
		}
		if got := to.OK("log", "export", "-s", "closed"); got != "\x01\x01\x01of old\n" {
			t.Errorf("%q", got)
		}
		if o := to.Conch("doctor", "--deep"); o.Status != 0 || !strings.Contains(o.Stdout, "queue_limit = 77") {
			t.Errorf("doctor: %v", o)
		}
		atLimit(t, to, []string{"daemon runs"}, "restore", f, "--force")
		// Ending the restored ones ends nothing of the others.
		to.OK("down", "--all")
		atLimit(t, to, []string{"not empty", "--force"}, "restore", f)
		to.OK("restore", f, "--force")
		to.Want("a", "f", "fkept\n")
		if aside, _ := filepath.Glob(to.Path + ".before-*"); len(aside) != 1 {
			t.Errorf("aside: %v", aside)
		}
	}
	if !Alive(h.Session("b").ShellPID) || h.Session("b").Running == "" {
		t.Error("the original's command was ended with the copy's")
	}
	h.OK("interrupt", "-s", "b")
	r.End()

	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	os.WriteFile(files[0], b, 0o600)
	to := New(t)
	atLimit(t, to, []string{"cannot be restored", "nothing was changed"}, "restore", files[0])
	if _, err := os.Stat(to.Path); err == nil {
		t.Error("a damaged backup left a home")
	}
}
