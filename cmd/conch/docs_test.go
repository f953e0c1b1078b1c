package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/conchsh/conch/bench"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/route"
)

// The documents name verbs, statuses, fault points and routes. What they name
// must be there, and what is there must be named.

const root = "../.."

func document(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sources is every Go file of the program, tests left out.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		files[filepath.ToSlash(path)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// found gives what the first group of pattern matches, sorted, each once.
func found(text, pattern string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// section is what stands under a heading, up to the next of its level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, after, ok := strings.Cut("\n"+text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	body, _, _ := strings.Cut(after, "\n## ")
	return body
}

func same(t *testing.T, what string, documented, real []string) {
	t.Helper()
	for _, d := range documented {
		if !slices.Contains(real, d) {
			t.Errorf("%s %q is documented and does not exist", what, d)
		}
	}
	for _, r := range real {
		if !slices.Contains(documented, r) {
			t.Errorf("%s %q is not documented", what, r)
		}
	}
}

func TestDocumentedVerbs(t *testing.T) {
	r := newRoot()
	r.InitDefaultCompletionCmd()
	var verbs []string
	for _, c := range r.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	readme := document(t, "README.md")
	same(t, "verb", found(section(t, readme, "Verbs"), "(?m)^\\| `conch ([a-z]+)`"), verbs)
	for _, name := range []string{"README.md", "docs/ARCHITECTURE.md", "docs/DESIGN.md", "docs/CONFIG.md", "CONTRIBUTING.md", "scripts/tour.sh"} {
		for _, verb := range found(document(t, name), "(?:[$;&] |[`\"/])conch ([a-z]+)\\b") {
			if !slices.Contains(verbs, verb) && verb != "help" && verb != "keeper" && verb != "daemon" {
				t.Errorf("%s: there is no verb %q", name, verb)
			}
		}
	}
}

func TestDocumentedFlags(t *testing.T) {
	readme := document(t, "README.md")
	exec := newExec(new(app))
	for _, m := range regexp.MustCompile(`conch exec ((?:-[-\w]+(?: [^'-]\S*)? )*)`).FindAllStringSubmatch(readme, -1) {
		for _, flag := range strings.Fields(m[1]) {
			name := strings.TrimLeft(flag, "-")
			switch {
			case strings.HasPrefix(flag, "--") && exec.Flags().Lookup(name) == nil:
				t.Errorf("README: exec has no flag %s", flag)
			case !strings.HasPrefix(flag, "--") && strings.HasPrefix(flag, "-") && exec.Flags().ShorthandLookup(name) == nil:
				t.Errorf("README: exec has no flag %s", flag)
			}
		}
	}
}

func TestDocumentedStatuses(t *testing.T) {
	var real []string
	for _, n := range []int{statusUnwell, statusTimedOut, statusFailed, statusInterrupted, statusPipe} {
		real = append(real, strconv.Itoa(n))
	}
	same(t, "exit status", found(section(t, document(t, "README.md"), "Exit status"), `(?m)^\| ([0-9]+) \|`), real)
}

func TestDocumentedVariables(t *testing.T) {
	var all strings.Builder
	for path, text := range sources(t) {
		if !strings.Contains(path, "/conchtest/") && !strings.Contains(path, "/fakekeeper/") {
			all.WriteString(text)
		}
	}
	real := slices.DeleteFunc(found(all.String(), `"(CONCH_[A-Z_]+)"`), func(s string) bool { return s == "CONCH_FAULT" })
	for _, k := range config.Keys() {
		real = append(real, k.Variable())
	}
	slices.Sort(real)
	same(t, "variable", found(document(t, "README.md")+document(t, "docs/CONFIG.md"), "(?m)^\\| `(CONCH_[A-Z_]+)`"), slices.Compact(real))
}

// docs/CONFIG.md has every key, as it is.
func TestDocumentedConfig(t *testing.T) {
	var want []string
	for _, k := range config.Keys() {
		v, err := k.Parse(k.Default) // of a text: nothing, which is off
		if err != nil {
			t.Fatal(err)
		}
		one := ""
		if k.Session {
			one = "yes"
		}
		doc := k.Doc
		if k.Zero != "" {
			doc += "; `off`: " + k.Zero
		}
		want = append(want, fmt.Sprintf("| `%s` | `%s` | %s | %s | %s |", k.Variable(), k.Name, k.Format(v), one, doc))
	}
	doc := document(t, "docs/CONFIG.md")
	if missing := slices.DeleteFunc(slices.Clone(want), func(l string) bool { return strings.Contains(doc, l+"\n") }); len(missing) > 0 {
		t.Errorf("docs/CONFIG.md should say:\n%s", strings.Join(missing, "\n"))
	}
	if rows := strings.Count(doc, "\n| `CONCH_"); rows != len(want) {
		t.Errorf("docs/CONFIG.md lists %d keys; there are %d", rows, len(want))
	}
	keeper := sources(t)[root+"/internal/keeper/limits.go"]
	for _, k := range config.Keys() {
		if k.Keeper != strings.Contains(keeper, `"`+k.Variable()+`"`) {
			t.Errorf("%s: the configuration and the keeper do not agree whether it is the keeper's", k.Name)
		}
	}
}

func TestDocumentedFaultPoints(t *testing.T) {
	var all strings.Builder
	for _, text := range sources(t) {
		all.WriteString(text)
	}
	doc := section(t, document(t, "docs/ARCHITECTURE.md"), "Fault points")
	same(t, "fault point", found(doc, "(?m)^\\| `([a-z.-]+)`"), found(all.String(), `fault\.Point\("([^"]+)"\)`))
}

func TestDocumentedRoutes(t *testing.T) {
	var real []string
	for _, r := range append(route.Daemon(), route.Session()...) {
		// The calls about a command or process in its session are those by its id alone.
		if !strings.Contains(r.Path, "{label}/commands/") && !strings.Contains(r.Path, "{label}/processes/{id}") {
			real = append(real, r.Method+" "+r.Path)
		}
	}
	same(t, "route", found(section(t, document(t, "docs/ARCHITECTURE.md"), "HTTP"), "(?m)^\\| `((?:GET|POST) [^`]+)`"), real)
}

// What the documents link to is there.
func TestDocumentedLinks(t *testing.T) {
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/AGENTS.md", "docs/ARCHITECTURE.md", "docs/DESIGN.md", "docs/CONFIG.md", "docs/SECURITY.md", "plugin/README.md"} {
		for _, link := range found(document(t, name), `\]\(([^)]+)\)`) {
			path, anchor, _ := strings.Cut(link, "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			text := document(t, target)
			heading := "## " + strings.ReplaceAll(anchor, "-", " ")
			if anchor != "" && !strings.Contains(strings.ToLower(text), strings.ToLower(heading)+"\n") {
				t.Errorf("%s: %s has no heading %q", name, target, anchor)
			}
		}
	}
}

// The table of packages has every package, with what it imports.
func TestDocumentedPackages(t *testing.T) {
	imports := map[string][]string{}
	for path, text := range sources(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root), "/")
		if dir == "" {
			dir = "conch"
		}
		if strings.HasSuffix(dir, "/fakekeeper") {
			continue
		}
		for _, p := range found(text, `(?m)^(?:import|\s+\w*)\s*"github\.com/conchsh/(conch[^"]*)"`) {
			imports[dir] = append(imports[dir], filepath.Base(p))
		}
		imports[dir] = slices.Clip(imports[dir])
	}
	var dirs []string
	for d := range imports {
		dirs = append(dirs, d)
	}
	doc := section(t, document(t, "docs/ARCHITECTURE.md"), "Packages")
	same(t, "package", found(doc, "(?m)^\\| `([a-z/]+)`"), dirs)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+)`.*\\| ([^|]+) \\|$").FindAllStringSubmatch(doc, -1) {
		real := imports[m[1]]
		slices.Sort(real)
		var documented []string
		if m[2] != "–" {
			documented = strings.Split(m[2], ", ")
		}
		same(t, "import of "+m[1], documented, slices.Compact(real))
	}
}

// The figures are those of a whole run.
func TestDocumentedBench(t *testing.T) {
	doc := section(t, document(t, "docs/DESIGN.md"), "Figures")
	if !strings.Contains(doc, "2 cores") || strings.Count(doc, "\n| ") < len(bench.Parts()) {
		t.Error("docs/DESIGN.md has no table of figures")
	}
}
