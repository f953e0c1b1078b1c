// Package tty is terminals: pseudo-terminals, and what a program shows on one.
//
// A Screen is a model of a terminal of the xterm kind. It is given a program's output
// and knows what a person would see: the characters with their colours, the cursor, the
// title, which of the two screens is shown. It answers the questions programs put to
// terminals (where is the cursor, what are you) into a buffer of its own and never
// waits for anybody. It keeps no lines that have scrolled away; the tape has them. Its
// memory is bounded by its size, whatever it is given.
//
// A Screen reads its input with the same parser that makes a recording harmless
// (Clean): what reaches a viewer's terminal from a replayed tape is text, colours,
// cursor moves and erasing, nothing that sets a title or a clipboard, asks a question
// or leaves a mode behind.
//
// Keys turns the names of keys into the bytes a terminal sends for them.
//
// A Screen and a Cleaner are for one goroutine at a time.
package tty
