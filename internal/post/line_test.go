package post

import (
	"errors"
	stdstrings "strings"
	"sync"
	"testing"

	"github.com/conchsh/conch"
)

// An agent whose key is locked again is not at the relay: nothing is opened or
// sent for it, what comes waits, and goes on when it is unlocked.
func TestALockedAgent(t *testing.T) {
	a, b := newHome(t), newSealedHome(t, []byte("sesame"))
	a.open()
	b.open()
	join(t, a, b)
	befriend(t, a, b)
	a.talk(b, 2)
	b.talk(a, 2)
	b.keys.Lock("me")
	b.post.Shut("me")
	if l := b.post.Lines(); len(l) > 0 {
		t.Errorf("a locked agent has a line: %+v", l)
	}
	m := a.send(b.address()+"/main", "in between")
	a.becomes(m.ID, conch.ReceiptSent)
	if _, err := b.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: a.address(), Text: "no"}); !errors.Is(err, conch.AgentLocked) {
		t.Errorf("send: %v", err)
	}
	if _, err := b.post.ResetContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: a.address()}); !errors.Is(err, conch.AgentLocked) {
		t.Errorf("reset: %v", err)
	}
	b.post.Start()
	if b.post.find("me") != nil {
		t.Error("Start opened the line of a locked agent")
	}
	b.nothing()
	if err := b.keys.Unlock("me", []byte("sesame")); err != nil {
		t.Fatal(err)
	}
	b.post.Start()
	if got := b.fetch(1); got[0] != "in between" {
		t.Error(got)
	}
	a.becomes(m.ID, conch.ReceiptDone)
	b.talk(a, 2)
	a.talk(b, 2)
}

// Locking and unlocking while mail comes and goes loses nothing and leaves
// nothing running.
func TestLockingUnderLoad(t *testing.T) {
	a, b := newHome(t), newSealedHome(t, []byte("sesame"))
	a.open()
	b.open()
	join(t, a, b)
	befriend(t, a, b)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 {
			b.keys.Lock("me")
			b.post.Shut("me")
			if l := b.post.find("me"); l != nil {
				t.Error("a line was opened with a locked key")
			}
			if err := b.keys.Unlock("me", []byte("sesame")); err != nil {
				t.Error(err)
			}
			b.post.Start()
		}
	})
	wg.Go(func() {
		for range 200 {
			b.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: a.address() + "/main", Text: "x"}) // or is refused
		}
	})
	a.talk(b, 50)
	wg.Wait()
	b.enrolled()
	until(t, "all of it is there", func() bool { return b.count(`SELECT count(*) FROM outbox`) == 0 })
	a.fetchAll()
	b.talk(a, 5)
}

// What is queued says why, and a request counts as made when the relay has it.
func TestWhyItIsQueued(t *testing.T) {
	a, b, c := newHome(t), newHome(t), newHome(t)
	for _, h := range []*home{a, b, c} {
		h.open()
	}
	join(t, a, b, c)
	befriend(t, b, a)
	a.close()
	until(t, "the relay is gone", func() bool { return b.post.find("me").down() != "" })
	known, stranger := b.send(a.address()+"/main", "later"), b.send(c.address()+"/main", "who is there?")
	if r := b.status(known.ID); r.Status != conch.ReceiptQueued || r.Reason == "" {
		t.Errorf("to a contact, without a relay: %+v", r)
	}
	if r := b.status(stranger.ID); r.Status != conch.ReceiptQueued || !stdstrings.HasPrefix(r.Reason, "the request to be a contact waits: ") {
		t.Errorf("to a stranger, without a relay: %+v", r)
	}
	a.open()
	b.becomes(known.ID, conch.ReceiptHeld)
	until(t, "the request was made", func() bool {
		return stdstrings.HasPrefix(b.status(stranger.ID).Reason, "the recipient was asked to be a contact")
	})
	c.accept(b)
	b.becomes(stranger.ID, conch.ReceiptHeld)
}
