package api

import "net/http"

// importLog reads its body as it comes: a log may be larger than memory, and
// has no limit but the disk's.
func (s *server) importLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	v, err := s.h.Import(r.Context(), q.Get("agent"), q.Get("label"), r.Body)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}
