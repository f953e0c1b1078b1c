package gate

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// The paths by which a browser comes in and goes. They are on the page's port only.
const (
	LoginPath  = "/login"
	LogoutPath = "/logout"
)

const (
	// codeTime is how long a code waits for its browser.
	codeTime = time.Minute
	maxCodes = 100
)

// A code lets one browser in, once.
type code struct {
	scope   route.Scope
	decides bool
	until   time.Time
	file    string // that leads to it
}

// Link serves the page and makes an address that lets one browser in, for a person
// unless q says otherwise. The code is in the fragment, which no browser sends and no
// server logs.
func (g *Gate) Link(q conch.PageRequest) (conch.PageLink, error) {
	if q.Port < 0 || q.Port > 65535 {
		return conch.PageLink{}, conch.Errorf(conch.InvalidRequest, "%d is no port", q.Port)
	}
	p, err := g.openPage(q.Port)
	if err != nil {
		return conch.PageLink{}, err
	}
	text := randomText()
	c := code{scope: route.ScopeAdmin, decides: !q.NoPerson && !q.ReadOnly, until: time.Now().Add(codeTime)}
	if q.ReadOnly {
		c.scope = route.ScopeRead
	}
	link := conch.PageLink{URL: p.url() + "#login=" + text, ExpiresAt: c.until.UTC(), Decides: c.decides}
	if q.File {
		if c.file, err = writeLink(g.o.Home, link.URL); err != nil {
			return conch.PageLink{}, err
		}
		link.File = c.file
	}
	key := sha256.Sum256([]byte(text))
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.codes) >= maxCodes {
		c.remove()
		return conch.PageLink{}, conch.Errorf(conch.LimitReached, "%d addresses wait for their browsers", maxCodes).Hint("each waits for %v", codeTime).Retry()
	}
	g.codes[key] = c
	time.AfterFunc(codeTime, func() { g.takeCode(key) })
	return link, nil
}

// takeCode uses a code up.
func (g *Gate) takeCode(key [32]byte) (code, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.codes[key]
	delete(g.codes, key)
	c.remove()
	return c, ok && time.Now().Before(c.until)
}

func (g *Gate) forgetCodes() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, c := range g.codes {
		c.remove()
		delete(g.codes, key)
	}
}

func (c code) remove() {
	if c.file != "" {
		os.Remove(c.file)
	}
}

// writeLink writes the file that leads a browser to an address, in a directory that
// only the owner can look into.
func writeLink(home, address string) (string, error) {
	dir := filepath.Join(home, "run") // which may be elsewhere, for a long path
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "ui-*.html") // 0600
	if err == nil {
		_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>conch</title>\n<meta http-equiv=refresh content=\"0; url=%s\">\n<a href=\"%[1]s\">conch</a>\n", address)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}
	if err != nil {
		return "", conch.Errorf(conch.StorageFull, "cannot write a file for the browser: %v", err).Hint("conch ui --print prints the address")
	}
	return f.Name(), nil
}

// Sweep removes what a daemon that was killed left.
func (g *Gate) Sweep() {
	list, _ := filepath.Glob(filepath.Join(g.o.Home, "run", "ui-*.html"))
	for _, path := range list {
		os.Remove(path)
	}
}

// cookie is the name of the page's cookie. Cookies are shared by all ports of a
// host, so another home's must have another name.
func (p *port) cookie() string { return "conch_" + p.num }

func (p *port) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: p.cookie(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// serveLogin takes a code and gives a cookie.
func (g *Gate) serveLogin(w http.ResponseWriter, r *http.Request, p *port, from *peer) {
	err := onlyPost(w, r)
	var q struct {
		Code string `json:"code"`
	}
	if err == nil {
		err = readSmall(w, r, &q)
	}
	if err != nil {
		g.o.Fail(w, err)
		return
	}
	c, ok := g.takeCode(sha256.Sum256([]byte(q.Code)))
	if !ok {
		g.refuse(w, r, p, from, conch.Errorf(conch.Unauthorized, "this address was used before, or is older than %v", codeTime).Hint("conch ui prints another"))
		return
	}
	text, until, err := g.store.logIn(c.scope, c.decides)
	if err != nil {
		g.o.Fail(w, err)
		return
	}
	p.setCookie(w, text, int(time.Until(until).Seconds()))
	w.WriteHeader(http.StatusNoContent)
}

// serveLogout forgets a browser.
func (g *Gate) serveLogout(w http.ResponseWriter, r *http.Request, p *port) {
	err := onlyPost(w, r)
	if err == nil {
		err = g.store.logOut(p.secret(r))
	}
	if err != nil {
		g.o.Fail(w, err)
		return
	}
	p.setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}
