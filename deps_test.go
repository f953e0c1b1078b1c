package conch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/conchsh/conch"

// goList gives one record per package, its fields apart.
func goList(t *testing.T, format string, args ...string) [][]string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-f", format}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	var list [][]string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, strings.Split(line, "|"))
		}
	}
	return list
}

// What a package may never reach, by way of others either. A pattern that ends
// in /... covers all below.
var forbidden = []struct{ from, to string }{
	{"internal/keeper", "internal/agent internal/envelope internal/api internal/host internal/daemon internal/session internal/store internal/mail internal/post internal/seal internal/relay client"},
	{"internal/shell", "internal/keeper internal/session internal/tape"},
	{"internal/session", "internal/relay internal/keeper internal/api internal/host internal/daemon internal/store internal/mail client"},
	{"internal/mail", "internal/post internal/seal internal/relay internal/keeper internal/api internal/host internal/daemon internal/session client"},
	{"internal/post", "internal/keeper internal/api internal/host internal/daemon internal/session client"},
	{"internal/host", "internal/keeper internal/api internal/daemon client"},
	{"internal/api", "internal/keeper internal/daemon client"},
	{"internal/mcp", "internal/relay internal/api internal/host internal/daemon internal/session internal/keeper internal/store internal/mail"},
	{"internal/hook", "internal/relay internal/api internal/host internal/daemon internal/session internal/keeper internal/store internal/mail internal/mcp"},
	{"internal/frame", "client internal/..."},
	{"internal/agent", "internal/session internal/host internal/api internal/seal client"},
	{"internal/seal", "internal/relay internal/store internal/mail internal/host internal/session internal/api client"},
	{"internal/relay", "internal/keeper internal/session internal/store internal/mail internal/seal internal/host internal/api internal/daemon client"},
	{"internal/envelope", "client internal/..."},
	{"client", "internal/relay internal/api internal/host internal/daemon internal/session internal/keeper internal/store internal/mail internal/seal"},
	{"internal/...", "cmd/..."},
}

func matches(pattern, pkg string) bool {
	pkg = strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(pkg, dir+"/")
	}
	return pkg == pattern
}

// bypasses reports whether pkg has what is owner's by another way than owner.
func bypasses(owner, pkg string, deps []string) bool {
	return !matches(owner, pkg) && !slices.Contains(deps, module+"/"+owner)
}

func TestDirectionOfImports(t *testing.T) {
	for _, p := range goList(t, `{{.ImportPath}}|{{join .Deps " "}}`, "./...") {
		pkg, deps := p[0], strings.Fields(p[1])
		for _, dep := range deps {
			for _, f := range forbidden {
				if matches(f.from, pkg) && strings.HasPrefix(dep, module) &&
					slices.ContainsFunc(strings.Fields(f.to), func(to string) bool { return matches(to, dep) }) {
					t.Errorf("%s reaches %s", pkg, dep)
				}
			}
			if strings.HasPrefix(dep, "github.com/spf13/cobra") && !matches("cmd/...", pkg) {
				t.Errorf("%s reaches %s, which is the command line's", pkg, dep)
			}
			if strings.HasPrefix(dep, "golang.org/x/crypto/") && matches("internal/keeper", pkg) {
				t.Errorf("%s reaches %s, and is paid once a session", pkg, dep)
			}
			if strings.HasPrefix(dep, "modernc.org/sqlite") && bypasses("internal/store", pkg, deps) {
				t.Errorf("%s imports %s, which is internal/store's", pkg, dep)
			}
			if strings.HasPrefix(dep, "maunium.net/") && bypasses("internal/seal", pkg, deps) {
				t.Errorf("%s imports %s, which is internal/seal's", pkg, dep)
			}
			if strings.HasPrefix(dep, "github.com/nats-io/") && bypasses("internal/relay", pkg, deps) {
				t.Errorf("%s imports %s, which is internal/relay's", pkg, dep)
			}
			if strings.HasPrefix(dep, "github.com/modelcontextprotocol/") && !matches("internal/mcp", pkg) && !matches("cmd/...", pkg) {
				t.Errorf("%s reaches %s, which is for internal/mcp", pkg, dep)
			}
			if first, _, _ := strings.Cut(dep, "/"); pkg == module && strings.Contains(first, ".") {
				t.Errorf("the root package imports %s: it has the standard library only", dep)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range goList(t, `{{.ImportPath}}|{{.Name}}|{{.Doc}}`, "./...") {
		want := "Package " + p[1] + " "
		if p[1] == "main" {
			want = "Command " + filepath.Base(p[0]) + " "
		}
		if !strings.HasPrefix(p[2], want) {
			t.Errorf("the comment of package %s begins %.30q, want %q", p[0], p[2], want)
		}
	}
}

// Texts that the licences we take are known by. One that is not among them
// needs a decision, and then a line here.
var (
	permissive = regexp.MustCompile(`(?is)Apache License\s+Version 2\.0|` + // Apache-2.0
		`Permission is hereby granted, free of charge|` + // MIT
		`Redistribution and use in source and binary forms|` + // BSD
		`Permission to use, copy, modify, and(/or)? distribute this software`) // ISC
	copyleft    = regexp.MustCompile(`(?i)GNU (AFFERO |LESSER |LIBRARY )?GENERAL PUBLIC LICENSE|Mozilla Public License|Server Side Public License|Business Source License`)
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	weak        = regexp.MustCompile(`(?i)Mozilla Public License,? Version 2\.0`)
)

// Modules under the MPL-2.0, which asks only that their own files stay under it:
// they are used as they come.
var weakModules = []string{"maunium.net/go/mautrix", "go.mau.fi/util", "pgregory.net/rapid"}

// TestLicences looks at every module that is built in, tests included.
func TestLicences(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range goList(t, `{{with .Module}}{{.Path}}|{{.Dir}}{{end}}`, "-deps", "-test", "./...") {
		path, dir := p[0], p[1]
		if seen[path] {
			continue
		}
		seen[path] = true
		var text []byte
		ents, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range ents {
			// A list of others' licences is not this module's: those of them that
			// are built in have their own turn here.
			if licenceName.MatchString(e.Name()) && !strings.Contains(strings.ToUpper(e.Name()), "3RD-PARTY") && e.Type().IsRegular() {
				b, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					t.Error(err)
				}
				text = append(text, b...)
			}
		}
		switch {
		case len(text) == 0:
			t.Errorf("%s has no licence", path)
		case slices.Contains(weakModules, path) && weak.Match(text):
		case copyleft.Match(text):
			t.Errorf("%s: %s", path, copyleft.Find(text))
		case !permissive.Match(text):
			t.Errorf("%s has an unknown licence: %.200q", path, text)
		}
	}
	if !seen[module] || len(seen) < 4 {
		t.Errorf("looked only at %v", seen)
	}
}
