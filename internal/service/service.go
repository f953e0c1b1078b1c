// Package service has the system start conch's daemon when the user logs in: a
// systemd user unit, or a launchd agent on macOS.
//
// The daemon needs nobody to start it; this is for those who want it there, with
// its limits on memory and processes, from the start. Whatever stops or restarts
// the service leaves sessions running: only the daemon's own process is ended.
package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
)

// A Service is what is to be installed.
type Service struct {
	Exe  string // absolute
	Home string // "": the default one
	// system is runtime.GOOS; tests look at both forms.
	system string
}

// New describes the service of a binary.
func New(exe, home string) Service { return Service{Exe: exe, Home: home, system: runtime.GOOS} }

const (
	unitName  = "conch.service"
	agentName = "sh.conch.daemon"
)

// Path is where the description goes.
func (s Service) Path() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", conch.Errorf(conch.HomeUnusable, "%v", err).Hint("set HOME")
	}
	if s.system == "darwin" {
		return filepath.Join(home, "Library", "LaunchAgents", agentName+".plist"), nil
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "systemd", "user", unitName), nil
}

// Text is the description.
func (s Service) Text() string {
	if s.system == "darwin" {
		return s.plist()
	}
	return s.unit()
}

// unit is for systemd. KillMode=process: sessions outlive the daemon. Delegate:
// the daemon makes control groups for sessions; the subgroup keeps the daemon
// out of their way (systemd from 254 on; older ones ignore it). OOMPolicy: a
// command that was killed for its memory is no failure of the daemon.
func (s Service) unit() string {
	var b strings.Builder
	b.WriteString(`[Unit]
Description=conch: shells that keep their state

[Service]
Type=notify
`)
	fmt.Fprintf(&b, "ExecStart=%s up --foreground\n", quoteUnit(s.Exe, true))
	if s.Home != "" {
		fmt.Fprintf(&b, "Environment=%s\n", quoteUnit("CONCH_HOME="+s.Home, false))
	}
	b.WriteString(`KillMode=process
Restart=on-failure
RestartSec=1
Delegate=cpu memory pids
DelegateSubgroup=daemon
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy=default.target
`)
	return b.String()
}

// quoteUnit writes a word as systemd reads it.
func quoteUnit(s string, command bool) string {
	r := []string{`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`}
	if command {
		r = append(r, "$", "$$")
	}
	return `"` + strings.NewReplacer(r...).Replace(s) + `"`
}

func (s Service) plist() string {
	// Not encoding/xml: its tables would be made by every process of conch.
	text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace
	env := ""
	if s.Home != "" {
		env = "  <key>EnvironmentVariables</key>\n  <dict><key>CONCH_HOME</key><string>" + text(s.Home) + "</string></dict>\n"
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>` + agentName + `</string>
  <key>ProgramArguments</key>
  <array><string>` + text(s.Exe) + `</string><string>up</string><string>--foreground</string></array>
` + env + `  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>AbandonProcessGroup</key><true/>
</dict>
</plist>
`
}

// Installed says what was done and what is left to do.
type Installed struct {
	Path    string `json:"path"`
	Changed bool   `json:"changed"` // the file was written
	Running bool   `json:"running"` // the system has taken it up
	// Todo are the commands that could not be run, and Why not.
	Todo []string `json:"todo"`
	Why  string   `json:"why,omitempty"`
}

// Install writes the description and has the system start the daemon, now and
// at every login. stop ends a daemon that somebody else started; it is called
// once the system is known to take over. Doing it again changes nothing.
func (s Service) Install(ctx context.Context, stop func(context.Context) error) (Installed, error) {
	path, err := s.Path()
	if err != nil {
		return Installed{}, err
	}
	in := Installed{Path: path, Todo: []string{}}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return in, conch.Errorf(conch.Internal, "%v", err)
	}
	if len(old) > 0 && !ours(string(old)) {
		return in, conch.Errorf(conch.AlreadyRunning, "%s is there and is not conch's", path).Hint("move it away; nothing was changed")
	}
	if in.Changed = string(old) != s.Text(); in.Changed {
		if err := writeFile(path, s.Text()); err != nil {
			return in, conch.Errorf(conch.Internal, "%v", err).Hint("nothing was installed")
		}
	}
	first, then := s.enable(path)
	if why := s.run(ctx, first); why != nil {
		in.Todo, in.Why = words(append(first, then...)), why.Error()
		return in, nil
	}
	if !in.Changed && s.active(ctx) {
		in.Running = true
		return in, nil
	}
	if err := stop(ctx); err != nil {
		return in, err
	}
	if why := s.run(ctx, then); why != nil {
		in.Todo, in.Why = words(then), why.Error()
		return in, nil
	}
	in.Running = true
	return in, nil
}

// ours says whether a unit is one that Install wrote, be it by another version.
func ours(text string) bool {
	return strings.Contains(text, " up --foreground") || strings.Contains(text, "<string>up</string>")
}

// Uninstall undoes Install. Sessions, and a daemon that somebody else started,
// are left alone.
func (s Service) Uninstall(ctx context.Context) (Installed, error) {
	path, err := s.Path()
	if err != nil {
		return Installed{}, err
	}
	in := Installed{Path: path, Todo: []string{}}
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err != nil || !ours(string(old)) {
		return in, conch.Errorf(conch.InvalidRequest, "%s is not conch's: it was left alone", path)
	}
	before, after := s.disable(path)
	if why := s.run(ctx, before); why != nil {
		in.Todo, in.Why = words(append(before, after...)), why.Error()
	}
	if err := os.Remove(path); err != nil {
		return in, conch.Errorf(conch.Internal, "%v", err)
	}
	in.Changed = true
	if in.Why == "" {
		if why := s.run(ctx, after); why != nil {
			in.Todo, in.Why = words(after), why.Error()
		}
	}
	return in, nil
}

// enable is what takes the service up: first what shows whether that works.
func (s Service) enable(path string) (first, then [][]string) {
	if s.system == "darwin" {
		return nil, [][]string{{"launchctl", "bootstrap", domain(), path}}
	}
	return [][]string{{"systemctl", "--user", "daemon-reload"}},
		[][]string{{"systemctl", "--user", "enable", unitName}, {"systemctl", "--user", "restart", unitName}}
}

func (s Service) disable(path string) (before, after [][]string) {
	if s.system == "darwin" {
		return [][]string{{"launchctl", "bootout", domain() + "/" + agentName}}, nil
	}
	return [][]string{{"systemctl", "--user", "disable", "--now", unitName}}, [][]string{{"systemctl", "--user", "daemon-reload"}}
}

func domain() string { return "gui/" + strconv.Itoa(os.Getuid()) }

// active reports whether the system runs it already.
func (s Service) active(ctx context.Context) bool {
	if s.system == "darwin" {
		return s.run(ctx, [][]string{{"launchctl", "print", domain() + "/" + agentName}}) == nil
	}
	return s.run(ctx, [][]string{{"systemctl", "--user", "is-enabled", "--quiet", unitName}, {"systemctl", "--user", "is-active", "--quiet", unitName}}) == nil
}

// runLimit is what a service manager may take for one step.
const runLimit = 30 * time.Second

func (s Service) run(ctx context.Context, list [][]string) error {
	for _, args := range list {
		ctx, cancel := context.WithTimeout(ctx, runLimit)
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		cancel()
		if err != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			if line == "" {
				line = err.Error()
			}
			return fmt.Errorf("%s: %s", strings.Join(args, " "), line)
		}
	}
	return nil
}

func words(list [][]string) []string {
	out := []string{}
	for _, args := range list {
		out = append(out, strings.Join(args, " "))
	}
	return out
}

// writeFile puts the text at path whole.
func writeFile(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".conch-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o644) // as such files are
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
