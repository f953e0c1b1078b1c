package relay

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// fsync is what one synced append of 4 KiB costs where the relay's files are.
func fsync(b *testing.B, dir string) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var all []time.Duration
	for range 200 {
		t := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(t))
	}
	return percentile(all, 50)
}

func percentile(all []time.Duration, p int) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[(len(all)-1)*p/100]
}

func report(b *testing.B, name string, all []time.Duration, one time.Duration) {
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(percentile(all, p))/float64(one), fmt.Sprintf("%s-p%d-fsyncs", name, p))
	}
}

// BenchmarkRelay sends messages of 2 KiB one after the other and prints how long
// each took to be acknowledged, and to be taken by its recipient, in fsyncs.
func BenchmarkRelay(b *testing.B) {
	for _, mode := range []string{"embedded", "joined"} {
		b.Run(mode, func(b *testing.B) {
			dir := b.TempDir()
			host, _ := listening(b, dir)
			r := host
			if mode == "joined" {
				r = open(b, b.TempDir())
				if _, err := r.Join(soon(b), inviteTo(b, host), nil); err != nil {
					b.Fatal(err)
				}
			}
			alice, bob := connect(b, r, someone(b)), connect(b, r, someone(b))
			taken := make(chan time.Time, 64)
			consume(b, bob, func(_ context.Context, batch []Message) (int, error) {
				for range batch {
					taken <- time.Now()
				}
				return len(batch), nil
			})
			one := fsync(b, dir)
			data := make([]byte, 2048)
			// The same without agents and hub: NATS' own publish and acknowledgement.
			host.mu.Lock()
			js := host.nest.hub.js
			host.mu.Unlock()
			var raw []time.Duration
			for range 200 {
				t := time.Now()
				if _, err := js.Publish(context.Background(), mailSubject+alice.Address()+".raw", data); err != nil {
					b.Fatal(err)
				}
				raw = append(raw, time.Since(t))
			}
			var acked, arrived []time.Duration
			for i := 0; b.Loop(); i++ {
				t := time.Now()
				if _, err := alice.Publish(context.Background(), bob.Address(), fmt.Sprintf("m%d", i), data, 0); err != nil {
					b.Fatal(err)
				}
				acked = append(acked, time.Since(t))
				arrived = append(arrived, (<-taken).Sub(t))
			}
			b.ReportMetric(float64(one.Microseconds()), "fsync-µs")
			report(b, "raw", raw, one)
			report(b, "acked", acked, one)
			report(b, "taken", arrived, one)
		})
	}
}
