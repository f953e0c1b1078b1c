package api

import (
	"net/http"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/tty"
)

// pastScreen is what a process of a closed session showed last.
func pastScreen(r *http.Request, a *session.Archive, n uint32) (conch.Screen, error) {
	q, re, err := tty.ParseScreen(r.URL.Query())
	if err != nil {
		return conch.Screen{}, err
	}
	return a.Screen(n, q, re)
}
