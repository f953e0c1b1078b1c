package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/sock"
)

// once hands one connection over and runs one command on it. An error of the handover
// says that nothing was handed over; after that there must be an answer.
func (r *rig) once(text string) (*conch.Result, error) {
	r.t.Helper()
	ours, theirs, err := sock.Pair()
	if err != nil {
		r.t.Fatal(err)
	}
	defer ours.Close()
	err = r.pass.Pass(theirs, nil)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	body, _ := json.Marshal(conch.ExecRequest{Command: text})
	ours.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(ours, "POST /v1/sessions/me/main/exec HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
	if err != nil {
		r.t.Fatalf("handed over and not answered: %v", err)
	}
	defer resp.Body.Close()
	var res conch.Result
	if err := json.NewDecoder(resp.Body).Decode(&res); err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return &res, nil
}

// again connects to the keeper if it stayed, because somebody had come in time, or to
// the next one once it has let go.
func (r *rig) again(env ...string) {
	r.t.Helper()
	r.ctl.Close()
	path, err := sock.Path(r.home, testID+".sock")
	if err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.Open(filepath.Join(r.dir, "lock"))
		if err != nil {
			r.t.Fatal(err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		f.Close()
		if err == nil {
			r.cmd.Wait()
			r.start(env...)
			return
		}
		if len(env) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			ctl, err := sock.Dial(ctx, path)
			cancel()
			if err == nil {
				r.ctl, r.pass = ctl, sock.NewPasser(ctl)
				return
			}
		}
		if time.Now().After(end) {
			r.t.Fatal("the keeper neither stays nor goes")
		}
	}
}

// Connections that come while an idle keeper lets go are answered, or refused at the
// handover so that the daemon can start the next one; none is lost, and neither is
// the state.
func TestLettingGo(t *testing.T) {
	env := []string{"CONCH_IDLE_RELEASE=10000000", "GORACE=atexit_sleep_ms=0"} // 10 ms, in ns
	r := newRig(t, env...)
	starts := 1
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for i := 1; i <= rounds; i++ {
		for {
			res, err := r.once("n=$((n+1)); echo $n")
			if err == nil {
				if res.Stdout != fmt.Sprintf("%d\n", i) {
					t.Fatalf("round %d: %q %+v", i, res.Stdout, res.Shell)
				}
				if res.Shell.Restarted && !strings.Contains(fmt.Sprint(res.Shell.Restored), "variables") {
					t.Errorf("round %d: %+v", i, res.Shell)
				}
				if res.Shell.Restarted {
					starts++
				}
				break
			}
			r.again(env...)
		}
		time.Sleep(5*time.Millisecond + time.Duration(i%20)*500*time.Microsecond) // another moment each time
	}
	t.Logf("%d keepers for %d commands", starts, rounds)
	if starts < 3 {
		t.Error("it hardly ever let go")
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "keeper.log")); err != nil || strings.Contains(string(b), "DATA RACE") {
		t.Errorf("%v %s", err, b)
	}
	r.again() // one that stays, for the rig's own end
}

func TestMeter(t *testing.T) {
	var m meter
	now := time.Unix(1000, 0)
	for i := range 5 {
		if !m.take(now, 5) {
			t.Errorf("%d of 5 refused", i+1)
		}
	}
	if m.take(now, 5) || m.take(now.Add(100*time.Millisecond), 5) {
		t.Error("more than the limit")
	}
	if !m.take(now.Add(350*time.Millisecond), 5) {
		t.Error("refused after its time")
	}
	if m.take(now.Add(351*time.Millisecond), 5) {
		t.Error("more than the limit")
	}
	if !m.take(now.Add(time.Hour), 5) || !new(meter).take(now, 0) {
		t.Error("refused without reason")
	}
}

// As many as the limit hold a slot at once; one that is given back can be had again.
func TestSlots(t *testing.T) {
	home := t.TempDir()
	s, err := openSlots(home, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !s.take() || !s.take() {
		t.Error("refused its own")
	}
	// Another process; this one's locks are one owner's.
	r := newRig(t)
	probe := fmt.Sprintf(`perl -MFcntl -e 'open(F,"+<","%s/slots") or die; my $f=pack("ssx4qqix4",F_WRLCK,0,0,1,0); print fcntl(F,F_SETLK,$f) ? "free" : "held"'`, home)
	if res := r.exec("command -v perl >/dev/null && " + probe); code(res) == "0" && res.Stdout != "held" {
		t.Errorf("another process finds it %q %s", res.Stdout, res.Stderr)
	}
	s.give()
	if res := r.exec("command -v perl >/dev/null && " + probe); code(res) == "0" && res.Stdout != "free" {
		t.Errorf("another process finds it %q %s", res.Stdout, res.Stderr)
	}
	s.f.Close()
}
