package api

import (
	"net/http"

	"github.com/conchsh/conch/internal/host"
)

// watch streams what changes on this machine.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	last := r.URL.Query().Get("after")
	if last == "" {
		last = r.Header.Get("Last-Event-ID")
	}
	st := newStream(w)
	err := s.h.Watch(r.Context(), last, func(u host.Update) error { return st.named(u.Type, u.ID, u.Value) }, st.beat)
	st.end(r, err)
}
