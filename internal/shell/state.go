package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// A State is a checkpoint: what a shell was after a completed command, in words
// bash itself wrote and can read back. It is kept as JSON in the session's
// directory.
type State struct {
	Version   int    `json:"version"`
	Variables []byte `json:"variables"` // declare -p
	Functions []byte `json:"functions"` // declare -f
	FuncAttrs []byte `json:"func_attrs"`
	Aliases   []byte `json:"aliases"`
	Shopt     []byte `json:"shopt"`
	Options   []byte `json:"options"` // set +o
	Traps     []byte `json:"traps"`
	Umask     []byte `json:"umask"`
	Disabled  []byte `json:"disabled"` // enable -n
	Args      []byte `json:"args"`     // positional parameters, quoted
	Pwd       string `json:"pwd"`
	// Physical is the directory as the kernel names it.
	Physical string `json:"physical"`
	// Descriptors counts open descriptors of the user, which no shell can
	// be given back.
	Descriptors int `json:"descriptors"`
	// Jobs says that processes of the shell were ended with it.
	Jobs bool `json:"jobs,omitempty"`
	// Last is $? after the command; History its number of commands.
	Last int `json:"last"`
	// Command is the number of the command it was taken after.
	Command uint32 `json:"command"`
}

// stateSections are written by the shell in this order, each ended by a NUL.
var stateSections = []string{
	`\builtin declare -p`,
	`\builtin declare -f`,
	`\builtin declare -F`,
	`\builtin alias -p`,
	`\builtin shopt -p`,
	`\builtin set +o`,
	`\builtin trap -p`,
	`\builtin umask`,
	`\builtin enable -n`,
	`\builtin printf '%q ' "$@"`,
	`\builtin printf %s "$PWD"`,
}

// stateScript is what the shell sources to write its state. Inside of `.` a DEBUG trap
// neither runs, so that nothing it prints gets in between, nor shows; it is asked for
// by a line of its own, on a FIFO of its own, before.
func stateScript() string {
	var b strings.Builder
	for _, sec := range stateSections {
		b.WriteString(sec + `;\builtin printf '\0'` + "\n")
	}
	b.WriteString(`\builtin printf 'end\0'` + "\n") // a RETURN trap may still speak
	return b.String()
}

// OpenState opens the checkpoint FIFOs for reading, before AskState.
func (s *Shell) OpenState() (state, debug int, err error) {
	if state, err = openFIFO(s.path(stateFIFO)); err != nil {
		return -1, -1, err
	}
	if debug, err = openFIFO(s.path(debugFIFO)); err != nil {
		unix.Close(state)
		return -1, -1, err
	}
	if _, err = os.Stat(s.path(stateFile)); err != nil {
		err = s.writeFile(stateFile, []byte(stateScript()))
	}
	if err != nil {
		unix.Close(state)
		unix.Close(debug)
		return -1, -1, err
	}
	return state, debug, nil
}

func openFIFO(path string) (int, error) {
	if err := freshFIFO(path); err != nil {
		return -1, err
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// AskState tells the shell to write a checkpoint.
func (s *Shell) AskState() error {
	return s.Send(`\builtin trap -p DEBUG >|` + Quote(s.path(debugFIFO)) + " 2>/dev/null\n" +
		`\builtin . ` + Quote(s.path(stateFile)) + ` >|` + Quote(s.path(stateFIFO)) + " 2>/dev/null </dev/null")
}

// ParseState reads what the shell wrote. Anything but a whole checkpoint is an error.
func ParseState(data, debug []byte) (*State, error) {
	parts := bytes.Split(data, []byte{0})
	if len(parts) < len(stateSections)+2 || string(parts[len(stateSections)]) != "end" {
		return nil, fmt.Errorf("incomplete checkpoint: %d bytes, %d of %d parts, ending %.40q", len(data), len(parts)-1, len(stateSections), data[max(0, len(data)-40):])
	}
	st := &State{
		Version:   1,
		Variables: parts[0], Functions: parts[1], FuncAttrs: parts[2], Aliases: parts[3], Shopt: parts[4],
		Options: parts[5], Traps: parts[6], Umask: parts[7], Disabled: parts[8], Args: parts[9],
		Pwd: string(parts[10]),
	}
	if !bytes.Contains(st.Traps, debug) { // with functrace it shows in both
		st.Traps = append(append([]byte{}, st.Traps...), debug...)
	}
	// A shell whose driver words are switched off cannot be driven; its state
	// must not be the one to start again from.
	for _, line := range strings.Split(string(st.Disabled), "\n") {
		switch strings.TrimPrefix(line, "enable -n ") {
		case ".", "eval", "printf", "builtin", "trap", "declare", "alias", "shopt", "set", "umask", "enable", "cd", "kill", "return", "history", "unset":
			return nil, errors.New("a builtin the driver needs is disabled: " + line)
		}
	}
	return st, nil
}

// Load reads a saved state; nil without error if there is none.
func Load(path string) (*State, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st State
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, err
	}
	return &st, nil
}

// Previous is where Save keeps the state before the last.
func Previous(path string) string { return path + ".1" }

// Save puts the state into place whole, and keeps the one before: a command whose end
// was never recorded must not leave its state behind. It is not synced here: after a
// machine crash an older state is as good as none for processes that are gone.
func (st *State) Save(path string) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		os.Remove(tmp)
		return err
	}
	if err := os.Rename(path, Previous(path)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Rename(tmp, path)
}

// script is what a new shell sources to become this state. Options come last:
// errexit, nounset or posix mode would change how the rest is read.
func (st *State) script() []byte {
	b := st.beginning()
	b.WriteString(`\builtin cd -- ` + Quote(st.Pwd) + "\n")
	st.arguments(b)
	for _, e := range st.userTraps() {
		b.WriteString(`\builtin ` + e + "\n")
	}
	st.options(b)
	return b.Bytes()
}

// beginning is what a state's shells and programs have in common: all that is set
// before the directory.
func (st *State) beginning() *bytes.Buffer {
	b := new(bytes.Buffer)
	extglob := ""
	for _, line := range strings.Split(string(st.Shopt), "\n") {
		switch _, name, _ := strings.Cut(line, "shopt -"); strings.TrimLeft(name, "su ") {
		case "", "login_shell", "restricted_shell":
		case "extglob":
			extglob = line
		default:
			b.WriteString(`\builtin ` + line + "\n")
		}
	}
	for _, e := range splitDeclarations(st.Variables) {
		if !slices.Contains(unrestorable, e.name) {
			// Not as \builtin: only after the bare word is m=(…) an
			// assignment. Functions and aliases are not there yet.
			b.WriteString(e.text + "\n")
		}
	}
	// A function may have been made while extglob was on, and is read only then.
	b.WriteString("\\builtin shopt -s extglob\n")
	b.Write(st.functions())
	b.WriteByte('\n')
	if extglob != "" {
		b.WriteString(`\builtin ` + extglob + "\n")
	}
	for _, line := range strings.Split(string(st.FuncAttrs), "\n") {
		// "declare -f name" is a plain function; "-fx", "-fr" carry more.
		if f := strings.Fields(line); len(f) == 3 && f[1] != "-f" {
			b.WriteString(`\builtin ` + line + "\n")
		}
	}
	for _, e := range splitQuoted(st.Aliases) {
		b.WriteString(`\builtin ` + e + "\n")
	}
	b.WriteString(`\builtin umask ` + strings.TrimSpace(string(st.Umask)) + "\n")
	return b
}

// functions are the definitions as bash can read them back: a name with = in it needs
// the word that bash leaves out when it writes them.
func (st *State) functions() []byte {
	text := append([]byte{'\n'}, st.Functions...)
	for _, line := range strings.Split(string(st.FuncAttrs), "\n") {
		if f := strings.Fields(line); len(f) == 3 && strings.Contains(f[2], "=") {
			text = bytes.Replace(text, []byte("\n"+f[2]+" () \n{"), []byte("\nfunction "+f[2]+" () \n{"), 1)
		}
	}
	return text
}

// arguments sets OLDPWD, the positional parameters and the disabled builtins.
func (st *State) arguments(b *bytes.Buffer) {
	if old, ok := st.variable("OLDPWD"); ok {
		b.WriteString(`\builtin ` + old + "\n")
	}
	if args := strings.TrimSpace(string(st.Args)); args != "" && args != "''" {
		b.WriteString(`\builtin set -- ` + args + "\n")
	}
	for _, line := range strings.Split(string(st.Disabled), "\n") {
		if line != "" {
			b.WriteString(`\builtin ` + line + "\n")
		}
	}
}

// options sets what `set` does.
func (st *State) options(b *bytes.Buffer) {
	var loud []string
	for _, line := range strings.Split(string(st.Options), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		switch f[2] {
		case "emacs", "vi", "history", "interactive-comments":
		case "verbose", "xtrace":
			loud = append(loud, `\builtin `+line)
		default:
			b.WriteString(`\builtin ` + line + "\n")
		}
	}
	// On one line, which is read before either shows what follows.
	b.WriteString(strings.Join(loud, ";") + "\n")
}

// unrestorable are variables bash keeps itself.
var unrestorable = []string{
	"BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS",
	"BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "COPROC",
	"COPROC_PID", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO",
	"__conch", "OLDPWD", "PIPESTATUS", "PPID", "PWD", "RANDOM", "SHELLOPTS", "SRANDOM", "UID", "_",
}

type declaration struct{ name, text string }

// splitDeclarations cuts the output of declare -p into its entries. An entry may
// span lines and hold anything between its quotes, even lines that look like
// entries, so the quotes are followed.
func splitDeclarations(b []byte) []declaration {
	var out []declaration
	for _, e := range splitQuoted(b) {
		// declare -ax NAME=... or declare -- NAME
		f := strings.SplitN(e, " ", 3)
		if len(f) != 3 || f[0] != "declare" {
			continue
		}
		name, _, _ := strings.Cut(f[2], "=")
		out = append(out, declaration{name, e})
	}
	return out
}

// splitQuoted cuts text at the newlines that stand outside quotes.
func splitQuoted(b []byte) []string {
	var out []string
	start := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '\'':
			// $'…' knows backslashes, '…' does not.
			ansi := i > 0 && b[i-1] == '$'
			for i++; i < len(b) && b[i] != '\''; i++ {
				if ansi && b[i] == '\\' {
					i++
				}
			}
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '\n':
			if i > start {
				out = append(out, string(b[start:i]))
			}
			start = i + 1
		}
	}
	if start < len(b) {
		out = append(out, string(b[start:]))
	}
	return out
}

func (st *State) variable(name string) (string, bool) {
	for _, e := range splitDeclarations(st.Variables) {
		if e.name == name {
			return e.text, true
		}
	}
	return "", false
}

// OldPwd is the value of OLDPWD, empty if it has none.
func (st *State) OldPwd() string {
	text, _ := st.variable("OLDPWD")
	_, v, _ := strings.Cut(text, "=")
	return unquote(v)
}

// foreignEnv keeps those entries of env that bash could not make variables of,
// and that its own state therefore does not hold.
func (st *State) foreignEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !isName(name) && !strings.HasPrefix(name, "BASH_FUNC_") {
			out = append(out, kv)
		}
	}
	return out
}

func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// Names gives the words of PRODUCT's vocabulary that this state holds something for.
func (st *State) Names() (restored, lost []string) {
	restored = []string{"cwd", "variables"}
	if len(bytes.TrimSpace(st.Functions)) > 0 {
		restored = append(restored, "functions")
	}
	if len(bytes.TrimSpace(st.Aliases)) > 0 {
		restored = append(restored, "aliases")
	}
	restored = append(restored, "options")
	if len(st.userTraps()) > 0 {
		restored = append(restored, "traps")
	}
	restored = append(restored, "umask")
	for _, e := range splitDeclarations(st.Variables) {
		attrs := strings.Fields(e.text)[1]
		if strings.Contains(attrs, "r") && !slices.Contains(unrestorable, e.name) {
			restored = append(restored, "readonly:"+e.name)
		}
	}
	if st.Descriptors > 0 {
		lost = append(lost, "descriptors")
	}
	if _, ok := st.variable("COPROC_PID"); ok {
		lost = append(lost, "coprocesses")
	}
	if st.Jobs {
		lost = append(lost, "jobs")
	}
	return restored, lost
}

// Trapped reports whether the user has set any trap.
func (st *State) Trapped() bool { return len(st.userTraps()) > 0 }

// userTraps are the traps other than the driver's own.
func (st *State) userTraps() []string {
	var out []string
	for _, t := range splitQuoted(st.Traps) {
		if !strings.HasSuffix(t, " SIG"+abortName) {
			out = append(out, t)
		}
	}
	return out
}

// DebugTrap is the command that sets the user's DEBUG trap, or empty.
func (st *State) DebugTrap() string { return st.trap(" DEBUG") }

// IntTrap is the command that sets the user's INT trap, or empty.
func (st *State) IntTrap() string { return st.trap(" SIGINT") }

// ExitTrap is the command that sets the user's EXIT trap, or empty.
func (st *State) ExitTrap() string { return st.trap(" EXIT") }

func (st *State) trap(suffix string) string {
	for _, t := range splitQuoted(st.Traps) {
		if strings.HasSuffix(t, suffix) {
			return `\builtin ` + t
		}
	}
	return ""
}

// Readonly are the names that cannot be given another value, also for one command.
func (st *State) Readonly() map[string]bool {
	m := map[string]bool{}
	for _, n := range fixed {
		m[n] = true
	}
	if st != nil {
		for _, e := range splitDeclarations(st.Variables) {
			if attrs := strings.Fields(e.text)[1]; strings.ContainsAny(attrs, "rn") {
				m[e.name] = true
			}
		}
	}
	return m
}

// fixed are the names bash itself does not let go of.
var fixed = strings.Fields("BASHOPTS BASHPID BASH_VERSINFO DIRSTACK EUID FUNCNAME GROUPS PPID SHELLOPTS UID")

// Environ is the exported environment of the state, for a session that is to
// start with it.
func (st *State) Environ() map[string]string {
	out := map[string]string{}
	for _, e := range splitDeclarations(st.Variables) {
		attrs := strings.Fields(e.text)[1]
		_, v, assigned := strings.Cut(e.text, "=")
		if assigned && strings.Contains(attrs, "x") && !strings.ContainsAny(attrs, "aA") && !slices.Contains(unrestorable, e.name) {
			out[e.name] = unquote(v)
		}
	}
	return out
}

// unquote undoes the two ways in which declare -p writes a value.
func unquote(v string) string {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader("x="+v), "")
	if err != nil || len(f.Stmts) != 1 {
		return v
	}
	call, ok := f.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) != 1 {
		return v
	}
	s, err := expand.Literal(nil, call.Assigns[0].Value)
	if err != nil {
		return v
	}
	return s
}

// Errexit reports whether `set -e` is on.
func (st *State) Errexit() bool { return bytes.Contains(st.Options, []byte("set -o errexit")) }

// SetTraps sends a line that is carried out between commands.
func (s *Shell) Send(line string) error {
	if s.control == nil {
		return unix.EPIPE
	}
	_, err := s.control.WriteString(line + "\n")
	return err
}
