// Package config is what a user may set: the file config.toml in conch's home,
// every key of which is a CONCH_ variable too. A variable wins over the file,
// the file over the default.
//
// The daemon reads it once, at its start. A keeper never sees the file: it gets
// the few settings that concern it as variables, as plain numbers, from the
// daemon that starts it (Config.Keeper), so that it need not know TOML.
//
// Whatever is not understood is an error that says where it stands: a limit
// that was misspelt is no limit. A Config does not change once loaded.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/conchsh/conch"
)

// File is the configuration's name in the home.
const File = "config.toml"

// A Kind is how a value is written and what it means as a number.
type Kind int

const (
	Count    Kind = iota // a whole number
	Size                 // bytes, with or without KiB, MiB, GiB, TiB
	Duration             // 90s, 15m, 24h, 30d; as a number: nanoseconds
	Cores                // processors, 0.1 or more; as a number: thousandths
	Text                 // words, which have no number: see Config.Text
	Flag                 // on or off, as a number 1 or 0
)

// A Key is one thing that can be set.
type Key struct {
	Name    string
	Kind    Kind
	Default string
	// Session says that a session may have a value of its own, Keeper that
	// it is the keeper that heeds it.
	Session, Keeper bool
	// Zero says what "off" or 0 means; "" where 0 is not allowed.
	Zero string
	Doc  string
}

// Variable is the environment's name for the key.
func (k Key) Variable() string {
	return "CONCH_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.Name))
}

// The keys. docs/CONFIG.md lists them all; a test compares.
const (
	QueueLimit    = "queue_limit"
	ProcessLimit  = "process_limit"
	TapeLimit     = "tape_limit"
	ResultLimit   = "result_limit"
	CommandRate   = "command_rate"
	CommandLimit  = "command_limit"
	SessionLimit  = "session_limit"
	IdleRelease   = "idle_release"
	IdleClose     = "idle_close"
	PruneAfter    = "prune_after"
	PruneSize     = "prune_size"
	SessionMemory = "session_memory"
	SessionCPU    = "session_cpu"
	SessionPids   = "session_pids"
	Listen        = "listen"
	ListenNames   = "listen_names"
	TLSCert       = "tls_cert"
	TLSKey        = "tls_key"
	UIPort        = "ui_port"

	ResponderCommand     = "responder.command"
	ResponderMail        = "responder.mail"
	ResponderAfter       = "responder.after"
	ResponderPool        = "responder.pool"
	ResponderTime        = "responder.time_limit"
	ResponderReply       = "responder.reply_limit"
	ResponderPerPeer     = "responder.per_peer"
	ResponderPerDay      = "responder.per_day"
	ResponderHops        = "responder.hops"
	ResponderEnv         = "responder.env"
	ResponderAllow       = "responder.allow"
	ResponderNetwork     = "responder.network"
	ResponderUnsandboxed = "responder.allow_unsandboxed"
	ContactRate          = "contact_rate"
	ContactBytes         = "contact_bytes"
	ContactRequests      = "contact_requests"
	ContactPatience      = "contact_patience"
	MailResend           = "mail_resend"
)

// Keys is every key there is. It is a function so that no process pays for the
// table that does not use it.
func Keys() []Key {
	return []Key{
		{Name: QueueLimit, Default: "1000", Session: true, Keeper: true, Zero: "no queue: a busy session refuses", Doc: "commands that may wait in one session"},
		{Name: ProcessLimit, Default: "500", Session: true, Keeper: true, Zero: "no background processes", Doc: "processes that may run in the background of one session"},
		{Name: TapeLimit, Kind: Size, Default: "4GiB", Session: true, Keeper: true, Doc: "bytes one session's tape may take; then the oldest part goes and leaves a note"},
		{Name: ResultLimit, Kind: Size, Default: "64MiB", Session: true, Keeper: true, Doc: "bytes of each stream one result may carry (`max_output`)"},
		{Name: CommandRate, Default: "0", Session: true, Keeper: true, Zero: "no limit", Doc: "commands one session takes within a second"},
		{Name: CommandLimit, Default: "0", Keeper: true, Zero: "no limit", Doc: "sessions that may be running commands at the same time, all together"},
		{Name: SessionLimit, Default: "2000", Zero: "no limit", Doc: "sessions that may be open at the same time"},
		{Name: IdleRelease, Kind: Duration, Default: "24h", Session: true, Keeper: true, Zero: "never", Doc: "how long a session with no command, no process and no client keeps its shell; it comes back with its state"},
		{Name: IdleClose, Kind: Duration, Default: "90d", Zero: "never", Doc: "how long a session that let its shell go stays open before it is closed"},
		{Name: PruneAfter, Kind: Duration, Default: "30d", Zero: "never", Doc: "how long the tape of a closed session is kept"},
		{Name: PruneSize, Kind: Size, Default: "20GiB", Zero: "no limit", Doc: "bytes that closed sessions may take together; the oldest go first"},
		{Name: SessionMemory, Kind: Size, Default: "0", Session: true, Zero: "no limit", Doc: "memory of one session's processes (needs cgroups)"},
		{Name: SessionCPU, Kind: Cores, Default: "0", Session: true, Zero: "no limit", Doc: "processors one session's processes may use, such as 1.5 (needs cgroups)"},
		{Name: SessionPids, Default: "0", Session: true, Zero: "no limit", Doc: "processes and threads one session may have (needs cgroups)"},
		{Name: Listen, Kind: Text, Zero: "the unix socket only", Doc: "address to serve the network at, such as `:7443`: TLS, and a token with every request"},
		{Name: ListenNames, Kind: Text, Zero: "its own names", Doc: "further host names by which that address may be called, separated by commas"},
		{Name: TLSCert, Kind: Text, Zero: "one is made", Doc: "file of the certificate for it (PEM); with `tls_key`"},
		{Name: TLSKey, Kind: Text, Zero: "one is made", Doc: "file of the certificate's key (PEM)"},
		{Name: UIPort, Default: "0", Zero: "any that is free", Doc: "port of the web page on 127.0.0.1 (`conch ui`)"},
		{Name: ResponderCommand, Kind: Text, Zero: "there is no responder", Doc: "shell text that answers messages: framed messages on stdin, the reply on stdout"},
		{Name: ResponderMail, Kind: Text, Zero: "`unclaimed`", Doc: "which mail it is for: `unclaimed` (no session fetched it within `responder.after`) or `all`"},
		{Name: ResponderAfter, Kind: Duration, Default: "5m", Zero: "at once", Doc: "how long unclaimed mail waits for a session before it is answered"},
		{Name: ResponderPool, Default: "2", Doc: "runs of the responder at the same time"},
		{Name: ResponderTime, Kind: Duration, Default: "5m", Doc: "how long one run may take; then it is ended with all it started"},
		{Name: ResponderReply, Kind: Size, Default: "64KiB", Doc: "bytes a reply may have; a longer one is a failure, never cut"},
		{Name: ResponderPerPeer, Default: "20", Zero: "no limit", Doc: "runs within 24 h for one agent that writes"},
		{Name: ResponderPerDay, Default: "100", Zero: "no limit", Doc: "runs within 24 h for all together"},
		{Name: ResponderHops, Default: "3", Doc: "how many responders may stand between a person's message and one that is answered"},
		{Name: ResponderEnv, Kind: Text, Zero: "none", Doc: "names of variables of your login environment that the responder gets, separated by commas"},
		{Name: ResponderAllow, Kind: Text, Zero: "none", Doc: "files and directories that it may read besides, separated by commas; `~/` is your home"},
		{Name: ResponderNetwork, Kind: Flag, Default: "off", Zero: "it has no network", Doc: "leave it the machine's network (needs Linux 6.12)"},
		{Name: ResponderUnsandboxed, Kind: Flag, Default: "off", Zero: "it does not run there", Doc: "let it run as you, without a sandbox, where the machine has none"},
		{Name: ContactRate, Default: "600", Zero: "no limit", Doc: "messages taken from one contact within a minute; more are refused to it"},
		{Name: ContactBytes, Kind: Size, Default: "64MiB", Zero: "no limit", Doc: "bytes of messages taken from one contact within a minute, attachments not counted"},
		{Name: ContactRequests, Default: "100", Zero: "strangers cannot ask", Doc: "requests of strangers to be a contact that may wait for an answer"},
		{Name: ContactPatience, Kind: Duration, Default: "14d", Doc: "how long a message to a stranger waits for it to become a contact"},
		{Name: MailResend, Kind: Duration, Default: "60s", Doc: "when a message to another home that nobody reported on is published again for the first time"},
	}
}

// Find gives the key of a name.
func Find(name string) (Key, bool) {
	for _, k := range Keys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// A Config is a set of values. The zero Config has the defaults.
type Config struct {
	// Path is the file, whether it exists or not.
	Path string
	set  map[string]int64
	text map[string]string
	from map[string]string
}

// Get is a key's value: a count, bytes, nanoseconds or thousandths of a core.
func (c Config) Get(name string) int64 {
	if v, ok := c.set[name]; ok {
		return v
	}
	k, ok := Find(name)
	if !ok {
		panic("config: no key " + name)
	}
	v, err := k.Parse(k.Default)
	if err != nil {
		panic(err) // a test parses them all
	}
	return v
}

// Time is a duration's value.
func (c Config) Time(name string) time.Duration { return time.Duration(c.Get(name)) }

// Text is the value of a key of that kind, "" where it is off.
func (c Config) Text(name string) string { return c.text[name] }

// Shown is a value as it would be set.
func (c Config) Shown(k Key) string {
	if t := c.text[k.Name]; t != "" {
		return t
	}
	return k.Format(c.Get(k.Name))
}

// Source says where a value comes from: the file with its line, a variable, the
// session, or "default".
func (c Config) Source(name string) string {
	if s := c.from[name]; s != "" {
		return s
	}
	return "default"
}

// With is c with a session's own values, which are checked.
func (c Config) With(values map[string]string) (Config, error) {
	if len(values) == 0 {
		return c, nil
	}
	out := Config{Path: c.Path, set: map[string]int64{}, text: c.text, from: map[string]string{}}
	for n, v := range c.set {
		out.set[n], out.from[n] = v, c.from[n]
	}
	for n, text := range values {
		k, ok := Find(n)
		if !ok {
			return c, conch.Errorf(conch.InvalidRequest, "there is no limit %q", n).Hint("%s", nearest(n, true))
		}
		if !k.Session {
			return c, conch.Errorf(conch.InvalidRequest, "%s is for all sessions together and cannot be set for one", n).
				Hint("set it in %s, or as %s for the daemon", File, k.Variable())
		}
		v, err := k.Parse(text)
		if err != nil {
			return c, conch.Errorf(conch.InvalidRequest, "%s: %v", n, err).Hint("%s", k.example())
		}
		out.set[n], out.from[n] = v, "session"
	}
	return out, nil
}

// Keeper is what a keeper is told, as variables.
func (c Config) Keeper() []string {
	var env []string
	for _, k := range Keys() {
		if k.Keeper {
			env = append(env, k.Variable()+"="+strconv.FormatInt(c.Get(k.Name), 10))
		}
	}
	return env
}

// Load reads the home's file and the environment. Every fault is reported, in
// one conch.InvalidConfig.
func Load(home string, env func(string) (string, bool)) (Config, error) {
	c := Config{Path: filepath.Join(home, File), set: map[string]int64{}, text: map[string]string{}, from: map[string]string{}}
	faults := c.readFile()
	for _, k := range Keys() {
		text, ok := env(k.Variable())
		if !ok || text == "" {
			continue
		}
		v, err := k.Parse(text)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v; %s", k.Variable(), err, k.example()))
			continue
		}
		c.put(k, v, text, k.Variable())
	}
	if len(faults) > 0 {
		return Config{Path: c.Path}, conch.Errorf(conch.InvalidConfig, "%s", strings.Join(faults, "; and ")).
			Hint("mend it, or move %s away for the defaults; a daemon that runs is not affected", c.Path)
	}
	return c, nil
}

// readFile takes the file's values and gives what is wrong with it.
func (c *Config) readFile() []string {
	if fi, err := os.Stat(c.Path); err == nil && !fi.Mode().IsRegular() {
		return []string{c.Path + " is not a file"} // a FIFO would be waited for
	}
	text, err := os.ReadFile(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []string{err.Error()}
	}
	raw := map[string]any{}
	meta, err := toml.Decode(string(text), &raw)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return []string{fmt.Sprintf("%s, line %d: %s", c.Path, pe.Position.Line, pe.Message)}
		}
		return []string{fmt.Sprintf("%s: %v", c.Path, err)}
	}
	lines := linesOf(string(text))
	var faults []string
	for _, key := range meta.Keys() {
		name := key.String()
		at := fmt.Sprintf("%s, line %d", c.Path, lines(name))
		k, known := Find(name)
		if !known {
			if meta.Type(key...) != "Hash" || !isTable(name) {
				faults = append(faults, fmt.Sprintf("%s: there is no key %q; %s", at, name, nearest(name, false)))
			}
			continue
		}
		value := lookup(raw, key)
		v, err := k.parseAny(value)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %s: %v; %s", at, name, err, k.example()))
			continue
		}
		c.put(k, v, fmt.Sprint(value), at)
	}
	return faults
}

// isTable reports whether keys begin with a table's name.
func isTable(name string) bool {
	return slices.ContainsFunc(Keys(), func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// lookup finds a value in the tables it is in.
func lookup(raw map[string]any, key []string) any {
	for ; len(key) > 1; key = key[1:] {
		raw, _ = raw[key[0]].(map[string]any)
	}
	return raw[key[0]]
}

// put takes a value that was read at a place.
func (c *Config) put(k Key, v int64, text, from string) {
	c.from[k.Name] = from
	if k.Kind != Text {
		c.set[k.Name] = v
		return
	}
	if text = strings.TrimSpace(text); text == "off" || text == "none" || text == "false" {
		text = ""
	}
	c.text[k.Name] = text
}

// linesOf finds on which line a key stands. The decoder tells it only of text
// that is not TOML at all; what it took, this finds by the same plain rules.
func linesOf(text string) func(name string) int {
	at := map[string]int{}
	table := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			table = strings.Trim(strings.SplitN(line, "#", 2)[0], "[] \t")
			at[table] = max(at[table], n)
			table += "."
			continue
		}
		key, _, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(key, ".")
		for i := range parts {
			parts[i] = strings.Trim(strings.TrimSpace(parts[i]), `"'`)
		}
		if full := table + strings.Join(parts, "."); at[full] == 0 {
			at[full] = n
		}
	}
	return func(name string) int { return at[name] }
}

// nearest names the key that was probably meant.
func nearest(name string, session bool) string {
	best, dist := "", math.MaxInt
	var all []string
	for _, k := range Keys() {
		if session && !k.Session {
			continue
		}
		all = append(all, k.Name)
		if d := distance(name, k.Name); d < dist {
			best, dist = k.Name, d
		}
	}
	if dist <= max(2, len(name)/2) {
		return fmt.Sprintf("did you mean %s?", best)
	}
	slices.Sort(all)
	return "there are " + strings.Join(all, ", ")
}

// distance is how many letters must be put in, taken out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
