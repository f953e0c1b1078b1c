package shell

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// A Program is a command that runs in a bash of its own, begun from a session's state,
// beside the session's shell. Traps are not part of it, as in any subshell: the
// session's EXIT trap is not the program's business.
type Program struct {
	Text  string
	Cwd   string            // an existing directory
	Env   []string          // what the session started with
	State *State            // nil: the session has none yet
	RC    string            // sourced where there is no state; may be empty
	Extra map[string]string // on top of the environment
}

// scriptFD is where a Program's bash finds the script that gives it its state, gateFD
// the pipe on which it waits for leave to go on.
const (
	scriptFD = "3"
	gateFD   = "4"
)

// maxArg is the longest text that is passed as an argument; Linux takes 128 KiB.
const maxArg = 100 << 10

// Launch gives what the program is to be started with: its arguments, its environment,
// and a script it reads from descriptor 3, a file, before anything else. The script
// first waits for a byte on descriptor 4, a pipe. If that ends without one, because its
// writer died, the program dies too, and nothing of the user's has run.
//
// The text is bash's own -c argument: line numbers are right, and a simple command
// takes the place of the shell, as it would in a script's last line, so that signals
// reach it and not a shell around it.
func (p Program) Launch() (argv, env []string, script []byte) {
	var b *bytes.Buffer
	if p.State != nil {
		b = p.State.beginning()
		// Set before a script begins, it starts bash's debugger.
		b.WriteString("\\builtin shopt -u extdebug\n")
		env = p.State.foreignEnv(p.Env)
	} else {
		b = new(bytes.Buffer)
		for _, kv := range p.Env {
			switch name, v, _ := strings.Cut(kv, "="); name {
			case "BASH_ENV", "POSIXLY_CORRECT":
				// The first is in use, the second would keep it from being read.
				b.WriteString(`\builtin export ` + name + "=" + Quote(v) + "\n")
			default:
				env = append(env, kv)
			}
		}
		b.WriteString("\\builtin shopt -s expand_aliases\n") // as in the session's shell
		if p.RC != "" {
			b.WriteString(`\builtin . ` + Quote(p.RC) + " </dev/null\n")
		}
	}
	head := `\builtin read -r -n 1 -u ` + gateFD + ` __conch||\builtin kill -9 $$` + "\n" +
		// Not as \builtin, which would undo it. Nobody's functions are there yet.
		`exec ` + scriptFD + "<&- " + gateFD + "<&-\n" + `\builtin unset BASH_ENV __conch;BASH_ARGV0=conch` + "\n"
	if p.State != nil {
		p.State.arguments(b)
		// Traps are not inherited, but what is ignored is.
		for _, t := range p.State.userTraps() {
			if strings.HasPrefix(t, "trap -- '' SIG") {
				b.WriteString(`\builtin ` + t + "\n")
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(p.Extra)) {
		b.WriteString(`\builtin export ` + k + "=" + Quote(p.Extra[k]) + "\n")
	}
	text := p.Text
	if len(text) > maxArg {
		b.WriteString("__conch=" + Quote("\\builtin unset __conch\n"+text) + "\n")
		text = `\builtin eval -- "$__conch"`
	}
	if p.State != nil {
		p.State.options(b)
	}
	env = append(env[:len(env):len(env)], "BASH_ENV=/dev/fd/"+scriptFD, "PWD="+p.Cwd)
	return []string{"bash", "-c", text, "conch"}, env, append([]byte(head), b.Bytes()...)
}
