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
