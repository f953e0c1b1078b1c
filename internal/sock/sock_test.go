package sock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain doubles as the helper process of another user.
func TestMain(m *testing.M) {
	if path := os.Getenv("SOCK_TEST_DIAL"); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			fmt.Println("dial:", err)
			os.Exit(1)
		}
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// leaks fails the test when it ends with more descriptors or goroutines than
// it began with.
func leaks(t *testing.T) {
	t.Helper()
	count := func() int {
		ents, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		return len(ents)
	}
	fds, gs := count(), runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for count() > fds || runtime.NumGoroutine() > gs {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Errorf("leak: descriptors %d -> %d, goroutines %d -> %d\n%s", fds, count(), gs, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
				return
			}
			runtime.Gosched()
		}
	})
}

func TestListenModeAndStale(t *testing.T) {
	leaks(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v; want 0600", fi.Mode(), err)
	}
	if _, err := Listen(path); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("second Listen = %v, want EADDRINUSE", err)
	}
	l.SetUnlinkOnClose(false) // as a killed process leaves it
	l.Close()
	if l, err = Listen(path); err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("socket left after Close: %v", err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Fatal("Listen replaced a file that is not a socket")
	}
	if _, err := Listen("/" + strings.Repeat("x", MaxPath)); err == nil {
		t.Fatal("a path over the limit was taken")
	}
}

func control(t *testing.T) (daemon, keeper *net.UnixConn) {
	t.Helper()
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestPassKeepsBytesPeerAndCloexec(t *testing.T) {
	leaks(t)
	daemon, keeper := control(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	srv, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	// A head longer than the socket's buffer: the rest follows the descriptor.
	head := bytes.Repeat([]byte("head"), 1<<18)
	got := make(chan *Conn, 1)
	go func() {
		c, err := Receive(keeper)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	if err := NewPasser(daemon).Pass(srv, head); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	c := <-got
	defer c.Close()
	io.WriteString(client, "tail")
	client.CloseWrite()
	all, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(all, append(head, "tail"...)) {
		t.Fatalf("read %d bytes, %v", len(all), err)
	}
	pid, uid, err := PeerCred(c.Unix())
	if err != nil || pid != os.Getpid() || uid != os.Getuid() {
		t.Fatalf("PeerCred = %d, %d, %v", pid, uid, err)
	}
	rc, _ := c.SyscallConn()
	rc.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %x, %v: not close-on-exec", flags, err)
		}
	})
}

func TestPasserConcurrent(t *testing.T) {
	leaks(t)
	daemon, keeper := control(t)
	p := NewPasser(daemon)
	const n = 200
	var wg sync.WaitGroup
	sem := make(chan struct{}, 16)
	for i := range n {
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			a, b, err := Pair()
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Close()
			want := bytes.Repeat([]byte{'a' + byte(i%26)}, i*7)
			if err := p.Pass(b, want); err != nil {
				t.Error(err)
			}
			b.Close()
			fmt.Fprintf(a, "%d\n", i)
			ack, _ := io.ReadAll(a)
			if string(ack) != fmt.Sprint(len(want)) {
				t.Errorf("connection %d: answered %q, want %d", i, ack, len(want))
			}
		})
	}
	for range n {
		c, err := Receive(keeper)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			s, err := bufio.NewReader(c).ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			head := strings.TrimRight(s, "0123456789\n")
			fmt.Fprint(c, len(head))
		})
	}
	wg.Wait()
}

func TestReceiveEnds(t *testing.T) {
	leaks(t)
	daemon, keeper := control(t)
	daemon.Close()
	if _, err := Receive(keeper); err != io.EOF {
		t.Fatalf("after close: %v, want EOF", err)
	}
	for _, bad := range []string{"H", "X\x00\x00\x00\x00", "H\x00\x00\x00\x00", "H\xff\xff\xff\xff"} {
		a, b, _ := Pair()
		io.WriteString(a, bad)
		a.Close()
		if c, err := Receive(b); err == nil {
			t.Errorf("%q: got %v", bad, c)
		}
		b.Close()
	}
	// A good descriptor with a bad message must not stay open.
	a, b, _ := Pair()
	a.WriteMsgUnix([]byte("X\x00\x00\x00\x00"), unix.UnixRights(0), nil)
	if _, err := Receive(b); err == nil {
		t.Error("bad tag taken")
	}
	a.Close()
	b.Close()
}

func serve(t *testing.T, route func(string, *net.UnixConn) bool) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	ul, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(ul, route)
	l.Refusal = []byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "daemon "+r.URL.Path)
	})}
	done := make(chan struct{})
	go func() { srv.Serve(l); close(done) }()
	t.Cleanup(func() { l.Close(); srv.Close(); <-done })
	return path
}

func TestListenerRoutesByFirstLine(t *testing.T) {
	leaks(t)
	daemon, keeper := control(t)
	p := NewPasser(daemon)
	path := serve(t, func(line string, c *net.UnixConn) bool {
		_, path, ok := ParseLine(line)
		if !ok || !strings.HasPrefix(path, "/v1/sessions/") {
			return false
		}
		if err := p.Pass(c, nil); err != nil {
			t.Error(err)
			return false
		}
		c.Close()
		return true
	})
	kdone := make(chan struct{})
	go func() {
		defer close(kdone)
		for {
			c, err := Receive(keeper)
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				t.Error(err)
			} else {
				body, _ := io.ReadAll(r.Body)
				answer := "keeper " + r.URL.Path + " " + string(body)
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { daemon.Close(); <-kdone })
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return Dial(ctx, path)
	}}}
	for url, want := range map[string]string{
		"/healthz":                   "daemon /healthz",
		"/v1/sessions/me/main/exec":  "keeper /v1/sessions/me/main/exec body",
		"/v1/sessions/me/x?create=1": "keeper /v1/sessions/me/x body",
	} {
		resp, err := hc.Post("http://c"+url, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	// A line that comes byte by byte is waited for, and others are not held up.
	slow, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	for _, b := range []byte("GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") {
		slow.Write([]byte{b})
		runtime.Gosched()
	}
	got, _ := io.ReadAll(slow)
	if !strings.HasSuffix(string(got), "daemon /slow") {
		t.Errorf("slow client got %q", got)
	}
}

func TestListenerCloseDropsTheSilent(t *testing.T) {
	leaks(t)
	path := filepath.Join(t.TempDir(), "s")
	ul, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(ul, nil)
	accepted := make(chan error, 1)
	go func() { _, err := l.Accept(); accepted <- err }()
	silent, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	io.WriteString(silent, "GET /half")
	l.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v", err)
	}
	silent.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent client was not dropped: %v", err)
	}
}

func TestOtherUserRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	leaks(t)
	path := serve(t, nil)
	// Open the way, so that only the peer check stands in it.
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(dir, fi.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skip("no /proc/self/exe")
	}
	defer exe.Close()
	bin := filepath.Join(filepath.Dir(path), "helper")
	data, _ := io.ReadAll(exe)
	if err := os.WriteFile(bin, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	cmd.Env = []string{"SOCK_TEST_DIAL=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 403 ") {
		t.Fatalf("another user got %q, %v", out, err)
	}
}

func TestParseLine(t *testing.T) {
	for line, want := range map[string]string{
		"GET / HTTP/1.1":                      "GET / true",
		"POST /v1/sessions/a/b?x=/y HTTP/1.1": "POST /v1/sessions/a/b true",
		"GET /cut":                            "  false",
		"GET http://x/ HTTP/1.1":              "  false",
		"":                                    "  false",
		" / ":                                 "  false",
	} {
		m, p, ok := ParseLine(line)
		if got := fmt.Sprint(m, " ", p, " ", ok); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
