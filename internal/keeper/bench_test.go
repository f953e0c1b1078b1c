package keeper

import (
	"sort"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func BenchmarkExecTrue(b *testing.B) {
	r := newRig(b)
	r.exec("true")
	var d []time.Duration
	for b.Loop() {
		t := time.Now()
		r.run(conch.ExecRequest{Command: "true"})
		d = append(d, time.Since(t))
	}
	sort.Slice(d, func(i, j int) bool { return d[i] < d[j] })
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(d[len(d)-1].Microseconds()), "max-µs")
}
