package conchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// address is that of the home's agent me.
func (h *Home) address() string {
	h.T.Helper()
	var w conch.WhoAmI
	h.JSON(&w, "whoami", "--json")
	return w.Address
}

// homesAtARelay gives a home whose daemon is the relay, and others that joined it,
// contacts of each other. Messages that are lost are sent again soon. prepare, if
// given, comes before a home's daemon.
func homesAtARelay(t *testing.T, n int, prepare ...func(i int, h *Home)) (relay *Home, homes []*Home) {
	t.Helper()
	env := []string{"CONCH_MAIL_RESEND=500ms", "CONCH_CONTACT_RATE=off", "CONCH_CONTACT_BYTES=off"}
	relay = New(t).With(env...)
	relay.OK("up")
	relay.OK("relay", "listen", "127.0.0.1:0")
	for i := range n {
		h := New(t).With(env...)
		for _, f := range prepare {
			f(i, h)
		}
		h.OK("up")
		fields := strings.Fields(relay.OK("relay", "invite"))
		h.OK("relay", "join", fields[len(fields)-1])
		h.OK("inbox", "--peek") // the session main exists from here on
		homes = append(homes, h)
	}
	for i, h := range homes {
		for _, other := range homes[i+1:] {
			other.enrolled()
			h.enrolled()
			name := "peer" + strconv.Itoa(len(h.contacts()))
			Until(t, Limit, "the other's keys are at the relay", func() bool {
				return h.Conch("contacts", "add", name, other.address()).Status == 0
			})
			other.accepts(h)
			Until(t, Limit, "it is accepted", func() bool {
				for _, c := range h.contacts() {
					if c.Address == other.address() {
						return c.State == conch.ContactAccepted
					}
				}
				return false
			})
		}
	}
	return relay, homes
}

// enrolled waits until the home's agent has a mailbox.
func (h *Home) enrolled() {
	h.T.Helper()
	Until(h.T, Limit, "the agent is connected", func() bool {
		var s conch.StatusInfo
		h.JSON(&s, "status", "--json")
		return s.Relay.Connected
	})
}

func (h *Home) contacts() (list []conch.Contact) {
	h.T.Helper()
	h.JSON(&list, "contacts", "ls", "--json")
	return list
}

// accepts lets another home in, at a terminal.
func (h *Home) accepts(other *Home) {
	h.T.Helper()
	address := other.address()
	Until(h.T, Limit, "the request is there", func() bool {
		for _, c := range h.contacts() {
			if c.Address == address {
				return true
			}
		}
		return false
	})
	w := onTerminal(h, "contacts", "accept", address)
	if got := w.wait(); got != 0 {
		h.T.Fatalf("accept: status %d, %s", got, w.text())
	}
}

func TestMailBetweenHomesSurvivesKills(t *testing.T) {
	t.Parallel()
	postUnderKills(t, 300, 12)
}

func TestSoakMailBetweenHomes(t *testing.T) {
	if os.Getenv("CONCH_SOAK") == "" {
		t.Skip("make soak runs this")
	}
	total, kills := 100_000, 1000
	if n, err := strconv.Atoi(os.Getenv("CONCH_SOAK_MESSAGES")); err == nil {
		total, kills = n, max(3, n/100)
	}
	postUnderKills(t, total, kills)
}

// postUnderKills has two homes write to each other through a third one's relay
// while the daemons of all three are killed, and finds every message once and
// in order.
func postUnderKills(t *testing.T, total, kills int) {
	relay, homes := homesAtARelay(t, 2)
	limit := 5 * time.Minute
	if total > 10_000 {
		limit = 5 * time.Hour
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	each := total / 2
	var sent, done atomic.Int64
	var wg sync.WaitGroup
	for i, h := range homes {
		to := homes[1-i].address() + "/main"
		wg.Go(func() {
			c := h.client()
			defer c.CloseIdle()
			for n := range each {
				m := conch.SendRequest{To: to, Text: strconv.Itoa(n), ID: conch.NewMessageID()}
				if err := stubborn(ctx, func() error { _, err := c.Send(ctx, "main", m); return err }); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				sent.Add(1)
			}
		})
		wg.Go(func() {
			c := h.client()
			defer c.CloseIdle()
			next := 0
			for next < each {
				var list []conch.InboxEntry
				if err := stubborn(ctx, func() (err error) { list, err = c.Peek(ctx, "main", 50); return err }); err != nil {
					t.Errorf("after %d of %d: %v", next, each, err)
					return
				}
				var ids []string
				for _, e := range list {
					if e.Text != strconv.Itoa(next) {
						t.Errorf("message %s comes when %d is due", e.Text, next)
						return
					}
					next++
					ids = append(ids, e.ID)
				}
				if len(ids) == 0 {
					if ctx.Err() != nil {
						t.Errorf("%d of %d came: %v", next, each, ctx.Err())
						return
					}
					time.Sleep(2 * time.Millisecond) // between two looks
					continue
				}
				if err := stubborn(ctx, func() error { return c.Ack(ctx, "main", ids...) }); err != nil {
					t.Errorf("ack: %v", err)
					return
				}
				done.Add(int64(len(ids)))
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	points := []string{"post.sealed", "post.before-publish", "post.published", "post.before-commit", "post.filed", "post.reported", "post.told", "store.before-commit", "store.after-commit"}
	all := []*Home{homes[0], homes[1], relay}
	for k := range kills {
		share := int64(total) * int64(k+1) / int64(kills+1)
		Until(t, limit, "mail goes on", func() bool { return done.Load() >= share || ended(finished) })
		h := all[k%3]
		if pid := h.Daemon(); pid > 1 {
			syscall.Kill(pid, syscall.SIGKILL)
			Until(t, 10*time.Second, "the daemon is dead", func() bool { return !Alive(pid) })
		}
		if k%2 == 0 && h != relay && !ended(finished) {
			// This one dies by itself, at a step, in the midst of the others.
			point := points[rand.IntN(len(points))]
			h.With(fmt.Sprintf("CONCH_FAULT=%s:%d", point, 1+rand.IntN(10))).Conch("up")
			if pid := h.Daemon(); pid > 1 {
				before := time.Now()
				Until(t, limit, "the daemon reaches "+point, func() bool {
					return !Alive(pid) || ended(finished) || time.Since(before) > 3*time.Second
				})
				if Alive(pid) { // it never came there
					syscall.Kill(pid, syscall.SIGKILL)
					Until(t, 10*time.Second, "the daemon is dead", func() bool { return !Alive(pid) })
				}
			}
		}
		h.OK("up")
	}
	<-finished
	if got := done.Load(); got != int64(each*2) {
		t.Errorf("%d sent, %d received, of %d", sent.Load(), got, total)
	}
	for _, h := range homes {
		var list []conch.InboxEntry
		if h.JSON(&list, "inbox", "--json"); len(list) != 0 {
			t.Errorf("%d messages too many", len(list))
		}
		var letters []conch.Quarantined
		if h.JSON(&letters, "mail", "quarantine", "--json"); len(letters) != 0 {
			t.Errorf("%d letters in quarantine: %s", len(letters), letters[0].Reason)
		}
		if o := h.Conch("doctor"); !strings.Contains(o.Stdout, "conch.db is whole") {
			t.Error(o)
		}
	}
}

// A daemon that dies at any named step, on either side, loses and doubles nothing.
func TestPostFaultPoints(t *testing.T) {
	t.Parallel()
	_, homes := homesAtARelay(t, 2)
	n := 0
	list := []string{
		"post.keys-made", "post.keys-published", "post.sealed", "post.resealed", "post.before-publish", "post.published", "post.uploaded",
		"post.before-commit", "post.filed", "post.reported", "post.told", "mail.accepted",
	}
	if one := os.Getenv("CONCH_TEST_POINT"); one != "" {
		list = []string{one}
	}
	for _, point := range list {
		for side := range 2 {
			a, b := homes[side], homes[1-side]
			a.OK("down")
			reached := false
			if point == "post.keys-made" || point == "post.keys-published" {
				b.OK("down") // the keys are looked at when a line is opened
				b.OK("up")
			}
			// It may die before anybody can ask it for its pid.
			pid := 0
			fmt.Sscanf(a.With("CONCH_FAULT="+point).Conch("up").Stdout, "started (pid %d,", &pid)
			reached = pid == 0
			file := filepath.Join(a.Work, "file")
			if err := os.WriteFile(file, []byte("content of "+point), 0o600); err != nil {
				t.Fatal(err)
			}
			// Both write; the armed one dies somewhere in this.
			var want [2][]string
			for range 3 {
				for i, from := range []*Home{a, b} {
					n++
					text := fmt.Sprint(point, " ", n)
					args := []string{"send", []*Home{b, a}[i].address() + "/main", text, "--id", fmt.Sprint("id-", n)}
					if point == "post.uploaded" {
						args = append(args, "--attach", file)
					}
					Until(t, Limit, "it is accepted", func() bool { return from.Conch(args...).Status == 0 })
					want[i] = append(want[i], text)
				}
			}
			var done time.Time // what comes after the messages, such as reports, has some time left
			Until(t, Limit, "its daemon died, or has done its work", func() bool {
				reached = reached || !Alive(pid)
				if done.IsZero() && b.waiting() == len(want[0]) && a.waiting() == len(want[1]) {
					done = time.Now()
				}
				return reached || !done.IsZero() && time.Since(done) > 5*time.Second
			})
			a.OK("up")
			b.gets(want[0])
			a.gets(want[1])
			if !reached && point != "post.keys-published" && point != "post.keys-made" {
				t.Errorf("%s, side %d: nobody came there", point, side)
			}
		}
	}
}

// waiting counts what is in the inbox of main.
func (h *Home) waiting() int {
	h.T.Helper()
	o := h.Conch("inbox", "--peek", "--json")
	return strings.Count(o.Stdout, `"from_session"`)
}

// gets expects these messages, in this order, and no more.
func (h *Home) gets(want []string) {
	h.T.Helper()
	var list []conch.InboxEntry
	Until(h.T, Limit, fmt.Sprintf("%d messages come", len(want)), func() bool {
		h.JSON(&list, "inbox", "--peek", "--json")
		return len(list) >= len(want)
	})
	var got []string
	for _, e := range list {
		got = append(got, e.Text)
		h.OK("ack", e.ID)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		h.T.Errorf("got %q, want %q", got, want)
	}
}

// What a person decides is refused without one.
func TestContactsNeedAPerson(t *testing.T) {
	t.Parallel()
	_, homes := homesAtARelay(t, 2)
	a, b := homes[0], homes[1]
	peer := a.address()
	refused := func(o Out) {
		t.Helper()
		if o.Status == 0 || !strings.Contains(o.Stderr, "for a person to decide") {
			t.Error(o)
		}
	}
	refused(b.Conch("contacts", "accept", peer))
	refused(b.Conch("contacts", "authority", peer, "act"))
	refused(b.Conch("contacts", "verify", peer, "--confirm"))
	// A terminal inside a session is the agent's, not a person's.
	b.OK("exec", "true")
	r := b.Exec("main", fmt.Sprintf("%s contacts authority %s act", b.Exe, peer))
	if Code(r.ExitCode) == "0" || !strings.Contains(r.Stderr, "for a person to decide") {
		t.Errorf("in a session: %+v", r)
	}
	// Nor by way of the API.
	c := b.client()
	if _, err := c.SetAuthority(t.Context(), "", peer, conch.AuthorityAct); !errors.Is(err, conch.NotHuman) {
		t.Errorf("by the client: %v", err)
	}
	w := onTerminal(b, "contacts", "authority", peer, "ask")
	if got := w.wait(); got != 0 {
		t.Fatalf("at a terminal: %d %s", got, w.text())
	}
	// To lower it anybody may.
	b.OK("contacts", "authority", peer, "inform")
	number := strings.TrimSpace(b.OK("contacts", "verify", peer))
	if other := strings.TrimSpace(a.OK("contacts", "verify", b.address())); number != other || len(number) != 71 {
		t.Errorf("%q and %q", number, other)
	}
}

// Files go with messages, to another home and within one, and never over a file
// that is there.
func TestAttachments(t *testing.T) {
	t.Parallel()
	_, homes := homesAtARelay(t, 2)
	a, b := homes[0], homes[1]
	data := make([]byte, 5<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	file := filepath.Join(a.Work, "data.bin")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	a.OK("send", b.address()+"/main", "see the file", "--attach", file, "--attach", file, "--id", "away")
	a.OK("send", "main", "see the file", "--attach", file, "--id", "home")
	for id, h := range map[string]*Home{"away": b, "home": a} {
		var list []conch.InboxEntry
		Until(t, Limit, "the file is there", func() bool {
			h.JSON(&list, "inbox", "--peek", "--json")
			return len(list) == 1 && len(list[0].Attachments) > 0 && list[0].Attachments[len(list[0].Attachments)-1].Here
		})
		if list[0].ID != id || list[0].Attachments[0].Name != "data.bin" || strings.Contains(list[0].Text, "data.bin") {
			t.Errorf("%+v", list[0])
		}
		out := filepath.Join(h.Work, "out-"+id)
		h.OK("mail", "save", id, "-o", out)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if fi, err := os.Stat(out); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		if o := h.Conch("mail", "save", id, "-o", out); o.Status == 0 {
			t.Error("a file was overwritten")
		}
		if o := h.Conch("mail", "save", id, "--attachment", "3"); o.Status == 0 {
			t.Error(o)
		}
	}
	b.OK("mail", "save", "away", "--attachment", "2")
	if got, err := os.ReadFile(filepath.Join(b.Work, "data.bin")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	big := filepath.Join(a.Work, "big")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, conch.MaxAttachment+1); err != nil {
		t.Fatal(err)
	}
	if o := a.Conch("send", b.address()+"/main", "too big", "--attach", big); o.Status == 0 || !strings.Contains(o.Stderr, "limit") {
		t.Error(o)
	}
}

// A home that was restored from a backup writes and is written to again, under new
// keys, and nothing comes twice.
func TestRestoredHomeWritesAgain(t *testing.T) {
	t.Parallel()
	_, homes := homesAtARelay(t, 2)
	a, b := homes[0], homes[1]
	say := func(from, to *Home, text string) {
		t.Helper()
		id := conch.NewMessageID()
		from.OK("send", to.address()+"/main", text, "--id", id)
		to.gets([]string{text})
		Until(t, Limit, "its sender knows", func() bool {
			var r conch.Receipts
			from.JSON(&r, "receipts", id, "--json")
			return r.Status == conch.ReceiptDone
		})
	}
	say(a, b, "one")
	say(b, a, "two")
	numbers := func() string { return strings.TrimSpace(a.OK("contacts", "verify", b.address())) }
	before := numbers()
	file := filepath.Join(b.Work, "backup.tar.gz")
	b.OK("backup", file)
	for i := range 3 {
		say(b, a, fmt.Sprint("after ", i))
		say(a, b, fmt.Sprint("and back ", i))
	}
	b.OK("down", "--all")
	b.OK("restore", "--force", file)
	if _, err := os.Stat(filepath.Join(b.Path, "restored")); err != nil {
		t.Error(err)
	}
	b.OK("up")
	for i := range 3 {
		say(b, a, fmt.Sprint("restored ", i))
		say(a, b, fmt.Sprint("and again ", i))
	}
	if numbers() == before {
		t.Error("the safety number is the same: the old keys are in use")
	}
	if _, err := os.Stat(filepath.Join(b.Path, "restored")); err == nil {
		t.Error("the daemon did not see that it was restored")
	}
	for _, c := range a.contacts() {
		if c.Held != "" {
			t.Errorf("its mail is held: %s", c.Held)
		}
	}
	// What was moved aside is a home of its own.
	aside, _ := filepath.Glob(b.Path + ".before-*")
	for _, d := range aside {
		os.RemoveAll(d)
	}
}

// A recipient whose disk is full takes nothing and loses nothing: what it could not
// take comes when there is space again, in order.
func TestPostOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a small file system needs root to mount")
	}
	_, homes := homesAtARelay(t, 2, func(i int, h *Home) {
		if i != 1 {
			return
		}
		if err := os.Mkdir(h.Path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", h.Path, "tmpfs", 0, "size=8m,mode=700"); err != nil {
			t.Skipf("cannot mount: %v", err)
		}
		t.Cleanup(func() {
			h.Conch("down", "--all")
			Until(t, 10*time.Second, "the file system is unused", func() bool { return syscall.Unmount(h.Path, 0) == nil })
		})
	})
	a, b := homes[0], homes[1]
	const n = 20
	for i := range n {
		a.Feed(strings.NewReader(fmt.Sprint(i, " ", strings.Repeat("x", 400_000))), "send", b.address()+"/main", "-", "--id", fmt.Sprint("big-", i))
	}
	status := func(i int) conch.Receipt {
		var r conch.Receipts
		a.JSON(&r, "receipts", fmt.Sprint("big-", i), "--json")
		return r.Status
	}
	Until(t, Limit, "all are on the relay, and some there", func() bool { return status(n-1) == conch.ReceiptSent && status(0) != conch.ReceiptSent })
	if got := status(n - 1); got != conch.ReceiptSent {
		t.Errorf("the last one is %s on a disk that cannot have it", got)
	}
	if err := syscall.Mount("tmpfs", b.Path, "tmpfs", syscall.MS_REMOUNT, "size=64m,mode=700"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var list []conch.InboxEntry
		Until(t, Limit, "the next one is there", func() bool {
			b.JSON(&list, "inbox", "--peek", "-n", "1", "--json")
			return len(list) == 1
		})
		if first, _, _ := strings.Cut(list[0].Text, " "); first != strconv.Itoa(i) || len(list[0].Text) < 400_000 {
			t.Fatalf("message %s comes when %d is due", first, i)
		}
		b.OK("ack", list[0].ID)
	}
	if o := b.Conch("doctor"); !strings.Contains(o.Stdout, "conch.db is whole") {
		t.Error(o)
	}
}
