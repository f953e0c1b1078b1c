package service

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fake puts a systemctl into PATH that notes what it was asked.
func fake(t *testing.T, script string) (notes string) {
	t.Helper()
	dir := t.TempDir()
	notes = filepath.Join(dir, "notes")
	for _, name := range []string{"systemctl", "launchctl"} {
		text := "#!/bin/sh\necho " + name + " \"$@\" >> " + notes + "\n" + script
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	return notes
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestInstall(t *testing.T) {
	notes := fake(t, `[ "$2" != is-active ] || [ -e "$HOME/active" ]`)
	s := Service{Exe: `/opt/my conch/100% "x"`, Home: "/srv/c$h", system: "linux"}
	stopped := 0
	stop := func(context.Context) error { stopped++; return nil }
	in, err := s.Install(t.Context(), stop)
	if err != nil || !in.Changed || !in.Running || len(in.Todo) > 0 || stopped != 1 {
		t.Fatalf("%+v %v, stopped %d", in, err, stopped)
	}
	text := read(t, in.Path)
	for _, want := range []string{`ExecStart="/opt/my conch/100%% \"x\"" up --foreground`, `Environment="CONCH_HOME=/srv/c$h"`, "KillMode=process", "Type=notify", "Delegate="} {
		if !strings.Contains(text, want+"\n") && !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if got := read(t, notes); !strings.Contains(got, "daemon-reload\nsystemctl --user enable conch.service\nsystemctl --user restart conch.service\n") {
		t.Errorf("asked: %s", got)
	}
	// Again: nothing is changed, and no daemon is stopped.
	os.WriteFile(filepath.Join(filepath.Dir(notes), "active"), nil, 0o600)
	if in, err = s.Install(t.Context(), stop); err != nil || in.Changed || !in.Running || stopped != 1 {
		t.Errorf("%+v %v, stopped %d", in, err, stopped)
	}
	if in, err = s.Uninstall(t.Context()); err != nil || !in.Changed || in.Why != "" {
		t.Errorf("%+v %v", in, err)
	}
	if _, err := os.Stat(in.Path); err == nil {
		t.Error("the unit is still there")
	}
	if in, err = s.Uninstall(t.Context()); err != nil || in.Changed {
		t.Errorf("%+v %v", in, err)
	}
}

// Where the system does not take it up, the commands to do so are told, and the
// daemon that runs goes on.
func TestInstallByHand(t *testing.T) {
	fake(t, "echo 'Failed to connect to bus' >&2; exit 1")
	s := Service{Exe: "/usr/bin/conch", system: "linux"}
	in, err := s.Install(t.Context(), func(context.Context) error { return errors.New("stopped") })
	if err != nil || in.Running || !strings.Contains(in.Why, "Failed to connect to bus") ||
		strings.Join(in.Todo, "; ") != "systemctl --user daemon-reload; systemctl --user enable conch.service; systemctl --user restart conch.service" {
		t.Errorf("%+v %v", in, err)
	}
	if read(t, in.Path) != s.Text() {
		t.Error("the unit was not written")
	}
	if in, err = s.Uninstall(t.Context()); err != nil || !in.Changed || len(in.Todo) != 2 {
		t.Errorf("%+v %v", in, err)
	}
}

func TestAgent(t *testing.T) {
	notes := fake(t, `[ "$1" != print ]`)
	s := Service{Exe: "/opt/a&b/conch", Home: "/h<", system: "darwin"}
	in, err := s.Install(t.Context(), func(context.Context) error { return nil })
	if err != nil || !in.Running || !strings.HasSuffix(in.Path, "Library/LaunchAgents/sh.conch.daemon.plist") || !strings.Contains(read(t, notes), "launchctl bootstrap gui/") {
		t.Errorf("%+v %v: %s", in, err, read(t, notes))
	}
	for d := xml.NewDecoder(strings.NewReader(s.Text())); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(s.Text(), "<string>/opt/a&amp;b/conch</string>") || !strings.Contains(s.Text(), "AbandonProcessGroup") {
		t.Error(s.Text())
	}
}

// systemd itself reads the unit.
func TestUnitIsUnderstood(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	path := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(path, []byte(Service{Exe: "/bin/true", Home: "/srv/my conch", system: "linux"}.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool, "--user", "verify", path)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, unitName) && !strings.Contains(line, "DelegateSubgroup") {
			t.Error(line)
		}
	}
	if err != nil {
		t.Logf("%v: %s", err, out)
	}
}
