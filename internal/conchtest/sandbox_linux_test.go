package conchtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The rows that break other shells, in sandboxed sessions.
func TestHostileInputsSandboxed(t *testing.T) { hostileInputs(t, "--sandbox") }

// nobody is an ordinary user.
const nobody = 65534

// asEach runs a test as who tests and, where that is root, as an ordinary user.
func asEach(t *testing.T, f func(h *Home)) {
	t.Run("self", func(t *testing.T) { f(New(t)) })
	if os.Getuid() == 0 {
		t.Run("nobody", func(t *testing.T) { f(New(t).As(nobody)) })
	}
}

// An outside is what a sandbox must not get at.
type outside struct {
	secret, ssh   string // files
	tcp4, tcp6    net.Listener
	abstract      string
	udp           *net.UDPConn
	victim        *exec.Cmd
	touched       func() string // what of it was reached
	key           string
	daemon, conch string
}

func newOutside(h *Home) *outside {
	t := h.T
	t.Helper()
	root := filepath.Dir(h.Path)
	o := &outside{secret: filepath.Join(root, "secret"), ssh: filepath.Join(root, "home", ".ssh", "id"), abstract: "conch-" + filepath.Base(root), key: "conch-" + filepath.Base(root)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Dir(o.ssh), 0o755))
	for _, f := range []string{o.secret, o.ssh} {
		must(os.WriteFile(f, []byte("SECRET"), 0o644))
	}
	reached := make(chan string, 100)
	accept := func(what string, l net.Listener) {
		go func() { // ends with the listener
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached <- what
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close() })
	}
	var err error
	o.tcp4, err = net.Listen("tcp4", "127.0.0.1:0")
	must(err)
	accept("tcp4", o.tcp4)
	if o.tcp6, err = net.Listen("tcp6", "[::1]:0"); err == nil {
		accept("tcp6", o.tcp6)
	}
	u, err := net.Listen("unix", "@"+o.abstract)
	must(err)
	accept("abstract socket", u)
	o.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(err)
	go func() { // ends with the socket
		var b [16]byte
		for {
			if _, _, err := o.udp.ReadFrom(b[:]); err != nil {
				return
			}
			reached <- "udp"
		}
	}()
	t.Cleanup(func() { o.udp.Close() })
	o.victim = exec.Command("sleep", "600")
	o.victim.Env = []string{"SECRET=SECRET"}
	if h.UID != 0 {
		o.victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.UID), Gid: uint32(h.UID)}}
	}
	must(o.victim.Start())
	t.Cleanup(func() {
		o.victim.Process.Kill()
		o.victim.Wait()
	})
	o.touched = func() string {
		select {
		case what := <-reached:
			return what
		default:
		}
		if o.victim.Process.Signal(syscall.Signal(0)) != nil || !Alive(o.victim.Process.Pid) {
			return "the process"
		}
		return ""
	}
	return o
}

func TestSandboxHolds(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		o := newOutside(h)
		// A key in the login's keyring; keyrings are a thread's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 {
			t.Logf("no keyrings: %v", errno)
		} else if _, err := unix.AddKey("user", o.key, []byte("SECRET"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
			t.Fatal(err)
		}
		h.OK("exec", "true") // makes the agent's key, and the daemon
		h.OK("new", "s", "--sandbox")
		key, _ := filepath.Glob(filepath.Join(h.Path, "keys", "*.key"))
		if len(key) != 1 {
			t.Fatalf("keys: %v", key)
		}
		python := func(text string) string { return "python3 -c '" + text + "'" }
		libc := `import ctypes,os; L=ctypes.CDLL(None,use_errno=True); `
		call := func(expr string) string {
			return python(libc + `r=` + expr + `; print("r",r if r<=0 else "SECRET",os.strerror(ctypes.get_errno()))`)
		}
		victim := o.victim.Process.Pid
		_, port4, _ := net.SplitHostPort(o.tcp4.Addr().String())
		_, portU, _ := net.SplitHostPort(o.udp.LocalAddr().String())
		port6 := port4
		if o.tcp6 != nil {
			_, port6, _ = net.SplitHostPort(o.tcp6.Addr().String())
		}
		attempts := map[string]string{
			"system":        `for f in / /usr /etc /opt /bin /usr/bin /var /run /proc /dev /proc/sys/kernel; do touch $f/x && echo SECRET; done; echo x >>/etc/passwd && echo SECRET; rm -f /usr/bin/env && echo SECRET; chmod 777 /etc && echo SECRET; ln /etc/passwd /tmp/p && echo SECRET`,
			"sysctl":        `echo SECRET >/proc/sys/kernel/core_pattern && echo SECRET; echo b >/proc/sysrq-trigger && echo SECRET; echo 5 >/proc/sys/user/max_user_namespaces && echo SECRET`,
			"files":         "cat " + o.secret + " " + o.ssh + " ~/.ssh/id; ls -la " + filepath.Dir(h.Path) + "; ls -A ~ | grep . && echo SECRET; ls /home /root /srv /mnt /sys /boot | grep . && echo SECRET",
			"shadow":        "grep : /etc/shadow /etc/gshadow && echo SECRET",
			"conch's home":  "ls -A " + h.Path + " | grep . && echo SECRET; cat " + key[0] + " && echo SECRET; ls " + h.Path + "/conch.db " + h.Path + "/run/d.sock && echo SECRET",
			"other shells":  "ls /dev/shm/conch-*/ | grep -v ^" + h.Session("s").ID + " && echo SECRET; touch /dev/shm/conch-*/x && echo SECRET; mv /dev/shm/conch-* /dev/shm/y && echo SECRET; touch /dev/shm/conch-*/*/x && echo SECRET; rm -f /dev/shm/conch-*/*/s && echo SECRET; ln -sf /etc/passwd /dev/shm/conch-*/*/d && echo SECRET",
			"tcp":           "(echo >/dev/tcp/127.0.0.1/" + port4 + ") && echo SECRET; (echo >/dev/tcp/::1/" + port6 + ") && echo SECRET; (echo >/dev/tcp/1.1.1.1/53) && echo SECRET",
			"udp":           "echo x >/dev/udp/127.0.0.1/" + portU + "; (echo x >/dev/udp/1.1.1.1/53) && echo SECRET",
			"devices":       "ip link 2>/dev/null | grep -v LOOPBACK | grep UP && echo SECRET; ls /sys/class/net && echo SECRET",
			"abstract":      python(`import socket; s=socket.socket(socket.AF_UNIX); s.connect("\0` + o.abstract + `"); print("SECRET")`),
			"socket":        python(`import socket; s=socket.socket(socket.AF_UNIX); s.connect("` + h.Path + `/run/d.sock"); print("SECRET")`),
			"vsock":         python(`import socket; socket.socket(40,socket.SOCK_STREAM); print("SECRET")`),
			"rings":         call(`L.syscall(425,1,ctypes.create_string_buffer(120))`),
			"packets":       python(`import socket; socket.socket(socket.AF_PACKET,socket.SOCK_RAW); print("SECRET")`),
			"kill":          fmt.Sprintf("kill -9 %d && echo SECRET; kill -9 -1", victim),
			"processes":     fmt.Sprintf("ls -d /proc/%d && echo SECRET; cat /proc/%d/environ; ps ax -o args | grep -w 'sleep 600' | grep -v grep && echo SECRET", victim, victim),
			"ptrace":        call(fmt.Sprintf("L.ptrace(16,%d,0,0)", victim)),
			"ptrace 1":      call("L.ptrace(16,1,0,0)"),
			"first process": "ls /proc/1/root/ /proc/1/cwd/ /proc/1/fd/ && echo SECRET; cat /proc/1/environ /proc/1/exe /proc/1/mem && echo SECRET; echo x >/proc/1/mem && echo SECRET",
			"mount":         "mount -t tmpfs x /tmp && echo SECRET; mount --bind /tmp /usr && echo SECRET; mount -o remount,rw /usr && echo SECRET; umount /etc/shadow && echo SECRET; umount -l /tmp && echo SECRET; umount -l /dev/shm && echo SECRET; umount -l / && echo SECRET",
			"namespaces":    "unshare -Ur true && echo SECRET; unshare -m true && echo SECRET; unshare -n true && echo SECRET; nsenter -t 1 -m true && echo SECRET; chroot / true && echo SECRET",
			"open_tree":     call(`L.syscall(428,-100,b"/",1)`),
			"mknod":         "mknod /tmp/b b 254 0 && echo SECRET; mknod /tmp/c c 1 1 && echo SECRET; mknod b b 254 0 && echo SECRET",
			"rights":        "grep -E '^Cap(Prm|Eff|Bnd|Amb|Inh)' /proc/self/status | grep -v 0000000000000000 && echo SECRET; grep -q '^NoNewPrivs:.1' /proc/self/status || echo SECRET; cp /bin/cat /tmp/cat; chmod 4755 /tmp/cat; chown 1 /tmp/cat && echo SECRET",
			"keys":          call(`L.syscall(250,10,-3,b"user",b"` + o.key + `",0)`),
			"keys of user":  call(`L.syscall(250,10,-4,b"user",b"` + o.key + `",0)`),
			"queues":        `ipcs -a | grep 0x && echo SECRET`,
			"terminals":     "ls /dev/pts | grep -v ptmx && echo SECRET; " + python(`import os,fcntl,termios; f=os.open("/dev/tty",os.O_RDWR); fcntl.ioctl(f,termios.TIOCSTI,b"x"); print("SECRET")`),
			"bpf":           call("L.syscall(321,0,0,0)"),
			"reboot":        call("L.syscall(169,0xfee1dead,672274793,0x1234567,0)"),
			"hostname":      "hostname conch-was-here && echo SECRET",
			"time":          "date -s '2001-01-01' && echo SECRET",
			"handle":        python(`import os,ctypes; L=ctypes.CDLL(None,use_errno=True); b=ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0",16); fd=os.open("/usr",0); r=L.open_by_handle_at(fd,b,0); print("SECRET" if r>=0 else "no")`),
		}
		for name, text := range attempts {
			r := h.Exec("s", text, "-t", "20s")
			if strings.Contains(r.Stdout+r.Stderr, "SECRET") || r.ExitCode == nil {
				t.Errorf("%s: %q\n%s%s", name, text, r.Stdout, r.Stderr)
			}
			if what := o.touched(); what != "" {
				t.Errorf("%s reached %s", name, what)
			}
		}
		// What it is for.
		h.Want("s", "echo made >f; cat f; mkdir -p d/e; mv f d/e; cat d/e/f; pwd", "made\nmade\n"+h.Work+"\n")
		h.Want("s", "echo x >/tmp/t; echo y >~/h; echo z >/dev/shm/z; cat /tmp/t ~/h /dev/shm/z; test -e /var/tmp/t; echo $?", "x\ny\nz\n0\n")
		if b, err := os.ReadFile(filepath.Join(h.Work, "d/e/f")); string(b) != "made\n" {
			t.Errorf("outside: %q, %v", b, err)
		}
		if _, err := os.Stat("/tmp/t"); err == nil {
			t.Error("its /tmp is the machine's")
		}
		// conch from inside.
		r := h.Exec("s", h.Exe+" exec -s main 'echo SECRET'")
		if Code(r.ExitCode) != "125" || !strings.Contains(r.Stderr, "sandboxed session") || r.Stdout != "" {
			t.Errorf("conch inside: %s %q %q", Code(r.ExitCode), r.Stdout, r.Stderr)
		}
		if got := h.Exec("main", "echo outside").Stdout; got != "outside\n" {
			t.Errorf("the other session: %q", got)
		}
		if s := h.Session("s"); !s.Sandbox || h.Session("main").Sandbox {
			t.Errorf("sessions --json: %+v", s)
		}
	})
}

// A process that has the socket's path all the same is refused by the daemon itself.
func TestSandboxedPeerIsRefused(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	cmd := exec.Command("unshare", "--user", "--map-root-user", h.Exe, "exec", "echo SECRET")
	cmd.Dir, cmd.Env = h.Work, h.Env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "serves nobody in a sandbox") {
		t.Errorf("%v: %s", err, out)
	}
	if n := len(h.History("main")); n != 1 {
		t.Errorf("%d commands ran", n)
	}
}

// holder is the first process of the sandbox of a session.
func holder(h *Home, label string) int {
	h.T.Helper()
	for _, p := range h.Processes() {
		if strings.Contains(p.Args, "keeper --sandbox") && strings.HasSuffix(p.Args, "/"+h.Session(label).ID) {
			return p.PID
		}
	}
	h.T.Fatalf("session %s has no sandbox", label)
	return 0
}

// inside is true of every shell that is where it should be.
const inside = `test ! -e /sys -a "$$" -lt 1000 -a -z "$(ls /home 2>/dev/null)" && echo inside`

// Whatever dies, the session goes on, and never outside.
func TestSandboxOutlives(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		h.OK("new", "s", "--sandbox")
		h.Want("s", "V=5; "+inside, "inside\n")
		// From inside it cannot be ended.
		h.Want("s", "for s in TERM INT SEGV ABRT KILL STOP USR1 RTMIN; do kill -$s 1; done; sleep 0.1; echo alive", "alive\n")
		h.Want("s", "echo $V; "+inside, "5\ninside\n")
		// Its first process is killed while a command and a process run.
		p := strings.TrimSpace(h.OK("run", "-s", "s", "sleep 600"))
		r := h.Start("exec", "-s", "s", "echo begun; sleep 600")
		r.Line("begun")
		Kill(t, holder(h, "s"))
		if out := r.End(); out.Status != 137 {
			t.Errorf("after its sandbox's death: %v", out)
		}
		if o := h.Conch("wait", p, "--exit", "-t", "10s"); o.Status != 137 {
			t.Errorf("the process: %v", o)
		}
		h.Want("s", "echo $V; "+inside, "5\ninside\n")
		// The shell.
		h.Exec("s", "kill -9 $$")
		h.Want("s", "echo $V; "+inside, "5\ninside\n")
		// The daemon.
		Kill(t, h.Daemon())
		h.Want("s", "echo $V; "+inside, "5\ninside\n")
		// The keeper, with what is in the box; nothing of it stays.
		h.Want("s", "(setsid sleep 601 >/dev/null 2>&1 &)", "")
		first := holder(h, "s")
		Kill(t, h.Session("s").KeeperPID)
		Until(t, 10*time.Second, "the sandbox is gone", func() bool { return !Alive(first) })
		h.Want("s", "echo $V; "+inside, "5\ninside\n")
		h.OK("reset", "s")
		h.Want("s", "echo -$V; "+inside, "-\ninside\n")
		p = strings.TrimSpace(h.OK("run", "-s", "s", inside))
		h.OK("wait", p, "--exit", "-t", "10s")
		if got := h.OK("logs", p); got != "inside\n" {
			t.Errorf("run: %q", got)
		}
		// Who cleans /dev/shm takes the keeper's files away.
		for _, dir := range glob(t, "/dev/shm/conch-*/"+h.Session("s").ID) {
			os.RemoveAll(dir)
		}
		h.Exec("s", "true")
		h.Want("s", inside, "inside\n")
	})
}

func glob(t testing.TB, pattern string) []string {
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %v %v", pattern, list, err)
	}
	return list
}

// Ends are the same as outside.
func TestSandboxEnds(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		h.OK("new", "s", "--sandbox")
		storm := `for i in $(seq 60); do (setsid sleep 602 >/dev/null 2>&1 &); done; python3 -c '
import os
while True:
    if os.fork(): os._exit(0)
    os.setsid()
' & sleep 602`
		r := h.Exec("s", "V=1; "+storm+"; touch after", "-t", "1s")
		if !r.TimedOut || r.Ended == nil || !r.Ended.Verified || r.Ended.Processes < 60 {
			t.Errorf("a timeout: %+v, ended %+v", r.TimedOut, r.Ended)
		}
		if _, err := os.Stat(filepath.Join(h.Work, "after")); err == nil {
			t.Error("the rest of a command that was ended ran")
		}
		r = h.Exec("s", "ps ax -o args | grep '[s]leep 602'; jobs; echo left")
		if r.Stdout != "left\n" {
			t.Errorf("left: %q", r.Stdout)
		}
		// What an earlier command left stays, and is counted.
		r = h.Exec("s", "setsid sleep 603 >/dev/null 2>&1 & (sleep 604 >/dev/null 2>&1 &)")
		if r.Background != 2 {
			t.Errorf("background is %d", r.Background)
		}
		h.Exec("s", "sleep 605", "-t", "200ms")
		if got := h.Exec("s", "ps ax -o args | grep -c '[s]leep 60[34]'").Stdout; got != "2\n" {
			t.Errorf("of the earlier two %s are left", strings.TrimSpace(got))
		}
		run := h.Start("exec", "-s", "s", "echo begun; sleep 606")
		run.Line("begun")
		h.OK("interrupt", "-s", "s")
		if o := run.End(); o.Status != 130 {
			t.Errorf("interrupt: %v", o)
		}
		p := strings.TrimSpace(h.OK("run", "-s", "s", "trap '' TERM; (setsid sleep 607 &) ; sleep 607"))
		Until(t, 10*time.Second, "it runs", func() bool { return strings.Contains(h.OK("exec", "-s", "s", "ps ax -o args"), "sleep 607") })
		h.OK("kill", p)
		r = h.Exec("s", "ps ax -o args | grep '[s]leep 607'")
		if r.Stdout != "" {
			t.Errorf("kill left %q", r.Stdout)
		}
		if out := h.OK("close", "s"); !strings.Contains(out, "closed s") {
			t.Errorf("close: %q", out)
		}
		for _, p := range h.Processes() {
			if strings.Contains(p.Args, "sleep 60") || strings.Contains(p.Args, "keeper --sandbox") {
				t.Errorf("left by close: %+v", p)
			}
		}
	})
}

// A server inside is found by its port, from inside alone.
func TestSandboxNetwork(t *testing.T) {
	h := New(t)
	h.OK("new", "s", "--sandbox")
	p := strings.TrimSpace(h.OK("run", "-s", "s", "exec python3 -m http.server --bind 127.0.0.1 18999"))
	h.OK("wait", p, "--port", "18999", "-t", "20s")
	h.Want("s", `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:18999/").status)'`, "200\n")
	if c, err := net.Dial("tcp", "127.0.0.1:18999"); err == nil {
		c.Close()
		t.Error("its port is the machine's")
	}
	refused(t, "wait --http", h.Conch("wait", p, "--http", "http://127.0.0.1:18999/", "-t", "5s"), "sandboxed")
}

// Terminals are of the sandbox's own.
func TestSandboxTerminal(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		h.OK("new", "s", "--sandbox")
		p := strings.TrimSpace(h.OK("run", "-s", "s", "--tty", "tty; stty size; "+inside+"; read x; echo got $x"))
		h.OK("screen", p, "--contains", "inside", "-t", "10s")
		h.OK("keys", p, "hello<Enter>")
		h.OK("wait", p, "--exit", "-t", "10s")
		if got := h.OK("logs", p); !strings.Contains(got, "/dev/pts/0\r\n24 80\r\ninside\r\n") || !strings.Contains(got, "got hello") {
			t.Errorf("on a terminal: %q", got)
		}
	})
}

// People share the sandboxed shell.
func TestSandboxAttach(t *testing.T) {
	h := New(t)
	h.OK("new", "s", "--sandbox")
	h.Want("s", "V=5", "")
	o := newOuter(h, 80, 24, "attach", "s")
	o.line("echo v$V; W=7; " + inside)
	o.shows("v5\ninside")
	o.prompt()
	o.keys("C-\\", "d")
	o.ended()
	h.Want("s", "echo $W", "7\n")
	// Nobody is there: reading the terminal is an error at once.
	if r := h.Exec("s", "cat /dev/tty; echo rc=$?", "-t", "10s"); r.Stdout != "rc=1\n" {
		t.Errorf("/dev/tty: %q %q", r.Stdout, r.Stderr)
	}
	// A line that is a link to what only we can read is not followed.
	secret := filepath.Join(filepath.Dir(h.Path), "secret")
	if err := os.WriteFile(secret, []byte("echo SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Exec("s", "(while :; do ln -sf "+secret+" /dev/shm/conch-*/*/w/l; done >/dev/null 2>&1 &)")
	again := o.another("attach", "s")
	again.prompt()
	again.keys("-l", "echo typed")
	again.keys("Enter")
	again.shows("echo typed\n")
	again.prompt() // or one that says that it does not come
	if text := again.text(); strings.Contains(text, "SECRET") {
		t.Errorf("a link was followed:\n%s", text)
	}
	h.OK("reset", "s")
	// The sandbox goes while somebody is there.
	third := o.another("attach", "s")
	third.prompt()
	Kill(t, holder(h, "s"))
	Until(t, Limit, "conch leaves", func() bool { // its last words tmux does not always show
		return strings.TrimSpace(third.tmux("display", "-p", "-t", third.target(), "#{pane_dead}")) == "1"
	})
	h.Want("s", inside, "inside\n")
	fourth := o.another("attach", "s")
	fourth.line("echo ba''ck")
	fourth.shows("back\n")
}

func TestSandboxAllow(t *testing.T) {
	h := New(t)
	root := filepath.Dir(h.Path)
	tool := filepath.Join(root, "home", "tools", "bin", "tool")
	if err := os.MkdirAll(filepath.Dir(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho works\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.OK("new", "s", "--sandbox", "--sandbox-allow", filepath.Join(root, "home", "tools"))
	h.Want("s", tool+"; ls ~", "works\ntools\n")
	if r := h.Exec("s", "touch "+filepath.Dir(tool)+"/x; touch ~/tools/y"); Code(r.ExitCode) == "0" {
		t.Error("it can be changed")
	}
	h.OK("close", "s")
}

// What would protect nothing is refused.
func TestSandboxRefuses(t *testing.T) {
	h := New(t)
	root := filepath.Dir(h.Path)
	h.OK("exec", "true")
	for _, dir := range []string{"/", "/etc", "/usr/lib", "/tmp", "/proc", root, h.Path, filepath.Join(h.Path, "keys"), filepath.Join(root, "home")} {
		refused(t, dir, h.Conch("new", "x", "--sandbox", "--cwd", dir), "cannot be")
	}
	link := filepath.Join(h.Work, "link")
	if err := os.Symlink(h.Path, link); err != nil {
		t.Fatal(err)
	}
	refused(t, "a link", h.Conch("new", "x", "--sandbox", "--cwd", link), "conch's own files")
	refused(t, "allow conch's home", h.Conch("new", "x", "--sandbox", "--sandbox-allow", h.Path), "conch's own files")
	refused(t, "allow above it", h.Conch("new", "x", "--sandbox", "--sandbox-allow", root), "conch's own files")
	refused(t, "allow without", h.Conch("new", "x", "--sandbox-allow", "/opt"), "no sandbox")
	refused(t, "rc", h.Conch("new", "x", "--sandbox", "--rc"), "rc file")
	h.OK("new", "s", "--sandbox")
	refused(t, "a child outside", h.Conch("new", "x", "--parent", "s", "--inherit-env"), "is sandboxed")
	h.OK("new", "child", "--parent", "s", "--inherit-env", "--sandbox")
	h.Want("child", inside, "inside\n")
	if h.Session("x").ID != "" {
		t.Error("a session was made")
	}
}

// A directory that has become a link since is not followed, nor is a home by another name.
func TestSandboxLinks(t *testing.T) {
	h := New(t)
	root := filepath.Dir(h.Path)
	dir, secret := filepath.Join(h.Work, "p"), filepath.Join(root, "s")
	for _, d := range []string{dir, secret} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.OK("new", "s", "--sandbox", "--cwd", dir)
	h.Want("s", "pwd", dir+"\n")
	Kill(t, h.Session("s").KeeperPID)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../s", dir); err != nil {
		t.Fatal(err)
	}
	o := h.Conch("exec", "-s", "s", "touch x")
	if o.Status != 125 || !strings.Contains(o.Stderr, dir+" is now a symbolic link") || strings.Contains(o.Stderr, "this machine") {
		t.Errorf("%v", o)
	}
	if ents, err := os.ReadDir(secret); err != nil || len(ents) > 0 {
		t.Errorf("written to: %v, %v", ents, err)
	}
	h.OK("close", "s")
	// The same home under another name.
	h.OK("down", "--all")
	alias := filepath.Join(root, "alias")
	if err := os.Symlink("h", alias); err != nil {
		t.Fatal(err)
	}
	other := h.With("CONCH_HOME=" + alias)
	for i, kv := range other.Env {
		if strings.HasPrefix(kv, "HOME=") {
			other.Env[i] = "HOME=/nonexistent"
		}
	}
	refused(t, "above the home behind a link", other.Conch("new", "x", "--sandbox", "--cwd", root), "conch's own files")
	other.OK("down", "--all")
}

// Where the machine has no user namespaces, nothing is made without them.
func TestSandboxMissing(t *testing.T) {
	h := New(t)
	// One daemon, in a machine such as that; its clients must be there too.
	out, err := exec.Command("unshare", "--user", "--map-root-user", "true").CombinedOutput()
	if err != nil {
		t.Skipf("%v: %s", err, out)
	}
	script := fmt.Sprintf("echo 0 >/proc/sys/user/max_user_namespaces && cd %s && %s new s --sandbox; %s sessions --json; %s doctor; %s down --all", h.Work, h.Exe, h.Exe, h.Exe, h.Exe)
	cmd := exec.Command("unshare", "--user", "--map-root-user", "sh", "-c", script)
	cmd.Env = h.Env
	b, _ := cmd.CombinedOutput()
	text := string(b)
	for _, want := range []string{"cannot sandbox a session", "max_user_namespaces", "[]\n", "sandbox"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, `"label":"s"`) {
		t.Error("a session was made")
	}
}

// The shell of a sandboxed session is born in its control group as well.
func TestSandboxInGroup(t *testing.T) { sessionInGroup(t, "--sandbox") }

// A sandbox costs one process and some memory, and a new session some time.
func TestSandboxCost(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	best := map[string]time.Duration{}
	for i := range 5 {
		for _, flags := range [][]string{nil, {"--sandbox"}} {
			name := fmt.Sprint(flags)
			label := "c" + strconv.Itoa(i) + strconv.Itoa(len(flags))
			start := time.Now()
			h.OK(append([]string{"new", label}, flags...)...)
			h.OK("exec", "-s", label, "true")
			if d := time.Since(start); best[name] == 0 || d < best[name] {
				best[name] = d
			}
		}
	}
	pss := 0
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", holder(h, "c01")))
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				fmt.Sscan(rest, &pss)
			}
		}
	}
	t.Logf("new and exec: %v plain, %v sandboxed; its first process has %d kB PSS", best["[]"], best["[--sandbox]"], pss)
	if pss > 6000 {
		t.Errorf("a sandbox's first process has %d kB", pss)
	}
}
