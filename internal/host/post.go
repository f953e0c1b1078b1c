package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/config"
	"github.com/conchsh/conch/internal/doctor"
	"github.com/conchsh/conch/internal/mail"
	"github.com/conchsh/conch/internal/post"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/relay"
)

// restoredFile is what a restore (internal/backup) leaves in the home: the mail's
// keys may have been used since the backup, and must not be used again.
const restoredFile = "restored"

func (h *Host) newPost() *post.Post {
	restored := &restored{path: filepath.Join(h.Home, restoredFile)}
	return post.New(post.Options{
		Mail:   h.Mail,
		Active: h.Relay.Active,
		Agents: h.mailAgentNames,
		Key: func(agent string) (post.Identity, error) {
			if err := h.needAgent(agent); err != nil {
				return nil, err
			}
			k, err := h.Agents.Key(agent)
			if err != nil {
				return nil, err // and no pointer to nothing
			}
			return k, nil
		},
		Connect: func(id post.Identity, observe func(relay.Link)) (post.Wire, error) {
			w, err := h.Relay.Connect(id, observe)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
		Restored: restored.is,
		Renewed: func(agent string) {
			if err := restored.renewed(agent, h.mailAgentNames()); err != nil && h.Log != nil {
				h.Log.Warn("note that keys were made anew after a restore", "agent", agent, "err", err)
			}
		},
		Limits: post.Limits{
			Rate: h.Config.Get(config.ContactRate), Bytes: h.Config.Get(config.ContactBytes), Requests: h.Config.Get(config.ContactRequests),
			Resend: h.Config.Time(config.MailResend), Patience: h.Config.Time(config.ContactPatience), HoldBack: 10 * time.Minute,
		},
		Log: h.Log,
	})
}

// restored is the mark of a restore: a file that lists the agents that have had
// new keys since, a line each. It goes when all have. Keys made anew twice would be
// strangers to who knew those of the backup, so the list outlives the daemon.
type restored struct {
	path string
	mu   sync.Mutex // held while the file is looked at or changed
}

func (r *restored) is(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, err := r.done()
	return !errors.Is(err, fs.ErrNotExist) && !slices.Contains(done, agent)
}

func (r *restored) done() ([]string, error) {
	b, err := os.ReadFile(r.path)
	return strings.Fields(string(b)), err
}

func (r *restored) renewed(agent string, all []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, err := r.done()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.Contains(done, agent) {
		done = append(done, agent)
	}
	if !slices.ContainsFunc(all, func(a string) bool { return !slices.Contains(done, a) }) {
		return os.Remove(r.path)
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(agent + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

func (h *Host) mailAgentNames() []string { return mailAgents{h}.Names() }

// StartPost opens the way to other homes, if there is one.
func (h *Host) StartPost(ctx context.Context) {
	h.Relay.OnChange(h.Post.Start)
	if err := h.Relay.Start(ctx); err != nil && ctx.Err() == nil && h.Log != nil {
		h.Log.Error("start the relay", "err", err)
	}
	h.Post.Start()
}

// FillContact gives a request that names no agent the one that works everywhere, and
// refuses an agent that is none.
func (h *Host) FillContact(r *conch.ContactRequest) error {
	if err := h.FillAgent(&r.Agent); err != nil {
		return err
	}
	if err := conch.CheckAgent(r.Agent); err != nil {
		return err
	}
	if !h.agentHere(r.Agent) {
		return h.noAgent(r.Agent)
	}
	return nil
}

// AddContact asks an agent to be a contact.
func (h *Host) AddContact(ctx context.Context, r conch.ContactRequest) (conch.Contact, error) {
	return h.Post.AddContact(ctx, r, func(name string) error {
		if h.agentHere(name) {
			return conch.Errorf(conch.NameTaken, "%s is an agent of this home", name).Hint("choose another name: it must mean one thing")
		}
		return h.vacant(name)
	})
}

// uncontacted refuses a label or an agent's name that is a contact's.
func (h *Host) uncontacted(name string) error {
	// A database that cannot be used keeps nobody from a shell.
	if named, err := h.Post.Named(context.Background(), name); err != nil || !named {
		return nil
	}
	return conch.Errorf(conch.LabelTaken, "%q is the name of a contact and cannot be a session's or an agent's", name).
		Hint("choose another: mail to it must mean one thing")
}

// Person refuses what a person has to decide when the caller is no person, as
// far as that can be seen: a process with a terminal for its input that runs
// in no session of conch's.
func (h *Host) Person(pid int) error {
	const hint = "ask your user to run this in a terminal of their own, or to do it on the page (conch ui)"
	if pid <= 0 || !proc.AtTerminal(pid) {
		return conch.Errorf(conch.NotHuman, "this is for a person to decide, and the caller has no terminal").Hint(hint)
	}
	if _, marked := proc.MarkOf(pid); marked {
		return conch.Errorf(conch.NotHuman, "this is for a person to decide, and the caller runs in a session of conch").Hint(hint)
	}
	return nil
}

// RelayInfo is the relay as status tells it. It is not connected where another home
// has taken an agent over.
func (h *Host) RelayInfo() conch.RelayInfo {
	i := h.Relay.Info()
	i.Connected = i.Connected && !slices.ContainsFunc(h.Post.Lines(), func(l post.Info) bool { return errors.Is(l.Err, conch.NotOwner) })
	return i
}

// RelayStatus is the relay with all there is to know of this home's agents at it.
func (h *Host) RelayStatus(ctx context.Context) conch.RelayStatus {
	s := h.Relay.Status(ctx)
	for _, l := range h.Post.Lines() {
		if !errors.Is(l.Err, conch.NotOwner) {
			continue
		}
		e := conch.AsError(l.Err)
		text := e.Message + " (" + e.HintText + ")"
		s.Connected, s.Error = false, &text
		for i := range s.Agents {
			if s.Agents[i].Address == l.Address {
				s.Agents[i].Connected, s.Agents[i].Error = false, &text
			}
		}
	}
	return s
}

// checkPost is the doctor's look at mail between homes.
func (h *Host) checkPost(ctx context.Context) doctor.Check {
	for _, l := range h.Post.Lines() {
		if errors.Is(l.Err, conch.NotOwner) {
			e := conch.AsError(l.Err)
			return doctor.Bad("contacts", e.HintText, "%s", e.Message)
		}
	}
	quarantined, asked, held, err := h.Post.Summary(ctx)
	switch {
	case err != nil:
		return doctor.Bad("contacts", "", "%v", err)
	case held > 0:
		return doctor.Bad("contacts", "conch contacts lists them; conch contacts accept lets their mail in", "%d with changed keys, whose mail is held", held)
	case quarantined > 0:
		return doctor.Bad("contacts", "conch mail quarantine lists them, and with --clear throws them away", "%d letters in quarantine", quarantined)
	case asked > 0:
		return doctor.Good("contacts", "%d wait for an answer: conch contacts", asked)
	}
	return doctor.Good("contacts", "nothing waits")
}

// Attachment opens a file of a message, for an agent that has it.
func (h *Host) Attachment(ctx context.Context, agent, id string, n int) (conch.Attachment, *os.File, error) {
	a, err := h.Mail.Attachment(ctx, agent, id, n)
	if err != nil {
		return a, nil, err
	}
	f, err := h.Mail.OpenFile(a)
	return a, f, err
}

// carried joins mail with what carries it between homes.
func (h *Host) carried(o mail.Options) mail.Options {
	o.Files = filepath.Join(h.Home, "files")
	o.Ready = func(ctx context.Context, agent, address string) error { return h.Post.Ready(ctx, agent, address) }
	o.Carry = func(s *mail.Step, n int64, address string) (string, error) { return h.Post.Carry(s, n, address) }
	o.Carried = func(agent, address string) { h.Post.Carried(agent, address) }
	o.Contact = func(ctx context.Context, agent, name string) (string, bool, error) {
		return h.Post.Contact(ctx, agent, name)
	}
	o.Report = func() { h.Post.Report() }
	return o
}
