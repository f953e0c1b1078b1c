package conchtest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// refused checks that conch said no as it should: status 125, nothing on
// stdout, one line on stderr with what is wrong and a hint, and soon.
func refused(t testing.TB, what string, o Out, want ...string) {
	t.Helper()
	line, rest, _ := strings.Cut(o.Stderr, "\n")
	ok := o.Status == 125 && o.Stdout == "" && rest == "" && strings.HasPrefix(line, "conch: ") && strings.Contains(line, " (") && strings.HasSuffix(line, ")") && o.Took < 20*time.Second
	for _, w := range want {
		ok = ok && strings.Contains(line, w)
	}
	if !ok {
		t.Errorf("%s: %v; want status 125 and one line with a hint and %q", what, o, want)
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "KEEP=kept", "")
	for _, label := range []string{"a b", "../x", "a/b/c", "", "é", "123456789012345678901234567890123", "a\nb", "x;y", ".", "a\x01"} {
		if label != "" { // empty is no -s
			refused(t, fmt.Sprintf("label %q", label), h.Conch("exec", "-s", label, "true"))
		}
		refused(t, fmt.Sprintf("new %q", label), h.Conch("new", "--", label))
		refused(t, fmt.Sprintf("CONCH_SESSION=%q", label+"!"), h.With("CONCH_SESSION="+label+"!").Conch("exec", "true"))
	}
	refused(t, "--no-create", h.Conch("exec", "--no-create", "-s", "nobody", "true"), "nobody")
	for _, verb := range [][]string{{"history", "-s", "nobody"}, {"interrupt", "-s", "nobody"}, {"reset", "nobody"}, {"close", "nobody"}, {"log", "export", "-s", "nobody"}, {"new", "child", "--parent", "nobody"}} {
		refused(t, strings.Join(verb, " "), h.Conch(verb...), "nobody")
	}
	refused(t, "new on an open label", h.Conch("new", "main"), "main")
	for _, id := range []string{"", "x", "aaaaaaaa-1", "../../x-1", h.Session("main").ID + "-999999", string(h.Last("main").CommandID) + "0"} {
		refused(t, "output "+id, h.Conch("output", "--", id))
	}
	for _, kv := range []string{"A", "=x", "1A=x", "A-B=x", "", "A B=x", "é=x", "A\nB=x"} {
		refused(t, "-e "+kv, h.Conch("exec", "-e", kv, "true"))
		refused(t, "new -e "+kv, h.Conch("new", "n", "-e", kv))
	}
	for _, args := range [][]string{{"exec"}, {"exec", "-t", "x", "true"}, {"exec", "-t", "-1", "true"}, {"exec", "--json", "--jsonl", "true"}, {"exec", "--nosuch", "true"}, {"exec", "-f", "/nonexistent"},
		{"exec", "-f", "x", "true"}, {"exec", "--max-output", "0", "true"}, {"exec", "--max-output", "-5", "true"}, {"exec", "--json", "--max-output", "99999999999", "true"}, {"nosuchverb"}, {"exec", "--cwd", "", "true"}, {"output"}, {"log", "import", "/nonexistent"}} {
		refused(t, strings.Join(args, " "), h.Conch(args...))
	}
	// A NUL cannot be an argument; a file may hold one.
	file := filepath.Join(h.Work, "nul")
	marker := filepath.Join(h.Work, "ran")
	if err := os.WriteFile(file, []byte("touch "+marker+"\x00; touch "+marker), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "NUL in a command", h.Conch("exec", "-f", file), "NUL")
	refused(t, "NUL by stdin", h.Feed(strings.NewReader("echo \x00"), "exec", "-f", "-"), "NUL")
	// Over the limit of a command.
	if err := os.WriteFile(file, []byte("touch "+marker+" #"+strings.Repeat("x", 17<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "17 MB command", h.Conch("exec", "-f", file))
	if err := os.WriteFile(file, []byte("touch "+marker+" #"+strings.Repeat("x", 70<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "70 MB command", h.Conch("exec", "-f", file))
	if _, err := os.Stat(marker); err == nil {
		t.Error("a refused command ran")
	}
	// A bad directory is the command's failure: exit code 1 and a message.
	for _, dir := range []string{"/nonexistent", "/etc/passwd", "relative/nonexistent"} {
		o := h.Conch("exec", "--cwd", dir, "echo no")
		if o.Status != 1 || o.Stdout != "" || !strings.HasPrefix(o.Stderr, "conch: ") || !strings.Contains(o.Stderr, filepath.Base(dir)) {
			t.Errorf("--cwd %s: %v", dir, o)
		}
	}
	refused(t, "new --cwd", h.Conch("new", "n", "--cwd", "/nonexistent"), "/nonexistent")
	h.Want("main", "echo $KEEP", "kept\n")
	var list []conch.SessionInfo
	if h.JSON(&list, "sessions", "--json"); len(list) != 1 {
		t.Errorf("refusals left sessions: %+v", list)
	}
}

func TestBadHomes(t *testing.T) {
	t.Parallel()
	h := New(t)
	at := func(path string) *Home { return h.With("CONCH_HOME=" + path) }
	file := filepath.Join(h.Work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a file", at(file).Conch("exec", "true"), file)
	refused(t, "below a file", at(file+"/below").Conch("exec", "true"), file)
	refused(t, "no such file system", at("/proc/conch").Conch("exec", "true"))
	refused(t, "read-only", at("/sys/conch").Conch("exec", "true"))
	open := filepath.Join(h.Work, "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	refused(t, "writable by all", at(open).Conch("exec", "true"), "chmod 700")
	if os.Getuid() == 0 {
		theirs := filepath.Join(h.Work, "theirs")
		if err := os.Mkdir(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(theirs, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		refused(t, "another user's", at(theirs).Conch("exec", "true"))
	} else {
		mine := filepath.Join(h.Work, "mine")
		if err := os.Mkdir(mine, 0o500); err != nil {
			t.Fatal(err)
		}
		refused(t, "not writable", at(mine).Conch("exec", "true"))
	}
	for _, verb := range []string{"sessions", "up", "history", "prune"} {
		refused(t, verb+" at a file", at(file).Conch(verb))
	}
	if o := at(file).Conch("doctor"); o.Status != 1 {
		t.Errorf("doctor at a file: %v", o)
	}
}

func TestStaleSocket(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.Want("main", "KEEP=kept", "")
	daemon := h.Daemon()
	Kill(t, daemon) // leaves its socket and its record
	Until(t, Limit, "the daemon is gone", func() bool { return !Alive(daemon) })
	if _, err := os.Stat(filepath.Join(h.Path, "run", "d.sock")); err != nil {
		t.Errorf("a killed daemon leaves its socket: %v", err)
	}
	h.Want("main", "echo $KEEP", "kept\n")
	// A record of nonsense, of a socket that is not there, of one that is a file.
	for _, record := range []string{"", "nonsense", "{}", `{"pid":1,"socket":"/nonexistent/x"}`, `{"pid":1,"socket":"` + h.Work + `"}`, `{"pid":1,"socket":"/etc/passwd"}`} {
		h.OK("down")
		if err := os.WriteFile(filepath.Join(h.Path, "daemon.json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Want("main", "echo $KEEP", "kept\n")
	}
}

// Ten clients on a fresh home: one daemon, every command run once.
func TestRacingClients(t *testing.T) {
	t.Parallel()
	h := New(t)
	race := func(n int, label func(int) string) {
		var wg sync.WaitGroup
		outs := make([]Out, n)
		for i := range n {
			wg.Go(func() { outs[i] = h.Conch("exec", "-s", label(i), fmt.Sprintf("echo %d; echo %d >> ran", i, i)) })
		}
		wg.Wait()
		for i, o := range outs {
			if o.Status != 0 || o.Stdout != fmt.Sprint(i)+"\n" {
				t.Errorf("client %d: %v", i, o)
			}
		}
		b, _ := os.ReadFile(filepath.Join(h.Work, "ran"))
		if got := len(strings.Fields(string(b))); got != n {
			t.Errorf("%d commands ran %d times", n, got)
		}
		os.Remove(filepath.Join(h.Work, "ran"))
		daemons := 0
		for _, p := range h.Processes() {
			if strings.HasPrefix(p.Args, "conch daemon") {
				daemons++
			}
		}
		if daemons != 1 {
			t.Errorf("%d daemons: %+v", daemons, h.Processes())
		}
	}
	race(10, func(int) string { return "same" })
	h.OK("down")
	race(10, func(i int) string { return fmt.Sprint("own", i) })
	h.OK("down")
	// Started by hand at the same time.
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if o := h.Conch("up"); o.Status != 0 {
				t.Errorf("up: %v", o)
			}
		})
	}
	wg.Wait()
	race(4, func(int) string { return "same" })
	refused(t, "a second daemon in the foreground", h.Conch("up", "--foreground"), "running")
}

// A daemon and a keeper of another version: named, with the way out; nothing
// lost on that way.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	h := New(t)
	other := *h
	other.Exe = Variant(t, "other", "conch.go", fmt.Sprintf("ProtocolVersion = %d\n", conch.ProtocolVersion), fmt.Sprintf("ProtocolVersion = %d\n", conch.ProtocolVersion+1))
	other.Want("main", "KEEP=kept", "")
	shell := other.Session("main").ShellPID
	refused(t, "exec against another's daemon", h.Conch("exec", "true"), "protocol", "conch down")
	refused(t, "sessions", h.Conch("sessions"), "protocol")
	if o := h.Conch("doctor"); o.Status != 1 || !strings.Contains(o.Stdout, "other") {
		t.Errorf("doctor: %v", o)
	}
	if o := h.Conch("status", "--json"); o.Status != 0 && !strings.HasPrefix(o.Stderr, "conch: ") {
		t.Errorf("status: %v", o)
	}
	// The hint works, and the session lives on.
	h.OK("down")
	refused(t, "exec against another's keeper", h.Conch("exec", "true"), "protocol", "conch close main")
	if !Alive(shell) {
		t.Error("the other version's session was ended")
	}
	h.Want("new", "echo new", "new\n") // other sessions are none the worse
	h.OK("down")
	if got := other.Session("main").ShellPID; got != shell {
		t.Errorf("shell %d, was %d", got, shell)
	}
	other.Want("main", "echo $KEEP", "kept\n")
	other.OK("down")
	h.OK("close", "main")
	if Alive(shell) {
		t.Error("close left the other version's shell")
	}
	h.Want("main", "echo ${KEEP-clean}", "clean\n")
}

// Something else that listens where the daemon should.
func TestNotADaemon(t *testing.T) {
	t.Parallel()
	h := New(t)
	if err := os.MkdirAll(filepath.Join(h.Path, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Work, "x.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			c.Write([]byte(<-answer))
			c.Close()
		}
	})
	record, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "socket": path})
	if err := os.WriteFile(filepath.Join(h.Path, "daemon.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "220 smtp ready\r\n",
		"HTTP/1.1 200 OK\r\nConch-Protocol: 1\r\nContent-Length: 5\r\n\r\n{\"a\":"} {
		answer <- a
		refused(t, fmt.Sprintf("%.20q", a), h.Conch("exec", "true"))
	}
	l.Close()
	close(answer)
	wg.Wait()
	os.Remove(filepath.Join(h.Path, "daemon.json"))
}

func TestCallFromInside(t *testing.T) {
	t.Parallel()
	h := New(t)
	for _, text := range []string{h.Exe + " exec true", "bash -c '" + h.Exe + " exec true'", "setsid " + h.Exe + " exec true", h.Exe + " exec -s main true | cat; (exit ${PIPESTATUS[0]})", "$(" + h.Exe + " exec true)"} {
		start := time.Now()
		r := h.Exec("main", text)
		if Code(r.ExitCode) != "125" || !strings.HasPrefix(r.Stderr, "conch: ") || !strings.Contains(r.Stderr, "(use another session") || time.Since(start) > 10*time.Second {
			t.Errorf("%q: %q %q %s after %v", text, r.Stdout, r.Stderr, Code(r.ExitCode), time.Since(start))
		}
	}
	h.Want("main", h.Exe+" exec -s other 'echo $CONCH_AGENT/$CONCH_SESSION'; echo $CONCH_AGENT/$CONCH_SESSION", "me/other\nme/main\n")
	// What an earlier command left running may ask: it does not wait for itself.
	path, open := gate(h, "gate")
	r := h.Exec("main", "(read x < "+path+"; "+h.Exe+" exec 'echo from behind') & true")
	if r.Background != 1 && r.Background != 2 {
		t.Errorf("background %d", r.Background)
	}
	open()
	Until(t, Limit, "it came", func() bool {
		l := h.Last("main")
		return l.Command == "echo from behind" && l.Status == conch.StatusDone
	})
}

func TestQueue(t *testing.T) {
	t.Parallel()
	h := New(t).With("CONCH_QUEUE_LIMIT=2")
	path, open := gate(h, "gate")
	running := h.Start("exec", "echo begun; read x < "+path)
	running.Line("begun")
	start := time.Now()
	refused(t, "queue timeout", h.Conch("exec", "--queue-timeout", "300ms", "touch never"), "main")
	if took := time.Since(start); took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("queue timeout took %v", took)
	}
	var queued []*Running
	for i := range 2 {
		queued = append(queued, h.Start("exec", fmt.Sprint("echo ", i, " >> order")))
		Until(t, Limit, "it waits", func() bool { return h.Session("main").Queue == i+1 })
	}
	refused(t, "queue limit", h.Conch("exec", "touch never"), "2", "CONCH_QUEUE_LIMIT")
	if s := h.Session("main"); !s.Busy || s.Queue != 2 || !strings.Contains(s.Command, "begun") || s.Running == "" {
		t.Errorf("%+v", s)
	}
	list := h.History("main")
	var waiting []string
	for _, e := range list {
		if e.Status == conch.StatusQueued {
			waiting = append(waiting, fmt.Sprint(e.Position, e.Command))
		}
	}
	if fmt.Sprint(waiting) != "[1echo 0 >> order 2echo 1 >> order]" {
		t.Errorf("the queue shows as %q", waiting)
	}
	// A time limit counts from the start, not from the queue.
	open()
	if o := running.End(); o.Status != 0 {
		t.Error(o)
	}
	for _, r := range queued {
		if o := r.End(); o.Status != 0 {
			t.Error(o)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(h.Work, "order")); string(b) != "0\n1\n" {
		t.Errorf("order %q", b)
	}
	if _, err := os.Stat(filepath.Join(h.Work, "never")); err == nil {
		t.Error("a refused command ran")
	}
}
