// Package install writes conch into the configuration of programs that run agents, and
// takes it out again.
//
// Plan works out a change and touches nothing; Diff shows it; Apply makes it. The change
// is to the text of the file: comments, order, indentation, line ends and everything
// that is not conch's stay as they are, and that is looked at before a change is given
// out. What cannot be read is refused with the place. Apply keeps a copy of what was
// there, replaces the file as a whole, and refuses if it has changed since.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conchsh/conch"
)

// maxFile is how large a configuration may be.
const maxFile = 64 << 20

// A Place is where to install: whose home, which project, and with what environment.
type Place struct {
	Home    string // the user's
	Dir     string // the project's
	Project bool   // the project's files, not the user's
	GOOS    string
	Getenv  func(string) string
}

// A Program is one that can have conch as a server.
type Program struct {
	Name  string // as it is given on the command line
	Title string
	// Commands are its programs on PATH, Dirs what it leaves in a home: either
	// shows that it is there.
	commands []string
	dirs     func(Place) []string
	path     func(Place) string
	// key is the object that holds servers, kind what each says of itself.
	key, kind string
	toml      bool
	comments  bool // it reads JSON with comments
}

// Programs are those that are known, in the order in which they are named.
func Programs() []Program {
	under := func(elem ...string) func(Place) []string {
		return func(p Place) []string { return []string{filepath.Join(append([]string{p.Home}, elem...)...)} }
	}
	return []Program{
		{
			Name: "claude", Title: "Claude Code", commands: []string{"claude"}, key: "mcpServers", kind: "stdio",
			dirs: func(p Place) []string { return []string{claudeFile(p), filepath.Join(p.Home, ".claude")} },
			path: func(p Place) string {
				if p.Project {
					return filepath.Join(p.Dir, ".mcp.json")
				}
				return claudeFile(p)
			},
		}, {
			Name: "codex", Title: "Codex", commands: []string{"codex"}, key: "mcp_servers", toml: true,
			dirs: func(p Place) []string { return []string{codexHome(p)} },
			path: func(p Place) string {
				if p.Project {
					return filepath.Join(p.Dir, ".codex", "config.toml")
				}
				return filepath.Join(codexHome(p), "config.toml")
			},
		}, {
			Name: "gemini", Title: "Gemini CLI", commands: []string{"gemini"}, key: "mcpServers", comments: true,
			dirs: under(".gemini"), path: inBoth(".gemini", "settings.json"),
		}, {
			Name: "cursor", Title: "Cursor", commands: []string{"cursor", "cursor-agent"}, key: "mcpServers", comments: true,
			dirs: under(".cursor"), path: inBoth(".cursor", "mcp.json"),
		}, {
			Name: "vscode", Title: "VS Code", commands: []string{"code"}, key: "servers", kind: "stdio", comments: true,
			dirs: func(p Place) []string { return []string{filepath.Dir(codeUser(p))} },
			path: func(p Place) string {
				if p.Project {
					return filepath.Join(p.Dir, ".vscode", "mcp.json")
				}
				return filepath.Join(codeUser(p), "mcp.json")
			},
		},
	}
}

func inBoth(elem ...string) func(Place) string {
	return func(p Place) string {
		root := p.Home
		if p.Project {
			root = p.Dir
		}
		return filepath.Join(append([]string{root}, elem...)...)
	}
}

func claudeFile(p Place) string {
	if dir := p.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, ".claude.json")
	}
	return filepath.Join(p.Home, ".claude.json")
}

func codexHome(p Place) string {
	if dir := p.Getenv("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(p.Home, ".codex")
}

func codeUser(p Place) string {
	if p.GOOS == "darwin" {
		return filepath.Join(p.Home, "Library", "Application Support", "Code", "User")
	}
	if dir := p.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "Code", "User")
	}
	return filepath.Join(p.Home, ".config", "Code", "User")
}

// Path is the file that a program reads its servers from.
func (g Program) Path(p Place) string { return g.path(p) }

// Found reports whether the program is there.
func (g Program) Found(p Place) bool {
	for _, name := range g.commands {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	for _, path := range g.dirs(p) {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// A Server is what a program has to start.
type Server struct {
	Command string
	Args    []string
}

// An edit replaces part of a text.
type edit struct {
	at, end int
	text    string
}

// A Change is what is to be done to one file. Without edits there is nothing to do.
type Change struct {
	Program Program
	Path    string // as the user knows it
	file    string // where it really is, links followed
	before  []byte // nil: there is no file
	mode    fs.FileMode
	edits   []edit
}

// Plan works out what has to change for a program to have conch, or with remove not to.
func Plan(g Program, p Place, s Server, remove bool) (*Change, error) {
	c := &Change{Program: g, Path: g.path(p)}
	if err := c.read(p); err != nil {
		return nil, err
	}
	if c.before == nil && remove {
		return c, nil
	}
	body := bytes.TrimPrefix(c.before, []byte(bom))
	var edits []edit
	var err error
	if g.toml {
		edits, err = planTOML(string(body), g, s, remove)
	} else {
		edits, err = planJSON(string(body), g, s, remove)
	}
	if err != nil {
		e := conch.AsError(err)
		return nil, conch.Errorf(conch.InvalidConfig, "%s, the configuration of %s: %s; nothing was changed", c.Path, g.Title, e.Message).
			Hint("%s", e.HintText)
	}
	shift := len(c.before) - len(body)
	for _, e := range edits {
		c.edits = append(c.edits, edit{e.at + shift, e.end + shift, e.text})
	}
	return c, nil
}

const bom = "\xef\xbb\xbf"

// read takes the file as it is.
func (c *Change) read(p Place) error {
	refuse := func(hint, format string, args ...any) error {
		return conch.Errorf(conch.InvalidConfig, "%s, the configuration of %s, %s; nothing was changed", c.Path, c.Program.Title, fmt.Sprintf(format, args...)).Hint("%s", hint)
	}
	c.mode = 0o600
	if p.Project {
		c.mode = 0o644
	}
	c.file = c.Path
	if fi, err := os.Lstat(c.Path); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		// The link stays and its target is replaced.
		if c.file, err = filepath.EvalSymlinks(c.Path); err != nil {
			return refuse("make or remove what the link names", "is a link to nothing: %v", err)
		}
	}
	fi, err := os.Stat(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refuse("look at its directory", "cannot be looked at: %v", err)
	}
	switch {
	case !fi.Mode().IsRegular():
		return refuse("it must be a plain file", "is no file")
	case fi.Mode().Perm()&0o200 == 0:
		return refuse("chmod u+w "+c.Path, "is read-only")
	case fi.Size() > maxFile:
		return refuse("", "has %d bytes, more than %d", fi.Size(), maxFile)
	}
	if c.before, err = os.ReadFile(c.file); err != nil {
		return refuse("it must be a file of yours", "cannot be read: %v", err)
	}
	if c.before == nil {
		c.before = []byte{}
	}
	if !utf8.Valid(c.before) {
		return refuse("save it as UTF-8", "is not UTF-8")
	}
	c.mode = fi.Mode().Perm()
	return nil
}

// Needed reports whether there is something to change.
func (c *Change) Needed() bool { return len(c.edits) > 0 }

// New reports whether the file is yet to be made.
func (c *Change) New() bool { return c.before == nil }

// after is the file as it will be.
func (c *Change) after() []byte { return []byte(apply(string(c.before), c.edits)) }

// apply makes edits, which do not overlap and are in order.
func apply(text string, edits []edit) string {
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(text[at:e.at] + e.text)
		at = e.end
	}
	return b.String() + text[at:]
}

// Diff shows the change: the lines that go and come, and nothing that stays, since keys
// of other servers may stand there.
func (c *Change) Diff() string {
	var b strings.Builder
	old := c.Path
	if c.before == nil {
		old = "(no file yet)"
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", old, c.Path)
	for _, e := range c.edits {
		fmt.Fprintf(&b, "@@ line %d @@\n", 1+strings.Count(string(c.before[:e.at]), "\n"))
		for _, part := range []struct{ sign, text string }{{"-", string(c.before[e.at:e.end])}, {"+", e.text}} {
			text := strings.Trim(strings.ReplaceAll(part.text, "\r\n", "\n"), "\n")
			if text == "" {
				continue
			}
			for line := range strings.SplitSeq(text, "\n") {
				b.WriteString(part.sign + line + "\n")
			}
		}
	}
	return b.String()
}

// Apply makes the change. It gives the path of a copy of what was there, if anything was.
func (c *Change) Apply() (backup string, err error) {
	failed := func(what string, err error) error {
		return conch.Errorf(conch.InvalidConfig, "%s %s: %v; the file is as it was", c.Path, what, err).
			Hint("its directory must be yours to write")
	}
	now, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = nil, nil
	}
	if err != nil {
		return "", failed("cannot be read again", err)
	}
	if (now == nil) != (c.before == nil) || !bytes.Equal(now, c.before) {
		return "", conch.Errorf(conch.InvalidConfig, "%s has changed since it was looked at; nothing was written", c.Path).Hint("try again")
	}
	dir := filepath.Dir(c.file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", failed("cannot be made", err)
	}
	if c.before != nil {
		if backup, err = c.copy(); err != nil {
			return "", failed("cannot be copied first", err)
		}
	}
	temp, err := os.CreateTemp(dir, ".conch-")
	if err != nil {
		return backup, failed("cannot be written", err)
	}
	defer os.Remove(temp.Name()) // gone where it was renamed
	_, err = temp.Write(c.after())
	if err == nil {
		err = temp.Chmod(c.mode)
	}
	if err == nil {
		err = keepOwner(temp, c.file)
	}
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), c.file)
	}
	if err != nil {
		return backup, failed("cannot be written", err)
	}
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
	return backup, nil
}

// copy keeps what was there beside it.
func (c *Change) copy() (string, error) {
	stamp := c.file + ".before-conch-" + time.Now().UTC().Format("20060102T150405")
	for n := 0; ; n++ {
		path := stamp
		if n > 0 {
			path = fmt.Sprintf("%s-%d", stamp, n)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, c.mode&0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(c.before)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			os.Remove(path)
			return "", err
		}
		return path, nil
	}
}
