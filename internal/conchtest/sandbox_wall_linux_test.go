package conchtest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dirs makes directories that are the caller's.
func (h *Home) dirs(paths ...string) {
	h.T.Helper()
	for _, p := range paths {
		for _, d := range []string{filepath.Dir(filepath.Dir(p)), filepath.Dir(p), p} {
			if _, err := os.Stat(d); err == nil {
				continue
			}
			if err := os.MkdirAll(d, 0o755); err != nil {
				h.T.Fatal(err)
			}
			if h.UID != 0 {
				if err := os.Chown(d, h.UID, h.UID); err != nil {
					h.T.Fatal(err)
				}
			}
		}
	}
}

// The work directory can be changed and what is allowed cannot, however deep in the home
// or in /tmp they are, and neither can be moved.
func TestSandboxDepths(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		home := filepath.Join(filepath.Dir(h.Path), "home")
		refused(t, "the home", h.Conch("new", "x", "--sandbox", "--cwd", home), "cannot be")
		refused(t, "the home, to read", h.Conch("new", "x", "--sandbox", "--sandbox-allow", home), "cannot be allowed")
		tmp, err := os.MkdirTemp("/tmp", "cd")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(tmp) })
		if h.UID != 0 {
			if err := os.Chown(tmp, h.UID, h.UID); err != nil {
				t.Fatal(err)
			}
		}
		works := []string{tmp, filepath.Join(home, "a"), filepath.Join(home, "b/a"), filepath.Join(home, "c/b/a")}
		reads := []string{filepath.Join(home, "d"), filepath.Join(home, "e/d"), filepath.Join(home, "f/e/d")}
		h.dirs(append(works, reads...)...)
		for i, work := range works {
			label := "s" + string(rune('0'+i))
			args := []string{"new", label, "--sandbox", "--cwd", work, "--sandbox-allow", work}
			for _, r := range reads {
				args = append(args, "--sandbox-allow", r)
			}
			h.OK(args...)
			h.Want(label, "echo made >f && cat f; pwd", "made\n"+work+"\n")
			if b, err := os.ReadFile(filepath.Join(work, "f")); string(b) != "made\n" {
				t.Errorf("%s: %q, %v", work, b, err)
			}
			h.Want(label, "touch ~/x && mkdir ~/y && echo ok", "ok\n")
			for _, r := range reads {
				h.Want(label, "ls "+r+" && { touch "+r+"/x || mv "+r+" ~/z || mv "+filepath.Dir(r)+" ~/z || touch "+filepath.Dir(r)+"/../x/x; } 2>/dev/null || echo no", "no\n")
			}
			h.Want(label, "cd /; mv "+work+" "+work+"2 2>/dev/null || echo no", "no\n")
			h.OK("close", label)
		}
	})
}

// No file gets a set-uid or set-gid bit, by whatever call.
func TestSandboxLeavesNoSetID(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		h.OK("new", "s", "--sandbox")
		h.Want("s", "cp /bin/id a && chmod 755 a && ./a -u >/dev/null && echo ok", "ok\n")
		for _, mode := range []string{"4755", "2755", "6755", "u+s", "g+s"} {
			if r := h.Exec("s", "chmod "+mode+" a"); Code(r.ExitCode) != "1" || !strings.Contains(r.Stderr, "not permitted") {
				t.Errorf("chmod %s: %s %q", mode, Code(r.ExitCode), r.Stderr)
			}
		}
		r := h.Exec("s", `python3 - <<'E'
import os, ctypes, errno, platform, struct
L = ctypes.CDLL(None, use_errno=True)
def want(name, got, *errs):
    e = ctypes.get_errno()
    if got != -1 or e not in errs: print(name, got, errno.errorcode.get(e))
C, W, D, T = os.O_CREAT, os.O_WRONLY, -100, os.O_TMPFILE
a = os.open("a", os.O_RDONLY)
how = ctypes.create_string_buffer(struct.pack("QQQ", C | W, 0o4755, 0))
P = errno.EPERM
for m in (0o4755, 0o2755):
    want("fchmod", L.fchmod(a, m), P)
    want("fchmodat", L.fchmodat(D, b"a", m, 0), P)
    want("fchmodat2", L.syscall(452, D, b"a", m, 0), P)
    want("openat", L.openat(D, b"b", C | W, m), P)
    want("tmpfile", L.openat(D, b".", T | W, m), P)
    want("mknodat", L.syscall(259 if platform.machine() == "x86_64" else 33, D, b"b", 0o100000 | m, 0), P)
    want("openat2", L.syscall(437, D, b"b", how, 24), errno.ENOSYS)
    if platform.machine() == "x86_64":
        want("open", L.syscall(2, b"b", C | W, m), P)
        want("creat", L.syscall(85, b"b", m), P)
        want("chmod", L.syscall(90, b"a", m), P)
        want("mknod", L.syscall(133, b"b", 0o100000 | m, 0), P)
# A mode that does not count may be anything.
assert L.openat(D, b"a", os.O_RDONLY, 0o4755) > 0
print("through")
E
mkdir -m 1777 d; find . -perm /6000`)
		if r.Stdout != "through\n" {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		filepath.WalkDir(h.Work, func(path string, d os.DirEntry, err error) error {
			if fi, err := os.Lstat(path); err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s has mode %v", path, fi.Mode())
			}
			return nil
		})
	})
}

// A socket of somebody outside leads nowhere, though its directory is inside.
func TestSandboxReachesNoSocket(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		path := filepath.Join(h.Work, "d.sock")
		got, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		// A tmux server runs what it is told.
		tmux := func(args ...string) *exec.Cmd {
			cmd := exec.Command("tmux", append([]string{"-S", filepath.Join(h.Work, "t.sock"), "-f", "/dev/null"}, args...)...)
			cmd.Dir, cmd.Env = h.Work, append(h.Env, "TMUX=")
			if h.UID != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.UID), Gid: uint32(h.UID)}}
			}
			return cmd
		}
		if out, err := tmux("new-session", "-d", "sleep 600").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		defer tmux("kill-server").Run()
		h.OK("new", "s", "--sandbox")
		sign := filepath.Join(h.Work, "sign")
		if r := h.Exec("s", "tmux -S t.sock run-shell 'touch "+sign+"'"); Code(r.ExitCode) == "0" {
			t.Errorf("tmux inside: %q %q", r.Stdout, r.Stderr)
		}
		r := h.Exec("s", `python3 - <<'E'
import socket
def no(name, f):
    try: f()
    except PermissionError: return
    print(name)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW, socket.SOCK_STREAM | socket.SOCK_CLOEXEC):
    no("socket %d" % kind, lambda: socket.socket(socket.AF_UNIX, kind))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK):
    no("pair %d" % kind, lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", "d.sock"))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b"x"); assert b.recv(1) == b"x"
    try: a.connect("t.sock"); print("a pair leads out")
    except OSError: pass
socket.socket(socket.AF_INET); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
print("through")
E`)
		if r.Stdout != "through\n" {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		if _, err := os.Stat(sign); err == nil {
			t.Error("tmux ran a command outside")
		}
		got.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, _, err := got.ReadFrom(make([]byte, 9)); err == nil {
			t.Errorf("%d bytes came out", n)
		}
	})
}

// What people work with does without the calls that are refused.
func TestSandboxOrdinaryWork(t *testing.T) {
	asEach(t, func(h *Home) {
		t := h.T
		h.OK("new", "s", "--sandbox")
		for tool, text := range map[string]string{
			"git":     `git init -q r && cd r && git config user.email a@b && git config user.name n && echo x >f && git add f && git commit -qm m && git clone -q . ../c && git gc -q && git -C ../c log --format=%s`,
			"python3": `python3 -c 'import multiprocessing as m, subprocess, tempfile, asyncio; m.set_start_method("fork"); p=m.Pool(2); assert p.map(abs,[-1,2])==[1,2]; p.close(); p.join(); q=m.Queue(); q.put(1); q.get(); subprocess.run(["true"],check=True); tempfile.NamedTemporaryFile(); asyncio.run(asyncio.sleep(0)); print("m")'`,
			"node":    `echo 'process.send("m")' >child.js && node -e 'const c=require("child_process"),f=require("fs"); f.writeFileSync("n","x"); f.mkdtempSync("/tmp/n"); c.execSync("true"); c.fork("./child.js").on("message",x=>console.log(x))'`,
			"tar":     `mkdir -p t/u && echo m >t/u/f && tar czf t.tgz t && rm -r t && tar xzf t.tgz && cp -a t t2 && install -m 755 t2/u/f i && cat i`,
			"make":    `printf 'all:\n\t@echo m\n' >Makefile && make -s -j2`,
			"id":      `id >/dev/null && getent passwd root >/dev/null && mktemp >/dev/null && echo m`,
		} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Logf("no %s here", tool)
				continue
			}
			if r := h.Exec("s", "("+text+")", "-t", "60s"); r.Stdout != "m\n" {
				t.Errorf("%s: %s %q %q", tool, Code(r.ExitCode), r.Stdout, r.Stderr)
			}
		}
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		h.Want("s", `mkdir g && cd g && printf 'module m\ngo 1.24\n' >go.mod && printf 'package main\nimport ("os"; "os/exec")\nfunc main() { d, err := os.MkdirTemp("", ""); if err != nil { panic(err) }; os.WriteFile(d+"/x", nil, 0o644); if err := os.RemoveAll(d); err != nil { panic(err) }; if err := exec.Command("true").Run(); err != nil { panic(err) }; println("ok") }\n' >m.go && GOTOOLCHAIN=local GOFLAGS=-mod=mod `+strings.TrimSpace(string(root))+`/bin/go run . 2>&1; cd ..`, "ok\n")
	})
}

// What a sandbox keeps in memory has a limit.
func TestSandboxMemory(t *testing.T) {
	h := New(t)
	h.OK("new", "s", "--sandbox")
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	most := min(1<<30, uint64(info.Totalram)*uint64(info.Unit)/2) / 4096
	for _, dir := range []string{"/tmp", "/dev/shm", "$HOME"} {
		got := strings.Fields(h.Exec("s", "stat -f -c '%b %s %c' "+dir).Stdout)
		if len(got) != 3 || got[2] != "262144" || got[1] != "4096" || got[0] != strconv.FormatUint(most, 10) {
			t.Errorf("%s has %q, want %d blocks", dir, got, most)
		}
	}
	if r := h.Exec("s", "fallocate -l 2G /tmp/y"); !strings.Contains(r.Stderr, "No space left") {
		t.Errorf("2 GB: %q", r.Stderr)
	}
}
