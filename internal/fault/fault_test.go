package fault

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAULT_TEST") != "" {
		for _, p := range []string{"one", "two", "two", "three"} {
			Point(p)
			os.Stdout.WriteString(p + " ")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestPoint(t *testing.T) {
	for arm, want := range map[string]string{
		"":      "one two two three ",
		"other": "one two two three ",
		"one":   "",
		"two":   "one ",
		"two:2": "one two ",
		"two:9": "one two two three ",
	} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = []string{"FAULT_TEST=1", Variable + "=" + arm}
		var out strings.Builder
		cmd.Stdout = &out
		cmd.Run()
		if out.String() != want {
			t.Errorf("%q: %q, want %q", arm, out.String(), want)
		}
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if killed := ws.Signaled() && ws.Signal() == syscall.SIGKILL; killed != (want != "one two two three ") {
			t.Errorf("%q: ended with %v", arm, cmd.ProcessState)
		}
	}
}
