package conch

import "time"

// A TerminalSize is in characters. The zero value is 80 columns of 24 rows.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// A ScreenRequest asks what a program on a terminal shows, at once or after a wait.
type ScreenRequest struct {
	// Contains is a regular expression (RE2; ^ and $ are a line's) that the
	// screen's text must match.
	Contains string
	// StableMS is how long the program must have written nothing. With Contains
	// the screen must be both.
	StableMS int64
	// TimeoutMS is the most that is waited; 0: no limit.
	TimeoutMS int64
}

// What a wait for a screen can end by.
const (
	ScreenStable   = "stable"
	ScreenContains = "contains"
	ScreenEnded    = "ended"   // the process ended and what was waited for can not come
	ScreenTimeout  = "timeout" // nothing of it until the deadline
)

// A Screen is what a program on a terminal shows, as `screen --json` prints it.
type Screen struct {
	// ProcessID and Status are left out where it is a session's own terminal.
	ProcessID ProcessID     `json:"process_id,omitempty"`
	Status    ProcessStatus `json:"status,omitempty"`
	// Text is a line a row, without blanks at the ends of lines and empty
	// lines at the end.
	Text string `json:"text"`
	TerminalSize
	Cursor    ScreenCursor `json:"cursor"`
	Alternate bool         `json:"alternate"` // a full-screen program's own screen
	Title     string       `json:"title"`
	ChangedAt time.Time    `json:"changed_at"` // when the program last wrote something
	// Partial says that the beginning of the output could not be taken into
	// account: it has left the tape, or there is too much of it.
	Partial bool `json:"partial"`
	// Reason is what a wait ended by; empty where none was asked for.
	Reason string `json:"reason,omitempty"`
}

// A ScreenCursor is a place on a screen; rows and columns count from 0.
type ScreenCursor struct {
	Row     int  `json:"row"`
	Col     int  `json:"col"`
	Visible bool `json:"visible"`
}

// A KeysRequest types into a program on a terminal: Text as it is, then Keys, in which
// names of keys stand in angle brackets (<Enter>, <C-c>, <Up>, <lt>) and a newline is
// Enter.
type KeysRequest struct {
	Text string `json:"text,omitempty"`
	Keys string `json:"keys,omitempty"`
}

// KeysTyped is the answer to a KeysRequest.
type KeysTyped struct {
	Bytes int `json:"bytes"` // that went to the program
}

// The types of messages on a terminal's WebSocket.
const (
	TerminalHello  = "hello"  // the first: who one is, and the terminal's size
	TerminalRedraw = "redraw" // forget what is shown: the next bytes draw the screen
	TerminalResize = "size"   // the terminal has another size
	TerminalRole   = "role"   // one is a viewer, or a typist, now; of a client: wants to be
	TerminalExit   = "exit"   // the process has ended
	TerminalLeft   = "left"   // one was sent away from the prompt (exit, Ctrl-D), or the session ended
	TerminalError  = "error"  // what was sent last was not done
)

// The roles at a terminal.
const (
	Viewer = "viewer"
	Typist = "typist"
)

// A TerminalEvent is a text message to who is at a terminal.
type TerminalEvent struct {
	Type string `json:"type"`
	// Role is one's own (hello, role).
	Role string `json:"role,omitempty"`
	// Cols and Rows are the terminal's size (hello, size).
	Cols int `json:"cols,omitempty"`
	Rows int `json:"rows,omitempty"`
	// ExitCode and Signal are how the process ended (exit).
	ExitCode *int    `json:"exit_code,omitempty"`
	Signal   *string `json:"signal,omitempty"`
	// Code, Message and Hint are an error's.
	Code    Kind   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// A TerminalCommand is a text message from who is at a terminal.
type TerminalCommand struct {
	Type string `json:"type"` // resize or role
	Cols int    `json:"cols,omitempty"`
	Rows int    `json:"rows,omitempty"`
	Role string `json:"role,omitempty"`
}
