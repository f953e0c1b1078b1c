package conchtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/conchsh/conch"
)

// socket is the daemon's.
func (h *Home) socket() string { return filepath.Join(h.Path, "run", "d.sock") }

// web is an http.Client that speaks to the home's daemon, a connection each.
func (h *Home) web() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.socket())
	}}}
}

// raw sends bytes to the daemon and gives the answer. With cut it leaves without one.
func (h *Home) raw(req []byte, method string, half, cut bool, limit time.Duration) (*http.Response, []byte, error) {
	c, err := net.Dial("unix", h.socket())
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	_, werr := c.Write(req) // who refuses a request may not read all of it
	if cut {
		return nil, nil, nil
	}
	if half {
		c.(*net.UnixConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		if werr != nil {
			err = fmt.Errorf("%w (and before: %v)", err, werr)
		}
		return nil, nil, err
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		b, err := io.ReadAll(resp.Body)
		return resp, b, err
	}
	c.SetDeadline(time.Now().Add(100 * time.Millisecond)) // a stream may have no end
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	return resp, b, nil
}

// A fuzzer makes requests from an OpenAPI document.
type fuzzer struct {
	h       *Home
	doc     map[string]any
	schemas sync.Map // pointer to compiled schema
	mu      sync.Mutex
	c       *jsonschema.Compiler
	ids     []string // of commands
	counts  [6]atomic.Int64
}

// An operation of the document.
type operation struct {
	method, path, id string
	m                map[string]any
}

func (f *fuzzer) operations() []operation {
	var list []operation
	for path, item := range f.doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			m := op.(map[string]any)
			list = append(list, operation{strings.ToUpper(method), path, m["operationId"].(string), m})
		}
	}
	slices.SortFunc(list, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return list
}

func (f *fuzzer) resolve(s map[string]any) map[string]any {
	for {
		to, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		var target any = f.doc
		for _, step := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
			target = target.(map[string]any)[step]
		}
		s = target.(map[string]any)
	}
}

// strangeWords are strings that are no command worth running.
var strangeWords = []string{
	"", " ", "\x00", "a\x00b", "'", `"`, "`", "$(", "${", "<<E", "\\", "../../..", "/", "%2e%2e", "%00", "\r\n\r\n", "é\u202e\U0001f41a",
	"\xff\xfe", "{{", "[[", strings.Repeat("A", 300), strings.Repeat("%41", 2000), "me", "-1", "9223372036854775808", "null", "true", "NaN",
}

var harmless = []string{"true", "false", "echo hi", "printf '\\377\\000'", "seq 2000", "exit 3", "echo x >&2", "cat", "x=1", "cd /", "kill -9 $$", "sleep 0.2 & true"}

// value makes one for a schema: mostly as it should be, at its borders, or wrong.
func (f *fuzzer) value(r *rand.Rand, name string, s map[string]any, bad bool) any {
	s = f.resolve(s)
	if bad {
		return []any{nil, true, -1, 1.5, 1e300, "text", []any{}, []any{1}, map[string]any{}, map[string]any{"x": []any{nil}}, strangeWords[r.IntN(len(strangeWords))]}[r.IntN(11)]
	}
	kind, _ := s["type"].(string)
	if list, ok := s["enum"].([]any); ok && r.IntN(4) > 0 {
		return list[r.IntN(len(list))]
	}
	switch {
	case name == "command":
		if r.IntN(4) == 0 {
			return strangeWords[r.IntN(len(strangeWords))]
		}
		return harmless[r.IntN(len(harmless))]
	case name == "label" || name == "parent":
		return []string{"f1", "f2", "f3", "closed", "none"}[r.IntN(5)]
	case name == "agent":
		return []string{"me", "me", "me", "other"}[r.IntN(4)]
	case name == "command_id" || name == "id":
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.ids[r.IntN(len(f.ids))]
	case name == "cwd":
		return []string{"/", f.h.Work, "relative", "/none", ""}[r.IntN(5)]
	case name == "from":
		return []string{"1.32", "1.33", "9.9", "x", ""}[r.IntN(5)]
	case name == "timeout_ms" || name == "queue_timeout_ms":
		return []int{1, 50, 300}[r.IntN(3)]
	}
	switch kind {
	case "boolean":
		return r.IntN(2) == 0
	case "integer", "number":
		return []any{0, 1, 2, 1000, 1<<31 - 1, 1 << 31, 1 << 53, 67108864, 67108865, int64(1<<63 - 1)}[r.IntN(10)]
	case "object":
		if s["properties"] == nil {
			return map[string]any{"K": "v", "LANG": "C"}
		}
		return f.object(r, s, false)
	case "array":
		return []any{}
	}
	if s["contentEncoding"] == "base64" {
		return []string{"aGk=", "", "!"}[r.IntN(3)]
	}
	return strangeWords[r.IntN(len(strangeWords))]
}

// object makes a body: some of its fields, perhaps one that is wrong, too much, or
// missing.
func (f *fuzzer) object(r *rand.Rand, s map[string]any, bad bool) map[string]any {
	s = f.resolve(s)
	m := map[string]any{}
	need, _ := s["required"].([]any)
	var names []string
	for name := range s["properties"].(map[string]any) {
		names = append(names, name)
	}
	slices.Sort(names)
	wrong := ""
	if bad {
		wrong = names[r.IntN(len(names))]
	}
	for _, name := range names {
		p := s["properties"].(map[string]any)[name].(map[string]any)
		if slices.Contains(need, any(name)) || name == wrong || r.IntN(3) == 0 {
			m[name] = f.value(r, name, p, name == wrong)
		}
	}
	if bad && r.IntN(3) == 0 {
		m[[]string{"extra", "", "__proto__", "Command ", "\x00"}[r.IntN(5)]] = 1
	}
	if bad && r.IntN(3) == 0 && len(need) > 0 {
		delete(m, need[r.IntN(len(need))].(string))
	}
	return m
}

// made is a request, in bytes, and what to do with it.
type made struct {
	op        operation
	bytes     []byte
	method    string
	half, cut bool
	bad       bool
}

// request makes one for an operation, right or wrong.
func (f *fuzzer) request(r *rand.Rand, op operation) made {
	q := made{op: op, method: op.method, bad: r.IntN(2) == 0}
	// Nothing that makes the daemon leave: only what it must refuse.
	if op.id == "shutdown" {
		q.bad = true
	}
	path := op.path
	query := url.Values{}
	params, _ := op.m["parameters"].([]any)
	var header strings.Builder
	for _, p := range params {
		p := p.(map[string]any)
		name := p["name"].(string)
		bad := q.bad && r.IntN(3) == 0
		v := fmt.Sprint(f.value(r, name, p["schema"].(map[string]any), bad))
		switch p["in"] {
		case "path":
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(v), 1)
		case "query":
			if r.IntN(2) == 0 {
				query.Set(name, v)
				if bad && r.IntN(4) == 0 {
					query.Add(name, v)
				}
			}
		case "header":
			if r.IntN(2) == 0 {
				fmt.Fprintf(&header, "%s: %s\r\n", name, strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(v))
			}
		}
	}
	if q.bad && r.IntN(4) == 0 {
		query.Set([]string{"extra", "", "Wait", "a;b"}[r.IntN(4)], "1")
	}
	if strings.HasSuffix(strings.ToLower(op.id), "screen") && !query.Has("timeout_ms") {
		query.Set("timeout_ms", "300") // whatever it waits for, it ends
	}
	raw := query.Encode()
	if q.bad && r.IntN(8) == 0 {
		raw += "&%zz=%"
	}
	var body []byte
	if rb, ok := op.m["requestBody"].(map[string]any); ok {
		content := rb["content"].(map[string]any)
		if js, ok := content["application/json"].(map[string]any); ok {
			m := f.object(r, js["schema"].(map[string]any), q.bad)
			if (op.id == "exec" || op.id == "ask" || strings.HasSuffix(strings.ToLower(op.id), "wait")) && m["timeout_ms"] == nil {
				m["timeout_ms"] = 300 // whatever it is, it ends
			}
			if op.id == "shutdown" {
				m["extra"] = 1
			}
			body, _ = json.Marshal(m)
			if q.bad && r.IntN(6) == 0 {
				body = [][]byte{[]byte("{"), []byte("[]"), []byte(`{"all":tru`), []byte("{} {}"), bytes.Repeat([]byte("["), 20000), []byte("\xff\xfe")}[r.IntN(6)]
			}
			kind := "application/json"
			if q.bad && r.IntN(6) == 0 {
				kind = []string{"text/xml", "multipart/form-data; boundary=x", ";;;"}[r.IntN(3)]
			}
			fmt.Fprintf(&header, "Content-Type: %s\r\n", kind)
		} else {
			body = make([]byte, r.IntN(5000))
			for i := range body {
				body[i] = byte(r.IntN(4))
			}
		}
	} else if q.bad && r.IntN(5) == 0 {
		body = []byte(`{"x":1}`)
	}
	if q.bad && r.IntN(6) == 0 && op.id != "shutdown" {
		q.method = []string{"DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW", "GET", "POST"}[r.IntN(9)]
		if (q.method == "GET" || q.method == "POST") && q.method != op.method {
			q.bad = true
		}
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&header, "Accept: %s\r\n", []string{"text/event-stream", "application/vnd.conch.tape", "*/*", "application/json", "x"}[r.IntN(5)])
	}
	if q.bad && r.IntN(30) == 0 {
		fmt.Fprintf(&header, "X-Long: %s\r\n", strings.Repeat("x", 70_000))
	}
	if raw != "" {
		path += "?" + raw
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", q.method, path, []string{"conch", "s-6d652f6631.conch"}[r.IntN(2)], header.String())
	length := len(body)
	if q.bad && r.IntN(10) == 0 && op.id != "shutdown" {
		length += 1 + r.IntN(1000)
		q.half = true
	}
	switch {
	case length == 0 && q.method == "GET":
	case !q.half && r.IntN(4) == 0:
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n")
		var chunked bytes.Buffer
		for len(body) > 0 {
			n := min(len(body), 1+r.IntN(len(body)))
			fmt.Fprintf(&chunked, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		chunked.WriteString("0\r\n\r\n")
		body = chunked.Bytes()
	default:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", length)
	}
	if r.IntN(10) == 0 {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	q.bytes = b.Bytes()
	if q.bad && r.IntN(12) == 0 {
		q.bytes = q.bytes[:r.IntN(len(q.bytes))]
		q.cut = true
	}
	return q
}

// check judges an answer.
func (f *fuzzer) check(q made, resp *http.Response, body []byte, err error) error {
	if q.cut {
		return nil
	}
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	f.counts[resp.StatusCode/100].Add(1)
	if resp.Header.Get("Conch-Protocol") != "1" {
		return fmt.Errorf("status %d without Conch-Protocol: %.300q", resp.StatusCode, body)
	}
	if q.method == "HEAD" {
		return nil
	}
	if resp.StatusCode >= 400 {
		var e conch.ErrorBody
		if jerr := json.Unmarshal(body, &e); jerr != nil || !slices.Contains(conch.Kinds(), e.Error.Code) || e.Error.Message == "" {
			return fmt.Errorf("status %d is not of the error form: %.300q", resp.StatusCode, body)
		}
		if e.Error.Code.HTTPStatus() != resp.StatusCode {
			return fmt.Errorf("status %d with the code %s", resp.StatusCode, e.Error.Code)
		}
		if resp.StatusCode == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "" {
			return fmt.Errorf("405 without Allow")
		}
	}
	if resp.StatusCode == 500 {
		return fmt.Errorf("%s", body)
	}
	if q.method != q.op.method {
		return nil // what is described is another operation, if any
	}
	// A hostile path may be another operation's, or none.
	responses := q.op.m["responses"].(map[string]any)
	described, ok := responses[strconv.Itoa(resp.StatusCode)].(map[string]any)
	if !ok {
		if q.bad && resp.StatusCode == 404 {
			return nil
		}
		return fmt.Errorf("status %d is not described: %.300q", resp.StatusCode, body)
	}
	if resp.StatusCode != 200 {
		return nil
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	media, ok := described["content"].(map[string]any)[kind].(map[string]any)
	if !ok {
		return fmt.Errorf("content type %q is not described", kind)
	}
	if kind != "application/json" {
		return nil
	}
	at := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/200/content/application~1json/schema",
		strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(q.op.path), strings.ToLower(q.op.method))
	if media["schema"] == nil {
		return fmt.Errorf("no schema for the answer")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %.300q", err, body)
	}
	schema, err := f.compile(at)
	if err != nil {
		return err
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("the answer is not as described: %w: %.500q", err, body)
	}
	return nil
}

func (f *fuzzer) compile(at string) (*jsonschema.Schema, error) {
	if s, ok := f.schemas.Load(at); ok {
		return s.(*jsonschema.Schema), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.c.Compile(at)
	if err == nil {
		f.schemas.Store(at, s)
	}
	return s, err
}

// fds counts a process's open descriptors.
func fds(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return len(list)
}

// Requests made from the description, right and wrong in every way, are each answered
// in time and in form; nobody dies of them and nothing stays. CONCH_FUZZ_REQUESTS says
// how many, CONCH_FUZZ_SEED repeats a run.
func TestHostileRequests(t *testing.T) {
	h := New(t)
	h.OK("up")
	h.OK("exec", "-s", "closed", "echo archived; echo e >&2")
	closed := string(h.Last("closed").CommandID)
	h.OK("close", "closed")
	h.OK("exec", "-s", "f1", "echo one; seq 5000; echo e >&2")
	daemon := h.Daemon()

	resp, err := h.web().Get("http://conch/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	doc, err := jsonschema.UnmarshalJSON(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	f := &fuzzer{h: h, doc: doc.(map[string]any), c: jsonschema.NewCompiler(), ids: []string{closed, string(h.Last("f1").CommandID), "aaaaaaaa-1"}}
	if err := f.c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	total, seed := 1500, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("CONCH_FUZZ_REQUESTS")); err == nil {
		total = n
	}
	if n, err := strconv.ParseUint(os.Getenv("CONCH_FUZZ_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("CONCH_FUZZ_SEED=%d CONCH_FUZZ_REQUESTS=%d", seed, total)
	before := fds(t, daemon)
	ops := f.operations()
	var wg sync.WaitGroup
	var failures, ending, ended, lost atomic.Int64
	const workers = 6
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for range total / workers {
				op := ops[r.IntN(len(ops))]
				if op.id == "keeperShutdown" && r.IntN(4) > 0 {
					op = ops[r.IntN(len(ops))] // each costs a new keeper
				}
				q := f.request(r, op)
				ends := op.id == "close" || op.id == "keeperShutdown"
				if ends {
					ending.Add(1)
				}
				seen := ended.Load()
				resp, body, err := h.raw(q.bytes, q.method, q.half, q.cut, 30*time.Second)
				// A session that was closed before it read a request resets the
				// connection: nothing was done, and it may be sent again.
				for try := 0; errors.Is(err, syscall.ECONNRESET) && try < 5; try++ {
					resp, body, err = h.raw(q.bytes, q.method, q.half, q.cut, 30*time.Second)
				}
				// One that was closed in the middle of a request may end it.
				cutOff := errors.Is(err, io.ErrUnexpectedEOF) && (ending.Load() > 0 || ended.Load() != seen)
				if ends {
					ended.Add(1)
					ending.Add(-1)
				}
				if cutOff {
					lost.Add(1)
					continue
				}
				if err := f.check(q, resp, body, err); err != nil && failures.Add(1) < 10 {
					t.Errorf("%s: %v\n%.1500q", op.id, err, q.bytes)
				}
				if resp != nil {
					id := resp.Header.Get("Conch-Command-Id")
					if op.id == "run" && resp.StatusCode == 200 {
						var p conch.Process
						json.Unmarshal(body, &p)
						id = string(p.ProcessID)
					}
					if id != "" {
						f.mu.Lock()
						if f.ids = append(f.ids, id); len(f.ids) > 40 {
							f.ids = slices.Delete(f.ids, 2, 4)
						}
						f.mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("answers: %d 2xx, %d 4xx, %d 5xx; %d ended with their session", f.counts[2].Load(), f.counts[4].Load(), f.counts[5].Load(), lost.Load())
	if lost.Load() > int64(total)/100 {
		t.Error("too many requests ended without an answer")
	}
	if f.counts[2].Load() < int64(total)/20 || f.counts[4].Load() < int64(total)/5 {
		t.Error("that was not much of a test")
	}
	if got := h.Daemon(); got != daemon {
		t.Errorf("the daemon was %d and is %d", daemon, got)
	}
	h.Want("f9", "echo alive", "alive\n")
	var list []conch.SessionInfo
	h.JSON(&list, "sessions", "--json")
	Until(t, 20*time.Second, "the daemon has let go of its connections", func() bool {
		const database = 9 // three files for the writer and for each of two readers
		return fds(t, daemon) <= before+2*len(list)+4+database
	})
	for _, s := range list {
		if s.KeeperPID > 0 && fds(t, s.KeeperPID) > 100 {
			t.Errorf("keeper of %s holds %d descriptors", s.Label, fds(t, s.KeeperPID))
		}
	}
}
