package post

import (
	"io"
	"slices"
	stdstrings "strings"
	"testing"

	"github.com/conchsh/conch"
)

// Ids are their senders' to choose. Two messages of one id, from two senders, are
// two messages under two ids here; each sender hears of its own.
func TestOneIDOfTwoSenders(t *testing.T) {
	b, a, c := newHome(t), newHome(t), newHome(t)
	for _, h := range []*home{b, a, c} {
		h.open()
	}
	join(t, b, a, c)
	befriend(t, a, b)
	befriend(t, c, b)
	for _, h := range []*home{a, c} {
		file, err := h.mail.Upload(t.Context(), "name-"+h.address()[:4], stdstrings.NewReader("file of "+h.address()))
		if err != nil {
			t.Fatal(err)
		}
		h.send(b.address()+"/main", "from "+h.address(), func(r *conch.SendRequest) { r.ID, r.Attachments = "SQ-3", []string{file.ID} })
		until(t, "it is taken", func() bool { return h.status("SQ-3").Status == conch.ReceiptHeld })
	}
	p, err := b.mail.Peek(t.Context(), "me", "main", 0, 10)
	if err != nil || len(p.Messages) != 2 {
		t.Fatalf("%d messages, %v", len(p.Messages), err)
	}
	first, second := p.Messages[0], p.Messages[1]
	if first.ID != "SQ-3" || second.ID != "SQ-3@"+c.address()[:8] {
		t.Fatalf("ids %q and %q", first.ID, second.ID)
	}
	for _, e := range p.Messages {
		until(t, "the file is here", func() bool { at, err := b.mail.Attachment(t.Context(), "me", e.ID, 1); return err == nil && at.Here })
		at, err := b.mail.Attachment(t.Context(), "me", e.ID, 1)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.mail.OpenFile(at)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(data) != "file of "+e.From || at.Name != "name-"+e.From[:4] {
			t.Errorf("attachment %s of %s holds %q (%v)", at.Name, e.ID, data, err)
		}
	}
	// The sender repeats itself: it is the same message.
	c.post.find("me").again(t.Context())
	if err := b.mail.Ack(t.Context(), "me", "main", []string{first.ID}); err != nil {
		t.Fatal(err)
	}
	a.becomes("SQ-3", conch.ReceiptDone)
	if s := c.status("SQ-3").Status; s == conch.ReceiptDone {
		t.Errorf("the other's message is %s", s)
	}
	sent, err := b.mail.Reply(t.Context(), second.ID, conch.SendRequest{Agent: "me", Session: "main", Text: "to the second"})
	if err != nil || sent.To != c.address() {
		t.Fatalf("%+v, %v", sent, err)
	}
	c.becomes("SQ-3", conch.ReceiptDone)
	var got []conch.InboxEntry
	until(t, "the reply is there", func() bool {
		p, err := c.mail.Peek(t.Context(), "me", "main", 0, 10)
		got = p.Messages
		return err == nil && len(got) == 1
	})
	if got[0].InReplyTo == nil || *got[0].InReplyTo != "SQ-3" || got[0].Text != "to the second" {
		t.Errorf("%+v", got[0])
	}
	a.nothing()
	// What its sender calls by that id, in a later message, is its own.
	c.send(b.address()+"/main", "more", func(r *conch.SendRequest) { r.InReplyTo = "SQ-3" })
	until(t, "the next is there", func() bool {
		p, err := b.mail.Peek(t.Context(), "me", "main", 0, 10)
		return err == nil && slices.ContainsFunc(p.Messages, func(e conch.InboxEntry) bool { return e.InReplyTo != nil && *e.InReplyTo == second.ID })
	})
	// Nor does this home give an id twice.
	if _, err := b.mail.Send(t.Context(), conch.SendRequest{Agent: "me", Session: "main", To: a.address(), Text: "x", ID: "SQ-3"}); conch.AsError(err).Kind != conch.MessageConflict {
		t.Errorf("an id that is taken: %v", err)
	}
}
