package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/frame"
)

// A tool is one line of the table. Its arguments are a struct; those without omitempty
// must be given.
type tool struct {
	name, description string
	scope             string // those of which one is needed, where the caller has some only
	readOnly          bool
	in                any // the zero value of the arguments
	run               func(context.Context, *call) (reply, error)
}

// A call is one use of a tool.
type call struct {
	s      *Server
	req    *sdk.CallToolRequest
	ticket *ticket // nil: it waits for no other
	reads  bool
}

// A reply is what a tool gives: a value that becomes a JSON object, and a text.
type reply struct {
	value any
	text  string
}

// typed makes the handler of the table from one that takes its arguments.
func typed[In any](f func(context.Context, *call, In) (reply, error)) func(context.Context, *call) (reply, error) {
	return func(ctx context.Context, c *call) (reply, error) {
		in, err := arguments[In](c.req.Params.Arguments)
		if err != nil {
			return reply{}, err
		}
		return f(ctx, c, in)
	}
}

// arguments reads what the model gave. It says which argument is wrong and which
// there are: the model corrects itself from that.
func arguments[In any](raw json.RawMessage) (in In, err error) {
	var all, required []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[In]()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	wrong := func(format string, args ...any) error {
		e := conch.Errorf(conch.InvalidRequest, format, args...)
		if len(all) == 0 {
			return e.Hint("it takes no arguments")
		}
		return e.Hint("arguments: %s; required: %s", strings.Join(all, ", "), strings.Join(required, ", "))
	}
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		raw = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) && mismatch.Field != "" {
			return in, wrong("%s must be a %s, not a %s", mismatch.Field, jsonKind(mismatch.Type), mismatch.Value)
		}
		return in, wrong("the arguments cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return in, wrong("the arguments are not an object")
	}
	for _, name := range required {
		if v, ok := given[name]; !ok || string(v) == "null" {
			return in, wrong("%s is missing", name)
		}
	}
	return in, nil
}

// jsonKind is a Go type as the caller knows it.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Slice:
		return "list"
	case reflect.Pointer:
		return jsonKind(t.Elem())
	}
	return "number"
}

// addTools puts the table into the server.
func (s *Server) addTools() {
	no := false
	for _, t := range tools() {
		if !s.may(t.scope) {
			continue
		}
		st := &sdk.Tool{Name: t.name, Description: t.description, InputSchema: schemaOf(t.in)}
		if t.readOnly {
			st.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
		}
		s.sdk.AddTool(st, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var result *sdk.CallToolResult
			if r, err := s.call(ctx, t, req); err != nil {
				result = failure(err, s.waitingLine(ctx))
			} else {
				result = &sdk.CallToolResult{
					Content: []sdk.Content{&sdk.TextContent{Text: r.text + s.waitingLine(ctx)}}, StructuredContent: r.value,
				}
			}
			if s.textOnly(req.ClientInfo()) {
				result.StructuredContent = nil
			}
			return result, nil
		})
	}
}

// textOnly says whether a client gets the text of a result alone. Claude Code and Codex
// show their model the structured result and leave the text out, and with it the frame
// around messages, the line about waiting mail, and all that makes a result readable.
func (s *Server) textOnly(info *sdk.Implementation) bool {
	switch s.o.Results {
	case ResultsText:
		return true
	case ResultsBoth:
		return false
	}
	return info != nil && (info.Name == "claude-code" || info.Name == "codex-mcp-client")
}

func (s *Server) call(ctx context.Context, t tool, req *sdk.CallToolRequest) (reply, error) {
	if s.o.Reach != nil {
		if err := s.o.Reach(ctx); err != nil {
			return reply{}, err
		}
	}
	c := &call{s: s, req: req, reads: t.readOnly}
	if s.wire != nil {
		c.ticket = s.wire.order.ticket(req.Params.Meta)
		defer c.ticket.leave()
	}
	if err := c.begin(ctx); err != nil {
		return reply{}, err
	}
	return t.run(ctx, c)
}

// failure is an error as a result that a model can act on, and a last line.
func failure(err error, last string) *sdk.CallToolResult {
	e := *conch.AsError(err)
	if errors.Is(err, context.Canceled) {
		e = *conch.Errorf(conch.Internal, "the call was cancelled")
	}
	e.HintText = hintFor(&e)
	text := fmt.Sprintf("error %s: %s", e.Kind, e.Message)
	if e.HintText != "" {
		text += "\nhint: " + e.HintText
	}
	text, _ = frame.Plain([]byte(text))
	if last != "" {
		text += "\n" + last
	}
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: e.Body(), IsError: true,
	}
}

// hintFor says what to do in the words of these tools, where the hint that came with
// the error speaks of the command line.
func hintFor(e *conch.Error) string {
	switch e.Kind {
	case conch.SessionNotFound:
		return strings.Trim(e.HintText+`; session "new:LABEL" makes one`, "; ")
	case conch.LabelTaken:
		if strings.HasPrefix(e.HintText, "conch exec") {
			return `name it without "new:" to use it, or choose another label`
		}
	case conch.SessionBusy, conch.QueueTimeout, conch.QueueFull:
		return `the tool sessions shows what runs; shell_signal with the session's label and INT ends it; session "new:LABEL" is free at once`
	case conch.ProcessNotFound, conch.CommandNotFound:
		return "the tool sessions lists processes and what runs; ids come from shell_exec and shell_start"
	case conch.MessageNotFound:
		return `inbox with "peek" lists your messages; a message is acked and answered by the session it was sent to`
	case conch.ProcessEnded:
		return "shell_output reads what it wrote, shell_screen shows its last screen; shell_start starts another"
	case conch.NoTerminal:
		return "shell_start with tty starts one that has a terminal; shell_output reads this one's output"
	case conch.StdinClosed:
		if strings.HasPrefix(e.HintText, "shell_output") {
			break // it is ours
		}
		return "only a process of shell_start has a stdin that stays open; shell_exec takes its whole input as stdin"
	}
	return e.HintText
}

// schemaOf is the schema of a struct's arguments, as small as it goes: the optional
// ones are just optional, not nullable.
func schemaOf(in any) *jsonschema.Schema {
	schema, err := jsonschema.ForType(reflect.TypeOf(in), nil)
	if err != nil {
		panic(fmt.Sprintf("mcp: %T: %v", in, err)) // a fault in the table, which every test meets
	}
	for _, p := range schema.Properties {
		if len(p.Types) == 2 {
			p.Type, p.Types = p.Types[slices.IndexFunc(p.Types, func(t string) bool { return t != "null" })], nil
		}
	}
	return schema
}
