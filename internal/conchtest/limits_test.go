package conchtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hasty is a home whose limits are short.
func hasty(t *testing.T) *Home {
	h := New(t)
	h.Exe = Variant(t, "hasty", "internal/route/limits.go",
		"HeaderTime = 10 * time.Second", "HeaderTime = 300 * time.Millisecond",
		"BodyTime = 60 * time.Second", "BodyTime = 300 * time.Millisecond",
		"IdleTime = 5 * time.Minute", "IdleTime = 400 * time.Millisecond",
		"Heartbeat = 15 * time.Second", "Heartbeat = 100 * time.Millisecond",
		"DaemonConns = 1024", "DaemonConns = 12",
		"KeeperConns = 2048", "KeeperConns = 12")
	return h
}

// A client that never finishes is dropped, whatever part of its request it is in, and
// however it spreads the bytes it has.
func TestSlowClients(t *testing.T) {
	h := hasty(t)
	h.OK("exec", "-s", "a", "true")
	const keeper, daemon = "/v1/sessions/me/a/", "/v1/"
	for _, c := range []struct{ name, text, want string }{
		{"silence", "", ""},
		{"half a line, daemon", "GET " + daemon + "sta", ""},
		{"half a header, daemon", "GET " + daemon + "status HTTP/1.1\r\nHost: c\r\nX: y", ""},
		{"half a header, keeper", "GET " + keeper + "history HTTP/1.1\r\nHost: c\r\nX: y", "request_timeout"},
		{"half a body, daemon", "POST " + daemon + "sessions HTTP/1.1\r\nHost: c\r\nContent-Length: 99\r\n\r\n{\"label\":", "request_timeout"},
		{"half a body, keeper", "POST " + keeper + "exec HTTP/1.1\r\nHost: c\r\nContent-Length: 99\r\n\r\n{\"command\":", "request_timeout"},
		{"half a log", "POST " + daemon + "import HTTP/1.1\r\nHost: c\r\nContent-Length: 99\r\n\r\n\x01\x01\x01", "request_timeout"},
		{"idle after an answer, daemon", "GET " + daemon + "status HTTP/1.1\r\nHost: c\r\n\r\n", "daemon_pid"},
		{"idle after an answer, keeper", "GET " + keeper + "history HTTP/1.1\r\nHost: s-1.conch\r\n\r\n", "command_id"},
	} {
		for _, drip := range []bool{false, true} {
			conn, err := net.Dial("unix", h.socket())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			conn.SetDeadline(start.Add(20 * time.Second))
			io.WriteString(conn, c.text)
			if drip && !strings.HasPrefix(c.name, "idle") && c.name != "half a log" {
				go func() { // ends with the connection
					for {
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
						time.Sleep(50 * time.Millisecond) // the client's own slowness
					}
				}()
			}
			got, err := io.ReadAll(conn)
			conn.Close()
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("%s (drip %v): still there after %v", c.name, drip, time.Since(start))
			}
			if !bytes.Contains(got, []byte(c.want)) {
				t.Errorf("%s (drip %v): %q, want %s", c.name, drip, got, c.want)
			}
			if took := time.Since(start); took < 200*time.Millisecond {
				t.Errorf("%s (drip %v): dropped after %v already", c.name, drip, took)
			}
		}
	}
	// Who types is not hurried.
	run := h.Start("exec", "-i", "-s", "a", "cat")
	time.Sleep(700 * time.Millisecond) // the typist's, more than twice the limit
	fmt.Fprintln(run.In, "typed")
	run.Line("typed")
	run.In.Close()
	if o := run.End(); o.Status != 0 {
		t.Error(o)
	}
	conn, err := net.Dial("unix", h.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	typist := h.Start("exec", "-i", "-s", "a", "cat")
	Until(t, 10*time.Second, "cat runs", func() bool { return h.Session("a").Running != "" })
	fmt.Fprintf(conn, "POST /v1/commands/%s/stdin?close=1 HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n", h.Session("a").Running)
	time.Sleep(700 * time.Millisecond)
	io.WriteString(conn, "5\r\nslow\n\r\n")
	typist.Line("slow")
	io.WriteString(conn, "0\r\n\r\n")
	typist.End()
}

// What is no HTTP, or too much of it, is answered in the error form by daemon and keeper
// alike, and ends the connection.
func TestMalformed(t *testing.T) {
	h := New(t)
	h.OK("exec", "-s", "a", "true")
	long := strings.Repeat("x", 100_000)
	for _, path := range []string{"/v1/status", "/v1/sessions/me/a/history"} {
		daemon := path == "/v1/status"
		for _, c := range []struct{ text, want string }{
			{"GET " + path + " HTTP/1.1\r\nHost: c\r\nno colon\r\n\r\n", "invalid_request"},
			{"GET " + path + " HTTP/1.1\r\nHost: c\r\nContent-Length: x\r\n\r\n", "invalid_request"},
			{"GET " + path + " HTTP/2.0\r\nHost: c\r\n\r\n", "unsupported"},
			{"GET " + path + " HTTP/1.1\r\nHost: c\r\nX: " + long + "\r\n\r\n", "header_too_large"},
			{"GET " + path + "?" + long + " HTTP/1.1\r\nHost: c\r\n\r\n", "header_too_large"},
			{"POST " + path + " HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "method_not_allowed"},
			{"GET " + path + " HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid_request"},
			{"OPTIONS * HTTP/1.1\r\nHost: c\r\n\r\n", "route_not_found"},
			{"GET * HTTP/1.1\r\nHost: c\r\n\r\n", "route_not_found"},
			{"CONNECT c:80 HTTP/1.1\r\nHost: c\r\n\r\n", "route_not_found"},
			{"\r\n\x00\xff\r\n\r\n", "invalid_request"},
			{"GET " + path + " HTTP/1.1\r\nHost: c\r\nExpect: wonders\r\nContent-Length: 2\r\n\r\n{}", map[bool]string{true: "invalid_request", false: "command_id"}[daemon]},
		} {
			resp, body, err := h.raw([]byte(c.text), "GET", true, false, 20*time.Second)
			if err != nil {
				t.Errorf("%.60q: %v", c.text, err)
				continue
			}
			if !bytes.Contains(body, []byte(c.want)) || resp.Header.Get("Conch-Protocol") == "" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%.60q: %d %v %s, want %s", c.text, resp.StatusCode, resp.Header, body, c.want)
			}
		}
	}
	h.Want("a", "echo alive", "alive\n")
}

// A stream with nothing to tell says so now and then.
func TestHeartbeat(t *testing.T) {
	h := hasty(t)
	run := h.Start("exec", "-s", "a", "echo up; sleep 60")
	run.Line("up")
	for _, path := range []string{"/v1/commands/" + string(h.Session("a").Running) + "/events", "/v1/sessions/me/a/events"} {
		resp := h.ask("GET", path, "")
		r := bufio.NewReader(resp.Body)
		for beats := 0; beats < 3; {
			e, ok := readEvent(r)
			if !ok {
				t.Fatalf("%s ended", path)
			}
			if e.comment {
				beats++
			}
		}
		resp.Body.Close()
	}
	h.OK("interrupt", "-s", "a")
	run.End()
}

// Connections above the limit are refused in form, by daemon and keeper, and room that
// was made can be used.
func TestTooManyConnections(t *testing.T) {
	h := hasty(t)
	h.OK("exec", "-s", "a", "true")
	run := h.Start("exec", "-s", "a", "echo up; sleep 60")
	run.Line("up")
	for _, c := range []struct{ who, path string }{{"daemon", ""}, {"keeper", "/v1/sessions/me/a/events"}} {
		var conns []net.Conn
		dial := func() net.Conn {
			conn, err := net.Dial("unix", h.socket())
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			conns = append(conns, conn)
			return conn
		}
		refused := 0
		for range 20 {
			conn := dial()
			if c.path != "" {
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: c\r\nAccept: text/event-stream\r\n\r\n", c.path)
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("%s: %v", c.who, err)
				}
				if resp.StatusCode == 200 {
					continue
				}
				b, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != 503 || !bytes.Contains(b, []byte("too_many_connections")) || !bytes.Contains(b, []byte(`"retryable":true`)) {
					t.Errorf("%s: %d %s", c.who, resp.StatusCode, b)
				}
				refused++
			}
		}
		if c.path == "" { // silent ones, which the daemon has not dropped yet
			fmt.Fprintf(dial(), "GET /v1/status HTTP/1.1\r\nHost: c\r\n\r\n")
			b, _ := io.ReadAll(conns[len(conns)-1])
			if !bytes.Contains(b, []byte("too_many_connections")) {
				t.Errorf("%s: %s", c.who, b)
			}
			refused++
		}
		if refused == 0 {
			t.Errorf("%s: nobody was refused", c.who)
		}
		for _, conn := range conns {
			conn.Close()
		}
		Until(t, 10*time.Second, "there is room again", func() bool {
			resp, err := h.web().Get("http://conch/v1/sessions/me/a")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == 200
		})
	}
	h.OK("interrupt", "-s", "a")
	run.End()
}

// A daemon that leaves cuts no stream of a keeper's, and tells its own requests.
func TestLeavingDaemonTells(t *testing.T) {
	h := New(t)
	h.OK("up")
	run := h.Start("exec", "-s", "a", "echo up; until [ -e go ]; do sleep 0.02; done; echo end")
	run.Line("up")
	resp := h.ask("GET", "/v1/commands/"+string(h.Session("a").Running)+"/events", "")
	defer resp.Body.Close()

	conn, err := net.Dial("unix", h.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "POST /v1/import?label=half HTTP/1.1\r\nHost: c\r\nContent-Length: 1000\r\n\r\n\x01\x01\x01half")
	Until(t, 10*time.Second, "the import is under way", func() bool {
		list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", ".import-*"))
		return len(list) > 0
	})
	h.OK("down")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("a request that the daemon could not wait for: %v", err)
	}
	b, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != 503 || !bytes.Contains(b, []byte("not_running")) || !bytes.Contains(b, []byte(`"retryable":true`)) {
		t.Errorf("it was told %d %s", answer.StatusCode, b)
	}
	if err := os.WriteFile(filepath.Join(h.Work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(rest, []byte("end")) || !bytes.Contains(rest, []byte("event: exit")) {
		t.Errorf("the stream: %v %s", err, rest)
	}
	run.Line("end")
	if o := run.End(); o.Status != 0 {
		t.Error(o)
	}
	if list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", ".import-*")); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
}
