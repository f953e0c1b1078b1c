package mcp_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conchsh/conch/internal/conchtest"
)

const repo = "../.."

// strict reads a JSON file of which every field is known.
func strict(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repo, path))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

type person struct{ Name, URL string }

// The manifests are as Claude Code wants them (its own validator was run by hand), and
// say the same.
func TestPluginManifests(t *testing.T) {
	var plugin struct {
		Name, DisplayName, Version, Description, Homepage, Repository, License string
		Author                                                                 person
		Keywords                                                               []string
	}
	strict(t, "plugin/.claude-plugin/plugin.json", &plugin)
	if plugin.Name != "conch" || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(plugin.Version) || plugin.Description == "" || plugin.License != "Apache-2.0" {
		t.Errorf("%+v", plugin)
	}
	var market struct {
		Name     string
		Owner    person
		Metadata struct{ Description string }
		Plugins  []struct {
			Name, Source, Description, Category string
			Keywords                            []string
		}
	}
	strict(t, ".claude-plugin/marketplace.json", &market)
	if len(market.Plugins) != 1 || market.Plugins[0].Name != plugin.Name || market.Plugins[0].Description != plugin.Description {
		t.Fatalf("%+v", market)
	}
	if fi, err := os.Stat(filepath.Join(repo, market.Plugins[0].Source, ".claude-plugin", "plugin.json")); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("the marketplace names no plugin: %v", err)
	}
	var servers struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	strict(t, "plugin/.mcp.json", &servers)
	if s := servers.Servers["conch"]; len(servers.Servers) != 1 || s.Command != "conch" || !slices.Equal(s.Args, []string{"mcp"}) {
		t.Errorf("%+v", servers)
	}
}

// The hooks are run as Claude Code runs them: by a shell, with JSON on stdin.
func TestPluginHooks(t *testing.T) {
	t.Parallel()
	var file struct {
		Description string
		Hooks       map[string][]struct {
			Hooks []struct {
				Type, Command string
				Timeout       int
			}
		}
	}
	strict(t, "plugin/hooks/hooks.json", &file)
	h := conchtest.New(t)
	server := connect(h.With("CLAUDE_CODE_SESSION_ID=s"), withInitialize)
	label := server.whoami().Label
	run := func(command, path, in string) (string, string, error) {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
		cmd.Env = append(slices.Clone(h.Env), "PATH="+path)
		cmd.Dir, cmd.Stdin = h.Work, strings.NewReader(in)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	with := filepath.Dir(h.Exe) + ":/usr/bin:/bin"
	// A conch that fails like nothing of ours does.
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "conch"), []byte("#!/bin/sh\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"SessionStart": "you are me/" + label, "UserPromptSubmit": "to the prompt", "Stop": `"decision":"block"`, "SessionEnd": "",
	}
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"} {
		groups := file.Hooks[event]
		if len(groups) != 1 || len(groups[0].Hooks) != 1 {
			t.Fatalf("%s: %+v", event, groups)
		}
		k := groups[0].Hooks[0]
		if k.Type != "command" || k.Timeout <= 2 {
			t.Errorf("%s: %+v", event, k)
		}
		if event == "UserPromptSubmit" {
			server.ok(nil, "send", args{"to": label, "text": "to the prompt"})
		}
		const in = `{"session_id":"s","hook_event_name":"x","stop_hook_active":false}`
		out, errs, err := run(k.Command, with, in)
		if err != nil || errs != "" || !strings.Contains(out, want[event]) || want[event] == "" && out != "" {
			t.Errorf("%s: %v, %q, stderr %q", event, err, out, errs)
		}
		// Without conch, and with a broken one, nothing stops and nothing is said but once.
		for _, path := range []string{"/nonexistent", broken + ":/usr/bin:/bin"} {
			out, errs, err := run(k.Command, path, in)
			if err != nil || errs != "" || out != "" && (event != "SessionStart" || !strings.Contains(out, "not on PATH")) {
				t.Errorf("%s with PATH %s: %v, %q, stderr %q", event, path, err, out, errs)
			}
		}
		delete(file.Hooks, event)
	}
	if len(file.Hooks) > 0 {
		t.Errorf("hooks that are not tested: %v", file.Hooks)
	}
}

// What the commands, the skills and the page for agents speak of is there: verbs with
// their flags, tools with their arguments.
func TestPluginWords(t *testing.T) {
	t.Parallel()
	h := conchtest.New(t)
	p := connect(h, withoutInitialize)
	list, err := p.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string][]string{} // with their arguments
	known := map[string]bool{}
	for _, tool := range list.Tools {
		raw, _ := json.Marshal(tool.InputSchema)
		var schema struct{ Properties map[string]any }
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		known[tool.Name] = true
		for name := range schema.Properties {
			known[name] = true
			tools[tool.Name] = append(tools[tool.Name], name)
		}
	}
	// States of a message, and programs, that the texts name.
	for _, word := range []string{"stored", "held", "offered", "seen", "exit", "top", "cd", "return", "sleep", "nohup", "disown", "conch"} {
		known[word] = true
	}
	var files []string
	err = filepath.WalkDir(filepath.Join(repo, "plugin"), func(path string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") && err == nil {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files = append(files, filepath.Join(repo, "docs", "AGENTS.md")); len(files) < 12 {
		t.Errorf("only %v", files)
	}
	front := regexp.MustCompile(`(?s)^---\n(.*?)\n---\n\n(.+)`)
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if strings.Contains(path, "/commands/") || strings.Contains(path, "/skills/") {
			m := front.FindStringSubmatch(text)
			if m == nil || !strings.Contains(m[1], "description: ") {
				t.Errorf("%s has no description", path)
				continue
			}
			if dir := filepath.Base(filepath.Dir(path)); strings.Contains(path, "/skills/") && !strings.Contains(m[1], "name: "+dir+"\n") {
				t.Errorf("%s is called otherwise", path)
			}
			for _, m := range regexp.MustCompile(`mcp__plugin_conch_conch__(\w+)`).FindAllStringSubmatch(m[1], -1) {
				if tools[m[1]] == nil && !known[m[1]] {
					t.Errorf("%s allows the tool %s, which is none", path, m[1])
				}
			}
		}
		for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			switch {
			case words[0] == "conch" && len(words) > 1:
				verb(h, path, words[1:])
			case regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(m[1]) && !known[m[1]]:
				t.Errorf("%s: %s is no tool and no argument of one", path, m[1])
			}
			// A call written out.
			if name, object, ok := strings.Cut(m[1], " {"); ok && tools[name] != nil {
				var given map[string]any
				if err := json.Unmarshal([]byte("{"+object), &given); err != nil {
					t.Errorf("%s: %s: %v", path, m[1], err)
				}
				for a := range given {
					if !slices.Contains(tools[name], a) {
						t.Errorf("%s: %s takes no %s", path, name, a)
					}
				}
			}
		}
	}
}

// verb checks that a command line's verbs and flags exist.
func verb(h *conchtest.Home, path string, words []string) {
	h.T.Helper()
	var verbs []string
	for _, w := range words {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(w) {
			break
		}
		verbs = append(verbs, w)
	}
	// conch agent ls is two verbs, conch mcp claude is one and a word.
	help := ""
	for ; len(verbs) > 0; verbs = verbs[:len(verbs)-1] {
		if o := h.Conch(append(slices.Clone(verbs), "--help")...); o.Status == 0 && strings.Contains(o.Stdout, "conch "+strings.Join(verbs, " ")) {
			help = o.Stdout
			break
		}
	}
	if help == "" {
		h.T.Errorf("%s: there is no verb in conch %s", path, strings.Join(words, " "))
	}
	for _, w := range words {
		if flag, _, _ := strings.Cut(w, "="); strings.HasPrefix(flag, "-") && !strings.Contains(help, " "+flag+" ") && !strings.Contains(help, flag+",") {
			h.T.Errorf("%s: conch %s has no flag %s", path, strings.Join(verbs, " "), flag)
		}
	}
}
