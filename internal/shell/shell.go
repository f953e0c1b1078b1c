// Package shell drives one bash.
//
// Bash runs as `bash --norc --noprofile --noediting -i` with a private control
// pipe as its standard input and two private sinks as its output. It is
// interactive so that an interrupt returns to the top level with all state
// intact; it has no line editing, so it reads the control pipe a kilobyte at a
// time. For each command the driver writes a small file that evaluates the
// command's text with its three streams redirected, and two lines to the control
// pipe: one that sources the file, one that reports $? on a status FIFO. The text
// is data inside that file: nothing in it can run into the control lines, and
// nothing is ever looked for in the command's own output.
//
// Every word of the driver is called as \builtin, so that functions and aliases
// of the same name do not matter, and nothing depends on PATH, IFS, descriptors
// or variables a user may set. What still manages to block the driver (functions
// named builtin, PROMPT_COMMAND=cat, a stopped shell) is found by its owner with
// Outside and State, and the shell is started again from its last checkpoint.
//
// A Shell is used by one goroutine: the keeper's loop. It starts no goroutine and
// waits for nothing; its owner polls the descriptors it exposes and reaps its pid.
package shell

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Config says how to start a shell.
type Config struct {
	Bash string   // the executable
	Dir  string   // private directory, in memory where possible
	Env  []string // environment of the new shell
	Cwd  string   // starting directory; must exist
	RC   string   // file sourced once at the start, or empty
	// Restore is a state from which the shell starts instead of Env alone.
	Restore *State
	// Cgroup is a descriptor of the control group the shell is born in, 0 for
	// the one of this process.
	Cgroup int
	// Fork starts the process; nil: syscall.ForkExec.
	Fork func(path string, argv []string, attr *syscall.ProcAttr) (int, error)
}

// A Shell is one running bash.
type Shell struct {
	cfg     Config
	PID     int
	control *os.File
	status  int // read end of the status FIFO
	out     int // read ends of the two sinks: what the shell writes outside commands
	err     int

	controlInode uint64
	statusBuf    []byte
	driver       int    // the driver file, kept open
	driverLen    int    // what is in it
	lines        string // the two control lines
	word         string // see arm
	secret       string // begins every report, so that no other writer is believed
}

// File names inside Config.Dir.
const (
	driverFile  = "d"
	returnFile  = "r"
	statusFIFO  = "s"
	stateFIFO   = "k"
	debugFIFO   = "t"
	stateFile   = "c"
	restoreFile = "b"
)

// Start starts bash. It returns once the process exists; what is sent to it is
// carried out in order, so nothing needs to wait for it to be ready.
func Start(cfg Config) (*Shell, error) {
	s := &Shell{cfg: cfg, status: -1, out: -1, err: -1, driver: -1}
	s.word, s.secret = strconv.FormatUint(rand.Uint64(), 36), strconv.FormatUint(rand.Uint64(), 36)
	s.lines = `\builtin . ` + Quote(s.path(driverFile)) + "\n" + s.report()
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Shell) start() error {
	if err := freshFIFO(s.path(statusFIFO)); err != nil {
		return err
	}
	// Read-write, so that the FIFO never reports an end while no one writes.
	fd, err := unix.Open(s.path(statusFIFO), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open status fifo: %w", err)
	}
	s.status = fd

	ctlR, ctlW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ctlR.Close()
	s.control = ctlW
	var st unix.Stat_t
	if err := unix.Fstat(int(ctlR.Fd()), &st); err != nil {
		return err
	}
	s.controlInode = st.Ino
	var sinks [2][2]int
	for i := range sinks {
		if err := pipe(&sinks[i]); err != nil {
			return err
		}
		defer unix.Close(sinks[i][1])
		if err := unix.SetNonblock(sinks[i][0], true); err != nil {
			return err
		}
	}
	s.out, s.err = sinks[0][0], sinks[1][0]

	env := s.cfg.Env
	init := s.arm() + `;\builtin unset HISTFILE PS1 PS2 PROMPT_COMMAND TMOUT;\builtin set +m +H +o history;BASH_ARGV0=conch;\builtin history -c` + "\n"
	if s.cfg.Restore != nil {
		script := s.cfg.Restore.script()
		if err := os.WriteFile(s.path(restoreFile), script, 0o600); err != nil {
			return fmt.Errorf("write restore file: %w", err)
		}
		// All of the environment comes from the state; what the user unset
		// must not come back.
		env = s.cfg.Restore.foreignEnv(s.cfg.Env)
		init += `\builtin . ` + Quote(s.path(restoreFile)) + " </dev/null\n"
	} else if s.cfg.RC != "" {
		init += `\builtin . ` + Quote(s.cfg.RC) + " </dev/null\n"
	}
	env = append(env[:len(env):len(env)], "HISTFILE=", "PS1=", "PS2=")
	if s.cfg.Restore == nil {
		env = append(env, "PWD="+s.cfg.Cwd)
	}

	fork := s.cfg.Fork
	if fork == nil {
		fork = syscall.ForkExec
	}
	pid, err := fork(s.cfg.Bash, []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}, &syscall.ProcAttr{
		Dir:   s.cfg.Cwd,
		Env:   env,
		Files: []uintptr{ctlR.Fd(), uintptr(sinks[0][1]), uintptr(sinks[1][1])},
		// Its own session: `kill 0` and `suspend -f` in a command reach
		// nobody but the session's own processes.
		Sys: Attributes(s.cfg.Cgroup),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.cfg.Bash, err)
	}
	s.PID = pid
	// The first End says that the shell is ready for commands.
	_, err = s.control.WriteString(init + `\builtin printf '` + readyMark + `';\builtin printf '` + readyMark + "' >&2\n" + s.report())
	return err
}

// readyMark ends, on both of the shell's own streams, what it and its rc file
// said while starting. All after it belongs to a command. (In printf's form.)
const readyMark = `\0conch\0`

// AfterStart cuts from the shell's own output what came before it was ready.
func AfterStart(noise []byte) []byte {
	if _, after, ok := bytes.Cut(noise, []byte("\x00conch\x00")); ok {
		return after
	}
	return nil
}

// report is the control line that makes the shell send an End.
func (s *Shell) report() string {
	return `\builtin printf '` + s.secret + ` %s %s\0' "$?" "$PWD" >|` + Quote(s.path(statusFIFO)) + "\n"
}

func (s *Shell) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// StatusFD, OutFD and ErrFD are to be polled for reading. What comes from the
// last two is what the shell wrote outside a command: noise, unless the shell
// died and its EXIT trap spoke.
func (s *Shell) StatusFD() int { return s.status }
func (s *Shell) OutFD() int    { return s.out }
func (s *Shell) ErrFD() int    { return s.err }

// Close releases the descriptors. The process sees the end of its control pipe.
func (s *Shell) Close() {
	if s.control != nil {
		s.control.Close()
		s.control = nil
	}
	for _, fd := range []*int{&s.status, &s.out, &s.err, &s.driver} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// HangUp closes the control pipe: an idle shell runs its EXIT trap and leaves.
func (s *Shell) HangUp() {
	if s.control != nil {
		s.control.Close()
		s.control = nil
	}
}

// A Command is what Run needs to know.
type Command struct {
	Text string
	// Stdin, Stdout, Stderr are paths. Stderr empty: stderr goes where
	// stdout goes.
	Stdin, Stdout, Stderr string
	// Both opens Stdin for reading and writing: it is a terminal.
	Both bool
	// Last is the status $? shows to the command.
	Last int
	Env  map[string]string
	Cwd  string // for this command only
	// Back is where the shell stood before a command with Cwd: the logical
	// path, a descriptor path of the same directory in case it is gone by
	// then, and OLDPWD.
	Back, BackFD, OldPwd string
	// DebugTrap is the user's DEBUG trap, which `.` hides from what it
	// sources; it is set again inside.
	DebugTrap string
	// Rearm sets the abort trap again, which a command took away.
	Rearm bool
	// History holds commands to add to the shell's own history first.
	History []string
}

// Run hands one command to the shell. The result arrives as an End on the status FIFO.
func (s *Shell) Run(c Command) error {
	if s.control == nil {
		return syscall.EPIPE
	}
	var b bytes.Buffer
	b.Grow(len(c.Text) + 512)
	b.WriteString(s.heed())
	if c.Rearm {
		b.WriteString(s.arm() + ";")
	}
	if c.DebugTrap != "" {
		b.WriteString(c.DebugTrap)
		b.WriteString("\n")
	}
	for _, h := range c.History {
		b.WriteString(`\builtin history -s -- `)
		b.WriteString(Quote(h))
		b.WriteString("\n")
	}
	if c.Cwd != "" {
		b.WriteString(`{ \builtin cd -- ` + Quote(c.Cwd) + ` && { `)
	}
	if c.Last != 0 {
		// A status other than 0 cannot be set without a function or a
		// sourced file; behind || it does not set off `set -e`.
		if err := s.writeFile(returnFile, []byte(`\builtin return `+strconv.Itoa(c.Last)+"\n")); err != nil {
			return err
		}
		b.WriteString(`\builtin . ` + Quote(s.path(returnFile)) + `||`)
	}
	for k, v := range c.Env {
		b.WriteString(k + "=" + Quote(v) + " ")
	}
	if len(c.Env) > 0 {
		// Behind `builtin` alone bash forgets the variables at the command's
		// first builtin and keeps what it assigns to them.
		b.WriteString(`\builtin command eval -- `)
	} else {
		b.WriteString(`\builtin eval -- `)
	}
	quoteTo(&b, c.Text)
	if c.Cwd != "" {
		b.WriteString("; }; }")
	}
	in := " <"
	if c.Both {
		in = " <>"
	}
	b.WriteString(in + Quote(c.Stdin) + " >|" + Quote(c.Stdout))
	if c.Stderr == "" {
		b.WriteString(" 2>&1")
	} else {
		b.WriteString(" 2>|" + Quote(c.Stderr))
	}
	b.WriteByte('\n')
	if err := s.writeDriver(b.Bytes()); err != nil {
		return err
	}
	line := s.lines
	if c.DebugTrap != "" {
		line = `\builtin trap - DEBUG;` + line // `.` would bring back one that the command removes
	}
	if c.Cwd != "" {
		line += `{ \builtin cd -- ` + Quote(c.Back) + `||\builtin cd -P -- ` + Quote(c.BackFD) + `&&PWD=` + Quote(c.Back) +
			`;` + oldPwd(c.OldPwd) + "; } 2>/dev/null\n"
	}
	_, err := s.control.WriteString(line)
	return err
}

// The abort trap is what AbortSignal springs: inside of a command it throws the shell
// back to its top level; outside, where bash 5.2 was seen to crash when so thrown, it
// leaves word for the command that is about to begin. The word is the shell's own
// secret, so that nothing a user sets can be taken for it; Disarm takes it back when
// the signal came too late instead.
func (s *Shell) arm() string {
	// No reserved words: an alias can stand for one.
	return `\builtin trap -- '\builtin test "${#BASH_SOURCE[@]}" -gt 0&&\builtin trap - INT&&\builtin kill -INT "$$"||__conch=` + s.word + `' ` + abortName
}

// Armed reports whether the abort trap is still set in st.
func (s *Shell) Armed(st *State) bool {
	want := strings.TrimSuffix(strings.TrimPrefix(s.arm(), `\builtin `), abortName) + "SIG" + abortName
	for _, t := range splitQuoted(st.Traps) {
		if t == want {
			return true
		}
	}
	return false
}

// heed makes a command return at once if it was aborted before it began.
func (s *Shell) heed() string {
	return `\builtin test "${__conch-}" != ` + s.word + `||\builtin return 130;`
}

// Disarm takes back the word of an abort that came too late.
func (s *Shell) Disarm() error { return s.Send(`\builtin unset __conch`) }

// oldPwd sets OLDPWD back to what it was, which may be nothing.
func oldPwd(dir string) string {
	if dir == "" {
		return `\builtin unset OLDPWD`
	}
	return "OLDPWD=" + Quote(dir)
}

// Intact reports whether the files the driver and the shell meet at are still there.
// Whoever cleans /dev/shm, as some systems do at logout, takes them away.
func (s *Shell) Intact() bool { return Linked(s.status) }

// Linked reports whether an open file still has its name.
func Linked(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink > 0
}

// writeDriver puts a command into the driver file. The file stays open, because
// opening it costs more than writing it; it is made anew if it was taken away.
func (s *Shell) writeDriver(b []byte) error {
	if s.driver >= 0 {
		if !Linked(s.driver) {
			unix.Close(s.driver)
			s.driver = -1
		}
	}
	if s.driver < 0 {
		fd, err := unix.Open(s.path(driverFile), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return &os.PathError{Op: "open", Path: s.path(driverFile), Err: err}
		}
		s.driver, s.driverLen = fd, 0
	}
	if len(b) < s.driverLen {
		if err := unix.Ftruncate(s.driver, int64(len(b))); err != nil {
			return &os.PathError{Op: "truncate", Path: s.path(driverFile), Err: err}
		}
	}
	s.driverLen = len(b)
	for at := 0; at < len(b); {
		n, err := unix.Pwrite(s.driver, b[at:], int64(at))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write", Path: s.path(driverFile), Err: err}
		}
		at += n
	}
	return nil
}

// writeFile replaces a small file that nobody else holds open.
func (s *Shell) writeFile(name string, data []byte) error {
	// Plain system calls: os.WriteFile tries each time whether the file can
	// be polled, which costs more than writing it.
	fd, err := unix.Open(s.path(name), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: s.path(name), Err: err}
	}
	defer unix.Close(fd)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write", Path: s.path(name), Err: err}
		}
		data = data[n:]
	}
	return nil
}

// End is the report that a command has ended.
type End struct {
	Status int
	Pwd    string // $PWD, as the shell has it
}

// ReadStatus takes what is on the status FIFO and reports an End when one is complete.
func (s *Shell) ReadStatus() (End, bool) {
	var buf [4096]byte
	for {
		n, err := unix.Read(s.status, buf[:])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			break
		}
		s.statusBuf = append(s.statusBuf, buf[:n]...)
		if n < len(buf) {
			break
		}
	}
	for {
		i := bytes.IndexByte(s.statusBuf, 0)
		if i < 0 {
			return End{}, false
		}
		rec := string(s.statusBuf[:i])
		s.statusBuf = append(s.statusBuf[:0], s.statusBuf[i+1:]...)
		f := strings.SplitN(rec, " ", 3)
		if len(f) != 3 || f[0] != s.secret {
			continue // somebody else found the FIFO
		}
		if n, err := strconv.Atoi(f[1]); err == nil {
			return End{Status: n, Pwd: f[2]}, true
		}
	}
}

// Forget drops reports that were not read.
func (s *Shell) Forget() {
	for {
		if _, ok := s.ReadStatus(); !ok {
			break
		}
	}
	s.statusBuf = s.statusBuf[:0]
}

// freshFIFO makes a FIFO where there may be an old one.
func freshFIFO(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}

// Quote makes one shell word of any text without NUL.
func Quote(s string) string {
	var b bytes.Buffer
	quoteTo(&b, s)
	return b.String()
}

func quoteTo(b *bytes.Buffer, s string) {
	b.WriteByte('\'')
	for {
		i := strings.IndexByte(s, '\'')
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		b.WriteString(`'\''`)
		s = s[i+1:]
	}
	b.WriteString(s)
	b.WriteByte('\'')
}
