package conchtest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tty"
)

// A wsTerminal is a browser's terminal without the browser: a screen that is drawn by
// what the WebSocket brings.
type wsTerminal struct {
	t  *testing.T
	ws *websocket.Conn

	mu     sync.Mutex // guards what follows
	screen *tty.Screen
	events []conch.TerminalEvent
	bytes  int64
	err    error
	moved  chan struct{}
}

// dialTerminal comes to a terminal through a door; a door with an empty base is the
// unix socket.
func dialTerminal(t *testing.T, d *door, path string) *wsTerminal {
	t.Helper()
	ws, resp, err := dialSocket(d, path)
	if err != nil {
		t.Fatalf("%s: %v %v", path, err, resp)
	}
	v := &wsTerminal{t: t, ws: ws, screen: tty.New(80, 24), moved: make(chan struct{})}
	ws.SetReadLimit(32 << 20)
	go v.read() // ends with the connection
	t.Cleanup(func() { ws.CloseNow() })
	return v
}

func dialSocket(d *door, path string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	o := &websocket.DialOptions{HTTPClient: d.client, HTTPHeader: http.Header{}}
	for i := 0; i < len(d.header); i += 2 {
		o.HTTPHeader.Set(d.header[i], d.header[i+1])
	}
	return websocket.Dial(ctx, d.base+path, o)
}

// unixDoor is the home's socket.
func unixDoor(h *Home) *door {
	return &door{h: h, base: "http://conch", client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.Path, "run/d.sock"))
	}}}}
}

func (v *wsTerminal) read() {
	for {
		kind, b, err := v.ws.Read(context.Background())
		v.mu.Lock()
		switch {
		case err != nil:
			v.err = err
		case kind == websocket.MessageBinary:
			v.bytes += int64(len(b))
			v.screen.Feed(b, time.Now())
		default:
			var e conch.TerminalEvent
			if err := json.Unmarshal(b, &e); err != nil {
				v.t.Errorf("%s: %v", b, err)
			}
			if e.Type == conch.TerminalHello || e.Type == conch.TerminalResize {
				v.screen.Resize(e.Cols, e.Rows, time.Now())
			}
			v.events = append(v.events, e)
		}
		close(v.moved)
		v.moved = make(chan struct{})
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// until waits for something that has to do with what came.
func (v *wsTerminal) until(what string, ok func() bool) {
	v.t.Helper()
	limit := time.After(60 * time.Second)
	for {
		v.mu.Lock()
		good, moved := ok(), v.moved
		text := tty.Describe(v.screen).Text
		events, err := v.events, v.err
		v.mu.Unlock()
		if good {
			return
		}
		select {
		case <-moved:
		case <-limit:
			v.t.Fatalf("waited in vain until %s; events %+v, end %v, screen:\n%s", what, events, err, text)
		}
	}
}

func (v *wsTerminal) shows(text string) {
	v.t.Helper()
	v.until("it shows "+text, func() bool { return strings.Contains(tty.Describe(v.screen).Text, text) })
}

func (v *wsTerminal) told(what string, ok func(e conch.TerminalEvent) bool) {
	v.t.Helper()
	v.until("it is told "+what, func() bool {
		for _, e := range v.events {
			if ok(e) {
				return true
			}
		}
		return false
	})
}

func (v *wsTerminal) closed(code websocket.StatusCode) {
	v.t.Helper()
	v.until("it is closed", func() bool { return v.err != nil })
	if got := websocket.CloseStatus(v.err); got != code {
		v.t.Errorf("closed with %v: %v; want %v", got, v.err, code)
	}
}

func (v *wsTerminal) types(text string) {
	v.t.Helper()
	if err := v.ws.Write(context.Background(), websocket.MessageBinary, []byte(text)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *wsTerminal) says(text string) {
	v.t.Helper()
	if err := v.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		v.t.Fatal(err)
	}
}

// The same, whichever way one comes: type in vim, see its screen, save, leave.
func TestSocketVim(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	for name, d := range map[string]*door{"unix": unixDoor(h), "tls": network(t, h).token("tty", "exec"), "page": page(t, h, "")} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(h.Work, name+".txt")
			id := strings.TrimSpace(h.OK("run", "--tty", "vim -u NONE -N -n "+file))
			v := dialTerminal(t, d, "/v1/processes/"+id+"/terminal?cols=100&rows=30")
			v.told("hello as typist", func(e conch.TerminalEvent) bool {
				return e.Type == conch.TerminalHello && e.Role == conch.Typist && e.Cols == 100 && e.Rows == 30
			})
			v.shows("\n~\n~")
			v.types("ihello from " + name + "\x1b")
			v.shows("hello from " + name)
			v.says(`{"type":"resize","cols":60,"rows":20}`)
			v.told("the new size", func(e conch.TerminalEvent) bool {
				return e.Type == conch.TerminalResize && e.Cols == 60 && e.Rows == 20
			})
			// A second one is shown what is there, and sees what the first types.
			w := dialTerminal(t, d, "/v1/processes/"+id+"/terminal?read_only=1")
			w.told("hello as viewer", func(e conch.TerminalEvent) bool {
				return e.Type == conch.TerminalHello && e.Role == conch.Viewer && e.Cols == 60
			})
			w.shows("hello from " + name)
			v.types("osecond line\x1b:w\r")
			w.shows("second line")
			Until(t, 30*time.Second, "the file is written", func() bool {
				b, err := os.ReadFile(file)
				return err == nil && string(b) == "hello from "+name+"\nsecond line\n"
			})
			v.types(":q\r")
			for _, x := range []*wsTerminal{v, w} {
				x.told("the end", func(e conch.TerminalEvent) bool {
					return e.Type == conch.TerminalExit && e.ExitCode != nil && *e.ExitCode == 0
				})
				x.closed(websocket.StatusNormalClosure)
			}
		})
	}
}

// The session's own terminal: typed by one, seen by others; taken over and released.
func TestSocketAttach(t *testing.T) {
	h := New(t)
	d := network(t, h).token("tty", "exec")
	v := dialTerminal(t, d, "/v1/sessions/me/desk/terminal?create=1&cols=80&rows=24")
	v.shows("desk ")
	v.types("x=from-the-page; echo $((40+2))\r")
	v.shows("\n42")
	w := dialTerminal(t, d, "/v1/sessions/me/desk/terminal?read_only=1")
	w.shows("42")
	w.types("echo not me\r")
	w.told("that it may not", func(e conch.TerminalEvent) bool {
		return e.Type == conch.TerminalError && e.Code == conch.PermissionDenied
	})
	// The first releases: commands of others run now.
	v.says(`{"type":"role","role":"viewer"}`)
	v.told("it is a viewer", func(e conch.TerminalEvent) bool { return e.Type == conch.TerminalRole && e.Role == conch.Viewer })
	if r := h.Exec("desk", "echo $x"); r.Stdout != "from-the-page\n" {
		t.Errorf("%+v", r)
	}
	v.shows("from-the-page")
	w.says(`{"type":"role","role":"typist"}`)
	w.told("it is the typist", func(e conch.TerminalEvent) bool { return e.Type == conch.TerminalRole && e.Role == conch.Typist })
	w.types("echo taken-$((1+1))\r")
	v.shows("taken-2")
	for _, bad := range []string{"{", `{"type":"jump"}`, `{"type":"role","role":"god"}`, `{"type":"resize","cols":0,"rows":0}`, `{"type":"resize","x":1}`, "[]"} {
		w.says(bad)
		w.until("it is told what is wrong with "+bad, func() bool { return len(w.events) > 0 && w.events[len(w.events)-1].Type == conch.TerminalError })
		w.mu.Lock()
		w.events = nil
		w.mu.Unlock()
	}
	w.types("exit\r")
	w.told("it has left", func(e conch.TerminalEvent) bool { return e.Type == conch.TerminalLeft })
	w.closed(websocket.StatusNormalClosure)
	h.OK("close", "desk")
	v.closed(websocket.StatusNormalClosure)
}

// A typist that neither reads nor answers pings holds the prompt for 15 s at most.
func TestSocketDeadTypist(t *testing.T) {
	h := New(t)
	ws, _, err := dialSocket(network(t, h).token("tty", "exec"), "/v1/sessions/me/desk/terminal?create=1")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	if _, b, err := ws.Read(ctx); err != nil || !strings.Contains(string(b), `"typist"`) {
		t.Fatalf("%s %v", b, err)
	}
	start := time.Now() // from here on it is dead
	h.OK("exec", "-s", "desk", "true")
	if d := time.Since(start); d < 5*time.Second || d > 16*time.Second {
		t.Errorf("the prompt was free after %v", d)
	} else {
		t.Logf("the prompt was free after %v", d)
	}
}

// Over a daemon's death or leaving the program goes on; coming again shows its screen.
func TestSocketRestart(t *testing.T) {
	h := New(t)
	p := page(t, h, "")
	h.OK("exec", "true")
	id := strings.TrimSpace(h.OK("run", "--tty", "cat"))
	path := "/v1/processes/" + id + "/terminal"
	v := dialTerminal(t, p, path)
	v.types("before\r")
	v.shows("before\nbefore")
	h.OK("down")
	v.closed(websocket.StatusServiceRestart)
	h.OK("status")
	h.OK("up")
	v = dialTerminal(t, p, path)
	v.shows("before\nbefore")
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	syscall.Kill(s.DaemonPID, syscall.SIGKILL)
	v.until("it is cut", func() bool { return v.err != nil })
	h.OK("up")
	v = dialTerminal(t, p, path)
	v.shows("before\nbefore")
	v.types("after\r")
	v.shows("after\nafter")
	h.OK("kill", id)
	v.told("the end", func(e conch.TerminalEvent) bool { return e.Type == conch.TerminalExit })
}

// Strangers, readers, and those whose token is taken back.
func TestSocketStrangers(t *testing.T) {
	h := New(t)
	h.OK("exec", "true")
	id := strings.TrimSpace(h.OK("run", "--tty", "cat"))
	n, p, ro := network(t, h), page(t, h, ""), page(t, h, "--read-only")
	path := "/v1/processes/" + id + "/terminal"
	for what, d := range map[string]*door{
		"no token": n, "a wrong token": n.as("conch_x"), "mail only": n.token("m", "mail"), "reading only": n.token("r", "read"),
		"no cookie":      {h: h, base: p.base, client: p.client, header: []string{"Origin", p.base}},
		"another origin": p.with("Origin", "http://evil.example"), "another port": p.with("Origin", "http://127.0.0.1:1"), "no origin": {h: h, base: p.base, client: p.client, header: p.header[:2]},
		"cross-site": p.with("Sec-Fetch-Site", "cross-site"), "a read-only page": ro,
	} {
		if ws, resp, err := dialSocket(d, path); err == nil {
			ws.CloseNow()
			t.Errorf("%s: let in", what)
		} else if resp == nil || (resp.StatusCode != 401 && resp.StatusCode != 403) {
			t.Errorf("%s: %v %v", what, resp, err)
		}
	}
	// Who reads may look on, and neither type nor take over.
	v := dialTerminal(t, ro, path+"?read_only=1")
	v.types("typed by a reader\r")
	v.told("no", func(e conch.TerminalEvent) bool {
		return e.Type == conch.TerminalError && e.Code == conch.PermissionDenied
	})
	v.says(`{"type":"role","role":"typist"}`)
	v.until("told no twice", func() bool {
		no := 0
		for _, e := range v.events {
			if e.Code == conch.PermissionDenied {
				no++
			}
		}
		return no == 2 && v.events[0].Type == conch.TerminalHello
	})
	v.says(`{"type":"resize","cols":40,"rows":10}`)
	w := dialTerminal(t, p, path)
	w.types("marker\r")
	v.shows("marker")
	w.until("the text is there", func() bool { return strings.Contains(tty.Describe(w.screen).Text, "marker\nmarker") })
	if s := tty.Describe(w.screen); strings.Contains(s.Text, "reader") || s.Cols != 80 {
		t.Errorf("%+v", s)
	}
	// A token that is taken back ends it.
	x := dialTerminal(t, n.token("gone", "exec"), path)
	x.shows("marker")
	h.OK("token", "revoke", "gone")
	x.closed(websocket.StatusPolicyViolation)
	// What is too large is refused.
	y := dialTerminal(t, p, path)
	y.ws.Write(context.Background(), websocket.MessageBinary, make([]byte, 1<<20+1))
	y.closed(websocket.StatusMessageTooBig)
	// A request that is none, and a process that has no terminal or is not there.
	p.refuses("no WebSocket", 400, conch.InvalidRequest, "GET", path, "")
	plain := strings.TrimSpace(h.OK("run", "sleep 1000"))
	for _, path := range []string{"/v1/processes/" + plain + "/terminal", "/v1/processes/aaaaaaaa-1/terminal", "/v1/sessions/me/nosuch/terminal"} {
		if ws, resp, err := dialSocket(p, path); err == nil {
			ws.CloseNow()
			t.Errorf("%s: let in", path)
		} else if resp == nil || resp.StatusCode != 409 && resp.StatusCode != 404 {
			t.Errorf("%s: %v %v", path, resp, err)
		}
	}
}

// A viewer that does not read for a while costs the program no time and nobody memory;
// when it reads again it is shown the screen as it is.
func TestSocketSlowViewer(t *testing.T) {
	h := New(t)
	p := page(t, h, "")
	h.OK("exec", "true")
	id := strings.TrimSpace(h.OK("run", "--tty", "cat; yes 0123456789012345678901234567890123456789 | head -c 20000000; echo; echo THE END; cat"))
	path := "/v1/processes/" + id + "/terminal"
	slow, _, err := dialSocket(p, path+"?read_only=1")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.CloseNow()
	slow.SetReadLimit(32 << 20)
	var s conch.StatusInfo
	h.JSON(&s, "status", "--json")
	before := rss(t, s.DaemonPID)
	start := time.Now()
	h.OK("keys", id, "<C-d>")
	h.OK("screen", id, "--contains", "THE END", "-t", "60s")
	t.Logf("20 MB past a viewer that does not read: %v; the daemon grew by %d kB", time.Since(start), (rss(t, s.DaemonPID)-before)>>10)
	if grown := rss(t, s.DaemonPID) - before; grown > 16<<20 {
		t.Errorf("the daemon grew by %d bytes", grown)
	}
	v := &wsTerminal{t: t, ws: slow, screen: tty.New(80, 24), moved: make(chan struct{})}
	go v.read() // ends with the connection
	v.shows("THE END")
	v.mu.Lock()
	defer v.mu.Unlock()
	redrawn := 0
	for _, e := range v.events {
		if e.Type == conch.TerminalRedraw {
			redrawn++
		}
	}
	if v.bytes > 12<<20 || redrawn < 2 {
		t.Errorf("it got %d bytes and %d redraws", v.bytes, redrawn)
	}
}

// A browser is opened by way of a file that only its owner can read: the arguments of
// programs can be read by all users.
func TestOpensBrowser(t *testing.T) {
	h := New(t)
	bin := filepath.Join(h.Work, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(h.Work, "seen")
	script := "#!/bin/sh\necho \"$@\" > " + seen + ".args\ncp \"$1\" " + seen + "\nstat -c %a \"$1\" > " + seen + ".mode\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w := onTerminal(h.With("DISPLAY=:9", "PATH="+bin+":"+os.Getenv("PATH")), "ui")
	if status := w.wait(); status != 0 || strings.Contains(w.text(), "login") || !strings.Contains(w.text(), "http://127.0.0.1:") {
		t.Fatalf("%d %s", status, w.text())
	}
	args, _ := os.ReadFile(seen + ".args")
	mode, _ := os.ReadFile(seen + ".mode")
	text, _ := os.ReadFile(seen)
	_, rest, ok := strings.Cut(string(text), "#login=")
	if !ok || strings.Contains(string(args), "login=") || string(mode) != "600\n" {
		t.Fatalf("%s %s %s", args, mode, text)
	}
	code, _, _ := strings.Cut(rest, "\"")
	d, _ := link(t, h)
	if status, body := d.ask("POST", "/login", `{"code":"`+code+`"}`); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	if _, err := os.Stat(strings.TrimSpace(string(args))); err == nil {
		t.Error("the file outlives its code")
	}
	// Where the browser does not open, the address is printed.
	os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\nexit 3\n"), 0o755)
	w = onTerminal(h.With("DISPLAY=:9", "PATH="+bin+":"+os.Getenv("PATH")), "ui")
	if status := w.wait(); status != 0 || !strings.Contains(w.text(), "#login=") {
		t.Errorf("%d %s", status, w.text())
	}
}
