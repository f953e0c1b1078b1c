package mcp_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/conchsh/conch/internal/conchtest"
)

// A client that shares no code with the SDK drives every tool, in both eras of the
// protocol.
func TestIndependentClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err) // make test sees to it that it is there
	}
	for _, era := range []string{"handshake", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			h := conchtest.New(t)
			cmd := exec.CommandContext(t.Context(), python, "testdata/client.py", h.Exe, era)
			cmd.Env = h.Env
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "drove 16 tools") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
