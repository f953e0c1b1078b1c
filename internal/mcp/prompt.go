package mcp

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
)

// A job is a prompt: something people ask for often, in the words of the tools.
type job struct {
	name, description string
	arguments         []*sdk.PromptArgument
	text              func(arg map[string]string) string
}

func jobs() []job {
	arg := func(name, description string, required bool) *sdk.PromptArgument {
		return &sdk.PromptArgument{Name: name, Description: description, Required: required}
	}
	return []job{
		{
			name: "run_and_fix", description: "Run a command until it succeeds, fixing what it complains about",
			arguments: []*sdk.PromptArgument{arg("command", "for instance: make test", true)},
			text: func(a map[string]string) string {
				return fmt.Sprintf("Run this with shell_exec:\n\n%s\n\nIf it does not exit 0, read the whole error (shell_output with the id, where output was cut), find the cause, "+
					"fix it and run it again. Stop when it exits 0, or when the same error comes back twice: then say what you found. "+
					"If it may take more than two minutes, use shell_start and shell_wait.", a["command"])
			},
		}, {
			name: "serve", description: "Start a server in the background and see that it answers",
			arguments: []*sdk.PromptArgument{arg("command", "what starts it", true), arg("port", "the port it listens on", false)},
			text: func(a map[string]string) string {
				until := "for a line in its log that says it is ready"
				if a["port"] != "" {
					until = "for port " + a["port"]
				}
				return fmt.Sprintf("Start this server with shell_start, with a short name:\n\n%s\n\nThen shell_wait %s (and exit, to see it fail). "+
					"If it ended, read shell_output and say why. Leave it running and tell me its id, and how to stop it (shell_signal).", a["command"], until)
			},
		}, {
			name: "explain_failure", description: "Find out why a command or process failed",
			arguments: []*sdk.PromptArgument{arg("id", "its id; left out: the last in your own session", false)},
			text: func(a map[string]string) string {
				which := "the last command of your own session (shell_screen with its label gives the id)"
				if a["id"] != "" {
					which = a["id"]
				}
				return fmt.Sprintf("Find out why %s failed: read its output with shell_output, stderr first, page by page where it is long. "+
					"Look at the state it ran in with shell_exec where that helps. Say the cause and the smallest fix; change nothing yet.", which)
			},
		}, {
			name: "tidy_up", description: "Show what still runs and end what is not needed",
			text: func(map[string]string) string {
				return "List sessions and processes with the tool sessions. Say what each is for, as far as its command and output show. " +
					"Ask me which to end, and end those with shell_signal; touch nothing else."
			},
		},
	}
}

// addPrompts puts the jobs into the server.
func (s *Server) addPrompts() {
	if !s.may("exec") {
		return // they are about running something
	}
	for _, j := range jobs() {
		s.sdk.AddPrompt(&sdk.Prompt{Name: j.name, Description: j.description, Arguments: j.arguments},
			func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
				for _, a := range j.arguments {
					if a.Required && strings.TrimSpace(req.Params.Arguments[a.Name]) == "" {
						return nil, conch.Errorf(conch.InvalidRequest, "the prompt %s needs %s: %s", j.name, a.Name, a.Description)
					}
				}
				return &sdk.GetPromptResult{Description: j.description, Messages: []*sdk.PromptMessage{
					{Role: "user", Content: &sdk.TextContent{Text: j.text(req.Params.Arguments)}},
				}}, nil
			})
	}
}
