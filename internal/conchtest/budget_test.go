package conchtest

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	// sizeBudget is for the binary with its symbols, which is half as large
	// again as the one that make builds. SQLite, compiled to Go, is most of it;
	// the second term is the MCP SDK's, the third serving TLS, WebSockets and
	// tools over HTTP, then NATS, sandboxes with the responder, and mail between
	// homes with its encryption.
	sizeBudget = 23<<20 + 2600<<10 + 1430<<10 + 14100<<10 + 380<<10 + 1140<<10
	// initBudget is what all packages' set-up may take, in milliseconds. It
	// is paid by every call and, in memory, by every session's keeper.
	initBudget = 4.0
	// ownBudget is what one package of ours may allocate in it, in bytes: a few
	// functions to be called once, and neither a table nor an expression.
	ownBudget = 1 << 10
)

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes`)

// A dependency that is large, or does much before main, shows here first.
func TestBudget(t *testing.T) {
	exe := Binary(t)
	fi, err := os.Stat(exe)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Size() > sizeBudget {
		t.Errorf("the binary has %d bytes, more than %d", fi.Size(), sizeBudget)
	}
	// The best of several: another process's time slice is not ours.
	best, worst := -1.0, ""
	for i := range 10 {
		cmd := exec.Command(exe, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lines := initLine.FindAllSubmatch(out, -1)
		if len(lines) < 10 {
			t.Fatalf("no trace of the start: %s", out)
		}
		sum, most, name := 0.0, 0.0, ""
		for _, m := range lines {
			own := strings.HasPrefix(string(m[1]), "github.com/conchsh/conch") || string(m[1]) == "main"
			if n, err := strconv.Atoi(string(m[3])); i == 0 && own && (err != nil || n > ownBudget) {
				t.Errorf("package %s allocates %s bytes before main, more than %d: make it at its first use", m[1], m[3], ownBudget)
			}
			ms, err := strconv.ParseFloat(string(m[2]), 64)
			if err != nil {
				t.Fatalf("%s: %v", m[0], err)
			}
			if sum += ms; ms > most {
				most, name = ms, string(m[1])
			}
		}
		if best < 0 || sum < best {
			best, worst = sum, name
		}
	}
	t.Logf("%.2f ms before main, %.1f MB", best, float64(fi.Size())/(1<<20))
	if best > initBudget {
		t.Errorf("packages take %.2f ms to set up, more than %v; most of all %s", best, initBudget, worst)
	}
}
