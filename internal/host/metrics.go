package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conchsh/conch/internal/metrics"
	"github.com/conchsh/conch/internal/proc"
)

// meter holds what the daemon itself counts, and the sum of what keepers did.
type meter struct {
	mu       sync.Mutex // guards what follows
	sum      metrics.Sum
	requests map[request]int64
	took     metrics.Histogram // safe by itself
}

// request is what HTTP requests are counted by.
type request struct {
	method, route string
	status        int
}

func (m *meter) retire(key string, st metrics.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Add(key, st)
}

// maxRoutes bounds the number of series: routes are patterns, but nobody knows
// what later ones look like.
const maxRoutes = 500

// CountRequest counts an HTTP request that the daemon answered.
func (h *Host) CountRequest(method, route string, status int, took time.Duration) {
	m := &h.meter
	m.took.Observe(took)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests = map[request]int64{}
	}
	k := request{method, route, status}
	if _, ok := m.requests[k]; !ok && len(m.requests) >= maxRoutes {
		k = request{"", "other", status}
	}
	m.requests[k]++
}

const (
	// scrapeLimit is what all keepers together get to answer, so that one that
	// hangs, or a thousand, cannot hold up a scrape.
	scrapeLimit   = 3 * time.Second
	scrapeWorkers = 64
)

// Metrics writes everything that is counted in Prometheus' text form.
func (h *Host) Metrics(ctx context.Context, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeLimit)
	defer cancel()
	sessions := h.Store.Sessions()
	type answer struct {
		st  metrics.Stats
		key string
		ok  bool
	}
	answers := make([]answer, len(sessions))
	marks := map[uint32]bool{}
	var wg sync.WaitGroup
	sem := make(chan struct{}, scrapeWorkers)
	keepers := 0
	for i, s := range sessions {
		if !s.Running() {
			continue
		}
		keepers++
		if k, ok := s.Record(); ok {
			marks[k.Mark] = true
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			a := &answers[i]
			a.st, a.key, a.ok = s.Stats(ctx)
		})
	}
	wg.Wait()
	busy, queue, silent, tape := 0, 0, keepers, int64(0)
	alive, shells := map[string]bool{}, map[int]bool{}
	m := &h.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range answers {
		alive[a.key] = a.key != ""
		if !a.ok {
			continue
		}
		silent--
		m.sum.Add(a.key, a.st)
		shells[a.st.Shell] = true
		queue += a.st.Queue
		tape += a.st.Tape
		if a.st.Busy {
			busy++
		}
	}
	processes := 0
	for _, id := range proc.Scan(func(k proc.Mark) bool { return marks[k.Session()] }) {
		if !shells[id.PID] {
			processes++
		}
	}
	m.sum.Forget(func(k string) bool { return alive[k] })

	w := metrics.NewWriter(to)
	w.Family("conch_info", "gauge", "Which conch this is.")
	w.Value("conch_info", 1, "version", h.Version)
	w.Gauge("conch_sessions", "Sessions that are open.", float64(len(sessions)))
	w.Gauge("conch_sessions_busy", "Sessions that are running a command.", float64(busy))
	w.Gauge("conch_keepers", "Sessions that have a keeper and, once used, a shell; the others sleep.", float64(keepers))
	w.Gauge("conch_keepers_silent", "Keepers that did not say what they counted, in time or at all.", float64(silent))
	w.Gauge("conch_queue_commands", "Commands that wait.", float64(queue))
	w.Gauge("conch_processes", "Processes that commands started and that run.", float64(processes))
	w.Gauge("conch_tape_bytes", "Bytes on the tapes of sessions that have a keeper.", float64(tape))
	m.sum.Write(w)
	w.Counter("conch_keeper_deaths_total", "Keepers that died without being told to.", float64(h.Store.Deaths.Load()))
	w.Counter("conch_handovers_total", "Connections handed to keepers.", float64(h.Store.Handovers.Load()))
	m.writeRequests(w)
	writeProcess(w)
	return w.Err()
}

func (m *meter) writeRequests(w *metrics.Writer) {
	keys := make([]request, 0, len(m.requests))
	for k := range m.requests {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b request) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	w.Family("conch_http_requests_total", "counter", "Requests that the daemon itself answered; those handed over are their keepers'.")
	for _, k := range keys {
		w.Value("conch_http_requests_total", float64(m.requests[k]), "method", k.method, "route", k.route, "code", strconv.Itoa(k.status))
	}
	w.Histogram("conch_http_request_duration_seconds", "How long the daemon took to answer.", m.took.Read())
}

// writeProcess writes what every Go program says of itself, under the names that
// dashboards know.
func writeProcess(w *metrics.Writer) {
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	w.Gauge("go_goroutines", "Goroutines of the daemon.", float64(runtime.NumGoroutine()))
	w.Gauge("go_memstats_heap_alloc_bytes", "Bytes of the daemon's heap in use.", float64(ms.HeapAlloc))
	w.Gauge("go_memstats_sys_bytes", "Bytes the daemon has from the system.", float64(ms.Sys))
	w.Counter("go_gc_cycles_total", "Garbage collections of the daemon.", float64(ms.NumGC))
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil {
		w.Counter("process_cpu_seconds_total", "Processor time of the daemon.", float64(ru.Utime.Nano()+ru.Stime.Nano())/1e9)
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			if pages, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				w.Gauge("process_resident_memory_bytes", "Memory of the daemon.", float64(pages)*float64(os.Getpagesize()))
			}
		}
	}
	if ents, err := os.ReadDir("/proc/self/fd"); err == nil {
		w.Gauge("process_open_fds", "Open descriptors of the daemon.", float64(len(ents)-1))
	}
}

// Health says what keeps the daemon from doing its work, nil if nothing does.
func (h *Host) Health() error {
	if h.Store.Leaving() {
		return errors.New("the daemon is shutting down")
	}
	dir := filepath.Join(h.Home, "sessions")
	// Only writing tells: of a full disk, a read-only one, one that is gone.
	f, err := os.CreateTemp(dir, ".health-")
	if err != nil {
		return fmt.Errorf("no session can be made: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return fmt.Errorf("nothing can be recorded: %w", err)
	}
	if _, err := os.Stat(h.Socket); err != nil {
		return fmt.Errorf("the socket is gone: %w", err)
	}
	return nil
}
