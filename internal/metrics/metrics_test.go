package metrics

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, time.Second, 2 * time.Hour, -1} {
		h.Observe(d)
	}
	c := h.Read()
	if c.Buckets[0] != 3 || c.Buckets[1] != 1 || c.Buckets[7] != 1 || c.Buckets[len(Bounds)] != 1 {
		t.Error(c.Buckets)
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	w.Histogram("x_seconds", "x", c, "a", "q\"\\\n")
	for _, want := range []string{
		"# TYPE x_seconds histogram\n", `x_seconds_bucket{a="q\"\\\n",le="0.001"} 3` + "\n", `le="+Inf"} 6` + "\n", `x_seconds_count{a="q\"\\\n"} 6` + "\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if w.Family("x_seconds", "gauge", ""); w.Err() != nil {
		t.Error(w.Err())
	}
	w.Gauge("y", "", 1)
	if w.Family("x_seconds", "gauge", ""); w.Err() == nil {
		t.Error("a metric was written in two places")
	}
}

// A sum never goes down, whoever comes and goes.
func TestSum(t *testing.T) {
	var s Session
	var sum Sum
	s.OK.Add(3)
	s.Duration.Observe(time.Second)
	sum.Add("a", s.Read())
	sum.Add("a", s.Read())
	s.OK.Add(2)
	sum.Add("a", s.Read())
	var second Session
	second.OK.Add(1)
	sum.Add("b", second.Read())
	sum.Forget(func(k string) bool { return k == "b" })
	second.OK.Add(1)
	sum.Add("b", second.Read())
	if sum.total["ok"] != 7 || sum.duration.Nanos != int64(time.Second) || len(sum.last) != 1 {
		t.Errorf("%+v", sum)
	}
	sum.Add("c", Stats{Total: map[string]int64{"new": 1}, Duration: Counts{Buckets: []int64{1}, Nanos: 5}})
	if sum.duration.Nanos != int64(time.Second) {
		t.Error("counts of other bounds were added")
	}
	// Every name that a keeper sends becomes a series.
	for name := range s.Read().Total {
		found := false
		for _, t := range totals {
			found = found || t.name == name
		}
		if !found {
			t.Errorf("%s is counted and not shown", name)
		}
	}
}
