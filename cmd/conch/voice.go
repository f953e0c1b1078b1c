package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/conchsh/conch"
)

// This file is how the command line speaks: errors are one line on stderr with
// a hint, --json is one value on stdout, people get short tables. Text that
// came from elsewhere is shown with its control characters made harmless.

// Exit statuses that are conch's own and not a command's.
const (
	statusUnwell      = 1   // doctor found something
	statusEndedFirst  = 1   // wait: the process ended before what was waited for
	statusTimedOut    = 124 // as timeout(1)
	statusFailed      = 125 // conch itself failed
	statusInterrupted = 130 // 128+SIGINT, as shells say it
	statusPipe        = 141 // 128+SIGPIPE, for callers that ignore the signal
)

// exitStatus ends the program with a status and without a word.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// fail says what went wrong and gives the status for it.
func fail(w io.Writer, err error) int {
	e := conch.AsError(err)
	say(w, e.Message, e.HintText)
	return statusFailed
}

// say writes one line in conch's voice.
func say(w io.Writer, message, hint string) {
	line := "conch: " + harmless(message)
	if hint != "" {
		line += " (" + harmless(hint) + ")"
	}
	fmt.Fprintln(w, line)
}

// harmless makes text fit for one line of a terminal: a title sequence or a
// newline in a command's text or a file's name must not act on the reader's.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '·'
		}
		return r
	}, s)
}

// printJSON writes one value on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return written(enc.Encode(v))
}

// written names a failure to write our own output.
func written(err error) error {
	if err == nil {
		return nil
	}
	if brokenPipe(err) {
		return exitStatus(statusPipe)
	}
	return conch.Errorf(conch.Internal, "cannot write the output: %v", err)
}

// table writes rows in aligned columns. Cells are made harmless.
func table(w io.Writer, header []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if header != nil {
		fmt.Fprintln(t, strings.Join(header, "\t"))
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = harmless(c)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return written(t.Flush())
}

// isTerminal says whether a person reads f.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// fit cuts s to n characters for a terminal; anything else gets it whole.
func fit(s string, n int) string {
	if !isTerminal(os.Stdout) {
		return s
	}
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width-n < 10 {
		return s
	}
	if r := []rune(s); len(r) > width-n {
		return string(r[:width-n-1]) + "…"
	}
	return s
}

// clock is a time as people read it: local, without the day if that is today.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	now := time.Now()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// size is a count of bytes as people read it.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	i := -1
	for f >= 1000 && i < len(units)-1 {
		f /= 1000
		i++
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}

// plural is n of a thing.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
