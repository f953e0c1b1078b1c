package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// openapi serves the description of the API. It is made when asked for: nobody
// else pays for it.
func (s *server) openapi(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, Describe(s.h.Version))
}

type object = map[string]any

// Describe is the OpenAPI 3.1 description of all calls, made from the table of
// routes and the Go types it names.
func Describe(version string) map[string]any {
	d := &describer{words: words(), schemas: object{}}
	d.schema(reflect.TypeFor[conch.Event](), false)
	d.schema(reflect.TypeFor[conch.TerminalEvent](), false)
	d.schema(reflect.TypeFor[conch.TerminalCommand](), true)
	paths := object{}
	add := func(tag string, list []route.Route) {
		for _, r := range list {
			item, _ := paths[r.Path].(object)
			if item == nil {
				item = object{}
				paths[r.Path] = item
			}
			item[strings.ToLower(r.Method)] = d.operation(tag, r)
		}
	}
	add("daemon", route.Daemon())
	add("session", route.Session())
	return object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info": object{
			"title": "conch", "version": version,
			"summary":     "Shells that keep their state, for agents and programs.",
			"description": d.words["info"].text,
		},
		"servers": []object{{"url": "http://conch", "description": "The daemon's unix socket, run/d.sock in conch's home; any host name will do."}},
		"tags": []object{
			{"name": "daemon", "description": "Answered by the daemon itself."},
			{"name": "session", "description": "Answered by a session's keeper, to which the daemon hands the connection."},
		},
		"paths": paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{"token": object{
				"type": "http", "scheme": "bearer", "description": "Over the network: a token with one of these scopes. exec includes read, admin everything.",
			}},
			"headers": object{
				HeaderProtocol: object{"description": "The protocol the answerer speaks.", "schema": object{"type": "integer"}},
				HeaderVersion:  object{"description": "The answerer's version.", "schema": object{"type": "string"}},
			},
		},
	}
}

type describer struct {
	words   map[string]word
	schemas object
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func (d *describer) operation(tag string, r route.Route) object {
	op := object{
		"operationId": r.Name, "summary": r.Summary, "tags": []string{tag},
		"parameters": d.parameters(r), "responses": d.responses(r),
		// On the unix socket none is needed.
		"security": []object{{}, {"token": r.Scope.Names()}},
	}
	if r.Detail != "" {
		op["description"] = r.Detail
	}
	switch {
	case r.Upload:
		op["requestBody"] = object{"required": false, "description": "Bytes, as they come; of any length.",
			"content": object{route.BytesType: object{}}}
	case r.Body != nil:
		most := r.MaxBody
		if most == 0 {
			most = route.MaxBody
		}
		op["requestBody"] = object{"required": !r.Optional, "description": fmt.Sprintf("At most %d bytes.", most),
			"content": object{route.JSONType: object{"schema": d.schema(reflect.TypeOf(r.Body), true)}}}
	}
	return op
}

func (d *describer) parameters(r route.Route) []object {
	list := []object{}
	for _, name := range r.Params() {
		w := d.words["path."+name]
		schema := object{"type": "string"}
		for k, v := range w.schema {
			schema[k] = v
		}
		list = append(list, object{"name": name, "in": "path", "required": true, "description": w.text, "schema": schema})
	}
	for in, params := range map[string][]route.Param{"query": r.Query, "header": r.Header} {
		for _, p := range params {
			schema := object{"type": string(p.Type)}
			switch p.Type {
			case route.Integer:
				schema["minimum"], schema["format"] = 0, "int64"
				if p.Max > 0 {
					schema["maximum"] = p.Max
				}
			case route.String:
				if len(p.Enum) > 0 {
					schema["enum"] = p.Enum
				}
			}
			list = append(list, object{"name": p.Name, "in": in, "required": false, "description": p.Doc, "schema": schema})
		}
	}
	return list
}

func (d *describer) responses(r route.Route) object {
	content := object{}
	if r.Answer != nil {
		content[route.JSONType] = object{"schema": d.answer(r.Answer)}
	}
	for _, m := range r.Media {
		content[m] = object{}
		if strings.HasPrefix(m, "text/") {
			content[m] = object{"schema": object{"type": "string"}}
		}
	}
	headers := object{}
	for _, name := range []string{HeaderProtocol, HeaderVersion} {
		headers[name] = object{"$ref": "#/components/headers/" + name}
	}
	if r.Name == "exec" {
		headers["Conch-Command-Id"] = object{"description": "The command's id.", "schema": d.schema(reflect.TypeFor[conch.CommandID](), false)}
	}
	out := object{"200": object{"description": "Done.", "headers": headers, "content": content}}
	if r.Socket {
		out = object{"101": object{"description": "It is a WebSocket from here on.", "headers": headers}}
	}
	if r.Empty != "" {
		out["204"] = object{"description": strings.ToUpper(r.Empty[:1]) + r.Empty[1:] + "."}
	}
	codes := map[int][]string{}
	for _, k := range append(route.Common(), r.Errors...) {
		codes[k.HTTPStatus()] = append(codes[k.HTTPStatus()], string(k))
	}
	body := d.schema(reflect.TypeFor[conch.ErrorBody](), false)
	for status, kinds := range codes {
		slices.Sort(kinds)
		out[strconv.Itoa(status)] = object{
			"description": http.StatusText(status) + ": " + strings.Join(slices.Compact(kinds), ", ") + ".",
			"content":     object{route.JSONType: object{"schema": body}},
		}
	}
	return out
}

func (d *describer) answer(v any) object {
	if e, ok := v.(route.Either); ok {
		return object{"anyOf": []object{d.answer(e[0]), d.answer(e[1])}}
	}
	return d.schema(reflect.TypeOf(v), false)
}

// schema describes a type. Named structs and named strings are components;
// request says that words it does not know are refused.
func (d *describer) schema(t reflect.Type, request bool) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case reflect.TypeFor[conch.Kind]():
		var codes []string
		for _, k := range conch.Kinds() {
			codes = append(codes, string(k))
		}
		return d.component("ErrorCode", func() object { return object{"type": "string", "enum": codes} })
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := d.schema(t.Elem(), request)
		if kind, ok := s["type"].(string); ok {
			s["type"] = []string{kind, "null"}
			return s
		}
		return object{"anyOf": []object{s, {"type": "null"}}}
	case reflect.Struct:
		if t.Name() == "" {
			return d.structure(t, "", request)
		}
		return d.component(t.Name(), func() object { return d.structure(t, t.Name(), request) })
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": "object", "additionalProperties": d.schema(t.Elem(), request)}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem(), request)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.String:
		if t.PkgPath() != "" {
			return d.component(t.Name(), func() object { return object{"type": "string"} })
		}
		return object{"type": "string"}
	}
	panic("no schema for " + t.String()) // a test describes all there is
}

// component keeps a schema once, under its name, and gives a reference to it.
func (d *describer) component(name string, make func() object) object {
	if _, ok := d.schemas[name]; !ok {
		d.schemas[name] = object{} // against going round in circles
		s := make()
		d.say(s, name)
		d.schemas[name] = s
	}
	return ref(name)
}

// say adds what is written of a name to its schema.
func (d *describer) say(s object, name string) {
	w := d.words[name]
	for k, v := range w.schema {
		s[k] = v
	}
	if w.text != "" {
		s["description"] = w.text
	}
}

func (d *describer) structure(t reflect.Type, name string, request bool) object {
	props, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if tag == "" || tag == "-" {
			continue // embedded: its fields are visible themselves
		}
		key, opts, _ := strings.Cut(tag, ",")
		s := d.schema(f.Type, request)
		owner := name
		if len(f.Index) > 1 {
			owner = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type.Name()
		}
		d.say(s, owner+"."+key)
		props[key] = s
		if !strings.Contains(opts, "omit") {
			required = append(required, key)
		}
	}
	s := object{"type": "object", "properties": props}
	if len(required) > 0 {
		s["required"] = required
	}
	if request {
		s["additionalProperties"] = false
	}
	return s
}

// A word is what is said of a type, field or parameter beyond its Go type.
type word struct {
	schema object
	text   string
}

// words reads wordText.
func words() map[string]word {
	m := map[string]word{}
	for line := range strings.Lines(wordText) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		w := word{text: strings.TrimSpace(rest)}
		if strings.HasPrefix(w.text, "{") {
			dec := json.NewDecoder(strings.NewReader(w.text))
			if dec.Decode(&w.schema) == nil {
				w.text = strings.TrimSpace(w.text[dec.InputOffset():])
			}
		}
		m[name] = w
	}
	return m
}
