package bench

import (
	"context"
	"math"
	"slices"
	"time"
)

// A subject is one thing that is measured again and again. once does it one
// time and says how long that took, what it does before and after not counted.
type subject struct {
	per   int // times in a row in each round
	once  func(context.Context) (time.Duration, error)
	times []time.Duration
}

// timed is a subject all of whose work counts.
func timed(per int, f func(context.Context) error) *subject {
	return &subject{per: per, once: func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := f(ctx)
		return time.Since(began), err
	}}
}

// interleave measures subjects in rounds, so that whatever else the machine
// does meanwhile falls on all of them. The order turns and reverses from round to
// round: nobody has always the same neighbour before it. The first round warms
// up and is not kept. prepare, if given, comes before each round and is not
// measured.
func interleave(ctx context.Context, rounds int, prepare func(context.Context) error, subjects ...*subject) error {
	for round := range rounds + 1 {
		if prepare != nil {
			if err := prepare(ctx); err != nil {
				return err
			}
		}
		order := slices.Clone(subjects)
		turn := round % len(order)
		order = append(order[turn:], order[:turn]...)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			for range s.per {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				d, err := s.once(ctx)
				if err != nil {
					return err
				}
				if round > 0 {
					s.times = append(s.times, d)
				}
			}
		}
	}
	return nil
}

// latency makes a row of two subjects, in unit.
func latency(name, what string, s *subject, against string, base *subject, unit time.Duration) Row {
	row := Row{
		Name: name, What: what, Value: quantile(s.times, 0.5, unit), P99: p99(s.times, unit), Samples: len(s.times),
		Unit: pick(unit == time.Microsecond, "µs", "ms"),
	}
	if base != nil {
		v := quantile(base.times, 0.5, unit)
		row.Against, row.Baseline, row.BaselineP99, row.BaselineSamples = against, &v, p99(base.times, unit), len(base.times)
	}
	return row
}

func p99(times []time.Duration, unit time.Duration) *float64 {
	v := quantile(times, 0.99, unit)
	return &v
}

// quantile is by nearest rank: a value that was really seen.
func quantile(times []time.Duration, q float64, unit time.Duration) float64 {
	if len(times) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(times))
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[max(0, i)]) / float64(unit)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}
