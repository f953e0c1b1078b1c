package conchtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// get asks the daemon over its socket.
func get(t *testing.T, h *Home, path string) (int, string, http.Header) {
	t.Helper()
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.Path, "run", "d.sock"))
	}}}
	r, err := c.Get("http://conch" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b), r.Header
}

var (
	sampleRE = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$`)
	labelRE  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// parseMetrics reads the text form by its strict rules: every sample belongs to
// the family that stands above it, families stand together and have HELP and
// TYPE, no series comes twice, histograms add up, counters end in _total.
func parseMetrics(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out, types := map[string]float64{}, map[string]string{}
	family := ""
	type hist struct {
		last  float64
		inf   float64
		count float64
		le    float64
	}
	hists := map[string]*hist{}
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line has no end")
	}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		line := sc.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if help == "" {
				t.Errorf("%s has no help", name)
			}
			family = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != family || types[name] != "" {
				t.Errorf("TYPE of %s stands in a wrong place", name)
			}
			types[name] = kind
			if (kind == "counter") != strings.HasSuffix(name, "_total") {
				t.Errorf("%s is a %s", name, kind)
			}
			continue
		}
		m := sampleRE.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("bad line %q", line)
			continue
		}
		name, v := m[1], 0.0
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil || math.IsNaN(v) || v < 0 {
			t.Errorf("bad value in %q", line)
		}
		key := name + "{" + m[2] + "}"
		if _, twice := out[key]; twice {
			t.Errorf("twice: %s", key)
		}
		out[key] = v
		base := name
		if types[family] == "histogram" {
			base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			h := hists[base]
			if h == nil {
				h = &hist{le: math.Inf(-1), inf: -1}
				hists[base] = h
			}
			switch {
			case strings.HasSuffix(name, "_bucket"):
				le := 0.0
				for _, l := range labelRE.FindAllStringSubmatch(m[2], -1) {
					if l[1] == "le" {
						le, _ = strconv.ParseFloat(l[2], 64)
					}
				}
				if le <= h.le || v < h.last {
					t.Errorf("buckets of %s are not in order: %s", base, line)
				}
				h.le, h.last = le, v
				if math.IsInf(le, 1) {
					h.inf = v
				}
			case strings.HasSuffix(name, "_count"):
				h.count = v
			}
		}
		if base != family {
			t.Errorf("%s stands under %s", name, family)
		}
	}
	for name, h := range hists {
		if h.inf != h.count {
			t.Errorf("%s: %v in buckets, %v in all", name, h.inf, h.count)
		}
	}
	return out
}

// What is counted is what happened.
func TestMetrics(t *testing.T) {
	h := New(t)
	h.OK("up")
	read := func() map[string]float64 {
		t.Helper()
		status, text, header := get(t, h, "/metrics")
		if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Fatalf("%d %v %s", status, header, text)
		}
		return parseMetrics(t, text)
	}
	if m := read(); m["conch_sessions{}"] != 0 || m[`conch_commands_total{outcome="ok"}`] != 0 {
		t.Errorf("before: %v", m)
	}
	h.Want("a", "echo 12345", "12345\n")
	h.Exec("a", "echo 123 >&2; false")
	h.Exec("b", "sleep 60", "-t", "100ms")
	h.Exec("b", "kill -9 $$")
	if o := h.Feed(strings.NewReader("12345678"), "exec", "-s", "b", "-i", "cat >/dev/null"); o.Status != 0 {
		t.Error(o)
	}
	r := h.Start("exec", "-s", "c", "echo on; sleep 60 & sleep 61")
	r.Line("on")
	want := map[string]float64{
		"conch_sessions{}": 3, "conch_sessions_busy{}": 1, "conch_keepers{}": 3, "conch_keepers_silent{}": 0, "conch_processes{}": 2,
		`conch_commands_total{outcome="ok"}`: 2, `conch_commands_total{outcome="failed"}`: 2, `conch_commands_total{outcome="timed_out"}`: 1,
		`conch_output_bytes_total{stream="stdout"}`: 9, `conch_output_bytes_total{stream="stderr"}`: 4, "conch_input_bytes_total{}": 8,
		`conch_kills_total{signal="SIGINT"}`: 1, "conch_command_duration_seconds_count{}": 5, "conch_shell_starts_total{}": 4,
	}
	check := func(want map[string]float64) {
		t.Helper()
		var wrong string
		// A line is counted after its result is given out.
		Until(t, 10*time.Second, "everything is counted", func() bool {
			wrong = ""
			m := read()
			for k, v := range want {
				if m[k] != v {
					wrong += fmt.Sprintf("%s is %v, want %v\n", k, m[k], v)
				}
			}
			if wrong != "" && testing.Verbose() {
				t.Log(wrong)
			}
			return wrong == ""
		})
	}
	check(want)
	h.OK("interrupt", "-s", "c")
	r.End()
	h.OK("close", "a")
	// What a session that is no more counted is not forgotten.
	check(map[string]float64{"conch_sessions{}": 2, `conch_commands_total{outcome="ok"}`: 2, `conch_commands_total{outcome="interrupted"}`: 1, "conch_processes{}": 0})
	Kill(t, h.Session("b").KeeperPID)
	check(map[string]float64{"conch_keeper_deaths_total{}": 1, "conch_keepers{}": 1, `conch_commands_total{outcome="timed_out"}`: 1})
	// One that hangs is not waited for.
	pid := h.Session("c").KeeperPID
	stop(t, pid)
	start := time.Now()
	m := read()
	syscall.Kill(pid, syscall.SIGCONT)
	if took := time.Since(start); m["conch_keepers_silent{}"] != 1 || took > 8*time.Second {
		t.Errorf("silent %v after %v", m["conch_keepers_silent{}"], took)
	}
	if m[`conch_http_requests_total{method="GET",route="/metrics",code="200"}`] == 0 {
		t.Error("requests are not counted")
	}
}

func TestHealthz(t *testing.T) {
	h := New(t)
	h.OK("up")
	if status, text, _ := get(t, h, "/healthz"); status != 200 || text != "ok\n" {
		t.Errorf("%d %q", status, text)
	}
	sessions := filepath.Join(h.Path, "sessions")
	if err := os.Rename(sessions, sessions+".away"); err != nil {
		t.Fatal(err)
	}
	if status, text, _ := get(t, h, "/healthz"); status != 503 || !strings.Contains(text, "no session can be made") {
		t.Errorf("%d %q", status, text)
	}
	if err := os.Rename(sessions+".away", sessions); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := get(t, h, "/healthz"); status != 200 {
		t.Errorf("%d after it was put back", status)
	}
}

// The logs have a line for every command and request, and none of the words that
// were in them.
func TestLogsAreSilent(t *testing.T) {
	h := New(t)
	const secret = "hunter2-S3CR3T"
	h.OK("new", "a", "-e", "TOKEN="+secret)
	r := h.Exec("a", "echo "+secret+"; echo $TOKEN >&2; x="+secret, "-e", "PASSWORD="+secret)
	h.Exec("a", "set -r")
	h.Exec("a", "echo "+secret) // cannot redirect: the shell complains, and is replaced
	h.Exec("a", "trap 'echo "+secret+" >&2' EXIT; exit 3")
	h.Exec("a", "echo '"+secret)
	h.Exec("a", "PROMPT_COMMAND='echo "+secret+"; cat'", "-t", "5s")
	h.Feed(strings.NewReader(secret), "exec", "-s", "a", "-i", "cat")
	h.Conch("exec", "-s", "a", "--cwd", "/nowhere/"+secret, "true")
	h.Conch("exec", "-s", "new", "--cwd", "/nowhere/"+secret, "true")
	h.Exec("a", "kill -9 $PPID; echo "+secret)
	h.Exec("a", "echo back")
	id := strings.TrimSpace(h.OK("run", "-s", "a", "echo "+secret+"; sleep 60"))
	h.Feed(strings.NewReader(secret), "stdin", id)
	h.OK("kill", id)
	get(t, h, "/v1/sessions/me/a/tape?from="+secret)
	get(t, h, "/v1/status?token="+secret)
	h.OK("down")
	logs, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "keeper.log*"))
	if len(logs) == 0 {
		t.Fatal("no logs")
	}
	all := ""
	for _, p := range append(logs, filepath.Join(h.Path, "daemon.log")) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, secret) {
				t.Errorf("%s: %s", p, line)
			}
		}
		all += string(b)
	}
	for _, want := range []string{
		`op=command session=` + h.sessionID("a") + ` label=a command=` + string(r.CommandID) + ` outcome=ok client=`,
		" exit=0 ms=", "stdout=15", "stderr=15", "outcome=failed", "op=process session=", "outcome=killed", "op=request method=POST route=/v1/sessions status=200",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in the logs:\n%s", want, all)
		}
	}
}

// sessionID finds a session's id on disk.
func (h *Home) sessionID(label string) string {
	list, _ := filepath.Glob(filepath.Join(h.Path, "sessions", "*", "spec.json"))
	for _, p := range list {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), `"label": "`+label+`"`) {
			return filepath.Base(filepath.Dir(p))
		}
	}
	return ""
}
