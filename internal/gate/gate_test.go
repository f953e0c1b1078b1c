package gate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func open(t *testing.T, home string) *Gate {
	t.Helper()
	g, err := Open(Options{Home: home, Log: slog.New(slog.DiscardHandler), Fail: func(w http.ResponseWriter, err error) {
		e := conch.AsError(err)
		w.WriteHeader(e.Kind.HTTPStatus())
		json.NewEncoder(w).Encode(e.Body())
	}})
	if err != nil {
		t.Fatal(err)
	}
	g.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "api") }),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") }))
	t.Cleanup(func() { g.Close() })
	return g
}

// post logs in at a link.
func post(t *testing.T, link string) *http.Response {
	t.Helper()
	base, code, _ := strings.Cut(link, "/#login=")
	req, _ := http.NewRequest("POST", base+LoginPath, strings.NewReader(`{"code":"`+code+`"}`))
	req.Header.Set("Origin", base)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// A code that waited too long lets nobody in, and its file is gone with it.
func TestOldLink(t *testing.T) {
	g := open(t, t.TempDir())
	link, err := g.Link(conch.PageRequest{File: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(link.File)
	if fi, serr := os.Stat(link.File); err != nil || serr != nil || fi.Mode().Perm() != 0o600 || !strings.Contains(string(b), link.URL) {
		t.Errorf("%v %v %s", err, serr, b)
	}
	if d := time.Until(link.ExpiresAt); d > codeTime || d < codeTime/2 {
		t.Errorf("good for %v", d)
	}
	g.mu.Lock()
	for key, c := range g.codes {
		c.until = time.Now().Add(-time.Millisecond)
		g.codes[key] = c
	}
	g.mu.Unlock()
	if resp := post(t, link.URL); resp.StatusCode != 401 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if _, err := os.Stat(link.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// Of many browsers that use one link at once, one gets in.
func TestLinkRace(t *testing.T) {
	g := open(t, t.TempDir())
	link, err := g.Link(conch.PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for range 20 {
		wg.Go(func() {
			if resp := post(t, link.URL); resp.StatusCode == 204 {
				mu.Lock()
				defer mu.Unlock()
				in++
			}
		})
	}
	wg.Wait()
	if in != 1 {
		t.Errorf("%d got in", in)
	}
}

// A login ends when its time is over, and is known to the next daemon until then.
func TestLoginEnds(t *testing.T) {
	home := t.TempDir()
	g := open(t, home)
	link, err := g.Link(conch.PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	resp := post(t, link.URL)
	cookie, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	ask := func() (int, string) {
		req, _ := http.NewRequest("GET", g.PageURL()+"v1/x", nil)
		req.Header.Set("Cookie", cookie)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if status, body := ask(); status != 200 || body != "api" {
		t.Fatalf("%d %s", status, body)
	}
	was := g.PageURL()
	http.DefaultClient.CloseIdleConnections()
	g.Close()
	g = open(t, home)
	if g.PageURL() != was {
		t.Fatalf("the page was at %s and is at %s", was, g.PageURL())
	}
	if status, body := ask(); status != 200 || body != "api" {
		t.Errorf("the next daemon: %d %s", status, body)
	}
	past := time.Now().Add(-time.Second)
	g.store.change(func(k *kept) error { k.Logins[0].ExpiresAt = &past; return nil })
	if status, _ := ask(); status != 401 {
		t.Errorf("an old login: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
	g.Close()
	if g = open(t, home); g.PageURL() != "" {
		t.Errorf("a page that nobody may see is served at %s", g.PageURL())
	}
}

func TestTokens(t *testing.T) {
	home := t.TempDir()
	g := open(t, home)
	tok, err := g.NewToken(conch.NewTokenRequest{Name: "ci", Scopes: []string{"read"}})
	if err != nil || len(tok.Token) != len(tokenPrefix)+43 {
		t.Fatalf("%v %v", tok, err)
	}
	for want, q := range map[conch.Kind]conch.NewTokenRequest{
		conch.NameTaken:      {Name: "ci", Scopes: []string{"read"}},
		conch.InvalidLabel:   {Name: "a/b", Scopes: []string{"read"}},
		conch.InvalidRequest: {Name: "x", Scopes: []string{"all"}},
	} {
		if _, err := g.NewToken(q); !errors.Is(err, want) {
			t.Errorf("%v: %v", q, err)
		}
	}
	g = open(t, home)
	if gr, done, ok := g.store.use(false, tok.Token, nil); !ok || gr.Name != "ci" || gr.Scope.String() != "read" {
		t.Errorf("%v %v", gr, ok)
	} else {
		done()
	}
	for _, wrong := range []string{"", "ci", hash(tok.Token), tok.Token + "x", tok.Token[:len(tok.Token)-1], strings.ToUpper(tok.Token)} {
		if _, _, ok := g.store.use(false, wrong, nil); ok {
			t.Errorf("%q is let in", wrong)
		}
		if _, _, ok := g.store.use(true, tok.Token, nil); ok {
			t.Error("a token is taken for a cookie")
		}
	}
	// One that has expired gives its name back.
	if _, err := g.NewToken(conch.NewTokenRequest{Name: "short", Scopes: []string{"mail"}, ExpiresMS: 1}); err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(*g.Tokens()[1].ExpiresAt) {
	}
	if _, err := g.NewToken(conch.NewTokenRequest{Name: "short", Scopes: []string{"mail"}}); err != nil {
		t.Error(err)
	}
	if err := g.Revoke("nosuch"); !errors.Is(err, conch.TokenNotFound) {
		t.Error(err)
	}
	// A file that others can read, or that is no such file, is not used.
	path := filepath.Join(home, File)
	os.Chmod(path, 0o644)
	if _, err := Open(Options{Home: home}); !errors.Is(err, conch.HomeUnusable) {
		t.Errorf("readable: %v", err)
	}
	os.WriteFile(path, []byte("{}"), 0o600)
	os.Chmod(path, 0o600)
	if _, err := Open(Options{Home: home}); !errors.Is(err, conch.HomeUnusable) {
		t.Errorf("damaged: %v", err)
	}
}

// A file from before there were kinds: its logins have names and can be ended, and
// nothing in it decides for a person.
func TestOlderFile(t *testing.T) {
	home := t.TempDir()
	far := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	older := `{"version":1,"page_port":0,"tokens":[{"name":"ci","scopes":["admin"],"created_at":"2026-01-01T00:00:00Z","expires_at":null,"sha256":"` + hash("a") + `"}],
		"logins":[{"name":"page","scopes":["admin"],"created_at":"2026-01-01T00:00:00Z","expires_at":"` + far + `","sha256":"` + hash("b") + `"}]}`
	if err := os.WriteFile(filepath.Join(home, File), []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	g := open(t, home)
	list := g.Tokens()
	if len(list) != 2 || list[0].Kind != conch.ViaToken || list[1].Kind != conch.ViaPage || list[1].Name != loginName(hash("b")) || list[0].Decides || list[1].Decides {
		t.Fatalf("%+v", list)
	}
	if _, err := g.NewToken(conch.NewTokenRequest{Name: list[1].Name, Scopes: []string{"read"}}); !errors.Is(err, conch.NameTaken) {
		t.Errorf("a token called as a login: %v", err)
	}
	cut := false
	gr, _, ok := g.store.use(true, "b", func() { cut = true })
	if !ok || gr.Decides {
		t.Errorf("%+v %v", gr, ok)
	}
	if err := g.Revoke(list[1].Name); err != nil || !cut {
		t.Errorf("%v; what was open goes on: %v", err, !cut)
	}
	if _, _, ok := g.store.use(true, "b", nil); ok {
		t.Error("it is let in")
	}
}

// What cannot be written down has not happened.
func TestTokenNotKept(t *testing.T) {
	home := t.TempDir()
	g := open(t, home)
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	if _, err := g.NewToken(conch.NewTokenRequest{Name: "ci", Scopes: []string{"read"}}); !errors.Is(err, conch.StorageFull) {
		t.Errorf("%v", err)
	}
	if list := g.Tokens(); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

// Two that want a certificate get the same.
func TestOneCertificate(t *testing.T) {
	home := t.TempDir()
	var prints [2]string
	for i := range prints {
		g := open(t, home)
		if i == 0 {
			if _, err := g.Listen("127.0.0.1:0"); !errors.Is(err, conch.TokenNotFound) {
				t.Errorf("without a token: %v", err)
			}
			if _, err := g.NewToken(conch.NewTokenRequest{Name: "ci", Scopes: []string{"read"}}); err != nil {
				t.Fatal(err)
			}
		}
		info, err := g.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		prints[i] = info.Fingerprint
		if again, err := g.Listen("127.0.0.1:0"); err != nil || again != info {
			t.Errorf("%v %v", again, err)
		}
		if _, err := g.Listen("127.0.0.1:1"); !errors.Is(err, conch.AlreadyRunning) {
			t.Errorf("a second address: %v", err)
		}
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := g.Link(conch.PageRequest{}); !errors.Is(err, conch.NotRunning) {
			t.Errorf("after the end: %v", err)
		}
	}
	if prints[0] != prints[1] || prints[0] == "" {
		t.Errorf("%v", prints)
	}
	if err := os.Remove(filepath.Join(home, certDir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, home).Listen("127.0.0.1:0"); !errors.Is(err, conch.InvalidConfig) {
		t.Errorf("without its key: %v", err)
	}
}
