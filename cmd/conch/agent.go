package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newAgent(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		GroupID: groupMail,
		Short:   "Make, list, choose and move agents",
		Long: `An agent is an identity: a name, and a key that its address is made from. The
first, me, is made when it is needed.

Which agent a verb works as: --agent, else $CONCH_AGENT, else the one assigned
to the harness session ($CLAUDE_CODE_SESSION_ID), else the one assigned to the
current directory or the nearest one above it, else the one in use, else me.`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAgentNew(a), newAgentLs(a), newAgentUse(a), newAgentAssign(a), newAgentUnassign(a), newAgentExport(a), newAgentImport(a),
		newAgentUnlock(a), newAgentLock(a))
	return cmd
}

// checkAgent refuses an --agent that is nobody, for verbs that filter a list by
// it: an empty list would say that there is one who has nothing.
func (a *app) checkAgent(ctx context.Context, c *client.Client) error {
	if a.agent == "" {
		return nil
	}
	if err := conch.CheckAgent(a.agent); err != nil {
		return err
	}
	list, err := c.Agents(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, g := range list {
		if names[i] = g.Name; g.Name == a.agent {
			return nil
		}
	}
	return conch.Errorf(conch.AgentNotFound, "no agent %q", a.agent).Hint("agents: %s", strings.Join(names, ", "))
}

func newAgentNew(a *app) *cobra.Command {
	var protect, replace bool
	cmd := &cobra.Command{
		Use:   "new NAME [--passphrase] [--replace]",
		Short: "Make an agent and print its address",
		Long: `Make an agent with a key of its own and print its address. With --passphrase the
key is sealed with one, asked for on the terminal, or read as the first line of
stdin where that is none. A name that has sessions or mail and whose key file is
gone is refused, since it would be somebody else from then on: import the key, or
say --replace.`,
		Example: "  conch agent new reviewer",
		Args:    words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			passphrase, err := newPassphrase(protect)
			if err != nil {
				return err
			}
			c := a.client(client.Options{})
			make := c.NewAgent
			if replace {
				make = c.ReplaceAgent
			}
			info, err := make(cmd.Context(), args[0], passphrase)
			if err != nil {
				return err
			}
			fmt.Println(info.Address)
			return nil
		},
	}
	cmd.Flags().BoolVar(&protect, "passphrase", false, "seal the key with a passphrase")
	cmd.Flags().BoolVar(&replace, "replace", false, "a new key for a name whose key is lost")
	return cmd
}

func newAgentLs(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [--json]",
		Short: "List the agents",
		Long:  "List the agents. A star marks the one that verbs called from here work as.",
		Args:  words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client(client.Options{}).Agents(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(os.Stdout, list)
			}
			rows := make([][]string, len(list))
			for i, g := range list {
				star, key := "", "plain"
				if g.Active {
					star = "*"
				}
				switch {
				case g.Error != "":
					key = "unusable: " + g.Error
				case g.Locked:
					key = "locked"
				case g.Protected:
					key = "unlocked"
				}
				var assigned []string
				for _, to := range g.Assigned {
					assigned = append(assigned, strings.TrimSpace(string(to.Scope)+" "+to.Key))
				}
				rows[i] = []string{star, g.Name, g.Address, key, strings.Join(assigned, ", ")}
			}
			return table(os.Stdout, []string{"", "NAME", "ADDRESS", "KEY", "ASSIGNED"}, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func newAgentUse(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		ValidArgsFunction: a.completeAgent,
		Short:             "Work as an agent wherever nothing else is assigned",
		Args:              words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client(client.Options{})
			info, err := c.UseAgent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Println(info.Name)
			// Saying nothing would let somebody believe to be another.
			if now, by, err := c.Agent(); err == nil && now != info.Name {
				why := map[conch.Scope]string{
					conch.ScopeNamed:   "--agent and $CONCH_AGENT come first",
					conch.ScopeSession: "it is assigned to this harness session; conch agent unassign --session ID takes that back",
					conch.ScopeProject: "it is assigned to this directory or one above; conch agent unassign --project takes that back",
				}
				say(os.Stderr, fmt.Sprintf("here it is still %s", now), why[by])
			}
			return nil
		},
	}
}

// scopeFlags are the flags that say what an agent is assigned to.
type scopeFlags struct {
	project string
	session string
	global  bool
}

func (f *scopeFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.project, "project", "", "the current directory and all below, or `=DIR`")
	fl.Lookup("project").NoOptDefVal = "."
	fl.StringVar(&f.session, "session", "", "the harness's session `ID`")
	fl.BoolVar(&f.global, "global", false, "everywhere")
}

// scope is what the flags mean: without any, the harness session around this
// process, or where there is none the current directory.
func (f *scopeFlags) scope(cmd *cobra.Command) (conch.Assignment, error) {
	given := 0
	for _, name := range []string{"project", "session", "global"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	switch harness := client.HarnessSession(); {
	case given > 1:
		return conch.Assignment{}, conch.Errorf(conch.InvalidRequest, "--project, --session and --global exclude each other")
	case f.global:
		return conch.Assignment{Scope: conch.ScopeGlobal}, nil
	case f.session != "":
		return conch.Assignment{Scope: conch.ScopeSession, Key: f.session}, nil
	case given == 0 && harness != "":
		return conch.Assignment{Scope: conch.ScopeSession, Key: harness}, nil
	case given > 0 && f.project == "":
		return conch.Assignment{}, conch.Errorf(conch.InvalidRequest, "nothing is named to assign to").Hint("%s --help", cmd.CommandPath())
	}
	dir, err := filepath.Abs(f.project) // "": the current directory
	if err != nil {
		return conch.Assignment{}, conch.Errorf(conch.InvalidRequest, "the current directory is gone: %v", err).Hint("--project=DIR names another")
	}
	return conch.Assignment{Scope: conch.ScopeProject, Key: dir}, nil
}

// place names what an agent is assigned to.
func place(to conch.Assignment) string {
	switch to.Scope {
	case conch.ScopeProject:
		return "in " + to.Key
	case conch.ScopeSession:
		return "in harness session " + to.Key
	}
	return "wherever nothing else is assigned"
}

func newAgentAssign(a *app) *cobra.Command {
	var f scopeFlags
	cmd := &cobra.Command{
		Use:               "assign [NAME] [--project[=DIR] | --session ID | --global]",
		ValidArgsFunction: a.completeAgent,
		Short:             "Have an agent work in a harness session, a directory, or everywhere",
		Long: `Have an agent (NAME, or the one this verb works as) work in a harness session, in
a directory and all below, or everywhere, now and after restarts. Without a flag
it is the harness session around this call ($CLAUDE_CODE_SESSION_ID), or where
there is none the current directory. An earlier assignment there is replaced.`,
		Example: "  conch agent assign reviewer --project\n  conch agent assign --agent reviewer --session 0197-42",
		Args:    atMost("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := f.scope(cmd)
			if err != nil {
				return err
			}
			c := a.client(client.Options{})
			var name string
			if len(args) > 0 {
				if name = args[0]; strings.Contains(name, "/") {
					return conch.Errorf(conch.InvalidAgent, "%q is not an agent name", name).Hint("a directory is given as --project=DIR")
				}
			} else if name, _, err = c.Agent(); err != nil {
				return err
			}
			info, err := c.Assign(cmd.Context(), name, to)
			if err != nil {
				return err
			}
			fmt.Println(info.Name, harmless(place(to)))
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

func newAgentUnassign(a *app) *cobra.Command {
	var f scopeFlags
	cmd := &cobra.Command{
		Use:   "unassign [--project[=DIR] | --session ID | --global]",
		Short: "Take an assignment back",
		Long: `Take back what assign did for a harness session, a directory, or everywhere. The
flags, and what their absence means, are as for assign.`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := f.scope(cmd)
			if err != nil {
				return err
			}
			removed, err := a.client(client.Options{}).Unassign(cmd.Context(), to)
			if err != nil {
				return err
			}
			if removed {
				fmt.Println("unassigned", harmless(place(to)))
			} else {
				fmt.Println("nothing was assigned", harmless(place(to)))
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// atMost is words for words that may be left out.
func atMost(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return words(names[:min(len(args), len(names))]...)(cmd, args)
	}
}

func newAgentExport(a *app) *cobra.Command {
	var protect bool
	cmd := &cobra.Command{
		Use:   "export FILE [--passphrase]",
		Short: "Write an agent's key to a file",
		Long: `Write the key of the agent this verb works as (--agent NAME for another) to a new
file that only you can read, or with - to stdout if that is no terminal. Whoever has
the file can act as the agent; --passphrase seals the copy. A key that is sealed stays
sealed.`,
		Example: "  conch agent export --agent reviewer reviewer.key --passphrase",
		Args:    words("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client(client.Options{})
			name, _, err := c.Agent()
			if err != nil {
				return err
			}
			// Before a passphrase is typed and a key is asked for.
			if args[0] == "-" && isTerminal(os.Stdout) {
				return conch.Errorf(conch.InvalidRequest, "the key is a secret and is not shown on a terminal").Hint("name a file, or send stdout to one")
			} else if _, err := os.Lstat(args[0]); err == nil && args[0] != "-" {
				return overwrite(args[0])
			}
			passphrase, err := newPassphrase(protect)
			if err != nil {
				return err
			}
			key, err := c.ExportAgent(cmd.Context(), name, passphrase)
			if err != nil {
				return err
			}
			return writeSecret(args[0], key)
		},
	}
	cmd.Flags().BoolVar(&protect, "passphrase", false, "seal the copy with a passphrase")
	return cmd
}

func overwrite(file string) error {
	return conch.Errorf(conch.InvalidRequest, "%s exists", file).Hint("a key is never written over a file; name a new one")
}

// writeSecret makes a new file for the owner's eyes, whole or not at all.
func writeSecret(file string, key []byte) error {
	failed := func(err error) error {
		if errors.Is(err, fs.ErrExist) {
			return overwrite(file)
		}
		return conch.Errorf(conch.InvalidRequest, "cannot write the key: %v", err).Hint("nothing was written; FILE is a new file in a directory you can write")
	}
	var text bytes.Buffer
	if err := json.Indent(&text, key, "", "  "); err != nil {
		return conch.Errorf(conch.Internal, "the daemon gave something else than a key")
	}
	if file == "-" {
		_, err := os.Stdout.Write(text.Bytes())
		return written(err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".conch-key-") // mode 0600
	if err != nil {
		return failed(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(f.Name(), file) // unlike a rename it replaces nothing
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

func newAgentImport(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE [--name NAME]",
		Short: "Keep an agent's key that was exported",
		Long: `Keep a key that agent export wrote (-: stdin), under the name that it has or
another, and print its address. A name or a key that is here already is an error.`,
		Example: "  conch agent import reviewer.key",
		Args:    words("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("name") {
				if err := conch.CheckAgent(name); err != nil {
					return err
				}
			}
			in := os.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return conch.Errorf(conch.InvalidRequest, "cannot read the key: %v", err).Hint("FILE is what conch agent export wrote; - is stdin")
				}
				defer f.Close()
				in = f
			}
			const most = 64 << 10
			key, err := io.ReadAll(io.LimitReader(in, most+1))
			if err != nil {
				return conch.Errorf(conch.InvalidRequest, "cannot read the key: %v", err)
			}
			if len(key) > most {
				return conch.Errorf(conch.InvalidKey, "not a usable key file: it has more than %d bytes", most).Hint("conch agent export writes such files; nothing was changed")
			}
			info, err := a.client(client.Options{}).ImportAgent(cmd.Context(), key, name)
			if err != nil {
				return err
			}
			fmt.Println(info.Name, info.Address)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` to keep it under (default: its own)")
	return cmd
}

func newAgentUnlock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "unlock NAME",
		ValidArgsFunction: a.completeAgent,
		Short:             "Tell the daemon a key's passphrase",
		Long: `Open a key that is sealed with a passphrase, for as long as the daemon runs. The
passphrase is asked for on the terminal, or read as the first line of stdin
where that is none.`,
		Args: words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			passphrase, err := askPassphrase("passphrase: ")
			if err != nil {
				return err
			}
			_, err = a.client(client.Options{}).UnlockAgent(cmd.Context(), args[0], passphrase)
			return err
		},
	}
}

func newAgentLock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "lock NAME",
		ValidArgsFunction: a.completeAgent,
		Short:             "Have the daemon forget a key that was unlocked",
		Args:              words("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := a.client(client.Options{}).LockAgent(cmd.Context(), args[0])
			return err
		},
	}
}

// newPassphrase asks for a passphrase to seal with, on a terminal twice. Where
// none is wanted it is empty.
func newPassphrase(wanted bool) (string, error) {
	if !wanted {
		return "", nil
	}
	passphrase, err := askPassphrase("passphrase: ")
	if err == nil && isTerminal(os.Stdin) {
		var again string
		if again, err = askPassphrase("again: "); err == nil && again != passphrase {
			err = conch.Errorf(conch.InvalidRequest, "the two passphrases differ").Hint("nothing was changed; try again")
		}
	}
	return passphrase, err
}

// askPassphrase reads a passphrase that is never shown: from the terminal, or
// the first line of stdin where that is none.
func askPassphrase(prompt string) (string, error) {
	var passphrase string
	if isTerminal(os.Stdin) {
		var err error
		if passphrase, err = typed(prompt); err != nil {
			return "", err
		}
	} else {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, 4096)).ReadString('\n')
		if err != nil && err != io.EOF {
			return "", conch.Errorf(conch.InvalidRequest, "cannot read the passphrase: %v", err)
		}
		passphrase = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	}
	if passphrase == "" {
		return "", conch.Errorf(conch.InvalidRequest, "the passphrase is empty").Hint("nothing was changed")
	}
	return passphrase, nil
}

// typed reads a line from the terminal without showing it. The terminal shows
// again what is typed however this ends, by Ctrl-C too.
func typed(prompt string) (string, error) {
	fd := int(os.Stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return "", conch.Errorf(conch.InvalidRequest, "cannot ask for a passphrase: %v", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	type line struct {
		text []byte
		err  error
	}
	lines := make(chan line, 1)
	go func() { // ends with the line, or with this process
		fmt.Fprint(os.Stderr, prompt)
		b, err := term.ReadPassword(fd)
		lines <- line{b, err}
	}()
	select {
	case l := <-lines:
		fmt.Fprintln(os.Stderr)
		if l.err != nil {
			return "", conch.Errorf(conch.InvalidRequest, "no passphrase was given: %v", l.err).Hint("nothing was changed")
		}
		return string(l.text), nil
	case <-signals:
		term.Restore(fd, state)
		fmt.Fprintln(os.Stderr)
		return "", exitStatus(statusInterrupted)
	}
}
