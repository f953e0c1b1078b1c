package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// This file turns words of the command line into values.

// quoteArgv makes shell text that is the argument list args and nothing else.
func quoteArgv(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quoteWord(a)
	}
	return strings.Join(quoted, " ")
}

// bare holds the characters that mean nothing to bash wherever they stand. Not
// among them: = (an assignment) and ~ (a home).
const bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@+:,./-"

// quoteWord quotes one word. Reserved words are quoted too, or an argument
// list that begins with one would be read as syntax.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, bare) == "" && !reserved(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func reserved(s string) bool {
	switch s {
	case "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until",
		"do", "done", "in", "function", "time", "coproc":
		return true
	}
	return false
}

// duration is a flag for a time limit: Go's form (1m30s) or plain seconds (90).
type duration time.Duration

func (d *duration) Set(s string) error {
	v, err := parseDuration(s)
	*d = duration(v)
	return err
}

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

// ms is the limit as the API counts it. Rounded up: what is below a
// millisecond must not become 0, which is no limit.
func (d duration) ms() int64 {
	return int64((time.Duration(d) + time.Millisecond - 1) / time.Millisecond)
}

func parseDuration(s string) (time.Duration, error) {
	bad := conch.Errorf(conch.InvalidRequest, "%q is not a duration: write 30s, 1m30s, or plain seconds such as 30", s)
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		ns := f * float64(time.Second)
		if math.IsNaN(ns) || ns < 0 || ns > math.MaxInt64/2 {
			return 0, bad
		}
		return time.Duration(math.Ceil(ns)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > math.MaxInt64/2 {
		return 0, bad
	}
	return d, nil
}

// parseEnv reads the values of -e. The last of several for a name counts.
func parseEnv(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	env := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, conch.Errorf(conch.InvalidEnv, "-e %s has no =", kv).Hint("-e NAME=VALUE; -e %s= sets it empty", kv)
		}
		if err := conch.CheckEnvName(name); err != nil {
			return nil, err
		}
		env[name] = value
	}
	return env, nil
}

// absolute reads a directory relative to the caller's. It is joined and not
// cleaned: with symbolic links a/.. need not be where a stands.
func absolute(dir string) (string, error) {
	if dir == "" || filepath.IsAbs(dir) {
		return dir, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", conch.Errorf(conch.InvalidRequest, "--cwd %s is relative and the current directory is gone: %v", dir, err)
	}
	return strings.TrimSuffix(wd, "/") + "/" + dir, nil
}
