// Package bench measures conch against what it stands on: a plain bash on a
// pipe, fork and exec of bash, tmux. It is what `conch bench` runs.
//
// A number alone says more about the machine than about conch, so each row
// carries a baseline measured in the same run, in rounds that alternate with
// conch's own, and is judged by the ratio. Every sample counts, save one round
// of warm-up on both sides; nothing is measured again because it looked bad.
//
// Run makes a home of its own in a temporary directory and a daemon of its own
// from Options.Exe. When it returns, cancelled or not, its sessions are closed,
// its daemons gone and its directories removed; if that fails, it says so.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// Options say what to measure and with which conch.
type Options struct {
	Exe     string   // the conch whose daemon and command line are measured
	Version string   // of it, for the report
	Only    []string // names of parts; empty: all
	Seq     int      // runs of `seq 1 5000`; 0: 500, or 8 when quick
	// Sessions is how many idle ones a crowd has; 0: 1,000, or 4 when quick.
	Sessions int
	Quick    bool // a few rounds of everything: proves that it works, not how fast
	// Progress is told which part comes next; nil: nobody is.
	Progress func(part string)
}

// Report is what a run found. It is what --json prints; Format is raised when
// a reader of an older one would misread it.
type Report struct {
	Format      int         `json:"format"`
	Environment Environment `json:"environment"`
	Rows        []Row       `json:"rows"`
}

// Row is one measured thing. Value and Baseline are medians (p50) where there
// are several samples, both in Unit.
type Row struct {
	Name            string   `json:"name"`
	What            string   `json:"what"`
	Value           float64  `json:"value"`
	P99             *float64 `json:"p99"` // of latencies
	Unit            string   `json:"unit"`
	Samples         int      `json:"samples"`
	Against         string   `json:"against"` // what the baseline is; empty: none
	Baseline        *float64 `json:"baseline"`
	BaselineP99     *float64 `json:"baseline_p99"`
	BaselineSamples int      `json:"baseline_samples"`
	Ratio           *float64 `json:"ratio"` // Value ÷ Baseline
	Bar             *Bar     `json:"bar"`
	OK              *bool    `json:"ok"` // against Bar; null without one or when skipped
	// Got of Of came through: bytes of a stream, or runs whose every byte was right.
	Got     *int64 `json:"got"`
	Of      *int64 `json:"of"`
	Note    string `json:"note,omitempty"`
	Skipped string `json:"skipped,omitempty"` // why there is no value
}

// Bar is the product's promise for a row.
type Bar struct {
	On      string   `json:"on"` // ratio or value
	AtMost  *float64 `json:"at_most,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
	Goal    *float64 `json:"goal,omitempty"` // better than the bar, and hoped for
}

func ratioAtMost(v float64) *Bar  { return &Bar{On: "ratio", AtMost: &v} }
func ratioAtLeast(v float64) *Bar { return &Bar{On: "ratio", AtLeast: &v} }
func valueAtMost(v float64) *Bar  { return &Bar{On: "value", AtMost: &v} }

// Complete says whether all that was counted came through, in every row.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Got != nil && *row.Got != *row.Of })
}

// part is a group of rows measured together.
type part struct {
	name string
	run  func(*run, context.Context) error
}

func parts() []part {
	return []part{
		{"exec", (*run).exec},
		{"tmux", (*run).tmux},
		{"new", (*run).newSession},
		{"mail", (*run).mail},
		{"daemon", (*run).daemon},
		{"memory", (*run).memory},
		{"crowd", (*run).crowd},
		{"stream", (*run).stream},
		{"seq", (*run).seq},
	}
}

// Parts are the names Options.Only may hold.
func Parts() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// run is one run in progress.
type run struct {
	Options
	bash   string
	dir    string // holds the homes
	homes  []*home
	main   *home // the daemon most parts share
	report Report
}

// Run measures. Of a run that was cancelled or failed it gives what there is,
// with the error.
func Run(ctx context.Context, o Options) (rep *Report, err error) {
	for _, name := range o.Only {
		if !slices.Contains(Parts(), name) {
			return nil, conch.Errorf(conch.InvalidRequest, "there is no measurement called %q", name).
				Hint("there are %s", strings.Join(Parts(), ", "))
		}
	}
	if o.Seq == 0 {
		o.Seq = pick(o.Quick, 8, 500)
	}
	r := &run{Options: o}
	if r.bash, err = findBash(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "conch-bench-"); err != nil {
		return nil, conch.Errorf(conch.HomeUnusable, "no temporary directory: %v", err)
	}
	defer func() {
		if left := r.close(); left != nil {
			err = errors.Join(err, left)
		}
	}()

	r.report = Report{Format: 1, Environment: r.environment()}
	began := time.Now()
	for _, p := range parts() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		if o.Progress != nil {
			o.Progress(p.name)
		}
		if err := p.run(r, ctx); err != nil {
			if ctx.Err() != nil {
				return &r.report, context.Cause(ctx)
			}
			return &r.report, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	r.report.Environment.Seconds = time.Since(began).Seconds()
	r.report.Environment.LoadAfter = loadAverage()
	return &r.report, nil
}

// findBash is the bash that keepers start too, so that both sides run the same.
func findBash() (string, error) {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash", nil
	}
	path, err := exec.LookPath("bash")
	if err != nil {
		return "", conch.Errorf(conch.ShellFailed, "there is no bash to measure against")
	}
	return filepath.Abs(path)
}

// add judges a row and keeps it.
func (r *run) add(row Row) {
	if row.Skipped == "" {
		if row.Baseline != nil && *row.Baseline != 0 {
			q := row.Value / *row.Baseline
			row.Ratio = &q
		}
		row.judge()
	}
	r.report.Rows = append(r.report.Rows, row)
}

func (row *Row) judge() {
	if row.Bar == nil {
		return
	}
	v := row.Value
	if row.Bar.On == "ratio" {
		if row.Ratio == nil {
			return
		}
		v = *row.Ratio
	}
	ok := (row.Bar.AtMost == nil || v <= *row.Bar.AtMost) && (row.Bar.AtLeast == nil || v >= *row.Bar.AtLeast) &&
		(row.Got == nil || *row.Got == *row.Of)
	row.OK = &ok
}

// Environment is where a run took place.
type Environment struct {
	At         time.Time `json:"at"`
	Conch      string    `json:"conch"`
	Go         string    `json:"go"`
	OS         string    `json:"os"`
	Arch       string    `json:"arch"`
	Kernel     string    `json:"kernel"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	MemoryMB   int64     `json:"memory_mb"`
	Bash       string    `json:"bash"`
	Tmux       string    `json:"tmux"`
	Home       string    `json:"home"`
	Quick      bool      `json:"quick"`
	Seq        int       `json:"seq"`
	LoadBefore string    `json:"load_before"` // 1, 5 and 15 minutes
	LoadAfter  string    `json:"load_after"`
	Seconds    float64   `json:"seconds"`
}

func pick[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

func label(prefix string, n int) string { return prefix + strconv.Itoa(n) }
