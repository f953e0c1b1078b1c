package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFiles(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte("let x"))
	z.Close()
	h := Files(fstest.MapFS{
		"index.html":                {Data: []byte("<p>")},
		"app-5XKQ2W3N.js.gz":        {Data: packed.Bytes()},
		"assets/style-a1b2c3d4.css": {Data: []byte("p{}")},
		"robots.txt":                {Data: []byte("no")},
		".hidden":                   {Data: []byte("no")},
	})
	for _, c := range []struct {
		method, path, accept    string
		status                  int
		body, kind, cache, code string
	}{
		{"GET", "/", "gzip", 200, "<p>", "text/html", "no-cache", ""},
		{"GET", "/index.html", "", 200, "<p>", "text/html", "no-cache", ""},
		{"GET", "/app-5XKQ2W3N.js", "br, gzip", 200, packed.String(), "text/javascript", "immutable", "gzip"},
		{"GET", "/app-5XKQ2W3N.js", "gzip;q=0", 200, "let x", "text/javascript", "immutable", ""},
		{"GET", "/app-5XKQ2W3N.js", "", 200, "let x", "text/javascript", "immutable", ""},
		{"HEAD", "/assets/style-a1b2c3d4.css", "", 200, "", "text/css", "immutable", ""},
		{"GET", "/robots.txt", "", 200, "no", "text/plain", "no-cache", ""},
		{"GET", "/app-5XKQ2W3N.js.gz", "", 404, "", "", "", ""},
		{"GET", "/.hidden", "", 404, "", "", "", ""},
		{"GET", "/nosuch", "", 404, "", "", "", ""},
		{"GET", "/../index.html", "", 404, "", "", "", ""},
		{"GET", "/assets", "", 404, "", "", "", ""},
		{"POST", "/", "", 405, "", "", "", ""},
	} {
		r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
		r.Header.Set("Accept-Encoding", c.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		b, _ := io.ReadAll(w.Body)
		got := w.Header()
		if w.Code != c.status || c.status == 200 && (string(b) != c.body || !strings.HasPrefix(got.Get("Content-Type"), c.kind) ||
			!strings.Contains(got.Get("Cache-Control"), c.cache) || got.Get("Content-Encoding") != c.code) {
			t.Errorf("%s %s: %d %q %v", c.method, c.path, w.Code, b, got)
		}
		if !strings.HasPrefix(got.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy", c.path)
		}
	}
}

// Without a build there is a page that says so.
func TestUnbuilt(t *testing.T) {
	w := httptest.NewRecorder()
	Files(fstest.MapFS{"README": {}}).ServeHTTP(w, httptest.NewRequest("GET", "http://x/", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "<code>make</code>") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://x/", nil))
	if w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}
