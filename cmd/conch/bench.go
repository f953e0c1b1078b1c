package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/bench"
)

func newBench() *cobra.Command {
	var o bench.Options
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "bench [--quick] [--only NAME] [--seq N] [--sessions N] [--out FILE] [--json]",
		GroupID: groupDaemon,
		Short:   "Measure conch against plain bash on this machine",
		Long: `Measure latency, throughput, memory and completeness against plain bash, fork and
exec, and tmux, in alternating rounds of one run, and print the ratios with the
bars they are held to. It uses a home and a daemon of its own in a temporary
directory and removes both. A ratio that is short of its bar is said and does not
change the exit status; output that was not complete does (1).`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("seq") && o.Seq < 1 {
				return conch.Errorf(conch.InvalidRequest, "--seq %d is not a positive number", o.Seq)
			}
			if cmd.Flags().Changed("sessions") && (o.Sessions < 1 || o.Sessions > 2000) {
				return conch.Errorf(conch.InvalidRequest, "--sessions %d is not between 1 and 2000", o.Sessions)
			}
			return words()(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd.Context(), o, out, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&out, "out", "", "write the report as JSON to `FILE` too")
	fl.BoolVar(&asJSON, "json", false, "print the report as JSON")
	fl.StringSliceVar(&o.Only, "only", nil, "measure only `NAME`: "+strings.Join(bench.Parts(), ", ")+" (repeatable)")
	fl.IntVar(&o.Seq, "seq", 0, "run seq 1 5000 `N` times (default 500; 10000 for the full proof)")
	fl.IntVar(&o.Sessions, "sessions", 0, "have `N` idle sessions in the crowd (default 1000)")
	fl.BoolVar(&o.Quick, "quick", false, "a few rounds of each: shows that it works, not how fast")
	return cmd
}

// runBench measures and prints. However it is told to stop, it first removes
// what it made.
func runBench(ctx context.Context, o bench.Options, out string, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		return conch.Errorf(conch.Internal, "cannot find my own executable: %v", err)
	}
	o.Exe, o.Version = exe, version
	if isTerminal(os.Stderr) {
		o.Progress = func(part string) { fmt.Fprintf(os.Stderr, "measuring %s\n", part) }
	}
	rep, err := bench.Run(ctx, o)
	if err != nil {
		if ctx.Err() != nil && err == context.Cause(ctx) {
			return exitStatus(statusInterrupted)
		}
		return err
	}
	if out != "" {
		b, err := json.MarshalIndent(rep, "", "  ")
		if err == nil {
			err = os.WriteFile(out, append(b, '\n'), 0o644)
		}
		if err != nil {
			return conch.Errorf(conch.Internal, "cannot write the report: %v", err)
		}
	}
	if asJSON {
		err = printJSON(os.Stdout, rep)
	} else {
		err = printBench(rep)
	}
	if err != nil {
		return err
	}
	if !rep.Complete() {
		return exitStatus(statusUnwell)
	}
	return nil
}

// printBench is the report as people read it: one line a row.
func printBench(rep *bench.Report) error {
	e := rep.Environment
	fmt.Printf("conch %s, %s, %s, %d cores, load %s before and %s after\n\n", harmless(e.Conch), harmless(e.Bash), e.Kernel, e.Cores, e.LoadBefore, e.LoadAfter)
	var rows [][]string
	var notes []string
	for _, r := range rep.Rows {
		if r.Skipped != "" {
			rows = append(rows, []string{r.What, "-", "", r.Against, "", "", "", barText(r.Bar, r.Unit), "skipped"})
			notes = append(notes, r.What+": "+r.Skipped)
			continue
		}
		base, ratio := "", ""
		if r.Baseline != nil {
			base = amount(*r.Baseline, r.Unit)
		}
		if r.Ratio != nil {
			ratio = number(*r.Ratio)
		}
		rows = append(rows, []string{
			r.What, amount(r.Value, r.Unit), quantity(r.P99, r.Unit), r.Against, base, quantity(r.BaselineP99, r.Unit),
			ratio, barText(r.Bar, r.Unit), verdict(r),
		})
		if r.Note != "" {
			notes = append(notes, r.What+": "+r.Note)
		}
		if r.Got != nil && *r.Got != *r.Of {
			notes = append(notes, fmt.Sprintf("%s: incomplete, %d of %d", r.What, *r.Got, *r.Of))
		}
	}
	if err := table(os.Stdout, []string{"WHAT", "P50", "P99", "AGAINST", "P50", "P99", "RATIO", "BAR", ""}, rows); err != nil {
		return err
	}
	if len(notes) > 0 {
		fmt.Println()
	}
	for _, n := range notes {
		fmt.Println(harmless(n))
	}
	if e.Quick {
		fmt.Println("a quick run: too few rounds for the times to mean much")
	}
	return nil
}

func verdict(r bench.Row) string {
	switch {
	case r.OK == nil:
		return ""
	case *r.OK:
		return "ok"
	}
	return "short"
}

// barText is a promise in a few characters.
func barText(b *bench.Bar, unit string) string {
	if b == nil {
		return ""
	}
	limit := func(v float64) string {
		if b.On == "ratio" {
			return number(v)
		}
		return amount(v, unit)
	}
	if b.AtLeast != nil {
		return "≥ " + limit(*b.AtLeast)
	}
	return "≤ " + limit(*b.AtMost)
}

func quantity(v *float64, unit string) string {
	if v == nil {
		return ""
	}
	return amount(*v, unit)
}

func amount(v float64, unit string) string { return number(v) + " " + unit }

// number keeps the digits that mean something.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
