package shell

import (
	"bytes"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Judge decides from a command's text whether it can have changed the shell's
// state, so that a checkpoint is taken only when one is needed. It errs on the
// side of "yes": only a text made of literal command words that are neither
// functions, aliases nor builtins that change something is called quiet.
type Judge struct {
	parser *syntax.Parser
	names  map[string]bool // functions and aliases
	always bool            // a trap or PROMPT_COMMAND may run with any command
}

// maxJudged bounds the work: longer texts are called loud unseen.
const maxJudged = 16 << 10

// Learn takes over what a checkpoint says about functions, aliases and traps.
func (j *Judge) Learn(st *State) {
	j.names = map[string]bool{}
	for _, line := range strings.Split(string(st.FuncAttrs), "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			j.names[f[2]] = true
		}
	}
	for _, a := range splitQuoted(st.Aliases) {
		a = strings.TrimPrefix(strings.TrimPrefix(a, "alias "), "-- ")
		name, _, _ := strings.Cut(a, "=")
		j.names[name] = true
	}
	_, prompt := st.variable("PROMPT_COMMAND")
	j.always = prompt || len(st.userTraps()) > 0 || bytes.Contains(st.Shopt, []byte("shopt -s lastpipe"))
}

// Quiet reports whether text provably leaves the state as it was.
func (j *Judge) Quiet(text string) bool {
	if j.names == nil || j.always || len(text) > maxJudged {
		return false
	}
	if j.parser == nil {
		j.parser = syntax.NewParser(syntax.Variant(syntax.LangBash))
	}
	f, err := j.parser.Parse(strings.NewReader(text), "")
	if err != nil {
		return false
	}
	return j.stmts(f.Stmts)
}

func (j *Judge) stmts(list []*syntax.Stmt) bool {
	for _, s := range list {
		if !j.stmt(s) {
			return false
		}
	}
	return true
}

func (j *Judge) stmt(s *syntax.Stmt) bool {
	if s.Coprocess {
		return false
	}
	for _, r := range s.Redirs {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
			return false
		}
		if !pure(r.Word) || !pure(r.Hdoc) {
			return false
		}
	}
	if s.Background {
		return true // runs in a subshell
	}
	switch c := s.Cmd.(type) {
	case nil, *syntax.Subshell:
		return true
	case *syntax.CallExpr:
		return j.call(c)
	case *syntax.BinaryCmd:
		// The parts of a pipeline are subshells (lastpipe is asked for above).
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return true
		}
		return j.stmt(c.X) && j.stmt(c.Y)
	case *syntax.Block:
		return j.stmts(c.Stmts)
	case *syntax.IfClause:
		for e := c; e != nil; e = e.Else {
			if !j.stmts(e.Cond) || !j.stmts(e.Then) {
				return false
			}
		}
		return true
	case *syntax.WhileClause:
		return j.stmts(c.Cond) && j.stmts(c.Do)
	case *syntax.TimeClause:
		return c.Stmt == nil || j.stmt(c.Stmt)
	}
	return false
}

// loud are the builtins that can change what a checkpoint holds, or run what can.
var loud = []string{
	".", "source", "eval", "cd", "pushd", "popd", "dirs", "set", "shopt", "unset", "export", "declare", "typeset",
	"local", "readonly", "alias", "unalias", "trap", "umask", "read", "mapfile", "readarray", "getopts", "let",
	"exec", "exit", "return", "break", "continue", "shift", "builtin", "command", "enable", "bind", "complete",
	"compopt", "hash", "logout", "suspend", "coproc", "wait",
}

func (j *Judge) call(c *syntax.CallExpr) bool {
	if len(c.Args) == 0 {
		return len(c.Assigns) == 0
	}
	for _, a := range c.Assigns {
		if !pure(a.Value) || a.Array != nil {
			return false
		}
	}
	word := c.Args[0].Lit()
	if word == "" || strings.ContainsAny(word, `\*?[`) || slices.Contains(loud, word) || j.names[word] {
		return false
	}
	for _, a := range c.Args[1:] {
		if word == "printf" && strings.HasPrefix(a.Lit(), "-v") {
			return false
		}
		if !pure(a) {
			return false
		}
	}
	return true
}

// pure reports whether expanding w cannot assign. Command substitutions are
// subshells; arithmetic and ${x:=y} may assign.
func pure(w *syntax.Word) bool {
	if w == nil {
		return true
	}
	ok := true
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ArithmExp:
			ok = false
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) || n.Index != nil || n.Slice != nil {
				ok = false
			}
		case *syntax.CmdSubst:
			if n.TempFile || n.ReplyVar {
				ok = false // ${ …; } runs in the shell itself
			}
			return false
		case *syntax.ProcSubst:
			return false
		}
		return ok
	})
	return ok
}

// Incomplete reports whether a text typed so far needs more lines: a quote, a
// heredoc, a loop is open, or its last line ends in a backslash.
func Incomplete(text string) bool {
	n := len(text) - len(strings.TrimRight(text, `\`))
	if n%2 == 1 {
		return true
	}
	_, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text+"\n"), "")
	return err != nil && syntax.IsIncomplete(err)
}
