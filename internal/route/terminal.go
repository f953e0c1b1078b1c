package route

import "github.com/conchsh/conch"

// attach are the calls about a session's own terminal.
func attach() []Route {
	return []Route{
		{Name: "attach", Method: get, Path: sessionPath + "/attach", Summary: "Join the session's own shell: what its terminal shows, live.",
			Detail: "Frames: the terminal's size, what draws its screen, then output and new sizes. Unless read_only, the client is at the prompt as long as the request lasts, and commands of others wait.",
			Query: append(attachQuery(),
				Param{Name: "create", Type: Boolean, Doc: "Make the session if there is none."},
				Param{Name: "cwd", Type: String, Doc: "Where a session that is made starts: an absolute path."}),
			Media: []string{TapeType}, Errors: append(missing(), conch.SessionBusy, conch.Unsupported)},
		{Name: "attachStdin", Method: post, Path: sessionPath + "/attach/stdin", Summary: "Type on the session's own terminal.",
			Upload: true, Answer: conch.StdinOffset{}, Errors: append(missing(), conch.NoTerminal, conch.StdinClosed)},
		{Name: "attachResize", Method: post, Path: sessionPath + "/attach/resize", Summary: "Another size for the session's own terminal.",
			Body: conch.TerminalSize{}, Answer: conch.TerminalSize{}, Errors: append(missing(), conch.NoTerminal)},
		{Name: "ownScreen", Method: get, Path: sessionPath + "/screen", Summary: "What the session's own terminal shows, at once or when it is as wished.",
			Query: screenQuery(), Answer: conch.Screen{}, Errors: append(missing(), conch.NoTerminal)},
	}
}

// terminal are the calls about a process's terminal; each has two paths, like those
// about a command.
func terminal() []Route {
	lost := append(missing(), conch.ProcessNotFound, conch.CommandNotFound, conch.NoTerminal)
	return []Route{
		{Name: "screen", Method: get, Path: "/processes/{id}/screen", Summary: "What a process's terminal shows, at once or when it is as wished.",
			Query: screenQuery(), Answer: conch.Screen{}, Errors: append(lost, conch.OutputGone)},
		{Name: "keys", Method: post, Path: "/processes/{id}/keys", Summary: "Type into a process's terminal: text as it is, then keys, with names such as <Enter>.",
			Body: conch.KeysRequest{}, Answer: conch.KeysTyped{}, Errors: append(lost, conch.ProcessEnded, conch.StdinClosed)},
		{Name: "resize", Method: post, Path: "/processes/{id}/resize", Summary: "Another size for a process's terminal.",
			Body: conch.TerminalSize{}, Answer: conch.TerminalSize{}, Errors: append(lost, conch.ProcessEnded)},
		{Name: "cast", Method: get, Path: "/processes/{id}/cast", Summary: "The recording of a process, asciicast 2, as far as it has come.",
			Media: []string{CastType}, Errors: append(lost, conch.OutputGone)},
		{Name: "processAttach", Method: get, Path: "/processes/{id}/attach", Summary: "A process's terminal, live, as frames.",
			Detail: "Its size, what draws its screen, then output, new sizes, and the process's end. Keys go to its stdin.",
			Query:  attachQuery(), Media: []string{TapeType}, Errors: append(lost, conch.ProcessEnded)},
	}
}

func screenQuery() []Param {
	return []Param{
		{Name: "contains", Type: String, Doc: "Wait until the text matches this regular expression (RE2; ^ and $ are a line's)."},
		{Name: "stable_ms", Type: Integer, Doc: "Wait until nothing was written for this time."},
		{Name: "timeout_ms", Type: Integer, Doc: "The most that is waited; 0: no limit."},
	}
}

func attachQuery() []Param {
	return []Param{
		{Name: "cols", Type: Integer, Max: 1000, Doc: "The viewer's columns, 2 to 1000, which the terminal is given; with rows."},
		{Name: "rows", Type: Integer, Max: 300, Doc: "The viewer's rows, 1 to 300."},
		{Name: "read_only", Type: Boolean, Doc: "Only look on."},
		{Name: "skip", Type: Boolean, Doc: "When it falls a megabyte behind, be shown the screen as it is instead of what was missed."},
	}
}

// sockets are the terminals as WebSockets, which the daemon serves.
func sockets() []Route {
	const detail = "A WebSocket. Binary messages are what the terminal shows, and what is typed; text messages are JSON: the server's TerminalEvent, the client's TerminalCommand. " +
		"It begins with hello, then redraw and bytes that draw the screen, as does coming back after a cut. A viewer that falls a megabyte behind gets redraw and the screen as it is."
	query := attachQuery()[:3]
	return []Route{
		{Name: "terminal", Method: get, Path: sessionPath + "/terminal", Summary: "The session's own terminal as a WebSocket.", Detail: detail,
			Query: append(query[:3:3],
				Param{Name: "create", Type: Boolean, Doc: "Make the session if there is none."},
				Param{Name: "cwd", Type: String, Doc: "Where a session that is made starts: an absolute path."}),
			Socket: true, Errors: append(missing(), conch.Unsupported)},
		{Name: "processTerminal", Method: get, Path: "/v1/processes/{id}/terminal", Summary: "A process's terminal as a WebSocket.", Detail: detail,
			Query: query, Socket: true, Errors: append(missing(), conch.ProcessNotFound, conch.CommandNotFound, conch.NoTerminal, conch.ProcessEnded)},
	}
}
