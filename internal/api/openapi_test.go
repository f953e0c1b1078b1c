package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/conchsh/conch/internal/route"
)

// document is the description as a client reads it.
func document(t *testing.T) map[string]any {
	t.Helper()
	b, err := json.Marshal(Describe("test"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any)
}

func TestEveryCallHasItsHandler(t *testing.T) {
	if _, wrong := route.Build(route.Daemon(), (&server{}).handlers(), fail); len(wrong) > 0 {
		t.Errorf("calls without handler, or handlers without call: %v", wrong)
	}
}

// walk calls f with every value in a document, and the way to it.
func walk(v any, at string, f func(at string, v any)) {
	f(at, v)
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			walk(e, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), f)
		}
	case []any:
		for i, e := range v {
			walk(e, fmt.Sprintf("%s/%d", at, i), f)
		}
	}
}

// What OpenAPI 3.1 asks of a document, as far as ours uses it: the fixed words of
// each object, what must be there, references that lead somewhere, names that are
// unique, parameters that are those of the path.
func TestOpenAPI(t *testing.T) {
	doc := document(t)
	only := func(at string, m map[string]any, need string, may string) {
		t.Helper()
		for _, k := range strings.Fields(need) {
			if _, ok := m[k]; !ok {
				t.Errorf("%s has no %s", at, k)
			}
		}
		for k := range m {
			if !slices.Contains(strings.Fields(need+" "+may), k) && !strings.HasPrefix(k, "x-") {
				t.Errorf("%s has %s, which OpenAPI does not know", at, k)
			}
		}
	}
	sub := func(at string, m map[string]any, key string) map[string]any {
		t.Helper()
		v, ok := m[key].(map[string]any)
		if !ok {
			t.Errorf("%s: %s is no object", at, key)
		}
		return v
	}
	only("document", doc, "openapi info paths", "jsonSchemaDialect servers components tags")
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi %v", doc["openapi"])
	}
	only("info", sub("document", doc, "info"), "title version", "summary description")
	only("components", sub("document", doc, "components"), "", "schemas headers securitySchemes")

	content := func(at string, m map[string]any) {
		for kind, media := range m {
			if !regexp.MustCompile(`^[a-z]+/[a-z0-9.+-]+$`).MatchString(kind) {
				t.Errorf("%s: %q is no media type", at, kind)
			}
			only(at+" "+kind, media.(map[string]any), "", "schema example")
		}
	}
	ids := map[string]bool{}
	served := map[string]bool{}
	for _, r := range append(route.Daemon(), route.Session()...) {
		served[strings.ToLower(r.Method)+" "+r.Path] = true
	}
	for path, item := range sub("document", doc, "paths") {
		for method, op := range item.(map[string]any) {
			at, o := method+" "+path, op.(map[string]any)
			if !served[at] {
				t.Errorf("%s is described and not in the table", at)
			}
			delete(served, at)
			only(at, o, "operationId summary responses parameters tags security", "description requestBody")
			id, _ := o["operationId"].(string)
			if id == "" || ids[id] {
				t.Errorf("%s: operationId %q is empty or doubled", at, id)
			}
			ids[id] = true
			var inPath []string
			names := map[string]bool{}
			for _, p := range o["parameters"].([]any) {
				p := p.(map[string]any)
				only(at+" parameter", p, "name in required description schema", "")
				key := fmt.Sprint(p["in"], " ", p["name"])
				if names[key] {
					t.Errorf("%s: parameter %s is doubled", at, key)
				}
				names[key] = true
				if p["in"] == "path" {
					inPath = append(inPath, "{"+p["name"].(string)+"}")
					if p["required"] != true {
						t.Errorf("%s: %s must be required", at, key)
					}
				}
			}
			if want := regexp.MustCompile(`\{[^}]+\}`).FindAllString(path, -1); !slices.Equal(want, inPath) {
				t.Errorf("%s: path parameters %v", at, inPath)
			}
			if body, ok := o["requestBody"].(map[string]any); ok {
				only(at+" body", body, "content", "required description")
				content(at, sub(at, body, "content"))
			}
			responses := sub(at, o, "responses")
			if responses["200"] == nil && responses["101"] == nil || responses["400"] == nil {
				t.Errorf("%s: no 200 or no 400", at)
			}
			for status, r := range responses {
				r := r.(map[string]any)
				only(at+" "+status, r, "description", "headers content")
				if !regexp.MustCompile(`^(101|[2-5][0-9][0-9])$`).MatchString(status) {
					t.Errorf("%s: status %s", at, status)
				}
				if status != "204" && status != "101" {
					content(at+" "+status, sub(at, r, "content"))
				}
			}
		}
	}
	if len(served) > 0 {
		t.Errorf("not described: %v", served)
	}
	walk(doc, "#", func(at string, v any) {
		m, _ := v.(map[string]any)
		to, ok := m["$ref"].(string)
		if !ok {
			return
		}
		var target any = doc
		for _, step := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
			next, _ := target.(map[string]any)
			target = next[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		}
		if target == nil || !strings.HasPrefix(to, "#/") {
			t.Errorf("%s: %s leads nowhere", at, to)
		}
	})
}

// Every schema is one by the rules of JSON Schema 2020-12, and says what it is for.
func TestSchemas(t *testing.T) {
	doc := document(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	schemas := 0
	walk(doc, "#", func(at string, v any) {
		m, ok := v.(map[string]any)
		inside := strings.HasSuffix(at, "/schema") || regexp.MustCompile(`^#/components/schemas/[^/]+$`).MatchString(at)
		if !ok || !inside {
			return
		}
		schemas++
		if _, err := c.Compile("openapi.json" + at); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		props, _ := m["properties"].(map[string]any)
		for name, p := range props {
			if d, _ := p.(map[string]any)["description"].(string); len(d) < 5 {
				t.Errorf("%s: nothing is said of %s", at, name)
			}
		}
		if d, _ := m["description"].(string); len(d) < 5 && strings.HasPrefix(at, "#/components/schemas/") {
			t.Errorf("%s: nothing is said of it", at)
		}
	})
	if schemas < 50 {
		t.Errorf("only %d schemas were found", schemas)
	}
	for name := range words() {
		owner, field, _ := strings.Cut(name, ".")
		all := doc["components"].(map[string]any)["schemas"].(map[string]any)
		s, ok := all[owner].(map[string]any)
		if owner == "path" || owner == "" || owner == "info" || owner == "ExecRequest" || owner == "RunRequest" {
			continue
		}
		props, _ := s["properties"].(map[string]any)
		if !ok || field != "" && props[field] == nil {
			t.Errorf("words.go speaks of %s, which is nothing", name)
		}
	}
}
