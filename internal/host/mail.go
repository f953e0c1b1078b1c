package host

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/doctor"
	"github.com/conchsh/conch/internal/mail"
)

// newMail joins mail and sessions, which know nothing of each other.
func (h *Host) newMail() *mail.Mail {
	return mail.New(h.carried(mail.Options{
		Path:   filepath.Join(h.Home, "conch.db"),
		Agents: mailAgents{h},
		Log:    h.Log,
		Had: func(agent, label string) bool {
			if _, err := h.Store.Lookup(agent, label); err == nil {
				return true
			}
			_, ok := h.Store.Archived(agent, label)
			return ok
		},
		Labels: func(agent string) (labels []string) {
			for _, s := range h.Store.Sessions() {
				if s.Agent() == agent {
					labels = append(labels, s.Label())
				}
			}
			return labels
		},
		Running: h.running,
		Changed: h.watch.stir,
		Fenced:  func() { h.Leave() },
	}))
}

// mailAgents are this home's agents. The default one is here before it is made.
type mailAgents struct{ h *Host }

func (a mailAgents) Known(name string) bool { return a.h.agentHere(name) }

func (a mailAgents) Taken(label string) bool { return a.h.Agents.Taken(label) }

func (a mailAgents) Names() []string {
	names := a.h.Agents.Names()
	if !slices.Contains(names, conch.DefaultAgent) {
		names = append(names, conch.DefaultAgent)
	}
	return names
}

func (a mailAgents) ByAddress(address string) (string, bool) { return a.h.Agents.ByAddress(address) }

// unlabelled refuses an agent's name that mail knows as a session's label.
func (h *Host) unlabelled(name string) error {
	owner, err := h.Mail.LabelOwner(context.Background(), name)
	if err != nil || owner == "" {
		return err
	}
	return conch.Errorf(conch.LabelTaken, "%q is a label that agent %s has mail under and cannot be an agent's name", name, owner).
		Hint("choose another name: mail to it must mean one thing")
}

// running asks keepers which of them run a command. One that does not answer in
// time counts as running: its session is there.
func (h *Host) running(ctx context.Context, agent, label string) []string {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		list []string
		sem  = make(chan struct{}, 32)
	)
	for _, s := range h.Store.Sessions() {
		if s.Agent() != agent || (label != "" && s.Label() != label) || !s.Running() {
			continue
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			if info, err := s.Info(ctx); err != nil || info.Busy {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, s.Label())
			}
		})
	}
	wg.Wait()
	return list
}

// boxes are the sessions as mail knows them.
func (h *Host) boxes(ctx context.Context) []mail.Mailbox {
	boxes, err := h.Mail.Mailboxes(ctx)
	if err != nil && h.Log != nil {
		h.Log.Warn("list mailboxes", "err", err)
	}
	return boxes
}

// join adds to a list of shells who is present, and the sessions that have mail or
// a presence and no shell.
func join(list []conch.SessionInfo, boxes []mail.Mailbox) []conch.SessionInfo {
	at := make(map[[2]string]int, len(list))
	for i, s := range list {
		at[[2]string{s.Agent, s.Label}] = i
	}
	for _, b := range boxes {
		if i, ok := at[[2]string{b.Agent, b.Label}]; ok {
			list[i].Live = list[i].Live || b.Live
			list[i].Mail = b.Waiting
			continue
		}
		list = append(list, conch.SessionInfo{
			Agent: b.Agent, Label: b.Label, Live: b.Live, Busy: b.Busy, Cwd: b.Cwd, Mail: b.Waiting,
			StartedAt: b.FirstSeen.UTC(), LastActive: b.LastSeen.UTC(),
		})
	}
	slices.SortStableFunc(list, func(a, b conch.SessionInfo) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), mail.CompareLabels(a.Label, b.Label))
	})
	return list
}

// MailSnapshot gives a copy of all mail, a file without a name that the caller closes;
// nil if there is no mail.
func (h *Host) MailSnapshot(ctx context.Context) (*os.File, error) {
	dir, err := os.MkdirTemp(h.Home, ".snapshot-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "conch.db")
	if there, err := h.Mail.Snapshot(ctx, path); err != nil || !there {
		return nil, err
	}
	return os.Open(path)
}

func (h *Host) checkMail(ctx context.Context) conch.Check {
	if !h.Mail.Used() {
		return doctor.Good("mail", "not used yet")
	}
	if err := h.Mail.Check(ctx); err != nil {
		e := conch.AsError(err)
		return doctor.Bad("mail", e.HintText, "%s", e.Message)
	}
	return doctor.Good("mail", "conch.db is whole")
}
