// Package web is the web page as files: what `make` built of web/ into dist, held in
// the binary. It knows nothing of conch; the page speaks to the API like any client.
//
// Without a build (go build alone) it serves a page that says how to make one. A file
// whose name holds a hash of its content is kept by browsers for ever, the rest is
// asked for each time. A file may be there in compressed form only (.gz), and is sent so
// to those who take that.
package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var built embed.FS

// policy lets the page run its own scripts and reach its own server, and nothing
// else. Styles are also allowed inline: the terminal's DOM renderer (xterm.js)
// writes style elements and attributes for its sizes and colours.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; " +
	"font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Handler serves the page that was built in.
func Handler() http.Handler {
	dist, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err) // the directory is named above
	}
	return Files(dist)
}

// Files serves a page from its files.
func Files(dist fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		if !fs.ValidPath(name) || strings.HasSuffix(name, ".gz") || strings.HasPrefix(path.Base(name), ".") {
			http.NotFound(w, r)
			return
		}
		b, err := fs.ReadFile(dist, name)
		packed := false
		if err != nil {
			if b, err = fs.ReadFile(dist, name+".gz"); err == nil {
				w.Header().Set("Vary", "Accept-Encoding")
				if packed = takesGzip(r.Header.Get("Accept-Encoding")); !packed {
					b, err = unpack(b)
				}
			}
		}
		if err != nil && name == "index.html" {
			b, err = []byte(unbuilt), nil
		}
		if err != nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		kind := mime.TypeByExtension(path.Ext(name))
		if kind == "" {
			kind = "application/octet-stream"
		}
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", "no-cache")
		if hashed(name) {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		if packed {
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Content-Length", strconv.Itoa(len(b)))
		if r.Method == http.MethodGet {
			w.Write(b)
		}
	})
}

func unpack(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// hashed reports whether a name ends in a hash, as bundlers write it:
// app-5XKQ2W3N.js, with eight or more of A-Z a-z 0-9 _.
func hashed(name string) bool {
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	_, sum, ok := cutLast(base, "-")
	return ok && len(sum) >= 8 && strings.IndexFunc(sum, func(r rune) bool {
		return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_')
	}) < 0
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, q, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" && strings.TrimSpace(q) != "q=0" {
			return true
		}
	}
	return false
}

const unbuilt = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>conch</title>
<h1>conch</h1>
<p>This conch was built without its web page. <code>make</code>, in its sources, builds both.
Everything else works: <code>conch help</code>.</p>
</html>
`
