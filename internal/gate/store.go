package gate

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/session"
)

// File is where hashes are kept, in the home.
const File = "access.json"

const (
	maxTokens = 1000
	// maxLogins is how many browsers may be in; the one that came first goes.
	maxLogins = 100
	// LoginTime is how long a browser stays in.
	LoginTime = 7 * 24 * time.Hour
	// tokenPrefix is how a token is known when it turns up where it should not.
	tokenPrefix = "conch_"
)

// kept is access.json.
type kept struct {
	Version  int      `json:"version"`
	PagePort int      `json:"page_port"`
	Tokens   []secret `json:"tokens"`
	Logins   []secret `json:"logins"`
}

// A secret is what is kept of one: its hash. 256 random bits need no slow hash.
type secret struct {
	conch.TokenInfo
	Hash string `json:"sha256"`

	scope route.Scope
	cuts  map[*func()]bool // what is open under it
}

type store struct {
	path string

	mu   sync.Mutex // guards what follows; held while the file is written
	kept kept
}

func (s *store) open(home string) error {
	s.path = filepath.Join(home, File)
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi, err := os.Stat(s.path); err == nil && fi.Mode().Perm()&0o077 != 0 {
		return conch.Errorf(conch.HomeUnusable, "%s can be read by others (mode %v)", s.path, fi.Mode().Perm()).Hint("chmod 600 %s", s.path)
	}
	if err := json.Unmarshal(b, &s.kept); err != nil || s.kept.Version != 1 {
		return conch.Errorf(conch.HomeUnusable, "%s cannot be read: %v", s.path, err).Hint("move it away: tokens and logins are then gone, nothing else is")
	}
	for _, list := range [][]secret{s.kept.Tokens, s.kept.Logins} {
		for i := range list {
			if list[i].scope, err = route.ParseScope(list[i].Scopes); err != nil {
				return conch.Errorf(conch.HomeUnusable, "%s: %v", s.path, err)
			}
		}
	}
	for i := range s.kept.Tokens {
		s.kept.Tokens[i].Kind = conch.ViaToken // which older files do not say
	}
	for i := range s.kept.Logins {
		c := &s.kept.Logins[i]
		c.Kind, c.Name = conch.ViaPage, loginName(c.Hash)
	}
	return nil
}

// loginName names a login, for those who end it.
func loginName(hash string) string { return "page-" + hash[:min(8, len(hash))] }

// named finds what has a name: tokens and logins share them.
func (k *kept) named(name string) *secret {
	for _, list := range [][]secret{k.Tokens, k.Logins} {
		if i := slices.IndexFunc(list, func(o secret) bool { return o.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// forget takes out what gone says.
func (k *kept) forget(gone func(secret) bool) {
	k.Tokens, k.Logins = slices.DeleteFunc(k.Tokens, gone), slices.DeleteFunc(k.Logins, gone)
}

// save writes the file. What it cannot write is undone by the caller.
func (s *store) save() error {
	s.kept.Version = 1
	if err := session.WriteJSON(s.path, s.kept); err != nil {
		return conch.Errorf(conch.StorageFull, "%s cannot be written: %v", s.path, err).Hint("nothing was changed")
	}
	return nil
}

// change applies f to what is kept, on disk before it counts, and ends what is open
// under what is gone.
func (s *store) change(f func(*kept) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.kept
	s.kept.Tokens, s.kept.Logins = slices.Clone(old.Tokens), slices.Clone(old.Logins)
	err := f(&s.kept)
	if err == nil {
		err = s.save()
	}
	if err != nil {
		s.kept = old
		return err
	}
	there := map[string]bool{}
	for _, c := range slices.Concat(s.kept.Tokens, s.kept.Logins) {
		there[c.Hash] = true
	}
	for _, c := range slices.Concat(old.Tokens, old.Logins) {
		if !there[c.Hash] {
			for cut := range c.cuts {
				(*cut)()
			}
		}
	}
	return nil
}

func randomText() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (c *secret) expired(now time.Time) bool { return c.ExpiresAt != nil && !now.Before(*c.ExpiresAt) }

// find compares a text with every secret of a list, whichever fits.
func find(list []secret, text string) *secret {
	h := []byte(hash(text))
	var found *secret
	for i := range list {
		if subtle.ConstantTimeCompare(h, []byte(list[i].Hash)) == 1 {
			found = &list[i]
		}
	}
	return found
}

func newSecret(kind, name string, scope route.Scope, decides bool, life time.Duration) (secret, string) {
	text := randomText()
	now := time.Now().UTC()
	c := secret{TokenInfo: conch.TokenInfo{Kind: kind, Name: name, Scopes: scope.Names(), CreatedAt: now, Decides: decides && scope.Allows(route.ScopeAdmin)}, scope: scope}
	if life > 0 {
		at := now.Add(life)
		c.ExpiresAt = &at
	}
	return c, text
}

// NewToken makes a token, for a person unless q says otherwise. Its secret is in the
// answer and nowhere else.
func (g *Gate) NewToken(q conch.NewTokenRequest) (conch.NewToken, error) {
	if err := conch.CheckLabel(q.Name); err != nil {
		return conch.NewToken{}, err
	}
	scope, err := route.ParseScope(q.Scopes)
	if err != nil {
		return conch.NewToken{}, err
	}
	const most = 100 * 365 * 24 * time.Hour
	if q.ExpiresMS < 0 || q.ExpiresMS > most.Milliseconds() {
		return conch.NewToken{}, conch.Errorf(conch.InvalidRequest, "expires_ms is not between 0 and %d", most.Milliseconds())
	}
	c, text := newSecret(conch.ViaToken, q.Name, scope, !q.NoPerson, time.Duration(q.ExpiresMS)*time.Millisecond)
	text = tokenPrefix + text
	c.Hash = hash(text)
	err = g.store.change(func(k *kept) error {
		now := time.Now()
		k.forget(func(o secret) bool { return o.Name == q.Name && o.expired(now) })
		switch {
		case k.named(q.Name) != nil:
			return conch.Errorf(conch.NameTaken, "there is a token %s", q.Name).Hint("conch token revoke %s takes it back", q.Name)
		case len(k.Tokens) >= maxTokens:
			return conch.Errorf(conch.LimitReached, "there are %d tokens, which is the limit", maxTokens).Hint("conch token revoke takes one back")
		}
		k.Tokens = append(k.Tokens, c)
		return nil
	})
	if err != nil {
		return conch.NewToken{}, err
	}
	g.openWanted()
	return conch.NewToken{TokenInfo: c.TokenInfo, Token: text}, nil
}

// Tokens lists them, the oldest first, those that have expired too; then the logins
// that have not.
func (g *Gate) Tokens() []conch.TokenInfo {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	list := []conch.TokenInfo{}
	for _, c := range g.store.kept.Tokens {
		list = append(list, c.TokenInfo)
	}
	now := time.Now()
	for _, c := range g.store.kept.Logins {
		if !c.expired(now) {
			list = append(list, c.TokenInfo)
		}
	}
	return list
}

// Revoke takes a token back, or ends a login, and what is open under it.
func (g *Gate) Revoke(name string) error {
	return g.store.change(func(k *kept) error {
		if k.named(name) == nil {
			return conch.Errorf(conch.TokenNotFound, "there is no token %s, nor a login", name).Hint("conch token ls lists them")
		}
		k.forget(func(o secret) bool { return o.Name == name })
		return nil
	})
}

// LogOut shuts all browsers out, those too that were given an address and have not
// come, and says how many were in.
func (g *Gate) LogOut() (conch.LoggedOut, error) {
	g.forgetCodes()
	var out conch.LoggedOut
	err := g.store.change(func(k *kept) error {
		now := time.Now()
		for _, c := range k.Logins {
			if !c.expired(now) {
				out.LoggedOut++
			}
		}
		k.Logins = nil
		return nil
	})
	return out, err
}

// use finds who a secret lets in. cut is called if it is taken back before done is.
func (s *store) use(page bool, text string, cut func()) (gr Grant, done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, via := s.kept.Tokens, conch.ViaToken
	if page {
		list, via = s.kept.Logins, conch.ViaPage
	}
	c := find(list, text)
	if c == nil || c.expired(time.Now()) {
		return Grant{}, nil, false
	}
	if c.cuts == nil {
		c.cuts = map[*func()]bool{} // shared by the copies that change makes
	}
	key, cuts := &cut, c.cuts
	cuts[key] = true
	gr = Grant{Via: via, Name: c.Name, Scope: c.scope, Decides: c.Decides}
	if c.ExpiresAt != nil {
		gr.Expires = *c.ExpiresAt
	}
	return gr, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(cuts, key)
	}, true
}

func (s *store) pagePort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.PagePort
}

func (s *store) setPagePort(n int) error {
	if s.pagePort() == n {
		return nil
	}
	return s.change(func(k *kept) error { k.PagePort = n; return nil })
}

// hasToken reports whether there is a token that lets somebody in.
func (s *store) hasToken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.kept.Tokens, func(c secret) bool { return !c.expired(time.Now()) })
}

// loggedIn reports whether some browser may come back.
func (s *store) loggedIn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.kept.Logins, func(c secret) bool { return !c.expired(time.Now()) })
}

// logIn keeps a new login and gives its secret.
func (s *store) logIn(scope route.Scope, decides bool) (text string, until time.Time, err error) {
	var c secret
	err = s.change(func(k *kept) error {
		for c.Name == "" || k.named(c.Name) != nil {
			c, text = newSecret(conch.ViaPage, "", scope, decides, LoginTime)
			c.Hash = hash(text)
			c.Name = loginName(c.Hash)
		}
		now := time.Now()
		k.Logins = slices.DeleteFunc(k.Logins, func(o secret) bool { return o.expired(now) })
		if n := len(k.Logins) - maxLogins + 1; n > 0 {
			k.Logins = slices.Delete(k.Logins, 0, n)
		}
		k.Logins = append(k.Logins, c)
		return nil
	})
	return text, *c.ExpiresAt, err
}

// logOut forgets a login and ends what is open under it.
func (s *store) logOut(text string) error {
	h := hash(text)
	return s.change(func(k *kept) error {
		k.forget(func(o secret) bool { return o.Kind == conch.ViaPage && o.Hash == h })
		return nil
	})
}
