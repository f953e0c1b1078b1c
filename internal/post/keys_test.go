package post

import (
	stdstrings "strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/seal"
)

// A confirmed number is worth nothing once it is another: on the side whose keys
// were made anew and on the other, which is told. The new device is of now.
func TestVerifiedNoMore(t *testing.T) {
	a, b := trusting(t, nil)
	a.talk(b, 2)
	b.talk(a, 2)
	for _, h := range []*home{a, b} {
		peer := a
		if h == a {
			peer = b
		}
		x, err := h.post.VerifyContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: peer.address(), Confirm: true})
		if err != nil || !x.Contact.Verified {
			t.Fatalf("%+v, %v", x, err)
		}
	}
	b.snapshot("then.db")
	b.talk(a, 1)
	a.talk(b, 1)
	until(t, "all is reported on", func() bool {
		return a.count(`SELECT count(*) FROM outbox`) == 0 && b.count(`SELECT count(*) FROM outbox`) == 0
	})
	b.close()
	b.restore("then.db")
	b.open()
	b.enrolled()
	if c := b.contact(a); c.Verified || !stdstrings.Contains(c.Note, "this home's keys") {
		t.Errorf("the restored home says of its contact: %+v", c)
	}
	if at := seal.Epoch(b.epoch()).Time(); time.Until(at) > time.Minute {
		t.Errorf("its new keys are of %v", at)
	}
	b.talkPast(a)
	c := a.contact(b)
	if c.Verified || c.Held != "" || !stdstrings.Contains(c.Note, "vouch") || !stdstrings.Contains(c.Note, "compare") {
		t.Errorf("the other says: %+v", c)
	}
	x, err := a.post.VerifyContact(t.Context(), conch.ContactRequest{Agent: "me", Peer: b.address(), Confirm: true})
	if err != nil || !x.Contact.Verified || x.Contact.Note != "" {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestLatestEpoch(t *testing.T) {
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	ms := uint64(now.UnixMilli())
	for _, made := range []time.Duration{0, -time.Hour, -6 * 24 * time.Hour, time.Hour} {
		epoch := ms - uint64((2 * time.Hour).Milliseconds())
		bundle := epoch<<20 + ms + uint64(int64(made/time.Millisecond))
		got := latest(bundle, now.UnixNano())
		if got < seal.Epoch(epoch<<20) || got.Time().Sub(seal.Epoch(epoch<<20).Time()) > 5*time.Second {
			t.Errorf("a bundle made %v from now: %v after its device", made, got.Time().Sub(seal.Epoch(epoch<<20).Time()))
		}
	}
	if latest(0, now.UnixNano()) != 0 {
		t.Error("no bundle is no epoch")
	}
}
