package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/install"
)

// installing is what `conch mcp --install` is told.
type installing struct {
	install, uninstall, user, project, yes, dryRun bool
}

func (f *installing) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.install, "install", false, "write conch into the configuration of the programs named, or of all that are found: claude, codex, gemini, cursor, vscode")
	fl.BoolVar(&f.uninstall, "uninstall", false, "take it out again")
	fl.BoolVar(&f.user, "user", false, "with --install: for all your projects (the default)")
	fl.BoolVar(&f.project, "project", false, "with --install: for the current directory")
	fl.BoolVar(&f.yes, "yes", false, "with --install: do not ask")
	fl.BoolVar(&f.dryRun, "dry-run", false, "with --install: show the change and make none")
}

// wanted reports whether the verb is to install, and not to serve.
func (f *installing) wanted() (bool, error) {
	switch {
	case f.install && f.uninstall:
		return true, conch.Errorf(conch.InvalidRequest, "--install and --uninstall are both given")
	case f.install || f.uninstall:
		if f.user && f.project {
			return true, conch.Errorf(conch.InvalidRequest, "--user and --project are both given").Hint("one at a time")
		}
		return true, nil
	case f.user || f.project || f.yes || f.dryRun:
		return true, conch.Errorf(conch.InvalidRequest, "--user, --project, --yes and --dry-run are for --install and --uninstall")
	}
	return false, nil
}

// run shows what would change, asks, and changes it. All files are looked at before any
// is written.
func (f *installing) run(names []string) error {
	place, err := f.place()
	if err != nil {
		return err
	}
	programs, err := choose(names, place)
	if err != nil {
		return err
	}
	server := install.Server{Command: ownCommand(), Args: []string{"mcp"}}
	var changes []*install.Change
	for _, g := range programs {
		c, err := install.Plan(g, place, server, f.uninstall)
		if err != nil {
			return err
		}
		if c.Needed() {
			changes = append(changes, c)
			continue
		}
		has := "has conch already"
		if f.uninstall {
			has = "does not have conch"
		}
		fmt.Printf("%s %s (%s)\n", g.Title, has, c.Path)
	}
	for _, c := range changes {
		fmt.Printf("%s:\n%s", c.Program.Title, c.Diff())
	}
	if len(changes) == 0 || f.dryRun {
		return nil
	}
	if !f.yes {
		if !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
			return conch.Errorf(conch.InvalidRequest, "nothing was changed: there is nobody to ask").Hint("--yes makes the change; --dry-run only shows it")
		}
		if !agreed(fmt.Sprintf("Change %s? [y/N] ", plural(len(changes), "file", "files"))) {
			fmt.Println("nothing was changed")
			return nil
		}
	}
	for _, c := range changes {
		backup, err := c.Apply()
		if err != nil {
			return err
		}
		switch {
		case backup != "":
			fmt.Printf("wrote %s (before: %s)\n", c.Path, backup)
		default:
			fmt.Printf("wrote %s\n", c.Path)
		}
	}
	return nil
}

func (f *installing) place() (install.Place, error) {
	p := install.Place{Project: f.project, GOOS: runtime.GOOS, Getenv: os.Getenv}
	var err error
	if p.Home, err = os.UserHomeDir(); err != nil {
		return p, conch.Errorf(conch.HomeUnusable, "no home directory: %v", err).Hint("set HOME")
	}
	if p.Dir, err = os.Getwd(); err != nil {
		return p, conch.Errorf(conch.InvalidRequest, "the current directory is gone: %v", err)
	}
	return p, nil
}

// choose gives the programs that are named, or those that are found.
func choose(names []string, place install.Place) (list []install.Program, err error) {
	all := install.Programs()
	var known []string
	for _, g := range all {
		known = append(known, g.Name)
	}
	for _, n := range names {
		if n != "all" && !slices.Contains(known, n) {
			return nil, conch.Errorf(conch.InvalidRequest, "there is no program %q", n).Hint("%s, or all", strings.Join(known, ", "))
		}
	}
	for _, g := range all {
		named := slices.Contains(names, g.Name)
		if named || (len(names) == 0 || slices.Contains(names, "all")) && g.Found(place) {
			list = append(list, g)
		}
	}
	if len(list) == 0 {
		return nil, conch.Errorf(conch.InvalidRequest, "none of %s is found here", strings.Join(known, ", ")).
			Hint("name one to write its configuration all the same: conch mcp --install claude")
	}
	return list, nil
}

// ownCommand is how a program starts this conch: by name if PATH leads here.
func ownCommand() string {
	self, err := os.Executable()
	if err != nil {
		return "conch"
	}
	found, err := exec.LookPath("conch")
	if err != nil {
		return self
	}
	a, aerr := os.Stat(found)
	b, berr := os.Stat(self)
	if aerr != nil || berr != nil || !os.SameFile(a, b) || !filepath.IsAbs(found) {
		return self
	}
	return "conch"
}

// agreed asks a person.
func agreed(question string) bool {
	fmt.Fprint(os.Stderr, question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(os.Stderr) // Ctrl-D leaves the cursor behind the question
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
