// Package metrics is what conch counts, and how Prometheus reads it. A keeper
// counts in its own memory with a few atomic additions (Session) and tells the
// daemon when asked; the daemon sums and writes the text form (Writer).
//
// It is written by hand and small, because every keeper pays for what it links.
package metrics

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds are the upper ends of a histogram's buckets, in seconds: from a command
// that does nothing to one that runs for an hour. One more bucket takes the rest.
var Bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10, 60, 600, 3600}

// A Histogram counts durations. It may be used from any number of goroutines.
type Histogram struct {
	counts [len(Bounds) + 1]atomic.Int64
	nanos  atomic.Int64
}

// Observe counts one.
func (h *Histogram) Observe(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(Bounds) && s > Bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(max(d, 0)))
}

// Counts is a histogram as it travels: each bucket by itself, and the sum.
type Counts struct {
	Buckets []int64 `json:"buckets"`
	Nanos   int64   `json:"nanos"`
}

// Read takes the counts as they are.
func (h *Histogram) Read() Counts {
	c := Counts{Buckets: make([]int64, len(h.counts)), Nanos: h.nanos.Load()}
	for i := range h.counts {
		c.Buckets[i] = h.counts[i].Load()
	}
	return c
}

// A Counter may be used from any number of goroutines.
type Counter = atomic.Int64

// Session is what a keeper counts.
type Session struct {
	// Commands by how they ended.
	OK, Failed, TimedOut, Interrupted, Unknown, Refused Counter
	Duration, Wait                                      Histogram
	Stdout, Stderr, Stdin                               Counter
	ShellStarts                                         Counter // the first one included
	ByINT, ByTERM, ByKILL                               Counter // commands ended, by the last signal it took
	ProcessesOK, ProcessesFailed, ProcessesKilled       Counter // background processes that ended
}

// Stats is a Session as it travels, with what is true at the moment. A newer
// keeper may know more than an older daemon and the other way round: what is
// missing is zero.
type Stats struct {
	Total    map[string]int64 `json:"total"`
	Duration Counts           `json:"duration"`
	Wait     Counts           `json:"wait"`
	Queue    int              `json:"queue"`
	Busy     bool             `json:"busy"`
	Shell    int              `json:"shell_pid"` // 0: not started
	Tape     int64            `json:"tape_bytes"`
}

// The names in Stats.Total, with the series they become.
var totals = []struct{ name, metric, label, value string }{
	{"ok", "conch_commands_total", "outcome", "ok"},
	{"failed", "conch_commands_total", "outcome", "failed"},
	{"timed_out", "conch_commands_total", "outcome", "timed_out"},
	{"interrupted", "conch_commands_total", "outcome", "interrupted"},
	{"unknown", "conch_commands_total", "outcome", "unknown"},
	{"refused", "conch_commands_total", "outcome", "refused"},
	{"stdout", "conch_output_bytes_total", "stream", "stdout"},
	{"stderr", "conch_output_bytes_total", "stream", "stderr"},
	{"stdin", "conch_input_bytes_total", "", ""},
	{"shell_starts", "conch_shell_starts_total", "", ""},
	{"by_int", "conch_kills_total", "signal", "SIGINT"},
	{"by_term", "conch_kills_total", "signal", "SIGTERM"},
	{"by_kill", "conch_kills_total", "signal", "SIGKILL"},
	{"processes_ok", "conch_background_total", "outcome", "ok"},
	{"processes_failed", "conch_background_total", "outcome", "failed"},
	{"processes_killed", "conch_background_total", "outcome", "killed"},
}

// Read takes the counts as they are.
func (s *Session) Read() Stats {
	t := map[string]int64{
		"ok": s.OK.Load(), "failed": s.Failed.Load(), "timed_out": s.TimedOut.Load(), "interrupted": s.Interrupted.Load(),
		"unknown": s.Unknown.Load(), "refused": s.Refused.Load(), "stdout": s.Stdout.Load(), "stderr": s.Stderr.Load(), "stdin": s.Stdin.Load(),
		"shell_starts": s.ShellStarts.Load(), "by_int": s.ByINT.Load(), "by_term": s.ByTERM.Load(), "by_kill": s.ByKILL.Load(),
		"processes_ok": s.ProcessesOK.Load(), "processes_failed": s.ProcessesFailed.Load(), "processes_killed": s.ProcessesKilled.Load(),
	}
	return Stats{Total: t, Duration: s.Duration.Read(), Wait: s.Wait.Read()}
}

// A Sum adds up what sessions counted, also of those that are no more. It never
// goes down, which is what a counter promises. Not for concurrent use.
type Sum struct {
	total          map[string]int64
	duration, wait Counts
	last           map[string]Stats // what was added, by keeper
}

// Add takes a keeper's counts; key must differ from one keeper to the next.
func (s *Sum) Add(key string, now Stats) {
	if s.last == nil {
		s.last, s.total = map[string]Stats{}, map[string]int64{}
	}
	was := s.last[key]
	s.last[key] = now
	for n, v := range now.Total {
		s.total[n] += v - was.Total[n]
	}
	s.duration.add(now.Duration, was.Duration)
	s.wait.add(now.Wait, was.Wait)
}

// Forget drops the memory of keepers that are no more; what they counted stays.
func (s *Sum) Forget(alive func(key string) bool) {
	for k := range s.last {
		if !alive(k) {
			delete(s.last, k)
		}
	}
}

func (c *Counts) add(now, was Counts) {
	if len(now.Buckets) != len(Bounds)+1 {
		return // another version's bounds: they cannot be added
	}
	if c.Buckets == nil {
		c.Buckets = make([]int64, len(Bounds)+1)
	}
	for i := range now.Buckets {
		c.Buckets[i] += now.Buckets[i]
		if len(was.Buckets) == len(now.Buckets) {
			c.Buckets[i] -= was.Buckets[i]
		}
	}
	c.Nanos += now.Nanos - was.Nanos
}

// Write writes the sum's series.
func (s *Sum) Write(w *Writer) {
	help := map[string]string{
		"conch_commands_total":     "Commands by how they ended; refused ones never ran, of unknown ones nobody saw the end.",
		"conch_output_bytes_total": "Bytes that commands wrote.",
		"conch_input_bytes_total":  "Bytes that commands were given as input.",
		"conch_shell_starts_total": "Shells started; every one after a session's first is a restart.",
		"conch_background_total":   "Background processes by how they ended.",
		"conch_kills_total":        "Commands ended by conch, by the last signal it took.",
	}
	for _, t := range totals {
		w.Family(t.metric, "counter", help[t.metric])
		if t.label == "" {
			w.Value(t.metric, float64(s.total[t.name]))
		} else {
			w.Value(t.metric, float64(s.total[t.name]), t.label, t.value)
		}
	}
	w.Histogram("conch_command_duration_seconds", "How long commands ran.", s.duration)
	w.Histogram("conch_command_wait_seconds", "How long commands waited in their session's queue.", s.wait)
}

// A Writer writes the Prometheus text form, version 0.0.4.
type Writer struct {
	w      io.Writer
	err    error
	family string
	seen   map[string]bool
}

// ContentType is the text form's.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, seen: map[string]bool{}} }

// Err is the first error of writing.
func (w *Writer) Err() error { return w.err }

func (w *Writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

// Family begins a metric, if it is not the one being written. The series of one
// stand together.
func (w *Writer) Family(name, kind, help string) {
	if w.family == name {
		return
	}
	if w.seen[name] && w.err == nil {
		w.err = fmt.Errorf("metrics: %s is written twice", name)
	}
	w.family, w.seen[name] = name, true
	w.printf("# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help), name, kind)
}

// Value writes one series; labels are names and values in turn.
func (w *Writer) Value(name string, v float64, labels ...string) {
	w.printf("%s%s %s\n", name, labelText(labels), number(v))
}

// Gauge writes a metric that has one value.
func (w *Writer) Gauge(name, help string, v float64) {
	w.Family(name, "gauge", help)
	w.Value(name, v)
}

// Counter writes a metric that has one value and only grows.
func (w *Writer) Counter(name, help string, v float64) {
	w.Family(name, "counter", help)
	w.Value(name, v)
}

// Histogram writes a metric's buckets, each with all below it, sum and count.
func (w *Writer) Histogram(name, help string, c Counts, labels ...string) {
	w.Family(name, "histogram", help)
	total := int64(0)
	for i := range len(Bounds) + 1 {
		if i < len(c.Buckets) {
			total += c.Buckets[i]
		}
		le := "+Inf"
		if i < len(Bounds) {
			le = number(Bounds[i])
		}
		w.Value(name+"_bucket", float64(total), append(slices.Clone(labels), "le", le)...)
	}
	w.Value(name+"_sum", float64(c.Nanos)/1e9, labels...)
	w.Value(name+"_count", float64(total), labels...)
}

func labelText(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	esc := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="` + esc.Replace(labels[i+1]) + `"`)
	}
	return b.String() + "}"
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
