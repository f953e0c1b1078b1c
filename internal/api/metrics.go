package api

import (
	"bytes"
	"io"
	"net/http"

	"github.com/conchsh/conch/internal/metrics"
)

// metrics is what Prometheus reads.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if err := s.h.Metrics(r.Context(), &b); err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", metrics.ContentType)
	b.WriteTo(w)
}

// healthz says ok only if the daemon can do its work.
func (s *server) healthz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.h.Health(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, err.Error()+"\n")
		return
	}
	io.WriteString(w, "ok\n")
}
